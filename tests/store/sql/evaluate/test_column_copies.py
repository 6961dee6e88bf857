"""Copies of columns: what they hold, when queries read them, and when they end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from seqstore import CorruptionError, InvalidInputError, Settings, Store, StoreError, UnavailableError
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.runtime import memory_limit
from seqstore.store.sql import Session
from seqstore.store.sql.evaluate import column_copies, connections, copy_demand, duck, select
from seqstore.store.sql.evaluate.column_copies import ColumnCopies, Copy, Use
from tests.seeds import new_seed
from tests.support.children import MODULES
from tests.support.copied import copied_at_once, copies, databases, settled
from tests.support.statements import last_result
from tests.support.waiting import until

Run = Callable[[str], list[tuple[Any, ...]]]
_ROWS = 30_000
_QUERY = "SELECT g, sum(v), count(*) FROM t GROUP BY g ORDER BY g"
EVERY_TYPE: dict[str, list[Any]] = {
    "BOOLEAN": ["TRUE", "FALSE", "NULL"],
    "TINYINT": [-128, 127, "NULL"],
    "SMALLINT": [-32768, 32767, "NULL"],
    "INT": [-(2**31), 2**31 - 1, "NULL"],
    "BIGINT": [-(2**63), 2**63 - 1, "NULL"],
    "LARGEINT": [-(2**127), 2**127 - 1, 10**38, "NULL"],
    "FLOAT": ["'-inf'", -0.5, 0.1, "NULL"],
    "DOUBLE": [1e300, 0.1, "'nan'", "'-0.0'", "NULL"],
    "DATE": ["'0001-01-01'", "'9999-12-31'", "NULL"],
    "DATETIME": ["'0001-01-01 00:00:00'", "'2024-02-29 23:59:59'", "NULL"],
    "DATETIME(6)": ["'2024-02-29 23:59:59.999999'", "'9999-12-31 23:59:59.999999'", "NULL"],
    "DECIMAL(9,2)": ["-1234567.89", "0.01", "NULL"],
    "DECIMAL(38,10)": ["1234567890123456789012345678.0123456789", "0", "NULL"],
    "CHAR(3)": ["'a'", "'é'", "NULL"],
    "VARCHAR(200)": ["'xyz'", "''", "'a\\0b'", "NULL"],
    "STRING": ["'日本'", "' '", "NULL"],
    "JSON": ["'{\"a\": 1}'", "'[]'", "NULL"],
    "ARRAY<INT>": ["[1, NULL]", "[]", "NULL"],
    "MAP<STRING,BIGINT>": ["map('a', 1)", "map()", "NULL"],
    "STRUCT<a:INT,b:STRING>": ["named_struct('a', 1, 'b', 'x')", "NULL"],
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that DuckDB is asked."""
    texts: list[str] = []
    original = duck.run

    def noted(connection: Any, sql: str, *given: Any, **named: Any) -> Any:
        texts.append(sql)
        return original(connection, sql, *given, **named)

    monkeypatch.setattr(duck, "run", noted)
    return texts


def fill(store: Store, run: Run, name: str = "t", rows: int = _ROWS) -> None:
    run(f"CREATE TABLE {name} (k INT, g INT, v BIGINT, s VARCHAR(20)) UNIQUE KEY(k)")
    keys = np.arange(rows)
    texts = pa.array([f"text {key}" for key in keys])
    store.table(f"db.{name}").upsert(pa.table({"k": keys, "g": keys % 3, "v": keys, "s": texts}))


