"""Sessions whose queries meet no copies of columns of other tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seqstore.store.sql import Session
from tests.support.copied import copies, settled
from tests.support.statements import last_result

Run = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(autouse=True)
def without_copies_of_other_tests() -> None:
    settled().relieve()
    copies()._paused_until = 0.0


@pytest.fixture
def run(session: Session) -> Run:
    def rows(sql: str) -> list[tuple[Any, ...]]:
        found = last_result(session, sql).rows
        return [] if found is None else [tuple(row.values()) for row in found.to_pylist()]

    return rows
