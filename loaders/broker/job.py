"""The record of a broker load: its state, how far it is, what SHOW LOAD tells of it (B3, B12-B17).

A job belongs to the process that runs it. FINISHED is written in the switch that publishes the rows, so a job
that is in any other state when its process dies has published nothing: it can be run again from the start.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from seqstore.loaders.broker.spec import LoadSpec
from seqstore.store.catalog.catalog import Catalog, CatalogTransaction
from seqstore.store.catalog.jobs import Jobs, Record
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import InvalidInputError, NotFoundError
from seqstore.store.runtime.process_identity import is_alive

PENDING: Final = "PENDING"
LOADING: Final = "LOADING"
COMMITTED: Final = "COMMITTED"
FINISHED: Final = "FINISHED"
CANCELLED: Final = "CANCELLED"
ENDED: Final = frozenset([FINISHED, CANCELLED])
ATTEMPTS_MAX: Final = 3  # a job that ends every process that runs it must not go on for ever
SHOW_COLUMNS: Final = (
    "JobId",
    "Label",
    "State",
    "Progress",
    "Type",
    "EtlInfo",
    "TaskInfo",
    "ErrorMsg",
    "CreateTime",
    "EtlStartTime",
    "EtlFinishTime",
    "LoadStartTime",
    "LoadFinishTime",
    "URL",
    "JobDetails",
    "TransactionId",
    "ErrorTablets",
    "User",
    "Comment",
)
OWNER_ENDED: Final = "type:LOAD_RUN_FAIL; msg:the process that ran it ended; submit it again"


@dataclass(frozen=True)
class LoadJob:
    """One job.

    Attributes:
        spec: what was asked for.
        state: PENDING, LOADING, COMMITTED, FINISHED or CANCELLED.
        owner: process id and start time of the process that runs it.
        allowed: directories and URIs below which it may read.
        attempts: how often it was begun.
        files, files_done: files there are, and those staged already.
        bytes_total, bytes_done: their sizes, and what was read of them.
        loaded, filtered, unselected: rows; -1 while not counted.
        error: `type:...; msg:...` when cancelled (B14).
        is_cancelling: somebody asked for its end.
    """

    spec: LoadSpec
    state: str
    owner: tuple[int, int]
    created_ms: int
    allowed: tuple[str, ...] = ()
    attempts: int = 1
    started_ms: int = 0
    finished_ms: int = 0
    txn_id: int = 0
    files: int = 0
    files_done: int = 0
    bytes_total: int = 0
    bytes_done: int = 0
    loaded: int = -1
    filtered: int = -1
    unselected: int = -1
    error: str = ""
    url: str = ""
    user: str = "root"
    is_cancelling: bool = False

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> LoadJob:
        made = {
            "spec": LoadSpec.from_record(record["spec"]),
            "owner": tuple(record["owner"]),
            "allowed": tuple(record.get("allowed", ())),
        }
        return cls(**{**record, **made})

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def percent(self) -> int:
        """Share of the bytes that are read; 100 once the rows are visible."""
        if self.state == FINISHED:
            return 100
        return min(self.bytes_done * 100 // self.bytes_total, 99) if self.bytes_total else 0

    def begun_again(self, owner: tuple[int, int]) -> LoadJob:
        """As it was when it was new, in the hands of another process."""
        return LoadJob(
            self.spec,
            PENDING,
            owner,
            self.created_ms,
            allowed=self.allowed,
            attempts=self.attempts + 1,
            user=self.user,
            is_cancelling=self.is_cancelling,
        )

    def cancelled(self, reason: str) -> LoadJob:
        return replace(self, state=CANCELLED, finished_ms=now_ms(), error=reason)

    def finished(self) -> LoadJob:
        return replace(
            self, state=FINISHED, finished_ms=now_ms(), files_done=self.files, bytes_done=self.bytes_total
        )

    def show(self, job_id: int) -> tuple[str | None, ...]:
        """Its line in SHOW LOAD."""
        spec = self.spec
        counts = (
            f"unselected.rows={self.unselected}; dpp.abnorm.ALL={self.filtered}; dpp.norm.ALL={self.loaded}"
        )
        task = (
            f"cluster:N/A; timeout(s):{spec.timeout_seconds}; max_filter_ratio:{spec.max_filter_ratio}; "
            f"priority:{spec.priority}"
        )
        progress = f"{self.percent:.2f}% ({self.files_done}/{self.files})"
        return (
            str(job_id),
            spec.label,
            self.state,
            "Unknown id" if self.state == CANCELLED else progress,
            "BROKER",
            counts if self.loaded >= 0 else None,  # B13
            task,  # B15
            self.error or None,
            _time(self.created_ms),
            _time(self.started_ms),
            _time(self.started_ms),
            _time(self.started_ms),
            _time(self.finished_ms),
            self.url or None,
            json.dumps(self._details()),
            str(self.txn_id),
            "{}",
            self.user,
            spec.comment,
        )

    def _details(self) -> dict[str, Any]:
        """B16."""
        waiting = [] if self.has_ended else [f"pid {self.owner[0]}"]
        return {
            "Unfinished backends": {self.spec.label: waiting} if waiting else {},
            "ScannedRows": max(self.loaded, 0) + max(self.filtered, 0) + max(self.unselected, 0),
            "TaskNumber": self.files,
            "LoadBytes": self.bytes_total,
            "All backends": {self.spec.label: [f"pid {self.owner[0]}"]},
            "FileNumber": self.files,
            "FileSize": self.bytes_total,
        }


Change = Callable[[LoadJob], LoadJob]


class LoadJobs:
    """The broker loads of a store."""

    def __init__(self, catalog: Catalog) -> None:
        self._jobs = Jobs(catalog, "broker")

    def add(self, job: LoadJob) -> int:
        return self._jobs.add(job.to_record())

    def get(self, job_id: int) -> LoadJob:
        return LoadJob.from_record(self._jobs.get(job_id))

    def all(self) -> dict[int, LoadJob]:
        """Jobs by number; those whose process is gone are cancelled first."""
        found = self._stored()
        for job_id, job in found.items():
            if _is_abandoned(job):
                found[job_id] = self.change(
                    job_id, lambda job: job.cancelled(OWNER_ENDED) if _is_abandoned(job) else job
                )
        return found

    def abandoned(self) -> list[int]:
        """Numbers of jobs whose process is gone before they ended."""
        return [job_id for job_id, job in self._stored().items() if _is_abandoned(job)]

    def take_over(self, job_id: int, owner: tuple[int, int]) -> bool:
        """Hands an abandoned job to another process; False when it is none, or was begun too often."""

        def taken(job: LoadJob) -> LoadJob:
            if not _is_abandoned(job):
                return job
            if job.attempts >= ATTEMPTS_MAX:
                return job.cancelled(
                    f"type:LOAD_RUN_FAIL; msg:every process that ran it ended, {job.attempts} times"
                )
            return job.begun_again(owner)

        return self.change(job_id, taken).owner == owner

    def change(self, job_id: int, change: Change) -> LoadJob:
        """Replaces a job by what a function makes of it; nothing is written when that is the same."""
        return LoadJob.from_record(self._jobs.change(job_id, _on_record(change)))

    def change_within(self, tx: CatalogTransaction, job_id: int, change: Change) -> None:
        """`change` as a part of a larger transaction."""
        self._jobs.change_within(tx, job_id, _on_record(change))

    def forget_ended(self, keep_seconds: int) -> None:
        """Jobs that ended as long ago as labels are kept are not shown any more."""
        before = now_ms() - keep_seconds * 1000
        for job_id, job in self._stored().items():
            if job.has_ended and job.finished_ms < before:
                self._jobs.remove(job_id)

    def cancel(self, database: str, label: str, matches: Callable[[LoadJob], bool] | None = None) -> int:
        """Asks running jobs to end (B17); returns how many were asked.

        Args:
            label: theirs, or the pattern that `matches` decides.
            matches: which jobs of the database are meant; None means those with the label.

        Raises:
            NotFoundError: no such job.
            InvalidInputError: all of them have ended, or are being committed.
        """
        found = {
            job_id: job
            for job_id, job in self.all().items()
            if job.spec.database == database
            and (job.spec.label == label if matches is None else matches(job))
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

    def _stored(self) -> dict[int, LoadJob]:
        return {job_id: LoadJob.from_record(record) for job_id, record in self._jobs.all().items()}

    def show(self, database: str | None = None) -> list[tuple[str | None, ...]]:
        """Lines of SHOW LOAD, oldest first."""
        return [
            job.show(job_id) for job_id, job in self.all().items() if database in (None, job.spec.database)
        ]

    def may_start(self, job_id: int, running_max: int) -> bool:
        """Whether it is a waiting job's turn: by priority, then by age (B9)."""
        jobs = self.all()
        if sum(job.state in (LOADING, COMMITTED) for job in jobs.values()) >= running_max:
            return False
        waiting = [i for i, job in jobs.items() if job.state == PENDING]
        return waiting != [] and min(waiting, key=lambda i: (_rank(jobs[i]), i)) == job_id


def _rank(job: LoadJob) -> int:
    return ("HIGH", "NORMAL", "LOW").index(job.spec.priority)


def _is_abandoned(job: LoadJob) -> bool:
    return not job.has_ended and not is_alive(job.owner)


def _cancelling(job: LoadJob) -> LoadJob:
    """Decided within the change: the job may go on to commit meanwhile."""
    if job.state == COMMITTED:
        raise InvalidInputError("Job could not be cancelled while txn is committing", kind="job_committing")
    return job if job.has_ended else replace(job, is_cancelling=True)


def _on_record(change: Change) -> Callable[[Record], Record | None]:
    def changed(record: Record) -> Record | None:
        before = LoadJob.from_record(record)
        after = change(before)
        return None if after == before else after.to_record()

    return changed


def _time(milliseconds: int) -> str | None:
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M:%S")
