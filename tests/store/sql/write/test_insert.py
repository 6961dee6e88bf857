"""INSERT: columns, sequences, hidden columns, strictness, labels."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from seqstore import InvalidInputError, LabelExistsError, LoadRejectedError
from seqstore.store.sql import Session

Run = Callable[[str], Any]

PLAIN = (
    "CREATE TABLE t (k INT NOT NULL, a INT NULL, b VARCHAR(5) NULL, c DATETIME DEFAULT "
    "CURRENT_TIMESTAMP) UNIQUE KEY(k)"
)
MAPPED = (
    "CREATE TABLE m (k INT NOT NULL, v INT NULL, w INT NULL) UNIQUE KEY(k) "
    "PROPERTIES('function_column.sequence_col'='v')"
)
TYPED = (
    "CREATE TABLE s (k INT NOT NULL, v INT NULL) UNIQUE KEY(k) "
    "PROPERTIES('function_column.sequence_type'='INT')"
)
CLOCKED = (
    "CREATE TABLE n (k INT NOT NULL, v DATETIME DEFAULT CURRENT_TIMESTAMP, w INT NULL) UNIQUE KEY(k) "
    "PROPERTIES('function_column.sequence_col'='v')"
)


@pytest.fixture(autouse=True)
def _tables(session: Session) -> None:
    list(session.execute(";".join([PLAIN, MAPPED, TYPED, CLOCKED])))


def test_an_insert_is_an_upsert_and_tells_its_label(session: Session, rows: Run) -> None:
    """I1."""
    list(session.execute("INSERT INTO t (k, a) VALUES (1, 10), (2, 20)"))
    (result,) = session.execute("INSERT INTO t WITH LABEL again (k, a) VALUES (2, 21), (3, 30), (3, 31)")
    assert result.affected_rows == 3
    assert result.info.startswith("{'label':'again', 'status':'VISIBLE', 'txnId':'")
    assert sorted(rows("SELECT k, a FROM t")) == [(1, 10), (2, 21), (3, 31)]


def test_a_label_is_used_once(session: Session, rows: Run) -> None:
    list(session.execute("INSERT INTO t WITH LABEL l (k) VALUES (1)"))
    with pytest.raises(LabelExistsError):
        list(session.execute("INSERT INTO t WITH LABEL l (k) VALUES (2)"))
    assert rows("SELECT count(*) FROM t") == [(1,)]


def test_left_out_columns_take_their_default_and_one_moment(session: Session, rows: Run) -> None:
    """A1, A3."""
    list(
        session.execute(
            "INSERT INTO t (k, c) VALUES (1, DEFAULT), (2, DEFAULT); INSERT INTO t (k) VALUES (3)"
        )
    )
    noon = datetime(2024, 5, 6, 12, 30, 45)
    assert sorted(rows("SELECT k, a, c FROM t")) == [(1, None, noon), (2, None, noon), (3, None, noon)]


def test_expressions_are_computed(rows: Run) -> None:
    rows(
        "INSERT INTO t VALUES (1 + 1, length('你'), concat('x', 'y'), date_add('2024-01-31', "
        "INTERVAL 1 MONTH)); SELECT 1"
    )
    assert rows("SELECT * FROM t") == [(2, 3, "xy", datetime(2024, 2, 29))]


def test_values_of_several_kinds_meet_in_one_column(rows: Run) -> None:
    rows(
        "INSERT INTO t (k, a, b) VALUES (1, '7', 1), ('2', 8, 'x'), (3, NULL, 1.5), (4, true, NULL); SELECT 1"
    )
    assert sorted(rows("SELECT k, a, b FROM t")) == [(1, 7, "1"), (2, 8, "x"), (3, None, "1.5"), (4, 1, None)]


def test_every_type_is_stored_exactly(session: Session, rows: Run) -> None:
    list(
        session.execute(
            "CREATE TABLE e (k LARGEINT, d DECIMAL(38,10) NULL, t DATE NULL, x DATETIME(6) NULL, b "
            "BOOLEAN NULL,"
            " f DOUBLE NULL, j JSON NULL, a ARRAY<INT> NULL, m MAP<STRING,INT> NULL, w "
            "DECIMAL(50,2) NULL) UNIQUE KEY(k);"
            "INSERT INTO e VALUES (-170141183460469231731687303715884105728, "
            "1234567890123456789012345678.0123456789,"
            " '2024-02-29', '2024-02-29 01:02:03.000004', false, 1e300, '{\"a\":1}', [1, 2], "
            "map('x', 1), 9.99),"
            " (170141183460469231731687303715884105727, NULL, NULL, NULL, NULL, NULL, NULL, '[3]', "
            "NULL, -0.01)"
        )
    )
    first, second = sorted(rows("SELECT * FROM e"))
    assert first == (
        Decimal(-(2**127)),
        Decimal("1234567890123456789012345678.0123456789"),
        date(2024, 2, 29),
        datetime(2024, 2, 29, 1, 2, 3, 4),
        False,
        1e300,
        '{"a":1}',
        [1, 2],
        [("x", 1)],
        Decimal("9.99"),
    )
    assert (second[0], second[7], second[9]) == (Decimal(2**127 - 1), [3], Decimal("-0.01"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO t VALUES (1, 2)", "insert into cols should be corresponding to the query output"),
        ("INSERT INTO t (k, a) VALUES (1, 2), (3)", "found 1 in row 2"),
        ("INSERT INTO t (k, a) SELECT 1", "insert into cols should be corresponding to the query output"),
        ("INSERT INTO t (k, z) VALUES (1, 2)", "unknown column 'z' in table db.t; it has k, a, b, c"),
        ("INSERT INTO t (k, K) VALUES (1, 2)", "column 'K' is listed twice"),
        ("INSERT INTO t (a) VALUES (1)", "k"),
        (
            "INSERT INTO t (k, __DORIS_SEQUENCE_COL__) VALUES (1, 2)",
            "There is no sequence column in the table t",
        ),
        ("INSERT INTO t (k, __DORIS_VERSION_COL__) VALUES (1, 2)", "is written by the store"),
        ("INSERT INTO t (k) VALUES (DEFAULT)", "column 'k' has no default"),
        ("INSERT INTO t (k) VALUES (nope)", "unknown column 'nope'"),
    ],
)
def test_columns_that_do_not_fit_are_refused(session: Session, rows: Run, text: str, message: str) -> None:
    """I2."""
    with pytest.raises(InvalidInputError) as caught:
        list(session.execute(text))
    assert message in str(caught.value)
    assert rows("SELECT count(*) FROM t") == [(0,)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("(2, 'abc', 'x')", "a"),
        ("(2, 99999999999, 'x')", "a"),
        ("(NULL, 1, 'x')", "k"),
        ("(2, 1, 'longer')", "b"),
        ("(2, 1, '你好')", "b"),
    ],
)
def test_one_bad_row_fails_a_strict_insert_as_a_whole(
    session: Session, rows: Run, bad: str, reason: str
) -> None:
    """Y10, Y5 (bytes)."""
    with pytest.raises(
        LoadRejectedError, match="Insert has filtered data in strict mode: 1 of 2 rows, first row 2"
    ) as caught:
        list(session.execute(f"INSERT INTO t (k, a, b) VALUES (1, 1, 'ok'), {bad}"))
    assert caught.value.rejected[0].column == reason
    assert rows("SELECT count(*) FROM t") == [(0,)]


def test_an_insert_that_is_not_strict_stores_null_and_leaves_out_what_it_must(
    session: Session, rows: Run
) -> None:
    """Y1, Y2, Y10."""
    text = (
        "SET enable_insert_strict = false; INSERT INTO t (k, a, b) VALUES (1, 'abc', 'x'), ('z', "
        "2, 'y'), (3, 3, 'longer')"
    )
    result = list(session.execute(text))[-1]
    assert (result.affected_rows, len(result.warnings)) == (1, 2)
    assert rows("SELECT k, a, b FROM t") == [(1, None, "x")]


def test_warnings_can_be_shown_until_the_next_statement(session: Session, rows: Run) -> None:
    list(session.execute("SET enable_insert_strict = false; INSERT INTO t (k) VALUES (1), (NULL)"))
    ((level, _, message),) = rows("SHOW WARNINGS")
    assert (level, message.split(":")[0]) == ("Warning", "row 2")
    rows("SELECT 1")
    assert rows("SHOW WARNINGS") == []


def test_an_insert_of_bad_rows_only_fails_in_any_mode(session: Session) -> None:
    """Y11."""
    with pytest.raises(LoadRejectedError, match="all partitions have no load data"):
        list(session.execute("SET enable_insert_strict = false; INSERT INTO t (k) VALUES (NULL)"))


def test_the_filter_ratio_bounds_what_may_be_left_out(session: Session) -> None:
    setup = "SET enable_insert_strict = false, insert_max_filter_ratio = 0.5;"
    list(session.execute(setup + "INSERT INTO t (k) VALUES (1), (NULL)"))
    with pytest.raises(LoadRejectedError, match="too many"):
        list(session.execute("INSERT INTO t (k) VALUES (1), (NULL), (NULL)"))


NEEDED = "has sequence column, need to specify the sequence column"


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO s VALUES (1, 2)",  # SL7
        "INSERT INTO s (k, v) VALUES (1, 2)",
        "INSERT INTO s (k, v) SELECT 1, 2",
        "INSERT INTO m (k, w) VALUES (1, 2)",  # SL8
    ],
)
def test_a_sequence_must_be_given(session: Session, text: str) -> None:
    """SL6."""
    with pytest.raises(InvalidInputError, match=NEEDED):
        list(session.execute(text))


def test_a_table_with_a_mapped_sequence_needs_no_column_list(rows: Run) -> None:
    """SL7, SL3, SO1."""
    rows("INSERT INTO m VALUES (1, 5, 50); INSERT INTO m (k, w, v) VALUES (1, 40, 4), (2, 60, 6); SELECT 1")
    assert sorted(rows("SELECT * FROM m")) == [(1, 5, 50), (2, 6, 60)]


@pytest.mark.parametrize("name", ["__DORIS_SEQUENCE_COL__", "__sequence_col__"])
def test_the_hidden_sequence_may_be_named_in_any_spelling(rows: Run, name: str) -> None:
    """SL3, T7."""
    rows(
        f"INSERT INTO s (k, v, {name}) VALUES (1, 10, 5); INSERT INTO s ({name}, v, k) VALUES (4, "
        f"11, 1); SELECT 1"
    )
    assert rows(f"SELECT k, v, {name} FROM s") == [(1, 10, 5)]


def test_a_clocked_sequence_column_may_be_left_out(rows: Run) -> None:
    """SL9."""
    rows("INSERT INTO n (k, w) VALUES (1, 2); SELECT 1")
    assert rows("SELECT v = __SEQUENCE_COL__, w FROM n") == [(True, 2)]


def test_the_demand_for_a_sequence_can_be_turned_off(rows: Run) -> None:
    """SL12."""
    rows(
        "SET require_sequence_in_insert = false; INSERT INTO s VALUES (1, 2); INSERT INTO m (k, w) "
        "VALUES (1, 3); SELECT 1"
    )
    assert rows("SELECT k, v, __SEQUENCE_COL__ FROM s") == [(1, 2, None)]
    assert rows("SELECT k, v, w, __SEQUENCE_COL__ FROM m") == [(1, None, 3, None)]


def test_a_row_with_the_delete_sign_deletes(rows: Run) -> None:
    """D11, D2, T8."""
    rows("INSERT INTO s (k, v, __SEQUENCE_COL__) VALUES (1, 10, 10), (2, 20, 10); SELECT 1")
    rows("INSERT INTO s (k, __DORIS_DELETE_SIGN__, __SEQUENCE_COL__) VALUES (1, 1, 9), (2, 1, 10); SELECT 1")
    assert rows("SELECT k FROM s") == [(1,)]
    assert rows("SET show_hidden_columns = true; SELECT count(*) FROM s") == [(2,)]
    shown = rows("SELECT k, __DORIS_DELETE_SIGN__ FROM s")
    assert sorted(shown) == [(1, 0), (2, 1)]


def test_an_insert_from_a_query_reads_one_version_of_its_own_table(rows: Run) -> None:
    rows(
        "INSERT INTO t (k, a) VALUES (1, 1), (2, 2); INSERT INTO t (k, a) SELECT k + 2, a * 10 FROM "
        "t WHERE a > 0; SELECT 1"
    )
    assert sorted(rows("SELECT k, a FROM t")) == [(1, 1), (2, 2), (3, 10), (4, 20)]


def test_an_insert_of_no_rows_is_a_success(session: Session) -> None:
    (result,) = session.execute("INSERT INTO t (k) SELECT k FROM t")
    assert result.affected_rows == 0


def test_a_thousand_expressions_are_computed_together(rows: Run) -> None:
    text = ", ".join(f"({i}, {i} * 2)" for i in range(1200))
    rows(f"INSERT INTO t (k, a) VALUES {text}; SELECT 1")
    assert rows("SELECT count(*), sum(a) FROM t") == [(1200, 1199 * 1200)]


# partial updates


WIDE = "CREATE TABLE p (k INT NOT NULL, a INT NULL, b INT NULL DEFAULT '7', c INT NOT NULL) UNIQUE KEY(k)"


def test_a_listed_insert_updates_its_columns_alone(session: Session, rows: Run) -> None:
    """P2, P6, P17: the variable counts from the next statement of the same text on."""
    rows(
        f"{WIDE}; INSERT INTO p VALUES (1, 10, 11, 12), (2, 20, 21, 22);"
        "SET enable_unique_key_partial_update=true; INSERT INTO p (k, A) VALUES (1, NULL), (2, 5); SELECT 1"
    )
    assert sorted(rows("SELECT * FROM p")) == [(1, None, 11, 12), (2, 5, 21, 22)]


def test_an_insert_without_columns_brings_whole_rows(session: Session, rows: Run) -> None:
    """P15."""
    rows(f"{WIDE}; SET enable_unique_key_partial_update=true; INSERT INTO p VALUES (1, 2, 3, 4); SELECT 1")
    assert rows("SELECT * FROM p") == [(1, 2, 3, 4)]


def test_a_partial_insert_reads_its_own_table(session: Session, rows: Run) -> None:
    """P18."""
    rows(
        f"{WIDE}; INSERT INTO p VALUES (1, 2, 3, 4), (2, 3, 4, 5);"
        "SET enable_unique_key_partial_update=true; INSERT INTO p (k, a) SELECT a, c FROM p WHERE k = 1;"
        "SELECT 1"
    )
    assert sorted(rows("SELECT * FROM p")) == [(1, 2, 3, 4), (2, 4, 4, 5)]


def test_a_partial_insert_of_a_new_key_tells_what_it_lacks(session: Session) -> None:
    """P3, P7, P10, P12, P13."""
    list(
        session.execute(
            f"{WIDE}; SET partial_update_new_key_behavior='error'; INSERT INTO p VALUES (1, 2, 3, 4)"
        )
    )
    list(session.execute("SET enable_unique_key_partial_update=true"))
    with pytest.raises(InvalidInputError, match=r"E-7003.*key=\[2\] is not in table"):
        list(session.execute("INSERT INTO p (k, c) VALUES (1, 1), (2, 2)"))
    list(session.execute("SET partial_update_new_key_behavior=append"))
    with pytest.raises(InvalidInputError, match="the unmentioned column `c` should have default value"):
        list(session.execute("INSERT INTO p (k, a) VALUES (2, 2)"))
    with pytest.raises(
        InvalidInputError, match=r"^Partial update should include all key columns, missing: k$"
    ):
        list(session.execute("INSERT INTO p (a) VALUES (2)"))
    with pytest.raises(InvalidInputError) as caught:
        list(session.execute("SET partial_update_new_key_behavior = 'ignore'"))
    assert caught.value.message == (
        "partial_update_new_key_behavior should be one of {'APPEND', 'ERROR'}, but found ignore"
    )


def test_bad_values_of_a_partial_insert_fail_it_or_become_null(session: Session, rows: Run) -> None:
    """Y1, Y10 with P6: enable_insert_strict is no matter for new keys (P14)."""
    rows(
        f"{WIDE}; INSERT INTO p VALUES (1, 10, 11, 12); SET enable_unique_key_partial_update=true;"
        "SET enable_insert_strict=true; SELECT 1"
    )
    with pytest.raises(LoadRejectedError):
        list(session.execute("INSERT INTO p (k, a) VALUES (1, 'x')"))
    rows("SET enable_insert_strict=false; INSERT INTO p (k, a) VALUES (1, 'x'); SELECT 1")
    rows("INSERT INTO p (k, a, c) VALUES (2, 5, 6); SELECT 1")
    assert sorted(rows("SELECT * FROM p")) == [(1, None, 11, 12), (2, 5, 7, 6)]


def test_a_partial_insert_needs_no_sequence(session: Session, rows: Run) -> None:
    """SL11, P21, P23."""
    rows("INSERT INTO m VALUES (1, 5, 50); SET enable_unique_key_partial_update=true; SELECT 1")
    rows("INSERT INTO m (k, w) VALUES (1, 60); SELECT 1")
    rows("INSERT INTO m (k, v, w) VALUES (1, 4, 70); SELECT 1")
    assert rows("SELECT * FROM m") == [(1, 5, 60)]


# values the store makes


MADE = (
    "CREATE TABLE g (k INT, id BIGINT NOT NULL AUTO_INCREMENT(100), a INT NULL, "
    "at DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)) UNIQUE KEY(k)"
)


def test_auto_increment_and_on_update_are_declared_shown_and_made_again(session: Session, rows: Run) -> None:
    """A4, A5: what SHOW CREATE TABLE prints makes the same table."""
    rows(f"{MADE}; SELECT 1")
    text = rows("SHOW CREATE TABLE g")[0][1]
    assert "`id` bigint NOT NULL AUTO_INCREMENT(100)" in text
    assert "DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)" in text
    rows(f"DROP TABLE g; {text} SELECT 1")
    assert rows("SHOW CREATE TABLE g")[0][1] == text
    assert rows("DESC g")[1][-1].endswith("AUTO_INCREMENT")


def test_inserts_make_values_that_are_left_out_null_or_default(session: Session, rows: Run) -> None:
    """A6, A7."""
    rows(
        f"{MADE}; INSERT INTO g (k, a) VALUES (1, 1);"
        "INSERT INTO g (k, id) VALUES (2, NULL), (3, DEFAULT), (4, 7);"
        "SET enable_unique_key_partial_update=true; INSERT INTO g (k, a) VALUES (1, 9), (5, 9); SELECT 1"
    )
    found = dict(rows("SELECT k, id FROM g"))
    assert (found[1], found[2], found[3], found[4]) == (100, 101, 102, 7)
    assert found[5] > 102


def test_a_partial_insert_without_a_made_key_adds_rows(session: Session, rows: Run) -> None:
    """A8."""
    rows(
        "CREATE TABLE h (id BIGINT AUTO_INCREMENT, a INT NULL, b INT NULL) UNIQUE KEY(id);"
        "SET enable_unique_key_partial_update=true; SET partial_update_new_key_behavior='ERROR';"
        "INSERT INTO h (a) VALUES (5), (6); INSERT INTO h (id, b) VALUES (1, 7); SELECT 1"
    )
    assert sorted(rows("SELECT * FROM h")) == [(1, 5, 7), (2, 6, None)]


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize("words", ["INSERT INTO", "INSERT IGNORE", "REPLACE INTO"])
def test_a_value_with_an_offset_is_stored_in_the_sessions_zone(rows: Run, strict: str, words: str) -> None:
    """Y13. A strict INSERT stored such values in UTC, and others in the session's zone."""
    rows(
        f"SET time_zone = '+08:00'; SET enable_insert_strict = {strict}; {words} t (k, c) VALUES "
        "(1, '2024-05-01 10:00:00+08:00'), (2, '2024-05-01 02:00:00Z'), (3, '2024-05-01 10:00:00'); SELECT 1"
    )
    assert rows("SELECT DISTINCT c FROM t") == [(datetime(2024, 5, 1, 10),)]


