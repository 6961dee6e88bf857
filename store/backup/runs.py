"""The steps of a backup and of a restoration; `backup.backups` has their jobs and threads.

A backup:

1. SNAPSHOTING: the records of its tables are read, and their versions held (backup.capture).
2. UPLOADING: files that the target does not have in their size are copied.
3. UPLOAD_INFO: the target is listed once more, for the files of a cancelled backup may have been removed
   meanwhile. The manifest is written. Before that there is no backup; a backup that begins again copies only
   what is missing.

A restoration:

1. The ids of the new tables are taken, and stored in the job (catalog.reserved_tables).
2. DOWNLOADING: files are copied into the directories of those tables, and every range is compared.
3. COMMITTING: one transaction stores the records of all tables, and FINISHED.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from seqstore.store.backup.capture import Capture
from seqstore.store.backup.install import install
from seqstore.store.backup.job import (
    COMMITTING,
    DOWNLOADING,
    SNAPSHOTING,
    UPLOAD_INFO,
    UPLOADING,
    BackupJob,
    RestoreJob,
    TransferJob,
)
from seqstore.store.backup.job_control import JobControl
from seqstore.store.backup.manifest import (
    FILES,
    MANIFESTS,
    CopiedFile,
    Manifest,
    manifest_name,
    manifest_names,
    read_manifest,
)
from seqstore.store.backup.target import Target
from seqstore.store.backup.transfer import Check, download, is_stored, upload, verify
from seqstore.store.catalog.catalog import TABLES
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import CommitUnknownError, CorruptionError, StoreError, UnavailableError
from seqstore.store.runtime import failpoint
from seqstore.store.segment.disk import Disk

_NOTE_SECONDS: Final = 0.5  # between notes of the progress; each is a durable write
_LISTINGS: Final = 3


@dataclass
class Progress:
    """Counts files, and notes the counts in the job's record now and then."""

    control: JobControl
    files: int
    bytes_total: int
    done: int = 0
    bytes_done: int = 0
    copied: int = 0
    bytes_copied: int = 0
    noted: float = 0.0

    def add(self, file: CopiedFile, *, is_copied: bool) -> None:
        """Counts a file that is in place."""
        self.done += 1
        self.bytes_done += file.bytes
        self.copied += is_copied
        self.bytes_copied += file.bytes if is_copied else 0
        if time.monotonic() - self.noted >= _NOTE_SECONDS:
            self.noted = time.monotonic()
            with suppress(UnavailableError, CommitUnknownError):  # the files count, not the note
                self.control.enter(self.noted_in)

    def noted_in(self, job: TransferJob) -> TransferJob:
        """Returns the job with the counts."""
        return replace(
            job,
            files=self.files,
            bytes_total=self.bytes_total,
            files_done=self.done,
            bytes_done=self.bytes_done,
            files_copied=self.copied,
            bytes_copied=self.bytes_copied,
        )

    @classmethod
    def of(cls, control: JobControl, files: Iterable[CopiedFile]) -> Progress:
        sizes = [file.bytes for file in files]
        return cls(control, len(sizes), sum(sizes))


def back_up(catalog: Catalog, disk: Disk, job: BackupJob, control: JobControl) -> None:
    """Runs a backup to its manifest.

    Raises:
        StoreError: it cannot be made; files that were copied stay, unless the job was cancelled.
    """
    target = Target(job.target)
    if job.timestamp and _is_written(target, job):
        with catalog.write() as tx:
            control.finish(tx)
        return
    control.enter(lambda job: replace(job, state=SNAPSHOTING))
    capture = Capture(catalog, job.db, job.label, job.objects, is_excluding=job.is_excluding)
    try:
        manifest = capture.manifest
        moment, stamp = manifest.time_ms, manifest.timestamp
        control.enter(
            lambda job: replace(
                job,
                state=UPLOADING,
                timestamp=stamp,
                snapshot_ms=moment,
                copied=tuple(manifest.objects),
            )
        )
        try:
            _upload_all(disk, job, capture, target, control)
            control.enter(lambda job: replace(job, state=UPLOAD_INFO, moved_ms=now_ms()))
            failpoint.hit("backup.files")
            target.write(manifest.name, [manifest.pack()])
            failpoint.hit("backup.manifest")
            with catalog.write() as tx:
                control.finish(tx)
        except BaseException:
            if control.is_cancelled():
                with suppress(StoreError):
                    target.delete(manifest.name)
                remove_unused(target, manifest)
            raise
    finally:
        capture.close()


