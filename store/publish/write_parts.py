"""The parts of what a transaction writes to one table, and which keys and columns they touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqstore.store.check.delta import Delta
from seqstore.store.conflict.conflict import Written
from seqstore.store.errors import InvalidInputError
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.fill.partial import keys_of
from seqstore.store.fill.update_after_delete import revived
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.column import SEQUENCE_ID
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.segment import Segment


@dataclass
class RowPart:
    """Whole rows, staged."""

    segments: list[Segment]


@dataclass
class DeltaPart:
    """Rows of partial updates; joined and filled when the table's state is known."""

    deltas: list[Delta]
    options: FillOptions

    def delta(self, schema: TableSchema) -> Delta:
        if len(self.deltas) > 1:
            self.deltas = [Delta.concatenate(self.deltas, schema)]
        return self.deltas[0]

    def delta_on(self, schema: TableSchema, state: TableState, beneath: TableState) -> Delta:
        """The rows as they are to be filled on a state.

        Args:
            beneath: the table without what the transaction wrote before.
        """
        delta = self.delta(schema)
        return revived(delta, state, beneath) if self.options.is_change else delta


def written_keys(parts: Sequence[RowPart | DeltaPart], schema: TableSchema) -> list[Written]:
    """Keys that parts write, with the columns; tombstones write whole rows."""
    found = []
    for part in parts:
        if isinstance(part, RowPart):
            found += [Written(segment.index.codes, None) for segment in part.segments]
            continue
        delta = part.delta(schema)
        _, codes = keys_of(delta, schema)
        found.append(Written(np.unique(codes), _columns_of(delta, schema)))
        if delta.signs is not None and delta.signs.any():
            found.append(Written(np.unique(codes[delta.signs == 1]), None))
    return found


def columns_written(parts: Sequence[RowPart | DeltaPart], schema: TableSchema) -> frozenset[int] | None:
    """Ids of all columns that parts write, None when one of them brings whole rows."""
    columns: frozenset[int] = frozenset()
    for part in parts:
        if isinstance(part, DeltaPart):
            columns |= _columns_of(part.delta(schema), schema)
        elif part.segments:
            return None
    return columns


def _columns_of(delta: Delta, schema: TableSchema) -> frozenset[int]:
    """Ids of the columns a partial update writes."""
    names = set(delta.rows.schema.names) - set(schema.key)
    written = {
        column.id
        for column in schema.value_columns
        if column.name in names or column.on_update_current_timestamp
    }
    return frozenset(written | ({SEQUENCE_ID} if delta.sequence is not None else set()))


def refuse_changes(schema: TableSchema, table: str, operation: str, rows: int) -> None:
    """Raises when stored rows would change in a table that only grows.

    Raises:
        InvalidInputError: `delta.appendOnly` is set.
    """
    if rows and schema.is_append_only:
        raise InvalidInputError(
            f"{operation} would change or delete {rows} rows of {table!r}, and its property "
            "delta.appendOnly is true; write new keys only, or set the property to false",
            kind="append_only",
            table=table,
        )
