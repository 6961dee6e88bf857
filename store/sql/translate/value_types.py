"""The Doris types of the values in a query's tree, noted at the nodes before the tree is translated.

1. A type is Doris's spelling without the parameters that implicit casts do not need: `INT`, `DECIMAL`,
   `STRING`, `DATETIME(3)`. `TIMESTAMP` is a DATETIME of any number of digits, and `NULL` fits every type.
2. Columns have the type of their table, also through subqueries and CTEs. `_RESULTS` names the results of
   functions; the functions of `_RULES` depend on their arguments.
3. A node whose type is not found has no note. DuckDB chooses for it (sql.translate.macros).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Final

from seqstore.store.runtime import cancellation
from seqstore.store.sql.parse.sqlglot_adapter import exp, walk
from seqstore.store.sql.translate.relations import Relation
from seqstore.store.sql.translate.type_search import TypeSearch
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType

_NOTE: Final = "value_type"
NULL: Final = "NULL"
ANY_TIME: Final = "TIMESTAMP"
INTEGERS: Final = frozenset(INTEGER_RANGES)
NUMBERS: Final = INTEGERS | {"BOOLEAN", "DECIMAL", "FLOAT", "DOUBLE"}
TEXTS: Final = frozenset(["CHAR", "VARCHAR", "STRING", "JSON"])
_ISO_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
DATE_LIKE: Final = re.compile(r"\d{2,4}-\d{1,2}-\d{1,2}.*")
_WIDEST_FIRST: Final = ("DOUBLE", "FLOAT", "DECIMAL", "LARGEINT", "BIGINT", "INT", "SMALLINT", "TINYINT")
_BELOW_A_DAY: Final = {"HOUR": 0, "MINUTE": 0, "SECOND": 0, "MILLISECOND": 3, "MICROSECOND": 6}
_CAST_TYPES: Final = {"INT128": "LARGEINT", "TEXT": "STRING", "NCHAR": "STRING", "NVARCHAR": "STRING",
                      "UTINYINT": "TINYINT", "USMALLINT": "SMALLINT", "UINT": "INT",
                      "UBIGINT": "BIGINT"}  # fmt: skip
_RESULTS_TEXT: Final = {
    "STRING": """
        append_trailing_char_if_absent array_join char chr concat concat_ws concatws conv current_catalog
        current_user currentuser insert overlay database date_format dayname extract_url_parameter from_base64
        from_unixtime get_json_string group_concat groupconcat hex initcap json_array json_extract
        json_extract_string json_object json_type json_parse_error_to_null json_quote json_unquote
        json_value jsonb_extract jsonb_type jsonextract lcase left lower lowerhex lpad ltrim mask
        format maketime md5 md5sum
        mid money_format monthname pad parse_url regexp_extract regexp_replace regexp_replace_one
        regexpextract regexpreplace repeat replace right rpad rtrim schema sec_to_time session_user
        sessionuser sha sha1 sha2 sha256 soundex space split_part strleft strright substr substring
        substring_index time_format timediff to_base64 tobase64 to_iso8601 to_json translate trim trim_in
        ltrim_in rtrim_in ucase unhex upper url_decode url_encode user uuid version bin
    """,
    "BIGINT": """
        approx_count_distinct approxdistinct array_count array_position array_size ascii bit_count
        bit_length bitlength bit_shift_left bit_shift_right bit_test bitwisecount cardinality char_length
        character_length connection_id count count_substrings countequal countif crc32 cumedist dateDiff
        datediff day day_of_week day_of_year dayofmonth dayofweek dayofyear denserank extract field
        find_in_set found_rows get_json_bigint get_json_int grouping groupingid hour instr json_extract_bigint
        json_extract_int json_length json_valid last_insert_id length octet_length locate map_size microsecond
        microsecond_timestamp millisecond_timestamp minute month multi_distinct_count ndv ntile ord
        period_add period_diff quarter rank regexp_count row_count rownumber second second_timestamp sign size
        strcmp strposition time_to_sec timestampdiff to_days unicode week week_of_year weekday
        weekofyear width_bucket year year_of_week yearofweek yearweek
    """,
    "DOUBLE": """
        acos acosh asin asinh atan atan2 atanh avg cbrt corr cos cosh cot covar covarpop covarsamp degrees
        csc cosec sec
        dexp div dlog1 dlog10 dpow e exp fpow get_json_double json_extract_double kurtosis ln log log10 log2
        median months_between percentile percentile_approx pi pow radians rand random regr_intercept
        regr_slope sin sinh skewness sqrt std stddev stddevpop stddevsamp tan tanh variance variancepop
    """,
    "BOOLEAN": """
        all and any array_contains array_contains_all array_exists array_match_all array_match_any
        arrays_overlap between bool_and bool_or boolean contains ends_with endswith eq escape exists
        get_json_bool gt gte ilike in is isnan isinf json_extract_bool like lt lte map_contains_key
        map_contains_value neq not not_null_or_empty null_or_empty nullsafeeq nullsafeneq or regexpilike
        regexplike starts_with startswith xor
    """,
    "DATE": """
        curdate current_date currentdate date from_days last_day lastday makedate next_day previous_day
        to_date to_monday utc_date
    """,
    "DATETIME": "from_second",
    "DATETIME(3)": "from_millisecond",
    "DATETIME(6)": "from_microsecond",
}
_RESULTS: Final = {name.lower(): kind for kind, text in _RESULTS_TEXT.items() for name in text.split()}
_UNITS: Final = "year|quarter|month|week|day|hour|minute|second|millisecond|microsecond"
_UNIT_ADD: Final = re.compile(rf"({_UNITS})s_(add|sub)")
_UNIT_DIFF: Final = re.compile(rf"({_UNITS})s_diff")
_ROUNDED: Final = re.compile(rf"(date|{_UNITS})_(floor|ceil)")


def type_of(node: exp.Expr | None) -> str | None:
    """Returns the noted type of a node, None when it is not known."""
    while isinstance(node, exp.Paren) and _NOTE not in node.meta:
        node = node.this
    return node.meta.get(_NOTE) if node is not None else None


def note_as(node: exp.Expr, other: exp.Expr) -> None:
    """Notes the type of another node at a node that replaces it."""
    note(node, type_of(other))


def note(node: exp.Expr, kind: str | None) -> exp.Expr:
    """Notes the type of a node unless it is not known, and returns the node."""
    if kind is not None:
        node.meta.setdefault(_NOTE, kind)
    return node


def is_time(kind: str | None) -> bool:
    return kind is not None and (kind == "DATE" or kind == ANY_TIME or kind.startswith("DATETIME"))


def fraction_digits(kind: str) -> int | None:
    """Returns the fraction digits of a DATETIME's type, None for a DATE and a DATETIME of any digits."""
    if kind in (ANY_TIME, "DATE"):
        return None
    return int(kind[len("DATETIME(") : -1]) if kind.endswith(")") else 0


