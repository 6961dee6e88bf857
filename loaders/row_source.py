"""From a body and its options to rows of the table: the reader, the fields, the mapping.

The plan precedes the first byte, so that options that do not fit the table are refused early. Parquet, ORC
and Arrow files have fields of their own, so the plan reads their head.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, cast
from zoneinfo import ZoneInfo

import pyarrow as pa

from seqstore.loaders.avro.body import open_plain
from seqstore.loaders.changes.reader import ChangeReader
from seqstore.loaders.column_list import ColumnList, field_names, parse_columns
from seqstore.loaders.columnar import ColumnarReader
from seqstore.loaders.csv.reader import CsvReader
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.json.reader import JsonReader
from seqstore.loaders.mapping import RowMapping
from seqstore.loaders.source import Reader
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import hidden_name
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.translate.calls import EvaluationContext, Moment


@dataclass(frozen=True)
class Target:
    """The table that rows are for.

    Attributes:
        schema: its newest revision.
        name: `db.table`.
    """

    schema: TableSchema
    name: str

    def check_partitions(self, names: Sequence[str], clause: str = "partitions") -> None:
        """Checks that the table has the named partitions (LH8).

        A table without partitions has one, of its own name.

        Args:
            clause: the origin of the names, for errors.

        Raises:
            NotFoundError, InvalidInputError: the table has no such partition.
        """
        partitioning = self.schema.partitioning
        for name in names:
            if partitioning is not None:
                partitioning.find(name)
            elif name != self.name.partition(".")[2]:
                raise InvalidInputError(
                    f"{clause}: unknown partition {name!r} of table {self.name}", kind="unknown_partition"
                )


@dataclass
class _Watched:
    """Plain bytes; something is called before each read."""

    inner: BinaryIO
    on_read: Callable[[], None]
    closed: bool = False

    def read(self, size: int = -1) -> bytes:
        self.on_read()
        return self.inner.read(size)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def open_rows(
    body: BinaryIO,
    options: StreamLoadOptions,
    target: Target,
    moment: Moment,
    opened: ExitStack,
    *,
    constants: Mapping[str, str] | None = None,
    on_read: Callable[[], None] | None = None,
) -> tuple[Reader, RowMapping]:
    """Returns the reader of a body and the mapping of its rows.

    Args:
        opened: closes both.
        constants: fields that all rows of the body share, such as those of its path (B7), behind its own.
        on_read: called before each read of plain bytes; its exception ends the reading.

    Raises:
        InvalidInputError: the options do not fit the table or the body.
    """
    columns = parse_columns(options.columns)
    plain = open_plain(body, options)
    plain = plain if on_read is None else cast(BinaryIO, _Watched(plain, on_read))
    shared = {name.lower(): name for name in constants or {}}
    file = None if options.is_lines else ColumnarReader(plain, options.format)
    if file is not None:
        opened.callback(file.close)
        fields = _columns_of_file(file.schema, columns, target.schema)
        kinds = [file.schema.field(name).type for name in fields]
    else:
        fields = [n for n in field_names(columns, options, target.schema) if n.lower() not in shared]
        kinds = [pa.string()] * len(fields)
    mapping = RowMapping(
        target.schema,
        target.name.partition(".")[2],
        options,
        columns,
        [*fields, *shared.values()],
        [*kinds, *[pa.string()] * len(shared)],
        EvaluationContext(moment, target.name.partition(".")[0]),
        needs_all=not options.is_partial,
    )
    opened.callback(mapping.close)
    if file is not None:
        return file, mapping
    return _line_reader(plain, fields, options, mapping, shared, target), mapping


def _line_reader(
    body: BinaryIO,
    fields: Sequence[str],
    options: StreamLoadOptions,
    mapping: RowMapping,
    shared: Container[str],
    target: Target,
) -> CsvReader | ChangeReader | JsonReader:
    """Returns the reader of a body of lines, all of whose fields but the shared ones are its own."""
    if options.is_csv:
        return CsvReader(body, fields, options.csv, types=mapping.csv_types)
    if options.is_changes:
        return ChangeReader(body, fields, options, target.schema, target.name)
    return JsonReader(
        body,
        fields,
        options.json,
        watched=[name for name in mapping.watched if name.lower() not in shared],
        json_names=mapping.json_fields,
        types=mapping.field_types,
    )


def moment_in(zone: str) -> Moment:
    """Returns the one moment of the load, in its time zone (A3)."""
    utc = datetime.now(UTC).replace(tzinfo=None)
    if zone[0] in "+-":
        minutes = int(zone[1:3]) * 60 + int(zone[4:6])
        local = utc + timedelta(minutes=-minutes if zone[0] == "-" else minutes)
    else:
        local = utc.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return Moment(local, utc, zone)


def _columns_of_file(file: pa.Schema, columns: ColumnList, schema: TableSchema) -> list[str]:
    """Returns columns of a file that the load uses: the listed ones, else all (Q1)."""
    by_name: dict[str, str] = {}
    for name in file.names:
        if name.lower() in by_name:
            raise InvalidInputError(
                f"the file has two columns named {name!r}, case aside", kind="duplicate_column"
            )
        by_name[name.lower()] = name
    if not columns.fields:
        return list(by_name.values())
    used = []
    for name in columns.fields:
        if name.lower() in by_name:
            used.append(by_name[name.lower()])
        elif schema.find(name) is None and hidden_name(name) is None:
            raise InvalidInputError(
                f"failed to find default value expr for slot: {name}; neither the file nor the table has it",
                kind="unknown_column",
            )
    return used
