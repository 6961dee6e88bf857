"""Statements of MySQL that Doris lacks, and that belong to no other family: DO and FLUSH."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.sql.parse.query_parser import parse_query
from seqstore.store.sql.parse.sqlglot_adapter import TokenType
from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream, split_statements
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind

_KINDS_OF_LOGS: Final = ("BINARY", "ENGINE", "ERROR", "GENERAL", "RELAY", "SLOW")
_FLUSHED: Final = ("PRIVILEGES", "TABLES", "TABLE", "LOGS", "STATUS", "HOSTS", "QUERY", *_KINDS_OF_LOGS)


@dataclass(frozen=True)
class Do:
    """DO expression, ..: a query whose row is not returned."""

    query: Query


def _parse_do(stream: TokenStream) -> Do:
    if stream.is_done:
        stream.fail("an expression")
    expressions = stream.text[stream.tokens[stream.at].start : stream.tokens[-1].end + 1]
    stream.at = len(stream.tokens)
    (inner,) = split_statements(f"SELECT {expressions}")
    return Do(parse_query(inner))


def _do(statement: Do, session: Session) -> None:
    with session.stream(statement.query) as reader:
        for _ in reader:
            pass


@dataclass(frozen=True)
class Flush:
    """FLUSH .., of caches that do not exist: privileges and tables are as they were changed last."""


def _parse_flush(stream: TokenStream) -> Flush:
    stream.take_one_of("LOCAL", "NO_WRITE_TO_BINLOG")
    stream.listed(_parse_flushed)
    if stream.word() in ("WITH", "FOR"):
        stream.refuse(
            "FLUSH TABLES locks no tables; LOCK TABLES t READ, or a transaction, reads as of one moment"
        )
    return Flush()


def _parse_flushed(stream: TokenStream) -> None:
    found = stream.take_one_of(*_FLUSHED) or stream.fail(" or ".join(_FLUSHED))
    if found == "QUERY":
        stream.need("CACHE")
    elif found in _KINDS_OF_LOGS:
        stream.need("LOGS")
    elif (
        found in ("TABLES", "TABLE")
        and stream.kind() not in (None, TokenType.COMMA)
        and stream.word() not in ("WITH", "FOR")
    ):
        stream.listed(parse_table_name)


def _flush(_statement: Flush, _session: Session) -> None:
    """Does nothing."""


KINDS: Final = (
    StatementKind(("DO",), Do, _parse_do, _do),
    StatementKind(("FLUSH",), Flush, _parse_flush, _flush),
)
