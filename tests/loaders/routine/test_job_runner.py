"""What runs a job, against a log that tests write and that forgets: tasks, fences, offsets, pauses."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, Store
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.job_runner import JobRunner
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.messages import bodies_of
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.routine.source import Bounds, Piece, SourceUnavailable, Span
from seqstore.store.catalog.jobs import Jobs
from seqstore.store.catalog.transaction_record import TransactionStatus, now_ms
from seqstore.store.runtime.process_identity import identity_of
from seqstore.store.sql import ServerContext, Session


class Log:
    """A source in memory: partitions of CSV lines whose oldest can go."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.earliest: dict[str, int] = {}
        self.piece_offsets = 10
        self.is_away = False
        self.is_multi = False
        self.options = StreamLoadOptions()
        self.closed = 0
        self.id = "first"
        self.reading = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def add(self, partition: int, *lines: str) -> None:
        self.lines.setdefault(str(partition), []).extend(lines)

    def identity(self) -> str:
        return self.id

    def bounds(self) -> dict[str, Bounds]:
        if self.is_away:
            raise SourceUnavailable("nobody answers")
        return {name: Bounds(self.earliest.get(name, 0), len(lines)) for name, lines in self.lines.items()}

    def first_offsets(self, partitions: Sequence[str], bounds: Mapping[str, Bounds]) -> dict[str, int]:
        return {name: bounds[name].earliest for name in partitions}

    def pieces(self, spans: Sequence[Span]) -> Iterator[Piece]:
        for span in spans:
            for start in range(span.start, span.end, self.piece_offsets):
                self.reading.set()
                self.go_on.wait(60)
                end = min(start + self.piece_offsets, span.end)
                lines = pa.array(self.lines[span.partition][start:end], pa.string()).cast(pa.binary())
                bodies = list(bodies_of(lines, self.options, is_multi=self.is_multi))
                size = sum(body.size for body in bodies)
                yield Piece(Span(span.partition, start, end), partial(list, bodies), size)

    def close(self) -> None:
        self.closed += 1


class Job:
    """A job over a log, as SQL and its runner see it."""

    def __init__(self, store: Store, properties: str = "", source_properties: str = "") -> None:
        self.store = store
        self.log = Log()
        self.session = Session(store, server=ServerContext(load_jobs=StoreLoadJobs(store)))
        create = "CREATE TABLE db.t (k BIGINT NOT NULL, v BIGINT) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)"
        list(self.session.execute(f"{create}; USE db"))
        self.ask(
            f"""CREATE ROUTINE LOAD job ON t COLUMNS TERMINATED BY ","
            PROPERTIES ("strict_mode" = "false" {properties})
            FROM KAFKA ("kafka_broker_list" = "b:9092", "kafka_topic" = "t" {source_properties})"""
        )
        self.jobs = RoutineJobs(store.catalog)
        ((self.id, _),) = self.jobs.all().items()
        self.runner = self.new_runner()

    def new_runner(self) -> JobRunner:
        return JobRunner(self.store, self.id, lambda *_: self.log)

    def ask(self, statement: str) -> list[dict[str, Any]]:
        (result,) = self.session.execute(statement)
        return [] if result.rows is None else result.rows.to_pylist()

    @property
    def now(self) -> RoutineJob:
        return self.jobs.get(self.id)

    @property
    def rows(self) -> list[tuple[int, int]]:
        return [(row["k"], row["v"]) for row in self.ask("SELECT k, v FROM t ORDER BY k")]


def test_partitions_are_dealt_in_turn_and_new_ones_are_found(store: Store) -> None:
    """R9, R26, R32"""
    job = Job(store, ', "desired_concurrent_number" = "2"')
    for partition in range(5):
        job.log.add(partition, f"{partition},0")
    assert job.runner.round().committed == 2
    assert sorted(task.partitions for task in job.now.tasks.values()) == [("0", "2", "4"), ("1", "3")]
    job.log.add(5, "5,0")
    job.log.add(0, "0,1")
    job.runner.round()
    assert sorted(task.partitions for task in job.now.tasks.values()) == [("0", "2", "4"), ("1", "3", "5")]
    assert job.rows == [(0, 1), *((k, 0) for k in range(1, 6))]
    (line,) = job.ask("SHOW ROUTINE LOAD FOR job")
    assert json.loads(line["Progress"]) == {"0": "1", **{str(p): "0" for p in range(1, 6)}}
    assert set(json.loads(line["Lag"]).values()) == {0}


