"""The routine loads of a store, found by their names."""

from __future__ import annotations

from collections.abc import Iterable

from seqstore.loaders.routine.job import Batch, RoutineJob
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.job_store import JobStore
from seqstore.store.errors import AlreadyExistsError, NotFoundError


class RoutineJobs(JobStore[RoutineJob]):
    """The jobs of one store."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog, "routine", RoutineJob)

    def _check_new(self, tx: CatalogTransaction, job: RoutineJob) -> None:
        """Raises AlreadyExistsError when a job of that name has not ended (R2)."""
        for other in self._jobs_of(self._records.all_within(tx)).values():
            if (other.database, other.name) == (job.database, job.name) and not other.has_ended:
                raise AlreadyExistsError(
                    f"Name {job.name} already used in db {job.database}; stop that routine load or choose "
                    "another name",
                    kind="job_exists",
                )

    def find(self, database: str, name: str) -> tuple[int, RoutineJob]:
        """Returns the job of a name: the one that has not ended, else the last that has.

        Raises:
            NotFoundError: there is none.
        """
        found = self.all(database, name)
        if not found:
            raise unknown_job(database, name)
        living = [job_id for job_id, job in found.items() if not job.has_ended]
        job_id = living[-1] if living else max(found)
        return job_id, found[job_id]

    def commit_within(
        self, tx: CatalogTransaction, job_id: int, task_id: str, txn_id: int, label: str, batch: Batch
    ) -> None:
        """Moves a job by the batch of one of its tasks (R11).

        Raises:
            InvalidInputError: the task no longer belongs to the job (R12).
        """
        self.change_within(tx, job_id, lambda job: job.committed(task_id, txn_id, label, batch))
        for name, offset in batch.marks:
            self._records.mark_within(tx, job_id, name, offset)

    def marked(self, job_id: int, names: Iterable[str]) -> set[str]:
        """Returns those of some names that tasks stored beside a job."""
        return self._records.marked(job_id, names)

    def marks(self, job_id: int) -> dict[str, int]:
        """Returns the marks that tasks stored beside a job, by name."""
        return self._records.marks(job_id)


def unknown_job(database: str, name: str) -> NotFoundError:
    """Returns the error for a job that does not exist, or not for the user."""
    return NotFoundError(
        f"There is not routine load job with name {name} in database {database}", kind="unknown_job"
    )
