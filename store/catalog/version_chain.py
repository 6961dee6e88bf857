"""Proof that no record of a table is missing: each version record states what belongs to its version.

A `VersionState` counts the segments that are live at the version and sums the hashes of their ids; sums are
carried from version to version, so that a commit computes them from the version before. It also has the
checksum of the version's delete bitmap record, and that of the record of the version before: the records form
a chain. A reader compares what it found with what is stated. What is missing, or is an older copy, is
`CorruptionError`.

Vacuum rewrites bitmap records of versions up to `oldest`; their checksums are in the record of `horizons`.
Of versions that were thinned out only the records are left that kept versions need.
Versions that earlier programs made have no state and are read without this proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction, lost_record
from seqstore.store.catalog.kept_versions import KeptVersions, whole_versions
from seqstore.store.catalog.version_record import EMPTY, VersionState, require_bitmap
from seqstore.store.errors import CorruptionError
from seqstore.store.segment.delete_bitmap import chain


def require_whole(tx: CatalogTransaction, table_id: int) -> None:
    """Raises unless all versions of a table that are whole have everything that they state; before files are
    removed.

    Records of versions that only the history shows are not read: they keep no file, and may be millions.

    Raises:
        CorruptionError: a record is missing, or an older copy.
    """
    for fault in chain_faults(tx, table_id, with_history=False):
        raise CorruptionError(
            f"{fault}; run repair, or restore the catalog from a copy", path=f"catalog/versions/{table_id}"
        )


def require_newest(tx: CatalogTransaction, table_id: int, head: int) -> None:
    """Raises if a version after the head has a record: the head is an older copy.

    Raises:
        CorruptionError: there is one.
    """
    key = catalog.version_key(table_id, head + 1)
    if tx.digest("versions", key) is not None:
        raise lost_record(
            "heads", catalog.table_key(table_id), f"names version {head}, and a later one exists"
        )


def chain_faults(tx: CatalogTransaction, table_id: int, *, with_history: bool = True) -> Iterator[str]:
    """Yields a sentence for each fault of the version records of a table, and of what they state.

    Args:
        with_history: begins with the first record, not with the first version that is whole.
    """
    prefix = catalog.table_key(table_id)
    head = int(tx.require("heads", prefix)[0])
    require_newest(tx, table_id, head)
    whole = whole_versions(tx, table_id)
    needed = needed_bitmaps(whole)
    changes = _changes(tx, table_id)
    found, digest = EMPTY, b""
    skips = not with_history and whole.first > 1
    start, expected = (catalog.version_key(table_id, whole.first), whole.first) if skips else (b"", 0)
    if skips:
        yield from _bitmap_faults(tx, table_id, chain(whole.first))
    for key, record in tx.records("versions", prefix, start):
        version = int.from_bytes(key[8:])
        if expected and version != expected:
            yield f"table {table_id}: the records of versions {expected} to {version - 1} are lost"
        elif digest and record.get("state", {}).get("before", digest) != digest:
            yield f"table {table_id}: the record of version {version - 1} is not the one that was stored"
        expected, digest = version + 1, tx.digest("versions", key) or b""
        while changes and changes[-1][0] <= version:
            found = found.followed_by(*changes.pop()[1])
        if version in whole and "state" in record:
            stated = VersionState.from_record(record["state"])
            if (found.segments, found.total) != (stated.segments, stated.total):
                yield (
                    f"table {table_id}: version {version} states {stated.segments} segments, and the catalog "
                    f"has {found.segments}, or others"
                )
        if not whole.first < version < whole.every or version in needed:  # else it was thinned out
            yield from _bitmap_faults(tx, table_id, (version,))
    if expected != head + 1:
        yield f"table {table_id}: the records of versions {expected} to {head} are lost"


def _bitmap_faults(tx: CatalogTransaction, table_id: int, versions: Iterable[int]) -> Iterator[str]:
    for version in versions:
        try:
            require_bitmap(tx, table_id, version)
        except CorruptionError as error:
            yield error.message


def needed_bitmaps(whole: KeptVersions) -> set[int]:
    """Returns the versions up to `whole.every` whose delete bitmap records whole versions need.

    The chains of later versions have no other one before it (maintenance.retention).
    """
    return {number for version in (*whole.some, whole.every) for number in chain(version)}


def _changes(tx: CatalogTransaction, table_id: int) -> list[tuple[int, tuple[list[str], list[str]]]]:
    """Returns the ids of the segments that each version added and dropped, the last version first."""
    changes: dict[int, tuple[list[str], list[str]]] = {}
    for key, record in tx.records("segments", catalog.table_key(table_id)):
        segment = key[8:].decode()
        changes.setdefault(record["created"], ([], []))[0].append(segment)
        if record["dropped"]:
            changes.setdefault(record["dropped"], ([], []))[1].append(segment)
    return sorted(changes.items(), reverse=True)
