"""A delta: rows of a partial update, in arrival order, with the cells they supply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_codes import Codes, encode_keys
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

    def supplies_sequence(self) -> Mask:
        """Returns which rows supply a sequence."""
        if self.sequence is not None and self.sequence_supplied is not None:
            return self.sequence_supplied
        return np.full(len(self), self.sequence is not None)

    def cells(self) -> dict[str, pa.Array]:
        """Returns the columns of the rows."""
        return {name: flat(self.rows.column(name)) for name in self.rows.schema.names}

    def keys(self, schema: TableSchema) -> tuple[list[pa.Array], Codes]:
        """Returns key columns and codes of the rows."""
        keys = [flat(self.rows.column(name)) for name in schema.key]
        return keys, encode_keys(keys, exact=schema.has_exact_key)

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
        cells = [delta.cells() for delta in deltas]
        supplied = {name: np.concatenate([delta.supplies(name) for delta in deltas]) for name in names}
        sequence_type, signs, sequence_supplied = schema.sequence_type, None, None
        sequence = _joined(
            deltas, [d.sequence for d in deltas], sequence_type.arrow if sequence_type is not None else None
        )
        if sequence is not None:
            sequence_supplied = np.concatenate([delta.supplies_sequence() for delta in deltas])
        if any(delta.signs is not None for delta in deltas):
            signs = np.concatenate(
                [d.signs if d.signs is not None else np.zeros(len(d), dtype=np.int8) for d in deltas]
            )
        return Delta(
            pa.table(
                {
                    name: _joined(deltas, [own.get(name) for own in cells], schema.column(name).type.arrow)
                    for name in names
                }
            ),
            {name: mask for name, mask in supplied.items() if not mask.all()},
            signs,
            sequence,
            sequence_supplied,
            _joined(deltas, [delta.ids for delta in deltas], pa.int64()),
        )


def flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _joined(
    deltas: Sequence[Delta], parts: Sequence[pa.Array | None], kind: pa.DataType | None
) -> pa.Array | None:
    """Joins arrays, NULLs for deltas that have none; returns None when no delta has one."""
    if all(part is None for part in parts):
        return None
    return pa.concat_arrays(
        [pa.nulls(len(d), kind) if part is None else part for d, part in zip(deltas, parts, strict=True)]
    )
