"""LOCK TABLES and UNLOCK TABLES, for mysqldump and for the files that it writes.

LOCK TABLES .. READ begins a read-only transaction: all later statements read the tables as of one moment, and
writers go on. LOCK TABLES .. WRITE locks nothing, because each write is one version; a warning tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind

_NO_LOCK: Final = "LOCK TABLES .. WRITE locks no table: every write is one version, whatever others do"


@dataclass(frozen=True)
class LockTables:
    """LOCK TABLES t [AS alias] {READ [LOCAL] | [LOW_PRIORITY] WRITE}, ..; whether each is for writing."""

    tables: tuple[tuple[TableName, bool], ...]


@dataclass(frozen=True)
class UnlockTables:
    """UNLOCK TABLES."""


def _parse_lock(stream: TokenStream) -> LockTables:
    return LockTables(tuple(stream.listed(_parse_locked)))


def _parse_locked(stream: TokenStream) -> tuple[TableName, bool]:
    table = parse_table_name(stream)
    if stream.take("AS"):
        stream.name("an alias")
    stream.take("LOW_PRIORITY")
    mode = stream.take_one_of("READ", "WRITE") or stream.fail("READ or WRITE")
    stream.take("LOCAL")
    return table, mode == "WRITE"


def _lock(statement: LockTables, session: Session) -> Result:
    for table, _ in statement.tables:
        session.require("SELECT", session.full_name(table))
        session.schema(table)
    session.transactions.commit()
    if any(is_write for _, is_write in statement.tables):
        return Result(warnings=(_NO_LOCK,))
    session.transactions.begin(is_read_only=True)
    return Result()


def _unlock(_statement: UnlockTables, session: Session) -> None:
    if session.transaction is not None and session.transactions.is_read_only:
        session.transactions.commit()


KINDS: Final = (
    StatementKind(("LOCK TABLES", "LOCK TABLE"), LockTables, _parse_lock, _lock),
    StatementKind(("UNLOCK TABLES", "UNLOCK TABLE"), UnlockTables, lambda _stream: UnlockTables(), _unlock),
)
