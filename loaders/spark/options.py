"""Options of the data source `seqstore`, case aside; read and write share `path` and `table`.

path, table        the store's directory, and `database.table`
version            read this version (`versionAsOf` is the same)
columns            read only these, separated by commas: Spark does not tell a source what a query uses
hidden             true: add the hidden columns
rows_per_partition stored rows an input partition has, about
changes            true: a stream's columns, for readStream (see loaders.spark.stream)
starting_version   a stream begins with the changes of this version, not with the rows there are
max_rows_per_batch changes a micro-batch of a stream has, about
partitions         overwrite these partitions only, separated by commas
label              write under this label; a second write with it is refused
sequence           the frame's column that gives the hidden sequence
merge_type         APPEND, MERGE or DELETE
max_filter_ratio   share of rows that may be rejected
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from store import InvalidInputError

ROWS_PER_PARTITION: Final = 1_000_000
_READ: Final = frozenset(
    [
        "version",
        "versionasof",
        "columns",
        "hidden",
        "changes",
        "rows_per_partition",
        "starting_version",
        "max_rows_per_batch",
    ]
)
_WRITE: Final = frozenset(["label", "sequence", "merge_type", "max_filter_ratio", "partitions"])
# Spark hands its own options of a stream over too.
_SPARK: Final = frozenset(["checkpointlocation", "queryname"])
_KNOWN: Final = _READ | _WRITE | _SPARK | {"path", "table"}


@dataclass(frozen=True)
class SourceOptions:
    """What was asked of the data source; see the module."""

    path: Path
    table: str
    version: int | None = None
    columns: tuple[str, ...] | None = None
    hidden: bool = False
    rows_per_partition: int = ROWS_PER_PARTITION
    label: str | None = None
    sequence: str | None = None
    merge_type: str = "APPEND"
    max_filter_ratio: float = 0.0
    checkpoint: str | None = None
    changes: bool = False
    starting_version: int | None = None
    max_rows_per_batch: int | None = None
    partitions: tuple[str, ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Reads Spark's options.

        Raises:
            InvalidInputError: unknown, missing, or not of the type it has to be.
        """
        given = {name.lower(): value for name, value in options.items()}
        for name in given.keys() - _KNOWN:
            raise InvalidInputError(
                f"option {name!r} of format seqstore is not known; expected some of "
                f"{', '.join(sorted(_KNOWN - _SPARK))}",
                kind="unknown_option",
            )
        for name in ("path", "table"):
            if not given.get(name):
                raise InvalidInputError(
                    f"format seqstore needs the options path (the store's directory) and table (db.table); "
                    f"{name} is missing",
                    kind="missing_option",
                )
        version = given.get("version", given.get("versionasof"))
        columns = given.get("columns")
        return cls(
            Path(given["path"]),
            given["table"],
            None if version is None else _integer("version", version),
            None if columns is None else tuple(name.strip() for name in columns.split(",")),
            _boolean("hidden", given.get("hidden", "false")),
            _integer("rows_per_partition", given.get("rows_per_partition", str(ROWS_PER_PARTITION))),
            given.get("label"),
            given.get("sequence"),
            given.get("merge_type", "APPEND"),
            _ratio(given.get("max_filter_ratio", "0")),
            given.get("checkpointlocation"),
            _boolean("changes", given.get("changes", "false")),
            _optional_integer("starting_version", given),
            _optional_integer("max_rows_per_batch", given),
            tuple(name.strip() for name in given.get("partitions", "").split(",") if name.strip()),
        )


def _optional_integer(name: str, given: Mapping[str, str]) -> int | None:
    return None if name not in given else _integer(name, given[name])


def _integer(name: str, text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise _bad_value(name, text, "a positive integer")
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _bad_value(name, text, "true or false")
    return text.lower() == "true"


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise _bad_value("max_filter_ratio", text, "a number from 0 to 1")
    return ratio


def _bad_value(name: str, text: str, expected: str) -> InvalidInputError:
    return InvalidInputError(f"option {name}: expected {expected}, found {text!r}", kind="bad_option")