def test_no_job_has_more_than_256_tasks(store: Store) -> None:
    """R9"""
    job = Job(store, ', "desired_concurrent_number" = "1000"')
    ends = {str(partition): 0 for partition in range(300)}
    assert len(job.now.divided(ends, ends).tasks) == 256


def test_a_resume_does_not_forget_bad_rows(store: Store) -> None:
    """R16: the error window ends with its rows, not with a pause of the user"""
    job = Job(store, ', "max_error_number" = "1"')
    for _ in range(2):
        job.log.add(0, "x,0")
        job.runner.round()
        state = job.now.state
        if state != "PAUSED":
            job.ask("PAUSE ROUTINE LOAD FOR job")
            job.ask("RESUME ROUTINE LOAD FOR job")
    assert (state, job.now.pause_kind) == ("PAUSED", "ERRORS")


def test_a_task_ends_when_its_batch_is_full(store: Store) -> None:
    """R10: batches of 200000 rows, the rest in a batch of its own."""
    job = Job(store, ', "max_batch_rows" = "200000"')
    job.log.piece_offsets = 100_000
    job.log.add(0, *(f"{k},0" for k in range(250_000)))
    job.log.add(1, *(f"{k},1" for k in range(250_000, 300_000)))
    job.ask("PAUSE ROUTINE LOAD FOR job")
    job.ask('ALTER ROUTINE LOAD FOR job PROPERTIES ("desired_concurrent_number" = "1")')
    job.ask("RESUME ROUTINE LOAD FOR job")
    first = job.runner.round()
    assert (first.is_full, job.now.statistic.loaded_rows) == (True, 200_000)
    second = job.runner.round()
    assert (second.is_full, job.now.statistic.loaded_rows) == (False, 300_000)
    assert job.now.progress == {"0": 250_000, "1": 50_000}


def test_a_task_of_a_paused_job_cannot_commit(store: Store) -> None:
    """R6, R12, R13: paused while it read; after the resume the same rows are read again, once."""
    job = Job(store)
    job.log.add(0, "1,1", "2,1")
    job.log.go_on.clear()
    running = threading.Thread(target=job.runner.round)
    running.start()
    assert job.log.reading.wait(60)
    ((_, task),) = job.now.tasks.items()
    assert task.txn_id > 0
    (line,) = job.ask("SHOW ROUTINE LOAD TASK WHERE JobName = 'job'")
    assert (line["TxnId"], line["TxnStatus"]) == (str(task.txn_id), "PREPARE")
    (line,) = job.ask("SHOW ROUTINE LOAD FOR job")
    assert json.loads(line["Statistic"])["runningTxns"] == [task.txn_id]
    job.ask("PAUSE ROUTINE LOAD FOR job")
    job.log.go_on.set()
    running.join()
    assert (job.rows, dict(job.now.progress)) == ([], {"0": 0})
    label = job.now.other_message.partition("could not be COMMITTED while task ")[2].partition(" ")[0]
    record = store.find_transaction("db", label)
    assert record is None or record.status == TransactionStatus.ABORTED
    assert job.now.other_message == (
        f"txn {task.txn_id} could not be COMMITTED while task {label} has been aborted."
    )
    job.ask("RESUME ROUTINE LOAD FOR job")
    job.runner.round()
    assert (job.rows, job.now.statistic.loaded_rows) == ([(1, 1), (2, 1)], 2)


