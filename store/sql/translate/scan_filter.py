"""A condition in SQL as the filter of a scan."""

from __future__ import annotations

import functools
import operator
from typing import Final

import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.predicates import column_of, conditions, conjuncts

_WITH_NAN: Final = ("FLOAT", "DOUBLE")


def scan_filter(schema: TableSchema, node: exp.Expr, where: str) -> pc.Expression:
    """Converts comparisons of columns with constants, joined by AND, which zone maps can decide.

    Args:
        where: the statement and clause of the condition, for messages.

    Raises:
        InvalidInputError: it has another form.
    """
    found = [_part_filter(schema, part, where) for part in conjuncts(node)]
    return functools.reduce(operator.and_, found)


def _part_filter(schema: TableSchema, part: exp.Expr, where: str) -> pc.Expression:
    column = column_of(part)
    known = schema.find(column.name) if column is not None else None
    if column is not None and known is None:
        raise InvalidInputError(
            f"{where} {part.sql()}: unknown column {column.name!r}; there are {', '.join(schema.names)}",
            kind="unknown_column",
            column=column.name,
        )
    if known is not None and known.type.name in _WITH_NAN and not isinstance(part, (exp.Is, exp.Not)):
        # SQL sorts NaN above every number and equates it with itself; a scan does neither.
        raise InvalidInputError(
            f"{where} {part.sql()}: {known.name} is {known.type}, of which only IS [NOT] NULL can be "
            "asked here, because of NaN; put the comparison into the query",
            kind="bad_filter",
        )
    parts = conditions(part, known.name, known.type) if known is not None else None
    if not parts:
        raise InvalidInputError(
            f"{where} {part.sql()}: expected comparisons of a column with constants, and AND",
            kind="bad_filter",
        )
    return functools.reduce(operator.and_, (condition.expression for condition in parts))
