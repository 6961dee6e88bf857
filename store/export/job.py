"""The records of EXPORT TABLE: jobs that end with the process that runs them.

A record has no keys of its target, because no other process goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.job_record import CANCELLED, NO_OWNER, JobRecord, Owner
from seqstore.store.catalog.job_store import JobStore
from seqstore.store.catalog.reserved_tables import FINAL_STATES
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import InvalidInputError, LabelExistsError, NotFoundError

KIND: Final = "export"
EXPORTING: Final = "EXPORTING"
FINISHED: Final = "FINISHED"
USER_CANCEL: Final = "user cancelled"
OWNER_ENDED: Final = "the process that ran it has ended; files that it had completed are left"


@dataclass(frozen=True)
class ExportJob(JobRecord):
    """One EXPORT TABLE.

    Attributes:
        table: name within the database.
        path: where the files go, without keys.
        form, columns, where: of the statement; `columns` and `where` may be empty.
        files, rows, bytes, url: what was written.
        message: why it was cancelled.
    """

    final_states: ClassVar[frozenset[str]] = frozenset(FINAL_STATES)
    db: str
    table: str
    label: str
    path: str
    form: str
    columns: str
    where: str
    state: str
    owner: Owner
    created_ms: int
    timeout_seconds: int
    finished_ms: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    url: str = ""
    message: str = ""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ExportJob:
        return cls(**{**record, "owner": tuple(record["owner"])})

    @property
    def database(self) -> str:
        return self.db

    @property
    def name(self) -> str:
        return self.label

    @property
    def end_ms(self) -> int:
        return self.finished_ms

    @property
    def is_late(self) -> bool:
        """Whether the job has not ended within its time."""
        return now_ms() - self.created_ms > self.timeout_seconds * 1000

    def taken_over(self, owner: Owner) -> ExportJob:
        """Returns the job as it ends when its process has."""
        return self.cancelled(OWNER_ENDED)

    def cancelled(self, reason: str) -> ExportJob:
        """Returns the job ended for a reason; an ended one stays as it is."""
        if self.has_ended:
            return self
        return replace(self, state=CANCELLED, owner=NO_OWNER, finished_ms=now_ms(), message=reason)


class ExportJobs(JobStore[ExportJob]):
    """The exports of one store."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog, KIND, ExportJob)

    def all(self, database: str | None = None, name: str | None = None) -> dict[int, ExportJob]:
        """Returns jobs by number, oldest first; jobs whose process has ended are cancelled before."""
        found = super().all(database, name)
        for job_id, job in found.items():
            if job.is_abandoned:
                found[job_id] = self.change(job_id, lambda job: job.cancelled(OWNER_ENDED))
        return found

    def cancel(self, database: str, matches: Callable[[ExportJob], bool]) -> int:
        """Cancels running jobs of a database and returns their count.

        Raises:
            NotFoundError: no job matches.
            InvalidInputError: all of them have ended.
        """
        found = {job_id: job for job_id, job in self.all(database).items() if matches(job)}
        if not found:
            raise NotFoundError(f"Export job does not exist in database {database}", kind="unknown_job")
        running = [job_id for job_id, job in found.items() if not job.has_ended]
        ended = [self.change(job_id, lambda job: job.cancelled(USER_CANCEL)) for job_id in running]
        count = sum(job.message == USER_CANCEL for job in ended)
        if not count:
            raise InvalidInputError("All export job(s) are at final state", kind="job_ended")
        return count

    def _check_new(self, tx: CatalogTransaction, job: ExportJob) -> None:
        for record in self._records.all_within(tx).values():
            if (record["db"], record["label"]) == (job.db, job.label) and record["state"] != CANCELLED:
                raise LabelExistsError(
                    f"Label {job.label} have already been used", database=job.db, label=job.label
                )
