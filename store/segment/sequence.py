"""Sequence values in comparable form.

A `SequenceVector` holds the sequence of n rows as one or more int64 columns compared from left to right. NULL
is the smallest (SO4) and ties with NULL. The layout of a type:

- TINYINT to INT, DATE, DATETIME: one column, NULL is the smallest int64, which these types never reach.
- BIGINT: the same, and a second column (0 NULL, 1 value) only when a value is the smallest int64 itself.
- LARGEINT: high half, low half with its top bit flipped, and 0 NULL / 1 value.

A vector without its last column means "1 unless the first column is the smallest int64".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.schema.column import SEQUENCE_COL
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_codes import decimal_words, fixed_values
from seqstore.store.types.column_types import ColumnType

_MIN: Final = np.int64(-(2**63))
_TOP_BIT: Final = np.uint64(2**63)
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SequenceVector:
    """Sequence values of n rows; `columns` as the module describes."""

    columns: tuple[Ints, ...]

    @classmethod
    def encode(cls, array: pa.Array, sequence_type: ColumnType) -> SequenceVector:
        """Encodes an Arrow column of the sequence's own type."""
        if sequence_type.name == "LARGEINT":
            words = decimal_words(array)
            valid = np.asarray(array.is_valid())
            high = np.where(valid, words[:, 1].view(np.int64), _MIN)
            low = np.where(valid, (words[:, 0] ^ _TOP_BIT).view(np.int64), _MIN)
            return cls((high, low, valid.astype(np.int64)))
        values = fixed_values(array)
        if sequence_type.name == "BIGINT" and bool((values == _MIN).any()):
            return cls((values, np.asarray(array.is_valid()).astype(np.int64)))
        return cls((values,))

    @classmethod
    def of_rows(cls, rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> SequenceVector | None:
        """Encodes the sequence of stored rows; None in tables without one."""
        if schema.sequence_type is None:
            return None
        column = rows.column(SEQUENCE_COL if SEQUENCE_COL in rows.schema.names else schema.sequence_column)
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return cls.encode(whole, schema.sequence_type)

    @classmethod
    def nulls(cls, rows: int) -> SequenceVector:
        return cls((np.full(rows, _MIN, dtype=np.int64),))

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, rows: Any) -> SequenceVector:
        """Returns the values at an index array, a slice or a mask."""
        return SequenceVector(tuple([column[rows] for column in self.columns]))

    def padded(self, width: int) -> tuple[Ints, ...]:
        """Returns at least `width` columns; a missing last one is derived from the first."""
        if len(self.columns) >= width:
            return self.columns
        derived = (self.columns[0] != _MIN).astype(np.int64)
        if width == 2:
            return (*self.columns, derived)
        # One-column NULLs meet LARGEINT values only after SEQUENCE_LOAD: every row is NULL.
        return (self.columns[0], np.full(len(self), _MIN), derived)

    def less(self, other: SequenceVector) -> Mask:
        """Returns, row by row, whether this value is strictly smaller (SO2: only a strictly smaller one
        loses).
        """
        width = max(len(self.columns), len(other.columns))
        mine, theirs = self.padded(width), other.padded(width)
        smaller = mine[-1] < theirs[-1]
        for a, b in zip(reversed(mine[:-1]), reversed(theirs[:-1]), strict=True):
            smaller = (a < b) | ((a == b) & smaller)
        return smaller

    def ranks(self) -> npt.NDArray[np.int64]:
        """Returns dense ranks from 0; equal values share one, NULL is lowest."""
        order = np.lexsort(tuple(reversed(self.columns)))
        differs = np.zeros(len(order), dtype=np.bool_)
        for column in self.columns:
            ordered = column[order]
            differs[1:] |= ordered[1:] != ordered[:-1]
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.cumsum(differs)
        return ranks

    @staticmethod
    def side_by_side(parts: Sequence[SequenceVector], types: Sequence[ColumnType]) -> SequenceVector:
        """Joins sequences of several columns, compared from left to right; every part in its widest form."""
        widths = [{"LARGEINT": 3, "BIGINT": 2}.get(kind.name, 1) for kind in types]
        padded = [part.padded(width) for part, width in zip(parts, widths, strict=True)]
        return SequenceVector(tuple(column for part in padded for column in part))

    @staticmethod
    def concatenate(parts: list[SequenceVector]) -> SequenceVector:
        width = max(len(part.columns) for part in parts)
        padded = [part.padded(width) for part in parts]
        return SequenceVector(tuple(np.concatenate([p[i] for p in padded]) for i in range(width)))
