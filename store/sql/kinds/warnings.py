"""SHOW WARNINGS: what the statement before told besides its answer."""

from __future__ import annotations

from typing import Final

from store.sql.result import Result, text_rows
from store.sql.session import Session
from store.sql.statement_kind import StatementKind
from store.sql.statements import ShowWarnings
from store.sql.tokens import TokenStream


def _parse(_stream: TokenStream) -> ShowWarnings:
    return ShowWarnings()


def _show(_statement: ShowWarnings, session: Session) -> Result:
    rows = [("Warning", "1105", text) for text in session.warnings]
    return text_rows(["Level", "Code", "Message"], rows)


KINDS: Final = (StatementKind(("SHOW WARNINGS",), ShowWarnings, _parse, _show),)
