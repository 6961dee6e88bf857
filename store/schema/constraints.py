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

import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.predicate import named_in, pack, unpack

if TYPE_CHECKING:
    pass


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
