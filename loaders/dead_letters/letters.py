"""Dead letters: the rows that a load rejects, stored in `<table>__dead_letters` in the load's own commit.

Each has its whole text, the reason, where it comes from, and the headers by which it was read, so that a
replay reads it alike. A load that fails stores none (DL1).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from seqstore.loaders.column_list import parse_columns
from seqstore.loaders.headers import StreamLoadOptions, text_format
from seqstore.loaders.source import BadRow
from seqstore.store.errors import InvalidInputError, NotFoundError
from seqstore.store.load.load import Load
from seqstore.store.schema.column import Column
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.store import Store
from seqstore.store.types.column_types import parse_type

SUFFIX: Final = "__dead_letters"
_FLUSHED: Final = 10_000
_EMPTY: Final = 1  # the version of a table without rows
_COLUMNS: Final = {
    "id": "VARCHAR(36)",
    "label": "VARCHAR(256)",
    "time": "DATETIME(6)",
    "source": "STRING",
    "position": "BIGINT",
    "reason": "STRING",
    "raw": "STRING",
    "options": "STRING",
}
# The headers that a replay reads a row by. `json_root` and `strip_outer_array` are none of them, because the
# text of a row is the part that they pick.
_KEPT: Final = (
    "format",
    "column_separator",
    "columns",
    "where",
    "delete",
    "merge_type",
    "function_column.sequence_col",
    "hidden_columns",
    "jsonpaths",
    "num_as_string",
    "enclose",
    "escape",
    "trim_double_quotes",
    "empty_field_as_null",
    "strict_mode",
    "timezone",
    "time_zone",
    "partitions",
    "partial_columns",
    "unique_key_update_mode",
    "partial_update_new_key_behavior",
    "partial_update_ignore_null",
    "change_table",
    "change_position",
    "change_time_unit",
)


def letters_schema() -> TableSchema:
    """Returns the declaration of a table of dead letters."""
    columns = [Column(name, parse_type(kind), nullable=name != "id") for name, kind in _COLUMNS.items()]
    return TableSchema.create(columns, ["id"])


def check_target(name: str) -> None:
    """Raises unless a table may have dead letters.

    Raises:
        InvalidInputError: it has those of another table.
    """
    if name.endswith(SUFFIX):
        raise InvalidInputError(f"{name}: dead letters have none of their own", kind="bad_header")


def kept_headers(headers: Mapping[str, str], options: StreamLoadOptions, names: Iterable[str]) -> str:
    """Returns the headers by which single rows of a load are read again, as JSON.

    Args:
        headers: of the load.
        options: as it reads the body.
        names: the columns of the table, the fields of CSV where nothing names them.
    """
    given = {name.strip().lower(): value for name, value in headers.items()}
    kept = {name: given[name] for name in _KEPT if given.get(name)}
    if options.is_csv:
        kept["format"] = "csv"
        columns = options.columns
        if not parse_columns(columns).fields and not options.hidden_columns:
            plain = ", ".join(f"`{name}`" for name in names)
            columns = f"{plain}, {columns}" if columns else plain
        kept["columns"] = columns
    if given.get("format"):  # of Avro the row is kept as JSON
        kept["format"] = kept["format"] if options.is_csv else text_format(given["format"])
    if options.strict_mode:
        kept["strict_mode"] = "true"
    if options.is_csv and options.csv.empty_field_as_null:
        kept["empty_field_as_null"] = "true"
    text = json.dumps(kept, ensure_ascii=False, sort_keys=True)
    try:
        text.encode()
    except UnicodeEncodeError:  # a separator of bytes that are no UTF-8 has escapes
        return json.dumps(kept, sort_keys=True)
    return text


class DeadLetters:
    """The dead letters of one load; nothing is made before the first one.

    Args:
        begin: begins the load of their table, which the caller joins to the rows' own.
        label: of the load.
    """

    def __init__(self, begin: Callable[[], Load], label: str) -> None:
        self._begin, self._label = begin, label
        self._load: Load | None = None
        self._waiting: list[tuple[BadRow, str, str]] = []
        self.count = 0

    def add(self, rows: Iterable[BadRow], source: str, headers: str) -> None:
        """Takes rejected rows.

        Args:
            source: the file, or topic, partition and offset, that they are from; empty for a body.
            headers: as `kept_headers` returns them.
        """
        before = len(self._waiting)
        self._waiting += [(row, source, headers) for row in rows]
        self.count += len(self._waiting) - before
        if len(self._waiting) >= _FLUSHED:
            self.flush()

    def flush(self) -> None:
        """Writes the rows taken so far."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        if self._load is None:
            self._load = self._begin()
        now = datetime.now(UTC).replace(tzinfo=None)
        count = len(waiting)
        self._load.write(
            pa.table(
                {
                    "id": [str(uuid.uuid4()) for _ in waiting],
                    "label": [self._label[:256]] * count,
                    "time": pa.array([now] * count, pa.timestamp("us")),
                    "source": [source for _, source, _ in waiting],
                    "position": pa.array([row.place.line for row, _, _ in waiting], pa.int64()),
                    "reason": [row.reason for row, _, _ in waiting],
                    "raw": [row.place.text for row, _, _ in waiting],
                    "options": [headers for _, _, headers in waiting],
                }
            )
        )

    def require(self, filtered: int) -> None:
        """Writes the rest.

        Raises:
            InvalidInputError: the text of a rejected row is not known (DL4).
        """
        self.flush()
        if self.count != filtered:
            raise InvalidInputError(
                f"dead_letters: the texts of {filtered - self.count} of {filtered} rejected rows are not "
                "known, so they cannot be kept; load without dead_letters",
                kind="dead_letters",
            )


def make_beside(store: Store, table: str) -> bool:
    """Makes the table of the dead letters of a table where there is none; returns whether it is new."""
    check_target(table)
    name = f"{table}{SUFFIX}"
    with suppress(NotFoundError):
        store.table(name)
        return False
    store.create_table(name, letters_schema(), if_not_exists=True)
    return True


def begin_beside(store: Store, table: str, made: list[str] | None = None) -> Load:
    """Begins a load of the dead letters of a table, whose own table is made where there is none.

    Args:
        made: gets the name of the table that the letters are of, where theirs is new.
    """
    if make_beside(store, table) and made is not None:
        made.append(table)
    return store.table(f"{table}{SUFFIX}").begin_load(operation="DEAD LETTERS")


@contextmanager
def dropping_unused(store: Store, made: Sequence[str]) -> Iterator[None]:
    """Drops the tables that the block has made, as `drop_unused`, where the block fails."""
    try:
        yield
    except BaseException:
        drop_unused(store, made)
        raise


def drop_unused(store: Store, tables: Iterable[str]) -> None:
    """Drops tables of dead letters that a failed load has made and that have no rows.

    Args:
        tables: those that the letters are of.
    """
    for table in tables:
        with suppress(NotFoundError):
            if store.table(f"{table}{SUFFIX}").version == _EMPTY:
                store.drop_table(f"{table}{SUFFIX}")
