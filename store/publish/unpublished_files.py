"""Removal of files that a failed commit left unpublished."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.prepared_records import prepared_files
from seqstore.store.errors import StoreError
from seqstore.store.segment.segment import INLINE, file_names

if TYPE_CHECKING:
    from seqstore.store.fill.delta_file import DeltaFile
    from seqstore.store.read.versioned_table import VersionedTable
    from seqstore.store.segment.segment import Segment

_LOG: Final = logging.getLogger(__name__)


def remove_unpublished(
    table: VersionedTable, segments: Iterable[Segment], deltas: Iterable[DeltaFile] = ()
) -> None:
    """Removes the files of segments, and deltas, of this process that were not published.

    An interrupted commit, by Ctrl-C during an fsync for example, may still have stored its version. So the
    catalog is read, behind any commit that is still running. When it cannot be read, the next sweep (VACUUM,
    or the next opening of the store) removes the files.
    """
    disk, directory = table.loader.disk, table.loader.directory
    filed = [segment for segment in segments if segment.meta.home != INLINE]
    named = [delta.name for delta in deltas if delta.name]
    if not filed and not named:
        return
    try:
        with table.catalog.write() as tx:
            prepared = prepared_files(tx, table.id)
            unnamed = [
                segment
                for segment in filed
                if not is_known(tx, table.id, f"{segment.meta.id}.")
                and prepared.isdisjoint(file_names(segment.meta))
            ]
    except StoreError as error:
        _LOG.warning("%s: files of a load that failed are left to the next sweep: %s", table.name, error)
        for segment in filed:
            segment.leave_files()
        for name in named:
            disk.leave(f"{directory}/{name}")
        return
    for segment in unnamed:
        segment.delete_files()
    for name in named:
        if name not in prepared:
            disk.discard(f"{directory}/{name}")


def is_known(tx: catalog.CatalogTransaction, table_id: int, name: str) -> bool:
    return tx.get("segments", catalog.segment_key(table_id, name.rpartition(".")[0])) is not None
