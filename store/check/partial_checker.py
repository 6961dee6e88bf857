"""From a caller's rows to a delta: the checks of `row_checker` for rows that supply some of their cells.

Three ways define which cells a row supplies: fixed (all rows supply the columns the data has, P4), flexible
(a mask a column, F9), and "NULL means keep" (a value cell that is NULL is not supplied). The rules differ
from those of whole rows. A key column must be there, unless it has a default or may be NULL (P3). In
flexible updates a row without one is rejected (F7). Nothing else is missing; the sequence may be left out
(SL11). A rejected cell is one that is supplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.check.delta import Delta
from seqstore.store.check.row_checker import Batch, Mask, RejectedRow, RowChecker
from seqstore.store.check.write_modes import (
    MergeType,
    UpdateMode,
    duplicate_error,
    parse_merge_type,
    parse_mode,
)
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import ROW_ID_COL, SEQUENCE_COL, Column, default_scalar
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

    require_sequence: bool = False  # SL11
    flexible: bool = False
    ignore_null: bool = False
    makes_keys: bool = field(default=False, init=False)

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
        masks = {role: mask for name, mask in (supplied or {}).items() for role in self._roles(name)}
        batch = Batch(given, len(data), masks)
        self._read_signs(batch)
        self._complete_keys(batch)
        key = self.schema.key
        every = (*self.schema.key_columns, *self.schema.value_columns)
        columns = [column for column in every if column.name in given or column.name in key]
        self.makes_keys = any(column.name not in given and self._is_made(column) for column in columns)
        cells = {column.name: self._column(column, batch) for column in columns}
        self._check_partitions(cells, batch)
        sequence, sequence_supplied = self._given_sequence(batch, cells)
        masks = self._masks(batch, cells)
        cells = self._finished(batch, cells, masks)
        if self.ignore_null and sequence is not None:
            valid = np.asarray(sequence.is_valid())
            sequence_supplied = valid if sequence_supplied is None else sequence_supplied & valid
        rows = pa.Table.from_arrays(list(cells.values()), names=list(cells))
        signs = np.asarray(batch.signs) if batch.signs is not None else None
        delta = Delta(rows, masks, signs, sequence, sequence_supplied, self._ids_for_new_keys(rows, masks))
        if not batch.rejected:
            return delta, []
        return delta.take(np.flatnonzero(batch.kept())), batch.left_out()

    def _finished(
        self, batch: Batch, cells: dict[str, pa.Array], masks: dict[str, Mask]
    ) -> dict[str, pa.Array]:
        """Returns the cells after the checks of a subclass, which may change the masks."""
        return cells

    def _complete_keys(self, batch: Batch) -> None:
        """Gives the rows of a flexible update that lack a key column its default, or rejects them (F7).

        The NULLs of an AUTO_INCREMENT column become new values later (A6).
        """
        for column in self.schema.key_columns:
            mask = batch.supplied.get(column.name)
            if mask is None:
                continue
            if column.auto_increment is None and column.default is None:
                batch.reject(~mask, column.name, f"the row has no key column {column.name}")
                continue
            del batch.supplied[column.name]
            if column.default is not None:
                values = batch.given[column.name].combine_chunks()
                default = default_scalar(column, self.now).cast(values.type)
                batch.given[column.name] = pa.chunked_array([pc.if_else(pa.array(mask), values, default)])

    def _require_keys(self, given: dict[str, pa.ChunkedArray]) -> None:
        keys = self.schema.key_columns
        if self.schema.is_duplicate and ROW_ID_COL not in given:
            raise duplicate_error(self.table, "delete by key is only supported in unique tables.")
        missing = [column.name for column in keys if column.name not in given and not column.can_be_omitted]
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

    def _with_ids(self, column: Column, values: pa.Array, batch: Batch) -> pa.Array:
        """Replaces the NULLs that are supplied: not absent cells, nor NULLs that mean "keep"."""
        if column.name in self.schema.key:
            return super()._with_ids(column, values, batch)
        if self.ignore_null:
            return values
        mask = batch.supplied.get(column.name)
        wanted = values.is_null() if mask is None else pc.and_(values.is_null(), pa.array(mask))
        return pc.replace_with_mask(values, wanted, self._new_ids(wanted.true_count))

    def _must_have_value(self, column: Column, missing: Mask, batch: Batch) -> Mask:
        """Returns the cells at fault for being NULL: only those that are supplied."""
        if self.ignore_null and column.name not in self.schema.key:
            return np.zeros(len(missing), dtype=np.bool_)
        mask = batch.supplied.get(column.name)
        return missing if mask is None else missing & mask

    def _given_sequence(
        self, batch: Batch, cells: dict[str, pa.Array]
    ) -> tuple[pa.Array | None, Mask | None]:
        """Returns the sequence the rows supply, and which do.

        A row that supplies only one of the hidden sequence and the mapped column has its value in both; of
        two the mapped column counts (SD1).
        """
        mapped, supplied = self.schema.sequence_column, batch.supplied
        if SEQUENCE_COL not in batch.given:
            if mapped is None or mapped not in batch.given:
                return None, None
            return cells[mapped], supplied.get(mapped)
        sequence, mask = self._hidden_sequence(batch), supplied.get(SEQUENCE_COL)
        if mapped is None:
            return sequence, mask
        if mapped not in batch.given:
            if mask is not None:
                supplied[mapped] = mask
            cells[mapped] = self._column(self.schema.column(mapped), batch)
            return sequence, mask
        of_mapped = supplied.get(mapped)
        if of_mapped is None:
            return cells[mapped], None
        values = pc.if_else(pa.array(of_mapped), cells[mapped], sequence)
        mask = None if mask is None else mask | of_mapped
        supplied[mapped] = np.ones(batch.rows, dtype=np.bool_) if mask is None else mask
        cells[mapped] = self._without_nulls(self.schema.column(mapped), values, batch)
        return cells[mapped], mask

    def _masks(self, batch: Batch, cells: Mapping[str, pa.Array]) -> dict[str, Mask]:
        masks: dict[str, Mask] = {}
        for name, array in cells.items():
            if name in self.schema.key:
                continue
            mask = batch.supplied.get(name)
            if self.ignore_null and array.null_count:
                valid = np.asarray(array.is_valid())
                mask = valid if mask is None else mask & valid
            if mask is not None and not mask.all():
                masks[name] = mask
        return masks


def check_partial(table: str, schema: TableSchema, mode: str, merge_type: str) -> None:
    """Raises unless the table takes writes of a mode.

    A merge-on-read table takes whole rows only (P1), a duplicate table no deletes of a load either (T12).

    Raises:
        InvalidInputError: with the text of P1 or T12.
    """
    is_delete = parse_merge_type(merge_type) == MergeType.DELETE  # by key alone
    if schema.is_duplicate:
        is_partial = parse_mode(mode) != UpdateMode.UPSERT
        if is_partial and not is_delete:
            raise duplicate_error(table, "Only unique key merge on write support partial update.")
        if not is_partial and parse_merge_type(merge_type) != MergeType.APPEND:
            raise duplicate_error(table, "load by MERGE or DELETE is only supported in unique tables.")
        return
    if schema.is_merge_on_read and parse_mode(mode) != UpdateMode.UPSERT and not is_delete:
        raise InvalidInputError(
            "Only unique key merge on write support partial update; write whole rows, or create the table "
            "with 'enable_unique_key_merge_on_write' = 'true'",
            kind="merge_on_read",
        )


def check_flexible(table: str, schema: TableSchema) -> None:
    """Raises unless a table was created for flexible updates, as in Doris.

    Raises:
        InvalidInputError: with the text of F2.
    """
    check_partial(table, schema, UpdateMode.FLEXIBLE, MergeType.APPEND)
    reason = ""
    if schema.properties.get("light_schema_change") == "false":
        reason = "table with light_schema_change enabled"
    elif schema.properties.get(SKIP_BITMAP) != "true":
        reason = "table with skip bitmap hidden column"
    if reason:
        raise InvalidInputError(
            f"Flexible partial update can only support {reason}.", kind="flexible_not_supported"
        )
