"""The records of schema changes: those whose rows are written anew in the background, and those done at once.

FINISHED is written in the transaction that publishes the new revision. So a job in any other state whose
process died has published nothing: another process runs it again from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.job_record import CANCELLED, NO_OWNER, JobRecord, Owner
from seqstore.store.catalog.job_store import JobStore
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import InvalidInputError

PENDING: Final = "PENDING"
WAITING_TXN: Final = "WAITING_TXN"
RUNNING: Final = "RUNNING"
FINISHED: Final = "FINISHED"
ATTEMPTS_MAX: Final = 3  # a job that ends every process that runs it must not run for ever
TIMEOUT_SECONDS: Final = 24 * 3600
_KIND: Final = "schema_change"


@dataclass(frozen=True)
class SchemaChangeJob(JobRecord):
    """One change of one table.

    Attributes:
        table: `database.table` when it was submitted.
        owner: process id and start time of the process that runs it; zeros while none does.
        revision: of the schema that it changes.
        schema: record of the new schema; None once the job has ended.
        changes: in words, for the history.
        watershed: transactions with smaller ids end before rows are written.
        attempts: how often it was begun.
        version: that it made, 0 before.
        message: why it was cancelled.
    """

    final_states: ClassVar[frozenset[str]] = frozenset([FINISHED, CANCELLED])
    table: str
    table_id: int
    state: str
    owner: Owner
    created_ms: int
    revision: int
    schema: Mapping[str, Any] | None = None
    changes: tuple[str, ...] = ()
    watershed: int = 0
    attempts: int = 1
    rows_total: int = 0
    rows_done: int = 0
    finished_ms: int = 0
    version: int = 0
    message: str = ""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> SchemaChangeJob:
        made = {"owner": tuple(record["owner"]), "changes": tuple(record["changes"])}
        return cls(**{**record, **made})

    @property
    def database(self) -> str:
        return self.table.partition(".")[0]

    @property
    def name(self) -> str:
        return self.table.partition(".")[2]

    @property
    def end_ms(self) -> int:
        return self.finished_ms

    @property
    def is_late(self) -> bool:
        """Whether the job has not ended within its time."""
        return now_ms() - self.created_ms > TIMEOUT_SECONDS * 1000

    def taken_over(self, owner: Owner) -> SchemaChangeJob:
        """Returns the job as it was when it was new; a job that was begun too often is cancelled."""
        if self.attempts >= ATTEMPTS_MAX:
            return self.cancelled(f"every process that ran it ended, {self.attempts} times")
        new = replace(self, owner=owner, attempts=self.attempts + 1)
        return replace(new, state=PENDING, rows_done=0, rows_total=0)

    def released(self) -> SchemaChangeJob:
        """Returns the job for another process to run, because this one ends in good order."""
        return replace(self, state=PENDING, owner=NO_OWNER, attempts=self.attempts - 1)

    def cancelled(self, reason: str) -> SchemaChangeJob:
        return replace(
            self, state=CANCELLED, owner=NO_OWNER, schema=None, finished_ms=now_ms(), message=reason
        )

    def finished(self, version: int) -> SchemaChangeJob:
        done = replace(self, state=FINISHED, owner=NO_OWNER, schema=None, finished_ms=now_ms())
        return replace(done, version=version, rows_done=self.rows_total)


class SchemaChangeJobs(JobStore[SchemaChangeJob]):
    """The schema changes of one store."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog, _KIND, SchemaChangeJob)


def refuse_during_change(tx: CatalogTransaction, table_id: int, name: str) -> None:
    """Checks that no schema change of a table is under way.

    Args:
        name: `database.table`, for the message.

    Raises:
        InvalidInputError: one is.
    """
    for key, record in tx.records("jobs"):
        if record["kind"] != _KIND:
            continue
        job = SchemaChangeJob.from_record(record["job"])
        if job.table_id == table_id and not job.has_ended:
            raise InvalidInputError(
                f"Table[{name.partition('.')[2]}]'s state(SCHEMA_CHANGE) is not NORMAL. Do not allow doing "
                f"ALTER ops: job {int.from_bytes(key)} writes its rows anew; wait for its end (SHOW ALTER "
                f"TABLE COLUMN), or CANCEL ALTER TABLE COLUMN FROM {name}",
                kind="schema_change",
                table=name,
            )
