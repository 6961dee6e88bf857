"""The bytes of a shipped file: `seqship` | format number (1 byte) | checksum (16 bytes) | msgpack.

The checksum, xxh3 of 128 bits, big endian, covers format number and name of the file too. The objects of the
log are chained by it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Final, Self

import msgpack
import xxhash

from seqstore.store.catalog.ship_log.place import FIRST_FILE, Place
from seqstore.store.errors import CorruptionError, FormatError, NotFoundError

SHIP_FORMAT: Final = 1
_MAGIC: Final = b"seqship"
_DIGEST: Final = slice(len(_MAGIC) + 1, len(_MAGIC) + 17)
_HEADER: Final = len(_MAGIC) + 17
NO_DIGEST: Final = bytes(16)
LEASE: Final = FIRST_FILE
LOG: Final = "log"
BASE: Final = "base"
FOLLOWERS: Final = "followers"
MANIFEST: Final = "manifest"
# Database, key, and the record as the catalog has it; None for a record that was removed.
Write = tuple[str, bytes, bytes | None]
# Number, Unix time in milliseconds, writes.
Commit = tuple[int, int, tuple[Write, ...]]


def log_name(position: int) -> str:
    """Returns the name of the object at a position of the log; names sort by position."""
    return f"{LOG}/{position:020d}"


@dataclass(frozen=True)
class ShipFile:
    """A shipped file; `packed` and `unpacked` convert it to bytes and back."""

    def packed(self, name: str) -> bytes:
        """Returns the bytes of the file under a name."""
        body: bytes = msgpack.packb(asdict(self), use_bin_type=True)
        return _MAGIC + bytes([SHIP_FORMAT]) + _digest(name, SHIP_FORMAT, body) + body

    @classmethod
    def unpacked(cls, place: Place, name: str, data: bytes) -> Self:
        """Returns the file of some bytes.

        Raises:
            CorruptionError: they are not as they were written; `.path` names the file.
            FormatError: a newer program wrote them.
        """
        path = f"{place.shown}/{name}"
        body = data[_HEADER:]
        number = data[len(_MAGIC)] if len(data) >= _HEADER else 0
        if data[: len(_MAGIC)] != _MAGIC or digest_of(data) != _digest(name, number, body):
            raise CorruptionError(f"{path} is damaged: it does not match its checksum", path=path)
        if number != SHIP_FORMAT:
            raise FormatError(
                f"{path} has format {number}, this program reads {SHIP_FORMAT}; upgrade it",
                found=number,
                expected=SHIP_FORMAT,
            )
        found = msgpack.unpackb(body, strict_map_key=False, use_list=False)
        return cls(**{field.name: found[field.name] for field in fields(cls)})

    @classmethod
    def read(cls, place: Place, name: str) -> tuple[Self, bytes, str] | None:
        """Reads a file; returns it with its checksum and its tag, None when there is none.

        Raises:
            CorruptionError, FormatError: as `unpacked`.
            UnavailableError: it cannot be read.
        """
        found = place.read(name)
        if found is None:
            return None
        data, tag = found
        return cls.unpacked(place, name, data), digest_of(data), tag


def digest_of(data: bytes) -> bytes:
    """Returns the checksum in the header of a file."""
    return data[_DIGEST]


def _digest(name: str, number: int, body: bytes) -> bytes:
    checksum = xxhash.xxh3_128(bytes([number]))
    checksum.update(name.encode())
    checksum.update(b"\0")
    checksum.update(body)
    return bytes(checksum.digest())


@dataclass(frozen=True)
class Lease(ShipFile):
    """The leader of a store.

    Attributes:
        epoch: rises with each takeover.
        token: of the store directory that took it.
        host: its name, for messages.
        since_ms: Unix time of its clock, for messages.
    """

    epoch: int
    token: str
    host: str
    since_ms: int

    @classmethod
    def require(cls, place: Place) -> tuple[Lease, str]:
        """Reads the lease of a place; returns it with its tag.

        Raises:
            NotFoundError: there is none.
            CorruptionError, FormatError, UnavailableError: as `read`.
        """
        found = cls.read(place, LEASE)
        if found is None:
            raise NotFoundError(
                f"{place.shown} has no lease: nothing was shipped there, or its file system is not mounted",
                kind="no_store",
            )
        return found[0], found[2]


@dataclass(frozen=True)
class LogObject(ShipFile):
    """The object at one position of the log.

    Attributes:
        position: 1 first.
        epoch: of the lease of its writer. An object without commits begins an epoch.
        previous: checksum of the object before; zeros at position 1.
        time_ms: Unix time at which it was made.
        commits: [number, Unix time in milliseconds, writes], by number without a gap.
    """

    position: int
    epoch: int
    previous: bytes
    time_ms: int
    commits: tuple[Commit, ...]


@dataclass(frozen=True)
class Hold(ShipFile):
    """What a follower needs.

    Attributes:
        moment_ms: versions that were the newest then, by the leader's clock, and later ones.
        renewed_ms: Unix time.
        term_seconds: the hold ends that long after it was renewed.
    """

    moment_ms: int
    renewed_ms: int
    term_seconds: int


@dataclass(frozen=True)
class BaseChunk(ShipFile):
    """A part of a base copy.

    Attributes:
        records: database, key, record.
    """

    records: tuple[tuple[str, bytes, bytes], ...]


@dataclass(frozen=True)
class Manifest(ShipFile):
    """What a base copy consists of.

    Attributes:
        commit: the newest that it has.
        position: of a log object; all later commits are behind it.
        digest: checksum of that object.
        epoch: of its writer.
        chunks: checksums of its parts, in order.
        bytes: of all parts.
    """

    commit: int
    position: int
    digest: bytes
    epoch: int
    chunks: tuple[bytes, ...]
    bytes: int
