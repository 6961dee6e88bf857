"""Segment files that no version names: what a crash leaves. Opening a store removes them, and so does VACUUM.

A process writes segment files before it publishes them. If it died in between they are nobody's. A file is
removed when the process that made it (its name tells) is gone and neither the catalog's segments nor a
pre-committed transaction name it; the catalog is asked last, so what was published just before the maker
ended is kept. Files of living processes are left alone, but for those of a table that was dropped, and of
loads that several processes staged and that have ended (segment.load_marker).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import TABLES, Catalog
from seqstore.store.catalog.prepared_records import prepared_files
from seqstore.store.errors import CommitUnknownError, StoreError
from seqstore.store.publish.unpublished_files import is_known
from seqstore.store.runtime.process_identity import is_alive
from seqstore.store.runtime.records import unpack
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.load_marker import StagingId, job_of, maker_of
from seqstore.store.segment.segment import SegmentMeta

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_LOG: Final = logging.getLogger(__name__)
# What `staging.new_segment_id` gives, and the suffixes of what loads leave.
_SEGMENT_FILE: Final = re.compile(r"[0-9a-f]{16}(-[0-9a-f]+){3}\.(arrow|parquet|keys|delta|feed|load)")


def sweep_orphans(store_catalog: Catalog, disk: Disk) -> list[str]:
    """Removes orphaned segment files of all tables; returns their names."""
    # Listed before the catalog is read: a table made in between is not taken for a dropped one.
    directories = [f"{TABLES}/{name}" for name in disk.list(TABLES)]
    with store_catalog.read() as tx:
        tables = {int.from_bytes(key): unpack(raw)["directory"] for key, raw in tx.items("tables")}
    store_catalog.make_durable()  # a drop that another process has just committed may not be yet
    removed = []
    for directory in sorted(set(directories) - set(tables.values())):
        dropped = [name for name in disk.list(directory) if _SEGMENT_FILE.fullmatch(name)]
        for name in dropped:
            disk.delete(f"{directory}/{name}")
        removed += [f"{directory}/{name}" for name in dropped]
    for table_id, directory in tables.items():
        removed += sweep_table(store_catalog, disk, table_id, directory)
    return removed


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
    """
    jobs = {load.job for load in only}
    listed = _listed(disk, directory)
    names = [name for name in listed if not jobs or job_of(name) in jobs]
    unknown = _unknown(store_catalog, table_id, _abandoned(names, listed))
    if not unknown:
        return []
    # The loads of some may have been published, and ended, since the catalog was read. Their announcements
    # are looked for once more; who saw one within a switch has published when the writer lock is free.
    unknown = _abandoned(unknown, _listed(disk, directory))
    with store_catalog.write():
        pass
    orphans = [f"{directory}/{name}" for name in _unknown(store_catalog, table_id, unknown)]
    if dry_run or not orphans:
        return orphans
    store_catalog.make_durable()
    failed = [error for error in (_delete(disk, name) for name in orphans) if error is not None]
    if failed:
        raise failed[0]
    return orphans


def begun_loads(disk: Disk, directory: str, newest: StagingId) -> list[StagingId]:
    """A load and those before it of the same owner and purpose that have not ended. For an owner that lives
    on and does not remember what it began."""
    return [
        load
        for load in map(StagingId.marked_by, _listed(disk, directory))
        if load is not None
        and (load.owner, load.purpose) == (newest.owner, newest.purpose)
        and load.begun <= newest.begun
    ]


def end_loads(table: VersionedTable, loads: Collection[StagingId]) -> list[str]:
    """Ends loads that tasks stage, published or not, and removes the files of theirs that no version names;
    returns the names. See segment.load_marker.

    Raises:
        StoreError, OSError: a file could not be removed; sweeping finds it later.
    """
    disk, directory = table.loader.disk, table.loader.directory
    for load in loads:
        disk.delete(f"{directory}/{load.marker}")
    return sweep_table(table.catalog, disk, table.id, directory, only=loads)


@contextmanager
def ending(table: VersionedTable, *loads: StagingId) -> Iterator[None]:
    """Ends loads when the block that publishes them does. What cannot be removed then is told in the log
    only: sweeping finds it later, and what the block came to stays."""
    try:
        yield
    except CommitUnknownError:
        raise  # the version may be there: nothing is decided by what can be seen now
    except BaseException:
        _end_quietly(table, loads)
        raise
    _end_quietly(table, loads)


def _end_quietly(table: VersionedTable, loads: Collection[StagingId]) -> None:
    try:
        end_loads(table, loads)
    except (StoreError, OSError) as error:
        _LOG.warning("%s: staged files are left to the next sweep: %s", table.name, error)


def _listed(disk: Disk, directory: str) -> list[str]:
    """Files of loads; no others are touched."""
    return [name for name in disk.list(directory) if _SEGMENT_FILE.fullmatch(name)]


def _abandoned(names: list[str], listed: list[str]) -> list[str]:
    """Files whose maker is gone, or whose load has ended.

    Args:
        listed: all files of the directory.
    """
    announced = {load.job for load in map(StagingId.marked_by, listed) if load is not None}
    makers = {name: maker_of(name.rpartition(".")[0]) for name in names}
    living = {maker for maker in set(makers.values()) if is_alive(maker)}
    jobs = {name: job_of(name) for name in names}
    ended = {job for job in jobs.values() if job is not None and job not in announced}
    return [name for name in names if makers[name] not in living or jobs[name] in ended]


def _unknown(store_catalog: Catalog, table_id: int, names: list[str]) -> list[str]:
    """Files that no version and no pre-committed transaction names."""
    if not names:
        return []
    with store_catalog.read() as tx:
        kept = prepared_files(tx, table_id)
        unknown = [name for name in names if name not in kept and not is_known(tx, table_id, name)]
        used = _file_ids(tx, table_id) if unknown else set()
    return [name for name in unknown if name.rpartition(".")[0] not in used]


def _delete(disk: Disk, name: str) -> StoreError | OSError | None:
    """What the removal failed with, so that the others go."""
    try:
        disk.delete(name)
    except (StoreError, OSError) as error:
        return error
    return None


def _file_ids(tx: catalog.CatalogTransaction, table_id: int) -> set[str]:
    """Whose files the segments of a table use, and those that vacuum has still to delete."""
    return {
        SegmentMeta.from_record(unpack(raw)["meta"]).file_id
        for database in ("segments", "trash")
        for _, raw in tx.items(database, catalog.table_key(table_id))
    }
