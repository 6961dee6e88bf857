"""Expressions of load headers, evaluated by DuckDB over the rows of a batch.

The parser of the SQL front reads the text, which is then checked, translated to Doris's meaning and rendered.
Nothing of it reaches DuckDB as it was written. Fields of CSV and JSON are text, and Doris computes with text
that looks like numbers. So a text in the place of a number is converted, to NULL when it is none. An
expression that fails for a row is NULL for that row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.evaluate import duck
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.tokens import TokenStream, split_statements
from seqstore.store.sql.translate.calls import EvaluationContext
from seqstore.store.sql.translate.translate import check, render, source_name, translate
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType

_NUMBER, _TEXT, _TIME, _STRING = "number", "text", "time", "string"  # a string is a literal, of either kind
_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow)
_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_OF_NUMBERS: Final = (exp.Abs, exp.Ceil, exp.Exp, exp.Floor, exp.Ln, exp.Neg, exp.Round, exp.Sign, exp.Sqrt)
_OF_NUMBERS_BY_NAME: Final = frozenset(
    ["from_unixtime", "log", "mod", "truncate", "dround", "dpow", "fmod", "pmod"]
)
_TEXTS: Final = (
    exp.Concat,
    exp.ConcatWs,
    exp.Left,
    exp.Lower,
    exp.MD5,
    exp.Pad,
    exp.RegexpReplace,
    exp.Repeat,
    exp.Replace,
    exp.Right,
    exp.SHA,
    exp.Substring,
    exp.Trim,
    exp.Upper,
)
_TEXTS_BY_NAME: Final = frozenset(
    [
        "concat_ws",
        "date_format",
        "from_unixtime",
        "get_json_string",
        "hex",
        "json_unquote",
        "lcase",
        "left",
        "regexp_extract",
        "regexp_replace",
        "right",
        "space",
        "split_part",
        "strleft",
        "strright",
        "substring_index",
        "ucase",
        "unhex",
    ]
)
_NUMBERS_BY_NAME: Final = frozenset(
    [
        "char_length",
        "character_length",
        "datediff",
        "day",
        "dayofmonth",
        "dayofweek",
        "dayofyear",
        "find_in_set",
        "get_json_bigint",
        "get_json_double",
        "get_json_int",
        "hour",
        "instr",
        "length",
        "locate",
        "microsecond",
        "minute",
        "mod",
        "month",
        "pmod",
        "quarter",
        "second",
        "timestampdiff",
        "to_days",
        "truncate",
        "unix_timestamp",
        "week",
        "weekday",
        "weekofyear",
        "year",
    ]
)
_VOLATILE: Final = (exp.Rand, exp.Uuid)


@dataclass(frozen=True)
class Field:
    """A column that expressions may name.

    Attributes:
        column: its name in the rows that are evaluated.
        type: of its values; None for unconverted text.
        meaning: for such text, the type of the table's column of that name, which determines the number
            type of the text.
    """

    column: str
    type: ColumnType | None = None
    meaning: ColumnType | None = None


Resolve = Callable[[str], "Field | exp.Expr"]


def tokens(text: str, header: str) -> TokenStream:
    """Returns the tokens of a header's text.

    Raises:
        InvalidInputError: nothing there, or more than one statement.
    """
    try:
        streams = split_statements(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"{header}: {error.message}", kind="bad_header") from error
    if len(streams) != 1 or ";" in text[streams[0].tokens[-1].end + 1 :]:
        raise InvalidInputError(f"{header}: expected one expression, found {text[:200]!r}", kind="bad_header")
    return streams[0]


def parse(text: str, header: str) -> exp.Expr:
    """Returns a header that is one expression.

    Raises:
        InvalidInputError: not an expression; names the header.
    """
    stream = tokens(text, header)
    try:
        return stream.rest()
    except InvalidInputError as error:
        raise InvalidInputError(f"{header}: {error.message}", kind="bad_header") from error


def bind(tree: exp.Expr, resolve: Resolve, header: str) -> exp.Expr:
    """Returns the tree with resolved names, and with texts converted in the places of numbers and times.

    Raises:
        InvalidInputError: a name that is not known, or something that is no expression over one row.
    """
    root = exp.Paren(this=tree.copy())
    for node in root.walk():
        if isinstance(
            node, (exp.Query, exp.AggFunc, exp.Window, exp.Star, exp.Parameter, exp.SessionParameter)
        ):
            raise InvalidInputError(
                f"{header}: only expressions over one row are allowed, found {node.sql('doris')[:80]!r}",
                kind="bad_header",
            )
    for column in list(root.find_all(exp.Column)):
        if column.table:
            raise InvalidInputError(
                f"{header}: name columns without their table, found {column.sql('doris')!r}",
                kind="bad_header",
            )
        found = resolve(column.name)
        column.replace(_reference(found) if isinstance(found, Field) else found.copy())
    for node in reversed(list(root.walk(bfs=True))):
        _convert(node)
    return root


def _reference(field: Field) -> exp.Expr:
    reference = exp.column(field.column, quoted=True)
    reference.meta["kind"] = _kind_of_type(field.type) if field.type else _TEXT
    reference.meta["number"] = _number_type(field.meaning)
    return reference


class Evaluator:
    """Evaluates bound expressions over batches of one shape.

    Args:
        around: the moment of the load, in its time zone.
        expressions: bound ones.
    """

    def __init__(self, around: EvaluationContext, expressions: Sequence[exp.Expr]) -> None:
        select = exp.select(
            *(exp.alias_(tree.copy(), f"e{i}", quoted=True) for i, tree in enumerate(expressions))
        )
        check(select)
        translate(select, around, _no_variables)
        for item in select.expressions:
            if item.find(*_VOLATILE) is None:
                item.set("this", exp.Anonymous(this="try", expressions=[item.this]))
        self._select = select
        self._named = {column.name for column in select.find_all(exp.Column)}
        self._connection = duck.connect()
        self._sql: str | None = None

    def __call__(self, rows: pa.Table) -> list[pa.Array]:
        """Evaluates the expressions: one array for each, as long as the rows.

        Raises:
            InvalidInputError: DuckDB refuses the expression for these types.
        """
        names = [name for name in rows.schema.names if name in self._named] or rows.schema.names[:1]
        rows = rows.select(names)
        source = duck.Source(
            rows.schema, lambda: pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
        )
        if self._sql is None:
            self._sql = self._rendered(source)
        try:
            reader, close = duck.run(self._connection, self._sql, {source_name(0): source}, has_largeint=True)
            try:
                table = reader.read_all()
            finally:
                close()
        except InvalidInputError as error:
            raise InvalidInputError(
                f"the expressions of columns, where and delete: {error.message}", kind="bad_header"
            ) from error
        return [_one_array(column) for column in table.columns]

    def close(self) -> None:
        self._connection.close()

    def _rendered(self, source: duck.Source) -> str:
        table = exp.Table(
            this=exp.to_identifier(source_name(0), quoted=True),
            db=exp.to_identifier("main"),
            catalog=exp.to_identifier("temp"),
        )
        wide = set(source.largeint_columns)
        items = [
            exp.alias_(exp.cast(exp.column(name, quoted=True), "INT128"), name, quoted=True)
            if name in wide
            else exp.column(name, quoted=True)
            for name in source.schema.names
        ]
        inner = exp.select(*items).from_(table)
        return render(self._select.from_(inner.subquery("source_rows")))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _no_variables(name: str, _scope: str) -> str | None:
    raise InvalidInputError(f"variable {name!r} cannot be used in a load", kind="bad_header")


# ---------------------------------------------------------------------------------------------- conversions


def _kind_of_type(column_type: ColumnType) -> str:
    if column_type.name in (*INTEGER_RANGES, "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN"):
        return _NUMBER
    return _TIME if column_type.name in ("DATE", "DATETIME") else _TEXT


def _number_type(meaning: ColumnType | None) -> str:
    """Returns the type that a text is computed with: that of the table's column where there is one."""
    if meaning is None:
        return "DOUBLE"
    if meaning.name in INTEGER_RANGES:
        return "INT128"
    if meaning.name == "DECIMAL" and meaning.params[0] <= 38:
        return f"DECIMAL({meaning.params[0]},{meaning.params[1]})"
    return "DOUBLE"


