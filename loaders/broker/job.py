"""The record of a broker load: its state and progress (B3, B13-B17).

A job belongs to the process that runs it. FINISHED is written in the transaction that publishes the rows, so
a job in any other state whose process died has published nothing: it can run again from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from seqstore.loaders.broker.spec import LoadSpec
from seqstore.store.catalog.job_record import CANCELLED, JobRecord, Owner
from seqstore.store.catalog.transaction_record import now_ms

PENDING: Final = "PENDING"
LOADING: Final = "LOADING"
COMMITTED: Final = "COMMITTED"
FINISHED: Final = "FINISHED"
ENDED: Final = frozenset([FINISHED, CANCELLED])
ATTEMPTS_MAX: Final = 3  # a job that ends every process that runs it must not run for ever
OWNER_ENDED: Final = "type:LOAD_RUN_FAIL; msg:the process that ran it ended; submit it again"


@dataclass(frozen=True)
class LoadJob(JobRecord):
    """One job.

    Attributes:
        spec: the request.
        state: PENDING, LOADING, COMMITTED, FINISHED or CANCELLED.
        owner: process id and start time of the process that runs it.
        allowed: directories and URIs below which it may read.
        references: secrets that it may name, besides those that the settings allow.
        attempts: how often it was begun.
        files, files_done: files there are, and those staged already.
        bytes_total, bytes_done: their sizes, and the bytes read of them.
        loaded, filtered, unselected: rows; -1 while not counted.
        error: `type:...; msg:...` when cancelled (B14).
        is_cancelling: a user requested its end.
        created: the statements of the tables that it made.
    """

    final_states: ClassVar[frozenset[str]] = ENDED
    optional_fields: ClassVar[frozenset[str]] = frozenset(["references", "created"])
    spec: LoadSpec
    state: str
    owner: Owner
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
    references: tuple[str, ...] = ()
    created: tuple[str, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> LoadJob:
        made = {
            "spec": LoadSpec.from_record(record["spec"]),
            "owner": tuple(record["owner"]),
            "allowed": tuple(record.get("allowed", ())),
            "references": tuple(record.get("references", ())),
            "created": tuple(record.get("created", ())),
        }
        return cls(**{**record, **made})

    @property
    def database(self) -> str:
        return self.spec.database

    @property
    def name(self) -> str:
        return self.spec.label

    @property
    def end_ms(self) -> int:
        return self.finished_ms

    @property
    def percent(self) -> int:
        """Share of the bytes that are read; 100 once the rows are visible."""
        if self.state == FINISHED:
            return 100
        return min(self.bytes_done * 100 // self.bytes_total, 99) if self.bytes_total else 0

    def taken_over(self, owner: Owner) -> LoadJob:
        """Returns the job as it was when it was new; a job that was begun too often is cancelled."""
        if self.attempts >= ATTEMPTS_MAX:
            return self.cancelled(
                f"type:LOAD_RUN_FAIL; msg:every process that ran it ended, {self.attempts} times"
            )
        return LoadJob(
            self.spec,
            PENDING,
            owner,
            self.created_ms,
            allowed=self.allowed,
            references=self.references,
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
