"""`a / b`, `a * b` and `avg(a)` of decimals are decimals of Doris's digits.

    DECIMAL(p1, s1) / DECIMAL(p2, s2) = DECIMAL(p1 + s2 + 4, s1 + 4), digits behind that cut off
    DECIMAL(p1, s1) * DECIMAL(p2, s2) = DECIMAL(p1 + p2, s1 + s2)
    avg(DECIMAL(p, s)) = DECIMAL(38, max(s, 4)), the sum divided by the count, digits behind that cut off

In DuckDB quotients and averages are DOUBLE, and products of operands of up to 18 digits have 18. Beyond 38
digits the scale of a quotient shrinks (`_divided`). Integers beside a decimal count as decimals without
fraction. Divisions of integers alone, and of operands beside FLOAT, DOUBLE or text, are DOUBLE.

1. `note_decimals` finds the types of operands before the tree is translated: of columns, numbers, casts,
   arithmetic, sums and the like, also through subqueries and CTEs. Divisions and products of decimals get a
   note of both types, and averages of decimals become such divisions.
2. Where the type of an operand is not found (a function without a rule here), the division is one of DOUBLEs.
3. The translation turns a noted division into an exact one of integers: of 64 bits where all digits fit,
   which is ten times as fast, else of 128.
4. A noted product gets a wider operand. In an aggregate it stays narrow, which is faster, and is widened when
   one overflows: the query then runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.translate.calls import call
from seqstore.store.sql.translate.relations import Relation
from seqstore.store.sql.translate.type_search import TypeSearch
from seqstore.store.types.column_types import ColumnType

_NOTE: Final = "decimal_operands"
_DIGITS_MAX: Final = 38
_INCREMENT: Final = 4  # div_precision_increment
_OVERFLOW_SCALE: Final = 6  # decimal_overflow_scale
_INTEGER_DIGITS: Final = {"BOOLEAN": 1, "TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20, "LARGEINT": 38,
                          "INT128": 38}  # fmt: skip
_TINYINT, _SMALLINT, _INT, _BIGINT = 3, 5, 10, 20
_TEXT: Final = exp.DataType.build("TEXT")
_SAME_AS_OPERAND: Final = (exp.Paren, exp.Neg, exp.Abs, exp.Min, exp.Max, exp.AnyValue, exp.Alias, exp.Lag,
                           exp.Lead, exp.Window)  # fmt: skip


@dataclass(frozen=True)
class _Width:
    """The integers that compute a division, and the digits of the decimals that they represent."""

    integer: exp.DataType
    digits: int


_NARROW: Final = _Width(exp.DataType.build("BIGINT"), 18)
_WIDE: Final = _Width(exp.DataType.build("INT128"), _DIGITS_MAX)


@dataclass(frozen=True)
class Digits:
    """Type of an exact number.

    Attributes:
        precision, scale: digits in all, and behind the point.
        is_decimal: False for an integer.
    """

    precision: int
    scale: int = 0
    is_decimal: bool = True


@dataclass(frozen=True)
class _Note:
    """The types of a division's operands, and of its result in Doris."""

    left: Digits
    right: Digits
    result: Digits


def note_decimals(tree: exp.Query, relations: list[Relation]) -> None:
    """Notes types at divisions and products of decimals, and turns averages of decimals into divisions."""
    divisions, averages = list(find_all(tree, exp.Div)), list(find_all(tree, exp.Avg))
    products = list(find_all(tree, exp.Mul))
    if not divisions and not averages and not products:
        return
    types = _Types({id(relation.node): relation for relation in relations})
    averaged = [types.of(_averaged(node)) for node in averages]
    for node in divisions:
        left, right = types.of(node.this), types.of(node.expression)
        if left is not None and right is not None and (left.is_decimal or right.is_decimal):
            node.meta[_NOTE] = _Note(left, right, _divided(left, right))
    for product in products:
        left, right = types.of(product.this), types.of(product.expression)
        if left is not None and right is not None and _is_narrow(left, right):
            product.meta[_NOTE] = _Note(left, right, _multiplied(left, right))
    # Inner averages first: an outer one copies its operands.
    for average, kind in zip(reversed(averages), reversed(averaged), strict=True):
        whole = average.parent if isinstance(average.parent, exp.Window) else average
        if kind is not None and kind.is_decimal and whole.find(exp.Query) is None:
            whole.replace(_mean(whole, average, kind))


def _averaged(node: exp.Expr) -> exp.Expr:
    value: exp.Expr = node.this
    return value.expressions[0] if isinstance(value, exp.Distinct) else value


def _mean(whole: exp.Expr, average: exp.Avg, kind: Digits) -> exp.Expr:
    """Builds a sum divided by a count, each over the window of the average if it has one."""

    def instead(function: type[exp.Func]) -> exp.Expr:
        if whole is average:
            return function(this=average.this.copy())
        window = whole.copy()
        window.set("this", function(this=average.this.copy()))
        return window

    mean = exp.Div(this=instead(exp.Sum), expression=instead(exp.Count))
    summed, counted = Digits(_DIGITS_MAX, kind.scale), Digits(_BIGINT, is_decimal=False)
    mean.meta[_NOTE] = _Note(summed, counted, _mean_type(kind))
    return exp.Paren(this=mean)


