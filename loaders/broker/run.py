"""Running a broker load.

1. The label is taken (B2) and the job recorded as PENDING; it waits for its turn by priority (B9).
2. LOADING: files are found, read, mapped and staged side by side (loaders.broker.pools). Nothing of it can be
   seen.
3. Rows of all files and tables join one transaction. If not too many were filtered (Y7) it is published in
   one switch, on all tables at once (B4): COMMITTED, then FINISHED.
4. Anything else ends in CANCELLED with the reason (B14): an error, a cancellation, the time-out. The label is
   free again and no file is left. So it is when the process dies; whoever looks next finds out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from loaders.broker.file_task import FileResult, FileTask
from loaders.broker.files import InputFile, find_files
from loaders.broker.job import CANCELLED, COMMITTED, FINISHED, LOADING, PENDING, LoadJob, LoadJobs
from loaders.broker.pools import Cancelled, choose_engine, run_locally, run_on_spark, spark_session
from loaders.broker.spec import LoadSpec
from loaders.error_log import ErrorLog
from loaders.row_source import Target, moment_in
from store.errors import CommitUnknownError, LoadRejectedError, StoreError, UnavailableError
from store.multi_transaction import MultiTransaction
from store.store import Store
from store.transaction import now_ms, this_process

RUNNING_MAX: Final = 2  # loads at once; each uses every core it is given
_POLL_SECONDS: Final = 0.2

OnProgress = Callable[[LoadJob], None]


@dataclass(frozen=True)
class BrokerLoad:
    """One job on its way.

    Attributes:
        allowed: directories and URIs below which files may be read.
        on_progress: told of every change of the job's record.
    """

    store: Store
    spec: LoadSpec
    allowed: Sequence[str]
    user: str = "root"
    on_progress: OnProgress = lambda job: None

    def run(self, on_submitted: Callable[[int], None] = lambda job_id: None) -> tuple[int, LoadJob]:
        """Takes the label, then runs the job to its end.

        Args:
            on_submitted: told the job's number once the label is taken.

        Returns:
            The job's number, and its record: FINISHED or CANCELLED.

        Raises:
            LabelExistsError, InvalidInputError, NotFoundError: it was refused before it became a job.
        """
        self.spec.check()
        for each in self.spec.descriptions:
            self._target(each.table)
        transaction = self.store.transaction(label=self.spec.label, operation="BROKER LOAD")
        transaction.table(f"{self.spec.database}.{self.spec.descriptions[0].table}")  # takes the label
        jobs = LoadJobs(self.store.catalog)
        job = LoadJob(self.spec, PENDING, this_process(), now_ms(), txn_id=transaction.txn_id, user=self.user)
        job_id = jobs.add(job)
        on_submitted(job_id)
        running = _Running(self, jobs, job_id, transaction)
        try:
            running.load()
        except BaseException as error:
            reason = _error_text(error)
            transaction.rollback(reason)
            ended = running.change(
                lambda job: replace(job, state=CANCELLED, finished_ms=now_ms(), error=reason)
            )
            if not isinstance(error, (StoreError, OSError, pa.ArrowException, Cancelled)):
                raise
            return job_id, ended
        return job_id, jobs.get(job_id)

    def _target(self, table: str) -> Target:
        name = f"{self.spec.database}.{table}"
        return Target(self.store.table(name).schema, name)

    def tasks(self, files: Sequence[Sequence[InputFile]]) -> list[FileTask]:
        """One task a file, in the order of descriptions and files."""
        tasks = []
        for number, (description, found) in enumerate(zip(self.spec.descriptions, files, strict=True)):
            target = self._target(description.table)
            moment = moment_in(self.spec.options(description, "").time_zone)
            write = self.store.table(target.name).write_task(
                merge_type="DELETE" if description.merge_type == "DELETE" else "APPEND", now=moment.local
            )
            for file in found:
                options = self.spec.options(description, file.uri)
                tasks.append(FileTask(number, file, options, target, moment, write))
        return tasks


class _Running:
    """A job that has its label."""

    def __init__(self, load: BrokerLoad, jobs: LoadJobs, job_id: int, transaction: MultiTransaction) -> None:
        self._load = load
        self._jobs = jobs
        self._job_id = job_id
        self._transaction = transaction
        self._deadline = time.monotonic() + load.spec.timeout_seconds

    def change(self, change: Callable[[LoadJob], LoadJob]) -> LoadJob:
        job = self._jobs.change(self._job_id, change)
        self._load.on_progress(job)
        return job

    def load(self) -> None:
        """Steps 2 and 3 of the module."""
        self._wait_for_turn()
        spec = self._load.spec
        files = [find_files(each, self._load.allowed) for each in spec.descriptions]
        size = sum(file.size for found in files for file in found)
        self.change(lambda job: replace(job, files=sum(map(len, files)), bytes_total=size))
        tasks = self._load.tasks(files)
        try:
            results = self._run(tasks, size)
            self._count(results)
            self._join(tasks, results)
            self._check()
            self.change(lambda job: replace(job, state=COMMITTED))
            self._transaction.commit()
        except CommitUnknownError:
            raise  # the rows may be there: nothing may be removed
        except BaseException:
            for task in tasks:
                task.write.discard()
            raise
        published = [meta.id for result in results for meta, _ in result.staged.segments]
        for task in tasks:
            task.write.discard(keep=published)
        self.change(lambda job: replace(job, state=FINISHED, finished_ms=now_ms(), files_done=job.files))

    def _wait_for_turn(self) -> None:
        while not self._jobs.may_start(self._job_id, RUNNING_MAX):
            self._check()
            time.sleep(_POLL_SECONDS)
        self.change(lambda job: replace(job, state=LOADING, started_ms=now_ms()))

    def _check(self) -> None:
        """Raises when the job is to end."""
        if self._jobs.get(self._job_id).is_cancelling:
            raise Cancelled("user cancel")
        if time.monotonic() > self._deadline:
            raise UnavailableError(
                f"the load took longer than its timeout of {self._load.spec.timeout_seconds} s",
                kind="timeout",
            )

    def _run(self, tasks: Sequence[FileTask], size: int) -> list[FileResult]:
        spec = self._load.spec
        self._check()
        if choose_engine(spec.properties.get("engine", "auto"), size) == "local":
            return run_locally(
                tasks,
                spec.parallelism,
                on_count=self._note_done,
                check=self._check,
            )
        with spark_session(spec.label) as spark:
            return run_on_spark(spark, tasks, spec.label, self._note_done, self._check)

    def _note_done(self, count: int) -> None:
        if count != self._jobs.get(self._job_id).files_done:
            self.change(lambda job: replace(job, files_done=count))

    def _count(self, results: Sequence[FileResult]) -> None:
        """Keeps rows and reasons of bad ones, then checks their share.

        Raises:
            LoadRejectedError: above `max_filter_ratio` (Y7).
        """
        log = ErrorLog(self._load.store.path, self._transaction.txn_id)
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
        """Hands the staged rows to the transaction; those of partial updates are written only now, for
        filling them from history takes the catalog."""
        for task, result in zip(tasks, results, strict=True):
            options = task.options
            table = self._transaction.table(task.target.name)
            with table.begin_load(
                merge_type="DELETE" if options.merge_type == "DELETE" else "APPEND",
                now=task.moment.local,
                mode=options.update_mode,
                new_keys=options.new_key_behavior,
                ignore_null=options.ignore_null,
            ) as load:
                load.adopt(result.staged)
                for rows, supplied in result.partial:
                    load.write(rows, supplied=supplied)
                load.commit()


def _error_text(error: BaseException) -> str:
    """B14."""
    if isinstance(error, Cancelled):
        return f"type:USER_CANCEL; msg:{error}"
    if isinstance(error, LoadRejectedError):
        return f"type:ETL_QUALITY_UNSATISFIED; msg:{error.message}"
    if isinstance(error, UnavailableError) and error.kind == "timeout":
        return f"type:TIMEOUT; msg:{error.message}"
    text = error.message if isinstance(error, StoreError) else str(error) or type(error).__name__
    return f"type:LOAD_RUN_FAIL; msg:{text}"
