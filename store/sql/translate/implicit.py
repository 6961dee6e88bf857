"""Doris's implicit conversions of values of different types in one expression.

1. Arithmetic: integers are computed as BIGINT, so that `INT + INT` does not overflow; text is read as DOUBLE,
   NULL where it is no number.
2. Comparisons: text and number are compared as numbers, text and date as times, number and date as the digits
   of the date; a text that cannot be read is NULL, not an error.
3. Branches (IF, CASE, COALESCE ..) are text if one of them is text.
4. Arguments of functions: `PARAMETERS` names the functions that take numbers, and those that take text.

The noted types decide (sql.translate.value_types). A value without one goes through a macro with a body for
each type, and DuckDB chooses the body when it binds the query (sql.translate.macros).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.translate.calls import call
from seqstore.store.sql.translate.computed_once import once
from seqstore.store.sql.translate.conversions import (
    as_condition,
    as_moment,
    as_number,
    as_numeric,
    as_operand,
    as_text,
    as_whole,
    hexadecimal_number,
    literal_beside,
    whole_quotient,
)
from seqstore.store.sql.translate.decimal_arithmetic import divided, multiplied
from seqstore.store.sql.translate.value_types import (
    ANY_TIME,
    DATE_LIKE,
    INTEGERS,
    NULL,
    NUMBERS,
    TEXTS,
    arguments_of,
    branch_type,
    branches_of,
    function_name,
    is_quoted,
    is_time,
    note,
    type_of,
)

_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.BitwiseLeftShift,
                      exp.BitwiseRightShift)  # fmt: skip
_LISTED_MAX: Final = 200
_WHOLE: Final = re.compile(r"[+-]?\d{1,18}")
# One letter for each argument, the last for all further ones: b truth value, h text or whole number,
# i whole number, n number, t text, - any.
_PARAMETERS_TEXT: Final = {
    "n": """
        abs acos acosh asin asinh atan atan2 atanh avg cbrt ceil corr cos cosh cot covar covarpop covarsamp
        dceil degrees dexp dfloor dlog1 dlog10 dpow dround exp fmod floor fpow kurtosis ln log log10 log2
        median mod neg negative percentile percentile_approx pmod positive pow radians regr_intercept
        regr_slope
        round round_bankers sign signbit sin sinh skewness sqrt std stddev stddevpop stddevsamp sum sum0 tan
        tanh trunc truncate variance variancepop width_bucket money_format sec_to_time
    """,
    "i": """
        bit_count bit_shift_left bit_shift_right bit_test bitand bitnot bitor bitwiseand bitwisenot bitwiseor
        bitwisexor bitxor bin bitwiseleftshift bitwiserightshift from_days from_microsecond from_millisecond
        from_second gcd
        group_bit_and group_bit_or group_bit_xor lcm makedate period_add period_diff space
    """,
    "t": """
        append_trailing_char_if_absent ascii bit_length bitlength char_length character_length concat_ws
        concatws count_substrings find_in_set from_base64 initcap instr json_unquote json_valid lcase length
        like lower ltrim ltrim_in mask md5 ord parse_url regexp_count regexp_replace regexp_replace_one
        regexplike replace reverse rtrim rtrim_in sha sha1 soundex str_to_map strcmp to_base64 trim trim_in
        split_by_string extract_url_parameter octet_length
        ucase unhex upper url_decode url_encode ends_with endswith starts_with startswith contains
    """,
    "b": "and having not or where xor",
    "b-": "if",
    "h": "hex",
    "tti": "locate regexp_extract split_part substring_index",
    "ti": "left mid repeat right strleft strright substr substring",
    "tit": "lpad rpad",
    "tiit": "insert overlay",
}
PARAMETERS: Final = {
    name.rstrip("-"): letters + "-" if name.endswith("-") else letters
    for letters, names in _PARAMETERS_TEXT.items()
    for name in names.split()
}


def _as_text_or_whole(value: exp.Expr) -> exp.Expr:
    kind = type_of(value)
    return as_whole(value) if kind in NUMBERS else as_text(value)


# By letter: the conversion, and the types of values that it leaves as they are.
_BY_LETTER: Final = {
    "b": (as_condition, NUMBERS),
    "h": (_as_text_or_whole, TEXTS),
    "i": (as_whole, INTEGERS),
    "n": (as_numeric, NUMBERS - {"BOOLEAN"}),
    "t": (as_text, TEXTS),
}
_AS_IT_IS: Final = (None, frozenset[str]())


def convert_arguments(node: exp.Expr) -> None:
    """Converts the arguments of a function to the types that it takes."""
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
        node.set("this", as_condition(node.this))
    letters = PARAMETERS.get(function_name(node))
    is_tested_value = isinstance(node, exp.If) and isinstance(node.parent, exp.Case) and node.parent.this
    if letters is None or is_tested_value:
        return
    holder = node.this if isinstance(node.this, exp.Distinct) else node
    for place, argument in enumerate(arguments_of(holder)):
        conversion, fitting = _BY_LETTER.get(letters[min(place, len(letters) - 1)], _AS_IT_IS)
        kind = type_of(argument) if conversion is not None else None
        if conversion is None or kind is None or kind in fitting:
            continue
        name, index = argument.arg_key, argument.index
        converted = conversion(argument)
        if converted is not argument:
            holder.set(str(name), converted, index=index)


def arithmetic(node: exp.Expr) -> exp.Expr:
    """Translates `+ - * / % DIV << >>`: both operands are read as numbers."""
    exact = divided(node)
    if exact is not None:
        return exact
    left, right = node.this, node.expression
    if not _is_computed(left) and (not _is_number(left) or _is_number(right)):
        node.set("this", _operand(left))
    if not _is_computed(right) and not _is_number(right):
        node.set("expression", _operand(right))
    if isinstance(node, exp.IntDiv):
        return whole_quotient(node.this, node.expression)
    if isinstance(node, exp.Div):
        node.set("safe", False)  # newer sqlglot writes the NULLIF of a safe division, older leaves it out
    if isinstance(node, exp.Div) or (isinstance(node, exp.Mod) and not _is_nonzero(right)):
        node.set("expression", exp.Nullif(this=node.expression, expression=exp.Literal.number(0)))
    return multiplied(node) or node


def _operand(value: exp.Expr) -> exp.Expr:
    """Converts an operand; a number in digits becomes BIGINT too."""
    is_small = isinstance(value, exp.Literal) and type_of(value) in ("TINYINT", "SMALLINT", "INT")
    return exp.cast(value, "BIGINT") if is_small else as_operand(value)


def comparison(node: exp.Expr) -> exp.Expr:
    """Translates `= != < <= > >= <=>` and aligns the types of both sides."""
    left, right = node.this, node.expression
    if isinstance(right, (exp.Any, exp.All)):
        return node
    if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
        return _compared_tuples(node, left, right)
    if _align(node, [("this", None), ("expression", None)]):
        return node
    if isinstance(left, exp.Column) and isinstance(right, exp.Column):
        node.set("this", call("d_beside", left, right.copy()))
        node.set("expression", call("d_beside", right, left.copy()))
        return node
    for one, other in (("this", "expression"), ("expression", "this")):
        _align_unknown(node, one, node.args[other])
    return node


def _compared_tuples(node: exp.Expr, left: exp.Tuple, right: exp.Tuple) -> exp.Expr:
    """Aligns the values of `(a, b) = (c, d)` pair by pair."""
    for place, (one, other) in enumerate(zip(left.expressions, right.expressions, strict=False)):
        pair = exp.EQ(this=one.copy(), expression=other.copy())
        if _align(pair, [("this", None), ("expression", None)]):
            left.set("expressions", pair.this, index=place)
            right.set("expressions", pair.expression, index=place)
    return node


def listed(node: exp.Expr) -> exp.Expr:
    """Translates `x IN (..)`: x and all values are compared as one type."""
    items = node.expressions
    query = node.args.get("query")
    if query is not None:
        return _listed_query(node, query)
    if not items and not node.args.get("unnest") and not node.args.get("field"):
        raise InvalidInputError(f"{node.sql('doris')}: expected values after IN, found none", kind="syntax")
    if not items or (len(items) > _LISTED_MAX and not _differs(node.this, items)):
        return node
    if isinstance(node.this, exp.Tuple):
        for item in items:
            if isinstance(item, exp.Tuple):
                _compared_tuples(node, node.this, item)
        return node
    if _align(node, [("this", None), *(("expressions", place) for place in range(len(items)))]):
        return node
    if all(map(_is_number, items)):
        node.set("this", as_number(node.this))
    elif _is_plain(node.this):
        node.set("expressions", [_beside(item, node.this) for item in items])
    return node


def _differs(value: exp.Expr, items: Sequence[exp.Expr]) -> bool:
    """Returns whether values of a long list have another type than the value that is looked for."""
    kind = type_of(value)
    return kind is not None and any(is_quoted(item) != (kind in TEXTS) for item in items)


def _listed_query(node: exp.Expr, query: exp.Expr) -> exp.Expr:
    """Aligns the types of `x IN (SELECT y ..)`."""
    column = exp.column("v", table="listed", quoted=True)
    value, kind = node.this, type_of(query)
    if isinstance(value, exp.Tuple) or kind is None:
        return node
    note(column, kind)
    pair = exp.EQ(this=value, expression=column)
    if _align(pair, [("this", None), ("expression", None)]):
        node.set("this", pair.this)
        if pair.expression is not column:
            inner = query.this if isinstance(query, exp.Subquery) else query
            alias = exp.TableAlias(
                this=exp.to_identifier("listed", quoted=True), columns=[exp.to_identifier("v", quoted=True)]
            )
            outer = exp.select(pair.expression).from_(exp.Subquery(this=inner, alias=alias))
            node.set("query", exp.Subquery(this=outer))
    return node


def between(node: exp.Expr) -> exp.Expr:
    """Translates `x BETWEEN low AND high`."""
    if _align(node, [("this", None), ("low", None), ("high", None)]):
        return node
    ends = [node.args["low"], node.args["high"]]
    if all(map(_is_number, ends)):
        node.set("this", as_number(node.this))
    elif _is_plain(node.this):
        for name, end in zip(("low", "high"), ends, strict=True):
            node.set(name, _beside(end, node.this))
    return node


def nullif(node: exp.Expr) -> exp.Expr:
    """Translates NULLIF: the comparison is aligned, the value stays as it is."""
    kind = type_of(node.this)
    pair = exp.EQ(this=node.this.copy(), expression=node.expression.copy())
    if not _align(pair, [("this", None), ("expression", None)]) or pair.this == node.this:
        if pair.expression != node.expression:
            node.set("expression", pair.expression)
        return node

    def chosen(value: exp.Expr, other: exp.Expr) -> exp.Expr:
        equal = exp.EQ(this=value.copy(), expression=other)
        _align(equal, [("this", None), ("expression", None)])
        return exp.Case().when(equal, exp.null()).else_(value)

    return note(once([node.this, node.expression], chosen), kind)


_Place = tuple[str, "int | None"]


def _align(node: exp.Expr, places: Sequence[_Place]) -> bool:
    """Converts the compared values of a node to one type; returns False when a type is not known.

    Numbers beside anything else are compared as numbers, else times beside text as times.
    """
    values = [_at(node, place) for place in places]
    kinds = [type_of(value) for value in values]
    if None in kinds:
        return False
    known = set(filter(None, kinds)) - {NULL}
    has_number = bool(known & NUMBERS)
    has_time = any(map(is_time, known))
    if has_number + has_time + bool(known & TEXTS) < 2 and "BOOLEAN" not in known:
        return True
    if not known <= NUMBERS | TEXTS and not all(kind in NUMBERS | TEXTS or is_time(kind) for kind in known):
        return False
    for place, value in zip(places, values, strict=True):
        converted = _compared(value, known, has_number=has_number)
        if converted is not value:
            node.set(place[0], converted, index=place[1])
    return True


def _compared(value: exp.Expr, known: set[str], *, has_number: bool) -> exp.Expr:
    """Converts one of the compared values, which are of the types `known`."""
    kind = type_of(value)
    if kind == NULL:
        return value
    others = {each for each in known if each not in TEXTS}
    if is_quoted(value) and len(others) == 1:
        return literal_beside(value, next(iter(others)))
    if others == {"BOOLEAN"}:
        return exp.TryCast(this=value, to=exp.DataType.build("BOOLEAN")) if kind in TEXTS else value
    if has_number:
        return as_number(value)
    return as_moment(value) if kind in TEXTS else value


def _at(node: exp.Expr, place: _Place) -> exp.Expr:
    name, index = place
    found: exp.Expr = node.args[name] if index is None else node.args[name][index]
    return found


def _align_unknown(node: exp.Expr, name: str, other: exp.Expr) -> None:
    """Aligns a side of a comparison where not both types are known."""
    side = node.args[name]
    if _is_number(other) and not _is_number(side):
        node.set(name, as_number(side))
    elif is_quoted(side) and _is_plain(other):
        node.set(name, _beside(side, other))


def _beside(item: exp.Expr, other: exp.Expr) -> exp.Expr:
    """Reads text in quotes as the type of the other side; other values stay as they are."""
    if not is_quoted(item):
        return item
    name = "d_whole_beside" if _WHOLE.fullmatch(item.name.strip()) else "d_text_beside"
    return call(name, other.copy(), item)


def conditional(node: exp.Expr) -> exp.Expr:
    """Translates IF."""
    given = [name for name in ("true", "false") if node.args.get(name) is not None]
    for name, value in zip(given, unified([node.args[name] for name in given]), strict=True):
        node.set(name, value)
    return node


def case(node: exp.Expr) -> exp.Expr:
    """Translates CASE: every THEN and the ELSE have one type, and every WHEN that of the value."""
    ifs = [branch for branch in node.args.get("ifs") or [] if isinstance(branch, exp.If)]
    default = node.args.get("default")
    values = unified(branches_of(node))
    for branch, value in zip(ifs, values, strict=False):
        branch.set("true", value)
    if default is not None:
        node.set("default", values[-1])
    if node.this is not None:
        tests = exp.In(this=node.this.copy(), expressions=[branch.this.copy() for branch in ifs])
        if _align(tests, [("this", None), *(("expressions", place) for place in range(len(ifs)))]):
            node.set("this", tests.this)
            for branch, test in zip(ifs, tests.expressions, strict=True):
                branch.set("this", test)
    return node


def coalesced(node: exp.Expr) -> exp.Expr:
    """Translates COALESCE, IFNULL, NVL."""
    first, *rest = unified([node.this, *node.expressions])
    node.set("this", first)
    node.set("expressions", rest)
    return node


def extreme(node: exp.Expr) -> exp.Expr:
    """Translates GREATEST, LEAST: NULL as soon as one value is NULL, which DuckDB passes over."""
    values = unified([node.this, *node.expressions])
    name = "greatest" if isinstance(node, exp.Greatest) else "least"

    def found(*given: exp.Expr) -> exp.Expr:
        has_null = exp.or_(*[exp.Is(this=value.copy(), expression=exp.null()) for value in given])
        return exp.Case().when(has_null, exp.null()).else_(call(name, *given))

    return once(values, found)


def concatenated(node: exp.Expr) -> exp.Expr:
    """Translates CONCAT: anything is converted to text; true is 1 in it."""
    items = [item if isinstance(item, exp.Concat) else as_text(item) for item in node.expressions]
    node.set("expressions", items)
    return node


def unified(branches: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Converts the branches of one value to text where one of them is a text that is no date."""
    kind = branch_type(branches, list(map(type_of, branches)))
    if kind is not None:
        if kind in TEXTS:
            return [as_text(branch) for branch in branches]
        if kind == ANY_TIME:  # a DATE beside a moment in quotes
            return [
                branch if isinstance(branch.unnest(), exp.Null) else as_moment(branch) for branch in branches
            ]
        if is_time(kind):
            return list(branches)
        is_mixed = any(type_of(branch) == "BOOLEAN" for branch in branches) and kind != "BOOLEAN"
        return [as_numeric(branch) for branch in branches] if is_mixed else list(branches)
    texts = [branch for branch in branches if is_quoted(branch)]
    if not texts:
        return list(branches)
    name = "d_branch" if all(DATE_LIKE.fullmatch(text.name) for text in texts) else "d_text"
    return [b if is_quoted(b) or isinstance(b.unnest(), exp.Null) else call(name, b) for b in branches]


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


