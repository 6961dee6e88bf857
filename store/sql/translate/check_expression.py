"""Conditions of CHECK constraints as Arrow expressions, which the engine tests without SQL.

They hold columns, literals, + - *, comparisons, IN, BETWEEN, IS [NOT] NULL, AND, OR and NOT.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, Final

import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.predicates import constant

_BINARY: Final[dict[type[exp.Expr], Callable[[Any, Any], Any]]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.And: operator.and_,
    exp.Or: operator.or_,
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


def check_expression(tree: exp.Expr, schema: TableSchema) -> pc.Expression:
    """Converts a condition over a table's columns to an Arrow expression.

    Raises:
        InvalidInputError: an unknown column, or a part that cannot be tested.
    """
    combine = _BINARY.get(type(tree))
    if combine is not None:
        left, right = _side(tree.this, tree.expression, schema), _side(tree.expression, tree.this, schema)
        return combine(left, right)
    if isinstance(tree, exp.Paren):
        return check_expression(tree.this, schema)
    if isinstance(tree, exp.Column):
        return pc.field(schema.column(tree.name).name)
    if isinstance(tree, exp.Not):
        return ~check_expression(tree.this, schema)
    if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
        return check_expression(tree.this, schema).is_null()
    if isinstance(tree, exp.Between):
        value = check_expression(tree.this, schema)
        low, high = (_side(tree.args[end], tree.this, schema) for end in ("low", "high"))
        return (value >= low) & (value <= high)
    if isinstance(tree, exp.In) and tree.expressions:
        value = check_expression(tree.this, schema)
        tests = [value == _side(item, tree.this, schema) for item in tree.expressions]
        return functools.reduce(operator.or_, tests)
    return _literal(tree)


def _side(node: exp.Expr, other: exp.Expr, schema: TableSchema) -> pc.Expression:
    """Converts one side of a comparison; a literal gets the type of a column on the other side."""
    bare = other.unnest()
    if isinstance(bare, exp.Column) and not isinstance(node.unnest(), exp.Column):
        value = constant(node, schema.column(bare.name).type)
        if value is not None:
            return pc.scalar(value)
    return check_expression(node, schema)


def _literal(node: exp.Expr) -> pc.Expression:
    if isinstance(node, exp.Boolean):
        return pc.scalar(bool(node.this))
    if isinstance(node, exp.Neg):
        return pc.negate(_literal(node.this))
    if isinstance(node, exp.Literal):
        if node.is_string:
            return pc.scalar(str(node.this))
        return pc.scalar(int(node.this) if str(node.this).isdigit() else float(node.this))
    raise InvalidInputError(
        f"CHECK cannot hold {node.sql('doris')!r}: comparisons, IN, BETWEEN, IS NULL, AND, OR, NOT, + - * of "
        "columns and literals",
        kind="not_supported",
    )
