"""The store of tests of the engine is elsewhere: the server is a process of its own, `store` its client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seqstore import Session, Settings, Store
from tests.support.remote.server import ServerProcess
from tests.support.statements import last_result


@pytest.fixture(scope="module")
def server_process() -> Iterator[ServerProcess]:
    made = ServerProcess()
    yield made
    made.end()


@pytest.fixture
def store(
    request: pytest.FixtureRequest, tmp_path: Path, settings: Settings, server_process: ServerProcess
) -> Iterator[Store]:
    url = server_process.open(tmp_path / "data", settings)
    with Store.connect(url) as opened:
        opened.create_database("db")
        with Session(opened, "db") as session:
            for marker in reversed(list(request.node.iter_markers("sql"))):
                last_result(session, marker.args[0])
        yield opened
    server_process.close()