def datetime_of(digits: int) -> str:
    return f"DATETIME({digits})" if digits else "DATETIME"


def column_value_type(kind: ColumnType) -> str:
    """Returns the type of a column's values."""
    return kind.sql if kind.name == "DATETIME" or kind.is_nested else kind.name


def note_types(tree: exp.Expr, relations: Sequence[Relation]) -> list[str | None]:
    """Notes the type of each value in a tree.

    Returns:
        The types of the columns of a query's result, none when `*` hides them.
    """
    types = _ValueTypes({id(relation.node): relation for relation in relations})
    for node in reversed(list(walk(tree))):  # leaves first: the search is never deep
        cancellation.check()
        if _may_be_known(node):
            note(node, types.find(node))
    return types.columns(tree)


def widest(kinds: Iterable[str | None]) -> str | None:
    """Returns the type that holds values of several types; None when one is not known.

    Text holds everything, so that the values of a CASE with a text are texts.
    """
    found = set(kinds) - {NULL}
    if len(found) < 2:
        return next(iter(found), NULL)
    if None in found:
        return None
    known = {kind for kind in found if kind is not None}
    if known <= NUMBERS:
        return next((kind for kind in _WIDEST_FIRST if kind in known), "BOOLEAN")
    if all(map(is_time, known)):
        digits = [fraction_digits(kind) for kind in known if kind != "DATE"]
        return ANY_TIME if None in digits else datetime_of(max(each or 0 for each in digits))
    return "STRING" if all(kind in NUMBERS | TEXTS or is_time(kind) for kind in known) else None


