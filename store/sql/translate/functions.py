"""Doris functions in DuckDB: their names, and the macros that give them their Doris meaning.

A call without a class of its own in sqlglot must be named in one of the tables below. Any other name is
refused, so that no query reaches a function of DuckDB for files, settings or the catalog.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

from seqstore.store.catalog.access.user_hosts import user_and_host
from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import Counted, EvaluationContext, call, check_count, literal_integer
from seqstore.store.sql.translate.computed_once import once
from seqstore.store.sql.translate.conversions import as_moment, as_text
from seqstore.store.sql.translate.date_functions import (
    CONSTANT_TIMES,
    DATE_FUNCTIONS,
    constant_time,
    part_of_time,
)
from seqstore.store.sql.translate.implicit import comparison, unified
from seqstore.store.sql.translate.lateral_views import OUTER
from seqstore.store.sql.translate.macros.catalog import macro_names
from seqstore.store.sql.translate.value_types import is_quoted, is_time, type_of

SERVER_VERSION: Final = "5.7.99"


def _pairs(text: str) -> dict[str, str]:
    """Parses a table of Doris names and DuckDB names of the same meaning, `doris=duckdb`."""
    return dict(re.findall(r"(\w+)=(\w+)", text))


_RENAMED: Final = _pairs(
    """
        approx_count_distinct=approx_count_distinct array_agg=list array_avg=list_avg
        array_flatten=flatten
        array_product=list_product
        array_reverse_sort=list_reverse_sort array_size=len
        bin=bin bit_length=bit_length bitxor=xor
        cardinality=len char_length=length character_length=length concat_ws=concat_ws
        cot=cot covar=covar_pop dceil=ceil degrees=degrees dexp=exp dfloor=floor dpow=pow dround=round
        ends_with=ends_with even=even fpow=pow gcd=gcd group_bit_and=bit_and group_bit_or=bit_or
        group_bit_xor=bit_xor hex=hex instr=instr kurtosis=kurtosis_pop lcase=lower lcm=lcm
        map_entries=map_entries map_keys=map_keys map_size=cardinality map_values=map_values md5=md5
        ltrim_in=ltrim ndv=approx_count_distinct pi=pi radians=radians
        regr_intercept=regr_intercept regr_slope=regr_slope rtrim_in=rtrim std=stddev_pop trim_in=trim
        trunc=trunc
        sha1=sha1 sha2=sha256 signbit=signbit size=len starts_with=starts_with
        stddev=stddev_pop truncate=trunc ucase=upper url_decode=url_decode
        url_encode=url_encode uuid=uuid variance=var_pop
    """
)
_MACROS: Final = macro_names()
# Functions with a class of their own in sqlglot, by its key. sqlglot knows hundreds of other dialects' and
# DuckDB's, which have no meaning in Doris.
KNOWN_CLASSES: Final = frozenset(
    re.findall(
        r"\w+",
        """
        abs acos acosh and anonymous anyvalue approxdistinct argmax argmin array arraymax arraymin
        arraysum ascii asin asinh atan atan2 atanh avg bitlength bitwiseandagg bitwiseoragg bitwisexoragg
        case cast cbrt ceil chr coalesce collate concat contains corr cos cosh cosinedistance cot count
        countif covarpop covarsamp cumedist currentdate currentdatetime currenttime currenttimestamp
        currentuser datediff degrees denserank endswith euclideandistance exists exp explode explodeouter
        _explodeouter
        extract first firstvalue floor frombase64 greatest grouping groupingid if isinf isnan jsonextract
        jsonextractscalar jsonremove lag last lastvalue lead least levenshtein like ln localtime
        localtimestamp log lower max md5 median min nthvalue ntile nullif nvl2 or pad parsejson
        percentrank pi posexplode posexplodeouter pow radians rank regexpextractall regexplike regravgx
        regravgy regrcount regrr2 regrsxx regrsxy regrsyy repeat replace reverse round rownumber
        sessionuser sha sign sin sinh skewness sqrt startswith stddev stddevpop stddevsamp stringtoarray
        strposition struct substring sum tan tanh time tobase64 translate trim trycast unnest upper uuid
        variance variancepop xor
        regexpinstr jsonobjectagg
        """,
    )
)
_DATE_PARTS: Final = _pairs(
    """
        day=day day_of_year=dayofyear dayname=dayname dayofmonth=day dayofyear=dayofyear hour=hour
        minute=minute month=month monthname=monthname quarter=quarter second=second week_of_year=week
        weekofyear=week year=year
    """
)


def translate_call(node: exp.Anonymous, context: EvaluationContext) -> exp.Expr:
    """Builds the DuckDB form of a call without a class in sqlglot.

    Raises:
        InvalidInputError: no such function, or arguments it does not take.
    """
    name = str(node.this).lower()
    arguments = list(node.expressions)
    if name in CONSTANT_TIMES:
        return constant_time(name, arguments, context.moment)
    if name in _SPECIAL:
        build, counts = _SPECIAL[name]
        if counts:
            check_count(name, arguments, *counts)
        return build(name, arguments, context)
    if name in _DATE_PARTS:
        check_count(name, arguments, 1)
        if name in ("hour", "minute", "second"):
            return part_of_time(name, arguments[0])
        return call(_DATE_PARTS[name], as_moment(arguments[0]))
    if name in _RENAMED:
        return call(_RENAMED[name], *arguments)
    if name in _MACROS:
        return call(f"d_{name}", *arguments)
    raise unknown_function(name)


def check_known(node: exp.Expr) -> None:
    """Checks that a node is no function of other dialects that sqlglot knows.

    Raises:
        InvalidInputError: it is one.
    """
    if isinstance(node, exp.Func) and node.key not in KNOWN_CLASSES:
        name = node.sql_name().lower()
        if name in function_names():  # a spelling of another dialect
            raise InvalidInputError(
                f"a function of the meaning of {name!r} is not known by the name in the statement; "
                f"write {name}(..)",
                kind="unknown_function",
                function=name,
            )
        raise unknown_function(name)
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Tuple):
        raise unknown_function("interval")


def unknown_function(name: str) -> InvalidInputError:
    near = difflib.get_close_matches(name.lower(), function_names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return InvalidInputError(
        f"function {name.lower()!r} is not known{hint}", kind="unknown_function", function=name
    )


def function_names() -> list[str]:
    """Lists names in the tables of this module; sqlglot's own (sum, lower, ..) are not among them."""
    return sorted({*_RENAMED, *_MACROS, *_DATE_PARTS, *_SPECIAL, *CONSTANT_TIMES})


