"""SAVEPOINT, ROLLBACK TO and RELEASE, of transactions that only read (sql.session.session_transaction).

Dumps set a savepoint before each table and return to it, which releases the locks of that table in MySQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind


@dataclass(frozen=True)
class Savepoint:
    """SAVEPOINT name."""

    name: str


@dataclass(frozen=True)
class RollbackTo:
    """ROLLBACK [WORK] TO [SAVEPOINT] name."""

    name: str


@dataclass(frozen=True)
class ReleaseSavepoint:
    """RELEASE SAVEPOINT name."""

    name: str


def _parse_name(stream: TokenStream) -> str:
    return stream.name("the name of a savepoint")


def _parse_rollback_to(stream: TokenStream) -> RollbackTo:
    if stream.word() == "SAVEPOINT" and stream.kind(1) is not None:
        stream.need("SAVEPOINT")
    return RollbackTo(_parse_name(stream))


def _set(statement: Savepoint, session: Session) -> None:
    session.transactions.set_savepoint(statement.name)


def _rollback_to(statement: RollbackTo, session: Session) -> None:
    session.transactions.rollback_to(statement.name)


def _release(statement: ReleaseSavepoint, session: Session) -> None:
    session.transactions.release_savepoint(statement.name)


KINDS: Final = (
    StatementKind(("SAVEPOINT",), Savepoint, lambda stream: Savepoint(_parse_name(stream)), _set),
    StatementKind(("ROLLBACK TO", "ROLLBACK WORK TO"), RollbackTo, _parse_rollback_to, _rollback_to),
    StatementKind(
        ("RELEASE SAVEPOINT",),
        ReleaseSavepoint,
        lambda stream: ReleaseSavepoint(_parse_name(stream)),
        _release,
    ),
)
