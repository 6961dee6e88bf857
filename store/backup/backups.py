"""The backups and restorations of a store: their jobs, and the threads that run them.

A job runs in a thread of the store handle that it was submitted to. A handle that is closed stops its jobs
between two pieces of a file. They, and those of processes that died, are run again by the next handle of the
store; what was copied before is not copied again. One job of a database runs at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from seqstore.store.backup import manifest as manifests
from seqstore.store.backup.install import check_free
from seqstore.store.backup.job import (
    FINISHED,
    PENDING,
    TIMEOUT_SECONDS,
    USER_CANCEL,
    BackupJob,
    RestoreJob,
    TransferJob,
)
from seqstore.store.backup.job_control import JobControl, Stopped
from seqstore.store.backup.manifest import Manifest, read_manifest
from seqstore.store.backup.runs import back_up, remove_restored, restore
from seqstore.store.backup.target import Target
from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.job_record import CANCELLED, NO_OWNER
from seqstore.store.catalog.job_store import JobStore
from seqstore.store.catalog.transaction_record import check_client_label, now_ms
from seqstore.store.errors import (
    CommitUnknownError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnavailableError,
)
from seqstore.store.open_table.open_table import require_openable
from seqstore.store.runtime import cancellation
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.internal import internal
from seqstore.store.runtime.process_identity import is_alive, this_process
from seqstore.store.schema.declaration import check_name
from seqstore.store.schema.features import require_writable
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.disk import Disk
from seqstore.store.settings import Settings

OnProgress = Callable[[TransferJob], None]
_LOOK_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 1.0
_LOG: Final = logging.getLogger(__name__)
# Jobs for which this process has, or will have, a thread: by catalog and number.
_at_work: Final[set[tuple[str, int]]] = set()


@dataclass(frozen=True)
class Restored:
    """What a handle does when its restoration is visible.

    Attributes:
        show: called with the name of each new table.
        remove: called with the directory of each table that was replaced.
    """

    show: Callable[[str], None]
    remove: Callable[[str], None]


class Backups:
    """The backups of one store handle; `Store.backups`."""

    @internal
    def __init__(self, catalog: Catalog, disk: Disk, settings: Settings, restored: Restored) -> None:
        self._catalog = catalog
        self._disk = disk
        self._settings = settings
        self._restored = restored
        self._backups = JobStore(catalog, BackupJob.kind, BackupJob)
        self._restores = JobStore(catalog, RestoreJob.kind, RestoreJob)
        self._lock = new_lock()
        self._threads: dict[int, threading.Thread] = {}
        self._closing = threading.Event()

    def backup(
        self,
        database: str,
        label: str,
        target: str,
        tables: Sequence[str] = (),
        *,
        exclude: bool = False,
        verify: bool = False,
        timeout_seconds: int = TIMEOUT_SECONDS,
    ) -> int:
        """Begins a backup of a database as of now; returns the number of its job. `wait` waits for its end.

        Args:
            label: its name, as that of a load.
            target: an absolute path, or a URI such as `s3://bucket/prefix`.
            tables: names of tables and views; none means all of the database.
            exclude: all but those.
            verify: files that the target has are read and compared too; damaged ones are copied again.

        Raises:
            NotFoundError: no such database, table or view.
            InvalidInputError: the target cannot be used, or a job of the database runs.
        """
        check_client_label(label)
        Target(target).refuse_within(self._catalog.data_dir)
        job = BackupJob(
            database,
            label,
            target,
            PENDING,
            this_process(),
            now_ms(),
            timeout_seconds=timeout_seconds,
            objects=tuple(tables),
            is_excluding=exclude,
            is_verifying=verify,
        )

        def check(tx: CatalogTransaction) -> BackupJob:
            found = records.require_database(tx, database)
            for name in tables:
                is_view = tx.get("views", records.name_key(found, name)) is not None
                if not is_view and records.find_table(tx, found, name) is None:
                    raise NotFoundError(
                        f"Unknown table '{database}.{name}'", kind="unknown_table", table=f"{database}.{name}"
                    )
            return job

        return self._submit(self._backups, database, check)

    def restore(
        self,
        database: str,
        label: str,
        source: str,
        tables: Mapping[str, str] | None = None,
        *,
        exclude: Sequence[str] = (),
        timestamp: str = "",
        replace_tables: bool = False,
        timeout_seconds: int = TIMEOUT_SECONDS,
    ) -> int:
        """Begins the restoration of a backup into a database; returns the number of its job.

        Args:
            source: the target of the backup.
            tables: new names by the names in the backup; None means all tables and views, under their names.
            exclude: all but those, without `tables`.
            timestamp: of the backup; empty for the newest of the label.
            replace_tables: tables of the same names are replaced, when all rows are there.

        Raises:
            NotFoundError: no such database, backup or table in it.
            AlreadyExistsError: a name is in use, without `replace_tables`.
            CorruptionError: the backup's manifest is damaged.
            FormatError: a newer program made it.
            InvalidInputError: a job of the database runs, or a view would be restored into another database.
        """
        target = Target(source)
        target.refuse_within(self._catalog.data_dir)
        name = manifests.choose(target, label, timestamp, database)
        manifest = read_manifest(target, name)
        names = _chosen(manifest, database, tables, exclude)
        self._require_readable(manifest, names)
        job = RestoreJob(
            database, label, source, PENDING, this_process(), now_ms(), manifest.timestamp, timeout_seconds
        )
        job = replace(job, manifest=name, names=names, is_replacing=replace_tables)
        chosen = [table.name for table in manifest.tables if table.name in names]

        def check(tx: CatalogTransaction) -> RestoreJob:
            check_free(tx, database, names, replaces=replace_tables)
            return replace(job, ids={each: tx.next_id("table") for each in chosen})

        return self._submit(self._restores, database, check)

    def _require_readable(self, manifest: Manifest, names: Mapping[str, str]) -> None:
        """Checks that this program and the place of segments can have the tables."""
        for table in manifest.tables:
            if table.name in names:
                newest = next(each for each in table.schemas if each["revision"] == table.revision)
                schema = TableSchema.from_record(dict(newest))
                require_writable(schema.features)
                require_openable(schema, self._disk)

    def _submit(
        self, jobs: JobStore[Any], database: str, check: Callable[[CatalogTransaction], TransferJob]
    ) -> int:
        for store in (self._backups, self._restores):
            store.forget_ended(self._settings.label_keep_seconds)
        self.resume()
        job_id = 0
        try:
            with self._catalog.write() as tx:
                job = check(tx)
                self._refuse_second(tx, database)
                job_id = jobs.add_within(tx, job)
                _at_work.add(self._place(job_id))  # before others see it
        except CommitUnknownError:  # the job is visible, and the database admits no other one until it ends
            if job_id:
                self._start(job_id)
            raise
        self._start(job_id)
        return job_id

    def _refuse_second(self, tx: CatalogTransaction, database: str) -> None:
        """Refuses a job while another one of the database runs, or a cancelled one removes its files."""
        for key, record in tx.records("jobs"):
            if record["kind"] not in (BackupJob.kind, RestoreJob.kind) or record["job"]["db"] != database:
                continue
            state, number = record["job"]["state"], int.from_bytes(key)
            if state not in TransferJob.final_states:
                raise InvalidInputError(
                    f"Can only run one backup or restore job of a database at same time: {record['kind']} "
                    f"{number} of '{database}' is {state}; wait for its end, or CANCEL "
                    f"{record['kind'].upper()} FROM {database}",
                    kind="job_running",
                )
            if self._is_at_work(number, record["job"]):
                raise InvalidInputError(
                    f"Can only run one backup or restore job of a database at same time: {record['kind']} "
                    f"{number} of '{database}' is {state}, and still removes its files; try again in a "
                    "moment",
                    kind="job_running",
                )

    def _is_at_work(self, job_id: int, record: Mapping[str, Any]) -> bool:
        """Returns whether the thread of a job that has ended is still at work, here or in another process."""
        owner = (record["owner"][0], record["owner"][1])
        if owner == this_process():
            return self._place(job_id) in _at_work
        return owner != NO_OWNER and is_alive(owner)

    def backups(self, database: str) -> dict[int, BackupJob]:
        """Returns the backups of a database by number, oldest first."""
        return self._backups.all(database)

    def restores(self, database: str) -> dict[int, RestoreJob]:
        """Returns the restorations into a database by number, oldest first."""
        return self._restores.all(database)

    def job(self, job_id: int) -> TransferJob:
        """Returns one job.

        Raises:
            NotFoundError: there is none of that number.
        """
        found: TransferJob = self._jobs_with(job_id).get(job_id)
        return found

    def _jobs_with(self, job_id: int) -> JobStore[Any]:
        return self._backups if job_id in self._backups.all() else self._restores

    def cancel(self, database: str, *, restores: bool = False) -> int:
        """Cancels the backup of a database that runs, or its restoration; returns the number of the job.

        Raises:
            InvalidInputError: there is none.
        """
        jobs: JobStore[Any] = self._restores if restores else self._backups
        for job_id, job in jobs.all(database).items():
            if job.has_ended:
                continue
            ended = jobs.change(job_id, lambda job: job if job.has_ended else job.cancelled(USER_CANCEL))
            if ended.state == CANCELLED:
                return job_id
        what = "restore" if restores else "backup"
        raise InvalidInputError(
            f"There is no {what} job of database '{database}' that runs; SHOW {what.upper()} lists them",
            kind="unknown_job",
        )

    def wait(self, job_id: int, on_progress: OnProgress = lambda job: None) -> TransferJob:
        """Waits until a job of this handle has ended, and returns it; `FINISHED` is success.

        A statement that is interrupted meanwhile cancels the job.

        Args:
            on_progress: called now and then.

        Raises:
            UnavailableError: the job was cancelled, with its reason.
        """
        thread = self._threads.get(job_id)
        try:
            while thread is not None and thread.is_alive():
                thread.join(_LOOK_SECONDS)
                cancellation.check()
                on_progress(self.job(job_id))
        except BaseException:
            self._jobs_with(job_id).change(
                job_id, lambda job: job if job.has_ended else job.cancelled(USER_CANCEL)
            )
            raise
        job = self.job(job_id)
        on_progress(job)
        if job.state != FINISHED:
            reason = job.message or "it goes on at the next opening"
            raise UnavailableError(
                f"{job.kind} '{job.db}.{job.label}' is {job.state}: {reason}",
                kind="job_cancelled",
            )
        return job

    @internal
    def resume(self) -> None:
        """Runs the jobs of processes that have ended, and of closed handles that could not release them."""
        for jobs in (self._backups, self._restores):
            for job_id, found in jobs.all().items():
                if not found.has_ended:
                    self._take_over(jobs, job_id)

    def _take_over(self, jobs: JobStore[Any], job_id: int) -> None:
        """Runs a job for which no thread of a live process is."""
        place, taken = self._place(job_id), False

        def take(job: TransferJob) -> TransferJob:
            nonlocal taken
            is_left = job.owner == this_process() and place not in _at_work
            taken = not job.has_ended and (job.is_abandoned or is_left)
            if not taken:
                return job
            _at_work.add(place)  # before others see it
            return job.taken_over(this_process())

        try:
            jobs.change(job_id, take)
        except BaseException:
            if taken:
                _at_work.discard(place)
            raise
        if taken:
            self._start(job_id)

    def close(self) -> None:
        """Stops the jobs of this handle; the next handle of the store runs them again."""
        self._closing.set()
        self.join()

    def _place(self, job_id: int) -> tuple[str, int]:
        return str(self._catalog.path), job_id

    def _start(self, job_id: int) -> None:
        with self._lock:
            if self._closing.is_set():
                _at_work.discard(self._place(job_id))
                return
            thread = threading.Thread(target=self._run, args=(job_id,), name=f"seqstore-backup-{job_id}")
            self._threads[job_id] = thread
            thread.start()

    def _run(self, job_id: int) -> None:
        jobs = self._jobs_with(job_id)
        try:
            job = jobs.get(job_id)
            control = JobControl(jobs, job_id, self._is_closing)
            try:
                self._work(job, control)
            except Stopped:
                self._settle(jobs, job_id, _released)
            except CommitUnknownError as error:  # the next handle finds out
                _LOG.error("job %d: %s", job_id, error)
            except (StoreError, OSError, MemoryError, pa.ArrowException) as error:
                self._cancel(jobs, job_id, error.message if isinstance(error, StoreError) else str(error))
            except BaseException as error:
                self._cancel(jobs, job_id, f"{type(error).__name__}: {error}")
                raise
            if jobs.get(job_id).state == CANCELLED:
                self._settle(jobs, job_id, _left)
        except StoreError as error:  # the catalog cannot be written: the job stays for the next handle
            _LOG.error("job %d: %s", job_id, error)
        finally:
            _at_work.discard(self._place(job_id))
            with self._lock:
                self._threads.pop(job_id, None)

    def _work(self, job: TransferJob, control: JobControl) -> None:
        if isinstance(job, BackupJob):
            if not job.has_ended:
                back_up(self._catalog, self._disk, job, control)
            return
        assert isinstance(job, RestoreJob)
        try:
            if job.has_ended:
                raise Stopped
            replaced = restore(self._catalog, self._disk, job, control)
        except CommitUnknownError:
            raise
        except BaseException as error:
            if control.is_cancelled() or not isinstance(error, Stopped):
                remove_restored(self._disk, job)
            raise
        for directory in replaced:
            self._restored.remove(directory)
        for table in job.ids:
            self._restored.show(f"{job.db}.{job.names[table]}")

    def _cancel(self, jobs: JobStore[Any], job_id: int, reason: str) -> None:
        self._settle(jobs, job_id, lambda job: job if job.has_ended else job.cancelled(reason))

    def _settle(self, jobs: JobStore[Any], job_id: int, change: Callable[[TransferJob], TransferJob]) -> None:
        """Stores the end of a job's thread, as soon as the catalog can be written: no other thread has it."""
        while True:
            try:
                jobs.change(job_id, change)
                return
            except UnavailableError as error:
                if self._is_closing():
                    raise
                _LOG.warning("job %d: %s", job_id, error)
                self._closing.wait(_RETRY_SECONDS)

    @property
    @internal
    def is_closing(self) -> bool:
        """Whether the handle is closed or about to be."""
        return self._closing.is_set()

    @property
    @internal
    def is_busy(self) -> bool:
        """Whether a job of this handle runs."""
        return bool(self._threads)

    @internal
    def join(self) -> None:
        """Waits until the jobs of this handle have ended."""
        for thread in list(self._threads.values()):
            thread.join()

    def _is_closing(self) -> bool:
        # At the interpreter's end the main thread stops first and then waits for this one.
        return self._closing.is_set() or not threading.main_thread().is_alive()


