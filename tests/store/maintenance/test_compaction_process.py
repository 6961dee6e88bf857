"""The process that compacts for others: who starts it, what it does, and what its end leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from seqstore import Column, Settings, Store, Table, TableSchema, parse_type
from seqstore.store.maintenance.compaction_process import AFTER_LOAD, MAINTAIN, CompactionProcess
from seqstore.store.maintenance.scheduler import Maintainer
from tests.support.children import MODULES
from tests.support.waiting import until

pytestmark = [pytest.mark.maintenance, pytest.mark.settings(compaction_process=True, segment_rows=1000)]

STARTER = """
import sys, time
from pathlib import Path
from seqstore import Settings, Store
store = Store.open(Path(sys.argv[1]), settings=Settings(compaction_process=True))
while not store.maintainer._process.ask("maintain", "db.t"):
    time.sleep(0.05)
print("listens", flush=True)
sys.stdin.readline()
"""


def make(store: Store) -> Table:
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    return store.create_table("db.t", TableSchema.create(columns, ["k"]))


def load(table: Table, loads: int, first: int = 0) -> None:
    for number in range(first, first + loads):
        table.upsert(pa.table({"k": list(range(number * 10, number * 10 + 20)), "v": [number] * 20}))


def process_of(store: Store) -> CompactionProcess:
    process = store.maintainer._process
    assert process is not None
    return process


def compactors() -> list[psutil.Process]:
    """Those that this process has started and that run."""
    found = psutil.Process().children()
    alive = [each for each in found if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in alive if "seqstore.store.compactor" in each.cmdline()]


def listening(store: Store) -> psutil.Process:
    """Threads of a process that was killed may receive a little longer than it is shown."""
    until(lambda: process_of(store).ask(MAINTAIN, "db.none") and bool(compactors()), 600)
    return compactors()[0]


def test_the_process_compacts_what_this_one_loads(store: Store) -> None:
    table = make(store)
    process = listening(store)
    load(table, 40)
    until(lambda: len(table.state().segments) <= 15, 600)
    assert store.maintainer.compactions == 0, "none in a thread of this process"
    assert "OPTIMIZE" in {line.operation for line in table.history()}
    assert process.nice() >= psutil.Process().nice() + 5 or process.nice() == 19
    assert table.count() == 410
    assert table.check() == []


def test_maintain_asks_the_process(store: Store) -> None:
    table = make(store)
    listening(store)
    load(table, 3)
    table.delete({"k": [1]})
    assert store.maintain() == {}
    assert table.check() == []


def test_without_a_process_threads_compact(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", fails)
    table = make(store)
    load(table, 40)
    store.maintainer.wait()
    assert store.maintainer.compactions
    assert len(table.state().segments) <= 15


def test_without_a_process_maintain_works_here(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It left each table to the process that could not be started."""

    def fails(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", fails)
    table = make(store)
    table.upsert(pa.table({"k": [1], "v": [1]}))
    assert store.maintain() == {"db.t": 0}


def test_a_killed_process_loses_nothing_and_is_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqstore.store.maintenance.compaction_process._START_EVERY_SECONDS", 0.0)
    table = make(store)
    process = listening(store)
    load(table, 30)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.status() == psutil.STATUS_ZOMBIE, 600)
    load(table, 5, 30)
    assert table.count() == 360
    other = listening(store)
    assert other.pid != process.pid
    table.vacuum(retention_seconds=0)
    assert table.check() == []


def test_a_process_that_ended_is_replaced_after_a_while_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then threads compact; a process that cannot run would be started for each load."""
    monkeypatch.setattr("seqstore.store.maintenance.compaction_process._START_EVERY_SECONDS", 3600.0)
    make(store)
    process = listening(store)
    process.kill()
    until(lambda: not process_of(store).ask(AFTER_LOAD, "db.t"), 600)
    for _ in range(3):
        assert not process_of(store).ask(AFTER_LOAD, "db.t")
    assert compactors() == []


def test_the_process_ends_with_the_handle_and_leaves_no_socket(store: Store) -> None:
    make(store)
    process = listening(store)
    place = store.path / "locks" / "compactor"
    assert place.exists()
    store.close()
    assert not process.is_running()
    assert not place.exists()


def test_the_process_ends_after_a_kill_of_who_started_it(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Store.open(path) as store:
        store.create_database("db")
        make(store)
    program = [sys.executable, "-c", STARTER, str(path)]
    environment = {**os.environ, "PYTHONPATH": MODULES}
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"listens\n"
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
        parent.wait()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 600)


def test_handles_of_one_directory_share_a_process(store: Store) -> None:
    """As the workers of a server do."""
    make(store)
    first = listening(store)
    with Store.open(store.path, settings=store.settings) as other:
        assert process_of(other).ask(AFTER_LOAD, "db.t")
        assert [each.pid for each in compactors()] == [first.pid]
        process_of(other)._start()
        assert [each.pid for each in compactors()] == [first.pid]


def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 120) / "data"
    path.parent.mkdir()
    with Store.open(path, settings=Settings(compaction_process=True)) as store:
        store.create_database("db")
        make(store)
        listening(store)


def test_large_compactions_write_no_faster_than_the_setting(tmp_path: Path) -> None:
    """The thread rests behind each."""
    rests: list[float] = []
    settings = Settings(segment_rows=200, batch_rows_max=50, compaction_write_bytes_per_second=10)
    with Store.open(tmp_path / "data", settings=settings) as store:
        store.create_database("db")
        table = make(store)

        class Closing:
            def wait(self, seconds: float) -> None:
                rests.append(seconds)

            def set(self) -> None:
                pass

        store.maintainer._closing = Closing()  # type: ignore[assignment]
        load(table, 1)
        table.upsert(pa.table({"k": list(range(1000)), "v": [1] * 1000}))
        table.delete({"k": list(range(300))})
        store.maintainer.wait()
        assert isinstance(store.maintainer, Maintainer)
        assert max(rests) > 100
