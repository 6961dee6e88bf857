"""What a target has: its backups, and the proof that each file of theirs is as it was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from seqstore.store.backup import manifest as manifests
from seqstore.store.backup.manifest import FILES, CopiedFile, manifest_names, read_manifest
from seqstore.store.backup.target import Target
from seqstore.store.backup.transfer import verify
from seqstore.store.errors import CorruptionError, StoreError, UnavailableError


@dataclass(frozen=True)
class StoredBackup:
    """One backup that a target has.

    Attributes:
        timestamp: distinguishes backups of one label.
        error: why it cannot be read, empty if it can; then `objects`, `files` and `bytes` are those of its
            manifest, else empty.
    """

    label: str
    timestamp: str
    database: str
    objects: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    error: str = ""


def stored_backups(target: str) -> list[StoredBackup]:
    """Returns the backups that a target has, by label and timestamp.

    Raises:
        UnavailableError: the target cannot be read.
    """
    place = Target(target)
    return [_stored(place, name) for name in manifest_names(place)]


def backup_faults(target: str, on_file: Callable[[int, int], None] = lambda done, total: None) -> list[str]:
    """Reads every file of every backup of a target; returns a sentence for each fault.

    Args:
        on_file: called with the number of files that were read, and of all.

    Raises:
        UnavailableError: the target cannot be read.
    """
    place = Target(target)
    faults: list[str] = []
    files: dict[str, CopiedFile] = {}
    for name in manifest_names(place):
        try:
            files.update(read_manifest(place, name).files)
        except UnavailableError:
            raise
        except StoreError as error:
            faults.append(error.message)
    for i, file in enumerate(files.values()):
        try:
            verify(place, file)
        except CorruptionError as error:
            faults.append(error.message)
        on_file(i + 1, len(files))
    unknown = sorted(place.sizes(FILES).keys() - files.keys())
    return faults + [f"{place.shown}/{FILES}/{name} belongs to no readable backup" for name in unknown]


def _stored(place: Target, name: str) -> StoredBackup:
    label, timestamp, database = manifests.split_name(name)
    try:
        manifest = read_manifest(place, name)
    except UnavailableError:
        raise
    except StoreError as error:
        return StoredBackup(label, timestamp, database, error=error.message)
    files = manifest.files
    size = sum(file.bytes for file in files.values())
    return StoredBackup(label, timestamp, database, tuple(manifest.objects), len(files), size)
