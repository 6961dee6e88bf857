"""ADMIN SET FRONTEND CONFIG and ADMIN SHOW FRONTEND CONFIG: the settings, one of which may change."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from seqstore.store.catalog.update_lock import CONFIG_NAME
from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import matching, parse_like
from seqstore.store.sql.session.statement_kind import StatementKind


@dataclass(frozen=True)
class AdminSetConfig:
    """ADMIN SET [ALL] FRONTEND CONFIG ("name" = "value")."""

    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class AdminShowConfig:
    """ADMIN SHOW FRONTEND CONFIG [LIKE pattern]."""

    like: str | None


def _set(statement: AdminSetConfig, session: Session) -> None:
    for name, value in statement.values:
        if name != CONFIG_NAME:
            raise InvalidInputError(
                f"Config '{name}' does not exist or is not mutable; {CONFIG_NAME} is", kind="unknown_config"
            )
        if value.lower() not in ("true", "false"):
            raise InvalidInputError(
                f"config {name!r}: expected true or false, found {value!r}", kind="bad_config"
            )
        session.store.set_config(name, value.lower())


def _show(statement: AdminShowConfig, session: Session) -> Result:
    settings = session.store.settings
    values = {item.name: getattr(settings, item.name) for item in fields(settings)}
    with session.store.catalog.read() as tx:
        changed = tx.get("config", CONFIG_NAME.encode())
    if changed is not None:
        values[CONFIG_NAME] = changed
    headings = ("Key", "Value", "Type", "IsMutable", "MasterOnly", "Comment")
    lines = [
        (name, _shown(values[name]), type(getattr(settings, name)).__name__, _shown(name == CONFIG_NAME),
         "false", "")
        for name in matching(sorted(values), statement.like)
    ]  # fmt: skip
    return text_rows(headings, lines)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


KINDS: Final = (
    StatementKind(
        ("ADMIN SET FRONTEND CONFIG", "ADMIN SET ALL FRONTENDS CONFIG"),
        AdminSetConfig,
        lambda stream: AdminSetConfig(tuple(stream.properties().items())),
        _set,
    ),
    StatementKind(
        ("ADMIN SHOW FRONTEND CONFIG", "SHOW FRONTEND CONFIG"),
        AdminShowConfig,
        lambda stream: AdminShowConfig(parse_like(stream)),
        _show,
    ),
)