def branch_type(branches: Sequence[exp.Expr], kinds: Sequence[str | None]) -> str | None:
    """Returns the type of an expression whose value is one of the branches.

    Dates in quotes beside dates are dates.
    """
    others = [
        kind
        for branch, kind in zip(branches, kinds, strict=True)
        if not (is_quoted(branch) and DATE_LIKE.fullmatch(branch.name))
    ]
    if others and len(others) < len(kinds) and all(map(is_time, set(others) - {NULL})):
        if set(others) == {NULL}:
            return "STRING"
        has_time = any(is_quoted(branch) and ":" in branch.name for branch in branches)
        return ANY_TIME if has_time and widest(others) == "DATE" else widest(others)
    return widest(kinds)


def is_quoted(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def is_iso_date(node: exp.Expr) -> bool:
    """Returns whether a literal is a date in quotes such as '2024-01-31', without a time."""
    if not is_quoted(node) or not _ISO_DATE.fullmatch(node.name):
        return False
    try:
        date.fromisoformat(node.name)
    except ValueError:
        return False
    return True


def epoch_digits(value: exp.Expr) -> int:
    """Returns the digits behind the second that `unix_timestamp` of a value has."""
    if is_quoted(value):
        fraction = re.search(r":\d+\.(\d+)", value.name)
        return min(len(fraction[1]), 6) if fraction is not None else 0
    kind = type_of(value)
    return (fraction_digits(kind) or 0) if kind is not None and is_time(kind) else 0


def arguments_of(node: exp.Expr) -> list[exp.Expr]:
    """Returns the arguments of a function or operator, in their order."""
    found: list[exp.Expr] = []
    for name in node.arg_types:
        value = node.args.get(name)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, exp.Expr)]
        elif isinstance(value, exp.Expr):
            found.append(value)
    return found


def function_name(node: exp.Expr) -> str:
    """Returns the name of a call in lower case, or of a class of sqlglot that stands for one."""
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else str(node.key)


def has_known_result(name: str) -> bool:
    """Returns whether the type of a function's result can be found."""
    patterns = (_UNIT_ADD, _UNIT_DIFF, _ROUNDED)
    return name in _RESULTS or name in _RULES or any(pattern.fullmatch(name) for pattern in patterns)


class _ValueTypes(TypeSearch[str]):
    """Finds the types of values; notes of types that were found before count."""

    def of(self, node: exp.Expr | None) -> str | None:
        noted = type_of(node)
        if noted is not None or node is None or not _may_be_known(node):
            return noted
        return super().of(node)

    def find(self, node: exp.Expr) -> str | None:
        if isinstance(node, exp.Column):
            return self.column(node) if not isinstance(node.this, exp.Star) else None
        name = function_name(node)
        rule = _RULES.get(name)
        if rule is not None:
            return rule(self, node)
        return _RESULTS.get(name) or _by_pattern(self, node, name)

    def stored(self, kind: ColumnType) -> str | None:
        return column_value_type(kind)

    def common(self, kinds: Sequence[str | None]) -> str | None:
        return widest(kinds)

    def arguments(self, node: exp.Expr) -> list[str | None]:
        return [self.of(argument) for argument in arguments_of(_distinct_of(node))]


