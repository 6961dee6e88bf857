"""A store with a database `db` for the tests of the engine's modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seqstore import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data") as opened:
        opened.create_database("db")
        yield opened
