"""A comparison of one column with constants.

Scans receive it as an expression; rows in memory and the bounds of a batch are tested directly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_TESTS: Final[dict[str, Callable[..., Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "is null": partial(pc.is_null, nan_is_null=False),
    "is not null": pc.is_valid,
}


@dataclass(frozen=True)
class Condition:
    """One comparison of a column.

    `operator` is a comparison sign, `in`, `is null` or `is not null`; `values` have the column's own type.
    """

    column: str
    operator: str
    values: tuple[pa.Scalar, ...] = ()

    def __str__(self) -> str:
        values = ", ".join(map(str, self.values))
        return f"{self.column} {self.operator} {values}".rstrip()

    @property
    def expression(self) -> pc.Expression:
        """The condition as a filter of a scan."""
        return self.holds(pc.field(self.column))

    def holds(self, values: pa.Array | pc.Expression) -> Any:
        """Returns for which values the condition is true; for the others the result is false or NULL.

        Returns:
            A boolean array of an array, an expression of an expression.
        """
        if self.operator == "in":
            choices = pa.array([value.as_py() for value in self.values], self.values[0].type)
            return pc.is_in(values, value_set=choices)
        return _TESTS[self.operator](values, *self.values)

    def always_holds(self, low: pa.Array, high: pa.Array, has_nulls: pa.BooleanArray) -> pa.BooleanArray:
        """Returns for which batches the bounds prove the condition for every row; NULL means no proof.

        Args:
            low, high, has_nulls: of the column, a value per batch, NULL where it is not known.
        """
        if self.operator == "is null":
            return pc.and_(has_nulls, False)  # bounds do not show that every value is NULL
        known = pc.invert(has_nulls)
        if self.operator == "is not null":
            return known
        if self.operator == "in" or self.operator == "=":
            return pc.and_(known, pc.and_(pc.equal(low, high), self.holds(low)))
        value = self.values[0]
        if self.operator == "!=":
            return pc.and_(known, pc.or_kleene(pc.less(high, value), pc.greater(low, value)))
        return pc.and_(known, self.holds(high if self.operator in ("<", "<=") else low))
