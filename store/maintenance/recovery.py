"""Removal of segment files that no version names, which a crash leaves. It runs when a store is opened, and
in VACUUM.

Nothing is removed from a table whose records do not add up (catalog.version_chain): a damaged catalog names
fewer files than it did. What is removed moves to `trash/` first, and is deleted from there a day later; files
of a load that its owner ends are deleted at once.

A process writes segment files before it publishes them. Files of a process that died in between have no
owner. A file is removed when the process that made it (its name contains the process) has ended and neither
the catalog's segments nor a pre-committed transaction name it. The catalog is read last, so files that were
published just before their process ended are kept.
Files of living processes are kept, except those of a dropped table, those of ended loads that several
processes staged (segment.load_marker), and those that this process itself could not remove before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog.catalog import TABLES, CatalogTransaction, lost_record, table_key
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.leases import leases_of
from seqstore.store.catalog.prepared_records import prepared_files
from seqstore.store.catalog.reserved_tables import reserved_directories
from seqstore.store.catalog.version_chain import require_whole
from seqstore.store.errors import CommitUnknownError, StoreError
from seqstore.store.publish.unpublished_files import is_known
from seqstore.store.runtime.process_identity import is_alive
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.load_marker import StagingId, is_segment_id, job_of, maker_of
from seqstore.store.segment.segment import SegmentMeta

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

TRASH: Final = "trash"
_TRASH_SECONDS: Final = 24 * 3600
_LOG: Final = logging.getLogger(__name__)
_SUFFIXES: Final = ("arrow", "parquet", "keys", "delta", "feed", "load")  # of files that loads leave


def sweep_orphans(store_catalog: Catalog, disk: Disk) -> list[str]:
    """Removes orphaned segment files of all tables; returns their names."""
    # Listed before the catalog is read: a table created in between must not look like a dropped one.
    directories = [f"{TABLES}/{name}" for name in disk.list(TABLES)]
    with store_catalog.read() as tx:
        tables = {int.from_bytes(key): record["directory"] for key, record in tx.records("tables")}
        next_table = int(tx.get("meta", b"next_table") or 1)
        reserved = reserved_directories(tx)
    store_catalog.make_durable()  # a drop that another process has just committed may not be durable yet
    removed = []
    for directory in sorted(set(directories) - set(tables.values()) - reserved):
        if is_read(store_catalog, directory):
            continue
        number = directory.rpartition("/")[2]
        dropped = [f"{directory}/{name}" for name in _listed(disk, directory)]
        if dropped and number.isdecimal() and int(number) >= next_table:
            raise lost_record("meta", b"next_table", f"is {next_table}, and {directory} has files")
        _remove(disk, dropped, keep=True)
        removed += dropped
    for table_id, directory in tables.items():
        removed += sweep_table(store_catalog, disk, table_id, directory)
    _empty_trash(disk)
    return removed


def is_read(store_catalog: Catalog, directory: str) -> bool:
    """Returns whether a process reads a version of the table of a directory, which may have been dropped.

    Raises:
        UnavailableError: the leases cannot be read.
    """
    number = directory.rpartition("/")[2]
    return number.isdecimal() and bool(leases_of(store_catalog.data_dir).held(int(number)))


def _remove(disk: Disk, names: list[str], *, keep: bool) -> None:
    """Removes files; one that cannot be removed does not keep the others.

    Args:
        keep: they move to the trash.

    Raises:
        StoreError: of the first file that could not be removed.
    """
    failed: list[StoreError] = []
    for name in names:
        try:
            if keep:
                disk.move(name, TRASH + name.removeprefix(TABLES))
            else:
                disk.delete(name)
        except StoreError as error:
            failed.append(error)
    if failed:
        raise failed[0]


def _empty_trash(disk: Disk) -> None:
    """Deletes files that were moved to the trash a day ago."""
    now = time.time()
    for table in disk.list(TRASH):
        for name in disk.list(f"{TRASH}/{table}"):
            if disk.age_seconds(f"{TRASH}/{table}/{name}", now) > _TRASH_SECONDS:
                disk.delete(f"{TRASH}/{table}/{name}")


def sweep_table(
    store_catalog: Catalog,
    disk: Disk,
    table_id: int,
    directory: str,
    *,
    only: Collection[StagingId] = (),
    dry_run: bool = False,
) -> list[str]:
    """Removes orphaned files of one table; returns their names below the data directory.

    Args:
        only: of these loads, when there are any; otherwise of all.

    Raises:
        CorruptionError: a record of the table is missing; nothing was removed.
        StoreError: a file could not be removed.
    """
    jobs = {load.job for load in only}
    listed = _listed(disk, directory)
    names = [name for name in listed if not jobs or job_of(name) in jobs]
    left = disk.left(directory)
    unknown = _unknown(store_catalog, table_id, _abandoned(names, listed, left))
    if not unknown:
        return []
    # Some of their loads may have been published, and ended, since the catalog was read. Their markers are
    # read again; a publisher that saw its marker has committed when the writer lock is free.
    unknown = _abandoned(unknown, _listed(disk, directory), left)
    with store_catalog.write():
        pass
    orphans = [f"{directory}/{name}" for name in _unknown(store_catalog, table_id, unknown)]
    if dry_run or not orphans:
        return orphans
    with store_catalog.read() as tx:
        if tx.digest("tables", table_key(table_id)) is not None:
            require_whole(tx, table_id)
    store_catalog.make_durable()
    _remove(disk, orphans, keep=not jobs)  # of a load that its owner ends, no other record can name them
    return orphans


def begun_loads(disk: Disk, directory: str, newest: StagingId) -> list[StagingId]:
    """Returns a load and earlier ones of the same owner and purpose that have not ended.

    For an owner that is still alive and has no record of its loads.
    """
    return [
        load
        for load in map(StagingId.marked_by, _listed(disk, directory))
        if load is not None
        and (load.owner, load.purpose) == (newest.owner, newest.purpose)
        and load.begun <= newest.begun
    ]


def end_loads(table: VersionedTable, loads: Collection[StagingId]) -> list[str]:
    """Ends loads that tasks stage, published or not, and removes their files that no version names.

    Returns the names of the files. See segment.load_marker.

    Raises:
        StoreError: a file could not be removed; a later sweep finds it.
    """
    disk, directory = table.loader.disk, table.loader.directory
    for load in loads:
        disk.delete(f"{directory}/{load.marker}")
    return sweep_table(table.catalog, disk, table.id, directory, only=loads)


@contextmanager
def ending(table: VersionedTable, *loads: StagingId) -> Iterator[None]:
    """Ends loads at the end of the block that publishes them.

    A failed removal is only logged: a later sweep finds the files, and the outcome of the block stands.
    """
    try:
        yield
    except CommitUnknownError:
        raise  # the version may exist: its files must stay until the outcome is known
    except BaseException:
        _end_quietly(table, loads)
        raise
    _end_quietly(table, loads)


def _end_quietly(table: VersionedTable, loads: Collection[StagingId]) -> None:
    try:
        end_loads(table, loads)
    except StoreError as error:
        _LOG.warning("%s: staged files are left to the next sweep: %s", table.name, error)


def _listed(disk: Disk, directory: str) -> list[str]:
    """Lists the files of loads; sweeps ignore all other files."""
    parts = ((name, *name.rpartition(".")) for name in disk.list(directory))
    return [name for name, stem, _, suffix in parts if suffix in _SUFFIXES and is_segment_id(stem)]


def _abandoned(names: list[str], listed: list[str], left: Collection[str]) -> list[str]:
    """Returns files whose maker has ended, or whose load has ended.

    Args:
        listed: all files of the directory.
        left: those that this process could not remove when their load failed.
    """
    marked = {load.job for load in map(StagingId.marked_by, listed) if load is not None}
    makers = {name: maker_of(name.rpartition(".")[0]) for name in names}
    living = {maker for maker in set(makers.values()) if is_alive(maker)}
    jobs = {name: job_of(name) for name in names}
    ended = {job for job in jobs.values() if job is not None and job not in marked}
    return [n for n in names if makers[n] not in living or jobs[n] in ended or n in left]


def _unknown(store_catalog: Catalog, table_id: int, names: list[str]) -> list[str]:
    """Returns files that no version and no pre-committed transaction names."""
    if not names:
        return []
    with store_catalog.read() as tx:
        kept = prepared_files(tx, table_id)
        unknown = [name for name in names if name not in kept and not is_known(tx, table_id, name)]
        # Vacuum has yet to delete the files of the trash.
        used = file_ids(tx, table_id, "segments", "trash") if unknown else set()
    return [name for name in unknown if name.rpartition(".")[0] not in used]


def file_ids(tx: CatalogTransaction, table_id: int, *databases: str) -> set[str]:
    """Returns the ids of the files that segment records of a table use."""
    return {
        SegmentMeta.from_record(record["meta"]).file_id
        for database in databases
        for _, record in tx.records(database, table_key(table_id))
    }
