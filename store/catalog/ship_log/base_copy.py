"""Base copies: the records of a whole catalog as of one commit, so that the log can be cut.

A copy is read in one LMDB transaction, while commits go on, and uploaded after it. Its directory is its own.
Its manifest is written when the log has all commits of the copy: a fenced host cannot complete one. It names
a position behind which all later commits are; earlier ones that are found there are skipped.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import BinaryIO, Final

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


@dataclass(frozen=True)
class CopiedRecords:
    """The records of a catalog on the local disk, until they are uploaded.

    Attributes:
        directory: of the copy, at the place.
        sizes: bytes of its parts, in order; `file` has one behind the other.
    """

    directory: str
    sizes: tuple[int, ...]
    file: BinaryIO

    @property
    def size(self) -> int:
        """Returns the bytes of all parts."""
        return sum(self.sizes)

    def upload(self, place: Place) -> list[bytes]:
        """Uploads the parts; returns their checksums."""
        self.file.seek(0)
        digests = []
        for number, size in enumerate(self.sizes):
            data = self.file.read(size)
            place.write(_part(self.directory, number), data)
            digests.append(digest_of(data))
        return digests


def copy_records(tx: CatalogTransaction, file: BinaryIO, position: int) -> CopiedRecords:
    """Copies all records that are shipped to an empty file of the local disk: uploads may last long, and LMDB
    cannot use pages again while a transaction reads.

    Args:
        position: for the name of the directory.
    """
    directory = f"{BASE}/{position:020d}-{uuid.uuid4().hex[:12]}"
    sizes: list[int] = []
    records: list[tuple[str, bytes, bytes]] = []
    size = 0

    def flush() -> None:
        nonlocal size
        sizes.append(file.write(BaseChunk(tuple(records)).packed(_part(directory, len(sizes)))))
        records.clear()
        size = 0

    for database in DATABASES:
        for key, raw in tx.items(database):
            if is_shipped_record(database, key):
                records.append((database, key, bytes(raw)))
                size += len(raw)
                if size >= _CHUNK_BYTES:
                    flush()
    flush()
    return CopiedRecords(directory, tuple(sizes), file)


def _part(directory: str, number: int) -> str:
    return f"{directory}/{number:06d}"


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
    name = _part(directory, number)
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
