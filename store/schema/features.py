"""Table features and the protocol: what a program must know to read a table, and to write it.

A feature is *listed* in the schema; what it is for may be switched on or off by a property all the same
(ISO15). A program that lacks a feature needed for reading refuses the table, one that
lacks any refuses to write it, both by name. Tables with features say so by their protocol version, too, which
programs refuse that are older than features themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from seqstore.store.errors import FormatError

KNOWN_FEATURES: Final = (
    "appendOnly",
    "deletionVectors",
    "columnMapping",
    "sequenceLoad",
    "icebergCompatV1",
    "icebergCompatV2",
)
_NEEDED_TO_READ: Final = ("deletionVectors", "columnMapping")
READER_VERSION: Final = 3
WRITER_VERSION: Final = 7
_PLAIN: Final = (1, 2)


def protocol_of(features: Sequence[str]) -> dict[str, Any]:
    """What the record of a schema says of its features."""
    reading = [name for name in features if name in _NEEDED_TO_READ]
    reader, writer = _PLAIN
    return {
        "features": list(features),
        "reader_features": reading,
        "min_reader_version": READER_VERSION if reading else reader,
        "min_writer_version": WRITER_VERSION if features else writer,
    }


def features_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The features a record lists, those that only writers need and this program does not know among them.

    Raises:
        FormatError: it needs another program to be read; names the features, or the version.
    """
    unknown = [name for name in record.get("reader_features", ()) if name not in KNOWN_FEATURES]
    if unknown:
        raise _refusal("read", unknown)
    version = int(record.get("min_reader_version", 1))
    if version > READER_VERSION:
        raise FormatError(
            f"the table needs reader version {version}, this program has {READER_VERSION}; upgrade it",
            found=version,
            expected=READER_VERSION,
        )
    if int(record.get("min_writer_version", 1)) > WRITER_VERSION:
        return (*record.get("features", ()), f"writer version {record['min_writer_version']}")
    return tuple(record.get("features", ()))


def require_writable(features: Sequence[str]) -> None:
    """Refuses to write a table that lists a feature which this program does not know.

    Raises:
        FormatError: names them.
    """
    unknown = [name for name in features if name not in KNOWN_FEATURES]
    if unknown:
        raise _refusal("written", unknown)


def _refusal(what: str, unknown: Sequence[str]) -> FormatError:
    return FormatError(
        f"the table can be {what} only by programs that know the feature "
        f"{', '.join(map(repr, unknown))}; upgrade this one",
        features=tuple(unknown),
    )
