"""The record of a routine load: states, tasks, progress (R4-R8, R11-R16, R32-R34).

    NEED_SCHEDULE ──tasks divided──▶ RUNNING ──user, errors, source──▶ PAUSED ──resume──▶ NEED_SCHEDULE
    any of them ──STOP──▶ STOPPED (final)        any of them ──table dropped──▶ CANCELLED (final)

Every method is a function from one record to the next; `RoutineJobs` stores the result. A task may commit
only while the record lists it (R12). A pause, a time-out or a new owner process removes it from the
list and so fences it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from seqstore.loaders.routine.properties import CONCURRENCY_MAX, UNLIMITED
from seqstore.loaders.routine.spec import RoutineSpec
from seqstore.store.catalog.job_record import CANCELLED, NO_OWNER, JobRecord, Owner
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import InvalidInputError

NEED_SCHEDULE: Final = "NEED_SCHEDULE"
RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
STOPPED: Final = "STOPPED"
FINAL: Final = frozenset([STOPPED, CANCELLED])
_MAY_BECOME: Final = {
    NEED_SCHEDULE: frozenset([NEED_SCHEDULE, RUNNING, PAUSED, STOPPED, CANCELLED]),
    RUNNING: frozenset([NEED_SCHEDULE, PAUSED, STOPPED, CANCELLED]),
    PAUSED: frozenset([NEED_SCHEDULE, STOPPED, CANCELLED]),
}
# Why a job is paused. Only those of the system end by themselves (R34).
BY_USER: Final = "USER"
BY_ERRORS: Final = "ERRORS"
BY_SYSTEM: Final = "SYSTEM"
CANNOT_RESUME: Final = "CANNOT_RESUME"
TOO_MANY_ERRORS: Final = (
    "current error rows is more than max_error_number or the max_filter_ratio is more than the value set"
)
_UNKEPT: Final = (
    "dead_letters cannot keep {} rejected messages of tables that cannot be made, for the reasons in the "
    "error log; create the tables and ALTER ROUTINE LOAD to offsets before the messages, or set "
    "max_error_number"
)
_RESUME_AFTER_MS: Final = 5_000  # doubled each time the job pauses again without a commit between
_RESUME_AFTER_MS_MAX: Final = 300_000  # R34
_WINDOW_BATCHES: Final = 10  # R16
_TIMEOUT_BATCHES: Final = 10  # R14; the newest source waits ten intervals, and at least a minute
_TIMEOUT_MS_MIN: Final = 60_000
_ERROR_URLS_KEPT: Final = 3


@dataclass(frozen=True)
class Task:
    """Partitions whose next rows are one transaction (R9, R10).

    Attributes:
        partitions: names.
        txn_id: of the transaction that runs, -1 while none does (R37).
    """

    partitions: tuple[str, ...]
    created_ms: int
    txn_id: int = -1
    started_ms: int = 0


@dataclass(frozen=True)
class Statistic:
    """The totals of all tasks so far (R31), and the error window (R16)."""

    received_bytes: int = 0
    error_rows: int = 0
    loaded_rows: int = 0
    unselected_rows: int = 0
    committed_tasks: int = 0
    aborted_tasks: int = 0
    task_ms: int = 0
    error_rows_after_resumed: int = 0
    window_rows: int = 0
    window_error_rows: int = 0

    @property
    def total_rows(self) -> int:
        return self.loaded_rows + self.error_rows + self.unselected_rows


@dataclass(frozen=True)
class Batch:
    """The result of one task.

    Attributes:
        offsets: the next offset of each partition it read.
        marks: names to keep beside the job.
        loaded, filtered, unselected: rows.
        error_url: of the log of the filtered ones.
        unkept: filtered rows of tables that cannot be made, so that `dead_letters` does not keep them.
        note: what the job tells of the rows that were loaded, such as fields that were left out.
    """

    offsets: Mapping[str, int]
    marks: Sequence[tuple[str, int]] = ()
    bytes: int = 0
    loaded: int = 0
    filtered: int = 0
    unselected: int = 0
    milliseconds: int = 0
    error_url: str = ""
    unkept: int = 0
    note: str = ""


@dataclass(frozen=True)
class RoutineJob(JobRecord):
    """One job.

    Attributes:
        spec: the request.
        table_id: of the table it was made for, whatever its name is now; 0 where it has many.
        database_id: of its database, 0 in records of before it was kept.
        owner: process that runs it, `NO_OWNER` when none does.
        pause_kind, reason: why it is PAUSED or CANCELLED (R33).
        other_message: why the last task was aborted (R33), or what the last one tells of its rows.
        source_id: identity of the log that the offsets belong to, empty where the source has none.
        progress: next offset of each partition.
        latest: end of each partition at the last look-up.
        tasks: by id; the generation that may commit.
        wanted_offsets: where partitions that ALTER set are to begin, in the words of the source.
        allowed: where files may be read, besides the paths that the settings allow.
        references: secrets that it may name, besides those that the settings allow.
        auto_resumes: how often it resumed by itself since the last rows.
        timeouts: tasks in a row that ran too long; each doubles the time for the next.
    """

    final_states: ClassVar[frozenset[str]] = FINAL
    optional_fields: ClassVar[frozenset[str]] = frozenset(["references"])
    spec: RoutineSpec
    table_id: int
    created_ms: int
    database_id: int = 0
    state: str = NEED_SCHEDULE
    owner: Owner = NO_OWNER
    paused_ms: int = 0
    ended_ms: int = 0
    resumed_ms: int = 0
    pause_kind: str = ""
    reason: str = ""
    other_message: str = ""
    source_id: str = ""
    progress: Mapping[str, int] = field(default_factory=dict)
    latest: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, Task] = field(default_factory=dict)
    statistic: Statistic = Statistic()
    error_urls: tuple[str, ...] = ()
    wanted_offsets: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    user: str = "root"
    auto_resumes: int = 0
    timeouts: int = 0
    references: tuple[str, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RoutineJob:
        tasks = {
            name: Task(**{**task, "partitions": tuple(task["partitions"])})
            for name, task in record["tasks"].items()
        }
        lists = {name: tuple(record[name]) for name in ("owner", "error_urls", "allowed")}
        lists["references"] = tuple(record.get("references", ()))
        spec, statistic = RoutineSpec.from_record(record["spec"]), Statistic(**record["statistic"])
        return cls(**{**record, **lists, "tasks": tasks, "spec": spec, "statistic": statistic})

    @property
    def database(self) -> str:
        return self.spec.database

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def end_ms(self) -> int:
        return self.ended_ms

    @property
    def timeout_ms(self) -> int:
        """Returns the time limit of a task (R14)."""
        plain = max(self.spec.limits.seconds * 1000 * _TIMEOUT_BATCHES, _TIMEOUT_MS_MIN)
        return int(plain << min(self.timeouts, 10))

    @property
    def resumes_at_ms(self) -> int | None:
        """When a pause ends by itself, None when it does not (R34)."""
        if self.state != PAUSED or self.pause_kind != BY_SYSTEM:
            return None
        return self.paused_ms + min(_RESUME_AFTER_MS << min(self.auto_resumes, 16), _RESUME_AFTER_MS_MAX)

    # ------------------------------------------------------------------------------------------ states

    def to(self, state: str) -> RoutineJob:
        """Returns the job in another state.

        Raises:
            InvalidInputError: there is no way there (R5).
        """
        if state not in _MAY_BECOME.get(self.state, ()):
            raise InvalidInputError(
                f"Could not transform {self.state} to {state}", kind="bad_state", job=self.spec.name
            )
        ended = now_ms() if state in FINAL else 0
        return replace(self, state=state, ended_ms=ended)

    def paused(self, kind: str, reason: str) -> RoutineJob:
        """Returns the job as paused, without tasks and with the reason (R6, R33)."""
        return replace(self.to(PAUSED), tasks={}, paused_ms=now_ms(), pause_kind=kind, reason=reason)

    def resumed(self, *, by_itself: bool = False) -> RoutineJob:
        """Returns the job as resumed, without tasks (R6, R34).

        A job that was not paused is scheduled again; the error window continues (R16).
        """
        statistic = replace(self.statistic, error_rows_after_resumed=0)
        resumes = self.auto_resumes + 1 if by_itself else 0
        return replace(
            self.to(NEED_SCHEDULE),
            tasks={},
            paused_ms=0,
            resumed_ms=now_ms(),
            pause_kind="",
            reason="",
            statistic=self.statistic if by_itself else statistic,
            auto_resumes=resumes,
        )

    def stopped(self) -> RoutineJob:
        return replace(self.to(STOPPED), tasks={}, reason="", owner=NO_OWNER)

    def cancelled(self, reason: str) -> RoutineJob:
        """Returns the job as cancelled, without tasks or owner (R8)."""
        return replace(self.to(CANCELLED), tasks={}, reason=reason, owner=NO_OWNER)

    def taken_over(self, owner: Owner) -> RoutineJob:
        """Returns the job with another process as its owner.

        Tasks of the previous owner cannot commit any more (R12).
        """
        state = NEED_SCHEDULE if self.state == RUNNING else self.state
        return replace(self, state=state, owner=owner, tasks={})

    # ------------------------------------------------------------------------------------------ tasks

    def divided(
        self, first_offsets: Mapping[str, int], latest: Mapping[str, int], source_id: str = ""
    ) -> RoutineJob:
        """Returns the RUNNING job with its partitions dealt to tasks round robin (R9).

        Args:
            first_offsets: where new partitions begin.
            latest: ends of all partitions.
            source_id: of the log they are of.
        """
        progress = {**first_offsets, **self.progress}
        names = sorted(latest, key=lambda name: (len(name), name))
        count = min(len(names), self.spec.limits.concurrency, CONCURRENCY_MAX)
        now = now_ms()
        tasks = {str(uuid.uuid4()): Task(tuple(names[i::count]), now) for i in range(count)}
        return replace(
            self.to(RUNNING), source_id=source_id, progress=progress, latest=dict(latest), tasks=tasks
        )

    def started(self, task_id: str, txn_id: int) -> RoutineJob:
        """Records the transaction and the start time of a task (R37)."""
        if task_id not in self.tasks:
            return self
        begun = replace(self.tasks[task_id], txn_id=txn_id, started_ms=now_ms())
        return replace(self, tasks={**self.tasks, task_id: begun})

    def committed(self, task_id: str, txn_id: int, label: str, batch: Batch) -> RoutineJob:
        """Returns the job after a task's rows, in the transaction that publishes them (R11).

        Raises:
            InvalidInputError: the task is none of the job's any more (R12).
        """
        if self.state != RUNNING or task_id not in self.tasks:
            raise InvalidInputError(
                f"txn {txn_id} could not be COMMITTED while task {label} has been aborted.",
                kind="task_aborted",
                job=self.spec.name,
            )
        progress = {**self.progress, **batch.offsets}
        urls = (*self.error_urls, batch.error_url) if batch.error_url else self.error_urls
        moved = replace(
            self,
            progress=progress,
            latest={name: max(self.latest.get(name, 0), end) for name, end in progress.items()},
            tasks=_renewed(self.tasks, task_id),
            statistic=_counted(self.statistic, batch),
            error_urls=urls[-_ERROR_URLS_KEPT:],
            other_message=batch.note or self.other_message,
            auto_resumes=0,
            timeouts=0,
        )
        return _within_budget(moved, batch.unkept)

    def aborted(self, task_id: str, reason: str, *, timed_out: bool = False) -> RoutineJob:
        """Renews a failed task, from unchanged offsets (R13)."""
        statistic = replace(self.statistic, aborted_tasks=self.statistic.aborted_tasks + 1)
        tasks = _renewed(self.tasks, task_id) if task_id in self.tasks else self.tasks
        return replace(
            self,
            tasks=tasks,
            statistic=statistic,
            other_message=reason,
            timeouts=self.timeouts + timed_out,
        )


def _renewed(tasks: Mapping[str, Task], task_id: str) -> dict[str, Task]:
    kept = {name: task for name, task in tasks.items() if name != task_id}
    return {**kept, str(uuid.uuid4()): Task(tasks[task_id].partitions, now_ms())}


def _counted(before: Statistic, batch: Batch) -> Statistic:
    return replace(
        before,
        received_bytes=before.received_bytes + batch.bytes,
        error_rows=before.error_rows + batch.filtered,
        loaded_rows=before.loaded_rows + batch.loaded,
        unselected_rows=before.unselected_rows + batch.unselected,
        committed_tasks=before.committed_tasks + 1,
        task_ms=before.task_ms + batch.milliseconds,
        error_rows_after_resumed=before.error_rows_after_resumed + batch.filtered,
        window_rows=before.window_rows + batch.loaded + batch.filtered + batch.unselected,
        window_error_rows=before.window_error_rows + batch.filtered,
    )


def _within_budget(job: RoutineJob, unkept: int) -> RoutineJob:
    """Pauses a job that exceeds its error budget; the batch that exceeded it is kept (R16).

    Args:
        unkept: bad rows that are not among the dead letters of a job that keeps them. The job bears as many
            bad rows as are kept, and none of the others, unless it has a limit of its own (DL2).
    """
    limits, found = job.spec.limits, job.statistic
    is_over = found.window_error_rows > limits.errors_max or (
        found.window_rows > 0 and found.window_error_rows / found.window_rows > limits.error_ratio_max
    )
    is_lossy = unkept > 0 and limits.errors_max == UNLIMITED
    if is_over or is_lossy or found.window_rows > limits.rows * _WINDOW_BATCHES:
        job = replace(job, statistic=replace(found, window_rows=0, window_error_rows=0))
    if is_over:
        return job.paused(BY_ERRORS, TOO_MANY_ERRORS)
    return job.paused(BY_ERRORS, _UNKEPT.format(unkept)) if is_lossy else job
