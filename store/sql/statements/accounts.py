"""Users, roles and their privileges: CREATE, ALTER, DROP, SET PASSWORD, GRANT, REVOKE and SHOW.

A user is `'name'@'host'`, or `name` for the host `%`. Users and roles need ADMIN. GRANT and REVOKE of
privileges need ADMIN too, or GRANT together with the privileges themselves, both on the scope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.catalog.access.grants import (
    ALL_DATABASES,
    Grants,
    check_privileges,
    holds,
    scope_of,
)
from seqstore.store.catalog.access.user_hosts import check_host, name_at, plain_user, quoted_user
from seqstore.store.catalog.accounts import ROOT, Account
from seqstore.store.errors import AccessDeniedError, NotFoundError
from seqstore.store.sql.parse.sqlglot_adapter import TokenType
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind


@dataclass(frozen=True)
class UserName:
    """A user at a host, as written."""

    user: str
    host: str = "%"

    @property
    def stored(self) -> str:
        """The name in the catalog."""
        return name_at(self.user, check_host(self.host))


@dataclass(frozen=True)
class CreateUser:
    user: UserName
    password: str
    if_not_exists: bool
    roles: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlterUser:
    user: UserName
    password: str


@dataclass(frozen=True)
class DropUser:
    user: UserName
    if_exists: bool


@dataclass(frozen=True)
class SetPassword:
    """`user` is None for the session's."""

    user: UserName | None
    password: str


@dataclass(frozen=True)
class Grant:
    """GRANT of privileges on a scope to a user, or to a role, or of roles to a user.

    Attributes:
        names: privileges, or roles where `scope` is None.
        to: the user, or the name of the role.
    """

    names: tuple[str, ...]
    scope: str | None
    to: UserName | str


class Revoke(Grant):
    """The same fields as GRANT."""


@dataclass(frozen=True)
class ShowGrants:
    """Privileges of one user, None for the session's, or of all users."""

    user: UserName | None
    is_all: bool = False


def parse_user(stream: TokenStream) -> UserName:
    """Parses `name` or `'name'@'host'`."""
    name = stream.word_or_string("a user name")
    if not stream.take("@"):
        return UserName(name)
    if stream.word() in ("[", "("):
        stream.refuse("the host of a user is an address, a pattern or a network, not a domain")
    return UserName(name, stream.word_or_string("a host"))


def _parse_identified(stream: TokenStream) -> str:
    if not stream.take("IDENTIFIED"):
        return ""
    stream.need("BY")
    if stream.word() == "PASSWORD":
        stream.refuse("a hashed password is not accepted; state the password itself")
    return stream.string("a password")


def _parse_create(stream: TokenStream) -> CreateUser:
    if_not_exists = stream.take("IF", "NOT", "EXISTS")
    user, password = parse_user(stream), _parse_identified(stream)
    is_given = stream.take("DEFAULT", "ROLE")
    roles = tuple(stream.listed(_parse_role)) if is_given else ()
    return CreateUser(user, password, if_not_exists, roles)


def _create(statement: CreateUser, session: Session) -> None:
    session.store.accounts.create(
        statement.user.user,
        statement.password,
        host=statement.user.host,
        roles=statement.roles,
        if_not_exists=statement.if_not_exists,
    )


def _parse_alter(stream: TokenStream) -> AlterUser:
    user = parse_user(stream)
    if stream.word() != "IDENTIFIED":
        stream.fail("IDENTIFIED BY 'password'")
    return AlterUser(user, _parse_identified(stream))


def _alter(statement: AlterUser, session: Session) -> None:
    session.store.accounts.set_password(statement.user.stored, statement.password)


def _drop(statement: DropUser, session: Session) -> None:
    session.store.accounts.drop(statement.user.stored, if_exists=statement.if_exists)


def _parse_password(stream: TokenStream) -> SetPassword:
    user = parse_user(stream) if stream.take("FOR") else None
    stream.need("=")
    if stream.take("PASSWORD"):
        stream.need("(")
        password = stream.string("a password")
        stream.need(")")
        return SetPassword(user, password)
    return SetPassword(user, stream.string("a password"))


def _password(statement: SetPassword, session: Session) -> None:
    own = session.user or ROOT
    user = statement.user.stored if statement.user is not None else own
    if user != own:
        _require_admin(session)
    session.store.accounts.set_password(user, statement.password)


def _require_admin(session: Session) -> None:
    if session.user is not None:
        session.store.accounts.require(session.user, "ADMIN")


# -------------------------------------------------------------------------------------- GRANT and REVOKE


