"""Loads whose tasks outlive them: nothing is left of what they stage."""

from __future__ import annotations

import os
import pickle
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import (
    AlreadyExistsError,
    ClosedError,
    Column,
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    Settings,
    Store,
    Table,
    TableSchema,
    UnavailableError,
    parse_type,
)
from seqstore.store.load.write_task import StagedRows, WriteTask
from seqstore.store.maintenance.recovery import begun_loads, end_loads, ending
from seqstore.store.maintenance.retention import vacuum
from seqstore.store.runtime.process_identity import identity_of
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.load_marker import StagingId, job_of, new_segment_id
from tests.seeds import new_seed
from tests.support.forks.pools import forked_context

CHUNK = 1_000
SMALL = Settings(inline_bytes_max=0, segment_rows=CHUNK, batch_rows_max=256)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path, settings=SMALL) as opened:
        opened.create_database("db")
        yield opened


@pytest.fixture
def table(store: Store) -> Table:
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("INT"))]
    return store.create_table("db.t", TableSchema.create(columns, ["k"]))


def begun(table: Table, **options: Any) -> WriteTask:
    task = table.write_task(**options)
    task.begin()
    return task


def end(table: Table, task: WriteTask) -> None:
    end_loads(table, [task.load])


def publish(table: Table, *shares: StagedRows) -> None:
    with table.begin_load() as load:
        for share in shares:
            load.adopt(share)
        load.commit()


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
    with pytest.raises(ClosedError, match="has ended, its rows cannot be loaded any more"):
        table.write_task().run(chunks(1))
    assert files(table) == []


def test_a_task_that_is_overtaken_by_the_end_of_its_load_leaves_nothing(table: Table) -> None:
    """The load ends between two of its chunks."""
    task = begun(table)
    seen = []

    def overtake(done: int) -> None:
        if done == 3:
            seen.extend(files(table))
            end(table, task)

    with pytest.raises(ClosedError):
        task.run(chunks(5, overtake))
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
    end(table, task)
    assert files(table) == []


def test_an_attempt_after_its_load_was_published_leaves_nothing_of_its_own(table: Table) -> None:
    task = begun(table)
    kept = task.run(chunks(2))
    publish(table, kept)
    end(table, task)
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
    ours, theirs = forked_context().Pipe()
    straggler = forked_context().Process(target=stage_until_told, args=(pickle.dumps(task), theirs))
    straggler.start()
    assert ours.poll(60)
    assert len(files(table)) > 1
    end(table, task)
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
    seed = new_seed()
    chance = random.Random(seed)
    outcomes = set()
    with forked_context().Pool(2) as pool:
        for wait in [0.0, 60.0, *(chance.uniform(0, 0.03) for _ in range(40))]:
            task = begun(table)
            staging = [pool.apply_async(staged, (pickle.dumps(task), 4)) for _ in range(2)]
            staging[0].wait(wait)
            end(table, task)
            outcomes |= {done.get(60) for done in staging}
            assert files(table) == [], f"seed {seed}"
    assert outcomes == {True, False}, f"seed {seed}"


def staged(task: bytes, count: int) -> bool:
    """Whether a share was staged before its load had ended."""
    share: WriteTask = pickle.loads(task)
    try:
        share.run(chunks(count))
    except ClosedError:
        return False
    return True


def test_loads_of_a_purpose_are_found_again_by_their_owner(table: Table) -> None:
    """Those that were begun until some moment; not others for something else, or of somebody else."""
    own = [begun(table, purpose="query 1") for _ in range(3)]
    begun(table, purpose="query 2")
    begun(table)
    begun(table, owner=identity_of(os.getppid()), purpose="query 1")
    found = begun_loads(table.loader.disk, table.loader.directory, own[1].load)
    assert found == [own[0].load, own[1].load]


def test_the_end_of_loads_leaves_what_is_published_and_other_loads(table: Table) -> None:
    first, second, other = begun(table), begun(table), begun(table)
    published = first.run(chunks(1))
    for task in (first, second, other):
        task.run(chunks(1))
    publish(table, published)
    own_segment = table.upsert(pa.table({"k": [10**6], "v": [1]}))
    assert own_segment.version == 3
    end_loads(table, [first.load, second.load])
    left = files(table)
    named = {f"{meta.id}.{suffix}" for meta, _ in published.segments for suffix in (meta.home, "keys")}
    assert {name for name in left if job_of(name) == first.load.job} == named
    assert not any(second.load.job in name for name in left)
    assert sum(other.load.job in name for name in left) == 3
    assert other.run(chunks(1)).rows_total == CHUNK
    assert table.count() == CHUNK + 1
    assert table.check() == []


def test_an_end_that_was_cut_short_is_made_good_by_whoever_sweeps_next(table: Table) -> None:
    """The process that ended the load died when only the marker was gone; the load's owner lives."""
    task, other = begun(table), begun(table)
    published = task.run(chunks(1))
    task.run(chunks(1))
    other.run(chunks(1))
    publish(table, published)
    table.loader.disk.delete(f"{table.loader.directory}/{task.load.marker}")
    assert len(files(table)) == 2 + 2 + 3
    removed = vacuum(table).orphans
    assert len(removed) == 2
    assert all(job_of(name) == task.load.job for name in removed)
    assert len(files(table)) == 2 + 3
    assert table.check() == []


