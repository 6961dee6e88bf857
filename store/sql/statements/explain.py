"""EXPLAIN: the columns, segments, batches and rows that a statement will read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.evaluate.select import explain_query
from seqstore.store.sql.parse.statement_values import DmlStatement, Insert, Query
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.explain import explain_dml, explain_insert
from seqstore.store.sql.session.parser import parse_statement
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind, kind_of

_LEVELS: Final = (
    "VERBOSE",
    "GRAPH",
    "PARSED",
    "ANALYZED",
    "REWRITTEN",
    "LOGICAL",
    "PHYSICAL",
    "SHAPE",
    "ALL",
)


@dataclass(frozen=True)
class Explain:
    """`statement` is the statement behind EXPLAIN."""

    statement: Any


def _parse(stream: TokenStream) -> Explain:
    stream.take_one_of(*_LEVELS)
    stream.take("PLAN")
    # The explained statement has a stream of its own, with the offsets of the whole text.
    inner = TokenStream(stream.text, stream.tokens[stream.at :], stream.end)
    if not inner.tokens:
        stream.fail("a statement to explain")
    statement = parse_statement(inner)
    stream.at = len(stream.tokens)
    return Explain(statement)


def _explain(statement: Explain, session: Session) -> Result:
    explained = statement.statement
    if isinstance(explained, Query):
        with session.query_context() as context:
            lines = explain_query(explained, context)
    elif isinstance(explained, Insert):
        lines = explain_insert(explained, session)
    elif isinstance(explained, DmlStatement):
        lines = explain_dml(explained, session)
    else:
        kind = kind_of(explained)
        name = kind.starts[0] if kind is not None else type(explained).__name__
        raise InvalidInputError(
            f"EXPLAIN takes SELECT, INSERT, UPDATE, DELETE or MERGE INTO, found {name}", kind="not_supported"
        )
    return text_rows(["Explain String"], [(line,) for line in lines])


KINDS: Final = (StatementKind(("EXPLAIN",), Explain, _parse, _explain),)
