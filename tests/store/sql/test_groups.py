"""Column groups through SQL: CREATE TABLE, SHOW CREATE TABLE, DESC and INSERT (SM1-SM6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seqstore import InvalidInputError
from seqstore.store.sql import Session

Run = Callable[[str], Any]
CREATE = """
CREATE TABLE `upsert_test` (
    `a` bigint(20) NULL COMMENT "",
    `b` int(11) NULL COMMENT "",
    `c` int(11) NULL COMMENT "",
    `d` int(11) NULL COMMENT "",
    `e` int(11) NULL COMMENT "",
    `s1` int(11) NULL COMMENT "",
    `s2` int(11) NULL COMMENT ""
) ENGINE=OLAP
UNIQUE KEY(`a`, `b`)
COMMENT "OLAP"
DISTRIBUTED BY HASH(`a`, `b`) BUCKETS 1
PROPERTIES (
    "light_schema_change" = "true",
    "replication_num" = "1",
    "sequence_mapping.s1" = "c,d",
    "sequence_mapping.s2" = "e"
)"""


@pytest.fixture
def rows(session: Session) -> Run:
    """Runs a text, gives the rows of its last statement; the example's table is there."""

    def run(text: str) -> list[tuple[Any, ...]]:
        result = list(session.execute(text))[-1]
        return [tuple(row.values()) for row in result.rows.to_pylist()] if result.rows is not None else []

    run(CREATE)
    return run


def test_the_worked_example_of_the_manual(session: Session, rows: Run) -> None:
    """SM5."""
    steps = [
        ("(a, b, c, d, s1) values (1,1,2,2,2)", (1, 1, 2, 2, None, 2, None)),
        ("(a, b, c, d, s1) values (1,1,1,1,1)", (1, 1, 2, 2, None, 2, None)),
        ("(a, b, e, s2) values (1,1,2,2)", (1, 1, 2, 2, 2, 2, 2)),
        ("(a, b, c, d, s1) values (1,1,3,3,3)", (1, 1, 3, 3, 2, 3, 2)),
        ("(a, b, c, d, s1, e, s2) values (1,1,5,5,4,5,4)", (1, 1, 5, 5, 5, 4, 4)),
    ]
    for statement, expected in steps:
        (result,) = session.execute(f"insert into upsert_test {statement}")
        assert result.affected_rows == 1
        assert rows("select * from upsert_test") == [expected]


def test_rows_of_one_statement_are_merged_the_same_way(rows: Run) -> None:
    """SM6."""
    rows("insert into upsert_test(a, b, c, d, s1) values (1,1,1,1,1),(1,1,3,3,3),(1,1,2,2,2)")
    assert rows("select c, d, s1 from upsert_test") == [(3, 3, 3)]


def test_show_create_table_makes_the_same_groups_again(session: Session, rows: Run) -> None:
    """SM1."""
    ((_, text),) = rows("SHOW CREATE TABLE upsert_test")
    assert '"sequence_mapping.s1" = "c,d",\n"sequence_mapping.s2" = "e"' in text
    rows("DROP TABLE upsert_test")
    rows(text)
    assert rows("SHOW CREATE TABLE upsert_test") == [("upsert_test", text)]


def test_a_composite_sequence_is_named_with_commas(rows: Run) -> None:
    rows(
        "CREATE TABLE pairs (k int, c int NULL, s bigint NULL, t datetime NULL) UNIQUE KEY(k) "
        "PROPERTIES('sequence_mapping.s, t' = 'c')"
    )
    ((_, text),) = rows("SHOW CREATE TABLE pairs")
    assert '"sequence_mapping.s,t" = "c"' in text
    rows("INSERT INTO pairs VALUES (1, 1, 5, '2024-01-01'), (1, 2, 5, '2024-01-02'), (1, 3, 4, '2025-01-01')")
    rows("INSERT INTO pairs VALUES (1, 4, 5, NULL)")
    assert rows("SELECT c, s FROM pairs") == [(2, 5)]


def test_desc_shows_sequences_as_ordinary_columns(rows: Run) -> None:
    described = rows("DESC upsert_test")
    assert [row[0] for row in described] == ["a", "b", "c", "d", "e", "s1", "s2"]
    assert {row[5] for row in described[2:]} == {"REPLACE"}
    hidden = rows("SET show_hidden_columns = true; DESC upsert_test")
    assert [row[0] for row in hidden[7:]] == [
        "__DORIS_DELETE_SIGN__",
        "__DORIS_VERSION_COL__",
        "__DORIS_GROUPS_COL__",
    ]


