"""Workload groups, and the properties of users: CREATE, ALTER, DROP and SHOW WORKLOAD GROUP, SET PROPERTY."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.catalog.access.user_hosts import quoted_user
from seqstore.store.catalog.accounts import ROOT
from seqstore.store.errors import NotFoundError
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import matching, parse_like
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.session.system_tables import GROUP_COLUMNS, workload_group_rows
from seqstore.store.sql.statements.accounts import UserName, parse_user


@dataclass(frozen=True)
class CreateWorkloadGroup:
    name: str
    properties: tuple[tuple[str, str], ...]
    if_not_exists: bool


@dataclass(frozen=True)
class AlterWorkloadGroup:
    name: str
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class DropWorkloadGroup:
    name: str
    if_exists: bool


@dataclass(frozen=True)
class ShowWorkloadGroups:
    like: str | None


@dataclass(frozen=True)
class SetProperty:
    """`user` is None for the session's."""

    user: UserName | None
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ShowProperty:
    """`user` is None for the session's."""

    user: UserName | None
    like: str | None


def _parse_properties(stream: TokenStream) -> tuple[tuple[str, str], ...]:
    stream.need("PROPERTIES")
    return tuple(stream.properties().items())


def _parse_create(stream: TokenStream) -> CreateWorkloadGroup:
    if_not_exists = stream.take("IF", "NOT", "EXISTS")
    name = stream.word_or_string("a workload group")
    return CreateWorkloadGroup(name, _parse_properties(stream), if_not_exists)


def _create(statement: CreateWorkloadGroup, session: Session) -> None:
    groups = session.store.workload_groups
    groups.create(statement.name, dict(statement.properties), if_not_exists=statement.if_not_exists)


def _parse_alter(stream: TokenStream) -> AlterWorkloadGroup:
    return AlterWorkloadGroup(stream.word_or_string("a workload group"), _parse_properties(stream))


def _alter(statement: AlterWorkloadGroup, session: Session) -> None:
    session.store.workload_groups.alter(statement.name, dict(statement.properties))


def _parse_drop(stream: TokenStream) -> DropWorkloadGroup:
    if_exists = stream.take("IF", "EXISTS")
    return DropWorkloadGroup(stream.word_or_string("a workload group"), if_exists)


def _drop(statement: DropWorkloadGroup, session: Session) -> None:
    session.store.workload_groups.drop(statement.name, if_exists=statement.if_exists)


def _show(statement: ShowWorkloadGroups, session: Session) -> Result:
    rows = {str(row[1]): row for row in workload_group_rows(session)}
    chosen = [rows[name] for name in matching(rows, statement.like)]
    return text_rows(GROUP_COLUMNS, [[str(value) for value in row] for row in chosen])


def _parse_set_property(stream: TokenStream) -> SetProperty:
    user = parse_user(stream) if stream.take("FOR") else None
    pairs = [_pair(stream)]
    while stream.take(","):
        pairs.append(_pair(stream))
    return SetProperty(user, tuple(pairs))


def _pair(stream: TokenStream) -> tuple[str, str]:
    name = stream.word_or_string("a property")
    stream.need("=")
    return name.lower(), stream.word_or_string("a value")


def _stored_name(user: UserName | None, session: Session) -> str:
    return user.stored if user is not None else session.user or ROOT


def _set_property(statement: SetProperty, session: Session) -> None:
    user = _stored_name(statement.user, session)
    if session.store.accounts.find(user) is None:
        raise NotFoundError(f"Unknown user {quoted_user(user)}", kind="unknown_user", user=user)
    session.store.workload_groups.set_properties(user, dict(statement.properties))


def _parse_show_property(stream: TokenStream) -> ShowProperty:
    user = parse_user(stream) if stream.take("FOR") else None
    return ShowProperty(user, parse_like(stream))


def _show_property(statement: ShowProperty, session: Session) -> Result:
    user = _stored_name(statement.user, session)
    if not session.sees_user(user):
        session.require_admin()
    if session.store.accounts.find(user) is None:
        raise NotFoundError(f"Unknown user {quoted_user(user)}", kind="unknown_user", user=user)
    found = session.store.workload_groups.properties_of(user)
    return text_rows(["Key", "Value"], [(name, found[name]) for name in matching(found, statement.like)])


KINDS: Final = (
    StatementKind(("CREATE WORKLOAD GROUP",), CreateWorkloadGroup, _parse_create, _create),
    StatementKind(("ALTER WORKLOAD GROUP",), AlterWorkloadGroup, _parse_alter, _alter),
    StatementKind(("DROP WORKLOAD GROUP",), DropWorkloadGroup, _parse_drop, _drop),
    StatementKind(
        ("SHOW WORKLOAD GROUPS",),
        ShowWorkloadGroups,
        lambda stream: ShowWorkloadGroups(parse_like(stream)),
        _show,
    ),
    StatementKind(("SET PROPERTY",), SetProperty, _parse_set_property, _set_property),
    StatementKind(("SHOW PROPERTY",), ShowProperty, _parse_show_property, _show_property),
)
