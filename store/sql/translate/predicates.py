"""Conditions that a scan can decide: comparisons of one column with constants, joined by AND.

These have the same meaning in Arrow and in SQL: both sides have the column's own type, without floats (NaN)
and NULL constants. DuckDB decides all other conditions.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.condition import Condition
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.conversions import DATETIME_NAMES, cast_digits
from seqstore.store.sql.translate.relations import Relation
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_FLIPPED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: Final[dict[type[exp.Expr], Callable[[int, int], int]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
_DEPTH_MAX: Final = 20
_TIMES: Final[dict[str, tuple[re.Pattern[str], Callable[[str], date]]]] = {
    "DATE": (re.compile(r"\d{4}-\d{2}-\d{2}"), date.fromisoformat),
    "DATETIME": (
        re.compile(r"\d{4}-\d{2}-\d{2}([ T]([01]\d|2[0-3]):\d{2}:\d{2}(\.(?P<fraction>\d{1,6}))?)?"),
        datetime.fromisoformat,
    ),
}
_WITH_NAN: Final = ("FLOAT", "DOUBLE")


def choose_conditions(relations: list[Relation]) -> None:
    """Sets the conditions that each scan decides: those of its own WHERE that no outer join forbids."""
    for relation in relations:
        select = relation.node.parent_select
        if not isinstance(select, exp.Select) or not _is_kept(relation.node, select):
            continue
        where = select.args.get("where")
        is_alone = len(_siblings(select)) == 1
        parts = list(conjuncts(where.this if where is not None else None))
        found = [_own_conditions(part, relation, is_alone=is_alone) for part in parts]
        relation.conditions = [condition for each in found for condition in each or ()]
        relation.undecided = [part for part, each in zip(parts, found, strict=True) if each is None]
        relation.is_where_decided = is_alone and not relation.undecided
        is_partly_decided = len(relation.undecided) < len(parts)
        relation.is_decided_once = is_alone and is_partly_decided and isinstance(relation.snapshot, Snapshot)


def drop_decided(relations: list[Relation]) -> bool:
    """Removes from each WHERE the parts that the scan decides, so that columns only compared are not read.

    Returns:
        Whether any WHERE has changed.
    """
    has_changed = False
    for relation in relations:
        select = relation.node.parent_select
        if relation.is_decided_once and not relation.is_unfiltered and isinstance(select, exp.Select):
            left = relation.undecided
            select.set("where", exp.Where(this=exp.and_(*left, copy=False)) if left else None)
            has_changed = True
    return has_changed


def _own_conditions(part: exp.Expr, relation: Relation, *, is_alone: bool) -> list[Condition] | None:
    """Returns the conditions of one part of a WHERE, None when a scan of the relation cannot decide it."""
    column = _column_of(part)
    if column is None or isinstance(column.this, exp.Star):
        return None
    if column.table.lower() != relation.alias.lower() and (column.table or not is_alone):
        return None
    known = relation.schema.types.get(column.name.lower())
    return _conditions(part, *known) if known is not None else None


def _siblings(select: exp.Select) -> list[exp.Expr]:
    source = select.args.get("from_")
    joins = select.args.get("joins") or []
    laterals = select.args.get("laterals") or []
    return [*([source.this] if source is not None else []), *(join.this for join in joins), *laterals]


def _is_kept(node: exp.Table, select: exp.Select) -> bool:
    """Returns whether rows of the table that fail the WHERE may be dropped before the joins."""
    joins = select.args.get("joins") or []
    sides = [str(join.args.get("side") or "").upper() for join in joins]
    if any(side in ("RIGHT", "FULL") for side in sides) or node.args.get("joins"):
        return False
    source = select.args.get("from_")
    if source is not None and source.this is node:
        return True
    return any(join.this is node and not side for join, side in zip(joins, sides, strict=True))


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
    column = _column_of(part)
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
    parts = _conditions(part, known.name, known.type) if known is not None else None
    if not parts:
        raise InvalidInputError(
            f"{where} {part.sql()}: expected comparisons of a column with constants, and AND",
            kind="bad_filter",
        )
    return functools.reduce(operator.and_, (condition.expression for condition in parts))


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yields the parts of a condition that AND joins, in the order they are written."""
    waiting = [node] if node is not None else []
    while waiting:  # a program may write thousands of them
        part = _bare(waiting.pop())
        if isinstance(part, exp.And):
            waiting += [part.expression, part.this]
        else:
            yield part


def _column_of(node: exp.Expr) -> exp.Column | None:
    """Returns the column that a condition compares with constants, None for a condition of another form."""
    if isinstance(node, exp.Not):
        node = node.this.unnest()
        if not isinstance(node, exp.Is):
            return None
    sides = [node.this]
    if type(node) in _COMPARISONS:
        sides.append(node.expression)
    elif not isinstance(node, (exp.In, exp.Between, exp.Is)):
        return None
    return next((side for side in map(_bare, sides) if isinstance(side, exp.Column)), None)


