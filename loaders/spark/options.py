"""Options of the data source `seqstore`, case aside; read and write share `path` and `table`.

path, table        the store's directory, also as a `file:` URI, and `database.table`
url                in the place of `path`, a server of the store: `seqstore://host:port`, or `seqstore+tls://..`
user, password     with `url`; without them SEQSTORE_USER and SEQSTORE_PASSWORD of the driver's environment
certificates       with `url`, a file on the driver's host: the authorities that the job trusts, in PEM
version            read this version (`versionAsOf` is the same)
columns            read only these, separated by commas: Spark passes no columns of a query to a source
filter             a condition in SQL, comparisons of columns with constants and AND; zone maps prune by it
pushdown           true: filters that Spark offers prune too; see loaders.spark.source for when that is wrong
hidden             true: add the hidden columns
rows_per_partition stored rows an input partition has, about
changes            true: a stream's columns, for readStream (see loaders.spark.stream)
starting_version   a stream begins with the changes of this version, not with the rows there are
max_rows_per_batch changes a micro-batch of a stream has, about
partitions         write into these partitions only, separated by commas: rows of others are rejected, and
                   mode overwrite replaces the rows of these alone
label              write under this label; a second write with it is refused
txnAppId, txnVersion  both or neither: skipped unless the version is larger than the last one of this id
sequence           the frame's column that holds the hidden sequence
merge_type         APPEND, MERGE or DELETE
max_filter_ratio   share of rows that may be rejected
partial_columns    true: the frame's columns are written, the others kept
unique_key_update_mode  UPSERT, UPDATE_FIXED_COLUMNS (as partial_columns) or UPDATE_FLEXIBLE_COLUMNS
supplied_columns   with flexible columns, the frame's column (an array of names) that lists a row's columns
partial_update_new_key_behavior  APPEND or ERROR: the effect of new keys in a partial update
partial_update_ignore_null  true: NULL means keep
staged_to          of the sink: leave the shares in this local directory instead of publishing them
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from seqstore.loaders.spark.place import Place, place_of
from seqstore.store import InvalidInputError, Store
from seqstore.store.catalog.app_ids import check_pair
from seqstore.store.check.write_modes import UpdateMode, parse_mode, parse_new_key_behavior

ROWS_PER_PARTITION: Final = 1_000_000
_SIZE: Final = re.compile(r"(?P<number>[0-9]+)(?P<unit>[kmgt]?)b?")
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_READ: Final = frozenset(
    [
        "version",
        "versionasof",
        "columns",
        "filter",
        "pushdown",
        "hidden",
        "changes",
        "rows_per_partition",
        "starting_version",
        "max_rows_per_batch",
    ]
)
# The options of a stream's reader, and of its writer.
STREAM_READ: Final = frozenset(
    ["columns", "changes", "rows_per_partition", "starting_version", "max_rows_per_batch"]
)
_STAGE: Final = frozenset(
    [
        "sequence",
        "merge_type",
        "max_filter_ratio",
        "partial_columns",
        "unique_key_update_mode",
        "supplied_columns",
        "partial_update_new_key_behavior",
        "partial_update_ignore_null",
    ]
)
STREAM_WRITE: Final = _STAGE | {"partitions"}
# The options of a batch read, and of a batch write. A view made with USING seqstore OPTIONS (...) is read and
# inserted into with one map, which looks like the map of a frame. So a read ignores the tuning options of a
# write and the other way round. Options that would narrow or name the other are refused instead of ignored:
# `partitions` narrows no read, `filter` and `version` narrow no overwrite.
SNAPSHOT_READ: Final = _READ - {"changes", "starting_version", "max_rows_per_batch"}
SNAPSHOT_WRITE: Final = _STAGE | {"label", "txnappid", "txnversion", "partitions", "staged_to"}
HOW_TO_READ: Final = frozenset(["columns", "hidden", "pushdown", "rows_per_partition"])
HOW_TO_WRITE: Final = _STAGE
# Spark passes its own options of a stream too.
_SPARK: Final = frozenset(["checkpointlocation", "queryname"])
_PLACE: Final = frozenset(["path", "table", "url", "user", "password", "certificates"])
_KNOWN: Final = _READ | SNAPSHOT_WRITE | _SPARK | _PLACE


@dataclass(frozen=True)
class LoadOptions:
    """The options of a frame's load; see the module, and `Table.upsert` for their meaning."""

    sequence: str | None = None
    merge_type: str = "APPEND"
    max_filter_ratio: float = 0.0
    mode: str = UpdateMode.UPSERT
    new_keys: str = "APPEND"
    ignore_null: bool = False
    supplied: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> LoadOptions:
        """Reads the options of a load, names in lower case; others are ignored.

        Raises:
            InvalidInputError: not of the type it has to be.
        """
        partial = _boolean("partial_columns", given.get("partial_columns", "false"))
        mode = given.get("unique_key_update_mode") or (UpdateMode.FIXED if partial else UpdateMode.UPSERT)
        return cls(
            given.get("sequence"),
            given.get("merge_type", "APPEND"),
            _ratio(given.get("max_filter_ratio", "0")),
            parse_mode(mode),
            parse_new_key_behavior(given.get("partial_update_new_key_behavior", "APPEND")),
            _boolean("partial_update_ignore_null", given.get("partial_update_ignore_null", "false")),
            given.get("supplied_columns"),
        )

    @classmethod
    def named(cls, options: Mapping[str, Any]) -> LoadOptions:
        """Reads keyword arguments as `parse` does: numbers and booleans as such, None for an absent one.

        Raises:
            InvalidInputError: an unknown one too.
        """
        unknown = sorted(options.keys() - _STAGE)
        if unknown:
            raise InvalidInputError(
                f"load option {unknown[0]!r} is not known; expected some of {', '.join(sorted(_STAGE))}",
                kind="unknown_option",
            )
        return cls.parse({name: str(value) for name, value in options.items() if value is not None})

    def refuse_overwriting(self, table: str) -> None:
        """Refuses a partial update, which reads rows that an overwrite removes.
        Raises:
            InvalidInputError: the load is a partial update.
        """
        if self.mode != UpdateMode.UPSERT:
            raise InvalidInputError(
                f"{table}: a partial update cannot overwrite (mode overwrite, outputMode complete); write "
                "whole rows",
                kind="bad_mode",
            )

    @property
    def staging(self) -> dict[str, Any]:
        """Arguments of `Table.write_task`."""
        return {**self.beginning, "supplied": self.supplied}

    @property
    def beginning(self) -> dict[str, Any]:
        """Arguments of `Table.begin_load`."""
        return {
            "sequence": self.sequence,
            "merge_type": self.merge_type,
            "mode": self.mode,
            "new_keys": self.new_keys,
            "ignore_null": self.ignore_null,
        }


