"""Several processes and one data directory: real ones, at work at the same moment (C1, X3, X16)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import Store
from tests.seeds import new_seed
from tests.support import contention
from tests.support.forks.pools import forked_context
from tests.support.rows import rows_of, schema_of
from tests.weight import torture_minutes

PROCESSES = 4


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose tasks wait for each other when they begin, so that each has a process of its own."""
    spawn = forked_context()
    with ProcessPoolExecutor(
        count, spawn, initializer=contention.use_barrier, initargs=(spawn.Barrier(count),)
    ) as pool:
        yield pool


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with processes(PROCESSES) as started:
        yield started


def told_seed() -> int:
    seed = new_seed()
    print("seed", seed)
    return seed


def write_and_read(pool: ProcessPoolExecutor, path: Path, seed: int, writers: int, loads: int) -> None:
    """Writers, and a reader in the process that is left, on a new table; then the replay."""
    store = Store.open(path, settings=contention.INLINE)
    store.create_database("db")
    table = store.create_table("db.t", contention.contended_schema())
    reading = pool.submit(contention.reading_process, str(path), writers * loads)
    writing = [
        pool.submit(contention.writing_process, str(path), seed, writer, loads) for writer in range(writers)
    ]
    done = [each for future in writing for each in future.result()]
    contention.assert_replayed(table, done, [reading.result()])


def test_writers_of_the_same_keys_agree_with_a_replay(pool: ProcessPoolExecutor, tmp_path: Path) -> None:
    write_and_read(pool, tmp_path / "data", told_seed(), PROCESSES - 1, 12)


def test_one_of_many_gets_a_label(pool: ProcessPoolExecutor, tmp_path: Path) -> None:
    """X16: the others are told the transaction that has it, and its status."""
    store = Store.open(tmp_path / "data", settings=contention.INLINE)
    store.create_database("db")
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v STRING"))
    labels = 10
    futures = [
        pool.submit(contention.labelling_process, str(tmp_path / "data"), process, labels)
        for process in range(PROCESSES)
    ]
    told = [future.result() for future in futures]
    rows = dict(rows_of(table))
    for number in range(labels):
        outcomes = [of_process[number] for of_process in told]
        [winner] = [process for process, outcome in enumerate(outcomes) if outcome[0] == "won"]
        _, txn_id, _, version = outcomes[winner]
        assert rows[number] == f"process {winner}"
        for outcome, other, status, seen_version in outcomes:
            assert other == txn_id
            assert status in ("PREPARE", "VISIBLE")
            assert seen_version == (version if status == "VISIBLE" else 0), outcome
    assert table.version == labels + 1


def test_all_may_open_a_fresh_directory(pool: ProcessPoolExecutor, tmp_path: Path) -> None:
    """One of them makes the database, one the table, and every row is there."""
    paths = [str(tmp_path / f"data-{number}") for number in range(6)]
    futures = [pool.submit(contention.opening_process, paths, process) for process in range(PROCESSES)]
    made = [future.result() for future in futures]
    for number, path in enumerate(paths):
        assert [sum(of_process[number][i] for of_process in made) for i in (0, 1)] == [1, 1]
        table = Store.open(path, settings=contention.INLINE).table("db.t")
        assert rows_of(table) == [(process,) for process in range(PROCESSES)]
        assert (table.version, table.check()) == (PROCESSES + 1, [])


def create_and_drop(pool: ProcessPoolExecutor, path: Path, seed: int, processes: int, rounds: int) -> None:
    store = Store.open(path, settings=contention.INLINE)
    store.create_database("db")
    futures = [
        pool.submit(contention.recreating_process, str(path), seed, process, rounds)
        for process in range(processes)
    ]
    total: Counter[str] = sum((future.result() for future in futures), Counter())
    print(total)
    allowed = {"create AlreadyExistsError", *(f"{kind} NotFoundError" for kind in ("drop", "load", "count"))}
    # dropped and made again under it, or made by two at once
    allowed |= {"load ProtocolChangedException", "create ProtocolChangedException"}
    assert {name for name in total if not name.endswith(" done")} <= allowed
    left = total["create done"] - total["drop done"]
    assert store.tables("db") == ["t"] * left
    store.drop_table("db.t", if_exists=True)
    Store.open(path, settings=contention.INLINE).close()  # it sweeps what was read when it was dropped
    assert list(path.glob("tables/*/*")) == []
    table = store.create_table("db.t", schema_of("k INT NOT NULL"))
    assert table.upsert(pa.table({"k": [1]})).version == 2
    assert table.check() == []


def test_making_and_dropping_a_table_under_loads_leaves_a_sound_store(
    pool: ProcessPoolExecutor, tmp_path: Path
) -> None:
    create_and_drop(pool, tmp_path / "data", told_seed(), PROCESSES, 40)


@pytest.mark.torture
def test_processes_agree_with_a_replay_at_length(tmp_path: Path) -> None:
    until = time.monotonic() + 60 * torture_minutes() / 4
    with processes(8) as started:
        number = 0
        while time.monotonic() < until:
            number += 1
            write_and_read(started, tmp_path / f"write-{number}", told_seed(), 7, 60)
            create_and_drop(started, tmp_path / f"drop-{number}", told_seed(), 8, 200)
