"""An epoch of a sink with `auto_create`, `schema_evolution` or `dead_letters`.

The driver decides everything, by the code of the other loads, and one transaction publishes the rows of all
tables with their new schemas and their dead letters (EV1-EV11, DL1-DL5). A frame of rows tells its columns by
its types; of columns that may become wider the driver collects the values. Executors stage large frames,
unless rejected rows are kept: their texts are of rows that the driver has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from seqstore.loaders.changes.outgoing import json_objects
from seqstore.loaders.dead_letters.letters import (
    SUFFIX,
    DeadLetters,
    dropping_unused,
    kept_headers,
    make_beside,
)
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.declared_table import declared_table, table_of
from seqstore.loaders.inference.field_values import FieldValues
from seqstore.loaders.inference.file_columns import stored_type
from seqstore.loaders.inference.needed_schema import NeededSchema, needed_evolution
from seqstore.loaders.json.fields import one_array
from seqstore.loaders.source import BadRow, Place, keeping_bad_rows
from seqstore.loaders.spark.change_frame import ChangeFrame, FrameOptions, Messages
from seqstore.loaders.spark.frame_types import written_schema
from seqstore.loaders.spark.options import LoadOptions
from seqstore.loaders.spark.place import StoreAt, ending
from seqstore.loaders.spark.py4j_access import estimated_bytes
from seqstore.loaders.spark.staged_frame import StagedFrame
from seqstore.loaders.spark.staging import needs_driver, stage_frame
from seqstore.loaders.spark.zones import without_zones
from seqstore.store import InvalidInputError, NotFoundError, Store, Table, TransactionOptions
from seqstore.store.check.column_mask import split_supplied
from seqstore.store.ddl.filled_tables import filled_table
from seqstore.store.errors import MetadataChangedException
from seqstore.store.load.load import Load
from seqstore.store.publish.evolution import Evolution
from seqstore.store.schema.column import hidden_name
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.column_types import ColumnType, takes_values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Rows: TypeAlias = pa.Table | StagedFrame | ChangeFrame


@dataclass(frozen=True)
class GrowingPart:
    """The rows of an epoch for one table.

    Attributes:
        table: `database.table`.
        frame: rows, or messages of a change stream.
        load: how rows are written.
        given: the same as options of the data source.
        asked: what may change beside the rows.
        registries: the setting `schema_registries`.
    """

    table: str
    frame: DataFrame
    load: LoadOptions
    given: Mapping[str, Any]
    asked: FrameOptions
    registries: tuple[str, ...] = ()

    @property
    def growth(self) -> StreamLoadOptions:
        """What may change; nothing for a table whose options have none of it."""
        return self.asked.growth or self.asked.changes or StreamLoadOptions(format="json")

    @cached_property
    def messages(self) -> Messages | None:
        """The messages, None for a frame of rows."""
        if self.asked.changes is None:
            return None
        return Messages.collect(self.frame, self.asked.changes, self.table, self.registries)

    @cached_property
    def rows_frame(self) -> DataFrame:
        """The frame of rows as it is written."""
        return without_zones(self.frame)

    def declared(self) -> TableSchema | None:
        """Returns the declaration of a new table; None while no message tells its columns.

        Raises:
            InvalidInputError: nothing names the key, or a column cannot be.
        """
        growth, messages = self.growth, self.messages
        if messages is not None:
            return table_of(BytesIO(messages.lines), messages.options) if messages.lines.strip() else None
        fields = [field for field in self._fields() if not pa.types.is_null(field.type)]
        return declared_table(
            {field.name: stored_type(field.type) for field in fields},
            growth.auto_create_key,
            growth.auto_create_sequence or None,
            {},
            is_changes=False,
            required=[field.name for field in fields if not field.nullable],
        )

    def evolution(self, table: Table) -> Evolution | None:
        """Returns the schema that the rows need of the table, None where it has all."""
        growth, messages = self.growth, self.messages
        if not growth.evolves:
            return None
        if messages is not None:
            return needed_evolution(table, table.schema, messages.options, BytesIO(messages.lines))
        needed = NeededSchema(table.schema, growth.schema_evolution)
        needed.see(self._values(needed.columns))
        return needed.evolution(table)

    def _fields(self) -> list[pa.Field]:
        """Returns the fields of a frame of rows that are columns."""
        from pyspark.sql.pandas.types import to_arrow_schema

        skipped = {name.lower() for name in (self.load.sequence, self.load.supplied) if name}
        fields = to_arrow_schema(self.rows_frame.schema, timezone="UTC")
        return [f for f in fields if hidden_name(f.name) is None and f.name.lower() not in skipped]

    def _values(self, columns: Mapping[str, ColumnType]) -> Iterator[FieldValues]:
        """Yields new fields by their types, and the values of those that may not fit their columns."""
        unsure = []
        for field in self._fields():
            known = columns.get(field.name.lower())
            if pa.types.is_null(field.type):
                continue
            if known is None:
                yield FieldValues(field.name, pa.array([], field.type), stored_type(field.type))
            elif not pa.types.is_nested(field.type) and not takes_values_of(known, stored_type(field.type)):
                unsure.append(field.name)
        if unsure and self.growth.schema_evolution == "widen":
            frame = self.rows_frame
            found = frame.select(*(frame[f"`{name}`"] for name in unsure)).toArrow()
            for name in unsure:
                yield FieldValues(name, one_array(found.column(name)))

    @contextmanager
    def rows(
        self, at: str | Path | StoreAt, table: Table, evolution: Evolution | None, bytes_max: int
    ) -> Iterator[Rows]:
        """Yields the rows for the table or its new schema; staged ones are deleted unless published."""
        schema = table.schema if evolution is None else evolution.schema
        if self.messages is not None:
            yield self.messages.read(schema)
            return
        frame = self.rows_frame
        written_schema(frame.schema, schema)
        self._refuse_hidden()
        is_small = estimated_bytes(frame) <= bytes_max
        if is_small or self.growth.dead_letters or needs_driver(schema, frame.columns):
            yield frame.toArrow()
            return
        options = {name: str(value) for name, value in self.given.items() if value is not None}
        staged = stage_frame(frame, at, self.table, options, evolution)
        with ending(table, staged.task.load):
            yield staged

    def _refuse_hidden(self) -> None:
        hidden = [name for name in self.frame.columns if hidden_name(name) is not None]
        if hidden and self.growth.dead_letters:
            raise InvalidInputError(
                f"{self.table}: dead_letters does not go with the hidden column {hidden[0]}; write deletes "
                "by a Feed of merge_type DELETE",
                kind="bad_option",
            )

    def write(self, load: Load, rows: Rows, schema: TableSchema) -> list[BadRow]:
        """Writes the rows; returns rejected ones where dead letters are kept."""
        if isinstance(rows, StagedFrame):
            for share in rows.shares:
                load.adopt(share)
            return []
        if isinstance(rows, ChangeFrame):
            load.note_filtered(rows.bad_count)
            return [*rows.bad, *rows.write(load)]
        plain, supplied = split_supplied(rows, self.load.supplied, schema)
        rejected = load.write(plain, supplied=supplied).rejected
        if not self.growth.dead_letters or not rejected:
            return []
        texts = json_objects(rows.take([row.row for row in rejected])).to_pylist()
        return [
            BadRow(Place(row.row + 1, text), row.reason) for row, text in zip(rejected, texts, strict=True)
        ]


@dataclass(frozen=True)
class GrowingEpoch:
    """The parts of one epoch, which come in one commit.

    Attributes:
        at: where the store is.
        bytes_max: larger frames are staged by executors.
    """

    store: Store
    at: str | Path | StoreAt
    parts: tuple[GrowingPart, ...]
    label: str
    bytes_max: int

    def publish(self) -> None:
        """Makes the tables that are missing, and loads all parts, again where a schema changed (EV5).

        Raises:
            StoreError: nothing was published, and no table is left.
        """
        made: list[str] = []
        with dropping_unused(self.store, made), ExitStack() as filled, keeping_bad_rows():
            ready = [part for part in self.parts if self._has_table(part, filled)]
            for part in ready:
                made += [part.table] * (part.growth.dead_letters and make_beside(self.store, part.table))
            while ready:
                try:
                    self._load(ready)
                    return
                except MetadataChangedException:
                    if not any(part.growth.evolves for part in ready):
                        raise

    def _has_table(self, part: GrowingPart, filled: ExitStack) -> bool:
        """Makes the table of a part where there is none; False while nothing tells its columns."""
        try:
            self.store.table(part.table)
            return True
        except NotFoundError as error:
            if error.kind != "unknown_table" or not part.growth.auto_create:
                raise
        schema = part.declared()
        if schema is not None:
            filled.enter_context(filled_table(self.store, part.table, schema, if_not_exists=True))
        return schema is not None

    def _load(self, parts: list[GrowingPart]) -> None:
        with ExitStack() as stack:
            found = []
            for part in parts:
                table = self.store.table(part.table)
                evolution = part.evolution(table)
                rows = stack.enter_context(part.rows(self.at, table, evolution, self.bytes_max))
                found.append((part, evolution, rows))
            options = TransactionOptions(label=self.label, operation="SPARK WRITE", reads_own_writes=False)
            with self.store.transaction(options) as transaction:
                for part, evolution, rows in found:
                    own = transaction.table(part.table)
                    if evolution is not None:
                        own.evolve(evolution)
                    with own.begin_load(operation="SPARK WRITE", **part.load.beginning) as load:
                        bad = part.write(load, rows, own.schema)
                        ratio = (
                            part.growth.max_filter_ratio if part.asked.growth else part.load.max_filter_ratio
                        )
                        load.commit(max_filter_ratio=ratio)
                    if bad and part.growth.dead_letters:
                        beside = transaction.table(f"{part.table}{SUFFIX}")
                        with beside.begin_load(operation="DEAD LETTERS") as letters:
                            self._keep(part, bad, letters, own.schema)
                            letters.commit()

    def _keep(self, part: GrowingPart, bad: list[BadRow], letters: Load, schema: TableSchema) -> None:
        headers = kept_headers(part.asked.headers, part.growth, schema.names)
        kept = DeadLetters(lambda: letters, self.label)
        kept.add(bad, "", headers)
        kept.flush()
