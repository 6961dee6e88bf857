"""Copies of columns follow the versions of their table, and each query reads the rows of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Store
from seqstore.store.check.write_modes import UpdateMode
from seqstore.store.runtime import memory_limit
from seqstore.store.sql import Session, parse
from seqstore.store.sql.evaluate import column_copies, connections, copy_demand, duck
from seqstore.store.sql.evaluate.column_copies import ColumnCopies, Copy, Use
from seqstore.store.sql.evaluate.copy_changes import RowsToCopy
from seqstore.store.sql.evaluate.prepared_text import Preparation, PreparedText
from tests.seeds import new_seed
from tests.support.copied import copied_at_once, copies, databases, settled
from tests.support.statements import last_result
from tests.weight import by_form

Run = Callable[[str], list[tuple[Any, ...]]]
_ROWS = 20_000
_QUERY = "SELECT g, sum(v), count(*), min(s) FROM t GROUP BY g ORDER BY g"


@pytest.fixture
def table(store: Store, run: Run) -> str:
    """A table `t` that has a few hidden rows."""
    run("CREATE TABLE t (k INT, g INT, v BIGINT, s VARCHAR(20)) UNIQUE KEY(k)")
    store.table("db.t").upsert(rows_of(np.arange(_ROWS), 0))
    run("DELETE FROM t WHERE k < 50")
    return "t"


def rows_of(keys: np.ndarray[Any, Any], number: int) -> pa.Table:
    texts = [f"text {key} {number}" for key in keys]
    return pa.table({"k": keys, "g": (keys + number) % 5, "v": keys * (number + 1), "s": texts})


def copied_rows() -> list[tuple[Any, ...]]:
    """The rows that the only copy has, without their numbers."""
    [database] = databases()
    with connections.connect().cursor() as cursor:
        sql = f"SELECT k, g, v, s FROM {database}.main.{column_copies.TABLE} ORDER BY k"
        return cursor.execute(sql).fetchall()


@contextmanager
def following(monkeypatch: pytest.MonkeyPatch, run: Run) -> Iterator[list[int]]:
    """Copies all columns, and counts scans of copies and others."""
    with copied_at_once(monkeypatch) as counts:
        run("SELECT * FROM t WHERE v + 0 >= 0")
        assert counts == [1, 0]
        yield counts


CHANGES = {
    "insert": "INSERT INTO t VALUES (-1, 7, 70, 'new'), (60, 8, 80, 'late')",
    "delete": "DELETE FROM t WHERE k % 1000 = 3",
    "update": "UPDATE t SET v = v + 1, s = 'changed' WHERE k BETWEEN 100 AND 300",
    "delete and insert": "DELETE FROM t WHERE k = 70; INSERT INTO t VALUES (70, 1, 1, 'again')",
    "insert and delete": "INSERT INTO t VALUES (-2, 1, 1, 'x'); DELETE FROM t WHERE k = -2",
    "many loads": "; ".join(f"INSERT INTO t VALUES ({k}, 1, {k}, 'x')" for k in range(15)),
}


LARGE = (
    "TRUNCATE TABLE t",
    "DELETE FROM t WHERE k >= 0",
    "INSERT OVERWRITE TABLE t VALUES (1, 1, 1, 'x')",
    "UPDATE t SET v = v + 1 WHERE k >= 0",
)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.usefixtures("table")
def test_a_copy_has_the_rows_of_the_newer_version(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with following(monkeypatch, run) as counts:
        before = databases()
        run(CHANGES[name])
        found = run(_QUERY)
        assert counts[1] == 0
    assert databases() == before, "the copy has changed, and was not made anew"
    assert copied_rows() == run("SELECT k, g, v, s FROM t ORDER BY k")
    run("SET enable_column_copies = false")
    assert found == run(_QUERY)


@pytest.mark.usefixtures("table")
def test_rows_that_compaction_has_moved_are_copied_once(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(monkeypatch, run):
        for number in range(12):
            store.table("db.t").upsert(rows_of(np.arange(number * 10, number * 10 + 20), number))
        run(_QUERY)
        store.table("db.t").optimize()
        for _ in range(2):
            run("SELECT * FROM t WHERE v + 0 >= 0")
        found = run(_QUERY)
    assert copied_rows() == run("SELECT k, g, v, s FROM t ORDER BY k")
    run("SET enable_column_copies = false")
    assert found == run(_QUERY)


@pytest.mark.usefixtures("table")
def test_rows_that_a_restore_brings_back_are_copied_again(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows come back as are hidden anew: their number says nothing."""
    version = store.table("db.t").version
    run("DELETE FROM t WHERE k IN (100, 101)")
    with following(monkeypatch, run):
        run(f"RESTORE TABLE t TO VERSION AS OF {version}; DELETE FROM t WHERE k IN (200, 201)")
        found = run(_QUERY)
    run("SET enable_column_copies = false")
    assert found == run(_QUERY)


