"""SELECT."""

from __future__ import annotations

from typing import Final

from store.sql.query_parser import parse_query
from store.sql.result import Result
from store.sql.session import Session
from store.sql.statement_kind import StatementKind
from store.sql.statements import Query
from store.sql.tokens import TokenStream


def _parse(stream: TokenStream) -> Query:
    stream.at = 0  # the first word is part of the query
    return parse_query(stream)


def _query(statement: Query, session: Session) -> Result:
    with session.stream(statement) as reader:
        return Result(reader.read_all())


KINDS: Final = (StatementKind(("SELECT", "WITH", "("), Query, _parse, _query),)
