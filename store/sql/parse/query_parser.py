"""Queries, UPDATE, DELETE FROM and MERGE INTO: sqlglot's trees, and the headings as the user wrote them."""

from __future__ import annotations

import itertools
import re
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import EVERY_COLUMN
from seqstore.store.sql.parse.tokens import TokenStream, parse_tree

QUERY_STARTS: Final = frozenset(["SELECT", "WITH", "("])
_LIST_ENDS: Final = re.findall(
    r"\w+", "FROM WHERE GROUP HAVING ORDER LIMIT UNION INTERSECT EXCEPT MINUS QUALIFY WINDOW FOR INTO LATERAL"
)


def parse_select(stream: TokenStream) -> st.Query:
    """Parses a statement that is a query; its first word is part of the query."""
    stream.at = 0
    return parse_query(stream)


def parse_query(stream: TokenStream) -> st.Query:
    first = stream.at
    tree = stream.rest()
    if not isinstance(tree, exp.Query) or not isinstance(tree.unnest(), exp.Query):
        stream.at = first
        stream.fail("a query")
    return st.Query(tree, _headings(stream, first))


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


def parse_update(stream: TokenStream) -> st.UpdateStatement:
    """Parses `UPDATE t [alias] SET .. [FROM ..] [WHERE ..]`."""
    tree = _change_tree(stream)
    if not isinstance(tree, exp.Update) or tree.args.get("limit") or tree.args.get("order"):
        raise InvalidInputError("UPDATE takes SET, FROM and WHERE", kind="not_supported")
    return st.UpdateStatement(_target(tree), tree)


def parse_delete(stream: TokenStream) -> st.DeleteStatement:
    """Parses `DELETE [FROM] t [alias] [USING ..] WHERE ..`; Delta's documents omit FROM."""
    tree = _change_tree(stream, lacks_from=stream.word(1 - stream.at) != "FROM")
    if not isinstance(tree, exp.Delete) or tree.args.get("limit") or tree.args.get("order"):
        raise InvalidInputError("DELETE FROM takes USING and WHERE", kind="not_supported")
    return st.DeleteStatement(_target(tree), tree)


def parse_merge(stream: TokenStream) -> st.MergeStatement:
    """Parses `MERGE INTO t USING s ON .. WHEN ..`."""
    tree = _change_tree(stream)
    if not isinstance(tree, exp.Merge):
        raise InvalidInputError("expected MERGE INTO .. USING .. ON .. WHEN ..", kind="syntax")
    return st.MergeStatement(_target(tree), tree)


def _change_tree(stream: TokenStream, *, lacks_from: bool = False) -> exp.Expr:
    text, tokens = stream.text, stream.tokens
    start, end = tokens[0].start, tokens[-1].end + 1
    if lacks_from:
        text, end = f"{text[:start]}DELETE FROM{text[start + len('DELETE') :]}", end + len(" FROM")
    inserts = [
        after.start
        for before, after in itertools.pairwise(tokens)
        if before.text.upper() == "INSERT" and after.text.upper() == "VALUES"
    ]
    for offset in reversed(inserts):  # sqlglot needs a column list in INSERT VALUES of a MERGE
        text, end = f"{text[:offset]} ({EVERY_COLUMN}) {text[offset:end]}", end + len(f" ({EVERY_COLUMN}) ")
    stream.at = len(tokens)
    return parse_tree(text, start, end)


def _target(tree: exp.Expr) -> st.TableName:
    target = tree.this
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
        raise InvalidInputError("target table in update command should be an olapTable", kind="bad_target")
    return st.TableName(target.db or None, target.name)
