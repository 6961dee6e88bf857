"""Databases and tables: CREATE, DROP, USE, DESC and SHOW."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from seqstore.store.ddl.filled_tables import drop_abandoned, filled_table
from seqstore.store.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    ProtocolChangedException,
)
from seqstore.store.schema.column import Column
from seqstore.store.sql.evaluate.select import query_columns
from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.parse.table_parser import (
    CreateTableAs,
    parse_create_table,
    parse_table_name,
    with_nullability,
)
from seqstore.store.sql.parse.tokens import TokenStream, split_statements
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import (
    create_table_text,
    create_view_result,
    describe,
    describe_all,
    matching,
    mysql_table_text,
    parse_database,
    parse_like,
    quoted,
)
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.session.system_tables import DATABASE, system_table_names
from seqstore.store.types.column_types import parse_type


def _parse_create_database(stream: TokenStream) -> st.CreateDatabase:
    return st.CreateDatabase(
        if_not_exists=stream.take("IF", "NOT", "EXISTS"), name=stream.name("a database name")
    )


def _create_database(statement: st.CreateDatabase, session: Session) -> None:
    session.store.create_database(statement.name, if_not_exists=statement.if_not_exists)


def _parse_drop_database(stream: TokenStream) -> st.DropDatabase:
    database = st.DropDatabase(if_exists=stream.take("IF", "EXISTS"), name=stream.name("a database name"))
    stream.take("FORCE")
    return database


def _drop_database(statement: st.DropDatabase, session: Session) -> None:
    session.store.drop_database(statement.name, if_exists=statement.if_exists)
    if session.database == statement.name:
        session.database = None


def _require_database(name: str, session: Session) -> None:
    if name not in [*session.store.databases(), DATABASE]:
        raise NotFoundError(f"Unknown database '{name}'", kind="unknown_database", database=name)


def _use(statement: st.UseDatabase, session: Session) -> None:
    _require_database(statement.name, session)
    session.database = statement.name


def _show_databases(statement: st.ShowDatabases, session: Session) -> Result:
    found = sorted([*session.visible_databases(), DATABASE])
    return text_rows(["Database"], [(name,) for name in matching(found, statement.like)])


def _show_create_database(statement: st.ShowCreateDatabase, session: Session) -> Result:
    _require_database(statement.name, session)
    clause = "/*!32312 IF NOT EXISTS*/ " if statement.if_not_exists else ""
    text = f"CREATE DATABASE {clause}{quoted(statement.name)}"
    return text_rows(["Database", "Create Database"], [(statement.name, text)])


def _create(statement: st.CreateTable, session: Session) -> None:
    name = session.full_name(statement.table)
    schema = statement.schema
    if session.store.settings.columns_not_null_by_default:
        columns = [
            with_nullability(column, None, not_null=True) if column.name in statement.bare else column
            for column in schema.columns
        ]
        schema = replace(schema, columns=tuple(columns))
    session.store.create_table(name, schema, if_not_exists=statement.if_not_exists)


def _parse_drop(stream: TokenStream) -> st.DropTable:
    if_exists = stream.take("IF", "EXISTS")
    first, *others = stream.listed(parse_table_name)
    stream.take_one_of("FORCE", "RESTRICT", "CASCADE")
    return st.DropTable(first, if_exists, tuple(others))


def _drop(statement: st.DropTable, session: Session) -> None:
    tables = [statement.table, *statement.other_tables]
    session.store.drop_tables(map(session.full_name, tables), if_exists=statement.if_exists)


def _parse_describe(stream: TokenStream) -> st.Describe:
    stream.take("TABLE")
    return st.Describe(parse_table_name(stream), stream.take("ALL"))


def _describe(statement: st.Describe, session: Session) -> Result:
    schema = session.schema(statement.table)
    if statement.is_all:
        return describe_all(statement.table.name, schema)
    return describe(schema, show_hidden=names.SHOW_HIDDEN_COLUMNS in session.variables.on)


def _parse_show_tables(stream: TokenStream) -> st.ShowTables:
    return st.ShowTables(parse_database(stream), parse_like(stream), stream.tokens[1].text.upper() == "FULL")


def _show_tables(statement: st.ShowTables, session: Session) -> Result:
    database = statement.database or session.current_database()
    is_system = database.lower() == DATABASE
    kinds = dict.fromkeys(system_table_names(), "SYSTEM VIEW")
    if not is_system:
        kinds = dict.fromkeys(session.store.tables(database), "BASE TABLE")
        kinds |= {view.name: "VIEW" for view in session.store.views.of(database)}
        sees = session.table_filter()
        kinds = {name: kind for name, kind in kinds.items() if sees(database, name)}
    found = matching(sorted(kinds), statement.like)
    heading = f"Tables_in_{database}"
    if statement.is_full:
        return text_rows([heading, "Table_type"], [(name, kinds[name]) for name in found])
    return text_rows([heading], [(name,) for name in found])


def _show_create(statement: st.ShowCreateTable, session: Session) -> Result:
    database, _, name = session.full_name(statement.table).partition(".")
    view = session.store.views.find(database, name)
    if view is not None:
        return create_view_result(view)
    schema = session.table(statement.table).schema
    is_mysql = session.variables.get(names.SHOW_CREATE_STYLE) == "mysql"
    text = mysql_table_text(name, schema) if is_mysql else create_table_text(name, schema)
    return text_rows(["Table", "Create Table"], [(name, text)])


_KEY_TEXT: Final = parse_type("VARCHAR(65533)")


@dataclass(frozen=True)
class CreateTableLike:
    """CREATE TABLE t LIKE source."""

    table: st.TableName
    source: st.TableName
    if_not_exists: bool = False


def _parse_create_like(stream: TokenStream) -> CreateTableLike:
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
    assert isinstance(made, st.CreateTable)
    name = session.full_name(statement.table)
    session.store.create_table(name, made.schema, if_not_exists=statement.if_not_exists)


def _create_as(statement: CreateTableAs, session: Session) -> Result:
    """Creates the table, inserts the rows at once, and drops the table when that fails."""
    name = session.full_name(statement.table)
    database, _, table = name.partition(".")
    drop_abandoned(session.store.catalog)
    if statement.if_not_exists and table in session.store.tables(database):
        return Result()
    with session.query_context() as context:
        found = query_columns(statement.query, context)
    names = statement.names or tuple(column.name for column in found)
    if len(names) != len(found):
        raise InvalidInputError(
            f"expected {len(found)} column names, as many as the query has, found {len(names)}",
            kind="column_count",
        )
    key = {column.lower() for column in statement.options.key or statement.options.duplicate_key or names[:1]}
    columns = [
        _column_of(given, column, given.lower() in key) for given, column in zip(names, found, strict=True)
    ]
    with ExitStack() as filled:
        try:
            filled.enter_context(filled_table(session.store, name, statement.options.schema(columns)))
        except (AlreadyExistsError, ProtocolChangedException):  # by another session, since the look above
            if statement.if_not_exists:
                return Result()
            raise
        return session.run(st.Insert(statement.table, None, query=statement.query))


def _column_of(name: str, column: Column, is_key: bool) -> Column:
    kind = _KEY_TEXT if is_key and column.type.name == "STRING" else column.type
    return Column(name, kind, nullable=True)


KINDS: Final = (
    StatementKind(
        ("CREATE DATABASE", "CREATE SCHEMA"), st.CreateDatabase, _parse_create_database, _create_database
    ),
    StatementKind(("DROP DATABASE", "DROP SCHEMA"), st.DropDatabase, _parse_drop_database, _drop_database),
    StatementKind(
        ("USE",), st.UseDatabase, lambda stream: st.UseDatabase(stream.dotted_name("database name")[-1]), _use
    ),
    StatementKind(
        ("SHOW CREATE DATABASE", "SHOW CREATE SCHEMA"),
        st.ShowCreateDatabase,
        lambda stream: st.ShowCreateDatabase(
            if_not_exists=stream.take("IF", "NOT", "EXISTS"), name=stream.name("a database name")
        ),
        _show_create_database,
    ),
    StatementKind(
        ("SHOW DATABASES", "SHOW SCHEMAS"),
        st.ShowDatabases,
        lambda stream: st.ShowDatabases(parse_like(stream)),
        _show_databases,
    ),
    StatementKind(("CREATE TABLE",), st.CreateTable, parse_create_table, _create),
    StatementKind(("DROP TABLE",), st.DropTable, _parse_drop, _drop),
    StatementKind(("DESC", "DESCRIBE"), st.Describe, _parse_describe, _describe),
    StatementKind(("SHOW TABLES", "SHOW FULL TABLES"), st.ShowTables, _parse_show_tables, _show_tables),
    StatementKind(
        ("SHOW CREATE TABLE",),
        st.ShowCreateTable,
        lambda stream: st.ShowCreateTable(parse_table_name(stream)),
        _show_create,
    ),
    StatementKind(
        ("CREATE TABLE * LIKE", "CREATE TABLE IF NOT EXISTS * LIKE"),
        CreateTableLike,
        _parse_create_like,
        _create_like,
    ),
    # Without a column list; with one, the parser of CREATE TABLE reads AS.
    StatementKind(("CREATE TABLE * AS",), CreateTableAs, parse_create_table, _create_as),
)
