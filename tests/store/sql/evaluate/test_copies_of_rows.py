"""`ColumnCopies` by itself, on rows that a test makes: limits, failures and what comes after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from seqstore.store.read.numbered_scan import HeldRows, RowChanges
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.table_state import StateIdentity
from seqstore.store.runtime import memory_limit
from seqstore.store.sql.evaluate import column_copies, copy_demand
from seqstore.store.sql.evaluate.column_copies import ColumnCopies, Read
from seqstore.store.sql.evaluate.copy_changes import RowsToCopy

_ROWS = 1_000


@dataclass(frozen=True)
class Version:
    """A version of a table without a store; as far as copies need it, a snapshot."""

    table: str
    version: int = 1

    @property
    def identity(self) -> StateIdentity:
        return StateIdentity(self.table, (self.version, 1, (("file", _ROWS),)))

    def held(self) -> Version:
        return self


@dataclass
class Copies:
    """Copies in a database of their own.

    Attributes:
        opened: the tables whose rows were asked for.
        failing: opening rows fails so often from now on.
    """

    connection: duckdb.DuckDBPyConnection
    held: ColumnCopies
    batch: pa.RecordBatch
    opened: list[str] = field(default_factory=list)
    failing: int = 0

    def _open(self, snapshot: Snapshot, columns: Sequence[str], held: HeldRows) -> RowsToCopy:
        self.opened.append(str(snapshot.identity.table))
        if self.failing:
            self.failing -= 1
            raise OSError("planted")
        return self.rows(1)

    def rows(self, batches: int) -> RowsToCopy:
        added = pa.RecordBatchReader.from_batches(self.batch.schema, [self.batch] * batches)
        return RowsToCopy(added, RowChanges([], np.empty(0, np.uint64), [], HeldRows(), _ROWS * batches))

    def read(self, table: str, version: int = 1, seconds: float = 1.0) -> bool:
        """Notes a query; returns whether there is a copy for the next one."""
        snapshot = cast(Snapshot, Version(table, version))
        self.held.note([Read(snapshot, ("v",))], seconds, self._open)
        assert self.held.wait(60)
        return self.held.has(snapshot, ("v",))

    def databases(self) -> int:
        """The number of copies that DuckDB has."""
        found = self.connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()
        return sum(name.startswith(column_copies.DATABASE) for (name,) in found)

    def find(self, table: str) -> Any:
        return self.held.find(cast(Snapshot, Version(table)), ("v",))


@pytest.fixture
def copies() -> Iterator[Copies]:
    batch = pa.record_batch({"v": pa.array([7] * _ROWS, pa.int64())})
    with duckdb.connect(":memory:") as connection:
        made = Copies(connection, ColumnCopies(connection, 64 << 20), batch)
        yield made
        made.held.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first query of a version has a copy made."""
    monkeypatch.setattr(copy_demand, "READS_MIN", 1)


def test_three_queries_that_took_their_share_have_a_copy_made(copies: Copies) -> None:
    assert [copies.read("t") for _ in range(3)] == [False, False, True]
    assert not any(copies.read("u", seconds=0.0001) for _ in range(20)), "they took less than the share"
    assert any(copies.read("u", seconds=0.001) for _ in range(20))


def test_a_copy_that_failed_is_tried_again_after_a_rest(copies: Copies) -> None:
    copies.failing = 1
    assert not any(copies.read("t") for _ in range(9))
    assert copies.opened == ["t"]
    demand = copies.held._demands["t"]
    assert demand.share == 2 * copy_demand.SHARE_MIN
    demand.rests_until = demand.reads = demand.seconds = 0
    assert [copies.read("t") for _ in range(3)] == [False, False, True]
    assert copies.databases() == 1


def test_a_rest_forgets_the_queries_before_it(copies: Copies) -> None:
    copies.failing = 1
    for _ in range(3):
        copies.read("t")
    demand = copies.held._demands["t"]
    assert (demand.reads, demand.seconds) == (0, 0.0)


@pytest.mark.usefixtures("at_once")
def test_notes_are_kept_of_so_many_tables(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_copies, "_TABLES_MAX", 2)
    for table in ("a", "b", "a", "c"):
        copies.read(table, seconds=0.0)
    assert list(copies.held._demands) == ["a", "c"], "the one that was not read for longest is forgotten"


@pytest.mark.usefixtures("at_once")
def test_there_are_so_many_copies(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_copies, "_COPIES_MAX", 2)
    assert [copies.read(table) for table in "abc"] == [True, True, False]
    monkeypatch.setattr(column_copies, "_IDLE_SECONDS", -1.0)
    copies.held.release(copies.find("a"))
    assert copies.read("d")
    assert [copies.held.has(cast(Snapshot, Version(table)), ("v",)) for table in "abd"] == [True, False, True]
    assert copies.databases() == 2


@pytest.mark.usefixtures("at_once")
def test_copies_are_compressed(copies: Copies) -> None:
    copies.batch = pa.record_batch({"v": pa.array([7] * 2_000_000, pa.int64())})
    assert copies.read("t")
    count, used = copies.held.sizes()
    assert count == 1
    assert used < copies.batch.nbytes / 10


@pytest.mark.usefixtures("at_once")
def test_rows_are_copied_in_steps(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_copies, "_BYTES_A_STEP", copies.batch.nbytes)
    monkeypatch.setattr(copies, "_open", lambda *_: copies.rows(5))
    assert copies.read("t")
    use = copies.find("t")
    found = copies.connection.execute(f"SELECT count(*), sum(v) FROM {use.copy.table}")
    assert found.fetchall() == [(5 * _ROWS, 35 * _ROWS)]
    copies.held.release(use)


@pytest.mark.usefixtures("at_once")
def test_without_a_thread_later_queries_try_again(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("planted: no thread")

    with monkeypatch.context() as patched:
        patched.setattr(memory_limit, "start_thread", fail)
        assert not copies.read("t")
    copies.held._demands["t"].rests_until = 0.0
    assert copies.read("t")


@pytest.mark.usefixtures("at_once")
def test_a_shortage_counts_queries_that_have_ended(copies: Copies) -> None:
    assert copies.read("t")
    use = copies.find("t")
    with copies.held._lock:
        copies.held.release(use)
    copies.held.relieve()
    assert copies.databases() == 0


@pytest.mark.usefixtures("at_once")
def test_the_thread_ends_with_the_last_copy(copies: Copies) -> None:
    assert copies.read("t")
    thread = copies.held._thread
    assert thread is not None
    copies.held.relieve()
    thread.join(60)
    assert not thread.is_alive()
    assert copies.held._thread is None
    copies.held._paused_until = 0.0
    assert copies.read("t", version=2)


@pytest.mark.usefixtures("at_once")
def test_an_older_version_takes_no_place(copies: Copies) -> None:
    assert copies.read("t", version=5)
    assert not copies.read("t", version=4)
    assert copies.held.has(cast(Snapshot, Version("t", 5)), ("v",))
    assert copies.opened == ["t"]
