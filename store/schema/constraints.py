"""CHECK constraints: conditions that no row written to a table may break.

A constraint is stored as the user's text and as a compressed Arrow expression. A row breaks it if the
condition is false; NULL passes, as in SQL. One such row fails its whole write. Tombstones pass.
ADD CONSTRAINT reads every stored row: a row that breaks the condition refuses the constraint. Rows that other
transactions write meanwhile are a conflict at both isolation levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.predicate import named_in, pack, unpack


@dataclass(frozen=True)
class Constraint:
    """One CHECK.

    Attributes:
        sql: the condition as written.
        packed: the condition as Arrow serialized it, compressed.
    """

    name: str
    sql: str
    packed: bytes

    @classmethod
    def of(cls, name: str, sql: str, expression: pc.Expression) -> Constraint:
        """Builds a constraint from an expression over value columns.

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
        """Returns those of some columns whose names occur in the condition; never too few."""
        return named_in(self.expression, names)

    def to_record(self) -> dict[str, Any]:
        """Returns the part of the schema's record; `from_record` reads it."""
        return {"name": self.name, "sql": self.sql, "packed": self.packed}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Constraint:
        """Reads a record of `to_record`."""
        return cls(record["name"], record["sql"], record["packed"])
