"""Running one routine load: rounds of tasks, each from the catalog's record of the job to the next.

A round:

1. A job whose table or database was dropped is cancelled (R8). A pause of the system ends after its time
   (R34). This process becomes the owner of a job that no living process runs, which fences its earlier tasks
   (R12).
2. The source returns the bounds of its partitions. New partitions begin at the offsets of the job (R26) and
   are dealt to tasks (R9). An offset outside the bounds pauses the job, or is moved with a message where the
   job has a reset policy (R27). A source that does not answer pauses the job until it does (R34).
3. The tasks with offsets to read run side by side. The round ends when all have ended or timed out; a task
   that timed out is replaced, so it cannot commit any more (R13, R14).

Only the open source outlives a round: the record in the catalog is the truth.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import traceback
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
)
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.offsets import offset_trouble, recreated_trouble, spans_of
from seqstore.loaders.routine.open_source import secrets_of
from seqstore.loaders.routine.source import Bounds, Source, Span
from seqstore.loaders.routine.task import TaskRun
from seqstore.loaders.routine.topics import joined, recreated
from seqstore.store.catalog.catalog import find_database
from seqstore.store.catalog.job_record import NO_OWNER
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import InvalidInputError, NotFoundError, StoreError
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.runtime.secrets.words import without_values
from seqstore.store.store import Store
from seqstore.store.table import Table

OpenSource = Callable[[Store, int, RoutineJob], Source]
_log: Final = logging.getLogger(__name__)
_JSON_PATHS: Final = re.compile(r"json ?path", re.IGNORECASE)


@dataclass(frozen=True)
class Round:
    """The result of a round.

    Attributes:
        committed, failed: tasks.
        is_full: a batch ended at its limits, so more rows are ready.
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
        self._secrets: Mapping[str, str] = {}

    def look(self) -> RoutineJob:
        """Performs step 1 of the module. A job that another living process runs stays unchanged."""
        job = self._jobs.get(self._job_id)
        if job.has_ended or not (job.owner == this_process() or job.is_abandoned):
            return job
        missing = self._missing(job)
        if missing:
            return self._change(lambda job: job if job.has_ended else job.cancelled(missing))
        if job.resumes_at_ms is not None and job.resumes_at_ms <= now_ms():
            job = self._change(lambda job: job.resumed(by_itself=True) if job.state == PAUSED else job)
        if job.owner != this_process():
            job = self._jobs.take_over(self._job_id, this_process())
        return job

    def is_ours(self, job: RoutineJob) -> bool:
        """Returns whether this process runs the rounds of a job."""
        return job.owner == this_process() and job.state in (NEED_SCHEDULE, RUNNING)

    def round(self) -> Round:
        """Runs one round: steps 1 to 3 of the module."""
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
        waiting = {task_id: spans_of(job, task) for task_id, task in job.tasks.items()}
        wanted = {task_id: spans for task_id, spans in waiting.items() if spans}
        if job.state != RUNNING or not wanted:
            return Round()
        return self._run_tasks(job, source, wanted)

    def release(self) -> None:
        """Leaves the job to the next runner."""
        self._close_source()
        self._change(lambda job: job.taken_over(NO_OWNER) if job.owner == this_process() else job)

    # ------------------------------------------------------------------------------------------ scheduling

    def _missing(self, job: RoutineJob) -> str:
        """Returns the loss that cancels the job (R8), empty when its database and table exist."""
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

    def _change(self, change: Callable[[RoutineJob], RoutineJob]) -> RoutineJob:
        return self._jobs.change(self._job_id, change)

    def _source_for(self, job: RoutineJob) -> Source:
        """Returns the open source, made anew when the job was altered."""
        wanted = (job.spec, job.wanted_offsets)
        if self._source is None or wanted != self._source_of:
            self._close_source()
            self._secrets = secrets_of(self._store, job)
            self._source, self._source_of = self._open_source(self._store, self._job_id, job), wanted
        return self._source

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _scheduled(self, job: RoutineJob, source: Source, bounds: Mapping[str, Bounds]) -> RoutineJob:
        """Performs step 2 of the module: offsets and tasks follow the bounds of the source."""
        identity = source.identity()
        job = self._with_valid_offsets(job, bounds, identity)
        divided = {name for task in job.tasks.values() for name in task.partitions}
        if job.state == RUNNING and divided != set(bounds):
            job = self._change(lambda job: job.to(NEED_SCHEDULE) if job.state == RUNNING else job)  # R26
        latest = {name: found.latest for name, found in bounds.items()}
        if job.state == NEED_SCHEDULE:
            new = [name for name in bounds if name not in job.progress]
            first = source.first_offsets(new, bounds) if new else {}
            return self._change(
                lambda job: (
                    job.divided(first, latest, joined(job.source_id, identity))
                    if job.state == NEED_SCHEDULE
                    else job
                )
            )
        if job.latest == latest:
            return job
        return self._change(lambda job: replace(job, latest=latest) if job.state == RUNNING else job)

    def _with_valid_offsets(self, job: RoutineJob, bounds: Mapping[str, Bounds], identity: str) -> RoutineJob:
        """Moves offsets that the source does not have, or pauses the job.

        A change is made only to the job that was judged. A job that was altered since is judged again.
        """
        gone = recreated(job.source_id, identity, job.progress)
        trouble = recreated_trouble(job, bounds, gone) if gone else offset_trouble(job, bounds)
        if not trouble.reason:
            return job
        if not trouble.moved:
            paused = self._pause(CANNOT_RESUME, trouble.reason, judged=job)
            return (
                paused if _is_as_judged(paused, job) else self._with_valid_offsets(paused, bounds, identity)
            )
        kept = {name: offset for name, offset in job.progress.items() if name not in gone}
        progress = {**kept, **trouble.moved}
        moved = self._change(
            lambda now: (
                replace(
                    now,
                    source_id=joined(now.source_id, identity),
                    progress=progress,
                    other_message=trouble.reason,
                )
                if _is_as_judged(now, job)
                else now
            )
        )
        if moved.progress != progress:
            return self._with_valid_offsets(moved, bounds, identity)
        _log.warning("routine load %s: %s", job.spec.name, trouble.reason)
        return moved

    def _pause(
        self, kind: str, reason: str, error: BaseException | None = None, judged: RoutineJob | None = None
    ) -> RoutineJob:
        reason = self._hidden(reason)
        self._warn("routine load job %d is paused: %s", self._job_id, reason)
        if error is not None and not isinstance(error, (StoreError, OSError)):
            self._warn("from there: %s", "".join(traceback.format_exception(error)))
        return self._change(
            lambda job: (
                job.paused(kind, reason)
                if job.state in (NEED_SCHEDULE, RUNNING) and (judged is None or _is_as_judged(job, judged))
                else job
            )
        )

    # ------------------------------------------------------------------------------------------ tasks

    def _run_tasks(self, job: RoutineJob, source: Source, wanted: Mapping[str, list[Span]]) -> Round:
        """Performs step 3 of the module: runs the tasks side by side."""
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
                reason = f"the task ran longer than {job.timeout_ms // 1000} s and was replaced"
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
            trace = "".join(traceback.format_exception(error))
            self._warn("a task of routine load %s failed: %s", job.spec.name, trace)
            self._abort(task_id, _text(error))

    def _warn(self, message: str, *values: object) -> None:
        """Logs a warning without the job's secrets, which Kafka repeats in its messages."""
        secrets = self._jobs.get(self._job_id).spec.source_properties
        _log.warning("%s", self._hidden(without_values(message % values, secrets)))

    def _hidden(self, text: str) -> str:
        """Returns a message without the secrets that the job names."""
        return without_values(text, self._secrets)

    def _abort(self, task_id: str, reason: str, *, timed_out: bool = False) -> None:
        reason = self._hidden(reason)
        self._warn("a task of routine load job %d was aborted: %s", self._job_id, reason)
        self._change(lambda job: job if job.has_ended else job.aborted(task_id, reason, timed_out=timed_out))


def _is_as_judged(now: RoutineJob, judged: RoutineJob) -> bool:
    return (now.spec, now.progress) == (judged.spec, judged.progress)


def _text(error: BaseException) -> str:
    text = error.message if isinstance(error, StoreError) else str(error)
    return text or type(error).__name__