def _is_written(target: Target, job: BackupJob) -> bool:
    """Returns whether a process that ended had written the manifest before."""
    name = manifest_name(job.label, job.timestamp, job.db)
    return name in target.sizes(MANIFESTS)


def _upload_all(disk: Disk, job: BackupJob, capture: Capture, target: Target, control: JobControl) -> None:
    files = [
        (capture.directories[table.name], file) for table in capture.manifest.tables for file in table.files
    ]
    progress = Progress.of(control, [file for _, file in files])
    target.remove_parts(FILES)
    there = target.sizes(FILES)
    for directory, file in files:
        control.check()
        is_there = there.get(file.name) == file.bytes
        if is_there and job.is_verifying:
            is_there = _is_whole(target, file, control.check)
        if not is_there:
            upload(disk, directory, file, target, control.check)
        progress.add(file, is_copied=not is_there)
    for _ in range(_LISTINGS):  # another program may have removed a file of its own cancelled backup
        missing = _missing(files, target)
        for directory, file in missing:
            control.check()
            upload(disk, directory, file, target, control.check)
        if not missing:
            break
    else:
        if missing := _missing(files, target):
            raise UnavailableError(
                f"{target.shown}: {len(missing)} of {len(files)} files were removed again while the backup "
                f"copied them, such as {missing[0][1].name}; end what removes them, and begin the backup "
                "again",
                kind="files_removed",
            )
    control.enter(progress.noted_in)


def _missing(files: Sequence[tuple[str, CopiedFile]], target: Target) -> list[tuple[str, CopiedFile]]:
    """Returns the files that the target does not have in their size."""
    there = target.sizes(FILES)
    return [(directory, file) for directory, file in files if there.get(file.name) != file.bytes]


def _is_whole(target: Target, file: CopiedFile, check: Check) -> bool:
    try:
        verify(target, file, check)
    except CorruptionError:
        return False
    return True


def remove_unused(target: Target, manifest: Manifest) -> None:
    """Removes the files of a backup that was given up, unless another backup of the target has them.

    A manifest that cannot be read may name any file: then all of them stay.
    """
    with suppress(StoreError):
        used: set[str] = set()
        for name in manifest_names(target):
            used |= read_manifest(target, name).files.keys()
        for name in manifest.files.keys() - used:
            target.delete(f"{FILES}/{name}")


def restore(catalog: Catalog, disk: Disk, job: RestoreJob, control: JobControl) -> list[str]:
    """Runs a restoration to its commit; returns the directories of the tables that it replaced.

    Raises:
        StoreError: it cannot be made; no table has changed.
    """
    target = Target(job.target)
    manifest = read_manifest(target, job.manifest)
    chosen = [table for table in manifest.tables if table.name in job.names]
    control.enter(lambda job: replace(job, state=DOWNLOADING, snapshot_ms=now_ms()))
    progress = Progress.of(control, [file for table in chosen for file in table.files])
    for table in chosen:
        directory = f"{TABLES}/{job.ids[table.name]}"
        for file in table.files:
            control.check()
            is_there = job.attempts > 1 and is_stored(disk, directory, file)
            if not is_there:
                download(target, file, disk, directory, control.check)
            progress.add(file, is_copied=not is_there)
        if table.files:
            disk.sync_directory(directory)
    control.enter(lambda job: replace(progress.noted_in(job), state=COMMITTING, moved_ms=now_ms()))
    failpoint.hit("restore.files")
    with catalog.write() as tx:
        control.finish(tx)
        replaced = install(tx, job.db, manifest, job.names, job.ids, replaces=job.is_replacing)
    failpoint.hit("restore.installed")
    return replaced


def remove_restored(disk: Disk, job: RestoreJob) -> None:
    """Removes the files of a restoration that was given up; what is left is swept later."""
    for table_id in job.ids.values():
        for name in disk.list(f"{TABLES}/{table_id}"):
            disk.discard(f"{TABLES}/{table_id}/{name}")
