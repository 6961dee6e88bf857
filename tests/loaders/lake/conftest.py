"""A store that may read the files of one directory, and a session that imports tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seqstore import Settings, Store
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.store.sql import ServerContext, Session


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The directory that imports may read."""
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def settings(settings: Settings, files: Path) -> Settings:
    """Those of the marker, with `files` as the only directory that loads may read."""
    return replace(settings, load_paths=(str(files),))


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    """A session that may import tables."""
    with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as opened:
        yield opened
