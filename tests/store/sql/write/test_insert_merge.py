"""REPLACE INTO, INSERT IGNORE and INSERT .. ON DUPLICATE KEY UPDATE, against what MySQL does."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from seqstore import InvalidInputError, LabelExistsError, LoadRejectedError, Store
from seqstore.store.sql import Session
from tests.seeds import new_seed
from tests.support.statements import run

Run = Callable[[str], Any]
TABLE = "CREATE TABLE t (k INT NOT NULL, n INT NULL, v VARCHAR(5) NULL DEFAULT 'd') UNIQUE KEY(k)"
ODKU = "ON DUPLICATE KEY UPDATE"


@pytest.fixture(autouse=True)
def _table(session: Session) -> None:
    list(session.execute(f"{TABLE}; INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')"))


def test_replace_writes_whole_rows_also_where_the_session_updates_partially(
    session: Session, rows: Run
) -> None:
    list(session.execute("SET enable_unique_key_partial_update = true; REPLACE INTO t (k, n) VALUES (1, 9)"))
    assert rows("SELECT * FROM t ORDER BY k") == [(1, 9, "d"), (2, 2, "b")]


def test_ignore_keeps_stored_rows_and_the_first_of_a_key(session: Session, rows: Run) -> None:
    (result,) = session.execute("INSERT IGNORE INTO t VALUES (1, 10, 'x'), (3, 3, 'c'), (3, 4, 'd')")
    assert result.affected_rows == 1
    assert rows("SELECT * FROM t ORDER BY k") == [(1, 1, "a"), (2, 2, "b"), (3, 3, "c")]


def test_ignore_leaves_out_rows_that_cannot_be_stored_with_a_warning(session: Session, rows: Run) -> None:
    (result,) = session.execute(
        "INSERT IGNORE INTO t VALUES (NULL, 1, 'z'), (3, 3000000000, 'c'), (4, 4, 'd')"
    )
    assert [warning.partition(":")[0] for warning in result.warnings] == ["row 1", "row 2"]
    assert rows("SELECT k, n FROM t WHERE k > 2 ORDER BY k") == [(3, None), (4, 4)]


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (
            "(k, n) VALUES (1, 5), (4, 4) {} n = n + VALUES(n), v = 'u'",
            [(1, 6, "u"), (2, 2, "b"), (4, 4, "d")],
        ),
        ("(k, n) VALUES (1, 5), (4, 4) AS new {} n = new.n * 10", [(1, 50, "a"), (2, 2, "b"), (4, 4, "d")]),
        ("(k, n) VALUES (1, 5), (1, 6) {} n = VALUES(n)", [(1, 6, "a"), (2, 2, "b")]),
        (
            "SELECT k + 1, n, v FROM t {} v = concat(t.v, VALUES(`v`))",
            [(1, 1, "a"), (2, 2, "ba"), (3, 2, "b")],
        ),
        ("VALUES (1, 0, 'z') {} n = if(VALUES(n) > n, VALUES(n), n)", [(1, 1, "a"), (2, 2, "b")]),
        ("VALUES (2, 0, 'z') {} V = NULL, N = DEFAULT(n)", None),
    ],
)
def test_matched_rows_are_updated_and_others_inserted(
    session: Session, rows: Run, rest: str, expected: list[Any] | None
) -> None:
    statement = f"INSERT INTO t {rest.format(ODKU)}"
    if expected is None:
        with pytest.raises(InvalidInputError):
            list(session.execute(statement))
        expected = [(1, 1, "a"), (2, 2, "b")]
    else:
        list(session.execute(statement))
    assert rows("SELECT * FROM t ORDER BY k") == expected


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        (
            f"INSERT INTO t (k, n) VALUES (1, 5), (1, 6) {ODKU} n = n + 1",
            InvalidInputError,
            "1 of 2 rows repeat",
        ),
        (f"INSERT INTO t (n) VALUES (1) {ODKU} n = 1", InvalidInputError, "missing: k"),
        (f"INSERT INTO t (k, n) VALUES (1, 'abc') {ODKU} n = 1", LoadRejectedError, "strict mode: 1 of 1"),
        (f"INSERT INTO t (k) VALUES (NULL) {ODKU} n = 1", LoadRejectedError, "is null while columns is not"),
        (
            f"INSERT INTO t (k) VALUES (1) {ODKU} zz = 1",
            InvalidInputError,
            "unknown column in assignment list: zz",
        ),
        (f"INSERT INTO t (k) VALUES (1) {ODKU} k = 1", InvalidInputError, "'k' is a key column"),
        (f"INSERT INTO t (k) VALUES (1) {ODKU} n = 1, N = 2", InvalidInputError, "assigned twice"),
        (
            f"INSERT INTO t (k) VALUES (1) {ODKU} n = (SELECT max(k) FROM t)",
            InvalidInputError,
            "use MERGE INTO",
        ),
        (f"INSERT OVERWRITE TABLE t VALUES (1, 1, 'a') {ODKU} n = 1", InvalidInputError, "line 1"),
        (f"REPLACE INTO t VALUES (1, 1, 'a') {ODKU} n = 1", InvalidInputError, "line 1"),
        (
            "MERGE INTO t USINGaN t.k WHEN MATCHED THEN UPDATE SET n = 1",
            InvalidInputError,
            "needs ON and a condition",
        ),
    ],
)
def test_a_statement_that_does_not_fit_is_refused_and_changes_nothing(
    session: Session, rows: Run, statement: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        list(session.execute(statement))
    assert rows("SELECT * FROM t ORDER BY k") == [(1, 1, "a"), (2, 2, "b")]


def test_a_label_makes_it_idempotent(session: Session, rows: Run) -> None:
    statement = f"INSERT INTO t WITH LABEL once (k, n) VALUES (1, 1) {ODKU} n = n + VALUES(n)"
    list(session.execute(statement))
    with pytest.raises(LabelExistsError):
        list(session.execute(statement))
    assert rows("SELECT n FROM t WHERE k = 1") == [(2,)]


def test_a_concurrent_update_of_the_row_is_not_lost(store: Store, session: Session, rows: Run) -> None:
    list(session.execute(f"BEGIN; INSERT INTO t (k, n) VALUES (1, 1) {ODKU} n = n + VALUES(n)"))
    with Session(store, "db") as other:
        list(other.execute("INSERT INTO t VALUES (1, 100, 'x')"))
    with pytest.raises(Exception, match="k=1"):
        list(session.execute("COMMIT"))
    assert rows("SELECT n FROM t WHERE k = 1") == [(100,)]


def test_random_statements_end_as_in_a_dictionary(session: Session, rows: Run) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    model: dict[int, tuple[int, str]] = {1: (1, "a"), 2: (2, "b")}
    for _ in range(25):
        keys = chance.sample(range(8), chance.randint(1, 4))
        given = {key: (chance.randint(0, 9), chance.choice("xyz")) for key in keys}
        values = ", ".join(f"({k}, {n}, '{v}')" for k, (n, v) in given.items())
        kind = chance.choice(["IGNORE", "REPLACE", "ADD", "OWN"])
        if kind == "IGNORE":
            list(session.execute(f"INSERT IGNORE INTO t VALUES {values}"))
            model = given | model
        elif kind == "REPLACE":
            list(session.execute(f"REPLACE INTO t VALUES {values}"))
            model |= given
        else:
            added = "n + VALUES(n)" if kind == "ADD" else "VALUES(n)"
            list(session.execute(f"INSERT INTO t VALUES {values} {ODKU} n = {added}"))
            for key, (n, v) in given.items():
                old = model.get(key)
                before = old[0] if old is not None and kind == "ADD" else 0
                model[key] = (before + n, old[1] if old is not None else v)
        assert rows("SELECT * FROM t ORDER BY k") == [(k, *model[k]) for k in sorted(model)], seed


def test_an_assignment_of_the_given_key_changes_nothing(session: Session) -> None:
    """Sequelize's upsert assigns every column, and was refused for the key."""
    run(session, "CREATE TABLE o (k INT, v INT) UNIQUE KEY(k); INSERT INTO o VALUES (1, 1)")
    run(session, "INSERT INTO o VALUES (1, 2), (2, 2) ON DUPLICATE KEY UPDATE k = VALUES(k), v = VALUES(v)")
    assert run(session, "SELECT * FROM o") == [(1, 2), (2, 2)]
    run(session, "INSERT INTO o VALUES (1, 3) AS new ON DUPLICATE KEY UPDATE k = new.k")
    assert run(session, "SELECT * FROM o") == [(1, 2), (2, 2)]
    with pytest.raises(InvalidInputError, match="'k' is a key column"):
        run(session, "INSERT INTO o VALUES (1, 3) ON DUPLICATE KEY UPDATE k = k + 1")