def _conditions(node: exp.Expr, name: str, kind: ColumnType) -> list[Condition] | None:
    """Returns the conditions equivalent to a node with a `_column_of`, None when a scan cannot decide it."""
    if kind.name in ("FLOAT", "DOUBLE", "JSON") or kind.children:
        return _null_test(node, name)
    if isinstance(node, exp.Between):
        if node.args.get("symmetric"):
            return None
        return _compared(name, kind, (">=", node.args["low"]), ("<=", node.args["high"]))
    if isinstance(node, exp.In):
        return _listed(node, name, kind)
    sign = _COMPARISONS.get(type(node))
    if sign is None:
        return _null_test(node, name)
    if isinstance(_bare(node.this), exp.Column):
        return _compared(name, kind, (sign, node.expression))
    return _compared(name, kind, (_FLIPPED[sign], node.this))


def _bare(node: exp.Expr) -> exp.Expr:
    return node.unnest() if isinstance(node, exp.Paren) else node


def _null_test(node: exp.Expr, name: str) -> list[Condition] | None:
    negated = isinstance(node, exp.Not)
    test = node.this.unnest() if negated else node
    if isinstance(test, exp.Is) and isinstance(test.expression, exp.Null):
        return [Condition(name, "is not null" if negated else "is null")]
    return None


def _compared(name: str, kind: ColumnType, *pairs: tuple[str, exp.Expr]) -> list[Condition] | None:
    found = []
    for sign, node in pairs:
        value = constant(node, kind)
        if value is None:
            return None
        found.append(Condition(name, sign, (value,)))
    return found


def _listed(node: exp.In, name: str, kind: ColumnType) -> list[Condition] | None:
    if node.args.get("query") or node.args.get("unnest") or not node.expressions:
        return None
    values = [constant(item, kind) for item in node.expressions]
    if any(value is None for value in values):
        return None
    return [Condition(name, "in", tuple(value for value in values if value is not None))]


def constant(node: exp.Expr, kind: ColumnType) -> pa.Scalar | None:
    """Converts a literal or arithmetic of integers to a scalar of the column's type.

    The result is None if the literal is of another type.
    """
    node = _bare(node)
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
        number = _integer(node)
        return _scalar(str(number), kind, is_string=False) if number is not None else None
    is_negative = isinstance(node, exp.Neg)
    if is_negative:
        node = _bare(node.this)
    if isinstance(node, (exp.Cast, exp.TryCast)):
        text = _text_of_cast(node) if kind.name in _TIMES else None
        if text is None:
            return None
        node = text
    if isinstance(node, exp.Boolean) and kind.name == "BOOLEAN":
        return pa.scalar(bool(node.this))
    if not isinstance(node, exp.Literal) or (is_negative and node.is_string):
        return None
    return literal_value(f"{'-' * is_negative}{node.this}", kind, is_string=bool(node.is_string))


def literal_value(text: str, kind: ColumnType, *, is_string: bool) -> pa.Scalar | None:
    """Converts the text of a literal to a scalar of a column's type, None where that may change its value."""
    try:
        return _scalar(text, kind, is_string=is_string)
    except (ValueError, InvalidOperation, pa.ArrowException):
        return None


def _text_of_cast(node: exp.Cast) -> exp.Literal | None:
    """Returns the text of a cast to a date or time, None where the cast would change its value."""
    text, to = _bare(node.this), node.to
    if not (isinstance(text, exp.Literal) and text.is_string and isinstance(to.this, exp.DataType.Type)):
        return None
    if to.this.name == "DATE":
        return text if _TIMES["DATE"][0].fullmatch(text.name) else None
    written = _TIMES["DATETIME"][0].fullmatch(text.name) if to.this.name in DATETIME_NAMES else None
    if written is None or len(written["fraction"] or "") > cast_digits(to):
        return None
    return text


def _integer(node: exp.Expr, depth: int = 0) -> int | None:
    """Computes an expression of integers with + - *; None beyond BIGINT, or for another expression."""
    node = _bare(node)
    if depth > _DEPTH_MAX:
        return None
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
        left, right = _integer(node.this, depth + 1), _integer(node.expression, depth + 1)
        if left is None or right is None:
            return None
        value = _ARITHMETIC[type(node)](left, right)
    elif isinstance(node, exp.Neg):
        inner = _integer(node.this, depth + 1)
        if inner is None:
            return None
        value = -inner
    elif isinstance(node, exp.Literal) and not node.is_string and re.fullmatch(r"\d+", node.this):
        value = int(node.this)
    else:
        return None
    low, high = INTEGER_RANGES["BIGINT"]
    return value if low <= value <= high else None


def _scalar(text: str, kind: ColumnType, *, is_string: bool) -> pa.Scalar | None:
    if kind.name in INTEGER_RANGES:
        low, high = INTEGER_RANGES[kind.name]
        if not re.fullmatch(r"-?\d+", text) or not low <= int(text) <= high:
            return None
        return pa.scalar(Decimal(text) if kind.name == "LARGEINT" else int(text), kind.arrow)
    if kind.name == "DECIMAL" and not is_string:
        return pa.scalar(Decimal(text), kind.arrow)
    if kind.name in ("CHAR", "VARCHAR", "STRING") and is_string:
        return pa.scalar(text, pa.string())
    written, read = _TIMES.get(kind.name, (None, None))
    if written is None or read is None or not is_string or not written.fullmatch(text):
        return None
    return pa.scalar(read(text), kind.arrow)