def _may_be_known(node: exp.Expr) -> bool:
    """Returns whether there is a way to find the type of a node; most nodes of a tree are no values."""
    return isinstance(node, (exp.Column, exp.Anonymous)) or node.key in _RULES or node.key in _RESULTS


def _distinct_of(node: exp.Expr) -> exp.Expr:
    """Returns the DISTINCT of an aggregate, or the node itself."""
    return node.this if isinstance(node.this, exp.Distinct) else node


def _by_pattern(types: _ValueTypes, node: exp.Expr, name: str) -> str | None:
    added = _UNIT_ADD.fullmatch(name)
    if added is not None:
        return _unit_added(types, node, added[1].upper())
    if _UNIT_DIFF.fullmatch(name):
        return "BIGINT"
    rounded = _ROUNDED.fullmatch(name)
    return _rounded(types, node, rounded[1].upper()) if rounded is not None else None


def _unit_added(types: _ValueTypes, node: exp.Expr, unit: str) -> str | None:
    """Returns the type of `days_add(moment, count)` and its like."""
    return _moved(_moment_type(types, node.expressions[0]), unit) if node.expressions else None


def _rounded(types: _ValueTypes, node: exp.Expr, unit: str) -> str:
    """Returns the type of `day_floor` and its like: a DATE stays one in steps of days and more."""
    if unit == "DATE":
        unit = _interval_unit(node.expressions[1]) if len(node.expressions) > 1 else "DAY"
    return "DATE" if _as_first(types, node) == "DATE" and unit not in _BELOW_A_DAY else "DATETIME"


def _moment_type(types: _ValueTypes, moment: exp.Expr) -> str | None:
    """Returns the type of a value that an interval is added to: a date in quotes is a DATE."""
    return "DATE" if is_iso_date(moment) else types.of(moment)


def _moved(kind: str | None, unit: str) -> str | None:
    """Returns the type of a moment to which an interval is added."""
    if kind is None or kind == NULL:
        return None
    digits = _BELOW_A_DAY.get(unit)
    if kind == "DATE":
        return "DATE" if digits is None else datetime_of(digits)
    own = fraction_digits(kind) if is_time(kind) else None
    return ANY_TIME if own is None else datetime_of(max(own, digits or 0))


def _interval_unit(node: exp.Expr | None) -> str:
    unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
    return unit.name.upper() if unit is not None else "DAY"


def _added(types: _ValueTypes, node: exp.Expr) -> str | None:
    """Returns the type of `a + b` and `a - b`."""
    for moment, interval in ((node.this, node.expression), (node.expression, node.this)):
        if isinstance(interval, exp.Interval):
            return _moved(_moment_type(types, moment), _interval_unit(interval))
    return _computed(types, node)


def _computed(types: _ValueTypes, node: exp.Expr) -> str | None:
    """Returns the type of arithmetic: BIGINT, LARGEINT, DECIMAL or DOUBLE."""
    kinds = {"BIGINT" if is_time(kind) else kind for kind in types.arguments(node)} - {NULL}
    if kinds & TEXTS or kinds & {"FLOAT", "DOUBLE"}:
        return "DOUBLE" if all(kind in NUMBERS | TEXTS for kind in kinds) else None
    if not kinds or not kinds <= NUMBERS:
        return None
    return next((kind for kind in ("DECIMAL", "LARGEINT") if kind in kinds), "BIGINT")


def _divided(types: _ValueTypes, node: exp.Expr) -> str | None:
    kinds = types.arguments(node)
    if not all(kind in NUMBERS | TEXTS or is_time(kind) for kind in kinds):
        return None
    is_decimal = "DECIMAL" in kinds and not {"FLOAT", "DOUBLE", *TEXTS}.intersection(map(str, kinds))
    return "DECIMAL" if is_decimal else "DOUBLE"