def test_a_change_stores_a_value_with_an_offset_in_the_sessions_zone(rows: Run) -> None:
    """Y13. UPDATE, MERGE and ON DUPLICATE KEY UPDATE stored such values in UTC."""
    rows(
        "SET time_zone = '+08:00'; INSERT INTO t (k, b) VALUES (1, ''), (2, ''), (3, '');"
        "UPDATE t SET c = '2024-05-01 10:00:00+08:00' WHERE k = 1;"
        "MERGE INTO t USING (SELECT 2 AS id UNION ALL SELECT 5) s ON t.k = s.id "
        "WHEN MATCHED THEN UPDATE SET c = '2024-05-01 02:00:00Z' "
        "WHEN NOT MATCHED THEN INSERT (k, c) VALUES (s.id, '2024-05-01 03:00:00+01:00');"
        "INSERT INTO t (k) VALUES (3) ON DUPLICATE KEY UPDATE c = '2024-05-01 02:00:00Z';"
        "INSERT INTO t (k, c) SELECT 4, '2024-05-01 02:00:00Z' FROM t WHERE k = 1; SELECT 1"
    )
    assert rows("SELECT DISTINCT c FROM t") == [(datetime(2024, 5, 1, 10),)]


def test_statements_of_one_transaction_have_their_own_zones(rows: Run) -> None:
    """Y13."""
    rows(
        "INSERT INTO t (k) VALUES (1), (2); BEGIN;"
        "SET time_zone = '+08:00'; UPDATE t SET c = '2024-05-01 02:00:00Z' WHERE k = 1;"
        "SET time_zone = 'Europe/London'; UPDATE t SET c = '2024-05-01 02:00:00Z' WHERE k = 2; COMMIT;"
        "SELECT 1"
    )
    assert rows("SELECT c FROM t ORDER BY k") == [(datetime(2024, 5, 1, 10),), (datetime(2024, 5, 1, 3),)]