def test_the_hidden_column_tells_which_groups_a_row_has(rows: Run) -> None:
    rows(
        "INSERT INTO upsert_test(a, b, e, s2) VALUES (1, 1, 1, 1);INSERT INTO upsert_test(a, b) VALUES (2, 2)"
    )
    assert rows("SELECT a, __DORIS_GROUPS_COL__ FROM upsert_test ORDER BY a") == [(1, 2), (2, 3)]
    with pytest.raises(InvalidInputError):
        rows("INSERT INTO upsert_test(a, b, __DORIS_GROUPS_COL__) VALUES (1, 1, 1)")


def test_a_delete_sign_takes_the_groups_whose_sequences_are_listed(rows: Run) -> None:
    """D11."""
    rows("INSERT INTO upsert_test VALUES (1, 1, 1, 1, 1, 5, 5)")
    rows("INSERT INTO upsert_test(a, b, s1, __DORIS_DELETE_SIGN__) VALUES (1, 1, 4, 1)")
    assert rows("SELECT c, d, e FROM upsert_test") == [(1, 1, 1)]
    rows("INSERT INTO upsert_test(a, b, s1, __DORIS_DELETE_SIGN__) VALUES (1, 1, 5, 1)")
    assert rows("SELECT c, d, e, s1 FROM upsert_test") == [(None, None, 1, 5)]
    rows("INSERT INTO upsert_test(a, b, __DORIS_DELETE_SIGN__) VALUES (1, 1, 1)")
    assert rows("SELECT * FROM upsert_test") == []


def test_partial_inserts_name_whole_groups(rows: Run) -> None:
    """P2."""
    rows("SET enable_unique_key_partial_update = true")
    rows("INSERT INTO upsert_test(a, b, c, d, s1) VALUES (1, 1, 1, 1, 1)")
    rows("INSERT INTO upsert_test(a, b, e, s2) VALUES (1, 1, 2, 2)")
    assert rows("SELECT c, d, e FROM upsert_test") == [(1, 1, 2)]
    with pytest.raises(InvalidInputError, match="all columns of a column group, missing: d;"):
        rows("INSERT INTO upsert_test(a, b, c, s1) VALUES (1, 1, 1, 1)")


def test_a_merge_on_read_table_has_groups(rows: Run) -> None:
    """SM2: Doris declares every such table so."""
    text = CREATE.replace("upsert_test", "other").replace(
        '"replication_num" = "1"', '"enable_unique_key_merge_on_write" = "false"'
    )
    rows(text)
    rows("INSERT INTO other VALUES (1, 1, 1, 1, 1, 1, 1)")
    assert rows("SELECT count(*) FROM other") == [(1,)]


def test_on_update_columns_take_the_moment_of_their_group(rows: Run) -> None:
    """A4: only when the group is given."""
    rows(
        "CREATE TABLE stamped (k int, c int NULL, s int NULL, e int NULL, t int NULL, "
        "at datetime NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP) UNIQUE KEY(k) "
        "PROPERTIES('sequence_mapping.s' = 'c,at', 'sequence_mapping.t' = 'e')"
    )
    rows("INSERT INTO stamped VALUES (1, 1, 1, 1, 1, '2000-01-01')")
    rows("SET enable_unique_key_partial_update = true; INSERT INTO stamped(k, e, t) VALUES (1, 2, 2)")
    assert rows("SELECT year(at) FROM stamped") == [(2000,)]
    rows("INSERT INTO stamped(k, c, s) VALUES (1, 2, 2)")
    assert rows("SELECT c, e, year(at) > 2000 FROM stamped") == [(2, 2, True)]


