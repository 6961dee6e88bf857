"""Duplicate tables: every row is kept (T10-T12)."""

from __future__ import annotations

import pytest

from seqstore import Session
from seqstore.store.errors import InvalidInputError, StoreError
from tests.support.statements import dicts, last_result, run

pytestmark = pytest.mark.sql(
    "CREATE TABLE d (a INT, b VARCHAR(10), c DOUBLE) DUPLICATE KEY(a, b) DISTRIBUTED BY HASH(c) BUCKETS 2;"
    "INSERT INTO d VALUES (1, 'x', 1.5), (1, 'x', 1.5), (2, 'y', NULL);"
)


def created(session: Session, name: str) -> str:
    return str(run(session, f"SHOW CREATE TABLE {name}")[0][1])


def test_equal_rows_of_one_statement_and_of_several_are_kept(session: Session) -> None:
    run(session, "INSERT INTO d VALUES (1, 'x', 1.5)")
    run(session, "INSERT INTO d SELECT * FROM d WHERE a = 2")
    rows = run(session, "SELECT * FROM d ORDER BY a")
    assert rows == [(1, "x", 1.5), (1, "x", 1.5), (1, "x", 1.5), (2, "y", None), (2, "y", None)]


def test_create_table_as_keeps_every_row_of_its_query(session: Session) -> None:
    run(session, "CREATE TABLE made AS SELECT b, a FROM d")
    assert sorted(run(session, "SELECT * FROM made")) == [("x", 1), ("x", 1), ("y", 2)]
    assert "DUPLICATE KEY(`b`)" in created(session, "made")


@pytest.mark.parametrize(
    ("clauses", "shown"),
    [
        ("PROPERTIES ('replication_num' = '1') AS", '"replication_num" = "1"'),
        ("DISTRIBUTED BY HASH(a) BUCKETS 3 AS", "DISTRIBUTED BY HASH(`a`) BUCKETS 3"),
        ("(x, y) DISTRIBUTED BY RANDOM AS", "DUPLICATE KEY(`x`, `y`)\nDISTRIBUTED BY RANDOM"),
        ("ENGINE = OLAP DUPLICATE KEY(a) COMMENT 'c' AS", 'DUPLICATE KEY(`a`)\nCOMMENT "c"'),
        ("DUPLICATE KEY(a)", "DUPLICATE KEY(`a`)"),
        ("", "DUPLICATE KEY(`a`, `b`)"),
        ("PROPERTIES ('enable_duplicate_without_keys_by_default' = 'true') AS", "OLAP\nPROPERTIES"),
    ],
)
def test_create_table_as_takes_every_clause(session: Session, clauses: str, shown: str) -> None:
    run(session, f"CREATE TABLE made {clauses} SELECT a, b FROM d")
    assert shown in created(session, "made")
    assert sorted(run(session, "SELECT * FROM made")) == [(1, "x"), (1, "x"), (2, "y")]


def test_create_table_as_with_a_unique_key_keeps_one_row_a_key(session: Session) -> None:
    run(session, "CREATE TABLE made UNIQUE KEY(a) AS SELECT a, b FROM d")
    assert run(session, "SELECT * FROM made ORDER BY a") == [(1, "x"), (2, "y")]


def test_a_query_that_fails_leaves_no_table(session: Session) -> None:
    with pytest.raises(StoreError):
        run(session, "CREATE TABLE made AS SELECT CAST(b AS INT) + nothing FROM d")
    assert ("made",) not in run(session, "SHOW TABLES")


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("a INT, b INT, c INT, d INT", "`a`, `b`, `c`"),
        ("a INT, b VARCHAR(5), c INT", "`a`, `b`"),
        ("a LARGEINT, b LARGEINT, c BIGINT", "`a`, `b`"),
        ("a INT, b DOUBLE, c INT", "`a`"),
        ("a VARCHAR(500), b INT", "`a`"),
        ("a DATE, b STRING, c INT", "`a`"),
        ("a CHAR(100), b INT", "`a`"),
    ],
)
def test_a_table_without_a_key_is_keyed_on_its_first_columns(
    session: Session, columns: str, key: str
) -> None:
    run(session, f"CREATE TABLE made ({columns})")
    assert f"DUPLICATE KEY({key})" in created(session, "made")


