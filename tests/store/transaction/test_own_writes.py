"""What a transaction sees of its own writes: its snapshot and on it every row of its own that wins (X7)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    ConflictError,
    InvalidInputError,
    Session,
    Settings,
    Store,
    Table,
    Transaction,
    TransactionTable,
)
from tests.support.rows import MakeTable
from tests.support.statements import run

f = pc.field
Row = tuple[int | None, int | None]  # a, b
KEYS = range(8)
PROPERTIES: dict[str, dict[str, str]] = {
    "plain": {},
    "hashed": {},
    "sequence": {"function_column.sequence_col": "s"},
}


class Model:
    """The rows of a table by key: sequence, and a and b or None for a tombstone."""

    def __init__(self, *, has_sequence: bool) -> None:
        self.has_sequence = has_sequence
        self.rows: dict[int, tuple[int, Row | None]] = {}

    def copy(self) -> Model:
        copied = Model(has_sequence=self.has_sequence)
        copied.rows = dict(self.rows)
        return copied

    def seen(self) -> list[tuple[int, int | None, int | None, int]]:
        return sorted((k, *row, s) for k, (s, row) in self.rows.items() if row is not None)

    def upsert(self, key: int, row: Row, sequence: int) -> None:
        known = self.rows.get(key)
        if known is None or not self.has_sequence or sequence >= known[0]:
            self.rows[key] = (sequence, row)

    def delete(self, key: int) -> None:
        known = self.rows.get(key)
        if known is not None:
            self.rows[key] = (known[0], None)

    def update(self, test: Callable[[int, Row], bool], change: Callable[[Row], Row]) -> int:
        found = [k for k, (_, row) in self.rows.items() if row is not None and test(k, row)]
        for key in found:
            sequence, row = self.rows[key]
            assert row is not None
            self.rows[key] = (sequence, change(row))
        return len(found)


class Run:
    """One random transaction on a table, beside its model."""

    def __init__(self, store: Store, kind: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.text = kind == "hashed"
        self.model = Model(has_sequence=kind == "sequence")
        self.store = store

    def key(self, number: int) -> Any:
        return f"key {number}" if self.text else number

    def rows(self, count: int) -> list[tuple[int, Row, int]]:
        draw = self.random
        keys = draw.sample(KEYS, count)
        return [(k, (draw.randrange(10), draw.randrange(10)), draw.randrange(20)) for k in keys]

    def upsert(self, table: TransactionTable | Table) -> None:
        rows = self.rows(self.random.randint(1, 4))
        columns = {"k": [self.key(k) for k, _, _ in rows], "a": [r[0] for _, r, _ in rows]}
        columns |= {"b": [r[1] for _, r, _ in rows], "s": [s for *_, s in rows]}
        table.upsert(pa.table(columns))
        for each in rows:
            self.model.upsert(*each)

    def partial(self, table: TransactionTable) -> None:
        """Only of keys with a row: a new key would have to name its sequence."""
        live = [k for k, _, _, _ in self.model.seen()]
        if live:
            key, value = self.random.choice(live), self.random.randrange(10)
            table.upsert(pa.table({"k": [self.key(key)], "a": [value]}), mode="UPDATE_FIXED_COLUMNS")
            self.model.update(lambda k, _: k == key, lambda row: (value, row[1]))

    def delete(self, table: TransactionTable) -> None:
        live = [k for k, _, _, _ in self.model.seen()]
        keys = self.random.sample(live, min(len(live), 2))
        if keys:
            table.delete(pa.table({"k": [self.key(k) for k in keys]}))
        for key in keys:
            self.model.delete(key)

    def update(self, table: TransactionTable) -> None:
        low = self.random.randrange(10)
        matched, _ = table.update({"a": f("a") + 1}, f("b") >= low)
        assert matched == self.model.update(
            lambda _, row: row[1] is not None and row[1] >= low, lambda row: ((row[0] or 0) + 1, row[1])
        )

    def delete_where(self, table: TransactionTable) -> None:
        at = self.random.randrange(12)
        matched, _ = table.delete_where(f("a") == at)
        found = [k for k, a, _, _ in self.model.seen() if a == at]
        assert matched == len(found)
        for key in found:
            self.model.delete(key)

    def merge(self, table: TransactionTable) -> None:
        ((key, row, sequence),) = self.rows(1)
        source = pa.table({"k": [self.key(key)], "a": [row[0]], "b": [row[1]], "s": [sequence]})
        merge = table.merge(source, "t.k = s.k").when_matched_update({"b": "t.b + s.b"})
        merge.when_not_matched_insert_all().run()
        if not self.model.update(lambda k, _: k == key, lambda old: (old[0], (old[1] or 0) + (row[1] or 0))):
            self.model.upsert(key, row, sequence)

    def check(self, table: TransactionTable | Table) -> None:
        expected = [(self.key(k), *rest) for k, *rest in self.model.seen()]
        names = ["k", "a", "b", "s"]
        scanned = table.scan(names).read_all().to_pylist()
        assert sorted(tuple(row.values()) for row in scanned) == sorted(expected)
        assert table.count() == len(expected)
        keys = pa.table({"k": [self.key(k) for k in (*KEYS, 100)]})
        assert sorted(tuple(row.values()) for row in table.get(keys, names).to_pylist()) == sorted(expected)

    def run(self, table: Table, transaction: Transaction) -> None:
        own = transaction.table("db.t")
        steps = [self.upsert, self.partial, self.delete, self.update, self.delete_where, self.merge]
        for step in self.random.choices(steps, k=self.random.randint(2, 12)):
            step(own)
            if self.random.random() < 0.6:
                self.check(own)
        self.check(own)


@pytest.mark.family(6)
@pytest.mark.parametrize("files", [False, True], ids=["inline", "files"])
@pytest.mark.parametrize("kind", PROPERTIES)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.settings(Settings(auto_compaction=0))
def test_a_transaction_reads_what_it_wrote_as_if_it_were_alone(
    store: Store, make_table: MakeTable, kind: str, seed: int, files: bool
) -> None:
    """The seed is the test's parameter. Every statement sees the model; so does the table after COMMIT."""
    if files:
        object.__setattr__(store.settings, "inline_bytes_max", 0)
    key = "k VARCHAR(20) NOT NULL" if kind == "hashed" else "k INT NOT NULL"
    table = make_table(key, "a INT", "b INT", "s INT", **PROPERTIES[kind])
    history = Run(store, kind, seed)
    history.upsert(table)
    before, version = history.model.copy(), table.version
    for ending in ("rollback", "commit", "overtaken"):
        history.model = before.copy()
        transaction = store.transaction()
        history.run(table, transaction)
        if ending == "overtaken":  # by a load of another key: the snapshot is not the newest version any more
            other = pa.table({"k": [history.key(100)], "a": [1], "b": [-1], "s": [1]})
            table.upsert(other)
            history.model.upsert(100, (1, -1), 1)
        if ending == "rollback":
            transaction.rollback()
            assert table.version == version
            continue
        try:
            transaction.commit()
        except ConflictError:
            assert ending == "overtaken", "a whole-table read of the transaction saw no such key"
            continue
        history.check(table)
        before = history.model.copy()
    assert table.check() == []
    named = {live.segment.meta.id for live in table.state().segments.values()}
    stored = (store.path / "tables" / str(table.id)).glob("*.arrow")
    dropped = {path.stem for path in stored} - named
    assert not dropped - {name for v in range(1, table.version) for name in segments(table, v)}