def _parse_names(stream: TokenStream, preposition: str) -> tuple[tuple[str, ...], str | None, UserName | str]:
    """Parses `privilege, .. ON scope TO|FROM user | ROLE role`, or `role, .. TO|FROM user`."""
    found = tuple(stream.listed(_parse_privilege))
    scope = None
    if stream.take("ON"):
        scope = _parse_scope(stream)
    stream.need(preposition)
    if scope is not None and stream.word() == "ROLE" and stream.kind(1) is not None and stream.word(1) != "@":
        stream.need("ROLE")
        return found, scope, _parse_role(stream)
    return found, scope, parse_user(stream)


def _parse_privilege(stream: TokenStream) -> str:
    """Parses the name of a privilege or of a role."""
    word = stream.word_or_string("a privilege or a role")
    stream.take("PRIVILEGES")
    if word.upper() == "SHOW" and stream.take("VIEW"):
        word = "SHOW_VIEW"
    if stream.word() == "(":
        stream.refuse("privileges are granted on whole tables, not on columns; make a view of the columns")
    return word


def _parse_role(stream: TokenStream) -> str:
    return stream.word_or_string("a role")


def _parse_scope(stream: TokenStream) -> str:
    """Parses `*`, `*.*`, `*.*.*`, `db.*`, `db.table` or the last two behind a catalog."""
    if stream.word() in ("RESOURCE", "WORKLOAD", "COMPUTE", "STORAGE", "STAGE") and stream.word(1) != ".":
        stream.refuse(f"privileges are not granted on a {stream.word()}; name databases or tables")
    parts = [_part(stream)]
    while stream.take("."):
        parts.append(_part(stream))
    if len(parts) == 3:
        if parts[0] not in (ALL_DATABASES, "internal"):
            stream.refuse(f"there is one catalog, internal, found {parts[0]}")
        parts = parts[1:]
    if len(parts) > 2 or (parts[0] == ALL_DATABASES and parts[-1] != ALL_DATABASES):
        stream.refuse(f"expected *.*, db.* or db.table, found {'.'.join(parts)}", "syntax")
    if len(parts) == 1 or parts[1] == ALL_DATABASES:
        return parts[0]
    return scope_of(*parts)


def _part(stream: TokenStream) -> str:
    if stream.kind() is TokenType.STAR:
        stream.at += 1
        return ALL_DATABASES
    return stream.name("a database, a table or *")


def _grant(statement: Grant, session: Session) -> None:
    accounts = session.store.accounts
    scope, to = statement.scope, statement.to
    if scope is None:
        _require_admin(session)
        assert isinstance(to, UserName)
        accounts.grant_roles(to.stored, statement.names)
        return
    _require_grantable(statement.names, scope, session)
    if isinstance(to, UserName):
        accounts.grant(to.stored, statement.names, scope)
    else:
        accounts.roles.grant(to, statement.names, scope)


def _revoke(statement: Revoke, session: Session) -> None:
    accounts = session.store.accounts
    scope, to = statement.scope, statement.to
    if scope is None:
        _require_admin(session)
        assert isinstance(to, UserName)
        accounts.revoke_roles(to.stored, statement.names)
        return
    _require_grantable(statement.names, scope, session)
    if isinstance(to, UserName):
        accounts.revoke(to.stored, statement.names, scope)
    else:
        accounts.roles.revoke(to, statement.names, scope)


def _require_grantable(names: tuple[str, ...], scope: str, session: Session) -> None:
    """Checks that a user may grant or revoke: with ADMIN, or with GRANT and the privileges themselves.

    Raises:
        AccessDeniedError: it may not.
        InvalidInputError: an unknown privilege.
    """
    if session.user is None:
        return
    account = session.store.accounts.find(session.user)
    database, _, table = scope.partition(".")
    if account is not None and not account.may("ADMIN"):
        wanted = ("GRANT", *check_privileges(names))
        grants = account.effective
        if "ADMIN" not in wanted and all(holds(grants, each, database, table) for each in wanted):
            return
    _require_admin(session)


# -------------------------------------------------------------------------------------- roles


@dataclass(frozen=True)
class CreateRole:
    name: str
    comment: str
    if_not_exists: bool


@dataclass(frozen=True)
class AlterRole:
    name: str
    comment: str


@dataclass(frozen=True)
class DropRole:
    name: str
    if_exists: bool


@dataclass(frozen=True)
class ShowRoles:
    """SHOW ROLES: each with its users and privileges."""


def _parse_create_role(stream: TokenStream) -> CreateRole:
    if_not_exists = stream.take("IF", "NOT", "EXISTS")
    name = _parse_role(stream)
    comment = stream.string("a comment") if stream.take("COMMENT") else ""
    return CreateRole(name, comment, if_not_exists)


def _parse_alter_role(stream: TokenStream) -> AlterRole:
    name = _parse_role(stream)
    stream.need("COMMENT")
    return AlterRole(name, stream.string("a comment"))