def test_new_columns_bring_a_group_of_their_own(rows: Run) -> None:
    """SM7, as the manual shows it: rows that are there do not have the group yet."""
    rows(
        "CREATE TABLE t (a bigint NULL, b int NULL, c int NULL, d int NULL, s1 int NULL) UNIQUE KEY(a, b) "
        'PROPERTIES("sequence_mapping.s1" = "c,d")'
    )
    rows("insert into t(a, b, c, d, s1) values (1,1,1,1,1),(1,1,3,3,3),(1,1,2,2,2)")
    rows("alter table t add column (e int(11) NULL, s2 bigint) PROPERTIES('sequence_mapping.s2' = 'e')")
    assert rows("select * from t") == [(1, 1, 3, 3, 3, None, None)]
    assert rows("select __DORIS_GROUPS_COL__ from t") == [(1,)]
    rows("insert into t(a, b, e, s2) values (1,1,2,2)")
    assert rows("select * from t") == [(1, 1, 3, 3, 3, 2, 2)]
    rows("insert into t(a, b, c, d, s1, e, s2) values (1,1,5,5,4,5,4)")
    rows("insert into t(a, b, c, d, s1, e, s2) values (1,1,6,6,3,6,3)")
    assert rows("select * from t") == [(1, 1, 5, 5, 4, 5, 4)]
    with pytest.raises(InvalidInputError, match=r"Can not drop sequence mapping column\[s2\]"):
        rows("alter table t drop column s2")
    rows("alter table t drop column e")
    assert rows("select * from t") == [(1, 1, 5, 5, 4, 4)]
    rows("alter table t drop column s2")
    assert rows("select * from t") == [(1, 1, 5, 5, 4)]
    ((_, text),) = rows("SHOW CREATE TABLE t")
    assert "s2" not in text
    rows("insert into t(a, b, c, d, s1) values (1,1,7,7,7)")
    rows("alter table t add column (f int, s3 bigint) PROPERTIES('sequence_mapping.s3' = 'f')")
    assert rows("select __DORIS_GROUPS_COL__ from t") == [(1,)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("add column f int NULL", "The columns are not equal between the schema and prop"),
        ("add column (f int, s3 int)", "The columns are not equal between the schema and prop"),
        (
            "add column (f int, s3 int) properties('sequence_mapping.s3' = 'c,f')",
            "The columns are overlapping",
        ),
        ("add column (f int) properties('sequence_mapping.s1' = 'f')", "The columns are overlapping"),
        ("add column (f int) properties('sequence_mapping.s3' = 'f')", "does not exist in schema"),
        ("rename column c to cc", "cannot be renamed"),
        ("modify column s1 bigint null", "cannot be changed"),
        ("set ('sequence_mapping.s1' = 'c')", "can only be set by CREATE TABLE"),
        ("unset tblproperties ('sequence_mapping.s1')", "can only be set by CREATE TABLE"),
    ],
)
def test_a_mapping_cannot_be_changed_once_made(rows: Run, change: str, message: str) -> None:
    """SM2, SM3, SM7."""
    before = rows("SHOW CREATE TABLE upsert_test")
    with pytest.raises(InvalidInputError, match=message):
        rows(f"alter table upsert_test {change}")
    assert rows("SHOW CREATE TABLE upsert_test") == before


def test_groups_can_only_be_added_where_there_are_some(rows: Run) -> None:
    """SM7."""
    rows("CREATE TABLE plain (k int, v int NULL) UNIQUE KEY(k)")
    with pytest.raises(InvalidInputError, match="created with one"):
        rows("ALTER TABLE plain ADD COLUMN (e int, s int) PROPERTIES('sequence_mapping.s' = 'e')")
    rows("ALTER TABLE plain ADD COLUMN (e int, f int NULL DEFAULT 7)")
    rows("INSERT INTO plain VALUES (1, 2, 3, 4)")
    assert rows("SELECT * FROM plain") == [(1, 2, 3, 4)]


def test_update_delete_and_merge_keep_groups_whole(rows: Run) -> None:
    """U12, D13."""
    rows("INSERT INTO upsert_test VALUES (1, 1, 1, 1, 1, 5, 5), (2, 2, 2, 2, 2, 5, 5)")
    rows("UPDATE upsert_test SET c = c + 10 WHERE a = 1")
    rows("DELETE FROM upsert_test WHERE a = 2")
    assert rows("SELECT * FROM upsert_test") == [(1, 1, 11, 1, 1, 5, 5)]
    rows(
        "MERGE INTO upsert_test t USING (SELECT 1 AS a, 1 AS b, 77 AS x) s ON t.a = s.a AND t.b = s.b "
        "WHEN MATCHED THEN UPDATE SET e = s.x"
    )
    assert rows("SELECT * FROM upsert_test") == [(1, 1, 11, 1, 77, 5, 5)]


def test_a_table_with_groups_can_be_emptied(session: Session) -> None:
    """TRUNCATE was refused as a partial update; a row may come anew with smaller sequences afterwards."""

    def run(text: str) -> list[tuple[Any, ...]]:
        result = list(session.execute(text))[-1]
        return [tuple(row.values()) for row in result.rows.to_pylist()] if result.rows is not None else []

    run('CREATE TABLE g (k INT, v INT NULL, s INT NULL) UNIQUE KEY(k) PROPERTIES("sequence_mapping.s" = "v")')
    run("INSERT INTO g VALUES (1, 1, 9), (2, 2, 9)")
    with pytest.raises(InvalidInputError, match="INSERT OVERWRITE is not supported for a table with column"):
        run("INSERT OVERWRITE TABLE g VALUES (3, 3, 3)")
    assert len(run("SELECT * FROM g")) == 2
    run("TRUNCATE TABLE g")
    assert run("SELECT * FROM g") == []
    run("INSERT INTO g VALUES (1, 5, 1)")
    assert run("SELECT * FROM g") == [(1, 5, 1)]
