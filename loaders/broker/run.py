"""Running a broker load.

1. The label is reserved (B2) and the job recorded as PENDING; it waits by priority (B9).
2. LOADING: files are found, read, mapped and staged side by side (loaders.broker.pools). Nothing of it can be
   seen.
3. Rows of all files and tables join one transaction. If not too many were filtered (Y7) it is COMMITTED:
   it cannot be cancelled any more. One transaction publishes the rows of all tables and FINISHED (B4).
4. Anything else ends in CANCELLED with the reason (B14): an error, a cancellation, the time-out. The label is
   free again and no file is left. A process that dies has published nothing: the next server of the store
   runs the job again from the start, or the first reader of the job cancels it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.broker.file_task import FileResult, FileTask
from seqstore.loaders.broker.files import InputFile, check_secrets, find_files
from seqstore.loaders.broker.growth import Evolutions, evolved, options_of
from seqstore.loaders.broker.job import COMMITTED, LOADING, PENDING, LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.new_tables import is_missing, new_tables
from seqstore.loaders.broker.pools import POLL_SECONDS, Cancelled, TimedOut, choose_engine, run_locally
from seqstore.loaders.broker.spec import LoadSpec
from seqstore.loaders.dead_letters.letters import (
    SUFFIX,
    DeadLetters,
    drop_unused,
    kept_headers,
    make_beside,
)
from seqstore.loaders.error_log import ErrorLog
from seqstore.loaders.row_source import Target, moment_in
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.check.partial_checker import check_flexible
from seqstore.store.errors import (
    InvalidInputError,
    LoadRejectedError,
    MetadataChangedException,
    NotFoundError,
    StoreError,
)
from seqstore.store.maintenance.recovery import ending
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.store import Store
from seqstore.store.transaction.transaction import Transaction, TransactionResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNNING_MAX: Final = 2  # loads at once; each uses every core it is given
_NOTE_SECONDS: Final = 0.5  # between notes of the progress; each is a durable write

OnProgress = Callable[[LoadJob], None]


@dataclass(frozen=True)
class BrokerLoad:
    """One job on its way.

    Attributes:
        allowed: directories and URIs below which files may be read.
        references: secrets that URIs may name, besides those that the settings allow.
        on_progress: called with every change of the job's record.
        spark_master: where a Spark session of its own runs; empty: see `spark.session`.
    """

    store: Store
    spec: LoadSpec
    allowed: Sequence[str]
    user: str = "root"
    on_progress: OnProgress = lambda job: None
    spark_master: str = ""
    references: Sequence[str] = ()
    _made: list[str] = field(default_factory=list, compare=False)  # tables whose dead letters are new

    @property
    def _all_references(self) -> list[str]:
        return [*self.store.settings.secret_references, *self.references]

    def find_files(self) -> list[list[InputFile]]:
        """Finds the files of each description."""
        return [find_files(each, self.allowed, self._all_references) for each in self.spec.descriptions]

    def run(self, on_submitted: Callable[[int], None] = lambda job_id: None) -> tuple[int, LoadJob]:
        """Reserves the label, then runs the job to its end.

        Args:
            on_submitted: called with the job's number once the label is reserved.

        Returns:
            The job's number, and its record: FINISHED or CANCELLED.

        Raises:
            LabelExistsError, InvalidInputError, NotFoundError: it was refused before it became a job.
        """
        transaction = self._begin()
        jobs = LoadJobs(self.store.catalog)
        jobs.forget_ended(self.store.settings.label_keep_seconds)
        job = LoadJob(
            self.spec,
            PENDING,
            this_process(),
            now_ms(),
            txn_id=transaction.txn_id,
            allowed=tuple(self.allowed),
            references=tuple(self.references),
            user=self.user,
        )
        job_id = jobs.add(job)
        on_submitted(job_id)
        return job_id, self._finish(job_id, transaction)

    def resume(self, job_id: int) -> LoadJob:
        """Runs a job of an ended process again from the start; this process owns it now."""
        jobs = LoadJobs(self.store.catalog)
        try:
            transaction = self._begin()
        except StoreError as error:
            reason = _error_text(error)
            return jobs.change(job_id, lambda job: job.cancelled(reason))
        jobs.change(job_id, lambda job: replace(job, txn_id=transaction.txn_id))
        return self._finish(job_id, transaction)

    def _begin(self) -> Transaction:
        """Reserves the label."""
        self.spec.check()
        for path in (path for each in self.spec.descriptions for path in each.paths):
            check_secrets(path, self._all_references)
        missing = [is_missing(self.store, self.spec, each) for each in self.spec.descriptions]
        names = [f"{self.spec.database}.{each.table}" for each in self.spec.descriptions]
        self.check_flexible()
        for name, each in zip(names, self.spec.descriptions, strict=True):
            if self.spec.options(each).dead_letters:  # before the snapshot of the transaction
                self._made.extend([name] * make_beside(self.store, name))
        transaction = self.store.transaction(
            label=self.spec.label,
            operation="BROKER LOAD",
            database=self.spec.database,
            reads_own_writes=False,
        )
        if any(missing):
            transaction.reserve(names[0])
        else:
            transaction.table(names[0])
        return transaction

    def check_flexible(self) -> None:
        """Checks that the tables there are take flexible updates where the job makes some.

        Raises:
            InvalidInputError: one does not (F3).
        """
        for each in self.spec.descriptions:
            if self.spec.options(each).is_flexible and not is_missing(self.store, self.spec, each):
                table = self.store.table(f"{self.spec.database}.{each.table}")
                check_flexible(table.name, table.schema)

    def _finish(self, job_id: int, transaction: Transaction) -> LoadJob:
        jobs = LoadJobs(self.store.catalog)
        while True:
            running = _Running(self, jobs, job_id, transaction)
            try:
                running.load()
                return jobs.get(job_id)
            except BaseException as error:
                transaction.rollback(_error_text(error))
                if isinstance(error, MetadataChangedException) and self.evolves:  # EV5
                    transaction = self._begin()
                    running.begun_again(transaction)
                    continue
                drop_unused(self.store, self._made)
                ended = running.cancelled(_error_text(error))
                if not isinstance(error, (StoreError, OSError, pa.ArrowException, Cancelled)):
                    raise
                return ended

    @property
    def evolves(self) -> bool:
        """Whether the job may change the schemas of its tables."""
        return any(self.spec.options(each).evolves for each in self.spec.descriptions)

    def tasks(
        self, files: Sequence[Sequence[InputFile]], evolutions: Evolutions = MappingProxyType({})
    ) -> list[FileTask]:
        """Builds one task for each file, in the order of descriptions and files.

        Args:
            evolutions: the schemas that the files need, by `db.table`.
        """
        tasks = []
        for number, (description, found) in enumerate(zip(self.spec.descriptions, files, strict=True)):
            table = self.store.table(f"{self.spec.database}.{description.table}")
            evolution = evolutions.get(table.name)
            schema = table.schema if evolution is None else evolution.schema
            options = self.spec.options(description)
            moment = moment_in(options.time_zone)
            target = Target(schema, table.name)
            partitions = description.partitions
            if schema.partitioning is None:
                target.check_partitions(partitions, "PARTITION")
                partitions = ()
            may_stage = not (options.is_partial or schema.groups or schema.auto_increment_column)
            write = table.write_task(
                merge_type="DELETE" if description.merge_type == "DELETE" else "APPEND",
                now=moment.local,
                mode=options.update_mode,
                ignore_null=options.ignore_null,
                partitions=partitions,
                evolution=evolution,
            )
            for file in found:
                options = options_of(file, self.spec.options(description, file.name))
                options = with_registry(options, self.store.settings.schema_registries)
                options = replace(options, partitions=partitions)
                tasks.append(FileTask(number, file, options, target, moment, write, may_stage))
        return tasks


class _Running:
    """A job that has its label."""

    def __init__(self, load: BrokerLoad, jobs: LoadJobs, job_id: int, transaction: Transaction) -> None:
        self._load = load
        self._jobs = jobs
        self._job_id = job_id
        self._transaction = transaction
        self._deadline = time.monotonic() + load.spec.timeout_seconds
        self._noted = time.monotonic()
        self._spark: SparkSession | None = None

    def change(self, change: Callable[[LoadJob], LoadJob]) -> LoadJob:
        job = self._jobs.change(self._job_id, change)
        self._load.on_progress(job)
        return job

    def cancelled(self, reason: str) -> LoadJob:
        """Ends the job, unless it has ended."""
        return self.change(lambda job: job if job.has_ended else job.cancelled(reason))

    def begun_again(self, transaction: Transaction) -> None:
        """Notes the transaction of another try of the job."""
        self.change(lambda job: replace(job, state=PENDING, txn_id=transaction.txn_id))

    def load(self) -> None:
        """Steps 2 and 3 of the module."""
        self._wait_for_turn()
        files = self._load.find_files()
        size = sum(file.size for found in files for file in found)
        self.change(lambda job: replace(job, files=sum(map(len, files)), bytes_total=size))
        self._check()
        with new_tables(self._load.store, self._load.spec, files) as statements:
            if statements:
                self.change(lambda job: replace(job, created=tuple(statements)))
            self._transaction.read_newest()
            self._load_files(files, size)

    def _load_files(self, files: Sequence[Sequence[InputFile]], size: int) -> None:
        self._load.check_flexible()
        evolutions = evolved(self._load.store, self._load.spec, files, self._transaction)
        tasks = self._load.tasks(files, evolutions)
        staging = {task.description: task for task in tasks if task.may_stage}.values()
        with ExitStack() as ends:
            for task in staging:
                ends.enter_context(ending(self._load.store.table(task.target.name), task.write.load))
                task.write.begin()
            results = self._run(tasks, size, ends)
            self._count(results)
            self._join(tasks, results)
            self._keep(tasks, results)
            self._test_winners()
            self._enter_commit()
            done = self._transaction.commit(
                also=lambda tx, done: self._jobs.change_within(tx, self._job_id, LoadJob.finished)
            )
        if self._spark is not None:
            self._raise_counters(done)
        self._load.on_progress(self._jobs.get(self._job_id))

    def _raise_counters(self, done: TransactionResult) -> None:
        """Raises the counters that the application has registered."""
        from seqstore.loaders.spark.registration import registered_counters

        counters = registered_counters()
        if counters is None:
            return
        for name, version in done.versions.items():
            with suppress(NotFoundError):  # dropped since
                for info in self._load.store.table(name).history():
                    if info.version == version:
                        counters.add(info.metrics)

    def _wait_for_turn(self) -> None:
        while not self._jobs.may_start(self._job_id, RUNNING_MAX):
            self._check()
            time.sleep(POLL_SECONDS)
        self.change(lambda job: replace(job, state=LOADING, started_ms=now_ms()))

    def _enter_commit(self) -> None:
        """Makes the job COMMITTED unless it was cancelled: one change of the record decides."""
        self._check()

        def committed(job: LoadJob) -> LoadJob:
            if job.is_cancelling:
                raise Cancelled("user cancel")
            return replace(job, state=COMMITTED)

        self.change(committed)

    def _check(self) -> None:
        """Raises when the job is to end."""
        if self._jobs.get(self._job_id).is_cancelling:
            raise Cancelled("user cancel")
        if time.monotonic() > self._deadline:
            raise TimedOut(f"the load ran longer than its timeout of {self._load.spec.timeout_seconds} s")

    def _test_winners(self) -> None:
        """Lets executors test the winners of what they staged, where that is asked for."""
        if self._spark is None:
            return
        from seqstore.loaders.spark.winner_tests import AUTO, let_executors_test

        choice = self._load.spec.properties.get("winner_test", AUTO)
        let_executors_test(self._spark, self._transaction.writers, choice)

    def _run(self, tasks: Sequence[FileTask], size: int, ends: ExitStack) -> list[FileResult]:
        """Reads and stages the files; a session of Spark stays until the end of the load."""
        spec = self._load.spec
        self._check()
        if choose_engine(spec.properties.get("engine", "auto"), size) == "local":
            return run_locally(tasks, spec.parallelism, self._watch)
        from seqstore.loaders.broker.spark_pool import run_on_spark  # a small job needs nothing of Spark
        from seqstore.loaders.spark.session import spark_session

        name = f"seqstore broker load {spec.label}"
        self._spark = spark = ends.enter_context(spark_session(name, self._load.spark_master))
        group = f"{name} ({self._transaction.txn_id})"
        return run_on_spark(spark, tasks, spec.parallelism, group, self._watch)

    def _watch(self, files_done: int, bytes_done: int) -> None:
        """Notes how far the files are; raises when the job is to end."""
        self._check()
        job = self._jobs.get(self._job_id)
        noted = replace(job, files_done=files_done, bytes_done=bytes_done)
        now = time.monotonic()
        is_due = now - self._noted >= _NOTE_SECONDS and noted.percent != job.percent
        if is_due or files_done != job.files_done:
            self._noted = now
            self.change(lambda job: replace(job, files_done=files_done, bytes_done=bytes_done))

    def _count(self, results: Sequence[FileResult]) -> None:
        """Keeps rows and reasons of bad ones, then checks their share.

        Raises:
            LoadRejectedError: above `max_filter_ratio` (Y7).
        """
        log = ErrorLog(self._load.store.path, lambda: self._transaction.txn_id)
        for row in (row for result in results for row in result.bad):
            log.add(row)
        log.close()
        loaded = sum(result.loaded for result in results)
        filtered = sum(result.filtered for result in results)
        unselected = sum(result.unselected for result in results)
        self.change(
            lambda job: replace(
                job, loaded=loaded, filtered=filtered, unselected=unselected, url=str(log.path or "")
            )
        )
        if filtered > (loaded + filtered) * self._load.spec.max_filter_ratio:
            raise LoadRejectedError("quality not good enough to cancel", kind="too_many_filtered")

    def _join(self, tasks: Sequence[FileTask], results: Sequence[FileResult]) -> None:
        """Hands the staged rows to the transaction; those that are merged with stored ones are written only
        now, for that needs the catalog."""
        for task, result in zip(tasks, results, strict=True):
            options = task.options
            table = self._transaction.table(task.target.name)
            with table.begin_load(
                merge_type="DELETE" if options.merge_type == "DELETE" else "APPEND",
                now=task.moment.local,
                mode=options.update_mode,
                new_keys=options.new_key_behavior,
                ignore_null=options.ignore_null,
                partitions=options.partitions,
            ) as load:
                load.adopt(result.staged)
                for rows, supplied in result.brought:
                    load.write(rows, supplied=supplied)
                load.note_filtered(result.filtered - result.staged.rows_filtered)
                load.commit()

    def _keep(self, tasks: Sequence[FileTask], results: Sequence[FileResult]) -> None:
        """Hands the dead letters to the transaction."""
        spec, loads, kept = self._load.spec, [], {}
        for task, result in zip(tasks, results, strict=True):
            name = task.target.name
            if not task.options.dead_letters:
                continue
            if name not in kept:
                loads.append(self._transaction.table(f"{name}{SUFFIX}").begin_load())
                kept[name] = DeadLetters(partial(loads.__getitem__, len(loads) - 1), spec.label)
            path = result.file.name
            given = spec.given(spec.descriptions[task.description], path)
            headers = kept_headers(given, task.options, task.target.schema.names)
            kept[name].add(result.letters, path, headers)
        if sum(each.count for each in kept.values()) < sum(
            result.filtered for task, result in zip(tasks, results, strict=True) if task.options.dead_letters
        ):
            raise InvalidInputError(
                "dead_letters: the texts of some rejected rows are not known; load without it",
                kind="dead_letters",
            )
        for letters in kept.values():
            letters.flush()
        for load in loads:
            load.commit()


def _error_text(error: BaseException) -> str:
    """Returns the ErrorMsg of a failed job (B14)."""
    if isinstance(error, TimedOut):
        return f"type:TIMEOUT; msg:{error}"
    if isinstance(error, Cancelled):
        return f"type:USER_CANCEL; msg:{error}"
    if isinstance(error, LoadRejectedError):
        return f"type:ETL_QUALITY_UNSATISFIED; msg:{error.message}"
    text = error.message if isinstance(error, StoreError) else str(error) or type(error).__name__
    return f"type:LOAD_RUN_FAIL; msg:{text}"
