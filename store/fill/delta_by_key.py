"""A delta that is being filled: its rows by key, with the stored row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from seqstore.store.check.delta import Delta, Mask
from seqstore.store.errors import InvalidInputError
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.column import Column, default_scalar
from seqstore.store.segment.dedupe import equal_keys, group_rows
from seqstore.store.segment.key_codes import prove_keys
from seqstore.store.segment.winner import Rows
from seqstore.store.types.column_types import fill_zero_values

NONE: Final = -1


class DeltaByKey:
    """The rows of a delta by key, then by arrival; arrays are per key unless they say otherwise.

    Attributes:
        cells: the columns of the delta.
        order: its row numbers by key; `key_of` has the key of each such row.
        starts: the first entry of each key within `order`.
        matches: the stored rows, by key.
        history: the index of each key's row within `matches`, or -1.
    """

    def __init__(self, delta: Delta, state: TableState, options: FillOptions) -> None:
        self.delta, self.state, self.options = delta, state, options
        self.schema = state.schema
        self.cells = delta.cells()
        state.will_take(len(delta))  # while the keys are looked up
        keys, codes = delta.keys(self.schema)
        exact = prove_keys(codes, self.schema.key_columns)
        by_key = group_rows(codes, keys, exact=exact)
        self.order, self.key_of, self.starts = by_key.order, by_key.group, by_key.starts
        first = self.order[self.starts]
        matches = state.probe(codes[first])
        if len(matches) and not exact:
            stored = state.take(matches, list(self.schema.key))
            matches = matches.take(equal_keys(keys, first[matches.probe_keys], stored.columns, None))
        # Where every key has a row, columns of stored rows by key need no gathering.
        self.matches = matches.take(np.argsort(matches.probe_keys, kind="stable"))
        self.history = np.full(len(first), NONE, dtype=np.intp)
        self.history[self.matches.probe_keys] = np.arange(len(self.matches))

    def refuse(self, new_keys: Rows) -> None:
        """Raises when there are new keys, named by a row of the delta each (P10)."""
        if len(new_keys):
            shown = ", ".join(str(self.cells[name][int(new_keys[0])].as_py()) for name in self.schema.key)
            raise InvalidInputError(
                "[E-7003]Can't append new rows in partial update when partial_update_new_key_behavior is "
                f"ERROR. Row with key=[{shown}] is not in table.",
                kind="new_key",
            )

    def default(self, column: Column, *, must_have: bool, is_null: bool = False) -> pa.Array:
        """Returns the default of a column as an array of one; refuses keys that must have one (P7-P9, F25).

        Args:
            must_have: some key needs a value.
            is_null: the column has NULL instead of its default.
        """
        value = pa.scalar(None, column.type.arrow) if is_null else default_scalar(column, self.options.now)
        if not value.is_valid and not column.nullable and must_have:
            mode = "flexible partial update" if self.options.flexible else "partial update"
            raise InvalidInputError(
                f"the unmentioned column `{column.name}` should have default value or be nullable for newly "
                f"inserted rows in non-strict mode {mode}",
                kind="missing_column",
                column=column.name,
            )
        return pa.array([value.as_py()], column.type.arrow)


def gathered(sources: Sequence[tuple[Mask, pa.Array, Any]]) -> pa.Array:
    """Returns one cell a key, by one gather over sources side by side.

    Args:
        sources: the keys that a source serves, its cells, and the cell of each key.
    """
    gather, offset = np.zeros(len(sources[0][0]), dtype=np.int64), 0
    for keys, cells, places in sources:
        gather = np.where(keys, places + offset, gather)
        offset += len(cells)
    return pa.concat_arrays([cells for _, cells, _ in sources]).take(pa.array(gather))


def without_nulls(column: Column, cells: pa.Array) -> pa.Array:
    """Returns cells with zero values for NULLs of a NOT NULL column; they are those of absent rows."""
    if column.nullable or not cells.null_count:
        return cells
    return fill_zero_values(cells, pa.array(np.asarray(cells.is_null())))