def test_an_assignment_knows_the_sessions_zone(rows: Run) -> None:
    """ON DUPLICATE KEY UPDATE c = now() was of the machine's time zone."""
    rows(
        "CREATE TABLE z (k INT, c DATETIME, d DATETIME) UNIQUE KEY(k); INSERT INTO z (k) VALUES (1);"
        "SET time_zone = '+14:00'; INSERT INTO z VALUES (1, '2024-05-01 00:00:00Z', NULL) "
        "ON DUPLICATE KEY UPDATE c = VALUES(c), d = from_unixtime(1714521600); SELECT 1"
    )
    assert rows("SELECT c = d FROM z") == [(True,)]


@pytest.mark.parametrize("where", ["", "BEGIN; "])
def test_a_null_in_a_key_equals_the_stored_null(session: Session, rows: Run, where: str) -> None:
    """T3. The key was compared by `=`, so that the stored row was overwritten, with its other columns."""
    rows(
        "CREATE TABLE n (a INT, b INT NULL, v INT NULL, w INT NULL) UNIQUE KEY(a, b);"
        f"INSERT INTO n VALUES (1, NULL, 10, 100); {where} SELECT 1"
    )
    rows("INSERT IGNORE INTO n VALUES (1, NULL, 11, 111); SELECT 1")
    assert rows("SELECT * FROM n") == [(1, None, 10, 100)]
    rows(f"INSERT INTO n (a, b, v) VALUES (1, NULL, 5) {ODKU} v = VALUES(v); SELECT 1")
    rows(f"INSERT INTO n VALUES (1, NULL, 0, 0) {ODKU} v = v + 1; SELECT 1")
    assert rows("SELECT * FROM n") == [(1, None, 6, 100)]


