"""Segment files that no version names: what a crash leaves. Opening a store removes them, and so does VACUUM.

A process writes segment files before it publishes them. If it died in between they are nobody's. A file is
removed when the process that made it (its name tells) is gone and neither the catalog's segments nor a
pre-committed transaction name it; the catalog is asked last, so what was published just before the maker
ended is kept. Files of living processes are left alone, but for those of a table that was dropped.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from store import catalog
from store.catalog import Catalog
from store.disk import Disk
from store.prepared import prepared_files
from store.records import unpack
from store.segment import SegmentMeta
from store.staging import StagingId, maker_of
from store.transaction import is_alive

TABLES: Final = "tables"
# What `staging.new_segment_id` gives, and the suffixes of what loads leave.
_SEGMENT_FILE: Final = re.compile(r"[0-9a-f]{16}(-[0-9a-f]+){3}\.(arrow|parquet|keys|delta|load)")


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
    ended: Collection[StagingId] = (),
    dry_run: bool = False,
) -> list[str]:
    """Removes orphaned segment files of one table; returns their names below the data directory.

    Args:
        ended: loads that are over although the process that makes them lives.
    """
    files = [name for name in disk.list(directory) if _SEGMENT_FILE.fullmatch(name)]  # no others are touched
    makers = {name: maker_of(name.rpartition(".")[0]) for name in files}
    living = {maker for maker in set(makers.values()) if is_alive(maker)}
    abandoned = [
        name for name in files if makers[name] not in living or any(load.owns(name) for load in ended)
    ]
    if not abandoned:
        return []
    with store_catalog.read() as tx:
        kept = prepared_files(tx, table_id)
        unknown = [name for name in abandoned if name not in kept and not _is_known(tx, table_id, name)]
        used = _file_ids(tx, table_id) if unknown else set()
    orphans = [f"{directory}/{name}" for name in unknown if name.rpartition(".")[0] not in used]
    if orphans and not dry_run:
        store_catalog.make_durable()
    for name in orphans if not dry_run else ():
        disk.delete(name)
    return orphans


def sweep_staged(
    store_catalog: Catalog, disk: Disk, table_id: int, directory: str, newest: StagingId
) -> list[str]:
    """Ends a load and those before it of the same owner and purpose, and removes what they staged and no
    version names; returns the names. For an owner that lives on and does not remember what it began.

    They end with the writer lock held: somebody who is about to publish one of them refuses within the switch
    if it has ended (`StagingId.refuse_ended`), or has published before the catalog is read here.

    Args:
        newest: the last load to end.
    """
    names = [name for name in disk.list(directory) if _SEGMENT_FILE.fullmatch(name)]
    ended = [
        load
        for load in map(StagingId.announced_by, names)
        if load is not None
        and (load.owner, load.purpose) == (newest.owner, newest.purpose)
        and load.begun <= newest.begun
    ]
    with store_catalog.write():
        for load in ended:
            disk.delete(f"{directory}/{load.announcement}")
    return sweep_table(store_catalog, disk, table_id, directory, ended=ended)


def _file_ids(tx: catalog.Transaction, table_id: int) -> set[str]:
    """Whose files the segments of a table use, and those that vacuum has still to delete."""
    return {
        SegmentMeta.from_record(unpack(raw)["meta"]).file_id
        for database in ("segments", "trash")
        for _, raw in tx.items(database, catalog.table_key(table_id))
    }


def _is_known(tx: catalog.Transaction, table_id: int, name: str) -> bool:
    return tx.get("segments", catalog.segment_key(table_id, name.rpartition(".")[0])) is not None
