"""CREATE TABLE .. LIKE and CREATE TABLE .. AS: the schema of another table, or of a query's result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError, StoreError
from seqstore.store.schema.column import Column
from seqstore.store.sql.parse.statement_values import CreateTable, Insert, TableName
from seqstore.store.sql.parse.table_parser import CreateTableAs, parse_create_table, parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream, split_statements
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import create_table_text
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.types.column_types import parse_type, type_from_arrow

_KEY_TEXT: Final = parse_type("VARCHAR(65533)")


@dataclass(frozen=True)
class CreateTableLike:
    """CREATE TABLE t LIKE source."""

    table: TableName
    source: TableName
    if_not_exists: bool = False


def _parse_like(stream: TokenStream) -> CreateTableLike:
    if_not_exists = stream.word(-1) == "EXISTS"
    table = parse_table_name(stream)
    stream.need("LIKE")
    source = parse_table_name(stream)
    if stream.take("WITH"):
        stream.need("ROLLUP")  # without effect: no table has rollups
    return CreateTableLike(table, source, if_not_exists)


def _create_like(statement: CreateTableLike, session: Session) -> None:
    """Parses the text of SHOW CREATE TABLE, so that column ids and history begin anew."""
    text = create_table_text(statement.table.name, session.table(statement.source).schema)
    (stream,) = split_statements(text)
    stream.need("CREATE", "TABLE")
    made = parse_create_table(stream)
    assert isinstance(made, CreateTable)
    name = session.full_name(statement.table)
    session.store.create_table(name, made.schema, if_not_exists=statement.if_not_exists)


def _create_as(statement: CreateTableAs, session: Session) -> Result:
    """Creates the table, inserts the rows at once, and drops the table when that fails."""
    name = session.full_name(statement.table)
    database, _, table = name.partition(".")
    if statement.if_not_exists and table in session.store.tables(database):
        return Result()
    with session.stream(statement.query) as reader:
        schema = reader.schema
    names = statement.names or tuple(schema.names)
    if len(names) != len(schema):
        raise InvalidInputError(
            f"expected {len(schema)} column names, as many as the query has, found {len(names)}",
            kind="column_count",
        )
    key = {column.lower() for column in statement.options.key}
    columns = [
        _column(given, field, given.lower() in key) for given, field in zip(names, schema, strict=True)
    ]
    session.store.create_table(name, statement.options.schema(columns))
    try:
        return session.run(Insert(statement.table, None, query=statement.query))
    except StoreError:
        session.store.drop_table(name, if_exists=True)
        raise


def _column(name: str, field: pa.Field, is_key: bool) -> Column:
    is_text = pa.types.is_string(field.type)
    kind = _KEY_TEXT if is_key and is_text else type_from_arrow(field.type)
    return Column(name, kind, nullable=True)


KINDS: Final = (
    StatementKind(
        ("CREATE TABLE * LIKE", "CREATE TABLE IF NOT EXISTS * LIKE"),
        CreateTableLike,
        _parse_like,
        _create_like,
    ),
    # Without a column list; with one, the parser of CREATE TABLE reads AS.
    StatementKind(("CREATE TABLE * AS",), CreateTableAs, parse_create_table, _create_as),
)
