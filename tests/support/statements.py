"""Statements run in a session, and their answers in the shapes that tests compare."""

from __future__ import annotations

from typing import Any

from seqstore import Session
from seqstore.store.sql.result import Result


def last_result(session: Session, text: str) -> Result:
    """Runs a text; returns the result of its last statement."""
    return list(session.execute(text))[-1]


def run(session: Session, text: str) -> Any:
    """Runs a text; returns the sorted rows of its last statement as tuples, or its result without rows."""
    result = last_result(session, text)
    if result.rows is None:
        return result
    return sorted(tuple(row.values()) for row in result.rows.to_pylist())


def dicts(session: Session, text: str) -> list[dict[str, Any]]:
    """Runs a text; returns the rows of its last statement, none when it has none."""
    result = last_result(session, text)
    return [] if result.rows is None else result.rows.to_pylist()


def is_grouped(result: Result) -> bool:
    """Returns whether a statement shared a transaction with others, or might have (G13, G14)."""
    assert result.info is not None
    return "group_commit_" in result.info
