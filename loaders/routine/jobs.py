"""The routine loads of a store: found by name, changed all at once."""

from __future__ import annotations

from collections.abc import Callable

from seqstore.loaders.routine.job import Batch, RoutineJob
from seqstore.store.catalog.catalog import Catalog, CatalogTransaction
from seqstore.store.catalog.jobs import Jobs, Record
from seqstore.store.errors import AlreadyExistsError, NotFoundError

Change = Callable[[RoutineJob], RoutineJob]


class RoutineJobs:
    """Safe to share between threads; nothing is remembered."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._jobs = Jobs(catalog, "routine")

    def add(self, job: RoutineJob) -> int:
        """Keeps a new job; returns its number.

        Raises:
            AlreadyExistsError: a job of that name has not ended (R2).
        """
        with self._catalog.write() as tx:
            for record in self._jobs.all_within(tx).values():
                other = RoutineJob.from_record(record)
                if _name(other) == _name(job) and not other.has_ended:
                    raise AlreadyExistsError(
                        f"Name {job.spec.name} already used in db {job.spec.database}; stop that routine "
                        "load or choose another name",
                        kind="job_exists",
                    )
            return self._jobs.add_within(tx, job.to_record())

    def get(self, job_id: int) -> RoutineJob:
        return RoutineJob.from_record(self._jobs.get(job_id))

    def all(self, database: str | None = None, name: str | None = None) -> dict[int, RoutineJob]:
        """Jobs by number, oldest first."""
        found = {job_id: RoutineJob.from_record(record) for job_id, record in self._jobs.all().items()}
        return {
            job_id: job
            for job_id, job in found.items()
            if database in (None, job.spec.database) and name in (None, job.spec.name)
        }

    def find(self, database: str, name: str) -> tuple[int, RoutineJob]:
        """The job of a name: the one that has not ended, else the last that has.

        Raises:
            NotFoundError: there is none.
        """
        found = self.all(database, name)
        if not found:
            raise NotFoundError(
                f"There is not routine load job with name {name} in database {database}", kind="unknown_job"
            )
        living = [job_id for job_id, job in found.items() if not job.has_ended]
        job_id = living[-1] if living else max(found)
        return job_id, found[job_id]

    def change(self, job_id: int, change: Change) -> RoutineJob:
        """Replaces a job by what a function makes of it; nothing is written when that is the same."""
        return RoutineJob.from_record(self._jobs.change(job_id, _on_record(change)))

    def commit_within(
        self, tx: CatalogTransaction, job_id: int, task_id: str, txn_id: int, label: str, batch: Batch
    ) -> None:
        """Moves a job by what one of its tasks brought (R11).

        Raises:
            InvalidInputError: the task is none of the job's any more (R12).
        """
        self._jobs.change_within(
            tx, job_id, _on_record(lambda job: job.committed(task_id, txn_id, label, batch))
        )
        for name, offset in batch.marks:
            self._jobs.mark_within(tx, job_id, name, offset)

    def remove(self, job_id: int) -> None:
        """Forgets a job and what is kept beside it."""
        self._jobs.remove(job_id)

    def marks(self, job_id: int) -> dict[str, int]:
        """What tasks kept beside a job, by name."""
        return self._jobs.marks(job_id)


def _on_record(change: Change) -> Callable[[Record], Record | None]:
    def changed(record: Record) -> Record | None:
        before = RoutineJob.from_record(record)
        after = change(before)
        return None if after == before else after.to_record()

    return changed


def _name(job: RoutineJob) -> tuple[str, str]:
    return job.spec.database, job.spec.name
