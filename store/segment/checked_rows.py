"""Rows of a load that passed every check, as the stager takes them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class CheckedRows:
    """Rows that satisfy a table's rules, in input order.

    Attributes:
        visible: the table's visible columns, in order, with their exact types, one chunk each.
        signs: int8 delete signs, None when no row is a tombstone.
        sequence: the hidden sequence, None when the table has none or it is the mapped column itself.
        groups: which column groups each row has, None in tables without.
    """

    visible: pa.Table
    signs: pa.Array | None = None
    sequence: pa.Array | None = None
    groups: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.visible)
