"""The parts of the write of one transaction to one table, and the keys and columns they touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqstore.store.check.delta import Delta
from seqstore.store.conflict.conflict import Written
from seqstore.store.errors import InvalidInputError
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.fill.update_after_delete import with_deleted_rows
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.column import SEQUENCE_ID
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.segment import Segment


@dataclass(frozen=True)
class RowPart:
    """Whole rows, staged."""

    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class DeltaPart:
    """Rows of partial updates; joined and filled when the table's state is known."""

    deltas: tuple[Delta, ...]
    options: FillOptions
    schema: TableSchema

    @cached_property
    def delta(self) -> Delta:
        """All rows in one delta."""
        return Delta.concatenate(self.deltas, self.schema)

    def delta_on(self, state: TableState, beneath: TableState) -> Delta:
        """Returns the rows as they are to be filled on a state.

        Args:
            beneath: the table without the earlier writes of the transaction.
        """
        return with_deleted_rows(self.delta, state, beneath) if self.options.is_change else self.delta


Part = RowPart | DeltaPart


def written_keys(parts: Sequence[Part]) -> list[Written]:
    """Returns the keys that parts write, with the columns; tombstones write whole rows."""
    found = []
    for part in parts:
        if isinstance(part, RowPart):
            found += [Written(segment.index.codes, None) for segment in part.segments]
            continue
        delta = part.delta
        _, codes = delta.keys(part.schema)
        found.append(Written(np.unique(codes), _columns_of(delta, part.schema)))
        if delta.signs is not None and delta.signs.any():
            found.append(Written(np.unique(codes[delta.signs == 1]), None))
    return found


def columns_written(parts: Sequence[Part]) -> frozenset[int] | None:
    """Returns the ids of all columns that parts write, None when one of them has whole rows."""
    columns: frozenset[int] = frozenset()
    for part in parts:
        if isinstance(part, DeltaPart):
            columns |= _columns_of(part.delta, part.schema)
        elif part.segments:
            return None
    return columns


def _columns_of(delta: Delta, schema: TableSchema) -> frozenset[int]:
    """Returns the ids of the columns a partial update writes."""
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
