"""Base copies: the records of a whole catalog as of one commit, so that the log can be cut.

A copy is read in one LMDB transaction, while commits go on. Its directory is its own. Its manifest is written
when the log has all commits of the copy: a fenced host cannot complete one. It names a position behind which
all later commits are; earlier ones that are found there are skipped.
"""

from __future__ import annotations

import uuid
from typing import Final

from seqstore.store.catalog.catalog import DATABASES, CatalogTransaction
from seqstore.store.catalog.ship_log.outbox import Shipped, is_shipped_record
from seqstore.store.catalog.ship_log.place import Place
from seqstore.store.catalog.ship_log.ship_file import (
    BASE,
    LOG,
    MANIFEST,
    BaseChunk,
    Manifest,
    digest_of,
)
from seqstore.store.errors import CorruptionError, NotFoundError

_CHUNK_BYTES: Final = 8 * 2**20


def upload_records(tx: CatalogTransaction, place: Place, position: int) -> tuple[str, list[bytes], int]:
    """Uploads all records that are shipped; returns the copy's directory, the checksums of its parts, and
    their bytes.

    Args:
        position: for the name of the directory.
    """
    directory = f"{BASE}/{position:020d}-{uuid.uuid4().hex[:12]}"
    digests: list[bytes] = []
    records: list[tuple[str, bytes, bytes]] = []
    size = total = 0

    def flush() -> None:
        nonlocal size, total
        name = f"{directory}/{len(digests):06d}"
        data = BaseChunk(tuple(records)).packed(name)
        place.write(name, data)
        digests.append(digest_of(data))
        records.clear()
        size, total = 0, total + len(data)

    for database in DATABASES:
        for key, raw in tx.items(database):
            if is_shipped_record(database, key):
                records.append((database, key, bytes(raw)))
                size += len(raw)
                if size >= _CHUNK_BYTES:
                    flush()
    flush()
    return directory, digests, total


def write_manifest(
    place: Place, directory: str, chunks: list[bytes], size: int, state: Shipped, commit: int
) -> None:
    """Completes a copy."""
    name = f"{directory}/{MANIFEST}"
    manifest = Manifest(commit, state.position, state.digest, state.epoch, tuple(chunks), size)
    place.write(name, manifest.packed(name))


def newest_base(place: Place) -> tuple[str, Manifest]:
    """Returns the newest base copy: its directory and its manifest.

    Raises:
        NotFoundError: there is none.
        CorruptionError: its manifest is damaged.
    """
    names = [name for name in place.list(BASE) if name.endswith(f"/{MANIFEST}")]
    for name in reversed(names):
        path = f"{BASE}/{name}"
        manifest = Manifest.read(place, path)
        if manifest is None:  # removed meanwhile
            continue
        return path.rpartition("/")[0], manifest[0]
    raise NotFoundError(f"{place.shown} has no base copy of a catalog; nothing was shipped there")


def base_chunk(place: Place, directory: str, manifest: Manifest, number: int) -> BaseChunk:
    """Returns a part of a base copy.

    Raises:
        CorruptionError: it is damaged or missing.
    """
    name = f"{directory}/{number:06d}"
    found = BaseChunk.read(place, name)
    if found is None or found[1] != manifest.chunks[number]:
        fault = "is missing" if found is None else "is another one than its manifest names"
        raise CorruptionError(f"{place.shown}/{name} {fault}", path=f"{place.shown}/{name}")
    return found[0]


def cut_log(place: Place, before: int) -> None:
    """Removes base copies but the newest two, for a follower may be reading the one before the newest, and
    the log that only older ones need.

    A copy without a manifest is none: its host was killed, or writes it still. It goes when it is older than
    those that stay.

    Args:
        before: position of the base copy before the newest, 0 when there was none.
    """
    names = place.list(BASE)
    whole = sorted(name.partition("/")[0] for name in names if name.endswith(f"/{MANIFEST}"))
    kept = whole[-2:]
    for name in names:
        directory = name.partition("/")[0]
        if directory not in kept and (directory in whole or directory < kept[0]):
            place.delete(f"{BASE}/{name}")
    for name in place.list(LOG) if before else ():
        if name.isdecimal() and int(name) < before:
            place.delete(f"{LOG}/{name}")