@pytest.mark.parametrize("change", LARGE)
@pytest.mark.usefixtures("table")
def test_after_large_changes_a_copy_is_made_anew(
    run: Run, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    with following(monkeypatch, run):
        before = databases()
        run(change)
        for _ in range(3):
            found = run(_QUERY)
        assert databases() != before or not found
    run("SET enable_column_copies = false")
    assert found == run(_QUERY)


@pytest.mark.usefixtures("table")
def test_a_query_of_other_columns_has_a_copy_of_these_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with copied_at_once(monkeypatch) as counts:
        run("SELECT sum(v) FROM t WHERE v + 0 >= 0")
        before = databases()
        run("INSERT INTO t VALUES (-1, 1, 1, 'x')")
        run(_QUERY)
        assert counts == [2, 0]
    assert databases() != before
    assert len(databases()) == 1


@pytest.mark.usefixtures("table")
def test_a_query_goes_on_with_the_rows_of_its_version(
    session: Session, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(monkeypatch, run) as counts:
        [query] = parse("SELECT k, v FROM t WHERE v + 0 >= 0")
        with session.stream(query) as reader:
            rows = [reader.read_next_batch().num_rows]
            assert counts == [2, 0]
            with Session(session.store, "db") as other:
                last_result(other, "DELETE FROM t WHERE k >= 19000; INSERT INTO t VALUES (-1, 1, 1, 'x')")
                assert last_result(other, "SELECT count(v) FROM t WHERE v + 0 >= -5").rows is not None
            assert counts == [3, 0]
            rows += [batch.num_rows for batch in reader]
    assert sum(rows) == _ROWS - 50
    assert len(copied_rows()) == _ROWS - 50 - 1000 + 1


@pytest.mark.usefixtures("table")
def test_no_copy_changes_between_a_query_that_found_it_and_its_begin(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query would read the rows of the later version."""
    monkeypatch.setattr(column_copies, "_START_SECONDS", 0.05)
    with following(monkeypatch, run) as counts:
        use = held_copy(store)
        run("INSERT INTO t VALUES (-1, 1, 1, 'x')")
        run(_QUERY)
        assert counts[1] >= 1, "the query in between holds the copy"
        assert len(rows_in(use.copy)) == _ROWS - 50
        copies().release(use)
    settled()
    assert use.copy.database not in databases()


@pytest.mark.usefixtures("table")
def test_a_copy_changes_beside_a_query_that_has_begun(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(monkeypatch, run) as counts:
        use = held_copy(store)
        copies().began(use)
        run("INSERT INTO t VALUES (-1, 1, 1, 'x')")
        run(_QUERY)
        assert counts == [2, 0]
        copies().release(use)
    assert (use.copy.uses, use.copy.starting) == (set(), set())


@pytest.mark.usefixtures("table")
def test_a_change_goes_on_when_a_query_fails_before_it_begins(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that changes copies slept for the whole time that queries have to begin."""
    waiting = threading.Event()
    wait = ColumnCopies._wait_for_begin

    def told(self: ColumnCopies, copy: Copy) -> bool:
        waiting.set()
        return wait(self, copy)

    monkeypatch.setattr(column_copies, "_START_SECONDS", 3600.0)
    monkeypatch.setattr(ColumnCopies, "_wait_for_begin", told)
    with following(monkeypatch, run) as counts:
        use = held_copy(store)

        def fail() -> None:
            assert waiting.wait(60)
            copies().release(use)

        failing = threading.Thread(target=fail)
        failing.start()
        run("INSERT INTO t VALUES (-1, 1, 1, 'x')")
        run(_QUERY)
        failing.join()
        assert counts == [2, 0]


@pytest.mark.usefixtures("table")
def test_a_query_that_computes_for_long_lets_the_copy_change(
    session: Session, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began with its first rows, when all of its aggregates were done."""
    begun: list[bool] = []
    executed = duck._registered

    def noted(sources: Any, *, needs_counts: bool) -> Any:
        [copy] = copies()._copies.values()
        begun.append(bool(copy.uses) and not copy.starting)
        return executed(sources, needs_counts=needs_counts)

    with following(monkeypatch, run):
        monkeypatch.setattr(duck, "_registered", noted)
        run(_QUERY)
    assert begun == [True], "before DuckDB plans the query"


@pytest.mark.usefixtures("table")
def test_a_query_that_begins_twice_reads_one_version(
    session: Session, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB refuses the first text of the query; a copy that changed before the second had later rows."""
    sql = f"SELECT (SELECT count(v) FROM t) AS c FROM t HAVING c = {_ROWS - 50} LIMIT 1"
    settled_text = Preparation.settled_text

    def later(self: Preparation) -> PreparedText:
        with Session(session.store, "db") as other:
            last_result(other, "INSERT INTO t VALUES (-1, 1, 1, 'x')")
            assert last_result(other, _QUERY).rows is not None
        return settled_text(self)

    with following(monkeypatch, run) as counts:
        monkeypatch.setattr(Preparation, "settled_text", later)
        assert run(sql) == [(_ROWS - 50,)]
        assert counts[0] >= 3
    assert len(copied_rows()) == _ROWS - 49


@pytest.mark.usefixtures("table")
def test_a_shortage_ends_the_wait_for_queries(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_copies, "_START_SECONDS", 3600.0)
    with following(monkeypatch, run):
        use = held_copy(store)
        run("INSERT INTO t VALUES (-1, 1, 1, 'x')")
        ending = threading.Timer(0.3, memory_limit.release)
        ending.start()
        run(_QUERY)
        ending.join()
        assert use.copy.is_dropped
        copies().release(use)
    settled()
    assert databases() == []


def held_copy(store: Store) -> Use:
    """The copy of `following`, as a query that has found it holds it."""
    with store.snapshot("db.t") as snapshot:
        use = copies().find(snapshot, ["g", "v"])
    assert use is not None
    return use


def rows_in(copy: Copy) -> list[tuple[Any, ...]]:
    with connections.connect().cursor() as cursor:
        return cursor.execute(f"SELECT k FROM {copy.table}").fetchall()


@pytest.mark.usefixtures("table")
def test_a_change_ends_when_all_copies_do(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends meanwhile, or another one forgets what its parent had."""
    made = ColumnCopies(copies()._connection, 1 << 20)
    with store.snapshot("db.t") as snapshot:
        identity = snapshot.identity
        copy = made._copies[identity.table] = Copy("copy_of_none", identity, ("k",))
        demand = copy_demand.Demand(snapshot.version, identity)

        def ended(*_: object) -> bool:
            made.end()
            return False

        monkeypatch.setattr(made, "_changed_to", ended)
        made._demands[identity.table] = demand
        made._make(column_copies._Order(identity.table, demand, ("k",), snapshot, _no_rows, copy))
        assert made.find(snapshot, ["k"]) is None


def _no_rows(*_: object) -> RowsToCopy:
    raise AssertionError("nothing is copied")


@pytest.mark.usefixtures("table")
def test_a_change_that_fails_ends_the_copy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with following(monkeypatch, run) as counts:
        before = databases()

        def fail(*_: object, **__: object) -> Iterator[None]:
            raise MemoryError("planted")

        with monkeypatch.context() as patched:
            patched.setattr(column_copies, "change_rows", fail)
            run("INSERT INTO t VALUES (-1, 1, 1, 'x')")
            found = run(_QUERY)
            assert counts == [1, 1]
    settled()
    assert databases() != before
    run("SET enable_column_copies = false")
    assert found == run(_QUERY)


@pytest.mark.usefixtures("table")
def test_a_version_that_is_hardly_queried_is_not_followed(store: Store, run: Run) -> None:
    """A load a second and a query a second would cost a change of the copy a second."""
    demand = copy_demand.Demand(1, store.snapshot("db.t").__enter__().identity)
    demand.seconds = (copy_demand.SECONDS_MIN + _ROWS * copy_demand.SECONDS_A_ROW) * demand.share * 0.9
    assert not demand.is_due(follows=True)
    demand.seconds *= 1.2
    assert demand.is_due(follows=True)
    assert not demand.is_due(follows=False)


def test_any_changes_leave_the_copy_as_the_table_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = new_seed()
    print(f"seed {seed}")
    draw = np.random.default_rng(seed)
    table_rows = 3_000
    with Session(store, "db") as session, Session(store, "db") as plain:
        last_result(session, "CREATE TABLE t (k INT, g INT, v BIGINT, s VARCHAR(20)) UNIQUE KEY(k)")
        last_result(plain, "SET enable_column_copies = false")
        table = store.table("db.t")
        table.upsert(rows_of(np.arange(table_rows), 0))
        versions = [table.version]

        def change(number: int) -> None:
            keys = draw.choice(table_rows + 100, int(draw.integers(1, 150)), replace=False)
            kind = draw.integers(0, 9)
            if kind < 4:
                table.upsert(rows_of(keys, number))
            elif kind < 6:
                table.delete(pa.table({"k": keys}))
            elif kind == 6:
                table.upsert(rows_of(keys, number).select(["k", "v"]), mode=UpdateMode.FIXED)
            elif kind == 7:
                table.optimize()
            else:
                last_result(session, f"RESTORE TABLE t TO VERSION AS OF {draw.choice(versions[-4:])}")
            versions.append(table.version)

        with copied_at_once(monkeypatch) as counts:
            for number in range(by_form(25, 300)):
                change(number)
                for query in (_QUERY, "SELECT k, v, s FROM t WHERE v + 0 > 7 ORDER BY k"):
                    assert last_result(session, query).rows == last_result(plain, query).rows, number
    assert counts[0] > counts[1], "most queries have read the copy"


def test_queries_of_each_version_read_its_rows_while_the_copy_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers name the version, and a row holds it. A copy that changes too soon or late has another row."""
    monkeypatch.setattr(copy_demand, "SHARE_MIN", 0.0)
    monkeypatch.setattr(copy_demand, "SHARE_MAX", 0.0)
    monkeypatch.setattr(copy_demand, "READS_MIN", 1)
    with Session(store, "db") as session:
        last_result(session, "CREATE TABLE t (k INT, v BIGINT) UNIQUE KEY(k)")
    table = store.table("db.t")
    table.upsert(pa.table({"k": np.arange(2_000), "v": np.zeros(2_000, np.int64)}))
    wrong: list[object] = []
    ending = threading.Event()
    changed = [0]
    follow = ColumnCopies._changed_to

    def counted(self: ColumnCopies, *given: Any) -> bool:
        has_changed = follow(self, *given)
        changed[0] += has_changed
        return has_changed

    monkeypatch.setattr(ColumnCopies, "_changed_to", counted)

    def read() -> None:
        with Session(store, "db") as session:
            while not ending.is_set():
                version = table.version
                sql = f"SELECT max(v), count(v) FROM t FOR VERSION AS OF {version} WHERE k + 0 >= 0"
                found = last_result(session, sql).rows
                assert found is not None
                expected = version if version > 2 else 0
                if tuple(found.to_pylist()[0].values()) != (expected, 2_000):
                    wrong.append((version, found.to_pylist()))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        wanted = by_form(60, 600)
        for number in range(50 * wanted):
            version = table.version + 1
            table.upsert(pa.table({"k": [number % 2_000], "v": [version]}))
            if number >= wanted and changed[0]:  # the copy is made late on a slow machine
                break
    finally:
        ending.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert changed[0] > 0
