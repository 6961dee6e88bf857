"""SELECT."""

from __future__ import annotations

from typing import Final

from seqstore.store.sql.parse.query_parser import parse_query
from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind


def _parse(stream: TokenStream) -> Query:
    stream.at = 0  # the first word is part of the query
    return parse_query(stream)


def _query(statement: Query, session: Session) -> Result:
    with session.stream(statement) as reader:
        return Result(reader.read_all())


KINDS: Final = (StatementKind(("SELECT", "WITH", "("), Query, _parse, _query),)
