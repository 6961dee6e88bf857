"""Doris's implicit conversions of values of different types in one expression.

1. Arithmetic: integers are computed as BIGINT, so that `INT + INT` does not overflow; text is read as DOUBLE,
   NULL where it is no number.
2. Comparisons: text and number are compared as numbers, text and date as dates; a text that cannot be read is
   NULL, not an error.
3. Branches (IF, CASE, COALESCE ..) are text if one of them is text in quotes.

DuckDB knows the types only when it binds the query: macros with a body for each type choose there
(sql.translate.macros). Where the types agree the macros vanish from the plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import call
from seqstore.store.sql.translate.decimal_division import divided

_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.BitwiseLeftShift,
                      exp.BitwiseRightShift)  # fmt: skip
_LISTED_MAX: Final = 200
_WHOLE: Final = re.compile(r"[+-]?\d{1,18}")
_DATE: Final = re.compile(r"\d{2,4}-\d{1,2}-\d{1,2}.*")


def arithmetic(node: exp.Expr) -> exp.Expr:
    """Translates `+ - * / % DIV << >>`: both operands are read as numbers."""
    exact = divided(node)
    if exact is not None:
        return exact
    left, right = node.this, node.expression
    if not _is_computed(left) and (not _is_number(left) or _is_number(right)):
        node.set("this", _called("d_number", left))
    if not _is_computed(right) and not _is_number(right):
        node.set("expression", _called("d_number", right))
    if isinstance(node, exp.IntDiv):
        return call("d_int_div", node.this, node.expression)
    if isinstance(node, exp.Div):
        node.set("safe", False)  # newer sqlglot writes the NULLIF of a safe division, older leaves it out
        node.set("expression", exp.Nullif(this=node.expression, expression=exp.Literal.number(0)))
    return node


def comparison(node: exp.Expr) -> exp.Expr:
    """Translates `= != < <= > >= <=>` and aligns the types of both sides."""
    left, right = node.this, node.expression
    if isinstance(right, (exp.Any, exp.All)):
        return node
    if isinstance(left, exp.Column) and isinstance(right, exp.Column):
        node.set("this", call("d_beside", left, right.copy()))
        node.set("expression", call("d_beside", right, left.copy()))
        return node
    for one, other in (("this", "expression"), ("expression", "this")):
        _align(node, one, node.args[other])
    return node


def listed(node: exp.Expr) -> exp.Expr:
    """Translates `x IN (..)`.

    Text in quotes is read as the type of x. Beside numbers, x is read as a number.
    """
    items = node.expressions
    if not items or len(items) > _LISTED_MAX or isinstance(node.this, exp.Tuple):
        return node
    if all(map(_is_number, items)):
        node.set("this", _called("d_as_number", node.this))
    elif _is_plain(node.this):
        node.set("expressions", [_beside(item, node.this) for item in items])
    return node


def between(node: exp.Expr) -> exp.Expr:
    """Translates `x BETWEEN low AND high`."""
    ends = [node.args["low"], node.args["high"]]
    if all(map(_is_number, ends)):
        node.set("this", _called("d_as_number", node.this))
    elif _is_plain(node.this):
        for name, end in zip(("low", "high"), ends, strict=True):
            node.set(name, _beside(end, node.this))
    return node


def _align(node: exp.Expr, name: str, other: exp.Expr) -> None:
    side = node.args[name]
    if _is_number(other) and not _is_number(side):
        node.set(name, _called("d_as_number", side))
    elif _is_text(side) and _is_plain(other):
        node.set(name, _beside(side, other))


def _beside(item: exp.Expr, other: exp.Expr) -> exp.Expr:
    """Reads text in quotes as the type of the other side; other values stay as they are."""
    if not _is_text(item):
        return item
    name = "d_whole_beside" if _WHOLE.fullmatch(item.name.strip()) else "d_text_beside"
    return call(name, other.copy(), item)


def conditional(node: exp.Expr) -> exp.Expr:
    """Translates IF; a condition that is text is read as a number."""
    given = [name for name in ("true", "false") if node.args.get(name) is not None]
    for name, value in zip(given, _unified([node.args[name] for name in given]), strict=True):
        node.set(name, value)
    return node


def case(node: exp.Expr) -> exp.Expr:
    """Translates CASE: every THEN and the ELSE have one type."""
    ifs = [branch for branch in node.args.get("ifs") or [] if isinstance(branch, exp.If)]
    default = node.args.get("default")
    found = [branch.args["true"] for branch in ifs] + ([default] if default is not None else [])
    unified = _unified(found)
    for branch, value in zip(ifs, unified, strict=False):
        branch.set("true", value)
    if default is not None:
        node.set("default", unified[-1])
    return node


def coalesced(node: exp.Expr) -> exp.Expr:
    """Translates COALESCE, IFNULL, NVL."""
    first, *rest = _unified([node.this, *node.expressions])
    node.set("this", first)
    node.set("expressions", rest)
    return node


def extreme(node: exp.Expr) -> exp.Expr:
    """Translates GREATEST, LEAST: NULL as soon as one value is NULL, which DuckDB passes over."""
    values = _unified([node.this, *node.expressions])
    has_null = exp.or_(*[exp.Is(this=value.copy(), expression=exp.null()) for value in values])
    name = "greatest" if isinstance(node, exp.Greatest) else "least"
    return exp.Case().when(has_null, exp.null()).else_(call(name, *values))


def concatenated(node: exp.Expr) -> exp.Expr:
    """Translates CONCAT: anything is converted to text; true is 1 in it."""
    items = [
        item if _is_text(item) or isinstance(item, exp.Concat) else call("d_text", item)
        for item in node.expressions
    ]
    node.set("expressions", items)
    return node


def _unified(branches: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Makes the branches of one value text where one of them is text in quotes that is no date."""
    texts = [branch for branch in branches if _is_text(branch)]
    if not texts:
        return list(branches)
    name = "d_branch" if all(_DATE.fullmatch(text.name) for text in texts) else "d_text"
    return [b if _is_text(b) else _called(name, b) for b in branches]


def _called(name: str, value: exp.Expr) -> exp.Expr:
    """Calls a macro on a value; not on NULL, which fits every body."""
    return value if isinstance(value.unnest(), exp.Null) else call(name, value)


def _is_computed(node: exp.Expr) -> bool:
    """Returns whether a value is the result of arithmetic, whose operands are read as numbers already.

    A macro on it would bind the operands again: twice as often with every level of nesting.
    """
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Neg):
        return _is_computed(node.this)
    return isinstance(node, _ARITHMETIC) or (isinstance(node, exp.Anonymous) and node.this == "d_int_div")


def _is_number(node: exp.Expr) -> bool:
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Neg):
        node = node.this
    return isinstance(node, exp.Literal) and not node.is_string


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _is_plain(node: exp.Expr) -> bool:
    """Returns whether a value may occur twice: DuckDB evaluates it once, but its names must resolve."""
    return node.find(exp.Null, exp.Select, exp.AggFunc, exp.Window, exp.Lambda, exp.Rand) is None
