"""Doris's functions of text, JSON, arrays and maps that need more than a name of DuckDB's or one macro."""

from __future__ import annotations

from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import Counted, EvaluationContext, call, check_count, literal_integer


def _sha2(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    if literal_integer(name, arguments[1]) != 256:
        raise InvalidInputError(f"function {name!r}: only 256 bits are supported", kind="bad_argument")
    return call("sha256", arguments[0])


def _md5sum(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    if not arguments:
        check_count(name, arguments, 1)
    return call("md5", call("concat", *[call("d_text", argument) for argument in arguments]))


def _json_extract(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `json_extract`; several paths make an array."""
    if len(arguments) < 2:
        check_count(name, arguments, 2)
    if len(arguments) == 2:
        return call("d_json_extract", *arguments)
    found = [call("d_json_extract", arguments[0].copy(), path) for path in arguments[1:]]
    return call("d_json_list", exp.array(*found))


def _at_path(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    inner = call("d_json_extract", *arguments) if len(arguments) == 2 else arguments[0]
    return call(f"d_{name.replace('jsonb', 'json')}_of", inner)


def _made_json(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `json_array(v, ..)` and `json_object(name, v, ..)`."""
    if name == "json_object" and len(arguments) % 2:
        raise InvalidInputError(f"function {name!r}: expected pairs of name and value", kind="bad_argument")
    return exp.cast(call(name, *arguments), "TEXT")


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
    kept, mapped = call("list_filter", array, function), call("list_transform", array, function)
    made: dict[str, exp.Expr] = {
        "array_count": call("len", kept),
        "array_exists": mapped,
        "array_filter": kept,
        "array_first": call("d_element_at", kept, exp.Literal.number(1)),
        "array_last": call("d_element_at", kept, exp.Neg(this=exp.Literal.number(1))),
        "array_map": mapped,
        "array_match_all": call("list_bool_and", mapped),
        "array_match_any": call("list_bool_or", mapped),
    }
    return made[name]


def _array_join(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    return call("d_joined", call("d_texts", arguments[0], *arguments[2:]), arguments[1])


def _array_union(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    if len(arguments) < 2:
        check_count(name, arguments, 2)
    return call("d_array_distinct", call("list_concat", *arguments))


def _struct_element(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `struct_element`: by name, or by place from 1."""
    place = arguments[1]
    by_place = isinstance(place, exp.Literal) and not place.is_string
    return call("struct_extract_at" if by_place else "struct_extract", *arguments)


def _random(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `rand` and `random`: a fraction; with two numbers a whole number between them."""
    return call("d_random_between", *arguments) if arguments else exp.Rand()


def _distinct(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `multi_distinct_count(x)` to `count(DISTINCT x)`, and the sum likewise."""
    distinct = exp.Distinct(expressions=arguments)
    return exp.Sum(this=distinct) if name.endswith("sum") else exp.Count(this=distinct)


def _exploded(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Builds the rows of LATERAL VIEW that are not made of an array."""
    return exp.Explode(this=call(f"d_{name}", *arguments))


VALUE_FUNCTIONS: Final[dict[str, Counted]] = {
    "explode_split": (_exploded, (2,)),
    "explode_numbers": (_exploded, (1,)),
    **dict.fromkeys((f"explode_json_array_{kind}" for kind in ("string", "int", "double", "json")),
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
    "array_pushfront": (lambda _name, given, _context: call("list_prepend", *reversed(given)), (2,)),
    "array_union": (_array_union, ()),
    "md5sum": (_md5sum, ()),
    "sha2": (_sha2, (2,)),
    "struct_element": (_struct_element, (2,)),
}  # fmt: skip
