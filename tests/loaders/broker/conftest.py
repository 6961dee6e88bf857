"""A store that may read the files of one directory, and a session that runs load jobs."""

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
    """The directory that jobs may read."""
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def settings(settings: Settings, files: Path) -> Settings:
    """Those of the marker, with `files` as the only directory of loads."""
    return replace(settings, load_paths=(str(files),))


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    """A session whose LOAD LABEL statements run in the background."""
    with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as opened:
        yield opened
