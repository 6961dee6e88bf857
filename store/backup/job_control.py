"""How the steps of a running job reach its record: their checks, notes and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqstore.store.backup.job import TransferJob
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.job_record import CANCELLED
from seqstore.store.catalog.job_store import JobStore
from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.process_identity import this_process


class Stopped(Exception):
    """A job must not go on here: it was cancelled or taken over, or the handle is closed."""


class JobControl:
    """The control of one job.

    Args:
        is_closing: returns whether the handle that runs it is being closed.
    """

    def __init__(self, jobs: JobStore[Any], job_id: int, is_closing: Callable[[], bool]) -> None:
        self._jobs = jobs
        self._id = job_id
        self._is_closing = is_closing

    def check(self) -> None:
        """Raises when the job must not go on."""
        if self._is_closing():
            raise Stopped
        self._require(self._jobs.get(self._id))

    def _require(self, job: TransferJob) -> None:
        if job.has_ended or job.owner != this_process():
            raise Stopped
        if job.is_late:
            raise InvalidInputError(f"timeout: it ran longer than {job.timeout_seconds} s", kind="timeout")

    def enter(self, change: Callable[[Any], Any]) -> None:
        """Changes the job's record, unless it was cancelled meanwhile."""

        def changed(job: TransferJob) -> TransferJob:
            self._require(job)
            found: TransferJob = change(job)
            return found

        self._jobs.change(self._id, changed)

    def finish(self, tx: CatalogTransaction) -> None:
        """Stores the job's end as a part of a transaction; raises when the job was cancelled."""

        def finished(job: TransferJob) -> TransferJob:
            self._require(job)
            return job.finished()

        self._jobs.change_within(tx, self._id, finished)

    def is_cancelled(self) -> bool:
        """Returns whether the job was cancelled, or its time is over."""
        job = self._jobs.get(self._id)
        return job.state == CANCELLED or (not job.has_ended and job.is_late)