def test_the_partitions_of_values_with_an_offset_are_those_of_the_sessions_zone(rows: Run) -> None:
    """Y13. INSERT OVERWRITE PARTITION(*) looked for the partition of the value in UTC."""
    rows(
        "SET time_zone = '+08:00'; CREATE TABLE d (k INT, c DATETIME) UNIQUE KEY(k, c) PARTITION BY RANGE(c) "
        "(PARTITION p1 VALUES LESS THAN ('2024-05-01'), PARTITION p2 VALUES LESS THAN ('2024-06-01'));"
        "INSERT INTO d VALUES (1, '2024-04-30 00:00:00'), (2, '2024-05-02 00:00:00');"
        "INSERT OVERWRITE TABLE d PARTITION(*) VALUES (3, '2024-04-30 17:00:00Z'); SELECT 1"
    )
    assert rows("SELECT k FROM d ORDER BY k") == [(1,), (3,)]


def test_a_small_decimal_is_stored_as_text_without_an_exponent(rows: Run) -> None:
    """Zero was stored as 0E-9."""
    rows(
        "CREATE TABLE x (k INT, c DECIMAL(27, 9), s STRING) UNIQUE KEY(k);"
        "INSERT INTO x (k, c) VALUES (1, 0), (2, 0.0000001); UPDATE x SET s = c WHERE k > 0; SELECT 1"
    )
    assert rows("SELECT s FROM x ORDER BY k") == [("0.000000000",), ("0.000000100",)]