def _divided_whole(types: _ValueTypes, node: exp.Expr) -> str | None:
    kinds = types.arguments(node)
    if not all(kind in NUMBERS | TEXTS or is_time(kind) for kind in kinds):
        return None
    return "LARGEINT" if "LARGEINT" in kinds else "BIGINT"


def _as_number(types: _ValueTypes, node: exp.Expr) -> str | None:
    """Returns the type of a function that keeps the type of a number, and reads text as DOUBLE."""
    kind = next(iter(types.arguments(node)), None)
    if kind in TEXTS:
        return "DOUBLE"
    if is_time(kind):
        return "BIGINT"
    return kind if kind in NUMBERS or kind == NULL else None


def _total(types: _ValueTypes, node: exp.Expr) -> str | None:
    kind = _as_number(types, node)
    if kind in INTEGERS or kind == "BOOLEAN":
        return "LARGEINT" if kind == "LARGEINT" else "BIGINT"
    return "DOUBLE" if kind == "FLOAT" else kind


def _average(types: _ValueTypes, node: exp.Expr) -> str | None:
    kind = next(iter(types.arguments(node)), None)
    return "DECIMAL" if kind == "DECIMAL" else "DOUBLE"


def _as_first(types: _ValueTypes, node: exp.Expr) -> str | None:
    return next(iter(types.arguments(node)), None)


def _text_as_first(types: _ValueTypes, node: exp.Expr) -> str | None:
    kind = _as_first(types, node)
    return "STRING" if kind in TEXTS | NUMBERS or is_time(kind) else None


def _literal(_types: _ValueTypes, node: exp.Expr) -> str:
    text = str(node.this)
    if node.is_string:
        return "STRING"
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        return "DOUBLE"
    if "." in text:
        return "DECIMAL" if len(text) <= 39 else "DOUBLE"
    sizes = ("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT")
    return next((name for name in sizes if int(text) <= INTEGER_RANGES[name][1]), "DOUBLE")


def _cast(_types: _ValueTypes, node: exp.Expr) -> str | None:
    to = node.args["to"]
    name = to.this.name if isinstance(to.this, exp.DataType.Type) else str(to.this)
    if name in ("TIMESTAMPTZ", "DATETIME", "TIMESTAMP"):
        digits = to.expressions[0].name if to.expressions else "0"
        return datetime_of(min(int(digits), 6)) if digits.isdigit() else None
    name = _CAST_TYPES.get(name, name)
    return name if name in NUMBERS | TEXTS or name == "DATE" else None


def branches_of(node: exp.Expr) -> list[exp.Expr]:
    """Returns the expressions of which one is the value of the node."""
    if isinstance(node, exp.If):
        found = [node.args.get("true"), node.args.get("false")]
    elif isinstance(node, exp.Case):
        found = [branch.args.get("true") for branch in node.args.get("ifs") or []]
        found.append(node.args.get("default"))
    elif isinstance(node, exp.Anonymous):  # elt
        found = list(node.expressions[1:])
    else:
        found = [node.this, *node.expressions]
    return [branch for branch in found if branch is not None]


def _branches(types: _ValueTypes, node: exp.Expr) -> str | None:
    branches = branches_of(node)
    return branch_type(branches, [types.of(branch) for branch in branches])


def _now(_types: _ValueTypes, node: exp.Expr) -> str | None:
    given = arguments_of(node) if not isinstance(node, exp.Anonymous) else node.expressions
    digits = given[0].name if given and isinstance(given[0], exp.Literal) else "0"
    return datetime_of(int(digits)) if digits.isdigit() and int(digits) <= 6 else None


def _date_added(types: _ValueTypes, node: exp.Expr) -> str | None:
    if len(node.expressions) != 2:
        return None
    moment, interval = node.expressions
    return _moved(_moment_type(types, moment), _interval_unit(interval))


def _timestamp_added(types: _ValueTypes, node: exp.Expr) -> str | None:
    if len(node.expressions) != 3:
        return None
    return _moved(_moment_type(types, node.expressions[2]), node.expressions[0].name.upper())