def test_ignore_makes_no_key_null(session: Session, rows: Run) -> None:
    """Rows of three unreadable keys became one row under NULL; values became NULL without a word."""
    rows("CREATE TABLE k1 (k INT, v INT NULL, s VARCHAR(3) NULL) UNIQUE KEY(k); SELECT 1")
    (result,) = session.execute(
        "INSERT IGNORE INTO k1 VALUES ('zz', 1, 'a'), (99999999999, 1, 'a'), (4, 'abc', 'b'), (5, 5, 'long')"
    )
    assert rows("SELECT * FROM k1") == [(4, None, "b")]
    told = "\n".join(result.warnings)
    assert [line.partition(":")[0] for line in result.warnings] == ["row 1", "row 2", "row 3", "row 4"]
    assert "column(k) value 'zz' is no INT" in told
    assert "column(v) value 'abc' is no INT" in told
    assert "schema length: 3" in told


@pytest.mark.parametrize(
    "words",
    [
        "INSERT IGNORE INTO t SELECT * FROM t WHERE k > 9",
        f"INSERT INTO t SELECT * FROM t WHERE k > 9 {ODKU} n = VALUES(n)",
    ],
)
def test_a_query_without_rows_writes_nothing(session: Session, rows: Run, words: str) -> None:
    """It was an internal error."""
    (result,) = session.execute(words)
    assert result.affected_rows == 0
    assert rows("SELECT * FROM t ORDER BY k") == [(1, 1, "a"), (2, 2, "b")]


def test_a_hidden_sequence_is_given_to_new_rows(session: Session, rows: Run) -> None:
    rows('CREATE TABLE h (k INT, v INT) UNIQUE KEY(k) PROPERTIES("function_column.sequence_type" = "bigint")'
         "; SELECT 1")  # fmt: skip
    columns = "h (k, v, __DORIS_SEQUENCE_COL__)"
    rows(f"INSERT INTO {columns} VALUES (1, 2, 6) {ODKU} v = 3; SELECT 1")
    rows(f"INSERT IGNORE INTO {columns} VALUES (1, 9, 9), (2, 2, 2); SELECT 1")
    rows(f"INSERT INTO {columns} VALUES (1, 4, 5), (2, 4, 3); SELECT 1")
    assert rows("SELECT * FROM h ORDER BY k") == [(1, 2), (2, 4)]
    rows(f"INSERT INTO {columns} VALUES (1, 9, 9) {ODKU} v = 3; SELECT 1")
    assert rows("SELECT * FROM h ORDER BY k") == [(1, 3), (2, 4)]


@pytest.mark.parametrize("statement", ["INSERT IGNORE INTO q (k, v) VALUES (1, 1)",
                                       f"INSERT INTO q (k, v) VALUES (1, 1) {ODKU} v = 5",
                                       "MERGE INTO q USING (SELECT 1 AS k) s ON q.k = s.k "
                                       "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 1)"])  # fmt: skip