def segments(table: Table, version: int) -> set[str]:
    return {live.segment.meta.id for live in table.state(version).segments.values()}


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    made = make_table("k INT NOT NULL", "a INT", "b INT")
    made.upsert(pa.table({"k": [1, 2], "a": [10, 20], "b": [1, 2]}))
    return made


def one(k: int, a: int, b: int = 0) -> pa.Table:
    return pa.table({"k": [k], "a": [a], "b": [b]})


def test_the_same_filling_is_published_where_nothing_came_between(store: Store, table: Table) -> None:
    """Rows that a read filled are not filled again by the commit."""
    with store.transaction() as transaction:
        own = transaction.table("db.t")
        own.update({"a": f("a") + 1})
        own.update({"a": f("a") + 1})
        assert sorted(own.scan(["a"]).read_all()["a"].to_pylist()) == [12, 22]
        filled = {segment.meta.id for segment in own.writer._own.filled}  # type: ignore[union-attr]
    assert filled <= set(segments(table, table.version))


def test_a_key_read_of_an_own_row_is_no_conflict(store: Store, table: Table) -> None:
    transaction = store.transaction()
    own = transaction.table("db.t")
    own.upsert(one(7, 1))
    assert own.get({"k": [7]}).num_rows == 1
    own.update({"a": f("a") + 1}, f("b") == 5)
    table.upsert(one(9, 9, 9))
    transaction.commit()
    assert table.get({"k": [7]}).to_pylist() == [{"k": 7, "a": 1, "b": 0}]