def test_a_task_that_takes_too_long_is_replaced_and_cannot_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12, R14"""
    job = Job(store)
    job.log.add(0, "1,1")
    job.log.go_on.clear()
    assert job.now.timeout_ms == 600_000
    monkeypatch.setattr(RoutineJob, "timeout_ms", property(lambda job: 300))
    assert job.runner.round().failed == 1
    monkeypatch.undo()
    assert job.now.timeout_ms == 1_200_000, "the next one gets twice the time"
    late = [thread for thread in threading.enumerate() if thread.name == "routine load job"]
    job.log.go_on.set()
    for thread in late:
        thread.join()
    assert (job.rows, job.now.statistic.aborted_tasks) == ([], 2)
    job.runner.round()
    assert (job.rows, job.now.timeout_ms) == ([(1, 1)], 600_000)


def test_the_tasks_of_a_process_that_is_gone_cannot_commit(store: Store) -> None:
    """R12: its job is taken over, which makes a new generation of tasks."""
    job = Job(store)
    job.log.add(0, "1,1")
    job.runner.round()
    before = set(job.now.tasks)
    job.jobs.change(job.id, lambda found: replace(found, owner=(1 << 22, 1)))
    successor = job.new_runner()
    assert successor.look().tasks == {}
    successor.round()
    assert before.isdisjoint(job.now.tasks)
    assert (job.rows, job.now.statistic.loaded_rows) == ([(1, 1)], 1)


def test_a_job_that_runs_elsewhere_is_left_alone(store: Store) -> None:
    job = Job(store)
    job.log.add(0, "1,1")
    job.jobs.change(job.id, lambda found: replace(found, owner=identity_of(os.getppid())))
    assert (job.runner.round().committed, job.rows) == (0, [])


def test_offsets_that_are_gone_pause_the_job_until_they_are_altered(store: Store) -> None:
    """R27, R29, R34"""
    job = Job(store)
    job.log.add(0, *(f"{k},0" for k in range(10)))
    job.runner.round()
    job.log.add(0, *(f"{k},1" for k in range(10)))
    job.log.earliest["0"] = 15
    job.runner.round()
    now = job.now
    assert (now.state, now.resumes_at_ms) == ("PAUSED", None)
    assert "offset out of range: 10 to 14 are gone" in now.reason
    assert "ALTER ROUTINE LOAD" in now.reason
    assert "RESUME ROUTINE LOAD" in now.reason
    alter = 'ALTER ROUTINE LOAD FOR job FROM KAFKA ("kafka_partitions" = "{}", "kafka_offsets" = "{}")'
    with pytest.raises(InvalidInputError, match="partition 7 is not in the consumed partitions"):
        job.ask(alter.format(7, 15))
    job.ask(alter.format(0, 15))
    job.ask("RESUME ROUTINE LOAD FOR job")
    job.runner.round()
    assert job.rows == [*((k, 0) for k in range(5)), *((k, 1) for k in range(5, 10))]
    assert job.now.statistic.loaded_rows == 15
    job.ask("PAUSE ROUTINE LOAD FOR job")
    job.ask(alter.format(0, 100))
    job.ask("RESUME ROUTINE LOAD FOR job")
    job.runner.round()
    assert "greater than kafka latest offset 20" in job.now.reason


def test_a_reset_policy_moves_offsets_and_says_so(store: Store) -> None:
    """R27: never silently."""
    job = Job(store, source_properties=', "property.auto.offset.reset" = "earliest"')
    job.log.add(0, "1,0")
    job.runner.round()
    job.log.add(0, "2,0", "3,0")
    job.log.earliest["0"] = 2
    job.runner.round()
    assert (job.now.state, job.rows) == ("RUNNING", [(1, 0), (3, 0)])
    assert "1 to 1 are gone" in job.now.other_message
    assert "moved to 2" in job.now.other_message


@pytest.mark.parametrize(
    ("altered", "rows"),
    [
        ('"property.auto.offset.reset" = "latest"', [(1, 0), (4, 0)]),
        ('"kafka_partitions" = "0", "kafka_offsets" = "3"', [(1, 0), (4, 0)]),
        ('"kafka_partitions" = "0", "kafka_offsets" = "2"', [(1, 0), (3, 0), (4, 0)]),
    ],
    ids=["latest", "offset 3", "offset 2"],
)
@pytest.mark.parametrize(
    "policy", ["", ', "property.auto.offset.reset" = "earliest"'], ids=["none", "earliest"]
)
def test_a_job_altered_while_its_offsets_are_looked_at_is_left_as_altered(
    store: Store, monkeypatch: pytest.MonkeyPatch, policy: str, altered: str, rows: list[tuple[int, int]]
) -> None:
    """R27, R29: the round judged a job that is no more; it paused the new one, or moved its offsets back."""
    job = Job(store, source_properties=policy)
    job.log.add(0, "1,0")
    job.runner.round()
    job.log.add(0, "2,0", "3,0")
    job.log.earliest["0"] = 2
    bounds = job.log.bounds

    def slow_bounds() -> dict[str, Bounds]:
        found = bounds()
        for statement in ("PAUSE {}", f"ALTER {{}} FROM KAFKA ({altered})", "RESUME {}"):
            job.ask(statement.format("ROUTINE LOAD FOR job"))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(job.log, "bounds", slow_bounds)
        job.runner.round()
    job.runner.round()
    job.log.add(0, "4,0")
    job.runner.round()
    assert (job.now.state, job.rows) == ("RUNNING", rows), job.now.reason


def test_a_log_that_was_made_anew_is_not_read_on(store: Store) -> None:
    """Its offsets would name other messages; the job waits for offsets of every partition."""
    job = Job(store)
    job.log.add(0, "1,0", "2,0")
    job.log.add(1, "3,0")
    job.runner.round()
    job.log.id = "second"
    job.log.lines = {"0": ["4,0", "5,0", "6,0"], "1": ["7,0", "8,0"]}
    job.runner.round()
    assert job.now.state == "PAUSED"
    assert "deleted and created again" in job.now.reason
    assert "an offset for every partition" in job.now.reason
    alter = 'ALTER ROUTINE LOAD FOR job FROM KAFKA ("kafka_partitions" = "{}", "kafka_offsets" = "{}")'
    job.ask(alter.format("0", "1"))
    job.ask("RESUME ROUTINE LOAD FOR job")
    job.runner.round()
    assert job.now.state == "PAUSED", "partition 1 still has an offset of the old log"
    job.ask(alter.format("0,1", "1,0"))
    job.ask("RESUME ROUTINE LOAD FOR job")
    job.runner.round()
    assert [k for k, _ in job.rows] == [1, 2, 3, 5, 6, 7, 8]


def test_a_reset_policy_begins_with_a_log_that_was_made_anew_and_says_so(store: Store) -> None:
    job = Job(store, source_properties=', "property.auto.offset.reset" = "earliest"')
    job.log.add(0, "1,0")
    job.log.add(1, "2,0")
    job.runner.round()
    job.log.id, job.log.lines = "second", {"0": ["3,0", "4,0"]}
    job.runner.round()
    assert [k for k, _ in job.rows] == [1, 2, 3, 4]
    assert "deleted and created again" in job.now.other_message
    assert job.now.progress == {"0": 2}


def test_a_source_that_is_away_pauses_the_job_until_it_is_back(store: Store, tmp_path: Path) -> None:
    """R34: the pause ends by itself, later each time, at most five minutes; its reason is stored."""
    job = Job(store)
    job.log.add(0, "1,1")
    job.log.is_away = True
    job.runner.round()
    now = job.now
    assert (now.state, now.reason, now.pause_kind) == ("PAUSED", "nobody answers", "SYSTEM")
    waits = []
    for _ in range(9):
        assert job.now.resumes_at_ms is not None
        waits.append(job.now.resumes_at_ms - job.now.paused_ms)
        assert job.new_runner().look().state == "PAUSED", "not yet"
        job.jobs.change(job.id, lambda found: replace(found, paused_ms=now_ms() - waits[-1]))
        job.new_runner().round()  # another runner, as after a restart: all it knows is the record
    assert waits == sorted(waits)
    assert waits[0] < waits[-1] == 300_000
    job.log.is_away = False
    job.jobs.change(job.id, lambda found: replace(found, paused_ms=0))
    job.runner.round()
    assert (job.now.state, job.rows, job.now.auto_resumes) == ("RUNNING", [(1, 1)], 0)


def test_a_source_that_failed_is_opened_anew(store: Store) -> None:
    """R34: what it was made of, such as a driver, may be what is gone"""
    job = Job(store)
    job.log.add(0, "1,1")
    opened: list[Log] = []

    def open_log(*_: object) -> Log:
        opened.append(job.log)
        return job.log

    runner = JobRunner(store, job.id, open_log)
    job.log.is_away = True
    runner.round()
    job.log.is_away = False
    job.jobs.change(job.id, lambda found: replace(found, paused_ms=0))
    runner.round()
    assert (job.rows, len(opened), job.log.closed) == ([(1, 1)], 2, 1)


def test_a_pause_by_the_user_does_not_end_by_itself(store: Store) -> None:
    """R34"""
    job = Job(store)
    job.ask("PAUSE ROUTINE LOAD FOR job")
    job.jobs.change(job.id, lambda found: replace(found, paused_ms=1))
    assert job.runner.look().state == "PAUSED"


def test_the_error_window_begins_anew_after_ten_batches(store: Store) -> None:
    """R16"""
    job = Job(store, ', "max_batch_rows" = "200000", "max_error_number" = "1"')
    job.log.add(0, "x,0")
    job.runner.round()
    assert job.now.statistic.window_error_rows == 1
    statistic = replace(job.now.statistic, window_rows=2_000_000)
    job.jobs.change(job.id, lambda found: replace(found, statistic=statistic))
    job.log.add(0, "1,0")
    job.runner.round()
    assert (job.now.statistic.window_rows, job.now.statistic.window_error_rows) == (0, 0)
    job.log.add(0, "x,0")
    job.runner.round()
    assert (job.now.state, job.now.statistic.error_rows) == ("RUNNING", 2)


def test_the_share_of_errors_pauses_too(store: Store) -> None:
    """R16, R17"""
    job = Job(store, ', "max_error_number" = "100", "max_filter_ratio" = "0.5"')
    job.log.add(0, "x,0", "1,0")
    job.runner.round()
    assert job.now.state == "RUNNING", "the ratio itself is still allowed"
    job.log.add(0, "x,0")
    job.runner.round()
    assert (job.now.state, job.now.pause_kind) == ("PAUSED", "ERRORS")


def test_a_runner_follows_jobs_as_they_come_pause_and_resume(store: Store) -> None:
    """R4: what `serve` does; the runner is told nothing but what the catalog says."""
    job = Job(store, ', "max_batch_interval" = "1"')
    job.log.add(0, "1,1")
    runner = RoutineRunner(store, open_source=lambda *_: job.log)
    runner.start()
    try:
        _until(lambda: job.now.progress == {"0": 1})
        job.ask("PAUSE ROUTINE LOAD FOR job")
        job.log.add(0, "2,1")
        job.ask("RESUME ROUTINE LOAD FOR job")
        _until(lambda: job.now.progress == {"0": 2})
    finally:
        runner.stop()
    assert job.rows == [(1, 1), (2, 1)]
    assert (job.now.state, job.now.owner) == ("NEED_SCHEDULE", (0, 0)), "left for the next runner"


class DearLog(Log):
    """A log that takes some processor time to look at, such as a directory of very many files."""

    seconds = 0.1

    def bounds(self) -> dict[str, Bounds]:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return super().bounds()


def test_a_source_that_is_dear_to_look_at_is_looked_at_less_often(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(store)
    job.log = DearLog()
    runner = RoutineRunner(store, open_source=lambda *_: job.log)
    pauses: list[float] = []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 1:
            job.log.add(0, "1,1")
        elif len(pauses) == 3:
            runner._ending.set()
        return runner._ending.is_set()

    monkeypatch.setattr(runner._ending, "wait", wait)
    runner._run_job(job.id)
    assert job.rows == [(1, 1)]
    assert pauses[0] >= 10 * DearLog.seconds
    assert pauses[1] == 0.5, "a round with rows has an interval of its own"


def test_an_ended_job_is_forgotten_when_labels_are(store: Store) -> None:
    job = Job(store)
    job.ask("STOP ROUTINE LOAD FOR job")
    runner = RoutineRunner(store, open_source=lambda *_: job.log)
    runner.start()
    runner.stop()
    assert len(job.ask("SHOW ALL ROUTINE LOAD")) == 1
    job.jobs.change(job.id, lambda found: replace(found, ended_ms=1))
    runner = RoutineRunner(store, open_source=lambda *_: job.log)
    runner.start()
    try:
        _until(lambda: job.jobs.all() == {})
    finally:
        runner.stop()


def test_jobs_that_have_ended_are_not_read_at_each_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server looks twice a second; 30,000 jobs of the last days took it most of a processor."""
    job = Job(store)
    looks: list[tuple[list[int], int]] = []
    again = Jobs.again

    def noted(self: Jobs, known: Iterable[int], above: int) -> tuple[dict[int, Any], int]:
        looks.append((list(known), above))
        return again(self, looks[-1][0], above)

    monkeypatch.setattr(Jobs, "again", noted)

    def add(name: str, state: str) -> int:
        return job.jobs.add(replace(job.now, spec=replace(job.now.spec, name=name), state=state))

    ended = [add(f"j{number}", "STOPPED") for number in range(3)]
    assert list(job.jobs.living()) == [job.id]
    other = RoutineJobs(store.catalog)
    assert list(other.living()) == [job.id]
    assert looks[-1] == ([job.id], ended[-1])
    new = add("new", job.now.state)
    Jobs(store.catalog, "broker").add({"state": "a job of another kind"})
    assert list(job.jobs.living()) == [job.id, new]
    job.ask("STOP ROUTINE LOAD FOR job")
    assert list(job.jobs.living()) == [new]
    assert list(job.jobs.living()) == [new]
    assert looks[-1] == ([new], new + 1)
    assert sorted(job.jobs.all()) == [job.id, *ended, new]


def _until(condition: Any) -> None:
    """Waits for what another thread does to the catalog, which tells nobody."""
    waiting = threading.Event()
    for _ in range(600):
        if condition():
            return
        waiting.wait(0.05)
    pytest.fail("it did not come to that within 30 s")
