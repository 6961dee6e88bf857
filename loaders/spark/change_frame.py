"""Frames whose rows are messages of a change stream, as Spark's Kafka source makes them.

The driver collects the columns `value` and, where there is one, `key`, and reads them as a stream load does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
from seqstore.loaders.source import BadRow
from seqstore.store import InvalidInputError, Table
from seqstore.store.errors import LoadRejectedError
from seqstore.store.load.load import Load
from seqstore.store.remote.remote_table import RemoteTable
from seqstore.store.settings import registries_of_environment

# Of stream and routine loads: a sink's epoch has one schema, which its executors stage files for.
_NOT_OF_SINKS: Final = (
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
_FORMATS: Final = (*CHANGE_FORMATS, *(name for name in AVRO_FORMATS if text_format(name) in CHANGE_FORMATS))


@dataclass(frozen=True)
class ChangeFrame:
    """The rows of a frame; `buffer` is empty where no message is a row."""

    buffer: RowBuffer

    def write(self, load: Load) -> None:
        if len(self.buffer):
            load.write(self.buffer.rows(), supplied=self.buffer.supplied())


def split_options(options: Mapping[str, Any]) -> tuple[StreamLoadOptions | None, dict[str, Any]]:
    """Splits the options of a sink into those of the messages, None for a frame of rows, and the others.

    Raises:
        InvalidInputError: the format is no change stream, an option has a bad value, or only other loads
            have it.
    """
    refused = next((name for name in _NOT_OF_SINKS if name in options), None)
    if refused is not None:
        raise InvalidInputError(
            f"option {refused}: the sink of PySpark does not have it; alter or create the table before the "
            "query, or load the messages by a routine load (FROM KAFKA), which has it",
            kind="not_supported",
        )
    own = {name: str(options[name]) for name in HEADERS if options.get(name) is not None}
    others = {name: value for name, value in options.items() if name not in HEADERS}
    if not own:
        return None, others
    if own.get("format", "").lower() not in _FORMATS:
        raise InvalidInputError(
            f"option format: expected one of {', '.join(_FORMATS)}, or none for a frame of rows, found "
            f"{own.get('format')!r}",
            kind="bad_option",
        )
    shared = ("unique_key_update_mode", "max_filter_ratio", "merge_type", "partial_columns")
    own |= {name: str(options[name]) for name in shared if options.get(name) is not None}
    return parse_headers(own), others


def read_frame(frame: Any, options: StreamLoadOptions, table: Table) -> ChangeFrame:
    """Reads the messages of a frame.

    Raises:
        InvalidInputError: the frame has no column `value`.
        LoadRejectedError: more messages are bad than `max_filter_ratio` allows.
    """
    names = [name for name in ("key", "value") if name in frame.columns]
    if "value" not in names:
        raise InvalidInputError(
            f"{table.name}: a frame of {options.format} needs the column value, "
            f"found {', '.join(frame.columns)}",
            kind="unknown_column",
        )
    messages = frame.select(*names).toArrow()
    values = messages.column("value").combine_chunks()
    keys = messages.column("key").combine_chunks() if "key" in names else pa.nulls(len(values), values.type)
    given = with_registry(options, _registries(table)).avro
    if given is None:
        return ChangeFrame(_read(keyed_messages(keys, values), options, table))
    lines = AvroMessages(given).lines(keys, values)
    return ChangeFrame(_read(lines, replace(options, avro=None), table))


def _registries(table: Table) -> list[str]:
    """Returns the registries a driver may ask: those of the environment, and of the setting where it has one.

    Settings of a store elsewhere are its server's.
    """
    own = () if isinstance(table, RemoteTable) else table.settings.schema_registries
    return [*own, *registries_of_environment()]


def _read(messages: pa.Array, options: StreamLoadOptions, table: Table) -> RowBuffer:
    buffer = RowBuffer()
    moment = moment_in(options.time_zone)
    bad: list[BadRow] = []
    bad_count = 0
    with ExitStack() as opened:
        body = BytesIO(b"\n".join(messages.to_pylist()))
        reader, mapping = open_rows(body, options, Target(table.schema, table.name), moment, opened)
        for batch in reader.batches():
            mapped = mapping(batch, moment.local)
            bad = bad or [*batch.bad, *batch.located(mapped.bad)][:1]
            bad_count += batch.bad_count + mapped.bad_count
            buffer.add(batch.places, mapped, batch.held_bytes)
    if bad_count > options.max_filter_ratio * (len(buffer) + bad_count):
        raise LoadRejectedError(
            f"{table.name}: too many bad messages: {bad_count} of {len(buffer) + bad_count}, "
            f"max_filter_ratio is {options.max_filter_ratio:g}, first: {bad[0].reason}: "
            f"{bad[0].place.text[:200]}",
            kind="too_many_filtered",
        )
    return buffer