def test_another_insert_of_a_key_that_was_read_after_its_own_insert_is_no_conflict(
    store: Store, table: Table
) -> None:
    transaction = store.transaction(isolation="Serializable")
    own = transaction.table("db.t")
    own.upsert(one(7, 1))
    assert own.get({"k": [7]}, ["a"])["a"].to_pylist() == [1]
    table.upsert(one(7, 50))
    transaction.commit()
    assert table.get({"k": [7]}, ["a"])["a"].to_pylist() == [1]


def test_a_key_read_before_its_own_insert_is_a_conflict(store: Store, table: Table) -> None:
    transaction = store.transaction(isolation="Serializable")
    own = transaction.table("db.t")
    assert own.get({"k": [7]}).num_rows == 0
    own.upsert(one(7, 1))
    table.upsert(one(7, 50))
    with pytest.raises(ConflictError):
        transaction.commit()


def test_a_row_that_was_read_of_others_is_a_conflict_whatever_was_written_over_it(
    store: Store, table: Table
) -> None:
    transaction = store.transaction()
    own = transaction.table("db.t")
    own.upsert(pa.table({"k": [1], "a": [99]}), mode="UPDATE_FIXED_COLUMNS")  # b is of others
    assert own.get({"k": [1]}, ["b"])["b"].to_pylist() == [1]
    table.update({"b": pc.scalar(7)}, f("k") == 1)
    with pytest.raises(ConflictError):
        transaction.commit()


def test_a_statement_that_fails_is_not_seen_and_the_others_are(store: Store, table: Table) -> None:
    """X11: a new key without its NOT NULL column was an error of COMMIT, which lost the other statements."""
    with Session(store, "db") as session:
        run(
            session,
            "CREATE TABLE n (k INT NOT NULL, a INT NOT NULL, b INT NULL) UNIQUE KEY(k);"
            "INSERT INTO n VALUES (1, 1, 1); SET enable_unique_key_partial_update = true;"
            "SET enable_insert_strict = false; BEGIN; UPDATE n SET a = 2",
        )
        with pytest.raises(InvalidInputError, match="the unmentioned column `a`"):
            run(session, "INSERT INTO n (k, b) VALUES (5, 5)")
        assert run(session, "SELECT * FROM n") == [(1, 2, 1)]
        run(session, "COMMIT")
        assert run(session, "SELECT * FROM n") == [(1, 2, 1)]


def test_a_merge_that_fails_in_its_second_clause_undoes_the_first(store: Store, table: Table) -> None:
    """X11: rows of the first clause stayed in the transaction."""
    with Session(store, "db") as session:
        run(
            session,
            "ALTER TABLE t ADD CONSTRAINT small CHECK (a < 1000); BEGIN; INSERT INTO t VALUES (3, 3, 3)",
        )
        with pytest.raises(InvalidInputError):
            run(
                session,
                "MERGE INTO t USING (SELECT 1 k, 5 a UNION ALL SELECT 8, 5000) s ON t.k = s.k "
                "WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT (k, a) VALUES (s.k, s.a)",
            )
        expected = [(1, 10, 1), (2, 20, 2), (3, 3, 3)]
        assert run(session, "SELECT * FROM t") == expected
        run(session, "COMMIT")
        assert run(session, "SELECT * FROM t") == expected


def test_earlier_versions_are_read_as_they_were_published(store: Store, table: Table) -> None:
    with Session(store, "db") as session:
        run(session, "BEGIN; UPDATE t SET a = 0")
        assert run(session, f"SELECT a FROM t FOR VERSION AS OF {table.version}") == [(10,), (20,)]
        assert run(session, "SELECT a FROM t") == [(0,), (0,)]


