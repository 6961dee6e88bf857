"""The broker loads of a store: their turns and their cancellation (B9, B17)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from seqstore.loaders.broker.job import COMMITTED, LOADING, OWNER_ENDED, PENDING, LoadJob
from seqstore.loaders.broker.spec import PRIORITIES
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.job_store import JobStore
from seqstore.store.errors import InvalidInputError, NotFoundError


class LoadJobs(JobStore[LoadJob]):
    """The jobs of one store."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog, "broker", LoadJob)

    def all(self, database: str | None = None, name: str | None = None) -> dict[int, LoadJob]:
        """Returns jobs by number, oldest first; jobs whose process has ended are cancelled before."""
        found = super().all(database, name)
        for job_id, each in found.items():
            if each.is_abandoned:
                found[job_id] = self.change(
                    job_id, lambda job: job.cancelled(OWNER_ENDED) if job.is_abandoned else job
                )
        return found

    def cancel(self, database: str, label: str, matches: Callable[[LoadJob], bool] | None = None) -> int:
        """Cancels running jobs (B17) and returns their count.

        Args:
            label: theirs, or the pattern that `matches` decides.
            matches: which jobs of the database are meant; None means those with the label.

        Raises:
            NotFoundError: no such job.
            InvalidInputError: all of them have ended, or are being committed.
        """
        found = {
            job_id: job
            for job_id, job in self.all(database).items()
            if (job.name == label if matches is None else matches(job))
        }
        if not found:
            raise NotFoundError(
                f"Load job does not exist: label [{label}] in database {database}", kind="unknown_job"
            )
        asked = 0
        too_late: InvalidInputError | None = None
        for job_id, job in found.items():
            if job.has_ended:
                continue
            try:
                asked += not self.change(job_id, _cancelling).has_ended
            except InvalidInputError as error:  # being committed: the others can still be stopped
                too_late = error
        if not asked:
            raise too_late or InvalidInputError(
                "Job could not be cancelled when job is finished or cancelled", kind="job_ended"
            )
        return asked

    def may_start(self, job_id: int, running_max: int) -> bool:
        """Returns whether a waiting job is the next one: by priority, then by age (B9)."""
        jobs = self.all()
        if sum(job.state in (LOADING, COMMITTED) for job in jobs.values()) >= running_max:
            return False
        waiting = [i for i, job in jobs.items() if job.state == PENDING]
        waiting.sort(key=lambda i: (PRIORITIES.index(jobs[i].spec.priority), i))
        return waiting[:1] == [job_id]


def _cancelling(job: LoadJob) -> LoadJob:
    """Marks a job as cancelled; called within the change of its record, for the job may commit meanwhile."""
    if job.state == COMMITTED:
        raise InvalidInputError("Job could not be cancelled while txn is committing", kind="job_committing")
    return job if job.has_ended else replace(job, is_cancelling=True)