def fill_and_copy(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the table `t` and a copy of its columns `g` and `v`."""
    fill(store, run)
    with copied_at_once(monkeypatch):
        run(_QUERY)


def held_copy(store: Store) -> Use:
    """The copy of `fill_and_copy`, as a query that reads it holds it."""
    with store.snapshot("db.t") as snapshot:
        use = copies().find(snapshot, ["g", "v"])
    assert use is not None
    return use


def reads_copy(sql: str) -> bool:
    return column_copies.TABLE in sql


def test_the_third_query_of_a_version_has_a_copy_made(store: Store, run: Run, asked: list[str]) -> None:
    fill(store, run)
    first = run(_QUERY)
    for _ in range(20):
        assert run(_QUERY) == first
        settled()
    assert not any(map(reads_copy, asked[:3]))
    assert reads_copy(asked[-1])


@pytest.mark.parametrize("change", [
    "INSERT INTO t VALUES (0, 1, 5000, 'late')",
    "DELETE FROM t WHERE k = 7",
    "UPDATE t SET v = v + 1 WHERE k = 8",
    "TRUNCATE TABLE t",
    "ALTER TABLE t ADD COLUMN n INT DEFAULT '4'",
    "ALTER TABLE t RENAME COLUMN s z",
])  # fmt: skip
def test_a_change_is_seen_at_once(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    fill(store, run)
    with copied_at_once(monkeypatch) as counts:
        run(_QUERY)
        run("SELECT * FROM t ORDER BY k")
        assert counts == [2, 0]
        run(change)
        copied = run(_QUERY), run("SELECT * FROM t WHERE v >= 0 ORDER BY k")
    run("SET enable_column_copies = false")
    assert copied == (run(_QUERY), run("SELECT * FROM t WHERE v >= 0 ORDER BY k"))


def test_deleted_and_replaced_rows_are_not_copied(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, run)
    run("DELETE FROM t WHERE k < 100")
    store.table("db.t").upsert(pa.table({"k": [200], "g": [9], "v": [1], "s": ["new"]}))
    with copied_at_once(monkeypatch) as counts:
        assert run("SELECT count(k), min(k), sum(g = 9) FROM t WHERE v >= 0 AND s <> ''") == [
            (_ROWS - 100, 100, 1)
        ]
        assert counts == [1, 0]
        run("SET skip_delete_sign = true")
        assert run("SELECT count(s) FROM t WHERE k < 100 AND g >= 0 AND v + 0 >= 0") == [(100,)]


def test_a_query_of_another_schema_ends_the_copy(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_and_copy(store, run, monkeypatch)
    [before] = databases()
    run("ALTER TABLE t ADD COLUMN n INT")
    with copied_at_once(monkeypatch) as counts:
        run(_QUERY)
    assert counts == [1, 0]
    assert before not in databases()


def test_an_older_version_is_read_without_the_copy_of_a_newer_one(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, run)
    old = store.table("db.t").version
    run("DELETE FROM t WHERE g = 0")
    with copied_at_once(monkeypatch) as counts:
        assert len(run(_QUERY)) == 2
        assert len(run(_QUERY.replace("FROM t", f"FROM t FOR VERSION AS OF {old}"))) == 3
        assert len(run(_QUERY)) == 2
    assert counts == [2, 1]


def test_a_transaction_sees_its_own_rows(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_and_copy(store, run, monkeypatch)
    with copied_at_once(monkeypatch):
        run("BEGIN")
        run("INSERT INTO t VALUES (-1, 9, 0, 'x')")
        assert len(run(_QUERY)) == 4
        run("ROLLBACK")
        assert len(run(_QUERY)) == 3


def test_rows_of_a_transaction_neither_end_a_copy_nor_are_copied(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, run)
    with copied_at_once(monkeypatch) as counts, Session(store, "db") as other:
        run(_QUERY)
        before = databases()
        last_result(other, "BEGIN")
        last_result(other, "INSERT INTO t VALUES (-1, 9, 0, 'x')")
        for _ in range(3):
            found = last_result(other, _QUERY).rows
            assert found is not None
            assert found.num_rows == 4
            assert len(run(_QUERY)) == 3
        last_result(other, "ROLLBACK")
    assert counts == [4, 0]
    assert databases() == before


@pytest.mark.family(8)
@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_every_type_is_copied_as_it_is(run: Run, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    values = EVERY_TYPE[kind]
    run(f"CREATE TABLE t (k INT, v {kind}) UNIQUE KEY(k)")
    run(f"INSERT INTO t VALUES {', '.join(f'({k}, {v})' for k, v in enumerate(values * 3))}")
    queries = [f"SELECT v, k FROM t WHERE k + 0 >= 0 ORDER BY {order}" for order in ("k", "k DESC")]
    queries += ["SELECT count(v), count(*) FROM t WHERE k + 0 > 1 OR v IS NULL"]
    plain = [repr(run(sql)) for sql in queries]
    with copied_at_once(monkeypatch) as counts:
        assert [repr(run(sql)) for sql in queries] == plain
    assert counts == [3, 0]


def test_hidden_columns_are_copied(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, run)
    sql = "SELECT max(__DORIS_VERSION_COL__), sum(k) FROM t WHERE g + 0 = 1"
    plain = run(sql)
    with copied_at_once(monkeypatch) as counts:
        assert run(sql) == plain
    assert counts == [1, 0]


@pytest.mark.parametrize("sql", [
    "SELECT * FROM t a JOIN u b ON a.k = b.k WHERE a.g = 1 ORDER BY a.k",
    "SELECT * FROM t NATURAL JOIN u ORDER BY k",
    "SELECT k, u.s FROM t JOIN u USING (k, g) ORDER BY k",
    "SELECT x.g, sum(y.v) FROM t x, t y WHERE x.k = y.v GROUP BY x.g ORDER BY 1",
    "SELECT g, (SELECT max(u.v) FROM u WHERE u.g = t.g) FROM t WHERE k IN (SELECT v FROM u) ORDER BY k",
    "WITH q AS (SELECT g, v FROM t WHERE s LIKE '%9') SELECT q.*, u.k FROM q JOIN u ON q.v=u.k ORDER BY q.v",
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v > 50) ORDER BY k",
    "SELECT count(*) FROM t, u WHERE t.g = 2",
    "SELECT v, s FROM t ORDER BY v DESC LIMIT 5 OFFSET 3",
    "SELECT k FROM t WHERE g = 1 UNION SELECT v FROM u WHERE g = 2 ORDER BY 1",
])  # fmt: skip
def test_queries_of_several_tables(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    fill(store, run, rows=300)
    fill(store, run, "u", rows=90)
    plain = run(sql)
    with copied_at_once(monkeypatch) as counts:
        assert run(sql) == plain
    assert counts[0] > 0


def test_a_copy_beside_a_table_that_is_read_in_place(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    fill(store, run)
    fill(store, run, "u", rows=50)
    sql = "SELECT u.s, t.v FROM t JOIN u ON t.k = u.k WHERE t.g + 0 >= 0 ORDER BY u.k"
    plain = run(sql)
    with copied_at_once(monkeypatch):
        run("SELECT sum(k), sum(v), sum(g) FROM t WHERE v + 0 >= 0")
    assert run(sql) == plain
    assert reads_copy(asked[-1])
    assert "__source_1" in asked[-1]


def test_a_copy_beside_a_table_whose_condition_its_scan_decides(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    """The condition leaves the statement, and names a column that the copied table has, too."""
    fill(store, run)
    fill(store, run, "u", rows=300)
    sql = f"SELECT s, (SELECT count(*) FROM u) AS c FROM t WHERE v > {_ROWS - 3} ORDER BY s"
    plain = run(sql)
    with copied_at_once(monkeypatch):
        run("SELECT sum(v) FROM u WHERE v + 0 >= 0")
    assert run(sql) == plain
    assert reads_copy(asked[-1])
    assert "__source_0" in asked[-1]


def test_a_column_with_the_name_of_a_mark(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("CREATE TABLE t (k INT, __LIVE__ BOOLEAN, live BOOLEAN) UNIQUE KEY(k)")
    run("INSERT INTO t VALUES (1, TRUE, FALSE), (2, FALSE, TRUE), (3, NULL, NULL), (4, TRUE, TRUE)")
    run("DELETE FROM t WHERE k = 4")
    sql = "SELECT k, __LIVE__, live FROM t WHERE k + 0 > 0 ORDER BY k"
    expected = [(1, True, False), (2, False, True), (3, None, None)]
    assert run(sql) == expected
    with copied_at_once(monkeypatch) as counts:
        assert run(sql) == expected
    assert counts == [1, 0]


def test_explain_tells_of_the_copy(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, run)
    line = ("  read from a copy of these columns",)
    with copied_at_once(monkeypatch):
        run(_QUERY)
    assert line in run(f"EXPLAIN {_QUERY}")
    assert line not in run("EXPLAIN SELECT s, sum(v) FROM t GROUP BY s")
    run("SET enable_column_copies = false")
    assert line not in run(f"EXPLAIN {_QUERY}")
    run("SET enable_column_copies = true")
    with store.snapshot("db.t") as snapshot:
        ids = ", ".join(map(str, snapshot.tablet_ids()))
    assert line not in run("EXPLAIN " + _QUERY.replace("FROM t", f"FROM t TABLET({ids})"))


def test_an_error_names_the_column_and_not_the_copy(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, run)
    errors = []
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="nope") as raised:
            run("SELECT sum(t.nope), sum(v) FROM t WHERE k + 0 > 1")
        errors.append(str(raised.value))
        with copied_at_once(monkeypatch):
            run(_QUERY)
    assert errors[0] == errors[1]


def test_users_cannot_name_a_copy(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_and_copy(store, run, monkeypatch)
    [database] = databases()
    for name in (f"{database}.main.{column_copies.TABLE}", f"{database}.{column_copies.TABLE}"):
        with pytest.raises(StoreError, match=r"no catalog|does not exist|no database|Unknown database"):
            run(f"SELECT * FROM {name}")


def test_a_session_without_copies_neither_reads_nor_asks_for_one(
    store: Store, run: Run, asked: list[str]
) -> None:
    fill(store, run)
    run("SET enable_column_copies = false")
    for _ in range(20):
        run(_QUERY)
        settled()
    assert not any(map(reads_copy, asked))
    assert databases() == []


def test_queries_with_memory_of_their_own_have_no_copies(store: Store, run: Run, asked: list[str]) -> None:
    fill(store, run)
    run(f"SET exec_mem_limit = {256 << 20}")
    for _ in range(20):
        run(_QUERY)
        settled()
    assert not any(map(reads_copy, asked))


def test_a_copy_without_room_is_not_made(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, run)
    monkeypatch.setattr(copies(), "bytes_max", 1)
    with copied_at_once(monkeypatch) as counts:
        run(_QUERY)
    assert counts == [0, 1]
    assert databases() == []


def test_a_copy_that_is_not_used_makes_room(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("t", "u"):
        fill(store, run, name)
    of_u = _QUERY.replace("FROM t", "FROM u")
    with copied_at_once(monkeypatch) as counts:
        run(_QUERY)
        monkeypatch.setattr(copies(), "bytes_max", settled().sizes()[1])
        run(of_u)
        assert counts == [1, 1], "a copy that was just used stays"
        monkeypatch.setattr(column_copies, "_IDLE_SECONDS", -1.0)
        monkeypatch.setattr(copy_demand, "REST_SECONDS", -1.0)
        run("INSERT INTO u VALUES (-1, 0, 0, 'x')")
        run(of_u)
    assert counts == [2, 1]
    assert copies().sizes()[0] == 1


def test_a_shortage_of_memory_ends_copies_and_their_readers_go_on(
    store: Store, session: Session, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, run)
    sql = "SELECT k, s FROM t WHERE v + 0 >= 0"
    with copied_at_once(monkeypatch) as counts:
        run(sql)
        [result] = session.execute(sql)
        assert result.rows is not None
        memory_limit.release()
        assert databases() == []
        assert counts == [2, 0]
        assert run("SELECT count(s) FROM t WHERE v + 0 >= 0") == [(_ROWS,)]
    assert counts == [2, 1], "no copy is made for a while"
    copies()._paused_until = 0.0


def test_a_copy_that_is_not_used_ends_by_itself(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_and_copy(store, run, monkeypatch)
    assert len(databases()) == 1
    monkeypatch.setattr(column_copies, "_UNUSED_SECONDS", 0.05)
    with copies()._changed:
        copies()._changed.notify_all()
    until(lambda: not databases())
    until(lambda: copies()._thread is None)


def test_a_reader_keeps_a_copy_that_ends(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_and_copy(store, run, monkeypatch)
    held, use = copies(), held_copy(store)
    held.relieve()
    assert databases() == [use.copy.database]
    held.release(use)
    settled()
    assert databases() == []


def test_a_query_ends_in_a_thread_that_is_at_the_copies(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may end a suspended query at any point."""
    fill_and_copy(store, run, monkeypatch)
    held, use = copies(), held_copy(store)
    with held._lock:
        held._drop(list(held._copies))
        held.release(use)
    settled()
    until(lambda: not databases())


def test_a_database_that_cannot_end_is_tried_again(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_and_copy(store, run, monkeypatch)
    held, kept = copies(), copies()._connection

    class Short:
        """A connection without memory for a cursor."""

        def cursor(self) -> None:
            raise MemoryError("planted")

    monkeypatch.setattr(column_copies, "_RETRY_SECONDS", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(held, "_connection", Short())
        held.relieve()
        assert held.sizes() == (0, 0)
        assert not held.wait(0.05)
    assert held._connection is kept
    settled()
    assert databases() == []


def test_copies_of_a_database_that_has_ended_are_forgotten(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_and_copy(store, run, monkeypatch)
    ended = copies()
    text = "SELECT to_json(c)::VARCHAR FROM s"
    schema = pa.schema([("c", pa.struct([("at", pa.timestamp("s"))]))])
    beyond = pa.record_batch([pa.array([{"at": 10**18}], schema.field(0).type)], schema=schema)
    source = duck.Source(schema, lambda: pa.RecordBatchReader.from_batches(schema, [beyond]))
    if duckdb.__version__ < "2":
        pytest.skip("DuckDB 1 reads this value without an error")
    with pytest.raises(StoreError, match="cannot be evaluated"):
        duck.run(connections.connect(), text, {"s": source}, has_largeint=False, zone="UTC")
    until(lambda: ended._thread is None)
    assert copies() is not ended
    with copied_at_once(monkeypatch) as counts:
        assert len(run(_QUERY)) == 3
    assert counts == [1, 0]


def test_a_forked_process_leaves_the_copies_of_its_parent(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_and_copy(store, run, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(copies(), "_pid", 0)
        memory_limit.release()
    assert len(databases()) == 1


def test_a_copy_that_fails_leaves_nothing(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, run)

    def fail(*_: object) -> bool:
        raise MemoryError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(ColumnCopies, "_has_room", fail)
        with copied_at_once(patched) as counts:
            assert len(run(_QUERY)) == 3
    assert counts == [0, 1]
    assert databases() == []
    assert settled().sizes() == (0, 0)


def test_rows_that_cannot_be_copied_fail_no_query(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, run)

    def fail(*_: object) -> None:
        raise CorruptionError("planted")

    monkeypatch.setattr(select, "_rows_to_copy", fail)
    with copied_at_once(monkeypatch) as counts:
        assert len(run(_QUERY)) == 3
    assert counts == [0, 1]


def test_a_query_without_memory_ends_copies(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_and_copy(store, run, monkeypatch)

    def fail(*_: object, **__: object) -> None:
        raise duckdb.OutOfMemoryException("planted")

    with monkeypatch.context() as patched:
        patched.setattr(duck, "_registered", fail)
        with pytest.raises(UnavailableError, match="more memory than its limit"):
            run("SELECT a.g, b.v FROM t a JOIN t b ON a.k = b.v WHERE a.v + 0 >= 0")
    assert databases() == []


def test_versions_that_differ_have_other_identities(store: Store, run: Run) -> None:
    """Those of tablets and of other schemas, too."""
    fill(store, run)
    seen = []
    with store.snapshot("db.t") as snapshot:
        seen.append(snapshot.identity)
        with store.snapshot("db.t") as again:
            assert again.identity == snapshot.identity
        assert isinstance(snapshot, Snapshot)
    for change in (
        "INSERT INTO t VALUES (0, 1, 1, 'x')",
        "DELETE FROM t WHERE k = 1",
        "ALTER TABLE t ADD COLUMN n INT",
    ):
        run(change)
        with store.snapshot("db.t") as snapshot:
            seen.append(snapshot.identity)
    fill(store, run, "u")
    with store.snapshot("db.u") as snapshot:
        seen.append(snapshot.identity)
    assert len(set(seen)) == 5


def test_a_table_whose_copies_are_hardly_used_is_copied_later(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, run)
    with store.snapshot("db.t") as snapshot:
        table = snapshot.identity.table
    shares = []
    for number in range(4):
        for _ in range(200):
            run(_QUERY)
            if settled().sizes()[0]:
                break
        with copies()._lock:
            shares.append(copies()._demands[table].share)
            for copy in copies()._copies.values():
                copy.seconds, copy.read_seconds = 1.0, 0.0
        run(f"INSERT INTO t VALUES ({-1 - number}, 0, 0, 'x')")
    assert shares == [0.25, 0.5, 1.0, 2.0]


def test_the_copy_of_a_table_that_changes_meanwhile_follows_it(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads that come faster than a copy is made, and queries of each version, do not keep it away."""
    fill(store, run)
    begun, ending = threading.Event(), threading.Event()
    filled, made = ColumnCopies._filled, []

    def slow(self: ColumnCopies, copy: Copy, *given: Any) -> bool:
        made.append(copy.identity)
        begun.set()
        assert ending.wait(60)
        return filled(self, copy, *given)

    monkeypatch.setattr(ColumnCopies, "_filled", slow)
    while not begun.is_set():
        run(_QUERY)
    for number in range(3):
        run(f"INSERT INTO t VALUES ({-1 - number}, 0, 0, 'x')")
        for _ in range(5):
            run(_QUERY)
    ending.set()
    settled()
    assert len(made) == len(databases()) == 1
    with store.snapshot("db.t") as snapshot, copies()._lock:
        assert copies()._demands[snapshot.identity.table].share == 0.25, "the copy has not been there yet"
    found = run(_QUERY)
    assert sum(rows for _, _, rows in found) == _ROWS + 3
    with store.snapshot("db.t") as snapshot:
        until(lambda: run(_QUERY) == found and copies().has(snapshot, ["g", "v"]))
    assert run(_QUERY) == found
    assert len(made) == 1, "no other copy was made"


def test_tablets_of_a_version_are_not_copied(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, run)
    with store.snapshot("db.t") as snapshot:
        ids = ", ".join(map(str, snapshot.tablet_ids()))
    sql = _QUERY.replace("FROM t", f"FROM t TABLET({ids})")
    plain = run(sql)
    with copied_at_once(monkeypatch) as counts:
        assert run(sql) == plain
        assert counts == [0, 0]
        assert run(_QUERY) == plain
    assert counts == [1, 0]


_ENDS = """
import sys, threading
import numpy as np, pyarrow as pa
from seqstore import Store
from seqstore.store.sql import Session
from seqstore.store.sql.evaluate import column_copies, copy_demand
copy_demand.READS_MIN, copy_demand.SHARE_MIN = 1, 0.0
column_copies._BYTES_A_STEP = 1
begun = threading.Event()
filled = column_copies.ColumnCopies._filled
def noted(self, *given):
    begun.set()
    return filled(self, *given)
column_copies.ColumnCopies._filled = noted
store = Store.open(sys.argv[1])
store.create_database("db")
with Session(store, "db") as session:
    list(session.execute("CREATE TABLE t (k BIGINT, v BIGINT) UNIQUE KEY(k)"))
    keys = np.arange(3_000_000)
    store.table("db.t").upsert(pa.table({"k": keys, "v": keys}))
    list(session.execute("SELECT sum(v + 1) FROM t WHERE k + 0 >= 0"))
    assert begun.wait(60)
print("done", flush=True)
"""


def test_a_process_ends_while_a_copy_is_made(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS, str(tmp_path / "s")],
        env={"PYTHONPATH": MODULES, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("settings", [Settings(auto_compaction=0), Settings()], ids=["plain", "compacted"])
def test_readers_and_writers_of_copied_tables_agree_with_a_model(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are moved between groups: their number and sum stay, whatever a reader sees."""
    seed = new_seed()
    print(f"seed {seed}")
    draw = np.random.default_rng(seed)
    with Session(store, "db") as session:
        last_result(session, "CREATE TABLE t (k INT, g INT, v BIGINT) UNIQUE KEY(k)")
    table, rows = store.table("db.t"), 5_000
    model = {key: (key % 7, key) for key in range(rows)}
    table.upsert(pa.table({"k": list(model), "g": [g for g, _ in model.values()], "v": list(model)}))
    wrong: list[object] = []
    ending = threading.Event()

    def read() -> None:
        with Session(store, "db") as session:
            while not ending.is_set():
                found = last_result(
                    session, "SELECT count(g), sum(v), sum(g - g) FROM t WHERE v + 0 >= 0"
                ).rows
                assert found is not None
                if tuple(found.to_pylist()[0].values()) != (rows, rows * (rows - 1) // 2, 0):
                    wrong.append(found.to_pylist())

    monkeypatch.setattr(copy_demand, "READS_MIN", 1)
    monkeypatch.setattr(copy_demand, "SHARE_MIN", 0.0)
    monkeypatch.setattr(copy_demand, "SHARE_MAX", 0.0)
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(30):
            keys = draw.choice(rows, 50, replace=False)
            groups = draw.integers(0, 7, 50)
            table.upsert(pa.table({"k": keys, "g": groups, "v": keys}))
            model.update((int(k), (int(g), int(k))) for k, g in zip(keys, groups, strict=True))
    finally:
        ending.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    with Session(store, "db") as session, copied_at_once(monkeypatch) as counts:
        for _ in range(2):  # a copy that has fallen behind too far ends first
            found = last_result(
                session, "SELECT g, count(*) AS n, sum(v) AS v FROM t GROUP BY g ORDER BY g"
            ).rows
    assert found is not None
    expected: dict[int, list[int]] = {}
    for group, value in model.values():
        total = expected.setdefault(group, [0, 0])
        total[0] += 1
        total[1] += value
    assert {row["g"]: [row["n"], row["v"]] for row in found.to_pylist()} == expected
    assert counts[0] >= 1
