"""Reshaping: rows of one schema revision as rows of another whose columns have other types, or are new.

Columns are matched by id. Values of a column with another type are converted (types.type_changes), and a new
column has its initial value. A value that does not fit fails with its key, except in a tombstone: the cells
of a tombstone have no meaning, and one whose key does not fit guards no key of the new revision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.format_value import format_value
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.column import DELETE_SIGN, Column, initial_values
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_codes import have_same_codes
from seqstore.store.types.column_types import fill_zero_values
from seqstore.store.types.type_changes import convert, keeps_values_apart

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Reshaping:
    """The step from one revision to another.

    Attributes:
        table: its name, for messages.
    """

    table: str
    source: TableSchema
    target: TableSchema

    @cached_property
    def changes_keys(self) -> bool:
        """Whether rows have other key codes."""
        return not have_same_codes(self.source.key_columns, self.target.key_columns)

    @cached_property
    def keeps_keys_apart(self) -> bool:
        """Whether different keys stay different; row ids do."""
        return self.source.is_duplicate or all(
            keeps_values_apart(column.type, self._type_of(column).type) for column in self.source.key_columns
        )

    def _type_of(self, column: Column) -> Column:
        return next(known for known in self.target.columns if known.id == column.id)

    def rows(self, rows: pa.Table) -> tuple[pa.Table, Mask | None]:
        """Returns rows with the columns of the target, and which rows stay; None for all.

        Args:
            rows: the columns of the source, hidden ones behind them.

        Raises:
            InvalidInputError: a value does not fit; names it and its key.
        """
        signs = None
        if DELETE_SIGN in rows.schema.names:
            signs = np.asarray(rows.column(DELETE_SIGN).combine_chunks()) == 1
        names = {column.id: column.name for column in self.source.columns}
        arrays, leaves = [], None
        for column in self.target.columns:
            if column.id not in names:
                arrays.append(initial_values(column, len(rows)))
                continue
            values = rows.column(names[column.id]).combine_chunks()
            converted, failed = self._converted(rows, names[column.id], values, column, signs)
            arrays.append(converted)
            if failed is not None and column.name in self.target.key:
                leaves = failed if leaves is None else leaves | failed
        hidden = rows.schema.names[len(self.source.columns) :]
        made = pa.Table.from_arrays(
            [*arrays, *(rows.column(name) for name in hidden)],
            schema=pa.schema([*self.target.arrow, *(rows.schema.field(name) for name in hidden)]),
        )
        return made, None if leaves is None else ~leaves

    def _converted(
        self, rows: pa.Table, name: str, values: pa.Array, column: Column, signs: Mask | None
    ) -> tuple[pa.Array, Mask | None]:
        """Returns the values of one column, and the tombstones whose value does not fit."""
        old = self.source.column(name).type
        if old == column.type:
            return values, None
        cast = convert(values, old, column.type)
        if cast.failed is None:
            return cast.values, None
        failed = np.asarray(cast.failed)
        wrong = np.flatnonzero(failed if signs is None else failed & ~signs)
        if len(wrong):
            raise self._misfit(rows, int(wrong[0]), column, values)
        converted = cast.values
        if not column.nullable:
            converted = fill_zero_values(converted, cast.failed)
        return converted, failed

    def _misfit(self, rows: pa.Table, row: int, column: Column, values: pa.Array) -> InvalidInputError:
        key = key_text(self.source.declared_key or self.source.key, rows, row)
        value = format_value(values[row])
        return InvalidInputError(
            f"column {column.name!r} of {self.table!r}: the value {value!r} of the row with the key ({key}) "
            f"is no {column.type}; change or delete the row, and alter the column again",
            kind="bad_value",
            column=column.name,
        )


def key_text(names: Sequence[str], rows: pa.Table, row: int) -> str:
    """Returns the key of a row for a message."""
    return ", ".join(f"{name}={format_value(rows.column(name)[row])}" for name in names)