def _kind(node: exp.Expr | None) -> str | None:
    """Returns the kind of an expression's result, None when it is unknown."""
    if node is None:
        return None
    if "kind" in node.meta:
        return str(node.meta["kind"])
    if isinstance(node, exp.Literal):
        return _STRING if node.is_string else _NUMBER
    if isinstance(node, exp.Paren):
        return _kind(node.this)
    if isinstance(node, _ARITHMETIC):
        has_interval = isinstance(node.this, exp.Interval) or isinstance(node.expression, exp.Interval)
        return _TIME if has_interval else _NUMBER
    if isinstance(node, (*_OF_NUMBERS, exp.Length)):
        return _NUMBER
    if isinstance(node, exp.Cast):
        return _kind_of_cast(node)
    if isinstance(node, _TEXTS):
        return _TEXT
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower()
        return _NUMBER if name in _NUMBERS_BY_NAME else _TEXT if name in _TEXTS_BY_NAME else None
    return _kind_of_branches(node)


def _kind_of_cast(node: exp.Cast) -> str | None:
    to = node.args["to"]
    if to.this in (*exp.DataType.NUMERIC_TYPES, exp.DataType.Type.BOOLEAN):
        return _NUMBER
    if to.this in exp.DataType.TEXT_TYPES:
        return _TEXT
    return _TIME if to.this in exp.DataType.TEMPORAL_TYPES else None