def _released(job: TransferJob) -> TransferJob:
    return job.released() if job.owner == this_process() and not job.has_ended else job


def _left(job: TransferJob) -> TransferJob:
    return job.left() if job.owner == this_process() and job.has_ended else job


def _chosen(
    manifest: Manifest, database: str, tables: Mapping[str, str] | None, exclude: Sequence[str]
) -> dict[str, str]:
    """Returns the new names of what is restored, by the names in the backup."""
    named = [*(tables or ()), *exclude]
    unknown = sorted(set(named) - set(manifest.objects))
    if unknown:
        raise NotFoundError(
            f"the backup {manifest.label!r} of {manifest.timestamp} has no table {unknown[0]!r}; it has "
            f"{', '.join(manifest.objects)}",
            kind="unknown_table",
            table=unknown[0],
        )
    chosen = dict(tables) if tables else {name: name for name in manifest.objects if name not in exclude}
    for new_name in chosen.values():
        check_name(new_name, "table")
    if len(set(chosen.values())) < len(chosen):
        raise InvalidInputError("two tables would be restored under one name", kind="bad_name")
    foreign = sorted(chosen.keys() & manifest.views.keys())
    if foreign and database != manifest.database:
        raise InvalidInputError(
            f"the view {foreign[0]!r} reads tables of '{manifest.database}' and cannot be restored into "
            f"'{database}'; leave views out by EXCLUDE ({', '.join(foreign)}) and create them anew",
            kind="not_supported",
        )
    return chosen