def _create_role(statement: CreateRole, session: Session) -> None:
    roles = session.store.accounts.roles
    roles.create(statement.name, statement.comment, if_not_exists=statement.if_not_exists)


def _alter_role(statement: AlterRole, session: Session) -> None:
    session.store.accounts.roles.set_comment(statement.name, statement.comment)


def _drop_role(statement: DropRole, session: Session) -> None:
    session.store.accounts.roles.drop(statement.name, if_exists=statement.if_exists)


def _show_roles(_statement: ShowRoles, session: Session) -> Result:
    accounts = session.store.accounts
    users: dict[str, list[str]] = {}
    for name in accounts.names():
        account = accounts.find(name)
        for role in account.roles if account is not None else ():
            users.setdefault(role, []).append(quoted_user(name))
    rows = [
        (role.name, role.comment, ", ".join(users.get(role.name, ())), *_grant_columns(role.grants))
        for role in accounts.roles.all()
    ]
    return text_rows(["Name", "Comment", "Users", "GlobalPrivs", "DatabasePrivs", "TablePrivs"], rows)


# -------------------------------------------------------------------------------------- SHOW GRANTS


def _parse_show(stream: TokenStream) -> ShowGrants:
    if stream.tokens[1].text.upper() == "ALL":
        return ShowGrants(None, is_all=True)
    if not stream.take("FOR"):
        return ShowGrants(None)
    if stream.take("CURRENT_USER"):
        if stream.take("("):
            stream.need(")")
        return ShowGrants(None)
    return ShowGrants(parse_user(stream))


def _show(statement: ShowGrants, session: Session) -> Result:
    own = session.user or ROOT
    accounts = session.store.accounts
    wanted = statement.user.stored if statement.user is not None else own
    if statement.is_all or wanted != own:
        _require_admin(session)
    rows = []
    for name in accounts.names() if statement.is_all else [wanted]:
        account = accounts.find(name)
        if account is None and name == own:
            raise AccessDeniedError(f"user '{plain_user(name)}' is gone", kind="no_privilege")
        if account is None:
            raise NotFoundError(f"Unknown user '{plain_user(name)}'", kind="unknown_user", user=name)
        rows.append(_grants_row(name, account))
    headings = ["UserIdentity", "Password", "Roles", "GlobalPrivs", "DatabasePrivs", "TablePrivs"]
    return text_rows(headings, rows)


def _grants_row(name: str, account: Account) -> tuple[str | None, ...]:
    """Returns what a user holds, by its own grants or by those of its roles, as Doris shows it."""
    has_password = "Yes" if account.has_password else "No"
    return quoted_user(name), has_password, ",".join(account.roles), *_grant_columns(account.effective)


def _grant_columns(grants: Grants) -> tuple[str | None, str | None, str | None]:
    """Returns the privileges on everything, on databases and on tables; None for none."""
    others = sorted((scope, held) for scope, held in grants.items() if scope != ALL_DATABASES)
    databases = [f"internal.{scope}: {_privs(held)}" for scope, held in others if "." not in scope]
    tables = [f"internal.{scope}: {_privs(held)}" for scope, held in others if "." in scope]
    every = _privs(grants.get(ALL_DATABASES, ()))
    return every or None, "; ".join(databases) or None, "; ".join(tables) or None


def _privs(held: tuple[str, ...]) -> str:
    return ",".join(f"{privilege.capitalize()}_priv" for privilege in held)


KINDS: Final = (
    StatementKind(("CREATE USER",), CreateUser, _parse_create, _create),
    StatementKind(("ALTER USER",), AlterUser, _parse_alter, _alter),
    StatementKind(
        ("DROP USER",),
        DropUser,
        lambda stream: DropUser(if_exists=stream.take("IF", "EXISTS"), user=parse_user(stream)),
        _drop,
    ),
    StatementKind(("SET PASSWORD",), SetPassword, _parse_password, _password),
    StatementKind(("GRANT",), Grant, lambda stream: Grant(*_parse_names(stream, "TO")), _grant),
    StatementKind(("REVOKE",), Revoke, lambda stream: Revoke(*_parse_names(stream, "FROM")), _revoke),
    StatementKind(("SHOW GRANTS", "SHOW ALL GRANTS"), ShowGrants, _parse_show, _show),
    StatementKind(("CREATE ROLE",), CreateRole, _parse_create_role, _create_role),
    StatementKind(("ALTER ROLE",), AlterRole, _parse_alter_role, _alter_role),
    StatementKind(
        ("DROP ROLE",),
        DropRole,
        lambda stream: DropRole(if_exists=stream.take("IF", "EXISTS"), name=_parse_role(stream)),
        _drop_role,
    ),
    StatementKind(("SHOW ROLES",), ShowRoles, lambda _stream: ShowRoles(), _show_roles),
)