def _kind_of_branches(node: exp.Expr) -> str | None:
    kinds = {_kind(branch) for branch in _branches(node)}
    return next((kind for kind in (_TEXT, _STRING, _TIME, _NUMBER) if kind in kinds), None)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """Returns the expressions of which one is the value."""
    branches: list[exp.Expr | None] = []
    if isinstance(node, exp.Coalesce):
        branches = [node.this, *node.expressions]
    elif isinstance(node, exp.If):
        branches = [node.args.get("true"), node.args.get("false")]
    elif isinstance(node, exp.Case):
        branches = [*(branch.args.get("true") for branch in node.args["ifs"]), node.args.get("default")]
    return [branch for branch in branches if branch is not None]


def _convert(node: exp.Expr) -> None:
    if isinstance(node, _ARITHMETIC):
        if not isinstance(node.this, exp.Interval) and not isinstance(node.expression, exp.Interval):
            _to_number(node.this)
            _to_number(node.expression)
    elif isinstance(node, _OF_NUMBERS):
        _to_number(node.this)
    elif isinstance(node, _COMPARISONS):
        _to_common([node.this, node.expression])
    elif isinstance(node, exp.Between):
        _to_common([node.this, node.args["low"], node.args["high"]])
    elif isinstance(node, exp.Nullif):
        _to_common([node.this, node.expression])
    elif isinstance(node, exp.In):
        _to_common([node.this, *node.expressions])
    elif isinstance(node, exp.Case) and node.this is not None:
        _to_common([node.this, *(branch.this for branch in node.args["ifs"])])
        _to_one_type(node)
    elif isinstance(node, (exp.Coalesce, exp.If, exp.Case)):
        _to_one_type(node)
    elif isinstance(node, exp.Anonymous) and str(node.this).lower() in _OF_NUMBERS_BY_NAME:
        _to_number(node.expressions[0] if node.expressions else None)


def _to_number(node: exp.Expr | None) -> None:
    if node is not None and _kind(node) in (_TEXT, _STRING):
        _cast(node, str(node.meta.get("number", "DOUBLE")))


def _to_common(nodes: list[exp.Expr]) -> None:
    """Casts compared values to one kind: numbers, or times, when any of them is."""
    kinds = {_kind(node) for node in nodes}
    if _NUMBER in kinds:
        for node in nodes:
            _to_number(node)
    elif _TIME in kinds:
        for node in nodes:
            if _kind(node) in (_TEXT, _STRING):
                _cast(node, "TIMESTAMP")


def _to_one_type(node: exp.Expr) -> None:
    """Branches of which one is text are all text."""
    branches = _branches(node)
    if _TEXT in {_kind(branch) for branch in branches}:
        for branch in branches:
            if _kind(branch) in (_NUMBER, _TIME):
                _cast(branch, "TEXT")


def _cast(node: exp.Expr, to: str) -> None:
    converted = exp.TryCast(this=node.copy(), to=exp.DataType.build(to))
    converted.meta["kind"] = {"TIMESTAMP": _TIME, "TEXT": _TEXT}.get(to, _NUMBER)
    node.replace(converted)