def test_rows_without_a_sequence_where_the_session_admits_them(
    session: Session, rows: Run, statement: str
) -> None:
    """SL12."""
    rows('CREATE TABLE q (k INT, s INT NULL, v INT) UNIQUE KEY(k) '
         'PROPERTIES("function_column.sequence_col" = "s"); SELECT 1')  # fmt: skip
    with pytest.raises(InvalidInputError, match="need to specify the sequence column"):
        list(session.execute(statement))
    rows(f"SET require_sequence_in_insert = false; {statement}; SELECT 1")
    assert rows("SELECT * FROM q") == [(1, None, 1)]


def test_keys_that_auto_increment_makes_have_no_duplicates(session: Session, rows: Run) -> None:
    """The usual form of INSERT IGNORE and ON DUPLICATE KEY UPDATE of an ORM leaves the generated key out."""
    rows("CREATE TABLE a (id BIGINT AUTO_INCREMENT, v INT NULL DEFAULT '7') UNIQUE KEY(id); SELECT 1")
    rows(f"INSERT IGNORE INTO a (v) VALUES (5), (6); INSERT INTO a (v) VALUES (8) {ODKU} v = 1; SELECT 1")
    assert rows("SELECT * FROM a ORDER BY id") == [(1, 5), (2, 6), (3, 8)]
    assert rows("SELECT last_insert_id()") == [(3,)]


def test_a_row_of_defaults_alone(session: Session, rows: Run) -> None:
    """SQLAlchemy's ORM sends `() VALUES ()` for an object without values."""
    rows("CREATE TABLE a (id BIGINT AUTO_INCREMENT, v INT NULL DEFAULT '7') UNIQUE KEY(id); SELECT 1")
    rows(
        "INSERT INTO a () VALUES (); INSERT INTO a VALUES (), (); INSERT IGNORE INTO a () VALUES (); SELECT 1"
    )
    assert rows("SELECT * FROM a ORDER BY id") == [(1, 7), (2, 7), (3, 7), (4, 7)]
    with pytest.raises(InvalidInputError, match="column 'k' has no default"):
        list(session.execute("INSERT INTO t () VALUES ()"))
    with pytest.raises(InvalidInputError, match="expected 1 values, found 0 in row 1"):
        list(session.execute("INSERT INTO t (k) VALUES ()"))


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("INSERT INTO plain VALUES (1, 5) ON DUPLICATE KEY UPDATE v = nw.v", "nw.v"),
        ("INSERT INTO plain VALUES (1, 5) AS n ON DUPLICATE KEY UPDATE v = n.v + m.v", "m.v"),
        ("INSERT INTO plain VALUES (1, 5) ON DUPLICATE KEY UPDATE v = other.plain.v", "other.plain.v"),
        ("INSERT INTO plain SELECT 1 AS k, 5 AS v FROM plain AS s ON DUPLICATE KEY UPDATE v = s.v", "s.v"),
        ("INSERT INTO plain VALUES (1, 5) ON DUPLICATE KEY UPDATE s.v = 3", "s.v"),
        ("INSERT INTO db.plain VALUES (1, 5) ON DUPLICATE KEY UPDATE other.plain.v = 3", "other.plain.v"),
        ("INSERT INTO plain SET k = 1, s.v = 3", "s.v"),
    ],
)
def test_a_column_of_another_table_is_unknown(session: Session, text: str, column: str) -> None:
    """It was taken for the column of the stored row: a misspelled alias kept the stored value."""
    run(session, "CREATE TABLE plain (k INT, v INT) UNIQUE KEY(k); INSERT INTO plain VALUES (1, 2)")
    with pytest.raises(InvalidInputError, match=f"Unknown column '{re.escape(column)}' in ") as raised:
        run(session, text)
    assert raised.value.kind == "unknown_column"
    assert run(session, "SELECT * FROM plain") == [(1, 2)]


@pytest.mark.parametrize("name", ["v", "plain.v", "db.plain.v", "PLAIN.V"])
def test_a_column_of_the_table_has_its_names(session: Session, name: str) -> None:
    run(session, "CREATE TABLE plain (k INT, v INT) UNIQUE KEY(k); INSERT INTO plain VALUES (1, 2)")
    run(session, f"INSERT INTO db.plain VALUES (1, 5) ON DUPLICATE KEY UPDATE {name} = {name} + VALUES(v)")
    assert run(session, "SELECT * FROM plain") == [(1, 7)]


def test_a_value_has_no_alias(session: Session) -> None:
    run(session, "CREATE TABLE plain (k INT, v INT) UNIQUE KEY(k)")
    with pytest.raises(InvalidInputError, match="expected a value without an alias, found '5'"):
        run(session, "INSERT INTO plain VALUES (1, 5 AS v)")
