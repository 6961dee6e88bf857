"""Users and their privileges: CREATE, ALTER and DROP USER, SET PASSWORD, GRANT, REVOKE, SHOW GRANTS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.catalog.accounts import ALL_DATABASES, ROOT, Account
from seqstore.store.errors import AccessDeniedError, NotFoundError
from seqstore.store.sql.parse.sqlglot_adapter import TokenType
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind


@dataclass(frozen=True)
class CreateUser:
    user: str
    password: str
    if_not_exists: bool


@dataclass(frozen=True)
class AlterUser:
    user: str
    password: str


@dataclass(frozen=True)
class DropUser:
    user: str
    if_exists: bool


@dataclass(frozen=True)
class SetPassword:
    """`user` is None for the session's."""

    user: str | None
    password: str


@dataclass(frozen=True)
class Grant:
    user: str
    privileges: tuple[str, ...]
    database: str


class Revoke(Grant):
    """The same fields as GRANT."""


@dataclass(frozen=True)
class ShowGrants:
    """Privileges of one user, None for the session's, or of all users."""

    user: str | None
    is_all: bool = False


def _parse_user(stream: TokenStream) -> str:
    """Parses `'name'[@'host']`; the host has no effect."""
    name = stream.word_or_string("a user name")
    if stream.take("@"):
        stream.word_or_string("a host")
    return name


def _parse_identified(stream: TokenStream) -> str:
    if not stream.take("IDENTIFIED"):
        return ""
    stream.need("BY")
    if stream.word() == "PASSWORD":
        stream.refuse("a hashed password is not accepted; state the password itself")
    return stream.string("a password")


def _parse_create(stream: TokenStream) -> CreateUser:
    if_not_exists = stream.take("IF", "NOT", "EXISTS")
    return CreateUser(_parse_user(stream), _parse_identified(stream), if_not_exists)


def _create(statement: CreateUser, session: Session) -> None:
    accounts = session.store.accounts
    accounts.create(statement.user, statement.password, if_not_exists=statement.if_not_exists)


def _parse_alter(stream: TokenStream) -> AlterUser:
    user = _parse_user(stream)
    if stream.word() != "IDENTIFIED":
        stream.fail("IDENTIFIED BY 'password'")
    return AlterUser(user, _parse_identified(stream))


def _alter(statement: AlterUser, session: Session) -> None:
    session.store.accounts.set_password(statement.user, statement.password)


def _drop(statement: DropUser, session: Session) -> None:
    session.store.accounts.drop(statement.user, if_exists=statement.if_exists)


def _parse_password(stream: TokenStream) -> SetPassword:
    user = _parse_user(stream) if stream.take("FOR") else None
    stream.need("=")
    if stream.take("PASSWORD"):
        stream.need("(")
        password = stream.string("a password")
        stream.need(")")
        return SetPassword(user, password)
    return SetPassword(user, stream.string("a password"))


def _password(statement: SetPassword, session: Session) -> None:
    own = session.user or ROOT
    user = statement.user or own
    if user != own:
        _require_admin(session)
    session.store.accounts.set_password(user, statement.password)


def _require_admin(session: Session) -> None:
    if session.user is not None:
        session.store.accounts.require(session.user, "ADMIN")


def _parse_privileges(stream: TokenStream, preposition: str) -> tuple[str, tuple[str, ...], str]:
    """Parses `privilege, .. ON db.* TO|FROM user`; a table has the privileges of its database."""
    found = stream.listed(_privilege)
    stream.need("ON")
    parts = [_scope(stream)]
    while stream.take("."):
        parts.append(_scope(stream))
    if len(parts) == 3:  # catalog.database.table
        parts = parts[1:]
    if len(parts) == 2 and parts[1] != ALL_DATABASES:
        stream.refuse("privileges are granted on whole databases: GRANT ... ON db.*")
    stream.need(preposition)
    return _parse_user(stream), tuple(found), parts[0]


def _privilege(stream: TokenStream) -> str:
    word = stream.name("a privilege").upper()
    stream.take("PRIVILEGES")
    return {"INSERT": "LOAD", "UPDATE": "LOAD", "DELETE": "LOAD", "CREATE": "ALTER", "DROP": "ALTER",
            "CREATE_PRIV": "ALTER", "DROP_PRIV": "ALTER", "GRANT_PRIV": "ADMIN"}.get(word, word)  # fmt: skip


def _scope(stream: TokenStream) -> str:
    if stream.kind() is TokenType.STAR:
        stream.at += 1
        return ALL_DATABASES
    return stream.name("a database or *")


def _grant(statement: Grant, session: Session) -> None:
    session.store.accounts.grant(statement.user, statement.privileges, statement.database)


def _revoke(statement: Revoke, session: Session) -> None:
    session.store.accounts.revoke(statement.user, statement.privileges, statement.database)


def _parse_show(stream: TokenStream) -> ShowGrants:
    if stream.tokens[1].text.upper() == "ALL":
        return ShowGrants(None, is_all=True)
    if not stream.take("FOR"):
        return ShowGrants(None)
    if stream.take("CURRENT_USER"):
        if stream.take("("):
            stream.need(")")
        return ShowGrants(None)
    return ShowGrants(_parse_user(stream))


def _show(statement: ShowGrants, session: Session) -> Result:
    own = session.user or ROOT
    accounts = session.store.accounts
    if statement.is_all or statement.user not in (None, own):
        _require_admin(session)
    rows = []
    for name in accounts.names() if statement.is_all else [statement.user or own]:
        account = accounts.find(name)
        if account is None and name == own:
            raise AccessDeniedError(f"user '{name}' is gone", kind="no_privilege")
        if account is None:
            raise NotFoundError(f"Unknown user '{name}'", kind="unknown_user", user=name)
        rows.append(_grants_row(name, account))
    return text_rows(["UserIdentity", "Password", "GlobalPrivs", "DatabasePrivs"], rows)


def _grants_row(name: str, account: Account) -> tuple[str | None, ...]:
    every = account.grants.get(ALL_DATABASES, ())
    others = sorted((scope, held) for scope, held in account.grants.items() if scope != ALL_DATABASES)
    shown = "; ".join(f"internal.{scope}: {_privs(held)}" for scope, held in others)
    has_password = "Yes" if account.has_password else "No"
    return f"'{name}'@'%'", has_password, _privs(every) or None, shown or None


def _privs(held: tuple[str, ...]) -> str:
    return ",".join(f"{privilege.capitalize()}_priv" for privilege in held)


KINDS: Final = (
    StatementKind(("CREATE USER",), CreateUser, _parse_create, _create),
    StatementKind(("ALTER USER",), AlterUser, _parse_alter, _alter),
    StatementKind(
        ("DROP USER",),
        DropUser,
        lambda stream: DropUser(if_exists=stream.take("IF", "EXISTS"), user=_parse_user(stream)),
        _drop,
    ),
    StatementKind(("SET PASSWORD",), SetPassword, _parse_password, _password),
    StatementKind(("GRANT",), Grant, lambda stream: Grant(*_parse_privileges(stream, "TO")), _grant),
    StatementKind(("REVOKE",), Revoke, lambda stream: Revoke(*_parse_privileges(stream, "FROM")), _revoke),
    StatementKind(("SHOW GRANTS", "SHOW ALL GRANTS"), ShowGrants, _parse_show, _show),
)
