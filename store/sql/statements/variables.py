"""SET and SHOW of variables; ADMIN SET and SHOW of the store's settings."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Final

from seqstore.store.catalog.update_lock import CONFIG_NAME
from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.secrets.words import masked_uri
from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.parse.sqlglot_adapter import TokenType, exp
from seqstore.store.sql.parse.tokens import TokenStream, parse_tree
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session import variables
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import matching, parse_like
from seqstore.store.sql.session.statement_kind import StatementKind

_ENTRY_BYTES: Final = 256  # of a variable in its dicts
_NEXT: Final = "next"  # the scope of a characteristic of the next transaction alone


def _parse_set(stream: TokenStream) -> st.SetVariables:
    assignments = _parse_assignment(stream)
    while stream.take(","):
        assignments += _parse_assignment(stream)
    return st.SetVariables(tuple(assignments))


def _parse_assignment(stream: TokenStream) -> list[st.Assignment]:
    if stream.take("NAMES") or stream.take("CHARACTER", "SET") or stream.take("CHARSET"):
        return _parse_names(stream)
    start = stream.at
    scope = _parse_scope(stream)
    if stream.word() == "TRANSACTION" and stream.word(1) not in ("=", ":="):
        return _parse_transaction(stream, scope if stream.at > start else _NEXT)
    is_bare = stream.at == start + 1  # @@name
    name = stream.name("a variable name").lower()
    if is_bare and scope == "session" and variables.is_characteristic(name):
        scope = _NEXT
    if not stream.take("=") and not stream.take(":="):
        stream.fail("'='")
    return [st.Assignment(scope, name, _parse_set_value(stream, is_user=scope == "user"))]


def _parse_scope(stream: TokenStream) -> str:
    if stream.take("@@"):
        word = stream.take_one_of("GLOBAL", "SESSION", "LOCAL")
        if word:
            stream.need(".")
        return "global" if word == "GLOBAL" else "session"
    if stream.take("@"):
        return "user"
    is_scoped = stream.word() in ("GLOBAL", "SESSION", "LOCAL") and stream.word(1) not in ("=", ":=")
    return (
        "global" if is_scoped and stream.take_one_of("GLOBAL", "SESSION", "LOCAL") == "GLOBAL" else "session"
    )


def _parse_names(stream: TokenStream) -> list[st.Assignment]:
    """Parses SET NAMES, for clients that read these variables; text is UTF-8 in each of them."""
    is_default = stream.take("DEFAULT")
    charset = st.Word.DEFAULT if is_default else stream.word_or_string("a character set")
    names = ("character_set_client", "character_set_connection", "character_set_results")
    found = [st.Assignment("session", name, charset) for name in names]
    if stream.take("COLLATE"):
        found.append(st.Assignment("session", "collation_connection", stream.word_or_string("a collation")))
    return found


def _parse_transaction(stream: TokenStream, scope: str) -> list[st.Assignment]:
    stream.need("TRANSACTION")
    found = [_parse_characteristic(stream, scope)]
    while stream.take(","):
        found.append(_parse_characteristic(stream, scope))
    return found


def _parse_characteristic(stream: TokenStream, scope: str) -> st.Assignment:
    if stream.take("READ"):
        mode = stream.take_one_of("ONLY", "WRITE") or stream.fail("ONLY or WRITE")
        return st.Assignment(scope, variables.TRANSACTION_READ_ONLY, "ON" if mode == "ONLY" else "OFF")
    stream.need("ISOLATION", "LEVEL")
    words = [stream.name("an isolation level").upper()]
    while not stream.is_done and stream.word() != ",":
        words.append(stream.name("an isolation level").upper())
    return st.Assignment(scope, variables.TRANSACTION_ISOLATION, "-".join(words))


def _parse_set_value(stream: TokenStream, *, is_user: bool) -> st.SetValue:
    """Parses the value of a variable; that of a user's is an expression, where a word is no text."""
    start = stream.at
    begin, end = stream.slice_to()
    length = stream.at - start
    kind = stream.tokens[start].token_type
    text = stream.tokens[start].text
    if length == 1 and kind is TokenType.STRING:
        return text
    if length == 2 and text == "-" and stream.tokens[start + 1].token_type is TokenType.NUMBER:
        return "-" + stream.tokens[start + 1].text
    if is_user:
        return parse_tree(stream.text, begin, end)
    if length == 1 and text.upper() == "DEFAULT":
        return st.Word.DEFAULT
    if length == 1 and kind is not TokenType.PLACEHOLDER and (text[0].isalnum() or text[0] == "_"):
        return text
    return parse_tree(stream.text, begin, end)


