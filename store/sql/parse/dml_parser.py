"""UPDATE, DELETE FROM and MERGE INTO: sqlglot's tree of the whole statement, and the table that it writes."""

from __future__ import annotations

import itertools

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import (
    EVERY_COLUMN,
    DeleteStatement,
    MergeStatement,
    TableName,
    UpdateStatement,
)
from seqstore.store.sql.parse.tokens import TokenStream, parse_tree


def parse_update(stream: TokenStream) -> UpdateStatement:
    """Parses `UPDATE t [alias] SET .. [FROM ..] [WHERE ..]`."""
    tree = _tree(stream)
    if not isinstance(tree, exp.Update) or tree.args.get("limit") or tree.args.get("order"):
        raise InvalidInputError("UPDATE takes SET, FROM and WHERE", kind="not_supported")
    return UpdateStatement(_target(tree), tree)


def parse_delete(stream: TokenStream) -> DeleteStatement:
    """Parses `DELETE [FROM] t [alias] [USING ..] WHERE ..`; Delta's documents omit FROM."""
    tree = _tree(stream, lacks_from=stream.word(1 - stream.at) != "FROM")
    if not isinstance(tree, exp.Delete) or tree.args.get("limit") or tree.args.get("order"):
        raise InvalidInputError("DELETE FROM takes USING and WHERE", kind="not_supported")
    return DeleteStatement(_target(tree), tree)


def parse_merge(stream: TokenStream) -> MergeStatement:
    """Parses `MERGE INTO t USING s ON .. WHEN ..`."""
    tree = _tree(stream)
    if not isinstance(tree, exp.Merge):
        raise InvalidInputError("expected MERGE INTO .. USING .. ON .. WHEN ..", kind="syntax")
    return MergeStatement(_target(tree), tree)


def _tree(stream: TokenStream, *, lacks_from: bool = False) -> exp.Expr:
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


def _target(tree: exp.Expr) -> TableName:
    """Returns the table that a statement writes."""
    target = tree.this
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
        raise InvalidInputError("target table in update command should be an olapTable", kind="bad_target")
    return TableName(target.db or None, target.name)
