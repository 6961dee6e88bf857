"""Rows of a load that passed every check: the stager's input, and their last check, by CHECK constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.predicate import text_of
from seqstore.store.schema.column import DELETE_SIGN, GROUPS_COL, ROW_ID_COL, SEQUENCE_COL
from seqstore.store.schema.table_schema import TableSchema


@dataclass(frozen=True)
class CheckedRows:
    """Rows that satisfy a table's rules, in input order.

    Attributes:
        visible: the table's visible columns, in order, with their exact types, one chunk each.
        signs: int8 delete signs, None when no row is a tombstone.
        sequence: the hidden sequence, None when the table has none or a visible column is the sequence.
        groups: the column groups of each row, None in tables without groups.
        row_ids: the generated keys, in duplicate tables only (T10).
    """

    visible: pa.Table
    signs: pa.Array | None = None
    sequence: pa.Array | None = None
    groups: pa.Array | None = None
    row_ids: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.visible)

    def stored(self) -> pa.RecordBatch:
        """Returns the visible columns and those hidden ones that may have to be stored; not of no rows."""
        table = self.visible
        if self.signs is not None:
            table = table.append_column(pa.field(DELETE_SIGN, pa.int8(), False), self.signs)
        if self.sequence is not None:
            table = table.append_column(pa.field(SEQUENCE_COL, self.sequence.type), self.sequence)
        if self.groups is not None:
            table = table.append_column(pa.field(GROUPS_COL, pa.int64(), False), self.groups)
        if self.row_ids is not None:
            table = table.append_column(pa.field(ROW_ID_COL, pa.int64(), False), self.row_ids)
        return table.combine_chunks().to_batches(max_chunksize=len(table))[0]


def refuse_violations(schema: TableSchema, pieces: Sequence[CheckedRows]) -> None:
    """Checks rows against the constraints of a schema.

    Raises:
        InvalidInputError: names the constraint and the first row's key.
    """
    for constraint in schema.constraints:
        for piece in pieces:
            rows = piece.visible
            if piece.signs is not None:
                rows = rows.filter(pa.array(np.asarray(piece.signs) == 0))
            try:
                scanner = ds.dataset(rows).scanner(filter=~constraint.expression, use_threads=False)
                broken = scanner.to_table()
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
                raise InvalidInputError(
                    f"condition {text_of(constraint.expression) or ''} does not fit: {error}",
                    kind="bad_filter",
                ) from error
            if len(broken):
                named = schema.declared_key or schema.names
                key = ", ".join(f"{name}={broken.column(name)[0].as_py()}" for name in named)
                raise InvalidInputError(
                    f"CHECK constraint {constraint.name} ({constraint.sql}) is broken by {len(broken)} rows, "
                    f"first ({key})",
                    kind="check_constraint",
                    constraint=constraint.name,
                )
