"""Loads whose tasks outlive them: nothing is left of what they stage."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from store import ClosedError, Column, InvalidInputError, Settings, Store, Table, TableSchema, parse_type
from store.disk import Disk
from store.recovery import sweep_staged
from store.staging import StagingId
from store.transaction import identity_of
from store.write_task import WriteTask

CHUNK = 1_000
SMALL = Settings(inline_bytes_max=0, segment_rows=CHUNK, batch_rows_max=256)
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("INT"))]
    with Store.open(tmp_path, settings=SMALL) as store:
        store.create_database("db")
        yield store.create_table("db.t", TableSchema.create(columns, ["k"]))


def begun(table: Table, **options: Any) -> WriteTask:
    task = table.write_task(**options)
    task.begin()
    return task


def chunks(count: int, between: Callable[[int], None] = lambda done: None) -> pa.RecordBatchReader:
    """Chunks of a segment each, the first below key 1,000 and so on; told before each how many were read."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int32())])

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(count):
            between(n)
            keys = pa.array(range(n * CHUNK, (n + 1) * CHUNK), pa.int64())
            yield pa.record_batch([keys, pa.repeat(pa.scalar(n, pa.int32()), CHUNK)], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def files(table: Table) -> list[str]:
    return table.loader.disk.list(table.loader.directory)


def test_a_load_that_has_not_begun_stages_nothing(table: Table) -> None:
    with pytest.raises(ClosedError, match="has ended, nobody would take these rows"):
        table.write_task().run(chunks(1))
    assert files(table) == []


def test_a_task_that_is_overtaken_by_the_end_of_its_load_leaves_nothing(table: Table) -> None:
    """The load ends between two of its chunks."""
    task = begun(table)
    seen = []

    def end(done: int) -> None:
        if done == 3:
            seen.extend(files(table))
            task.discard()

    with pytest.raises(ClosedError):
        task.run(chunks(5, end))
    assert len(seen) > 3, "nothing was staged before"
    assert files(table) == []


def test_a_task_that_stages_while_the_end_of_its_load_looks_for_files_leaves_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files come just behind the listing that is to find them."""
    task = begun(table)
    look = Disk.list

    def look_and_stage(disk: Disk, directory: str) -> list[str]:
        found = look(disk, directory)
        monkeypatch.setattr(Disk, "list", look)
        with pytest.raises(ClosedError):
            task.run(chunks(2))
        return found

    monkeypatch.setattr(Disk, "list", look_and_stage)
    task.discard()
    assert files(table) == []


def test_an_attempt_after_its_load_was_published_leaves_nothing_of_its_own(table: Table) -> None:
    task = begun(table)
    kept = task.run(chunks(2))
    with table.begin_load() as load:
        load.adopt(kept)
        load.commit()
    task.discard(keep=[meta.id for meta, _ in kept.segments])
    published = files(table)
    with pytest.raises(ClosedError):
        task.run(chunks(2))
    assert files(table) == published
    assert len(published) == 4
    assert table.count() == 2 * CHUNK
    assert table.check() == []


def test_a_task_that_fails_takes_its_own_files_away(table: Table) -> None:
    """Those of other tasks of the load stay."""
    task = begun(table)
    other = task.run(chunks(1))
    before = files(table)

    def fail(done: int) -> None:
        if done == 2:
            assert len(files(table)) > len(before)
            raise OSError("the source broke off")

    with pytest.raises(OSError, match="broke off"):
        task.run(chunks(3, fail))
    assert files(table) == before
    assert {name.rpartition(".")[0] for name in before if not name.endswith(".load")} == {
        meta.id for meta, _ in other.segments
    }


def test_a_task_that_is_killed_after_its_load_has_ended_leaves_nothing(table: Table) -> None:
    """In the middle of its files, as Spark does with the tasks of a job that has failed."""
    task = begun(table)
    ours, theirs = SPAWN.Pipe()
    straggler = SPAWN.Process(target=stage_until_told, args=(pickle.dumps(task), theirs))
    straggler.start()
    assert ours.poll(60)
    assert len(files(table)) > 1
    task.discard()
    assert straggler.pid is not None
    os.kill(straggler.pid, signal.SIGKILL)
    straggler.join(60)
    assert straggler.exitcode == -signal.SIGKILL
    assert files(table) == []


def stage_until_told(task: bytes, driver: Connection) -> None:
    """Says when the first files are there, then waits with the next."""

    def wait(done: int) -> None:
        if done == 2:
            driver.send(done)
            driver.poll(60)

    share: WriteTask = pickle.loads(task)
    share.run(chunks(4, wait))


def test_whenever_a_load_ends_its_tasks_leave_nothing(table: Table) -> None:
    """Two processes stage while a third ends the load, at any moment."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    told, refused = 0, 0
    with SPAWN.Pool(2) as pool:
        pool.map(imported, range(2))
        for _ in range(40):
            task = begun(table)
            staging = [pool.apply_async(staged, (pickle.dumps(task), 4)) for _ in range(2)]
            staging[0].wait(chance.uniform(0, 0.03))
            task.discard()
            for done in staging:
                told += done.get(60)
                refused += not done.get()
            assert files(table) == [], f"seed {seed}"
    assert refused, f"seed {seed}: every load ended after its tasks"


def imported(_: int) -> None:
    """The process has started."""


def staged(task: bytes, count: int) -> bool:
    """Whether a share was staged before its load had ended."""
    share: WriteTask = pickle.loads(task)
    try:
        share.run(chunks(count))
    except ClosedError:
        return False
    return True


def test_loads_of_a_purpose_are_ended_by_an_owner_that_forgot_them(table: Table) -> None:
    """What is published stays, and so does what was begun later, for something else or by somebody else."""
    first = begun(table, purpose="query 1")
    published = first.run(chunks(1))
    with table.begin_load() as load:
        load.adopt(published)
        load.commit()
    first.run(chunks(1))  # another attempt
    second = begun(table, purpose="query 1")
    second.run(chunks(1))
    newest = begun(table, purpose="query 1")
    others = [begun(table, purpose="query 1"), begun(table, purpose="query 2"), begun(table)]
    others.append(begun(table, owner=identity_of(os.getppid()), purpose="query 1"))
    for other in others[:3]:
        other.run(chunks(1))
    assert newest.stager.staging is not None
    sweep_staged(table.catalog, table.loader.disk, table.id, table.loader.directory, newest.stager.staging)
    left = files(table)
    assert {name for name in left if staged_by(first, name)} == {
        f"{meta.id}.{suffix}" for meta, _ in published.segments for suffix in (meta.home, "keys")
    }
    assert not any(staged_by(ended, name) for ended in (second, newest) for name in left)
    assert [sum(staged_by(other, name) for name in left) for other in others] == [3, 3, 3, 1]
    with pytest.raises(ClosedError):
        second.run(chunks(1))
    assert others[0].run(chunks(1)).rows_total == CHUNK
    assert table.check() == []


def staged_by(task: WriteTask, name: str) -> bool:
    assert task.stager.staging is not None
    return task.stager.staging.owns(name)


def test_an_announcement_tells_its_load() -> None:
    staging = StagingId.of((4_711, 99), "a purpose")
    assert StagingId.announced_by(staging.announcement) == staging
    assert StagingId.announced_by(f"{staging.attempt().new_segment_id()}.keys") is None


def test_rows_that_do_not_fit_are_refused_before_anything_is_staged(table: Table) -> None:
    task = begun(table)
    before = files(table)
    with pytest.raises(InvalidInputError):
        task.run(pa.table({"nope": [1]}))
    assert files(table) == before
