"""The schema changes of a store: what is light is done at once, and the rest by jobs in the background.

A job (maintenance.schema_change_job) is submitted by the transaction that checks its statement. Then

1. PENDING: a thread of the store handle begins it.
2. WAITING_TXN: transactions of the table that began before it end first.
3. RUNNING: the rows are written anew (maintenance.rewrite). Loads and readers continue.
4. FINISHED is stored by the commit that makes the new revision visible. Anything else ends in CANCELLED with
   the reason: a value that does not fit, a user's cancellation, a dropped table, the time-out.

A transaction that overlaps with the commit fails, as with every change of a schema. A handle that is closed
stops its jobs between two parts. They, and those of processes that died, are run from the start by the next
handle of the store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.transaction_record import (
    TransactionRecord,
    TransactionStatus,
    abandoned_reason,
    now_ms,
    read_transaction,
)
from seqstore.store.ddl.alter import Altered, Change, alter
from seqstore.store.errors import (
    CommitUnknownError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnavailableError,
)
from seqstore.store.maintenance.reshaping import Reshaping
from seqstore.store.maintenance.rewrite import Rewrite
from seqstore.store.maintenance.schema_change_job import (
    PENDING,
    RUNNING,
    TIMEOUT_SECONDS,
    WAITING_TXN,
    SchemaChangeJob,
    SchemaChangeJobs,
)
from seqstore.store.maintenance.segment_merge import MergeCancelled
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.internal import internal
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.settings import Settings

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

OPERATION: Final = "SCHEMA CHANGE"
USER_CANCEL: Final = "user cancelled"
_POLL_SECONDS: Final = 0.05
_TRIES: Final = 3
_RETRY_SECONDS: Final = 1.0
_NOTE_SECONDS: Final = 0.5  # between notes of the progress; each is a durable write
_LOG: Final = logging.getLogger(__name__)
# Jobs for which this process has, or will have, a thread: by catalog and number.
_at_work: Final[set[tuple[str, int]]] = set()


class SchemaChanges:
    """The schema changes of one store handle, and the threads that run its jobs.

    Args:
        open_table: returns a table by its id.
    """

    @internal
    def __init__(
        self, catalog: Catalog, open_table: Callable[[int], VersionedTable], settings: Settings
    ) -> None:
        self._catalog = catalog
        self._open_table = open_table
        self._settings = settings
        self._jobs = SchemaChangeJobs(catalog)
        self._lock = new_lock()
        self._threads: dict[int, threading.Thread] = {}
        self._closing = threading.Event()

    def alter(self, table: VersionedTable, changes: Sequence[Change]) -> int | None:
        """Applies changes of columns and properties, all or none.

        Returns:
            The number of the job that writes the rows anew, None where the change is done.

        Raises:
            InvalidInputError: a change that is not possible, or another one is under way.
        """
        submitted: list[int] = []

        def submit(tx: CatalogTransaction, before: TableSchema, altered: Altered) -> None:
            watershed = tx.next_id("txn")
            job = _job(table, before, altered, owner=this_process(), watershed=watershed)
            submitted.append(self._jobs.add_within(tx, job))
            _at_work.add(self._place(submitted[-1]))  # before others see it

        def note(tx: CatalogTransaction, before: TableSchema, altered: Altered, version: int) -> None:
            if altered.schema.columns != before.columns:
                self._jobs.add_within(tx, _job(table, before, altered).finished(version))

        self._jobs.forget_ended(self._settings.label_keep_seconds)
        try:
            alter(table, changes, submit=submit, note=note)
        except CommitUnknownError:  # the job is visible, and the table admits no other change until it ends
            if submitted:
                self._start(submitted[-1])
            raise
        except BaseException:
            _at_work.difference_update(map(self._place, submitted))
            raise
        if not submitted:
            return None
        self._start(submitted[-1])
        return submitted[-1]

    def jobs(self, database: str) -> dict[int, SchemaChangeJob]:
        """Returns the schema changes of a database by number, oldest first."""
        return self._jobs.all(database)

    def job(self, job_id: int) -> SchemaChangeJob:
        """Returns one schema change.

        Raises:
            NotFoundError: there is none of that number.
        """
        return self._jobs.get(job_id)

    def cancel(self, table: VersionedTable) -> int:
        """Cancels the schema change of a table that is under way; returns its number.

        Raises:
            InvalidInputError: there is none.
        """
        for job_id, job in self._jobs.all().items():
            if job.table_id != table.id or job.has_ended:
                continue
            ended = self._jobs.change(
                job_id, lambda job: job if job.has_ended else job.cancelled(USER_CANCEL)
            )
            if ended.message == USER_CANCEL:
                return job_id
        raise InvalidInputError(
            f"Table[{table.name.partition('.')[2]}] is not under SCHEMA_CHANGE: no job of it is running",
            kind="unknown_job",
            table=table.name,
        )

    @internal
    def resume(self) -> None:
        """Runs the jobs of processes that have ended, and of closed handles that could not release them."""
        for job_id, found in self._jobs.all().items():
            if not found.has_ended:
                self._take_over(job_id)

    def _take_over(self, job_id: int) -> None:
        """Runs a job for which no thread of a live process is."""
        place, taken = self._place(job_id), False

        def take(job: SchemaChangeJob) -> SchemaChangeJob:
            nonlocal taken
            is_left = job.owner == this_process() and place not in _at_work
            taken = taken or (not job.has_ended and (job.is_abandoned or is_left))
            if not taken:
                return job
            _at_work.add(place)  # before others see it
            return job.taken_over(this_process())

        try:
            self._jobs.change(job_id, take)
        except CommitUnknownError as error:  # the change is visible
            _LOG.error("schema change %d: %s", job_id, error)
        except BaseException:
            if taken:
                _at_work.discard(place)
            raise
        if taken:
            self._start(job_id)

    def wait(self) -> None:
        """Waits until the jobs of this handle have ended."""
        for thread in list(self._threads.values()):
            thread.join()

    def close(self) -> None:
        """Stops the jobs of this handle; the next handle of the store runs them again."""
        self._closing.set()
        self.wait()

    def _place(self, job_id: int) -> tuple[str, int]:
        return str(self._catalog.path), job_id

    def _start(self, job_id: int) -> None:
        _at_work.add(self._place(job_id))
        with self._lock:
            if self._closing.is_set():
                _at_work.discard(self._place(job_id))
                self._release(job_id)
                return
            thread = threading.Thread(
                target=self._run, args=(job_id,), name=f"seqstore-schema-change-{job_id}"
            )
            self._threads[job_id] = thread
            thread.start()

    def _run(self, job_id: int) -> None:
        try:
            try:
                self._wait_for_transactions(job_id)
                self._rewrite_patiently(job_id)
            except MergeCancelled:
                self._release(job_id)
            except CommitUnknownError as error:  # the next handle finds out
                _LOG.error("schema change %d: %s", job_id, error)
                self._release(job_id)
            except (StoreError, OSError, MemoryError, pa.ArrowException) as error:
                self._cancel(job_id, error.message if isinstance(error, StoreError) else str(error))
            except BaseException as error:
                self._cancel(job_id, f"{type(error).__name__}: {error}")
                raise
        except StoreError as error:  # the catalog cannot be written: the job stays for the next handle
            _LOG.error("schema change %d: %s", job_id, error)
        finally:
            _at_work.discard(self._place(job_id))
            with self._lock:
                self._threads.pop(job_id, None)

    def _cancel(self, job_id: int, reason: str) -> None:
        self._settle(job_id, lambda job: job if job.has_ended else job.cancelled(reason))

    def _release(self, job_id: int) -> None:
        self._settle(
            job_id, lambda job: job.released() if job.owner == this_process() and not job.has_ended else job
        )

    def _settle(self, job_id: int, change: Callable[[SchemaChangeJob], SchemaChangeJob]) -> None:
        """Stores the end of a job's thread, as soon as the catalog can be written: no other thread has it."""
        while True:
            try:
                self._jobs.change(job_id, change)
                return
            except UnavailableError as error:
                if self._is_closing():
                    raise
                _LOG.warning("schema change %d: %s", job_id, error)
                self._closing.wait(_RETRY_SECONDS)

    def _is_closing(self) -> bool:
        # At the interpreter's end the main thread stops first and then waits for this one.
        return self._closing.is_set() or not threading.main_thread().is_alive()

    def _is_stopped(self, job_id: int) -> bool:
        """Returns whether a job must not go on: it was cancelled or taken over, or the handle is closed.

        Raises:
            InvalidInputError: its time is over.
        """
        if self._is_closing():
            return True
        job = self._jobs.get(job_id)
        if job.is_late and not job.has_ended:
            raise InvalidInputError(f"timeout: it ran longer than {TIMEOUT_SECONDS} s", kind="timeout")
        return job.has_ended or job.owner != this_process()

    def _enter(self, job_id: int, state: str) -> SchemaChangeJob:
        """Moves a job to its next state, unless it was cancelled meanwhile."""
        job = self._jobs.change(
            job_id,
            lambda job: job if job.has_ended or job.owner != this_process() else replace(job, state=state),
        )
        if job.state != state:
            raise MergeCancelled
        return job

    def _wait_for_transactions(self, job_id: int) -> None:
        """Waits for transactions of the table that began before the job."""
        job = self._enter(job_id, WAITING_TXN)
        with self._catalog.read() as tx:
            found = [TransactionRecord.from_record(record) for _, record in tx.records("txns")]
            waiting = [each.id for each in found if each.id < job.watershed and _concerns(tx, each, job)]
        while waiting:
            if self._is_stopped(job_id):
                raise MergeCancelled
            with self._catalog.read() as tx:
                left = [read_transaction(tx, txn_id) for txn_id in waiting]
            waiting = [each.id for each in left if each is not None and _runs(each)]
            if waiting:
                self._closing.wait(_POLL_SECONDS)

    def _rewrite_patiently(self, job_id: int) -> None:
        """Writes the rows anew; again after a while when a disk or the writer lock was not available."""
        for left in reversed(range(_TRIES)):
            try:
                return self._rewrite(job_id)
            except UnavailableError as error:
                if not left:
                    raise
                _LOG.warning("schema change %d is tried again: %s", job_id, error)
                self._closing.wait(_RETRY_SECONDS)

    def _rewrite(self, job_id: int) -> None:
        """Writes the rows of the table anew and makes them visible."""
        job = self._enter(job_id, RUNNING)
        assert job.schema is not None
        table = self._table_of(job)
        with self._catalog.read() as tx:
            before = table.loader.schema(tx, job.revision)
        noted = 0.0

        def note(done: int, total: int) -> None:
            nonlocal noted
            if time.monotonic() - noted >= _NOTE_SECONDS:
                noted = time.monotonic()
                with suppress(UnavailableError, CommitUnknownError):  # the rows count, not the note
                    self._jobs.change(job_id, lambda job: replace(job, rows_done=done, rows_total=total))

        def finish(job: SchemaChangeJob, version: int) -> SchemaChangeJob:
            if job.state != RUNNING or job.owner != this_process():
                raise MergeCancelled
            return job.finished(version)

        Rewrite(
            table,
            Reshaping(table.name, before, TableSchema.from_record(job.schema)),
            OPERATION,
            job.changes,
            note,
            lambda: self._is_stopped(job_id),
            lambda tx, version: self._jobs.change_within(tx, job_id, lambda job: finish(job, version)),
        ).run()

    def _table_of(self, job: SchemaChangeJob) -> VersionedTable:
        try:
            return self._open_table(job.table_id)
        except NotFoundError as error:
            raise NotFoundError(
                f"table {job.table!r} was dropped", kind="unknown_table", table=job.table
            ) from error


def _job(
    table: VersionedTable,
    before: TableSchema,
    altered: Altered,
    *,
    owner: tuple[int, int] = (0, 0),
    watershed: int = 0,
) -> SchemaChangeJob:
    return SchemaChangeJob(
        table.name,
        table.id,
        PENDING,
        owner,
        now_ms(),
        before.revision,
        altered.schema.to_record(),
        altered.changes,
        watershed,
    )


def _runs(transaction: TransactionRecord) -> bool:
    is_open = transaction.status in (TransactionStatus.PREPARE, TransactionStatus.PRECOMMITTED)
    return is_open and not abandoned_reason(transaction)


def _concerns(tx: CatalogTransaction, transaction: TransactionRecord, job: SchemaChangeJob) -> bool:
    """Returns whether a transaction that has not ended writes the table of a job."""
    if not _runs(transaction):
        return False
    prepared = tx.get("prepared", records.prepared_key(transaction.id, job.table_id))
    return transaction.table == job.table or prepared is not None
