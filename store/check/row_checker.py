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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog.auto_increment import Ids, LoadIds
from seqstore.store.check.write_modes import duplicate_error
from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.format_value import format_value
from seqstore.store.schema.column import (
    DELETE_SIGN,
    GROUPS_COL,
    ROW_ID_COL,
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

# Rows that are checked and staged at a time.
_PIECE_ROWS_MIN: Final = 2**17
_PIECE_ROWS_MAX: Final = 2**20


@dataclass(frozen=True)
class RejectedRow:
    """One row that was left out: its 0-based position in the data given, the column at fault, and why."""

    row: int
    column: str | None
    reason: str


@dataclass
class Batch:
    """One batch on its way through a checker.

    Attributes:
        given: columns of the data by their canonical name; the sequence source under `SEQUENCE_COL`.
        rows: how many.
        supplied: column -> which rows supply it; columns that are absent here are supplied by all rows.
        signs: int8 delete signs, None when no row is a tombstone; `is_tombstone` is the same as a mask.
        rejected: the first reason of each rejected row.
    """

    given: dict[str, pa.ChunkedArray]
    rows: int
    supplied: dict[str, Mask] = field(default_factory=dict)
    signs: pa.Array | None = None
    is_tombstone: Mask | None = None
    rejected: dict[int, RejectedRow] = field(default_factory=dict)

    def reject(self, at_fault: Mask, column: str, reason: str | Callable[[int], str]) -> None:
        """Rejects rows for one column; an earlier reason stands."""
        for row in np.flatnonzero(at_fault).tolist():
            text = reason if isinstance(reason, str) else reason(row)
            self.rejected.setdefault(row, RejectedRow(row, column, text))

    def reject_nulls(self, at_fault: Mask, column: str) -> None:
        """Rejects rows for cells of a NOT NULL column."""
        self.reject(at_fault, column, f"column({column}) values is null while columns is not nullable")

    def kept(self) -> Mask:
        """Returns the rows that are not rejected."""
        keep = np.ones(self.rows, dtype=np.bool_)
        keep[list(self.rejected)] = False
        return keep

    def left_out(self) -> list[RejectedRow]:
        """Returns the rejected rows in their order."""
        return [self.rejected[row] for row in sorted(self.rejected)]


class _Matched:
    """The columns that were matched last: schema of the data, and canonical name and place of each column."""

    last: tuple[pa.Schema, list[tuple[str, int]]] | None = None


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
        row_ids: the source of the keys of a duplicate table; None where rows are checked, and numbered later.
        zone: the time zone into which values with an offset are converted (Y13).
    """

    schema: TableSchema
    table: str
    sequence: str | None = None
    delete_all: bool = False
    now: datetime = field(default_factory=lambda: datetime.now().replace(microsecond=0))
    require_sequence: bool = True
    ids: Ids | None = None
    partitions: tuple[str, ...] = ()
    row_ids: Ids | None = None
    zone: str = "UTC"
    _names: dict[str, str] = field(init=False, repr=False)  # lower case -> visible column
    _source: str | None = field(init=False, repr=False)  # of the hidden sequence, in lower case
    _matched: _Matched = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._names = {name.lower(): name for name in self.schema.names}
        mapped = self.schema.sequence_column
        source = self.sequence.lower() if self.sequence is not None else None
        self._source = None if mapped is not None and source == mapped.lower() else source
        self._matched = _Matched()

    def at(self, now: datetime, zone: str) -> Self:
        """Returns the checker of another load with the same options; both know the columns that either has
        matched. Each knows the values that its own load takes for the AUTO_INCREMENT column."""
        ids = None if self.ids is None else LoadIds(self.ids)
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, now=now, zone=zone, ids=ids)
        return made

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
        batch = Batch(self._match_columns(data), len(data))
        mapped = self.schema.sequence_column
        if mapped is not None and SEQUENCE_COL in batch.given:
            # The hidden sequence always equals the mapped column (SD1), which counts where both are given.
            batch.given.setdefault(mapped, batch.given.pop(SEQUENCE_COL))
        self._read_signs(batch)
        columns = {column.name: self._column(column, batch) for column in self.schema.columns}
        self._check_partitions(columns, batch)
        sequence = self._hidden_sequence(batch)
        visible = pa.Table.from_arrays(list(columns.values()), schema=self.schema.arrow)
        if not batch.rejected:
            return self.numbered(CheckedRows(visible, batch.signs, sequence)), []
        keep = pa.array(batch.kept())
        signs = batch.signs.filter(keep) if batch.signs is not None else None
        sequence = sequence.filter(keep) if sequence is not None else None
        rows = CheckedRows(visible.filter(keep).combine_chunks(), signs, sequence)
        return self.numbered(rows), batch.left_out()

    def numbered(self, rows: CheckedRows) -> CheckedRows:
        """Returns checked rows with the keys that a duplicate table generates for them (T10)."""
        return rows if self.row_ids is None else replace(rows, row_ids=self.row_ids.take(len(rows)))

    def _check_partitions(self, columns: Mapping[str, pa.Array], batch: Batch) -> None:
        if self.schema.partitioning is None:
            return
        outside = rows_outside(self.schema, columns, self.partitions)
        if outside is None or not outside.true_count:
            return
        names = self.schema.partitioning.columns
        where = f"partitions {', '.join(self.partitions)}" if self.partitions else "any partition"

        def reason(row: int) -> str:
            values = ", ".join(str(format_value(columns[name][row])) for name in names)
            return f"no partition for this tuple: ({values}) is not in {where}"

        batch.reject(np.asarray(outside), names[0], reason)

    def _match_columns(self, data: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Returns the columns by their canonical name; the sequence source under `SEQUENCE_COL`."""
        schema, known = data.schema, self._matched.last
        if known is None or not schema.equals(known[0]):
            known = self._matched.last = schema, self._places(schema.names)
        return {canonical: data.column(place) for canonical, place in known[1]}

    def _places(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """Returns canonical name and place of the columns of some data."""
        found: dict[str, int] = {}
        for place, name in enumerate(names):
            for canonical in self._roles(name):
                if canonical in found:
                    raise InvalidInputError(
                        f"{self.table}: column {name!r} is named twice; name each column once",
                        kind="duplicate_column",
                        column=name,
                    )
                found[canonical] = place
        self._check_source_name(names)
        self._check_sequence_source(found)
        return list(found.items())

    def _check_source_name(self, names: Sequence[str]) -> None:
        """Checks that the sequence source that the caller names is there (SL14)."""
        if self._source is None or not self.schema.has_sequence:
            return
        if not any(name.lower() == self._source for name in names):
            raise InvalidInputError(
                f"{self.table}: the sequence source {self.sequence!r} is neither a column of the data nor of "
                "the table",
                kind="unknown_column",
                column=self.sequence,
            )

    def _roles(self, name: str) -> list[str]:
        """Returns the roles of a column of the data: table column, hidden column, source of the sequence."""
        lower = name.lower()
        hidden = None if lower in self._names else hidden_name(name)
        if hidden is not None:
            self._check_hidden(hidden)
            return [] if hidden in (VERSION_COL, GROUPS_COL) else [hidden]
        roles = [self._names[lower]] if lower in self._names else []
        if lower == self._source:
            roles.append(SEQUENCE_COL)
        if not roles:
            raise InvalidInputError(
                f"{self.table}: unknown column {name!r}; the table has {', '.join(self.schema.names)}",
                kind="unknown_column",
                column=name,
            )
        return roles

    def _check_hidden(self, hidden: str) -> None:
        """Refuses delete signs in a duplicate table, and row ids that no DELETE brings."""
        if hidden == DELETE_SIGN and self.schema.is_duplicate:
            raise duplicate_error(self.table, "load by MERGE or DELETE is only supported in unique tables.")
        if hidden == ROW_ID_COL and not (self.schema.is_duplicate and self.delete_all):
            raise InvalidInputError(
                f"{self.table}: column {ROW_ID_COL} is written by the store; leave it out", kind="bad_column"
            )

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
        if mapped in given:
            return
        default = self.schema.column(mapped).default if mapped is not None else None
        if default is not None and default.kind == "current_timestamp":
            return
        raise InvalidInputError(
            f"Table {self.table} has sequence column, need to specify the sequence column",
            kind="sequence_missing",
        )

    def _read_signs(self, batch: Batch) -> None:
        if self.delete_all:
            signs = pa.array(np.ones(batch.rows, dtype=np.int8))
        elif DELETE_SIGN not in batch.given:
            return
        else:
            try:
                signs = pc.fill_null(batch.given[DELETE_SIGN].cast(pa.int8()).combine_chunks(), 0)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InvalidInputError(
                    f"{self.table}: {DELETE_SIGN} takes 0 or 1: {error}", kind="bad_sign"
                ) from error
            bad = np.asarray(pc.greater(pc.bit_wise_and(signs, ~1), 0)) | np.asarray(pc.less(signs, 0))
            batch.reject(bad, DELETE_SIGN, lambda row: f"delete sign {signs[row]} is neither 0 nor 1")
        batch.signs, batch.is_tombstone = signs, np.asarray(signs).astype(np.bool_)

    def _column(self, column: Column, batch: Batch) -> pa.Array:
        source = batch.given.get(column.name)
        if source is None and column.name == self.schema.sequence_column:
            source = batch.given.get(SEQUENCE_COL)
        if source is None:
            return self._omitted(column, batch)
        values = self._cast(column.name, source, column, batch)
        limit = column.type.byte_length_max
        if limit is not None:
            self._check_length(column, values, limit, batch)
        if column.auto_increment is not None and values.null_count:
            values = self._with_ids(column, values, batch)
        return self._without_nulls(column, values, batch)

    def _without_nulls(self, column: Column, values: pa.Array, batch: Batch) -> pa.Array:
        """Rejects NULLs of a NOT NULL column, except in tombstones, where zero values replace them."""
        if not column.nullable and values.null_count:
            missing = self._must_have_value(column, np.asarray(values.is_null()), batch)
            if batch.is_tombstone is not None and column.name not in self.schema.key:
                values = fill_zero_values(values, pa.array(missing & batch.is_tombstone))
                missing &= ~batch.is_tombstone
            batch.reject_nulls(missing, column.name)
        return values

    def _with_ids(self, column: Column, values: pa.Array, batch: Batch) -> pa.Array:
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

    def _must_have_value(self, column: Column, missing: Mask, batch: Batch) -> Mask:
        """Returns which of the NULL cells of a NOT NULL column reject their row: all, unless a subclass knows
        better."""
        return missing

    def _omitted(self, column: Column, batch: Batch) -> pa.Array:
        rows, is_tombstone = batch.rows, batch.is_tombstone
        if column.auto_increment is not None:
            return self._new_ids(rows)
        if column.name in self.schema.key and not column.can_be_omitted:
            raise InvalidInputError(
                f"{self.table}: key column {column.name!r} is missing; "
                f"the data has {', '.join(batch.given) or 'no columns'}",
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

    def _hidden_sequence(self, batch: Batch) -> pa.Array | None:
        sequence_type = self.schema.sequence_type
        if sequence_type is None:
            return None
        if SEQUENCE_COL in batch.given:
            column = Column(SEQUENCE_COL, sequence_type)
            return self._cast(self.sequence or SEQUENCE_COL, batch.given[SEQUENCE_COL], column, batch)
        # Without a source (SL12) a table with a hidden sequence gets NULL, one with a mapped column follows
        # it.
        return pa.nulls(batch.rows, sequence_type.arrow) if self.schema.sequence_column is None else None

    def _cast(self, name: str, source: pa.ChunkedArray, column: Column, batch: Batch) -> pa.Array:
        if column.type.is_checked_by_arrow and source.type.equals(column.type.arrow):
            return source.chunk(0) if source.num_chunks == 1 else source.combine_chunks()
        result = try_cast(source, column.type, zone=self.zone)
        if result.failed is not None:
            flat = source.combine_chunks()

            def reason(row: int) -> str:
                return f"column({name}) value {str(format_value(flat[row]))[:80]!r} is no {column.type}"

            batch.reject(np.asarray(result.failed), name, reason)
        return result.values

    def _check_length(self, column: Column, values: pa.Array, limit: int, batch: Batch) -> None:
        lengths = pc.binary_length(values)
        longest = pc.max(lengths).as_py()
        if longest is None or longest <= limit:
            return

        def reason(row: int) -> str:
            return (
                f"the length of input is too long than schema. column_name: {column.name}; "
                f"schema length: {limit}; actual length: {lengths[row].as_py()}"
            )

        too_long = pc.fill_null(pc.greater(lengths, limit), False)
        batch.reject(np.asarray(too_long), column.name, reason)


def pieces_of(data: pa.Table) -> list[pa.Table]:
    """Returns a table in pieces to be checked one by one; at least one, a small table is one piece.

    Large chunks stay as they are, for joining chunks costs new memory; small ones are joined.
    """
    if len(data) <= _PIECE_ROWS_MIN:
        return [data]
    pieces: list[pa.Table] = []
    start = rows = 0
    for batch in data.to_batches(max_chunksize=_PIECE_ROWS_MAX):
        if rows and rows + batch.num_rows > _PIECE_ROWS_MIN:
            pieces.append(data.slice(start, rows))
            start, rows = start + rows, 0
        rows += batch.num_rows
    return [*pieces, data.slice(start)]
