"""CREATE, DROP, USE and SHOW of databases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.errors import NotFoundError
from seqstore.store.sql.parse.statement_values import CreateDatabase, DropDatabase, ShowDatabases, UseDatabase
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import matching, parse_like, quoted
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.session.system_tables import DATABASE


def _parse_create(stream: TokenStream) -> CreateDatabase:
    if_not_exists = stream.take("IF", "NOT", "EXISTS")
    return CreateDatabase(stream.name("a database name"), if_not_exists)


def _create(statement: CreateDatabase, session: Session) -> None:
    session.store.create_database(statement.name, if_not_exists=statement.if_not_exists)


def _parse_drop(stream: TokenStream) -> DropDatabase:
    if_exists = stream.take("IF", "EXISTS")
    database = DropDatabase(stream.name("a database name"), if_exists)
    stream.take("FORCE")
    return database


def _drop(statement: DropDatabase, session: Session) -> None:
    session.store.drop_database(statement.name, if_exists=statement.if_exists)
    if session.database == statement.name:
        session.database = None


def _require(name: str, session: Session) -> None:
    if name not in [*session.store.databases(), DATABASE]:
        raise NotFoundError(f"Unknown database '{name}'", kind="unknown_database", database=name)


def _use(statement: UseDatabase, session: Session) -> None:
    _require(statement.name, session)
    session.database = statement.name


def _show(statement: ShowDatabases, session: Session) -> Result:
    found = sorted([*session.visible_databases(), DATABASE])
    return text_rows(["Database"], [(name,) for name in matching(found, statement.like)])


@dataclass(frozen=True)
class ShowCreateDatabase:
    name: str


def _show_create(statement: ShowCreateDatabase, session: Session) -> Result:
    _require(statement.name, session)
    return text_rows(
        ["Database", "Create Database"], [(statement.name, f"CREATE DATABASE {quoted(statement.name)}")]
    )


KINDS: Final = (
    StatementKind(("CREATE DATABASE", "CREATE SCHEMA"), CreateDatabase, _parse_create, _create),
    StatementKind(("DROP DATABASE", "DROP SCHEMA"), DropDatabase, _parse_drop, _drop),
    StatementKind(
        ("USE",), UseDatabase, lambda stream: UseDatabase(stream.dotted_name("database name")[-1]), _use
    ),
    StatementKind(
        ("SHOW CREATE DATABASE", "SHOW CREATE SCHEMA"),
        ShowCreateDatabase,
        lambda stream: ShowCreateDatabase(stream.name("a database name")),
        _show_create,
    ),
    StatementKind(
        ("SHOW DATABASES", "SHOW SCHEMAS"),
        ShowDatabases,
        lambda stream: ShowDatabases(parse_like(stream)),
        _show,
    ),
)
