"""Texts to statements: a recursive-descent parser for everything around expressions and queries.

A new statement is one dataclass in `statements`, one method here and one in `session`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from sqlglot import exp
from sqlglot.tokens import TokenType

from store.sql import statements as st
from store.sql.table_parser import parse_create_table, parse_table_name
from store.sql.tokens import TokenStream, parse_tree, split_statements

_LATER: Final = frozenset(
    re.findall(
        r"\w+",
        """
        ADMIN ALTER BEGIN CALL CANCEL COMMIT COPY DELETE EXPLAIN EXPORT GRANT KILL LOAD MERGE
        OPTIMIZE PAUSE RECOVER REFRESH REORG REPLACE RESTORE RESUME REVOKE ROLLBACK START STOP SYNC
        TRUNCATE UNSET UPDATE VACUUM
        """,
    )
)
_QUERY_STARTS: Final = frozenset(["SELECT", "WITH", "("])
_LITERAL_ENDS: Final = frozenset([TokenType.COMMA, TokenType.R_PAREN])


def parse(text: str) -> list[st.Statement]:
    """Reads a text of statements that are separated by semicolons.

    Raises:
        InvalidInputError: line, column and what was expected there, or what is not supported.
    """
    return [parse_statement(stream) for stream in split_statements(text)]


def parse_statement(stream: TokenStream) -> st.Statement:
    """Reads one statement to its end."""
    word = stream.word()
    if word in _QUERY_STARTS:
        return _parse_query(stream)
    parse_rest = _STATEMENTS.get(word)
    if parse_rest is None:
        if word in _LATER:
            stream.refuse(f"{word} statements are not supported")
        stream.fail("a statement such as SELECT, INSERT, CREATE, DROP, SHOW, DESC, USE or SET")
    stream.at += 1
    statement = parse_rest(stream)
    stream.need_end()
    return statement


def _parse_create(stream: TokenStream) -> st.Statement:
    if stream.take_one_of("DATABASE", "SCHEMA"):
        if_not_exists = stream.take("IF", "NOT", "EXISTS")
        return st.CreateDatabase(stream.name("a database name"), if_not_exists)
    if stream.take("TABLE"):
        return parse_create_table(stream)
    stream.fail("DATABASE or TABLE")


def _parse_drop(stream: TokenStream) -> st.Statement:
    if stream.take_one_of("DATABASE", "SCHEMA"):
        if_exists = stream.take("IF", "EXISTS")
        database = st.DropDatabase(stream.name("a database name"), if_exists)
        stream.take("FORCE")
        return database
    if stream.take("TABLE"):
        if_exists = stream.take("IF", "EXISTS")
        table = st.DropTable(parse_table_name(stream), if_exists)
        stream.take("FORCE")
        return table
    stream.fail("DATABASE or TABLE")


def _parse_use(stream: TokenStream) -> st.Statement:
    parts = stream.dotted_name("database name")
    return st.UseDatabase(parts[-1])


def _parse_describe(stream: TokenStream) -> st.Statement:
    stream.take("TABLE")
    return st.Describe(parse_table_name(stream))


def _parse_show(stream: TokenStream) -> st.Statement:
    if stream.take_one_of("DATABASES", "SCHEMAS"):
        return st.ShowDatabases(_parse_like(stream))
    is_full = stream.take("FULL")
    if stream.take("TABLES"):
        database = stream.name("a database name") if stream.take_one_of("FROM", "IN") else None
        return st.ShowTables(database, _parse_like(stream), is_full)
    if is_full:
        stream.fail("TABLES")
    if stream.take("CREATE"):
        stream.need("TABLE")
        return st.ShowCreateTable(parse_table_name(stream))
    if stream.take("WARNINGS"):
        return st.ShowWarnings()
    scope = stream.take_one_of("GLOBAL", "SESSION", "LOCAL")
    if stream.take("VARIABLES"):
        return st.ShowVariables(_parse_variable_filter(stream), scope == "GLOBAL")
    if scope:
        stream.fail("VARIABLES")
    stream.fail("DATABASES, TABLES, CREATE TABLE, VARIABLES or WARNINGS")


def _parse_like(stream: TokenStream) -> str | None:
    return stream.string("a pattern") if stream.take("LIKE") else None


def _parse_variable_filter(stream: TokenStream) -> str | None:
    if not stream.take("WHERE"):
        return _parse_like(stream)
    if stream.name("Variable_name").lower() != "variable_name":
        stream.at -= 1
        stream.fail("Variable_name")
    if not stream.take_one_of("=", "LIKE"):
        stream.fail("'=' or LIKE")
    return stream.string("a name")


def _parse_set(stream: TokenStream) -> st.Statement:
    assignments = _parse_assignment(stream)
    while stream.take(","):
        assignments += _parse_assignment(stream)
    return st.SetVariables(tuple(assignments))


def _parse_assignment(stream: TokenStream) -> list[st.Assignment]:
    if stream.take("NAMES") or stream.take("CHARACTER", "SET") or stream.take("CHARSET"):
        return _parse_names(stream)
    if stream.word() == "PASSWORD":
        stream.refuse("SET PASSWORD is not supported")
    scope = _parse_scope(stream)
    if stream.take("TRANSACTION"):
        return _parse_transaction(stream, scope)
    name = stream.name("a variable name").lower()
    if not stream.take("=") and not stream.take(":="):
        stream.fail("'='")
    return [st.Assignment(scope, name, _parse_set_value(stream))]


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
    """SET NAMES: a client says which character set it speaks; text is UTF-8 here whatever it says."""
    charset = _word_or_string(stream, "a character set")
    names = ("character_set_client", "character_set_connection", "character_set_results")
    found = [st.Assignment("session", name, charset) for name in names]
    if stream.take("COLLATE"):
        found.append(st.Assignment("session", "collation_connection", _word_or_string(stream, "a collation")))
    return found


def _word_or_string(stream: TokenStream, what: str) -> str:
    return stream.string(what) if stream.kind() is TokenType.STRING else stream.name(what)


def _parse_transaction(stream: TokenStream, scope: str) -> list[st.Assignment]:
    if stream.take("READ"):
        mode = stream.take_one_of("ONLY", "WRITE") or stream.fail("ONLY or WRITE")
        return [st.Assignment(scope, "transaction_read_only", "ON" if mode == "ONLY" else "OFF")]
    stream.need("ISOLATION", "LEVEL")
    words = [stream.name("an isolation level").upper()]
    while not stream.is_done and stream.word() != ",":
        words.append(stream.name("an isolation level").upper())
    return [st.Assignment(scope, "transaction_isolation", "-".join(words))]


def _parse_set_value(stream: TokenStream) -> st.SetValue:
    start = stream.at
    begin, end = stream.slice_to()
    length = stream.at - start
    kind = stream.tokens[start].token_type
    text = stream.tokens[start].text
    if length == 1 and kind is TokenType.STRING:
        return text
    if length == 1 and text.upper() == "DEFAULT":
        return st.Word.DEFAULT
    if length == 1 and kind is not TokenType.PLACEHOLDER and (text[0].isalnum() or text[0] == "_"):
        return text
    if length == 2 and text == "-" and stream.tokens[start + 1].token_type is TokenType.NUMBER:
        return "-" + stream.tokens[start + 1].text
    return parse_tree(stream.text, begin, end)


def _parse_insert(stream: TokenStream) -> st.Statement:
    if stream.word() == "OVERWRITE":
        stream.refuse("INSERT OVERWRITE is not supported; INSERT replaces rows of the same key")
    stream.need("INTO")
    stream.take("TABLE")
    table = parse_table_name(stream)
    if stream.word() in ("PARTITION", "PARTITIONS", "TEMPORARY"):
        stream.refuse("INSERT into a partition is not supported; leave PARTITION out")
    label = _parse_label(stream)
    columns = None
    if stream.word() == "(" and stream.word(1) not in ("SELECT", "WITH", "("):
        columns = tuple(stream.names("a column name"))
    label = label or _parse_label(stream)
    if stream.take_one_of("VALUES", "VALUE"):
        return st.Insert(table, columns, label, rows=_parse_rows(stream))
    if stream.word() in _QUERY_STARTS:
        return st.Insert(table, columns, label, query=_parse_query(stream))
    stream.fail("VALUES or SELECT")


def _parse_label(stream: TokenStream) -> str | None:
    if stream.word() != "WITH" or stream.word(1) != "LABEL":
        return None
    stream.need("WITH", "LABEL")
    return _word_or_string(stream, "a label")


def _parse_rows(stream: TokenStream) -> tuple[tuple[st.Cell, ...], ...]:
    rows: list[tuple[st.Cell, ...]] = []
    while True:
        stream.need("(")
        cells: list[st.Cell] = []
        if not stream.take(")"):
            cells.append(_parse_cell(stream))
            while stream.take(","):
                cells.append(_parse_cell(stream))
            if not stream.take(")"):
                stream.fail("',' or ')'")
        rows.append(tuple(cells))
        if not stream.take(","):
            return tuple(rows)


def _parse_cell(stream: TokenStream) -> st.Cell:
    """A literal straight from its token, which is most of them; anything else through sqlglot."""
    is_negative = stream.kind() is TokenType.DASH
    if stream.kind(1 + is_negative) in _LITERAL_ENDS:
        token = stream.tokens[stream.at + is_negative]
        kind = token.token_type
        if kind is TokenType.NUMBER:
            stream.at += 1 + is_negative
            return _number("-" + token.text if is_negative else token.text)
        if not is_negative and kind in _LITERALS:
            stream.at += 1
            return _LITERALS[kind](token.text)
    return stream.expression()


def _number(text: str) -> int | Decimal:
    digits = text.removeprefix("-")
    return int(text) if digits.isdigit() else Decimal(text)


def _parse_query(stream: TokenStream) -> st.Query:
    first = stream.at
    tree = stream.rest()
    if isinstance(tree, exp.Subquery) and not isinstance(tree.unnest(), exp.Query):
        stream.at = first
        stream.fail("a query")
    if not isinstance(tree, exp.Query):
        stream.at = first
        stream.fail("a query")
    return st.Query(tree, _headings(stream, first))


def _headings(stream: TokenStream, first: int) -> tuple[str, ...] | None:
    """The items of the outermost, leftmost select list as written."""
    begin = _select_list(stream, first)
    if begin is None:
        return None
    stream.at = begin
    while stream.take_one_of("DISTINCT", "ALL"):
        pass
    found: list[str] = []
    while not stream.is_done:
        start, end = stream.slice_to(*_LIST_ENDS)
        found.append(stream.text[start:end])
        if not stream.take(","):
            break
    stream.at = len(stream.tokens)
    return tuple(found)


def _select_list(stream: TokenStream, first: int) -> int | None:
    depth = 0
    is_with = stream.tokens[first].text.upper() == "WITH"
    for i in range(first, len(stream.tokens)):
        stream.at = i
        word = stream.word()
        depth += (word == "(") - (word == ")")
        if word == "SELECT" and (depth == 0 or not is_with):
            return i + 1
    return None


_LIST_ENDS: Final = re.findall(
    r"\w+", "FROM WHERE GROUP HAVING ORDER LIMIT UNION INTERSECT EXCEPT MINUS QUALIFY WINDOW FOR INTO LATERAL"
)
_LITERALS: Final[dict[TokenType, Callable[[str], st.Cell]]] = {
    TokenType.STRING: lambda text: text,
    TokenType.NULL: lambda _text: None,
    TokenType.TRUE: lambda _text: True,
    TokenType.FALSE: lambda _text: False,
    TokenType.DEFAULT: lambda _text: st.Word.DEFAULT,
}
_STATEMENTS: Final[dict[str, Callable[[TokenStream], st.Statement]]] = {
    "CREATE": _parse_create,
    "DROP": _parse_drop,
    "USE": _parse_use,
    "DESC": _parse_describe,
    "DESCRIBE": _parse_describe,
    "SHOW": _parse_show,
    "SET": _parse_set,
    "INSERT": _parse_insert,
}
