"""CHECK constraints: conditions that every row written to a table must not break.

A constraint is kept as the text the user wrote and as an Arrow expression, compressed. A row breaks it when
the condition is false; NULL passes, as in SQL. A write with one such row fails whole. Tombstones pass. Adding
one reads every row there is: those that break it refuse the constraint, and rows that others bring meanwhile
are a conflict at both levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from store.errors import InvalidInputError
from store.predicate import named_in, pack, text_of, unpack

if TYPE_CHECKING:
    from store.schema import TableSchema
    from store.stage import CheckedRows


@dataclass(frozen=True)
class Constraint:
    """One CHECK.

    Attributes:
        sql: the condition as written.
        packed: the condition as Arrow wrote it, compressed.
    """

    name: str
    sql: str
    packed: bytes

    @classmethod
    def of(cls, name: str, sql: str, expression: pc.Expression) -> Constraint:
        """A constraint of an expression over value columns.

        Raises:
            InvalidInputError: it cannot be stored.
        """
        try:
            return cls(name, sql, pack(expression))
        except InvalidInputError as error:
            raise InvalidInputError(f"CHECK {error.message}", kind=error.kind) from error

    @property
    def expression(self) -> pc.Expression:
        """The condition."""
        return unpack(self.packed)

    def columns(self, names: Sequence[str]) -> list[str]:
        """Those of some columns whose names occur in the condition; never too few."""
        return named_in(self.expression, names)

    def to_record(self) -> dict[str, Any]:
        """For the schema's record; `from_record` reads it back."""
        return {"name": self.name, "sql": self.sql, "packed": self.packed}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Constraint:
        """What `to_record` made."""
        return cls(record["name"], record["sql"], record["packed"])


def refuse_violations(schema: TableSchema, pieces: Sequence[CheckedRows]) -> None:
    """Raises when a row breaks a constraint of the schema.

    Raises:
        InvalidInputError: names the constraint and the first row's key.
    """
    for constraint in schema.constraints:
        for piece in pieces:
            rows = piece.visible
            if piece.signs is not None:
                rows = rows.filter(pa.array(np.asarray(piece.signs) == 0))
            _refuse(constraint, rows, schema)


def _refuse(constraint: Constraint, rows: pa.Table, schema: TableSchema) -> None:
    broken = broken_rows(constraint.expression, rows)
    if not len(broken):
        return
    key = ", ".join(f"{name}={broken.column(name)[0].as_py()}" for name in schema.key)
    raise InvalidInputError(
        f"CHECK constraint {constraint.name} ({constraint.sql}) is broken by {len(broken)} rows, first "
        f"({key})",
        kind="check_constraint",
        constraint=constraint.name,
    )


def broken_rows(expression: pc.Expression, rows: pa.Table) -> pa.Table:
    """The rows for which a condition is false."""
    try:
        return ds.dataset(rows).scanner(filter=~expression, use_threads=False).to_table()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        raise InvalidInputError(
            f"condition {text_of(expression) or ''} does not fit: {error}", kind="bad_filter"
        ) from error
