"""Frames whose rows are messages of a change stream, as Spark's Kafka source makes them.

The driver collects the columns `value` and, where there is one, `key`, and reads them as a stream load does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from seqstore.loaders.avro.messages import AvroMessages
from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.changes.keyed_messages import keyed_messages
from seqstore.loaders.headers import (
    AVRO_FORMATS,
    CHANGE_FORMATS,
    StreamLoadOptions,
    parse_headers,
    text_format,
)
from seqstore.loaders.row_buffer import RowBuffer
from seqstore.loaders.row_source import Target, moment_in, open_rows
from seqstore.loaders.source import BadRow, described_max
from seqstore.loaders.spark.options import LoadOptions
from seqstore.store import InvalidInputError, Table, TableSchema
from seqstore.store.check.write_modes import UpdateMode
from seqstore.store.errors import LoadRejectedError
from seqstore.store.load.load import Load
from seqstore.store.remote.remote_table import RemoteTable
from seqstore.store.settings import registries_of_environment

# What a sink may change beside the rows (loaders.spark.growing_epoch).
_GROWTH: Final = (
    "auto_create",
    "auto_create_key",
    "auto_create_sequence",
    "dead_letters",
    "schema_evolution",
)
HEADERS: Final = (
    "format",
    "change_table",
    "change_position",
    "change_time_unit",
    "schema_registry",
    "timezone",
)
_HEADERS: Final = (*HEADERS, *_GROWTH)
_FORMATS: Final = (*CHANGE_FORMATS, *(name for name in AVRO_FORMATS if text_format(name) in CHANGE_FORMATS))


@dataclass(frozen=True)
class ChangeFrame:
    """The rows of a frame; `buffer` is empty where no message is a row.

    Attributes:
        bad: the first bad messages, and all where dead letters are kept.
        bad_count: of all.
    """

    buffer: RowBuffer
    bad: Sequence[BadRow] = ()
    bad_count: int = 0

    def write(self, load: Load) -> list[BadRow]:
        """Writes the rows; returns those that the table rejects."""
        if not len(self.buffer):
            return []
        done = load.write(self.buffer.rows(), supplied=self.buffer.supplied())
        return self.buffer.sources_of(done.rejected[: described_max()])


@dataclass(frozen=True)
class FrameOptions:
    """The options of a sink that other loads have as headers.

    Attributes:
        changes: how messages are read, None for a frame of rows.
        growth: with `auto_create`, `schema_evolution` or `dead_letters`, else None.
        headers: as given.
    """

    changes: StreamLoadOptions | None = None
    growth: StreamLoadOptions | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def split_options(options: Mapping[str, Any]) -> tuple[FrameOptions, dict[str, Any]]:
    """Splits the options of a sink into those of its frames and those of the load.

    Raises:
        InvalidInputError: the format is no change stream, or an option has a bad value.
    """
    own = {name: _text(options[name]) for name in _HEADERS if options.get(name) is not None}
    others = {name: value for name, value in options.items() if name not in _HEADERS}
    if not own.keys() & set(HEADERS):
        return _of_rows(own, others), others
    if own.get("format", "").lower() not in _FORMATS:
        raise InvalidInputError(
            f"option format: expected one of {', '.join(_FORMATS)}, or none for a frame of rows, found "
            f"{own.get('format')!r}",
            kind="bad_option",
        )
    shared = ("unique_key_update_mode", "max_filter_ratio", "merge_type", "partial_columns")
    own |= {name: str(options[name]) for name in shared if options.get(name) is not None}
    parsed = parse_headers(own)
    return FrameOptions(parsed, parsed if _grows(parsed) else None, own), others


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _grows(options: StreamLoadOptions) -> bool:
    return options.evolves or options.auto_create or options.dead_letters


def _of_rows(own: Mapping[str, str], others: Mapping[str, Any]) -> FrameOptions:
    """Returns the options of a frame of rows, whose dead letters are JSON.

    Raises:
        InvalidInputError: options that do not go together.
    """
    ratio = others.get("max_filter_ratio")
    headers = {**own, "format": "json", **({} if ratio is None else {"max_filter_ratio": str(ratio)})}
    growth = parse_headers(headers)
    if not _grows(growth):
        return FrameOptions()
    load = LoadOptions.named(others)
    if growth.auto_create and load.sequence is not None:
        raise _refused("sequence", "auto_create", "name a column by auto_create_sequence")
    if growth.dead_letters:
        if load.mode != UpdateMode.UPSERT:
            raise _refused(load.mode, "dead_letters", "write whole rows")
        if load.merge_type == "MERGE":
            raise _refused("merge_type MERGE", "dead_letters", "write deletes by a Feed of merge_type DELETE")
    sequence = {} if load.sequence is None else {"function_column.sequence_col": load.sequence}
    deletes = {"merge_type": "DELETE"} if load.merge_type == "DELETE" else {}
    return FrameOptions(None, growth, {**headers, **sequence, **deletes})


def _refused(what: str, by: str, instead: str) -> InvalidInputError:
    return InvalidInputError(f"option {what} does not go with {by}: {instead}", kind="bad_option")


@dataclass(frozen=True)
class Messages:
    """The messages of a frame, a line each, and how they are read."""

    table: str
    lines: bytes
    options: StreamLoadOptions

    @classmethod
    def collect(
        cls, frame: Any, options: StreamLoadOptions, table: str, registries: Sequence[str]
    ) -> Messages:
        """Collects the messages of a frame.

        Args:
            table: that they are for, for messages.
            registries: the setting `schema_registries`; those of the environment are asked too.

        Raises:
            InvalidInputError: the frame has no column `value`.
        """
        names = [name for name in ("key", "value") if name in frame.columns]
        if "value" not in names:
            raise InvalidInputError(
                f"{table}: a frame of {options.format} needs the column value, "
                f"found {', '.join(frame.columns)}",
                kind="unknown_column",
            )
        messages = frame.select(*names).toArrow()
        values = messages.column("value").combine_chunks()
        no_keys = pa.nulls(len(values), values.type)
        keys = messages.column("key").combine_chunks() if "key" in names else no_keys
        given = with_registry(options, [*registries, *registries_of_environment()]).avro
        if given is None:
            return cls(table, b"\n".join(keyed_messages(keys, values).to_pylist()), options)
        lines = AvroMessages(given).lines(keys, values)
        return cls(table, b"\n".join(lines.to_pylist()), replace(options, avro=None))

    def read(self, schema: TableSchema) -> ChangeFrame:
        """Reads the messages for a schema.

        Raises:
            LoadRejectedError: more messages are bad than `max_filter_ratio` allows.
        """
        return _read(self, schema)


def read_frame(frame: Any, options: StreamLoadOptions, table: Table) -> ChangeFrame:
    """Reads the messages of a frame.

    Raises:
        InvalidInputError: the frame has no column `value`.
        LoadRejectedError: more messages are bad than `max_filter_ratio` allows.
    """
    # Settings of a store elsewhere are its server's.
    registries = () if isinstance(table, RemoteTable) else table.settings.schema_registries
    return Messages.collect(frame, options, table.name, registries).read(table.schema)


def _read(messages: Messages, schema: TableSchema) -> ChangeFrame:
    buffer = RowBuffer()
    options = messages.options
    moment = moment_in(options.time_zone)
    bad: list[BadRow] = []
    bad_count = 0
    with ExitStack() as opened:
        body, target = BytesIO(messages.lines), Target(schema, messages.table)
        reader, mapping = open_rows(body, options, target, moment, opened)
        for batch in reader.batches():
            mapped = mapping(batch, moment.local)
            bad += [*batch.bad, *batch.located(mapped.bad)][: described_max()]
            bad_count += batch.bad_count + mapped.bad_count
            buffer.add(batch.places, mapped, batch.held_bytes)
    if bad_count > options.max_filter_ratio * (len(buffer) + bad_count):
        raise LoadRejectedError(
            f"{messages.table}: too many bad messages: {bad_count} of {len(buffer) + bad_count}, "
            f"max_filter_ratio is {options.max_filter_ratio:g}, first: {bad[0].reason}: "
            f"{bad[0].place.text[:200]}",
            kind="too_many_filtered",
        )
    return ChangeFrame(buffer, bad, bad_count)
