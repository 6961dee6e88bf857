"""Sessions on a fresh store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from seqstore import Store
from seqstore.store.sql import Session

NOON = datetime(2024, 5, 6, 12, 30, 45, 678901, tzinfo=UTC)
Run = Callable[[str], Any]


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    """A session whose clock stands still, in the database `db`."""
    with Session(store, "db", clock=lambda: NOON) as opened:
        opened.variables.set("time_zone", "UTC")
        yield opened


@pytest.fixture
def rows(session: Session) -> Run:
    """Runs a text and gives the rows of its last statement as tuples."""

    def run(text: str) -> list[tuple[Any, ...]]:
        result = list(session.execute(text))[-1]
        assert result.rows is not None
        return list(zip(*(column.to_pylist() for column in result.rows.columns), strict=True))

    return run


@pytest.fixture
def value(rows: Run) -> Run:
    """The one value of an expression."""

    def run(expression: str) -> Any:
        return rows(f"SELECT {expression}")[0][0]

    return run
