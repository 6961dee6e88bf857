"""The threads that run the routine loads of a store, in `seqstore serve` and `seqstore routine-load start`.

Each job that has not ended has one thread. It reads the record often: other processes pause and resume jobs
too. A round begins when rows are waiting, but no sooner than `max_batch_interval` after the
one before, so that a steady stream becomes one version an interval; full batches follow each other at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import Final

from seqstore.loaders.jobs.periodic import PeriodicThread
from seqstore.loaders.routine.job import NEED_SCHEDULE, RoutineJob
from seqstore.loaders.routine.job_runner import JobRunner, OpenSource, Round
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.open_source import open_source
from seqstore.store.store import Store

_LOOK_SECONDS: Final = 0.5  # at records, and at sources that had nothing new
_LOOK_SHARE: Final = 10  # a look that finds nothing new may use one of so many seconds of processor time
_FORGET_SECONDS: Final = 60.0  # between two looks for jobs that ended long ago
_AGAIN_SECONDS: Final = 5.0  # after an error of the store
_STOP_SECONDS: Final = 30.0  # what tasks get to finish; those that need longer are aborted
_log: Final = logging.getLogger(__name__)


class RoutineRunner:
    """The jobs of one store.

    Args:
        names: of jobs, as `db.name`; None means all.
    """

    def __init__(
        self,
        store: Store,
        *,
        names: Collection[str] | None = None,
        open_source: OpenSource = open_source,
    ) -> None:
        self._store = store
        self._jobs = RoutineJobs(store.catalog)
        self._names = names
        self._open_source = open_source
        self._scheduler = PeriodicThread("routine loads", self._schedule, _LOOK_SECONDS)
        self._ending = self._scheduler.ending
        self._threads: dict[int, threading.Thread] = {}
        self._forgets_at = -_FORGET_SECONDS

    def start(self) -> None:
        """Runs jobs, those made later too, until `stop`."""
        self._scheduler.start()

    def stop(self) -> None:
        """Lets running tasks finish, and leaves the jobs to the next runner."""
        self._scheduler.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads.values():
            thread.join(max(deadline - time.monotonic(), 0))

    def drain(self) -> dict[int, RoutineJob]:
        """Runs every job until its source is exhausted or the job stops running.

        Returns:
            The jobs, by number.
        """
        runners = {job_id: JobRunner(self._store, job_id, self._open_source) for job_id in self._wanted()}
        for runner in runners.values():
            try:
                done = runner.round()
                while done.committed and not done.failed:
                    done = runner.round()
            finally:
                runner.release()
        return {job_id: self._jobs.get(job_id) for job_id in runners}

    def _wanted(self) -> list[int]:
        return [
            job_id
            for job_id, job in self._jobs.living().items()
            if self._names is None or f"{job.database}.{job.name}" in self._names
        ]

    def _schedule(self) -> None:
        wanted = self._wanted()
        for job_id in [job_id for job_id, thread in self._threads.items() if not thread.is_alive()]:
            del self._threads[job_id]
        for job_id in wanted:
            if job_id not in self._threads:
                thread = threading.Thread(
                    target=self._run_job, args=(job_id,), name=f"routine load {job_id}", daemon=True
                )
                self._threads[job_id] = thread
                thread.start()
        if time.monotonic() >= self._forgets_at:  # which reads all of them
            self._forgets_at = time.monotonic() + _FORGET_SECONDS
            self._jobs.forget_ended(self._store.settings.label_keep_seconds)

    def _run_job(self, job_id: int) -> None:
        try:
            self._run_rounds(JobRunner(self._store, job_id, self._open_source))
        except Exception:  # such as a full catalog; the job is looked at again
            _log.exception("routine load job %d cannot be run", job_id)
            self._ending.wait(_AGAIN_SECONDS)

    def _run_rounds(self, runner: JobRunner) -> None:
        due = 0.0
        while not self._ending.is_set():
            job = runner.look()
            if job.has_ended:
                break
            done, pause = Round(), _LOOK_SECONDS
            if runner.is_ours(job) and (job.state == NEED_SCHEDULE or time.monotonic() >= due):
                begun, used = time.monotonic(), time.thread_time()
                done = runner.round()
                has_run = done.committed or done.failed
                due = begun + job.spec.limits.seconds if has_run else begun
                if not has_run:  # a directory of very many files takes a second to list
                    pause = max(pause, (time.thread_time() - used) * _LOOK_SHARE)
            if done.is_full:
                due = 0.0
            else:
                self._ending.wait(pause)
        runner.release()