def test_a_load_that_has_ended_is_not_published(table: Table) -> None:
    """Neither by somebody who takes its shares then, nor by somebody who had taken them."""
    task = begun(table)
    share = task.run(chunks(1))
    with table.begin_load() as load:
        load.adopt(share)
        load.prepare()
        end(table, task)
        with pytest.raises(ClosedError, match="has ended"):
            load.commit()
    with table.begin_load() as load, pytest.raises(ClosedError, match="has ended"):
        load.adopt(share)
    assert table.version == 1
    assert files(table) == []


def test_a_load_that_has_ended_is_not_pre_committed(table: Table) -> None:
    task = begun(table)
    share = task.run(chunks(1))
    with table.begin_load(label="later") as load:
        load.adopt(share)
        load.prepare()
        end(table, task)
        with pytest.raises(ClosedError, match="has ended"):
            load.precommit()
    assert files(table) == []


def test_shares_of_a_pre_committed_load_outlive_its_end(table: Table, store: Store) -> None:
    task = begun(table)
    share = task.run(chunks(2))
    task.run(chunks(1))
    with table.begin_load(label="later") as load:
        load.adopt(share)
        load.precommit()
    end(table, task)
    assert len(files(table)) == 4
    store.commit_transaction("db", label="later")
    assert table.count() == 2 * CHUNK
    assert table.check() == []


def test_an_end_waits_for_the_commit_point_that_is_on_its_way(table: Table) -> None:
    """A publisher that has seen the marker, and was overtaken by the end of the load."""
    task = begun(table)
    share = task.run(chunks(1))
    ender = threading.Thread(target=end, args=(table, task))

    def start(*_: object) -> None:
        ender.start()
        while table.loader.disk.exists(f"{table.loader.directory}/{task.load.marker}"):
            ender.join(0.01)
        ender.join(0.2)  # it may do all it can

    with table.begin_load() as load:
        load.adopt(share)
        load.commit(also=start)
    ender.join(60)
    assert not ender.is_alive()
    assert len(files(table)) == 2
    assert table.count() == CHUNK
    assert table.check() == []


def test_shares_are_published_once(table: Table) -> None:
    """The rows of a segment that came twice would hide each other."""
    task = begun(table)
    share = task.run(chunks(1))
    publish(table, share)
    with pytest.raises(AlreadyExistsError, match="was published before; stage the rows again"):
        publish(table, share)
    end(table, task)
    assert (table.version, table.count()) == (2, CHUNK)
    assert table.check() == []


def test_shares_of_a_table_that_was_made_anew_are_refused(table: Table, store: Store) -> None:
    task = begun(table)
    share = task.run(chunks(1))
    store.drop_table("db.t")
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("STRING"))]
    anew = store.create_table("db.t", TableSchema.create(columns, ["k"]))
    with pytest.raises(ConflictError, match="another transaction created the table meanwhile"):
        publish(anew, share)
    other = store.create_table("db.other", TableSchema.create(columns, ["k"]))
    share = begun(other).run(pa.table({"k": [1], "v": ["a"]}))
    with pytest.raises(InvalidInputError, match=r"rows staged for another table cannot be loaded into db\.t"):
        publish(anew, share)


def test_a_file_that_cannot_be_removed_keeps_no_other(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was published stays so: the log tells."""
    task = begun(table)
    task.run(chunks(3))
    refused = next(name for name in files(table) if name.endswith(".keys"))
    delete = Disk.delete

    def refuse(disk: Disk, name: str) -> None:
        if name.endswith(refused):
            raise UnavailableError("no luck today")
        delete(disk, name)

    monkeypatch.setattr(Disk, "delete", refuse)
    with pytest.raises(UnavailableError, match="no luck today"):
        end(table, task)
    assert files(table) == [refused]
    monkeypatch.undo()
    assert [name.rpartition("/")[2] for name in vacuum(table).orphans] == [refused]


@pytest.mark.parametrize("fails", [None, OSError("the publisher broke off")])
def test_what_is_published_is_told_whatever_becomes_of_its_sweep(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: OSError | None
) -> None:
    task = begun(table)

    def refuse(disk: Disk, name: str) -> None:
        raise UnavailableError("no luck today")

    monkeypatch.setattr(Disk, "delete", refuse)
    with pytest.raises(OSError, match="broke off") if fails else nullcontext(), ending(table, task.load):
        if fails:
            raise fails
    assert caplog.messages == ["db.t: staged files are left to the next sweep: no luck today"]


def test_nothing_is_removed_while_nobody_knows_what_is_published(table: Table) -> None:
    task = begun(table)
    task.run(chunks(1))
    before = files(table)
    with pytest.raises(CommitUnknownError), ending(table, task.load):
        raise CommitUnknownError("the disk failed")
    assert files(table) == before


def test_a_marker_names_its_load() -> None:
    staging = StagingId.of((4_711, 99), "a purpose")
    assert StagingId.marked_by(staging.marker) == staging
    assert job_of(staging.marker) is None
    staged_file = f"{staging.attempt().new_segment_id()}.keys"
    assert StagingId.marked_by(staged_file) is None
    assert job_of(staged_file) == staging.job
    assert job_of(f"{new_segment_id()}.keys") is None


def test_rows_that_do_not_fit_are_refused_before_anything_is_staged(table: Table) -> None:
    task = begun(table)
    before = files(table)
    with pytest.raises(InvalidInputError):
        task.run(pa.table({"nope": [1]}))
    assert files(table) == before