def _field(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `field`: the place of a value among others, 0 if it is not among them."""
    if len(arguments) < 2:
        check_count(name, arguments, 2)

    def found(value: exp.Expr, *others: exp.Expr) -> exp.Expr:
        places = exp.Case()
        for place, other in enumerate(others, 1):
            test = comparison(exp.EQ(this=value.copy(), expression=other))
            places = places.when(test, exp.Literal.number(place))
        return places.else_(exp.Literal.number(0))

    return once(arguments, found)


def _elt(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `elt`: the value at a place among others, from 1."""
    if len(arguments) < 2:
        check_count(name, arguments, 2)
    found = exp.Case(this=arguments[0])
    for place, value in enumerate(unified(arguments[1:]), 1):
        found = found.when(exp.Literal.number(place), value)
    return found


def _group_concat(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `group_concat([DISTINCT] text [, separator] [ORDER BY ..])`; `', '` is the default."""
    order = arguments[-1] if arguments and isinstance(arguments[-1], exp.Order) else None
    inner = [*arguments[:-1], order.this] if order is not None else list(arguments)
    distinct = inner[0] if inner and isinstance(inner[0], exp.Distinct) else None
    parts = [*distinct.expressions, *inner[1:]] if distinct is not None else inner
    check_count(name, parts, 1, 2)
    text: exp.Expr = as_text(parts[0])
    separator = parts[1] if len(parts) == 2 else exp.Literal.string(", ")
    if distinct is not None:
        text = exp.Distinct(expressions=[text])
    if order is None:
        return exp.GroupConcat(this=text, separator=separator)
    for ordered in order.expressions:
        if ordered.this == parts[0]:  # DISTINCT needs the same expression in ORDER BY
            ordered.set("this", as_text(ordered.this.copy()))
    return exp.GroupConcat(this=exp.Order(this=text, expressions=order.expressions), separator=separator)


def _session(name: str, _arguments: list[exp.Expr], context: EvaluationContext) -> exp.Expr:
    if name in ("database", "schema"):
        return exp.Literal.string(context.database) if context.database else exp.null()
    if name in ("connection_id", "found_rows", "last_insert_id", "row_count"):
        return exp.Literal.number(getattr(context, name))
    if name == "current_catalog":
        return exp.Literal.string("internal")
    return exp.Literal.string(SERVER_VERSION if name == "version" else "@".join(user_and_host(context.user)))


def _map(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `map(k1, v1, ..)`; in DuckDB the arguments are a list of keys and one of values."""
    if len(arguments) % 2:
        raise InvalidInputError(f"function {name!r}: expected pairs of key and value", kind="bad_argument")
    return call("d_map_of", _array_of(arguments[::2]), _array_of(arguments[1::2]))


def _array_of(values: list[exp.Expr]) -> exp.Expr:
    """Builds an array; older sqlglot takes `exp.array` of a value with a subquery for `ARRAY(SELECT ..)`."""
    return call("list_value", *values)


def _named_struct(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    if len(arguments) % 2 or not all(isinstance(key, exp.Literal) for key in arguments[::2]):
        raise InvalidInputError(
            f"function {name!r}: expected pairs of name in quotes and value", kind="bad_argument"
        )
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    return exp.Struct(
        expressions=[exp.PropertyEQ(this=exp.to_identifier(k.name), expression=v) for k, v in pairs]
    )


def _sha2(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    if literal_integer(name, arguments[1]) != 256:
        raise InvalidInputError(f"function {name!r}: only 256 bits are supported", kind="bad_argument")
    return call("sha256", arguments[0])


def _md5sum(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    if not arguments:
        check_count(name, arguments, 1)
    return call("md5", call("concat", *[as_text(argument) for argument in arguments]))


def _json_extract(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `json_extract`; several paths make an array."""
    if len(arguments) < 2:
        check_count(name, arguments, 2)
    if len(arguments) == 2:
        has_wildcard = isinstance(arguments[1], exp.Literal) and "*" in arguments[1].name
        return call("d_json_found" if has_wildcard else "d_json_extract", *arguments)

    def found(value: exp.Expr, *paths: exp.Expr) -> exp.Expr:
        parts = [call("d_json_extract", value.copy(), path) for path in paths]
        return call("d_json_list", _array_of(parts))

    return once(arguments, found)


def _at_path(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    inner = call("d_json_extract", *arguments) if len(arguments) == 2 else arguments[0]
    return call(f"d_{name.replace('jsonb', 'json')}_of", inner)


def _made_json(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `json_array(v, ..)` and `json_object(name, v, ..)`."""
    if name == "json_object" and len(arguments) % 2:
        raise InvalidInputError(f"function {name!r}: expected pairs of name and value", kind="bad_argument")
    return exp.cast(call(name, *arguments), "TEXT")


_OF_KEPT_ITEMS: Final = ("array_count", "array_filter", "array_first", "array_last")


def _with_lambda(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `array_map(x -> .., array)` and its like; in DuckDB the array is the first argument."""
    function, array = arguments
    if not isinstance(function, exp.Lambda):
        function, array = array, function
    if not isinstance(function, exp.Lambda) or len(function.expressions) != 1:
        raise InvalidInputError(
            f"function {name!r}: expected `x -> expression` and one array", kind="bad_argument"
        )
    function.set("colon", True)  # DuckDB's `LAMBDA x : ..`; its arrow is deprecated
    found = call("list_filter" if name in _OF_KEPT_ITEMS else "list_transform", array, function)
    match name:
        case "array_count":
            return exp.Coalesce(this=call("len", found), expressions=[exp.Literal.number(0)])
        case "array_first":
            return call("d_element_at", found, exp.Literal.number(1))
        case "array_last":
            return call("d_element_at", found, exp.Neg(this=exp.Literal.number(1)))
        case "array_match_all":
            return call("d_every", found)
        case "array_match_any":
            return call("d_some", found)
    return found


def _regexp_extract(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `regexp_extract(text, pattern, group)`; DuckDB takes a group of 0 to 9, as a constant."""
    text, pattern, *groups = arguments
    if not groups:
        return call("regexp_extract", text, pattern)
    group = groups[0]
    if isinstance(group, exp.Null):
        return exp.cast(exp.null(), "TEXT")
    if isinstance(group, exp.Literal):
        is_there = len(group.name) == 1
        return call("regexp_extract", text, pattern, group) if is_there else exp.Literal.string("")

    def found(value: exp.Expr, wanted: exp.Expr, number: exp.Expr) -> exp.Expr:
        branches = exp.Case(this=number)
        for place in map(exp.Literal.number, range(10)):
            part = call("regexp_extract", value.copy(), wanted.copy(), place.copy())
            branches = branches.when(place, part)
        is_null = exp.Is(this=number.copy(), expression=exp.null())
        return branches.else_(exp.Case().when(exp.not_(is_null), exp.Literal.string("")))

    return once([text, pattern, group], found)


def _array_range(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `array_range` of numbers, or of moments with an interval, of a day by default."""
    if len(arguments) < 2 or not (isinstance(arguments[-1], exp.Interval) or is_time(type_of(arguments[0]))):
        return call("d_array_range", *arguments)
    first, last = (exp.cast(as_moment(value), "TIMESTAMP") for value in arguments[:2])
    day = exp.Interval(this=exp.Literal.string("1"), unit=exp.var("DAY"))
    return call("d_moment_range", first, last, arguments[2] if len(arguments) == 3 else day)


def _format(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates MySQL's `format(number, digits)`: the thousands are parted by commas."""
    if is_quoted(arguments[0]):
        raise InvalidInputError(
            f"function {name!r}: a pattern such as {arguments[0].sql()} is not supported; expected a number "
            "and its digits",
            kind="not_supported",
        )
    digits = min(literal_integer(name, arguments[1]), 30)
    number = exp.TryCast(this=arguments[0], to=exp.DataType.build(f"DECIMAL(38, {digits})"))
    return call("d_commas", exp.cast(number, "TEXT"))


def _array_join(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    return call("d_joined", call("d_texts", arguments[0], *arguments[2:]), arguments[1])


def _array_union(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    return call("d_array_distinct", _joined("array_concat", arguments, _context))


def _joined(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `array_concat`, `array_zip` and `map_concat`: NULL as soon as one argument is."""
    if len(arguments) < 2:
        check_count(name, arguments, 1)
        return arguments[0]
    function = {"array_concat": "list_concat", "array_zip": "list_zip"}.get(name, name)

    def joined(*given: exp.Expr) -> exp.Expr:
        are_there = [exp.not_(exp.Is(this=value.copy(), expression=exp.null())) for value in given]
        return exp.Case().when(exp.and_(*are_there), call(function, *given))

    return once(arguments, joined)


def _percentile(_name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `percentile(x, p)` and `percentile_array(x, array)`, whose values are DOUBLE."""
    value, place = arguments
    return call("quantile_cont", exp.cast(value, "DOUBLE"), place)


def _struct_element(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `struct_element`: by name, or by place from 1."""
    place = arguments[1]
    by_place = isinstance(place, exp.Literal) and not place.is_string
    return call("struct_extract_at" if by_place else "struct_extract", *arguments)


def _logarithm(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `log(x)` and `log(base, x)`, NULL unless the numbers are positive and the base is not 1."""
    return call("d_ln" if len(arguments) == 1 else "d_logarithm", *arguments)


def _random(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `rand` and `random`: a fraction; with two numbers a whole number between them."""
    return call("d_random_between", *arguments) if arguments else exp.Rand()


def _distinct(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `multi_distinct_count(x)` to `count(DISTINCT x)`, and the sum likewise."""
    distinct = exp.Distinct(expressions=arguments)
    return exp.Sum(this=distinct) if name.endswith("sum") else exp.Count(this=distinct)


def _exploded(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Builds the rows of LATERAL VIEW that are not made of an array."""
    plain = name.removesuffix("_outer")
    found = exp.Explode(this=call(f"d_{plain}", *arguments))
    found.meta[OUTER] = plain != name
    return found


_SPECIAL: Final[dict[str, Counted]] = {
    **DATE_FUNCTIONS,
    **dict.fromkeys(("connection_id", "current_catalog", "current_user", "database", "found_rows",
                     "last_insert_id", "row_count", "schema", "session_user", "user", "version"),
                    (_session, (0,))),
    "elt": (_elt, ()),
    "regexp_extract": (_regexp_extract, (2, 3)),
    "field": (_field, ()),
    "group_concat": (_group_concat, ()),
    "log": (_logarithm, (1, 2)),
    "map": (_map, ()),
    "named_struct": (_named_struct, ()),
    **dict.fromkeys(("explode_split", "explode_split_outer"), (_exploded, (2,))),
    **dict.fromkeys(("explode_numbers", "explode_numbers_outer"), (_exploded, (1,))),
    **dict.fromkeys((f"explode_json_array_{kind}" for kind in ("string", "int", "double", "json")),
                    (_exploded, (1,))),
    **dict.fromkeys((f"explode_json_array_{kind}_outer" for kind in ("string", "int", "double", "json")),
                    (_exploded, (1,))),
    **dict.fromkeys(("bool_and", "bool_or"),
                    (lambda name, given, _context: call(name, exp.cast(given[0], "BOOLEAN")), (1,))),
    **dict.fromkeys(("json_array", "json_object"), (_made_json, ())),
    **dict.fromkeys(("json_extract", "jsonb_extract"), (_json_extract, ())),
    **dict.fromkeys(("json_length", "json_type", "jsonb_type"), (_at_path, (1, 2))),
    **dict.fromkeys(("multi_distinct_count", "multi_distinct_sum"), (_distinct, (1,))),
    **dict.fromkeys(("rand", "random"), (_random, (0, 2))),
    **dict.fromkeys(("array_count", "array_exists", "array_filter", "array_first", "array_last", "array_map",
                     "array_match_all", "array_match_any"), (_with_lambda, (2,))),
    "array_join": (_array_join, (2, 3)),
    **dict.fromkeys(("array_range", "sequence"), (_array_range, (1, 2, 3))),
    "format": (_format, (2,)),
    **dict.fromkeys(("array_concat", "array_zip", "map_concat"), (_joined, ())),
    **dict.fromkeys(("percentile", "percentile_array"), (_percentile, (2,))),
    "array_union": (_array_union, ()),
    "md5sum": (_md5sum, ()),
    "sha2": (_sha2, (2,)),
    "struct_element": (_struct_element, (2,)),
}  # fmt: skip