def _truncated(types: _ValueTypes, node: exp.Expr) -> str | None:
    kinds = types.arguments(node)
    if None in kinds:
        return None
    return "DATE" if "DATE" in kinds else "DATETIME"


def _epoch(_types: _ValueTypes, node: exp.Expr) -> str:
    has_digits = len(node.expressions) == 1 and epoch_digits(node.expressions[0])
    return "DECIMAL" if has_digits else "BIGINT"


def _converted_zone(types: _ValueTypes, node: exp.Expr) -> str | None:
    kind = _as_first(types, node)
    return kind if kind is not None and is_time(kind) and kind != "DATE" else ANY_TIME


def _parsed_date(_types: _ValueTypes, node: exp.Expr) -> str | None:
    wanted = node.expressions[1] if len(node.expressions) == 2 else None
    if wanted is None or not is_quoted(wanted):
        return None
    if "%f" in wanted.name:
        return "DATETIME(6)"
    has_time = re.search(r"%[HhIiklrSsTp]|HH|mm:ss", wanted.name)
    return "DATETIME" if has_time else "DATE"


def _element(types: _ValueTypes, node: exp.Expr) -> str | None:
    """Returns the type of `array[i]`, of which only arrays of plain values have a known one."""
    kind = _as_first(types, node)
    inner = re.fullmatch(r"ARRAY<(\w+)(\(\d+\))?>", kind or "")
    if inner is None:
        return None
    return inner[0][6:-1] if inner[1] == "DATETIME" else inner[1]


def _words(text: str) -> list[str]:
    return text.split()


_Rule = Callable[[_ValueTypes, exp.Expr], "str | None"]
# By the name of a call or the key of sqlglot's class.
_RULES: Final[dict[str, _Rule]] = {
    **dict.fromkeys(
        _words(
            """
            alias any_value anyvalue distinct filter first first_value firstvalue ignorenulls lag last
            last_value
            lastvalue lead max min nthvalue nullif order ordered paren respectnulls window withingroup
            """
        ),
        _as_first,
    ),
    **dict.fromkeys(
        _words(
            """
            abs ceil dceil dfloor dround even floor neg negative positive round round_bankers trunc truncate
            """
        ),
        _as_number,
    ),
    **dict.fromkeys(
        _words(
            """
            bitand bitnot bitor bitwiseand bitwisenot bitwiseor bitwisexor bitxor group_bit_and group_bit_or
            group_bit_xor
            """
        ),
        _divided_whole,
    ),
    **dict.fromkeys(_words("bitwiseleftshift bitwiserightshift fmod gcd lcm mod mul pmod"), _computed),
    **dict.fromkeys(("add", "sub"), _added),
    **dict.fromkeys(("multi_distinct_sum", "sum", "sum0"), _total),
    **dict.fromkeys(("coalesce", "if", "case", "greatest", "least", "elt"), _branches),
    **dict.fromkeys(
        _words(
            """
            current_timestamp currentdatetime currenttimestamp localtime localtimestamp now sysdate
            utc_timestamp
            """
        ),
        _now,
    ),
    **dict.fromkeys(("adddate", "date_add", "subdate", "date_sub"), _date_added),
    **dict.fromkeys(("cast", "trycast"), _cast),
    **dict.fromkeys(("bracket", "element_at"), _element),
    "add_months": lambda types, node: _unit_added(types, node, "MONTH"),
    "avg": _average,
    "convert_tz": _converted_zone,
    "date_trunc": _truncated,
    "div": _divided,
    "intdiv": _divided_whole,
    "literal": _literal,
    "null": lambda _types, _node: NULL,
    "reverse": _text_as_first,
    "str_to_date": _parsed_date,
    "subquery": lambda types, node: types.scalar_subquery(node),
    "timestamp": lambda _types, _node: ANY_TIME,
    "timestampadd": _timestamp_added,
    "unix_timestamp": _epoch,
}  # fmt: skip
