"""SHOW WARNINGS: the warnings of the statement before."""

from __future__ import annotations

from typing import Final

from seqstore.store.sql.parse.statement_values import ShowWarnings
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind


def _show(_statement: ShowWarnings, session: Session) -> Result:
    rows = [("Warning", "1105", text) for text in session.warnings]
    return text_rows(["Level", "Code", "Message"], rows)


KINDS: Final = (StatementKind(("SHOW WARNINGS",), ShowWarnings, lambda _stream: ShowWarnings(), _show),)
