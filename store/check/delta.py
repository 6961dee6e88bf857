"""A delta: rows of a partial update, in arrival order, with the cells they supply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.winner import Rows

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Delta:
    """Rows of a partial update, in arrival order.

    Attributes:
        rows: key columns and supplied value columns, exact types, one chunk each.
        supplied: value column -> which rows supply it; a column that is absent here is supplied by all rows.
        signs: delete signs, None when no row deletes.
        sequence: sequence values in the sequence's type, None when no row supplies one.
        sequence_supplied: which rows do; None means all.
        ids: for each row the AUTO_INCREMENT value that its key gets if it is new; None when the rows
            bring it.
    """

    rows: pa.Table
    supplied: Mapping[str, Mask] = field(default_factory=dict)
    signs: npt.NDArray[np.int8] | None = None
    sequence: pa.Array | None = None
    sequence_supplied: Mask | None = None
    ids: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def supplies(self, name: str) -> Mask:
        """Returns which rows supply a value column."""
        if name not in self.rows.schema.names:
            return np.zeros(len(self), dtype=np.bool_)
        mask = self.supplied.get(name)
        return mask if mask is not None else np.ones(len(self), dtype=np.bool_)

    def take(self, rows: Rows) -> Delta:
        """Returns some of the rows."""
        indices = pa.array(rows)
        return Delta(
            self.rows.take(indices).combine_chunks(),
            {name: mask[rows] for name, mask in self.supplied.items()},
            self.signs[rows] if self.signs is not None else None,
            self.sequence.take(indices) if self.sequence is not None else None,
            self.sequence_supplied[rows] if self.sequence_supplied is not None else None,
            self.ids.take(indices) if self.ids is not None else None,
        )

    @staticmethod
    def concatenate(deltas: Sequence[Delta], schema: TableSchema) -> Delta:
        """Deltas of one load in order; a column that only some of them have is not supplied by the others'
        rows."""
        if len(deltas) == 1:
            return deltas[0]
        names = [n for n in schema.names if any(n in delta.rows.schema.names for delta in deltas)]
        columns = [pa.concat_arrays([_or_null(delta, name, schema) for delta in deltas]) for name in names]
        supplied = {}
        for name in names:
            masks = [delta.supplies(name) for delta in deltas]
            if not all(mask.all() for mask in masks):
                supplied[name] = np.concatenate(masks)
        signs = None
        if any(delta.signs is not None for delta in deltas):
            signs = np.concatenate(
                [d.signs if d.signs is not None else np.zeros(len(d), dtype=np.int8) for d in deltas]
            )
        sequence, sequence_supplied = _joined_sequence(deltas, schema)
        rows = pa.Table.from_arrays(columns, names=names)
        ids = None
        if any(delta.ids is not None for delta in deltas):
            ids = pa.concat_arrays(
                [d.ids if d.ids is not None else pa.nulls(len(d), pa.int64()) for d in deltas]
            )
        return Delta(rows, supplied, signs, sequence, sequence_supplied, ids)


def flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _or_null(delta: Delta, name: str, schema: TableSchema) -> pa.Array:
    if name in delta.rows.schema.names:
        return flat(delta.rows.column(name))
    return pa.nulls(len(delta), schema.column(name).type.arrow)


def _joined_sequence(deltas: Sequence[Delta], schema: TableSchema) -> tuple[pa.Array | None, Mask | None]:
    if schema.sequence_type is None or all(delta.sequence is None for delta in deltas):
        return None, None
    arrow = schema.sequence_type.arrow
    arrays, masks = [], []
    for delta in deltas:
        arrays.append(delta.sequence if delta.sequence is not None else pa.nulls(len(delta), arrow))
        given = np.full(len(delta), delta.sequence is not None)
        masks.append(given if delta.sequence_supplied is None else given & delta.sequence_supplied)
    return pa.concat_arrays(arrays), np.concatenate(masks)
