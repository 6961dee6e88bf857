"""From a caller's rows to rows that satisfy the table's rules.

Given data with any column order and castable types:

1. Columns are matched by name, case aside (P31); hidden columns in either spelling. Unknown, doubled and
   missing ones are errors of the whole load (A1, M8), as is a missing sequence (SL6) or one too many
   (SL13).
2. Each column is cast to its exact type. A value that cannot be cast, is NULL in a NOT NULL column (A2, Y2)
   or is longer than CHAR or VARCHAR allow (Y5, bytes) rejects its row, not the load. Tombstones need their
   key only (D9); their missing NOT NULL cells get the type's zero (D10).
3. Columns not supplied get their default, one moment per load for CURRENT_TIMESTAMP (A3).

Result: `CheckedRows` without the rejected rows, and the list of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog.auto_increment import Ids
from seqstore.store.check.input_rows import pieces_of
from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.format_value import format_value
from seqstore.store.schema.column import (
    DELETE_SIGN,
    GROUPS_COL,
    SEQUENCE_COL,
    VERSION_COL,
    Column,
    default_scalar,
    hidden_name,
)
from seqstore.store.schema.partitions import rows_outside
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import fill_zero_values

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RejectedRow:
    """One row that was left out: its 0-based position in the data given, the column at fault, and why."""

    row: int
    column: str | None
    reason: str


@dataclass
class RowChecker:
    """Checks the batches of one load against one schema revision.

    Attributes:
        schema: the table's.
        table: its name, for messages.
        sequence: name of the column of the data that holds the hidden sequence (SL1), if the caller names
        one.
        delete_all: every row is a tombstone (merge type DELETE, G1).
        now: the load's one moment, in its time zone, without a zone.
        require_sequence: False lets rows in without a sequence; it is then NULL (SL12).
        ids: the source of the values of the table's AUTO_INCREMENT column, None where there is none.
        partitions: rows of other partitions are rejected; empty means all.
    """

    schema: TableSchema
    table: str
    sequence: str | None = None
    delete_all: bool = False
    now: datetime = field(default_factory=lambda: datetime.now().replace(microsecond=0))
    require_sequence: bool = True
    ids: Ids | None = None
    partitions: tuple[str, ...] = ()

    def check_pieces(self, data: pa.Table) -> tuple[list[CheckedRows], list[RejectedRow]]:
        """Checks a table, piece by piece when it is large; see `check`."""
        checked, rejected, given = [], [], 0
        for piece in pieces_of(data):
            rows, left_out = self.check(piece)
            checked.append(rows)
            rejected += [replace(row, row=row.row + given) for row in left_out]
            given += len(piece)
        return checked, rejected

    def check(self, data: pa.Table) -> tuple[CheckedRows, list[RejectedRow]]:
        """Applies the module's steps to one batch.

        Raises:
            InvalidInputError: the columns of the data do not fit the table.
        """
        given = self._match_columns(data)
        rejected: dict[int, RejectedRow] = {}
        signs = self._signs(given, len(data), rejected)
        is_tombstone = np.asarray(signs).astype(np.bool_) if signs is not None else None
        columns = [
            self._column(column, given, len(data), is_tombstone, rejected) for column in self.schema.columns
        ]
        self._check_partitions(dict(zip(self.schema.names, columns, strict=True)), rejected)
        sequence = self._hidden_sequence(given, len(data), rejected)
        visible = pa.Table.from_arrays(columns, schema=self.schema.arrow)
        rows = CheckedRows(visible, signs, sequence)
        if not rejected:
            return rows, []
        keep = np.ones(len(data), dtype=np.bool_)
        keep[list(rejected)] = False
        return _filtered(rows, keep), [rejected[row] for row in sorted(rejected)]

    def _check_partitions(self, columns: Mapping[str, pa.Array], rejected: dict[int, RejectedRow]) -> None:
        outside = rows_outside(self.schema, columns, self.partitions)
        if outside is None or not outside.true_count:
            return
        assert self.schema.partitioning is not None
        names = self.schema.partitioning.columns
        where = f"partitions {', '.join(self.partitions)}" if self.partitions else "any partition"
        for row in pc.indices_nonzero(outside).to_pylist():
            values = ", ".join(str(format_value(columns[name][row])) for name in names)
            reject(rejected, row, names[0], f"no partition for this tuple: ({values}) is not in {where}")

    def _match_columns(self, data: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Returns the columns by their canonical name; the sequence source under `SEQUENCE_COL`."""
        given: dict[str, pa.ChunkedArray] = {}
        for i, name in enumerate(data.schema.names):
            for canonical in self._roles(name):
                if canonical in given:
                    raise InvalidInputError(
                        f"{self.table}: column {name!r} is named twice; name each column once",
                        kind="duplicate_column",
                        column=name,
                    )
                given[canonical] = data.column(i)
        self._check_source_name(data.schema.names)
        self._check_sequence_source(given)
        return given

    def _check_source_name(self, names: Sequence[str]) -> None:
        """Checks that the sequence source that the caller names is there (SL14)."""
        if self.sequence is None or not self.schema.has_sequence or self._is_mapped(self.sequence):
            return
        source = self.sequence.lower()
        if not any(name.lower() == source for name in names):
            raise InvalidInputError(
                f"{self.table}: the sequence source {self.sequence!r} is neither a column of the data nor of "
                "the table",
                kind="unknown_column",
                column=self.sequence,
            )

    def _roles(self, name: str) -> list[str]:
        """Returns the roles of a column of the data: hidden column, table column, source of the sequence."""
        hidden = hidden_name(name)
        if hidden is not None:
            return [] if hidden in (VERSION_COL, GROUPS_COL) else [hidden]
        roles = []
        column = self.schema.find(name)
        if column is not None:
            roles.append(column.name)
        if self.sequence is not None and name.lower() == self.sequence.lower() and not self._is_mapped(name):
            roles.append(SEQUENCE_COL)
        if not roles:
            raise InvalidInputError(
                f"{self.table}: unknown column {name!r}; the table has {', '.join(self.schema.names)}",
                kind="unknown_column",
                column=name,
            )
        return roles

    def _is_mapped(self, name: str) -> bool:
        mapped = self.schema.sequence_column
        return mapped is not None and name.lower() == mapped.lower()

    def _check_sequence_source(self, given: Mapping[str, Any]) -> None:
        if not self.schema.has_sequence:
            if SEQUENCE_COL in given or self.sequence is not None:
                raise InvalidInputError(
                    f"There is no sequence column in the table {self.table}", kind="no_sequence"
                )
            return
        if SEQUENCE_COL in given or not self.require_sequence:
            return
        mapped = self.schema.sequence_column
        if mapped is not None:
            default = self.schema.column(mapped).default
            if mapped in given or (default is not None and default.kind == "current_timestamp"):
                return
        raise InvalidInputError(
            f"Table {self.table} has sequence column, need to specify the sequence column",
            kind="sequence_missing",
        )

    def _signs(
        self, given: Mapping[str, pa.ChunkedArray], rows: int, rejected: dict[int, RejectedRow]
    ) -> pa.Array | None:
        if self.delete_all:
            return pa.array(np.ones(rows, dtype=np.int8))
        if DELETE_SIGN not in given:
            return None
        sign_type = pa.int8()
        try:
            signs = pc.fill_null(given[DELETE_SIGN].cast(sign_type).combine_chunks(), 0)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(
                f"{self.table}: {DELETE_SIGN} takes 0 or 1: {error}", kind="bad_sign"
            ) from error
        bad = np.asarray(pc.greater(pc.bit_wise_and(signs, ~1), 0)) | np.asarray(pc.less(signs, 0))
        for row in np.flatnonzero(bad):
            reject(rejected, int(row), DELETE_SIGN, f"delete sign {signs[int(row)]} is neither 0 nor 1")
        return signs

    def _column(
        self,
        column: Column,
        given: Mapping[str, pa.ChunkedArray],
        rows: int,
        is_tombstone: Mask | None,
        rejected: dict[int, RejectedRow],
    ) -> pa.Array:
        source = given.get(column.name)
        if source is None and column.name == self.schema.sequence_column:
            source = given.get(SEQUENCE_COL)
        if source is None:
            return self._omitted(column, given, rows, is_tombstone)
        values = self._cast(column.name, source, column, rejected)
        limit = column.type.byte_length_max
        if limit is not None:
            self._check_length(column, values, limit, rejected)
        if column.auto_increment is not None and values.null_count:
            values = self._with_ids(column, values)
        if not column.nullable and values.null_count:
            missing = self._must_have_value(column, np.asarray(values.is_null()))
            if is_tombstone is not None and column.name not in self.schema.key:
                values = fill_zero_values(values, pa.array(missing & is_tombstone))
                missing &= ~is_tombstone
            for row in np.flatnonzero(missing):
                reason = f"column({column.name}) values is null while columns is not nullable"
                reject(rejected, int(row), column.name, reason)
        return values

    def _with_ids(self, column: Column, values: pa.Array) -> pa.Array:
        """Replaces NULLs of the AUTO_INCREMENT column by new values (A6)."""
        return pc.replace_with_mask(values, values.is_null(), self._new_ids(values.null_count))

    def _new_ids(self, count: int) -> pa.Array:
        if self.ids is None:
            raise InvalidInputError(
                f"{self.table}: rows without their AUTO_INCREMENT column cannot be staged by executors; "
                "bring the values, or load the rows on the driver",
                kind="not_supported",
            )
        return self.ids.take(count)

    def _must_have_value(self, column: Column, missing: Mask) -> Mask:
        """Returns which of the NULL cells of a NOT NULL column reject their row: all, unless a subclass knows
        better."""
        return missing

    def _omitted(
        self, column: Column, given: Mapping[str, Any], rows: int, is_tombstone: Mask | None
    ) -> pa.Array:
        if column.auto_increment is not None:
            return self._new_ids(rows)
        if column.name in self.schema.key:
            raise InvalidInputError(
                f"{self.table}: key column {column.name!r} is missing; "
                f"the data has {', '.join(given) or 'no columns'}",
                kind="missing_column",
                column=column.name,
            )
        if column.can_be_omitted:
            scalar = default_scalar(column, self.now)
            return pa.repeat(scalar, rows) if scalar.is_valid else pa.nulls(rows, column.type.arrow)
        if is_tombstone is not None and is_tombstone.all():
            return fill_zero_values(pa.nulls(rows, column.type.arrow), pa.repeat(True, rows))
        raise InvalidInputError(
            f"{self.table}: column {column.name!r} is missing; it is NOT NULL and has no default",
            kind="missing_column",
            column=column.name,
        )

    def _hidden_sequence(
        self, given: Mapping[str, pa.ChunkedArray], rows: int, rejected: dict[int, RejectedRow]
    ) -> pa.Array | None:
        sequence_type = self.schema.sequence_type
        if sequence_type is None:
            return None
        if SEQUENCE_COL in given:
            column = Column(SEQUENCE_COL, sequence_type)
            return self._cast(self.sequence or SEQUENCE_COL, given[SEQUENCE_COL], column, rejected)
        # Without a source (SL12) a table with a hidden sequence gets NULL, one with a mapped column follows
        # it.
        return pa.nulls(rows, sequence_type.arrow) if self.schema.sequence_column is None else None

    def _cast(
        self, name: str, source: pa.ChunkedArray, column: Column, rejected: dict[int, RejectedRow]
    ) -> pa.Array:
        result = try_cast(source, column.type)
        if result.failed is not None:
            flat = source.combine_chunks() if isinstance(source, pa.ChunkedArray) else source
            for row in np.flatnonzero(np.asarray(result.failed)):
                shown = str(format_value(flat[int(row)]))[:80]
                reason = f"column({name}) value {shown!r} is no {column.type}"
                reject(rejected, int(row), name, reason)
        return result.values

    def _check_length(
        self, column: Column, values: pa.Array, limit: int, rejected: dict[int, RejectedRow]
    ) -> None:
        lengths = pc.binary_length(values)
        longest = pc.max(lengths).as_py()
        if longest is None or longest <= limit:
            return
        too_long = pc.fill_null(pc.greater(lengths, limit), False)
        for row in np.flatnonzero(np.asarray(too_long)):
            actual = lengths[int(row)].as_py()
            reason = (
                f"the length of input is too long than schema. column_name: {column.name}; "
                f"schema length: {limit}; actual length: {actual}"
            )
            reject(rejected, int(row), column.name, reason)


def reject(rejected: dict[int, RejectedRow], row: int, column: str, reason: str) -> None:
    """Notes a rejected row; the first reason stands."""
    rejected.setdefault(row, RejectedRow(row, column, reason))


def _filtered(rows: CheckedRows, keep: Mask) -> CheckedRows:
    mask = pa.array(keep)
    return CheckedRows(
        rows.visible.filter(mask).combine_chunks(),
        rows.signs.filter(mask) if rows.signs is not None else None,
        rows.sequence.filter(mask) if rows.sequence is not None else None,
    )
