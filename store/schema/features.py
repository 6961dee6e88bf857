"""Table features and the protocol: the abilities that a program needs to read a table, and to write it.

The schema lists a table's features; a property may still switch the behaviour of a listed feature on or off
(ISO15). A program that lacks a feature needed for reading refuses to read the table. A program that lacks any
listed feature refuses to write it. Both errors name the features.
Tables with features also have a higher protocol version; programs that are older than features refuse by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from seqstore.store.errors import FormatError

DUPLICATE_KEY: Final = "duplicateKey"  # the key is a hidden column; declared with the table, for ever
KNOWN_FEATURES: Final = (
    "appendOnly",
    "deletionVectors",
    "columnMapping",
    "sequenceLoad",
    "icebergCompatV1",
    "icebergCompatV2",
    DUPLICATE_KEY,
)
_NEEDED_TO_READ: Final = ("deletionVectors", "columnMapping", DUPLICATE_KEY)
READER_VERSION: Final = 3
WRITER_VERSION: Final = 7
_PLAIN: Final = (1, 2)


def protocol_of(features: Sequence[str]) -> dict[str, Any]:
    """Returns the part of a schema's record that describes its features."""
    reading = [name for name in features if name in _NEEDED_TO_READ]
    reader, writer = _PLAIN
    return {
        "features": list(features),
        "reader_features": reading,
        "min_reader_version": READER_VERSION if reading else reader,
        "min_writer_version": WRITER_VERSION if features else writer,
    }


def features_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the features that a record lists, unknown writer features included.

    Raises:
        FormatError: only a newer program can read the table; names the features, or the version.
    """
    _require_known(record.get("reader_features", ()), "read")
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
    """Refuses to write a table that lists an unknown feature.

    Raises:
        FormatError: names the features.
    """
    _require_known(features, "written")


def _require_known(features: Sequence[str], what: str) -> None:
    unknown = tuple(name for name in features if name not in KNOWN_FEATURES)
    if unknown:
        raise FormatError(
            f"the table can be {what} only by programs that know the feature "
            f"{', '.join(map(repr, unknown))}; upgrade this one",
            features=unknown,
        )
