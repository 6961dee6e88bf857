"""A store that may read files of one directory, a session for jobs, one Kafka broker for them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bench.kafka.broker import KafkaBroker, running_broker
from bench.kafka.jars import JarsUnreachableError, kafka_jars
from seqstore import Settings, Store
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.store.sql import ServerContext, Session

_BROKER = pytest.StashKey[ExitStack]()


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Those of the marker, with `tmp_path / "in"` as the only directory of loads."""
    (tmp_path / "in").mkdir()
    return replace(settings, load_paths=(str(tmp_path / "in"),))


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    """A session that knows routine loads."""
    with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as opened:
        yield opened


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real one; tests that use it are marked `spark`, for its jars come with what Spark needs too."""
    try:
        kafka_jars()
    except JarsUnreachableError as error:
        pytest.skip(str(error))
    with request.config.stash.setdefault(_BROKER, ExitStack()) as running:
        yield running.enter_context(running_broker(tmp_path_factory.mktemp("kafka") / "broker"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Ends the broker behind the last test that uses it: idle, it takes a twentieth of a processor.

    These tests run one after the other: `tests/distribution.py` makes one group of them.
    """
    yield
    if _BROKER in item.config.stash and "broker" not in getattr(nextitem, "fixturenames", ()):
        item.config.stash[_BROKER].close()