@pytest.mark.parametrize("columns", ["f DOUBLE, a INT", "s STRING", "j JSON, a INT", "l ARRAY<INT>"])
def test_a_table_whose_first_column_is_no_key_has_none(session: Session, columns: str) -> None:
    run(session, f"CREATE TABLE made ({columns})")
    run(session, "INSERT INTO made (" + columns.split()[0] + ") VALUES (NULL), (NULL)")
    assert "KEY" not in created(session, "made")
    assert run(session, "SELECT count(*) FROM made") == [(2,)]


def test_what_show_create_table_prints_creates_the_same_table(session: Session) -> None:
    text = created(session, "d")
    run(session, "CREATE TABLE like_d LIKE d")
    assert created(session, "like_d") == text.replace("`d`", "`like_d`")
    run(session, "DROP TABLE d")
    run(session, text)
    assert created(session, "d") == text


def test_desc_shows_the_declared_key_and_no_hidden_column(session: Session) -> None:
    found = [(row["Field"], row["Key"], row["Extra"]) for row in dicts(session, "DESC d")]
    assert found == [("a", "true", ""), ("b", "true", ""), ("c", "false", "NONE")]
    assert dicts(session, "DESC d ALL")[0]["IndexKeysType"] == "DUP_KEYS"


def test_the_generated_key_is_hidden_and_can_be_named(session: Session) -> None:
    assert len(run(session, "SELECT * FROM d")[0]) == 3
    ids = {row[0] for row in run(session, "SELECT __ROW_ID_COL__ FROM d")}
    assert len(ids) == 3
    with pytest.raises(InvalidInputError, match="written by the store"):
        run(session, "INSERT INTO d (a, __ROW_ID_COL__) VALUES (1, 1)")


def test_delete_removes_every_row_that_matches(session: Session) -> None:
    assert last_result(session, "DELETE FROM d WHERE a = 1").affected_rows == 2
    assert run(session, "SELECT * FROM d") == [(2, "y", None)]
    assert last_result(session, "DELETE FROM d WHERE c IS NULL AND b IN ('y', 'z')").affected_rows == 1
    assert run(session, "SELECT count(*) FROM d") == [(0,)]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE d SET c = 1 WHERE a = 1", "Only unique table could be updated."),
        (
            "MERGE INTO d USING (SELECT 1 AS a) s ON d.a = s.a WHEN MATCHED THEN UPDATE SET c = 1",
            "Only unique table could be updated.",
        ),
        ("INSERT INTO d (a, __DORIS_DELETE_SIGN__) VALUES (1, 1)", "only supported in unique tables"),
        ("INSERT INTO d (a, __DORIS_SEQUENCE_COL__) VALUES (1, 1)", "There is no sequence column"),
        (
            "CREATE TABLE n (a INT, s INT) PROPERTIES ('function_column.sequence_col' = 's')",
            "sequence column only support UNIQUE_KEYS",
        ),
        (
            "CREATE TABLE n (a INT) PROPERTIES ('function_column.sequence_type' = 'int')",
            "sequence column only support UNIQUE_KEYS",
        ),
        (
            "CREATE TABLE n (a INT) PROPERTIES ('enable_unique_key_merge_on_write' = 'true')",
            "property only support unique key table",
        ),
        (
            "CREATE TABLE n (a INT, s INT, v INT) PROPERTIES ('sequence_mapping.s' = 'v')",
            "sequence_mapping only support UNIQUE_KEYS",
        ),
        ("CREATE TABLE n (a INT) UNIQUE KEY(a) DUPLICATE KEY(a)", "either UNIQUE KEY or DUPLICATE KEY"),
        ("CREATE TABLE n (a INT, b INT) DUPLICATE KEY(b)", "key columns must come first"),
        ("CREATE TABLE n (a DOUBLE, b INT) DUPLICATE KEY(a)", "DOUBLE cannot be a key"),
    ],
)
def test_what_needs_a_unique_key_is_refused_by_name(session: Session, statement: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        run(session, statement)
    assert message in str(caught.value)
    assert run(session, "SELECT count(*) FROM d") == [(3,)]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT IGNORE INTO d VALUES (1, 'x', 1.5)",
        "REPLACE INTO d VALUES (1, 'x', 1.5)",
        "INSERT INTO d VALUES (1, 'x', 1.5) ON DUPLICATE KEY UPDATE c = 9",
        "SET enable_unique_key_partial_update = true; INSERT INTO d (a) VALUES (1)",
    ],
)
def test_inserts_that_would_meet_a_key_add_rows(session: Session, statement: str) -> None:
    last_result(session, statement)
    assert run(session, "SELECT count(*) FROM d") == [(4,)]


