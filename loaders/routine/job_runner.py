"""Running one routine load: rounds of tasks, each from the catalog's record of the job to the next.

A round:

1. A job whose table or database is gone is cancelled (R8). A pause of the system that has lasted long enough
   ends (R34). A job that no living process runs is taken over, which fences its earlier tasks (R12).
2. The source tells what its partitions hold. New partitions begin where the job says (R26) and are dealt to
   tasks (R9). An offset that is gone or beyond the end pauses the job, or, if the job says so, moves it and
   tells (R27). A source that cannot be asked pauses the job until it can (R34).
3. The tasks that have something to read run side by side. The round ends when all have ended or taken too
   long; one that took too long is replaced, so it cannot commit any more (R13, R14).

Nothing is remembered between rounds but the open source: the record in the catalog is the truth.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from seqstore.loaders.routine.job import (
    BY_SYSTEM,
    CANNOT_RESUME,
    NEED_SCHEDULE,
    PAUSED,
    RUNNING,
    RoutineJob,
    Task,
)
from seqstore.loaders.routine.jobs import Change, RoutineJobs
from seqstore.loaders.routine.source import Bounds, Source, Span
from seqstore.loaders.routine.task import TaskRun
from seqstore.store.catalog.catalog import find_database
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import InvalidInputError, NotFoundError, StoreError
from seqstore.store.runtime.process_identity import is_alive, this_process
from seqstore.store.store import Store
from seqstore.store.table import Table

OpenSource = Callable[[Store, int, RoutineJob], Source]
_log: Final = logging.getLogger(__name__)
_JSON_PATHS: Final = re.compile(r"json ?path", re.IGNORECASE)


@dataclass(frozen=True)
class Round:
    """What came of a round.

    Attributes:
        committed, failed: tasks.
        is_full: a batch ended at its limits, so there is more to be had at once.
    """

    committed: int = 0
    failed: int = 0
    is_full: bool = False


class JobRunner:
    """Runs rounds of one job; use from one thread.

    Args:
        open_source: makes the source that a job names.
    """

    def __init__(self, store: Store, job_id: int, open_source: OpenSource) -> None:
        self._store = store
        self._jobs = RoutineJobs(store.catalog)
        self._job_id = job_id
        self._open_source = open_source
        self._source: Source | None = None
        self._source_of: object = None

    def look(self) -> RoutineJob:
        """Step 1 of the module. A job that another living process runs is left as it is."""
        job = self._jobs.get(self._job_id)
        if job.has_ended or not self._may_run(job):
            return job
        missing = self._missing(job)
        if missing:
            return self._change(lambda job: job if job.has_ended else job.cancelled(missing))
        if job.resumes_at_ms is not None and job.resumes_at_ms <= now_ms():
            job = self._change(lambda job: job.resumed(by_itself=True) if job.state == PAUSED else job)
        if job.owner != this_process():
            job = self._change(lambda job: job.taken_over(this_process()) if self._may_run(job) else job)
        return job

    def is_ours(self, job: RoutineJob) -> bool:
        """Whether this process is to run rounds of it."""
        return job.owner == this_process() and job.state in (NEED_SCHEDULE, RUNNING)

    def round(self) -> Round:
        """See the module."""
        job = self.look()
        if not self.is_ours(job):
            return Round()
        try:
            source = self._source_for(job)
            job = self._scheduled(job, source, source.bounds())
        except Exception as error:
            self._pause(BY_SYSTEM, _text(error), error)
            self._close_source()  # what it is made of may be what failed
            return Round()
        waiting = {task_id: _spans(job, task) for task_id, task in job.tasks.items()}
        wanted = {task_id: spans for task_id, spans in waiting.items() if spans}
        if job.state != RUNNING or not wanted:
            return Round()
        return self._run_tasks(job, source, wanted)

    def release(self) -> None:
        """Leaves the job to whoever comes next."""
        self._close_source()
        self._change(lambda job: job.taken_over((0, 0)) if job.owner == this_process() else job)

    # ------------------------------------------------------------------------------------------ scheduling

    def _missing(self, job: RoutineJob) -> str:
        """What the job was made for and is gone (R8); empty when all is there."""
        with self._store.catalog.read() as tx:
            found = find_database(tx, job.spec.database)
        if found is None or job.database_id not in (0, found):
            return f"database {job.spec.database} does not exist"
        try:
            if not job.spec.is_multi:
                self._store.table_of_id(job.table_id)
        except NotFoundError:
            return "table does not exist"
        return ""

    def _may_run(self, job: RoutineJob) -> bool:
        return job.owner == this_process() or not is_alive(job.owner)

    def _change(self, change: Change) -> RoutineJob:
        return self._jobs.change(self._job_id, change)

    def _source_for(self, job: RoutineJob) -> Source:
        """The open source, made anew when the job was altered."""
        wanted = (job.spec, job.wanted_offsets)
        if self._source is None or wanted != self._source_of:
            self._close_source()
            self._source, self._source_of = self._open_source(self._store, self._job_id, job), wanted
        return self._source

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _scheduled(self, job: RoutineJob, source: Source, bounds: Mapping[str, Bounds]) -> RoutineJob:
        """Step 2 of the module."""
        identity = source.identity()
        is_another = bool(job.source_id and identity) and identity != job.source_id
        trouble, moved = _made_anew(job, bounds) if is_another else _offset_trouble(job, bounds)
        if trouble and not moved:
            return self._pause(CANNOT_RESUME, trouble)
        if moved:
            _log.warning("routine load %s: %s", job.spec.name, trouble)
            kept = {} if is_another else job.progress
            job = self._change(
                lambda job: replace(
                    job, source_id=identity, progress={**kept, **moved}, other_message=trouble
                )
            )
        latest = {name: found.latest for name, found in bounds.items()}
        divided = {name for task in job.tasks.values() for name in task.partitions}
        if job.state == RUNNING and divided != set(bounds):
            job = self._change(lambda job: job.to(NEED_SCHEDULE) if job.state == RUNNING else job)  # R26
        if job.state == NEED_SCHEDULE:
            new = [name for name in bounds if name not in job.progress]
            first = source.first_offsets(new, bounds) if new else {}
            return self._change(
                lambda job: job.divided(first, latest, identity) if job.state == NEED_SCHEDULE else job
            )
        if job.latest != latest:
            job = self._change(lambda job: replace(job, latest=latest) if job.state == RUNNING else job)
        return job

    def _pause(self, kind: str, reason: str, error: BaseException | None = None) -> RoutineJob:
        _log.warning("routine load job %d is paused: %s", self._job_id, reason)
        if error is not None and not isinstance(error, (StoreError, OSError)):
            _log.warning("from there", exc_info=error)
        return self._change(
            lambda job: job.paused(kind, reason) if job.state in (NEED_SCHEDULE, RUNNING) else job
        )

    # ------------------------------------------------------------------------------------------ tasks

    def _run_tasks(self, job: RoutineJob, source: Source, wanted: Mapping[str, list[Span]]) -> Round:
        """Step 3 of the module."""
        table = None if job.spec.is_multi else self._store.table_of_id(job.table_id)
        deadline = time.monotonic() + job.timeout_ms / 1000
        full: dict[str, bool] = {}
        threads = {
            task_id: threading.Thread(
                target=self._run_task,
                args=(job, task_id, table, source, spans, full),
                name=f"routine load {job.spec.name}",
                daemon=True,
            )
            for task_id, spans in wanted.items()
        }
        for thread in threads.values():
            thread.start()
        for task_id, thread in threads.items():
            thread.join(max(deadline - time.monotonic(), 0))
            if thread.is_alive():
                reason = f"the task took longer than {job.timeout_ms // 1000} s and was replaced"
                self._abort(task_id, reason, timed_out=True)
        done = dict(full)
        return Round(len(done), len(threads) - len(done), any(done.values()))

    def _run_task(
        self,
        job: RoutineJob,
        task_id: str,
        table: Table | None,
        source: Source,
        spans: list[Span],
        full: dict[str, bool],
    ) -> None:
        task = TaskRun(self._store, self._jobs, self._job_id, task_id, job.spec, table, source, spans)
        try:
            full[task_id] = task.run()
        except (StoreError, OSError, pa.ArrowException) as error:
            if isinstance(error, InvalidInputError) and _JSON_PATHS.search(error.message):  # R28
                self._pause(CANNOT_RESUME, f"{error.message}; please check the jsonpaths")
            self._abort(task_id, _text(error))
        except Exception as error:  # of Spark and what is below it: there is no class to name
            _log.warning("a task of routine load %s failed", job.spec.name, exc_info=error)
            self._abort(task_id, _text(error))

    def _abort(self, task_id: str, reason: str, *, timed_out: bool = False) -> None:
        _log.warning("a task of routine load job %d was aborted: %s", self._job_id, reason)
        self._change(lambda job: job if job.has_ended else job.aborted(task_id, reason, timed_out=timed_out))


def _spans(job: RoutineJob, task: Task) -> list[Span]:
    """What a task is to read: up to what is known, and no more than a batch may hold."""
    limit = job.spec.limits.rows
    found = [
        Span(name, job.progress[name], min(job.latest.get(name, 0), job.progress[name] + limit))
        for name in task.partitions
        if name in job.progress
    ]
    return [span for span in found if span.start < span.end]


def _offset_trouble(job: RoutineJob, bounds: Mapping[str, Bounds]) -> tuple[str, dict[str, int]]:
    """What is wrong with the offsets of a job, and where its reset policy moves them (R27)."""
    trouble: list[str] = []
    moved: dict[str, int] = {}
    policy = _reset_policy(job)
    for name, offset in job.progress.items():
        found = bounds.get(name)
        if found is None or found.earliest <= offset <= found.latest:
            continue
        if offset < found.earliest:
            what = (
                f"partition {name}: offset out of range: {offset} to {found.earliest - 1} are gone from the "
                f"source, the oldest is {found.earliest}"
            )
        else:
            what = f"partition {name}: offset {offset} is greater than kafka latest offset {found.latest}"
        if policy:
            moved[name] = found.earliest if policy == "earliest" else found.latest
            what += f"; moved to {moved[name]}, for property.auto.offset.reset is {policy}"
        trouble.append(what)
    if not trouble:
        return "", {}
    return "; ".join(trouble) + ("" if moved else _remedy(job)), moved


def _made_anew(job: RoutineJob, bounds: Mapping[str, Bounds]) -> tuple[str, dict[str, int]]:
    """The same for a log that was deleted and made anew: all offsets are those of one that is gone."""
    policy = _reset_policy(job)
    what = (
        f"the topic was deleted and made anew after it was read up to {dict(job.progress)}: offsets of one "
        "say nothing of the other"
    )
    if not policy:
        return f"{what}{_remedy(job)}; give an offset for every partition", {}
    moved = {name: found.earliest if policy == "earliest" else found.latest for name, found in bounds.items()}
    return f"{what}; moved to {moved}, for property.auto.offset.reset is {policy}", moved


def _reset_policy(job: RoutineJob) -> str:
    policy = job.spec.source_properties.get("property.auto.offset.reset", "").lower()
    return policy if policy in ("earliest", "latest") else ""


def _remedy(job: RoutineJob) -> str:
    return (
        f'; ALTER ROUTINE LOAD FOR {job.spec.name} FROM {job.spec.source} ("kafka_partitions" = "..", '
        '"kafka_offsets" = ".."), then RESUME ROUTINE LOAD'
    )


def _text(error: BaseException) -> str:
    text = error.message if isinstance(error, StoreError) else str(error)
    return text or type(error).__name__