def _mean_type(kind: Digits) -> Digits:
    return Digits(_DIGITS_MAX, max(kind.scale, _INCREMENT))


def divided(node: exp.Expr) -> exp.Expr | None:
    """Translates a noted division to one that DuckDB does exactly; returns None for any other node."""
    note = node.meta.get(_NOTE) if isinstance(node, exp.Div) else None
    if note is None:
        return None
    left, right, result = note.left, note.right, note.result
    fits = max(result.precision, left.precision + left.scale, right.precision + right.scale) <= _NARROW.digits
    width = _NARROW if fits else _WIDE
    # With a = A / 10^s1 and b = B / 10^s2, the digits of a / b to the scale s are A * 10^(s - s1 + s2) / B.
    power = 10 ** (result.scale - left.scale + right.scale)
    more = _as(exp.Literal.string(str(power)), width.integer)
    dividend = exp.Mul(this=_unscaled(node.this, left, width), expression=more)
    divisor = _unscaled(node.expression, right, width)
    quotient = exp.Paren(this=exp.IntDiv(this=exp.Paren(this=dividend), expression=divisor))
    unit = _as(exp.Literal.string(f"0.{1:0{result.scale}}"), _type(result.scale, result.scale))
    scaled = exp.Mul(this=_as(quotient, _type(width.digits, 0)), expression=unit)
    return _as(exp.Paren(this=scaled), _type(result.precision, result.scale))


def multiplied(node: exp.Expr) -> exp.Expr | None:
    """Translates a noted product to one that has room for its digits; returns None for any other node.

    Products in aggregates stay narrow, which is several times as fast, until one overflows
    (`widen_products`): no row of the answer is there before an aggregate has seen all of its rows.
    """
    if not isinstance(node, exp.Mul) or _NOTE not in node.meta:
        return None
    above = node.find_ancestor(exp.AggFunc, exp.Query)
    is_counted_whole = isinstance(above, exp.AggFunc) and not isinstance(above.parent, exp.Window)
    return None if is_counted_whole else _wide_product(node)


def widen_products(tree: exp.Expr) -> None:
    """Gives the noted products of a translated tree room for their digits."""
    noted = [each for each in find_all(tree, exp.Mul) if isinstance(each.meta.get(_NOTE), _Note)]
    for node in reversed(noted):  # inner ones first: an outer one takes its operands along
        node.replace(_wide_product(node))


def _wide_product(node: exp.Expr) -> exp.Expr:
    """Widens an operand: DuckDB's product of operands of at most 18 digits has 18, and 38 if one has more."""
    note: _Note = node.meta[_NOTE]
    left = _as(exp.Paren(this=node.this), _type(_NARROW.digits + 1, note.left.scale))
    product = exp.Mul(this=left, expression=node.expression)
    return _as(exp.Paren(this=product), _type(note.result.precision, note.result.scale))


def _is_narrow(left: Digits, right: Digits) -> bool:
    """Returns whether DuckDB gives a product of decimals fewer digits than Doris does."""
    is_decimal, digits = left.is_decimal or right.is_decimal, left.precision + right.precision
    return is_decimal and max(left.precision, right.precision) <= _NARROW.digits < digits


def _multiplied(left: Digits, right: Digits) -> Digits:
    return Digits(min(left.precision + right.precision, _DIGITS_MAX), left.scale + right.scale)


def _divided(left: Digits, right: Digits) -> Digits:
    precision, scale = left.precision + right.scale + _INCREMENT, left.scale + _INCREMENT
    if precision <= _DIGITS_MAX:
        return Digits(precision, scale)
    before = precision - left.scale
    if before <= _DIGITS_MAX - _OVERFLOW_SCALE:
        return Digits(_DIGITS_MAX, _DIGITS_MAX - before + _INCREMENT)
    return Digits(_DIGITS_MAX, min(left.scale, _OVERFLOW_SCALE) + _INCREMENT)


def _unscaled(value: exp.Expr, kind: Digits, width: _Width) -> exp.Expr:
    """Converts a number to an integer by removing its point."""
    if not kind.scale:
        return _as(exp.Paren(this=value), width.integer)
    number = _as(exp.Paren(this=value), _type(width.digits, kind.scale))  # products have the factors' width
    if kind.precision + kind.scale <= width.digits:
        power = _as(exp.Literal.number(10**kind.scale), _type(kind.scale + 1, 0))
        return _as(exp.Paren(this=exp.Mul(this=number, expression=power)), width.integer)
    digits = call("replace", _as(number, _TEXT), exp.Literal.string("."), exp.Literal.string(""))
    return _as(digits, width.integer)


