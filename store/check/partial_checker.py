"""From a caller's rows to a delta: the checks of `row_checker` for rows that supply some of their cells.

Three ways define which cells a row supplies: fixed (all rows supply the columns the data has, P4), flexible
(a mask a column, F9), and "NULL means keep" (a value cell that is NULL is not supplied). Rules that differ
from whole rows: key columns must be there (P3) or, in flexible updates, a row without one is rejected (F7);
nothing else is missing; the sequence may be left out (SL11); a rejected cell is one that is supplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.check.delta import Delta
from seqstore.store.check.row_checker import Mask, RejectedRow, RowChecker, reject
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import SEQUENCE_COL, Column
from seqstore.store.schema.properties import SKIP_BITMAP
from seqstore.store.schema.table_schema import TableSchema


@dataclass
class PartialChecker(RowChecker):
    """Checks the batches of one partial update.

    Attributes:
        flexible: rows may lack cells, keys included.
        ignore_null: a NULL value cell means "keep".
        makes_keys: rows lack their AUTO_INCREMENT key column: all of them are new (A8).
    """

    flexible: bool = False
    ignore_null: bool = False
    makes_keys: bool = field(default=False, init=False)
    _supplied: dict[str, Mask] = field(default_factory=dict, init=False)

    def check_delta(
        self, data: pa.Table, supplied: Mapping[str, Mask] | None = None
    ) -> tuple[Delta, list[RejectedRow]]:
        """Checks one batch.

        Args:
            supplied: column of the data (any spelling) -> which rows supply it; others are supplied by all
            rows.

        Raises:
            InvalidInputError: a key column is missing, or the columns do not fit the table.
        """
        given = self._match_columns(data)
        self._require_keys(given)
        self._supplied = {role: mask for name, mask in (supplied or {}).items() for role in self._roles(name)}
        rejected: dict[int, RejectedRow] = {}
        signs = self._signs(given, len(data), rejected)
        is_tombstone = np.asarray(signs).astype(np.bool_) if signs is not None else None
        self._reject_missing_keys(rejected)
        names = [column for column in self.schema.columns if column.name in given or self._is_made(column)]
        self.makes_keys = any(column.name not in given for column in names)
        arrays = [self._column(column, given, len(data), is_tombstone, rejected) for column in names]
        self._check_partitions(
            {column.name: array for column, array in zip(names, arrays, strict=True)}, rejected
        )
        sequence, sequence_supplied = self._given_sequence(
            given, names, arrays, len(data), is_tombstone, rejected
        )
        masks = self._masks(names, arrays)
        self._finish(names, arrays, masks, is_tombstone, rejected)
        if self.ignore_null and sequence is not None:
            valid = np.asarray(sequence.is_valid())
            sequence_supplied = valid if sequence_supplied is None else sequence_supplied & valid
        rows = pa.Table.from_arrays(arrays, names=[column.name for column in names])
        delta = Delta(
            rows,
            masks,
            np.asarray(signs) if signs is not None else None,
            sequence,
            sequence_supplied,
            self._ids_for_new_keys(rows, masks),
        )
        if not rejected:
            return delta, []
        keep = np.ones(len(data), dtype=np.bool_)
        keep[list(rejected)] = False
        return delta.take(np.flatnonzero(keep)), [rejected[row] for row in sorted(rejected)]

    def _finish(
        self,
        names: list[Column],
        arrays: list[pa.Array],
        masks: dict[str, Mask],
        is_tombstone: Mask | None,
        rejected: dict[int, RejectedRow],
    ) -> None:
        """Adds the checks of a subclass when all cells are checked."""

    def _require_keys(self, given: Mapping[str, pa.ChunkedArray]) -> None:
        keys = self.schema.key_columns
        missing = [column.name for column in keys if column.name not in given and not self._is_made(column)]
        if missing:
            raise InvalidInputError(
                f"Partial update should include all key columns, missing: {missing[0]}",
                kind="missing_column",
                column=missing[0],
            )

    def _is_made(self, column: Column) -> bool:
        """Returns the keys that rows need not bring."""
        return column.auto_increment is not None and column.name in self.schema.key

    def _ids_for_new_keys(self, rows: pa.Table, masks: Mapping[str, Mask]) -> pa.Array | None:
        """Returns a value for each row in case its key is new (A7), None when every row brings one. It is
        made here, so that filling again finds the same (A9)."""
        column = self.schema.auto_increment_column
        if column is None or column.name in self.schema.key:
            return None
        if column.name in rows.schema.names and column.name not in masks:
            return None
        return self._new_ids(len(rows))

    def _with_ids(self, column: Column, values: pa.Array) -> pa.Array:
        """Returns the NULLs that are supplied: not absent cells, nor NULLs that mean "keep"."""
        if column.name in self.schema.key:
            return super()._with_ids(column, values)
        if self.ignore_null:
            return values
        mask = self._supplied.get(column.name)
        wanted = values.is_null() if mask is None else pc.and_(values.is_null(), pa.array(mask))
        return pc.replace_with_mask(values, wanted, self._new_ids(wanted.true_count))

    def _reject_missing_keys(self, rejected: dict[int, RejectedRow]) -> None:
        for name in self.schema.key:
            mask = self._supplied.get(name)
            if mask is not None:
                for row in np.flatnonzero(~mask):
                    reject(rejected, int(row), name, f"the row has no key column {name}")

    def _check_sequence_source(self, given: Mapping[str, pa.ChunkedArray]) -> None:
        """Raises for a sequence in a table without one (SL13); a partial update may leave it out (SL11)."""
        if not self.schema.has_sequence and (SEQUENCE_COL in given or self.sequence is not None):
            raise InvalidInputError(
                f"There is no sequence column in the table {self.table}", kind="no_sequence"
            )

    def _must_have_value(self, column: Column, missing: Mask) -> Mask:
        """Returns the cells at fault for being NULL: only those that are supplied."""
        mask = self._supplied.get(column.name)
        if self.ignore_null and column.name not in self.schema.key:
            return np.zeros(len(missing), dtype=np.bool_)
        return missing if mask is None else missing & mask

    def _given_sequence(
        self,
        given: Mapping[str, pa.ChunkedArray],
        names: list[Column],
        arrays: list[pa.Array],
        rows: int,
        is_tombstone: Mask | None,
        rejected: dict[int, RejectedRow],
    ) -> tuple[pa.Array | None, Mask | None]:
        """Returns the sequence the rows supply, and which do; adds the mapped column when only the hidden one
        is given."""
        mapped = self.schema.sequence_column
        if SEQUENCE_COL in given:
            sequence = self._hidden_sequence(given, rows, rejected)
            if mapped is not None and mapped not in given:
                if SEQUENCE_COL in self._supplied:
                    self._supplied[mapped] = self._supplied[SEQUENCE_COL]
                column = self.schema.column(mapped)
                names.append(column)
                arrays.append(self._column(column, given, rows, is_tombstone, rejected))
            return sequence, self._supplied.get(SEQUENCE_COL)
        if mapped is None or mapped not in given:
            return None, None
        sequence = arrays[[column.name for column in names].index(mapped)]
        return sequence, self._supplied.get(mapped)

    def _masks(self, names: list[Column], arrays: list[pa.Array]) -> dict[str, Mask]:
        masks: dict[str, Mask] = {}
        for column, array in zip(names, arrays, strict=True):
            if column.name in self.schema.key:
                continue
            mask = self._supplied.get(column.name)
            if self.ignore_null and array.null_count:
                valid = np.asarray(array.is_valid())
                mask = valid if mask is None else mask & valid
            if mask is not None and not mask.all():
                masks[column.name] = mask
        return masks


def check_flexible(schema: TableSchema) -> None:
    """Raises unless a table was created for flexible updates, as in Doris.

    Raises:
        InvalidInputError: with the text of F2.
    """
    reason = ""
    if schema.properties.get("light_schema_change") == "false":
        reason = "table with light_schema_change enabled"
    elif schema.properties.get(SKIP_BITMAP) != "true":
        reason = "table with skip bitmap hidden column"
    if reason:
        raise InvalidInputError(
            f"Flexible partial update can only support {reason}.", kind="flexible_not_supported"
        )