@dataclass(frozen=True)
class SourceOptions:
    """The options of one use of the data source; see the module."""

    place: Place
    table: str
    version: int | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    pushdown: bool = False
    hidden: bool = False
    rows_per_partition: int = ROWS_PER_PARTITION
    label: str | None = None
    load: LoadOptions = field(default_factory=LoadOptions)
    app: tuple[str | None, int | None] = (None, None)
    checkpoint: str | None = None
    changes: bool = False
    starting_version: int | None = None
    max_rows_per_batch: int | None = None
    partitions: tuple[str, ...] = ()
    staged_to: Path | None = None
    given: frozenset[str] = frozenset()

    def refuse_others(
        self, known: Collection[str], where: str, passed_over: Collection[str] = frozenset()
    ) -> None:
        """Refuses options without a meaning for one kind of read or write.

        Args:
            known: options with a meaning, beside those of the place and the table, in lower case.
            where: the kind of read or write, for messages.
            passed_over: options without one that are ignored.

        Raises:
            InvalidInputError: there is another one.
        """
        for name in sorted(self.given - {*_PLACE, *_SPARK, *known, *passed_over}):
            raise InvalidInputError(
                f"option {name!r} means nothing to {where}; it takes {', '.join(sorted(known))}",
                kind="bad_option",
            )

    def of_job(self, store: Store) -> SourceOptions:
        """Returns the options for the other processes of a job; see `Place.of_job`."""
        return replace(self, place=self.place.of_job(store))

    def of_task(self) -> SourceOptions:
        """Returns the options for tasks, which connect by what they are given."""
        return replace(self, place=self.place.without_password())

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Reads Spark's options.

        Raises:
            InvalidInputError: unknown, missing, or not of the type it has to be.
        """
        given = {name.lower(): value for name, value in options.items()}
        for name in given.keys() - _KNOWN:
            raise _unknown(name)
        place = place_of(given)
        if not given.get("table"):
            raise InvalidInputError(
                "format seqstore needs the option table (db.table); table is missing", kind="missing_option"
            )
        if "version" in given and "versionasof" in given:
            raise InvalidInputError(
                "options version and versionAsOf are the same; set one", kind="bad_option"
            )
        version = given.get("version", given.get("versionasof"))
        app = (given.get("txnappid"), _optional_integer("txnversion", given, least=0))
        check_pair(*app)
        return cls(
            place,
            given["table"],
            None if version is None else _integer("version", version),
            _columns(given.get("columns")),
            given.get("filter"),
            _boolean("pushdown", given.get("pushdown", "false")),
            _boolean("hidden", given.get("hidden", "false")),
            _integer("rows_per_partition", given.get("rows_per_partition", str(ROWS_PER_PARTITION))),
            given.get("label"),
            LoadOptions.parse(given),
            app,
            given.get("checkpointlocation"),
            _boolean("changes", given.get("changes", "false")),
            _optional_integer("starting_version", given),
            _optional_integer("max_rows_per_batch", given),
            _partitions(given.get("partitions")),
            Path(given["staged_to"]) if "staged_to" in given else None,
            frozenset(given),
        )


def bytes_of(name: str, given: object) -> int:
    """Returns a size as Spark's settings have it: bytes, or with a unit, such as `64m` or `1gb`.

    Args:
        name: of the setting or argument, for messages.

    Raises:
        InvalidInputError: no such size.
    """
    text = given.strip().lower() if isinstance(given, str) else repr(given)
    size = _SIZE.fullmatch(text)
    if size is None:
        raise InvalidInputError(
            f"{name}: expected bytes, or a size such as 64m, with k, m, g or t, found {given!r}",
            kind="bad_option",
        )
    return int(size["number"]) << _SHIFTS[size["unit"]]


def _unknown(name: str) -> InvalidInputError:
    """Returns the error for an option that is none."""
    if name == "winner_test":
        told = (
            "option winner_test: the commit of a data source has no Spark session to test winners with; use "
            "write_frame, or foreach_batch_sink, of seqstore.loaders.spark"
        )
    else:
        told = (
            f"option {name!r} of format seqstore is not known; expected some of "
            f"{', '.join(sorted(_KNOWN - _SPARK))}"
        )
    return InvalidInputError(told, kind="unknown_option")


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    for name, times in Counter(name.lower() for name in names).items():
        if times > 1:
            raise InvalidInputError(f"option columns: {name!r} is named {times} times", kind="bad_option")
    return names


def _partitions(text: str | None) -> tuple[str, ...]:
    """Returns the named partitions. An empty list never means all: an overwrite would replace every row."""
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise _bad_value("partitions", text, "names of partitions, or no such option for all of them")
    return names


def _optional_integer(name: str, given: Mapping[str, str], least: int = 1) -> int | None:
    return None if name not in given else _integer(name, given[name], least)


def _integer(name: str, text: str, least: int = 1) -> int:
    # Python knows more digits than it makes numbers of, such as a superscript 2.
    if not text.strip().isdecimal() or int(text) < least:
        raise _bad_value(name, text, "a positive integer" if least else "an integer from 0")
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
