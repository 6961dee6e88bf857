"""Rows of a load that passed every check: the stager's input."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class CheckedRows:
    """Rows that satisfy a table's rules, in input order.

    Attributes:
        visible: the table's visible columns, in order, with their exact types, one chunk each.
        signs: int8 delete signs, None when no row is a tombstone.
        sequence: the hidden sequence, None when the table has none or a visible column is the sequence.
        groups: the column groups of each row, None in tables without groups.
    """

    visible: pa.Table
    signs: pa.Array | None = None
    sequence: pa.Array | None = None
    groups: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.visible)
