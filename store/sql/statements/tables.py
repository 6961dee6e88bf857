"""CREATE TABLE and DROP TABLE; DESC, SHOW TABLES and SHOW CREATE TABLE."""

from __future__ import annotations

from typing import Final

from seqstore.store.sql.parse.statement_values import (
    CreateTable,
    Describe,
    DropTable,
    ShowCreateTable,
    ShowTables,
)
from seqstore.store.sql.parse.table_parser import parse_create_table, parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import (
    create_table_text,
    describe,
    describe_all,
    matching,
    parse_database,
    parse_like,
)
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.session.system_tables import DATABASE, system_table_names


def _create(statement: CreateTable, session: Session) -> None:
    name = session.full_name(statement.table)
    session.store.create_table(name, statement.schema, if_not_exists=statement.if_not_exists)


def _parse_drop(stream: TokenStream) -> DropTable:
    if_exists = stream.take("IF", "EXISTS")
    table = DropTable(parse_table_name(stream), if_exists)
    stream.take("FORCE")
    return table


def _drop(statement: DropTable, session: Session) -> None:
    session.store.drop_table(session.full_name(statement.table), if_exists=statement.if_exists)


def _parse_describe(stream: TokenStream) -> Describe:
    stream.take("TABLE")
    return Describe(parse_table_name(stream), stream.take("ALL"))


def _describe(statement: Describe, session: Session) -> Result:
    schema = session.schema(statement.table)
    if statement.is_all:
        return describe_all(statement.table.name, schema)
    return describe(schema, show_hidden=session.variables.flag(names.SHOW_HIDDEN_COLUMNS))


def _parse_show(stream: TokenStream) -> ShowTables:
    return ShowTables(parse_database(stream), parse_like(stream), stream.tokens[1].text.upper() == "FULL")


def _show(statement: ShowTables, session: Session) -> Result:
    database = statement.database or session.current_database()
    is_system = database.lower() == DATABASE
    found = matching(system_table_names() if is_system else session.store.tables(database), statement.like)
    heading = f"Tables_in_{database}"
    if statement.is_full:
        return text_rows(
            [heading, "Table_type"], [(name, "SYSTEM VIEW" if is_system else "BASE TABLE") for name in found]
        )
    return text_rows([heading], [(name,) for name in found])


def _show_create(statement: ShowCreateTable, session: Session) -> Result:
    schema = session.table(statement.table).schema
    name = statement.table.name
    return text_rows(["Table", "Create Table"], [(name, create_table_text(name, schema))])


KINDS: Final = (
    StatementKind(("CREATE TABLE",), CreateTable, parse_create_table, _create),
    StatementKind(("DROP TABLE",), DropTable, _parse_drop, _drop),
    StatementKind(("DESC", "DESCRIBE"), Describe, _parse_describe, _describe),
    StatementKind(("SHOW TABLES", "SHOW FULL TABLES"), ShowTables, _parse_show, _show),
    StatementKind(
        ("SHOW CREATE TABLE",),
        ShowCreateTable,
        lambda stream: ShowCreateTable(parse_table_name(stream)),
        _show_create,
    ),
)
