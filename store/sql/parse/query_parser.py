"""Queries: sqlglot's tree, and the headings as the user wrote them."""

from __future__ import annotations

import re
from typing import Final

from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.sql.parse.tokens import TokenStream

QUERY_STARTS: Final = frozenset(["SELECT", "WITH", "("])
_LIST_ENDS: Final = re.findall(
    r"\w+", "FROM WHERE GROUP HAVING ORDER LIMIT UNION INTERSECT EXCEPT MINUS QUALIFY WINDOW FOR INTO LATERAL"
)


def parse_select(stream: TokenStream) -> Query:
    """Parses a statement that is a query; its first word is part of the query."""
    stream.at = 0
    return parse_query(stream)


def parse_query(stream: TokenStream) -> Query:
    first = stream.at
    tree = stream.rest()
    if not isinstance(tree, exp.Query) or not isinstance(tree.unnest(), exp.Query):
        stream.at = first
        stream.fail("a query")
    return Query(tree, _headings(stream, first))


def _headings(stream: TokenStream, first: int) -> tuple[str, ...] | None:
    """Returns the items of the outermost, leftmost select list as written."""
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