def _set(statement: st.SetVariables, session: Session) -> None:
    for assignment in statement.assignments:
        value = _assigned(assignment.value, session)
        if assignment.scope == "user":
            with session.held.changed(("@", assignment.name), _size(assignment.name, value)):
                session.user_variables[assignment.name] = value
        elif assignment.scope == _NEXT:
            session.transactions.set_next(assignment.name, value or "")
        elif assignment.name == variables.AUTOCOMMIT and assignment.scope == "session":
            session.transactions.set_autocommit(value)
        elif assignment.scope == "global":
            session.variables.set(assignment.name, value, is_global=True)
        else:
            size = _size(assignment.name, value) if value is not None else 0
            with session.held.changed(("@@", assignment.name.lower()), size):
                session.variables.set(assignment.name, value)


def _size(name: str, value: str | None) -> int:
    return sys.getsizeof(name) + sys.getsizeof(value) + _ENTRY_BYTES


def _assigned(value: st.SetValue, session: Session) -> str | None:
    if value is st.Word.DEFAULT:
        return None
    if isinstance(value, str):
        return value
    assert isinstance(value, exp.Expr)
    with session.stream(st.Query(exp.select(value), None)) as reader:
        result = reader.read_all().column(0)[0].as_py()
    if isinstance(result, Decimal):
        return f"{result:f}"
    if isinstance(result, bool):
        return "1" if result else "0"
    if isinstance(result, bytes):
        return result.decode(errors="replace")
    return None if result is None else str(result)


def _parse_show_variables(stream: TokenStream) -> st.ShowVariables:
    is_global = stream.tokens[1].text.upper() == "GLOBAL"
    return st.ShowVariables(parse_like(stream), is_global)


def _show_variables(statement: st.ShowVariables, session: Session) -> Result:
    found = {item[0]: item for item in session.variables.items(is_global=statement.is_global)}
    items = [found[name] for name in matching(found, statement.like)]
    rows = [(name, value, default, "0" if value == default else "1") for name, value, default in items]
    return text_rows(["Variable_name", "Value", "Default_Value", "Changed"], rows)


@dataclass(frozen=True)
class AdminSetConfig:
    """ADMIN SET [ALL] FRONTEND CONFIG ("name" = "value")."""

    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class AdminShowConfig:
    """ADMIN SHOW FRONTEND CONFIG [LIKE pattern]."""

    like: str | None


def _set_config(statement: AdminSetConfig, session: Session) -> None:
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


def _show_config(statement: AdminShowConfig, session: Session) -> Result:
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
        return ",".join(masked_uri(str(each)) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


KINDS: Final = (
    StatementKind(("SET",), st.SetVariables, _parse_set, _set),
    StatementKind(
        tuple(f"SHOW {scope}VARIABLES" for scope in ("", "GLOBAL ", "SESSION ", "LOCAL ")),
        st.ShowVariables,
        _parse_show_variables,
        _show_variables,
    ),
    StatementKind(
        ("ADMIN SET FRONTEND CONFIG", "ADMIN SET ALL FRONTENDS CONFIG"),
        AdminSetConfig,
        lambda stream: AdminSetConfig(tuple(stream.properties().items())),
        _set_config,
    ),
    StatementKind(
        ("ADMIN SHOW FRONTEND CONFIG", "SHOW FRONTEND CONFIG"),
        AdminShowConfig,
        lambda stream: AdminShowConfig(parse_like(stream)),
        _show_config,
    ),
)
