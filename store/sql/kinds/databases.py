"""CREATE, DROP, USE and SHOW of databases."""

from __future__ import annotations

from typing import Final

from store.errors import NotFoundError
from store.sql.result import Result, text_rows
from store.sql.session import Session
from store.sql.show import matching, parse_like
from store.sql.statement_kind import StatementKind
from store.sql.statements import CreateDatabase, DropDatabase, ShowDatabases, UseDatabase
from store.sql.tokens import TokenStream


def _parse_create(stream: TokenStream) -> CreateDatabase:
    if_not_exists = stream.take("IF", "NOT", "EXISTS")
    return CreateDatabase(stream.name("a database name"), if_not_exists)


def _create(statement: CreateDatabase, session: Session) -> Result:
    session.store.create_database(statement.name, if_not_exists=statement.if_not_exists)
    return Result()


def _parse_drop(stream: TokenStream) -> DropDatabase:
    if_exists = stream.take("IF", "EXISTS")
    database = DropDatabase(stream.name("a database name"), if_exists)
    stream.take("FORCE")
    return database


def _drop(statement: DropDatabase, session: Session) -> Result:
    session.store.drop_database(statement.name, if_exists=statement.if_exists)
    if session.database == statement.name:
        session.database = None
    return Result()


def _parse_use(stream: TokenStream) -> UseDatabase:
    return UseDatabase(stream.dotted_name("database name")[-1])


def _use(statement: UseDatabase, session: Session) -> Result:
    if statement.name not in session.store.databases():
        raise NotFoundError(
            f"Unknown database '{statement.name}'", kind="unknown_database", database=statement.name
        )
    session.database = statement.name
    return Result()


def _parse_show(stream: TokenStream) -> ShowDatabases:
    return ShowDatabases(parse_like(stream))


def _show(statement: ShowDatabases, session: Session) -> Result:
    return text_rows(["Database"], [(name,) for name in matching(session.store.databases(), statement.like)])


KINDS: Final = (
    StatementKind(("CREATE DATABASE", "CREATE SCHEMA"), CreateDatabase, _parse_create, _create),
    StatementKind(("DROP DATABASE", "DROP SCHEMA"), DropDatabase, _parse_drop, _drop),
    StatementKind(("USE",), UseDatabase, _parse_use, _use),
    StatementKind(("SHOW DATABASES", "SHOW SCHEMAS"), ShowDatabases, _parse_show, _show),
)
