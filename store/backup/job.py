"""The records of backups and restorations: jobs that another process runs again when theirs has ended.

FINISHED is stored after the manifest of a backup was written, and in the transaction that makes the tables of
a restoration visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

from seqstore.store.catalog.job_record import CANCELLED, NO_OWNER, JobRecord, Owner
from seqstore.store.catalog.reserved_tables import FINAL_STATES, RESTORE_KIND
from seqstore.store.catalog.transaction_record import now_ms

BACKUP_KIND: Final = "backup"
PENDING: Final = "PENDING"
SNAPSHOTING: Final = "SNAPSHOTING"  # as Doris spells it
UPLOADING: Final = "UPLOADING"
UPLOAD_INFO: Final = "UPLOAD_INFO"
DOWNLOADING: Final = "DOWNLOADING"
COMMITTING: Final = "COMMITTING"
FINISHED: Final = "FINISHED"
USER_CANCEL: Final = "user cancelled"
ATTEMPTS_MAX: Final = 3  # a job that ends every process that runs it must not run for ever
TIMEOUT_SECONDS: Final = 24 * 3600


@dataclass(frozen=True)
class TransferJob(JobRecord):
    """What backups and restorations have in common.

    Attributes:
        kind: of the records.
        db: the database that is backed up, or restored into.
        target: where the backup is; a directory or a URI.
        timestamp: of the backup; empty before it is known.
        timeout_seconds: the job is cancelled when it takes longer.
        attempts: how often it was begun.
        snapshot_ms: when it was known what it copies, 0 before.
        moved_ms: when the last file was copied, 0 before.
        files, bytes_total: of the backup.
        files_done, bytes_done: those that are in place.
        files_copied, bytes_copied: those of them that were not there before.
        message: why it was cancelled.
    """

    final_states: ClassVar[frozenset[str]] = frozenset(FINAL_STATES)
    kind: ClassVar[str]
    moving: ClassVar[str]
    db: str
    label: str
    target: str
    state: str
    owner: Owner
    created_ms: int
    timestamp: str = ""
    timeout_seconds: int = TIMEOUT_SECONDS
    attempts: int = 1
    snapshot_ms: int = 0
    moved_ms: int = 0
    finished_ms: int = 0
    files: int = 0
    files_done: int = 0
    files_copied: int = 0
    bytes_total: int = 0
    bytes_done: int = 0
    bytes_copied: int = 0
    message: str = ""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        lists = {name: tuple(value) for name, value in record.items() if isinstance(value, list)}
        return cls(**{**record, **lists})

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

    def taken_over(self, owner: Owner) -> Self:
        """Returns the job as it was when it was new; a job that was begun too often is cancelled."""
        if self.attempts >= ATTEMPTS_MAX:
            return self.cancelled(f"every process that ran it ended, {self.attempts} times")
        return replace(self, owner=owner, attempts=self.attempts + 1, state=PENDING)

    def released(self) -> Self:
        """Returns the job for another process to run, because this one ends in good order."""
        return replace(self, state=PENDING, owner=NO_OWNER, attempts=self.attempts - 1)

    def cancelled(self, reason: str) -> Self:
        """Returns the job as cancelled; its owner has yet to remove what it made, and to leave."""
        return replace(self, state=CANCELLED, finished_ms=now_ms(), message=reason)

    def left(self) -> Self:
        """Returns the job without its owner."""
        return replace(self, owner=NO_OWNER)

    def finished(self) -> Self:
        return replace(self, state=FINISHED, owner=NO_OWNER, finished_ms=now_ms())


@dataclass(frozen=True)
class BackupJob(TransferJob):
    """One BACKUP SNAPSHOT.

    Attributes:
        objects: tables and views as named; none means all.
        copied: tables and views that it copies, once that is known.
        is_excluding: all but those.
        is_verifying: files that the target has are read and compared.
    """

    kind: ClassVar[str] = BACKUP_KIND
    moving: ClassVar[str] = UPLOADING
    objects: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    is_excluding: bool = False
    is_verifying: bool = False


@dataclass(frozen=True)
class RestoreJob(TransferJob):
    """One RESTORE SNAPSHOT.

    Attributes:
        manifest: file name of the backup's manifest.
        names: of the restored tables and views, by their names in the backup.
        ids: of the new tables, by their names in the backup.
        is_replacing: tables and views of those names are replaced.
    """

    kind: ClassVar[str] = RESTORE_KIND
    moving: ClassVar[str] = DOWNLOADING
    manifest: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)
    is_replacing: bool = False