def _as(value: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """Casts the node itself: copies of tables would not be found in the tree."""
    return exp.Cast(this=value, to=kind.copy())


def _type(precision: int, scale: int) -> exp.DataType:
    return exp.DataType.build(f"DECIMAL({min(precision, _DIGITS_MAX)}, {scale})")


class _Types(TypeSearch[Digits]):
    """Finds the types of exact numbers in a tree; the type of any other value is None."""

    def find(self, node: exp.Expr) -> Digits | None:
        rule = next((rule for kinds, rule in _RULES if isinstance(node, kinds)), None)
        return rule(self, node) if rule is not None else None

    def stored(self, kind: ColumnType) -> Digits | None:
        return _stored(kind)

    def common(self, kinds: Sequence[Digits | None]) -> Digits | None:
        return _common(kinds)

    def average(self, node: exp.Expr) -> Digits | None:
        """Returns the type of `avg(..)`."""
        inner = self.of(_averaged(node))
        return _mean_type(inner) if inner is not None and inner.is_decimal else None

    def total(self, node: exp.Expr) -> Digits | None:
        """Returns the type of `sum(..)`."""
        inner = self.of(node.this)
        if inner is None:
            return None
        return Digits(_DIGITS_MAX if inner.is_decimal else _BIGINT, inner.scale, inner.is_decimal)


def _stored(kind: ColumnType) -> Digits | None:
    if kind.name == "DECIMAL" and kind.params[0] <= _DIGITS_MAX:
        precision, scale = kind.params
        return Digits(precision, scale)
    digits = _INTEGER_DIGITS.get(kind.name)
    return Digits(digits, is_decimal=False) if digits is not None else None


def _literal(node: exp.Expr) -> Digits | None:
    text = str(node.this)
    if node.is_string or not text.replace(".", "", 1).isdigit():
        return None
    whole, point, fraction = text.partition(".")
    if point:
        digits = len(whole.lstrip("0")) + len(fraction)
        return Digits(max(digits, 1), len(fraction)) if digits <= _DIGITS_MAX else None
    sizes = ((2**7, _TINYINT), (2**15, _SMALLINT), (2**31, _INT), (2**63, _BIGINT))
    fitting = next((digits for limit, digits in sizes if int(whole) < limit), _DIGITS_MAX)
    return Digits(fitting, is_decimal=False)


def _cast(to: exp.Expr) -> Digits | None:
    name = to.this.name if isinstance(to.this, exp.DataType.Type) else str(to.this)
    if name == "DECIMAL" and to.expressions:
        given = [int(parameter.name) for parameter in to.expressions]
        return Digits(given[0], given[1] if len(given) > 1 else 0) if given[0] <= _DIGITS_MAX else None
    digits = _INTEGER_DIGITS.get(name)
    return Digits(digits, is_decimal=False) if digits is not None else None


def _computed(types: _Types, node: exp.Expr) -> Digits | None:
    left, right = types.of(node.this), types.of(node.expression)
    if left is None or right is None:
        return None
    is_decimal = left.is_decimal or right.is_decimal
    if isinstance(node, exp.Div):
        return _divided(left, right) if is_decimal else None
    if not is_decimal:
        return Digits(_BIGINT, is_decimal=False)
    if isinstance(node, exp.Mul):
        product = _multiplied(left, right)
        return product if product.scale <= _DIGITS_MAX else None
    return _common([left, right], carry=1)


def _common(kinds: Sequence[Digits | None], carry: int = 0) -> Digits | None:
    """Returns the type that holds the values of all; None when one is not known."""
    known = [kind for kind in kinds if kind is not None]
    if not known or len(known) < len(kinds):
        return None
    scale = max(kind.scale for kind in known)
    before = max(kind.precision - kind.scale for kind in known)
    is_decimal = any(kind.is_decimal for kind in known)
    return Digits(min(before + scale + carry, _DIGITS_MAX), scale, is_decimal)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """Returns the values of which one is the result, without NULL, which has any type."""
    if isinstance(node, exp.Coalesce):
        found = [node.this, *node.expressions]
    elif isinstance(node, exp.If):
        found = [node.args["true"], node.args.get("false")]
    else:
        found = [branch.args["true"] for branch in node.args.get("ifs") or []] + [node.args.get("default")]
    return [branch for branch in found if branch is not None and not isinstance(branch, exp.Null)]


_Rule = Callable[[_Types, exp.Expr], "Digits | None"]
# The first rule for a node's class finds its type; nodes without a rule are no exact numbers.
_RULES: Final[tuple[tuple[tuple[type[exp.Expr], ...], _Rule], ...]] = (
    (_SAME_AS_OPERAND, lambda types, node: types.of(node.this)),
    ((exp.Literal,), lambda _types, node: _literal(node)),
    ((exp.Cast, exp.TryCast), lambda _types, node: _cast(node.args["to"])),
    ((exp.Column,), _Types.column),
    ((exp.Add, exp.Sub, exp.Mul, exp.Div), _computed),
    ((exp.Avg,), _Types.average),
    ((exp.Count,), lambda _types, _node: Digits(_BIGINT, is_decimal=False)),
    ((exp.Sum,), _Types.total),
    ((exp.Coalesce, exp.If, exp.Case), lambda types, node: _common([types.of(b) for b in _branches(node)])),
    ((exp.Subquery,), _Types.scalar_subquery),
)