# Every way in which SQL reads a table, in a transaction that has changed it to (1, 11, 1), (3, 30, 3).
READS = {
    "key": ("SELECT a FROM t WHERE k = 1", [(11,)]),
    "keys": ("SELECT a FROM t WHERE k IN (1, 2, 3)", [(11,), (30,)]),
    "scan": ("SELECT k, a FROM t", [(1, 11), (3, 30)]),
    "condition": ("SELECT k FROM t WHERE a > 20", [(3,)]),
    "count": ("SELECT count(*) FROM t", [(2,)]),
    "count of a condition": ("SELECT count(*) FROM t WHERE a = 10", [(0,)]),
    "extremes": ("SELECT min(a), max(a) FROM t", [(11, 30)]),
    "DuckDB": ("SELECT sum(a * 2) FROM t", [(82,)]),
    "grouped": ("SELECT b, count(*) FROM t GROUP BY b", [(1, 1), (3, 1)]),
    "joined": ("SELECT x.a, y.a AS z FROM t x JOIN t y ON x.k = y.k", [(11, 11), (30, 30)]),
    "subquery": ("SELECT k FROM t WHERE a = (SELECT max(a) FROM t)", [(3,)]),
    "insert select": ("INSERT INTO u SELECT * FROM t; SELECT k, a FROM u", [(1, 11), (3, 30)]),
    "insert of itself": (
        "INSERT INTO t SELECT k + 10, a, b FROM t; SELECT max(k), count(*) FROM t",
        [(13, 4)],
    ),
    "update": ("UPDATE t SET b = a; SELECT b FROM t", [(11,), (30,)]),
    "update from": ("UPDATE u SET a = t.a FROM t WHERE u.k = t.k - 2; SELECT a FROM u", [(30,)]),
    "delete": ("DELETE FROM t WHERE a = 11; SELECT k FROM t", [(3,)]),
    "merge": (
        "MERGE INTO t USING (SELECT 3 k UNION ALL SELECT 4) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET a = t.a + 1 WHEN NOT MATCHED THEN INSERT (k, a) VALUES (s.k, 0);"
        "SELECT k, a FROM t",
        [(1, 11), (3, 31), (4, 0)],
    ),
}


@pytest.mark.parametrize("name", READS)
def test_every_way_of_reading_sees_the_own_writes(
    store: Store, session: Session, table: Table, name: str
) -> None:
    run(session, "CREATE TABLE u (k INT NOT NULL, a INT, b INT) UNIQUE KEY(k)")
    if name == "update from":
        run(session, "INSERT INTO u VALUES (1, 0, 0)")
    run(session, "BEGIN; UPDATE t SET a = a + 1 WHERE k = 1; DELETE FROM t WHERE k = 2")
    run(session, "INSERT INTO t VALUES (3, 30, 3)")
    text, expected = READS[name]
    assert run(session, text) == expected
    with Session(store, "db") as other:
        assert run(other, "SELECT * FROM t") == [(1, 10, 1), (2, 20, 2)]
    run(session, "COMMIT")
    if name not in ("insert of itself", "update", "update from", "delete", "merge"):
        assert run(session, "SELECT k, a FROM t") == [(1, 11), (3, 30)]


@pytest.mark.parametrize("reads", [False, True])
def test_the_counts_of_a_transaction_are_those_of_its_statements(
    store: Store, make_table: MakeTable, reads: bool
) -> None:
    """Reading between the statements fills them earlier; the counts are the same."""
    table = make_table("k INT NOT NULL", "s INT", "a INT", sequence_col="s")
    table.upsert(pa.table({"k": [1, 2, 3], "s": [5, 5, 5], "a": [0, 0, 0]}))
    with store.transaction() as transaction:
        opened = transaction.table("db.t")
        for keys, sequence in (([1, 2, 1], 4), ([3, 3], 6)):
            given = pa.table({"k": keys, "s": [sequence] * len(keys), "a": range(len(keys))})
            opened.upsert(given, mode="UPDATE_FIXED_COLUMNS")
            if reads:
                assert opened.count() == 3
        transaction.commit()
    metrics = table.history()[-1].metrics
    assert (metrics.rows_late, metrics.rows_superseded, metrics.rows_replaced) == (3, 1, 1)