def test_a_transaction_sees_the_rows_it_adds_and_deletes(session: Session) -> None:
    run(session, "BEGIN")
    run(session, "INSERT INTO d VALUES (1, 'x', 1.5), (5, 'n', 0)")
    assert last_result(session, "DELETE FROM d WHERE a = 1").affected_rows == 3
    assert run(session, "SELECT a FROM d ORDER BY a") == [(2,), (5,)]
    run(session, "COMMIT")
    assert run(session, "SELECT a FROM d ORDER BY a") == [(2,), (5,)]


def test_truncate_overwrite_and_replace_work(session: Session) -> None:
    run(session, "CREATE TABLE other LIKE d")
    run(session, "INSERT OVERWRITE TABLE other SELECT * FROM d WHERE a = 1")
    run(session, "ALTER TABLE d REPLACE WITH TABLE other")
    assert run(session, "SELECT * FROM d") == [(1, "x", 1.5), (1, "x", 1.5)]
    run(session, "INSERT INTO d VALUES (1, 'x', 1.5)")
    assert run(session, "SELECT count(*) FROM d") == [(3,)]
    run(session, "TRUNCATE TABLE d")
    assert run(session, "SELECT count(*) FROM d") == [(0,)]


def test_partitions_may_be_of_any_column(session: Session) -> None:
    run(
        session,
        "CREATE TABLE p (a INT, day DATE) DUPLICATE KEY(a) PARTITION BY RANGE(day) "
        "(PARTITION p1 VALUES LESS THAN ('2024-02-01'), PARTITION p2 VALUES LESS THAN ('2024-03-01'))",
    )
    run(session, "INSERT INTO p VALUES (1, '2024-01-05'), (1, '2024-01-05'), (1, '2024-02-05')")
    run(session, "ALTER TABLE p DROP PARTITION p1")
    assert run(session, "SELECT a FROM p") == [(1,)]
    run(session, "INSERT OVERWRITE TABLE p PARTITION(p2) VALUES (7, '2024-02-01'), (7, '2024-02-01')")
    assert run(session, "SELECT a FROM p") == [(7,), (7,)]


def test_columns_are_added_renamed_and_dropped(session: Session) -> None:
    run(session, "ALTER TABLE d ADD COLUMN e INT DEFAULT '4'")
    run(session, "ALTER TABLE d RENAME COLUMN b TO name")
    run(session, "INSERT INTO d VALUES (1, 'x', 1.5, 4)")
    assert run(session, "SELECT * FROM d WHERE a = 1") == [(1, "x", 1.5, 4)] * 3
    assert "DUPLICATE KEY(`a`, `name`)" in created(session, "d")
    run(session, "ALTER TABLE d DROP COLUMN c")
    run(session, "ALTER TABLE d DROP COLUMN name")
    assert "DUPLICATE KEY(`a`)" in created(session, "d")
    assert run(session, "SELECT * FROM d WHERE a = 2") == [(2, 4)]


def test_the_type_of_every_column_can_change(session: Session) -> None:
    """The job of any change ended in StopIteration: it looked for the row id among the columns."""
    run(session, "ALTER TABLE d MODIFY COLUMN c VARCHAR(40), MODIFY COLUMN a VARCHAR(11) KEY")
    session.store.schema_changes.wait()
    assert run(session, "SELECT DISTINCT a, c FROM d WHERE a = '1'") == [("1", "1.5")]
    run(session, "INSERT INTO d VALUES ('x', 'y', 'z'); ALTER TABLE d MODIFY COLUMN a INT KEY")
    session.store.schema_changes.wait()
    assert "of the row with the key (a=x, b=y)" in run(session, "SHOW ALTER TABLE COLUMN")[-1][10]


def test_client_metadata_names_no_unique_key(session: Session) -> None:
    assert run(session, "SHOW KEYS FROM d") == []
    assert [row["Key"] for row in dicts(session, "SHOW FULL COLUMNS FROM d")] == ["DUP", "DUP", ""]
    for name in ("key_column_usage", "statistics", "table_constraints"):
        assert run(session, f"SELECT * FROM information_schema.{name} WHERE table_name = 'd'") == []
    keys = run(
        session, "SELECT column_name, column_key FROM information_schema.columns WHERE table_name = 'd'"
    )
    assert keys == [("a", "DUP"), ("b", "DUP"), ("c", "")]
