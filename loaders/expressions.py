"""Expressions of load headers, evaluated by DuckDB over the rows of a batch.

The parser of the SQL front reads the text, which is then checked, translated to Doris's meaning and rendered.
Nothing of it reaches DuckDB as it was written. Fields of CSV and JSON are text, and are converted where an
operator or function takes a number or a time (sql.translate.implicit). An expression that fails for a row is
NULL for that row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime import memory_limit
from seqstore.store.sql.evaluate.connections import MemoryShare, QueryConnection, common_bytes
from seqstore.store.sql.parse.nesting import levels_checked
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.tokens import TokenStream, split_statements
from seqstore.store.sql.translate.calls import EvaluationContext
from seqstore.store.sql.translate.conversions import TEXT_NUMBER, as_text
from seqstore.store.sql.translate.source_table import source_name
from seqstore.store.sql.translate.translate import check, render, translate
from seqstore.store.sql.translate.value_types import TEXTS, column_value_type, is_time, note, type_of
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType

if TYPE_CHECKING:
    from seqstore.store.sql.evaluate import duck

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
    """Returns the tree with resolved names, and with the types of the fields that they stand for.

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
    return root


def _reference(field: Field) -> exp.Expr:
    reference = exp.column(field.column, quoted=True)
    reference.meta[TEXT_NUMBER] = _number_type(field.meaning)
    return note(reference, column_value_type(field.type) if field.type else "STRING")


class Evaluator:
    """Evaluates bound expressions over batches of one shape.

    Args:
        around: the moment of the load, in its time zone.
        expressions: bound ones.
        targets: the types of the columns that store their values, None for a condition.
        memory_bytes: DuckDB's for them, 0 for that which all queries share.
    """

    def __init__(
        self,
        around: EvaluationContext,
        expressions: Sequence[exp.Expr],
        targets: Sequence[ColumnType | None] = (),
        *,
        memory_bytes: int = 0,
    ) -> None:
        select = exp.select(
            *(exp.alias_(tree.copy(), f"e{i}", quoted=True) for i, tree in enumerate(expressions))
        )
        with levels_checked():
            check(select)
            translate(select, around, _no_variables)
        for item, target in zip_longest(select.expressions, targets):
            if target is not None and target.name in TEXTS and is_time(type_of(item.this)):
                item.set("this", as_text(item.this))
            if item.find(*_VOLATILE) is None:
                item.set("this", exp.Anonymous(this="try", expressions=[item.this]))
        self._select = select
        self._zone = around.moment.zone
        self._named = {column.name for column in select.find_all(exp.Column)}
        shared = common_bytes() or memory_limit.limit_bytes()
        name = f"load {id(self)}"
        share = MemoryShare(name, memory_bytes, is_private=True) if 0 < memory_bytes < shared else None
        self._connection = QueryConnection(lambda: share)
        self._sql: str | None = None

    def __call__(self, rows: pa.Table) -> list[pa.Array]:
        """Evaluates the expressions: one array for each, as long as the rows.

        Raises:
            InvalidInputError: DuckDB refuses the expression for these types.
        """
        from seqstore.store.sql.evaluate import duck  # imports DuckDB

        names = [name for name in rows.schema.names if name in self._named] or rows.schema.names[:1]
        rows = rows.select(names)
        source = duck.Source(
            rows.schema, lambda: pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
        )
        if self._sql is None:
            self._sql = self._rendered(source)
        try:
            connection = self._connection.get()
            sources = {source_name(0): source}
            memory_limit.wait_for_room()
            reader, close = duck.run(connection, self._sql, sources, has_largeint=True, zone=self._zone)
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


def _number_type(meaning: ColumnType | None) -> str:
    """Returns the type that a text is computed with: that of the table's column where there is one."""
    if meaning is None:
        return "DOUBLE"
    if meaning.name in INTEGER_RANGES:
        return "INT128"
    if meaning.name == "DECIMAL" and meaning.params[0] <= 38:
        return f"DECIMAL({meaning.params[0]},{meaning.params[1]})"
    return "DOUBLE"