def test_each_number_of_an_insert_keeps_its_digits_in_a_text_column(rows: Run) -> None:
    """All rows had the digits of the one with most of them, and zero an exponent."""
    rows(
        "CREATE TABLE x (k INT, s STRING) UNIQUE KEY(k);"
        "INSERT INTO x VALUES (1, 0), (2, 0.0000001), (3, 1.5), (4, 1e3), (5, -0.10), (6, POW(2, 2));"
        "SELECT 1"
    )
    texts = [("0",), ("0.0000001",), ("1.5",), ("1000",), ("-0.10",), ("4",)]
    assert rows("SELECT s FROM x ORDER BY k") == texts


@pytest.mark.parametrize("kind", ["BIGINT", "LARGEINT", "DECIMAL(20, 2)", "DOUBLE", "BOOLEAN", "INT"])
@pytest.mark.parametrize("value", ["POW(10, 16)", "POW(2, 0.5)", "1e2", "2", "TRUE"])
def test_a_value_is_stored_alike_alone_and_beside_others(rows: Run, kind: str, value: str) -> None:
    """A large double beside an integer was refused, as its text has an exponent."""
    rows(f"SET enable_insert_strict = false; CREATE TABLE x (k INT, v {kind}) UNIQUE KEY(k); SELECT 1")
    rows(
        f"INSERT INTO x VALUES (1, {value}); INSERT INTO x VALUES (2, {value}), (3, 1), (4, FALSE); SELECT 1"
    )
    stored = rows("SELECT v FROM x WHERE k < 3 ORDER BY k")
    assert stored[0] == stored[1]
