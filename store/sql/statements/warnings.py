"""SHOW WARNINGS: what the statement before told besides its answer."""

from __future__ import annotations

from typing import Final

from seqstore.store.sql.parse.statement_values import ShowWarnings
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind


def _parse(_stream: TokenStream) -> ShowWarnings:
    return ShowWarnings()


def _show(_statement: ShowWarnings, session: Session) -> Result:
    rows = [("Warning", "1105", text) for text in session.warnings]
    return text_rows(["Level", "Code", "Message"], rows)


KINDS: Final = (StatementKind(("SHOW WARNINGS",), ShowWarnings, _parse, _show),)