def _is_nonzero(node: exp.Expr) -> bool:
    literal = node.find(exp.Literal) if _is_number(node) else None
    return literal is not None and float(literal.name) != 0


def _is_plain(node: exp.Expr) -> bool:
    """Returns whether a value may occur twice: DuckDB evaluates it once, but its names must resolve."""
    return node.find(exp.Null, exp.Select, exp.AggFunc, exp.Window, exp.Lambda, exp.Rand) is None


_OF_NUMBERS: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.BitwiseAnd,
                      exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.BitwiseLeftShift,
                      exp.BitwiseRightShift)  # fmt: skip
_COMPARED: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Between,
                       exp.In)  # fmt: skip


def settle_hexadecimals(tree: exp.Expr) -> bool:
    """Makes literals of X'41' and 0x41 in a tree with noted types, and returns whether there were any.

    As in MySQL it is a number in arithmetic, beside numbers, where it is cast to one and in functions of
    numbers, else a text. Bytes that are no UTF-8 stay as they are.
    """
    found = list(find_all(tree, exp.HexString))
    for node in found:
        if _stands_for_number(node):
            node.replace(hexadecimal_number(node))
        else:
            digits = str(node.this)
            with contextlib.suppress(UnicodeDecodeError):
                text = bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)).decode()
                node.replace(exp.Literal.string(text))
    return bool(found)


def _stands_for_number(node: exp.Expr) -> bool:
    above = node.parent
    while isinstance(above, exp.Paren):
        node, above = above, above.parent
    if isinstance(above, (exp.Cast, exp.TryCast)):
        return above.this is node and above.to.this in exp.DataType.NUMERIC_TYPES
    if isinstance(above, _COMPARED):
        values = [value if isinstance(value, list) else [value] for value in above.args.values()]
        others = [other for each in values for other in each if isinstance(other, exp.Expr)]
        return any(other is not node and type_of(other) in NUMBERS for other in others)
    if isinstance(above, exp.Func) and not isinstance(above, exp.Connector):
        letters = PARAMETERS.get(function_name(above), "")
        return letters.rstrip("-") in ("n", "i")
    return isinstance(above, _OF_NUMBERS)
