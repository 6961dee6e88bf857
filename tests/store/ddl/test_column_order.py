"""ALTER TABLE ORDER BY, FIRST and AFTER: the order of columns, for every way to read and write (SC7)."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, Table
from seqstore.loaders.stream_load import stream_load
from seqstore.store.maintenance.schema_change_job import SchemaChangeJob
from seqstore.store.sql import Session
from tests.support.statements import dicts, run

TABLE = """
CREATE TABLE t (k INT NOT NULL, b VARCHAR(9) NOT NULL, v INT NULL, s VARCHAR(20) NULL, n INT DEFAULT "7")
UNIQUE KEY(k, b);
INSERT INTO t VALUES (1, 'x', 10, 'one', 1), (2, 'y', NULL, 'two', 2);
CREATE TABLE d (a INT, b VARCHAR(9), c DOUBLE) DUPLICATE KEY(a, b);
INSERT INTO d VALUES (1, 'x', 0.5), (1, 'x', 0.5);
CREATE TABLE bare (a INT, b INT) PROPERTIES ("enable_duplicate_without_keys_by_default" = "true");
INSERT INTO bare VALUES (1, 2);
"""
pytestmark = pytest.mark.sql(TABLE)


def table(session: Session, name: str = "t") -> Table:
    return session.store.table(f"db.{name}")


def alter(session: Session, changes: str, name: str = "t") -> SchemaChangeJob:
    """Alters a table and waits for the job; returns the newest one."""
    run(session, f"ALTER TABLE {name} {changes}")
    session.store.schema_changes.wait()
    return list(session.store.schema_changes.jobs("db").values())[-1]


def segments(session: Session) -> set[int]:
    return set(table(session).state().segments)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ("ORDER BY (k, b, n, s, v)", "k b n s v"),
        ("ORDER BY (`K`, B, v, n, s)", "k b v n s"),
        ("MODIFY COLUMN n INT AFTER b", "k b n v s"),
        ("MODIFY COLUMN v BIGINT AFTER n", "k b s n v"),
        ("ADD COLUMN w INT AFTER b, MODIFY COLUMN n INT AFTER v", "k b w v n s"),
        ("ADD COLUMN w INT DEFAULT '0' AFTER v, ORDER BY (k, b, s, w, v, n)", "k b s w v n"),
        ("DROP COLUMN s, ORDER BY (k, b, n, v)", "k b n v"),
    ],
)
def test_value_columns_are_ordered_without_writing_a_row(session: Session, changes: str, names: str) -> None:
    before = segments(session)
    assert alter(session, changes).state == "FINISHED"
    assert segments(session) == before
    assert table(session).schema.names == names.split()


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ("ORDER BY (b, k, v, s, n)", ["b", "k"]),
        ("MODIFY COLUMN b VARCHAR(9) KEY NOT NULL FIRST", ["b", "k"]),
        ("MODIFY COLUMN k BIGINT KEY NOT NULL AFTER b", ["b", "k"]),
        ("ADD COLUMN z INT KEY NOT NULL DEFAULT '0', ORDER BY (z, b, k, n, s, v)", ["z", "b", "k"]),
    ],
)
def test_a_key_in_another_order_finds_its_rows(session: Session, changes: str, key: list[str]) -> None:
    assert alter(session, changes).state == "FINISHED"
    assert list(table(session).schema.key) == key
    assert run(session, "SELECT v, s FROM t WHERE k = 1 AND b = 'x'") == [(10, "one")]
    run(session, "INSERT INTO t (k, b, v) VALUES (1, 'x', 11), (3, 'z', 30); DELETE FROM t WHERE k = 2")
    assert run(session, "SELECT k, b, v FROM t") == [(1, "x", 11), (3, "z", 30)]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("t", "ORDER BY (k, b, v, s)", "should contains all columns, missing: n"),
        ("t", "ORDER BY (k, b, v, s, s)", "Reduplicative column"),
        ("t", "ORDER BY (k, b, v, s, q)", "unknown column 'q'"),
        ("t", "ORDER BY (k, v, b, s, n)", "value should be after key"),
        ("t", "MODIFY COLUMN v INT FIRST", "value should be after key"),
        ("t", "MODIFY COLUMN v INT AFTER k", "value should be after key"),
        ("t", "MODIFY COLUMN k INT KEY NOT NULL AFTER n", "value should be after key"),
        ("t", "MODIFY COLUMN v INT AFTER v", r"Column\[v\] modify position is invalid"),
        ("t", "MODIFY COLUMN v INT AFTER q", "unknown column 'q'"),
        ("t", "ADD COLUMN w INT FIRST", "value should be after key"),
        ("d", "ORDER BY (a, c, b)", "value should be after key"),
        ("bare", "ADD COLUMN w INT KEY", "Duplicate table without keys do not support add key column!"),
    ],
)
def test_an_order_that_cannot_be_is_refused(session: Session, name: str, changes: str, message: str) -> None:
    before = table(session, name).version
    with pytest.raises(InvalidInputError, match=message):
        run(session, f"ALTER TABLE {name} {changes}")
    assert table(session, name).version == before


def test_duplicate_tables_add_order_and_change_key_columns(session: Session) -> None:
    """All of it was refused by name."""
    alter(session, "ADD COLUMN e INT KEY DEFAULT '4' AFTER a", "d")
    assert table(session, "d").schema.declared_key == ("a", "e", "b")
    alter(session, "ORDER BY (b, a, e, c)", "d")
    assert alter(session, "MODIFY COLUMN a VARCHAR(11) KEY AFTER e", "d").state == "FINISHED"
    run(session, "INSERT INTO d VALUES ('y', 5, 'q', 1.5)")
    assert run(session, "SELECT * FROM d") == [("x", 4, "1", 0.5), ("x", 4, "1", 0.5), ("y", 5, "q", 1.5)]
    found = [(row["Field"], row["Key"]) for row in dicts(session, "DESC d")]
    assert found == [("b", "true"), ("e", "true"), ("a", "true"), ("c", "false")]
    run(session, "DELETE FROM d WHERE a = '1'; ALTER TABLE bare ADD COLUMN w INT FIRST")
    assert run(session, "SELECT * FROM d") == [("y", 5, "q", 1.5)]
    assert run(session, "SELECT * FROM bare") == [(None, 1, 2)]


CHANGE = "ORDER BY (b, k, n, v, s)"  # the key, too
ROWS = [("x", 1, 1, 10, "one"), ("y", 2, 2, None, "two")]


def printed(session: Session) -> list[str]:
    text: str = dicts(session, "SHOW CREATE TABLE t")[0]["Create Table"]
    return [line.split("`")[1] for line in text.splitlines() if line.startswith("  `")]


def test_every_list_of_columns_has_the_new_order(session: Session) -> None:
    alter(session, CHANGE)
    names = ["b", "k", "n", "v", "s"]
    assert [row["Field"] for row in dicts(session, "DESC t")] == names
    assert printed(session) == names
    listed = "SELECT ordinal_position, column_name FROM information_schema.columns WHERE table_name = 't'"
    assert [name for _, name in run(session, listed)] == names
    assert list(dicts(session, "SELECT * FROM t")[0]) == names
    assert table(session).scan().schema.names == names
    assert table(session).get(pa.table({"k": [1], "b": ["x"]})).to_pylist() == [
        dict(zip(names, ROWS[0], strict=True))
    ]


def load(session: Session, body: str, **headers: str) -> Any:
    given = {"column_separator": ",", **headers}
    return stream_load(session.store, "db", "t", io.BytesIO(body.encode()), given)


def test_writes_without_a_list_of_columns_take_the_new_order(session: Session) -> None:
    alter(session, CHANGE)
    run(session, "INSERT INTO t VALUES ('z', 3, 9, 30, 'three')")
    assert load(session, "w,4,8,40,four\n")["NumberLoadedRows"] == 1
    table(session).upsert(pa.table({"k": [1], "b": ["x"], "s": ["by name"], "v": [5], "n": [6]}))
    load(session, "2,y,changed\n", columns="k,b,s", partial_columns="true")
    run(session, "UPDATE t SET v = 41 WHERE k = 4")
    assert run(session, "SELECT * FROM t") == [
        ("w", 4, 8, 41, "four"), ("x", 1, 6, 5, "by name"), ("y", 2, 2, None, "changed"),
        ("z", 3, 9, 30, "three")]  # fmt: skip


def test_history_and_maintenance_go_over_a_change_of_the_order(session: Session) -> None:
    before = table(session).version
    changed = alter(session, CHANGE).version
    run(session, "UPDATE t SET s = 'uno' WHERE k = 1; OPTIMIZE TABLE t FULL")
    assert run(session, "SELECT * FROM t") == [("x", 1, 1, 10, "uno"), ROWS[1]]
    assert run(session, f"SELECT * FROM t FOR VERSION AS OF {changed}") == ROWS
    assert run(session, f"SELECT * FROM t FOR VERSION AS OF {before}") == [
        (1, "x", 10, "one", 1), (2, "y", None, "two", 2)]  # fmt: skip
    feed = table(session).changes(2).read_all().to_pylist()
    kinds = [(row["_change_type"], row["b"], row["k"], row["s"]) for row in feed]
    assert sorted(kinds) == [("+I", "x", 1, "one"), ("+I", "y", 2, "two"), ("+U", "x", 1, "uno"),
                             ("-U", "x", 1, "one")]  # fmt: skip
    events = table(session).key_history({"k": 1, "b": "x"})
    assert [(event.outcome, event.row["s"]) for event in events] == [("replaced", "one"), ("live", "uno")]
    run(session, f"RESTORE TABLE t TO VERSION AS OF {before}")
    assert run(session, "SELECT * FROM t") == [(1, "x", 10, "one", 1), (2, "y", None, "two", 2)]


def test_column_groups_keep_their_columns_in_another_order(session: Session) -> None:
    run(session, "CREATE TABLE g (k INT, a INT, x INT, s1 INT, b INT, s2 INT) UNIQUE KEY(k) PROPERTIES ("
                 "'sequence_mapping.s1' = 'a,x', 'sequence_mapping.s2' = 'b')")  # fmt: skip
    run(session, "INSERT INTO g VALUES (1, 10, 11, 5, 20, 5)")
    alter(session, "ORDER BY (k, s2, b, s1, x, a)", "g")
    run(session, "INSERT INTO g (k, b, s2, a, x, s1) VALUES (1, 21, 6, 12, 13, 4)")
    assert run(session, "SELECT * FROM g") == [(1, 6, 21, 5, 11, 10)]
    again = dicts(session, "SHOW CREATE TABLE g")[0]["Create Table"].replace("`g`", "`h`")
    run(session, again)
    assert table(session, "h").schema.names == ["k", "s2", "b", "s1", "x", "a"]
