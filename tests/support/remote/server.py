"""A server of stores elsewhere for tests: in this process, or in one of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seqstore import Settings, Store
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.store.maintenance.scheduler import Maintainer
from seqstore.store.remote.remote_store import RemoteStore, connect
from tests.support.children import MODULES, ROOT
from tests.support.forks.forked import ForkedPython

LEASE_SECONDS = 60.0


@contextmanager
def serving(store: Store, lease_seconds: float = LEASE_SECONDS, port: int = 0) -> Iterator[FlightSqlServer]:
    """The Flight server of a store, in this process."""
    server = FlightSqlServer(ServerSessions(store), "127.0.0.1", port, lease_seconds=lease_seconds)
    try:
        yield server
    finally:
        server.stop()


def client(server: FlightSqlServer, user: str = "root", password: str = "") -> RemoteStore:
    """A client of a server in this process."""
    return connect(f"seqstore://127.0.0.1:{server.port}", user=user, password=password)


class ServerProcess:
    """A process that serves one store after another."""

    def __init__(self) -> None:
        environment = {"PYTHONPATH": MODULES, "PATH": ""}
        arguments = ["-m", "tests.support.remote.server"]
        self._process = ForkedPython(arguments, environment=environment, directory=ROOT, has_input=True)

    def open(self, path: Path, settings: Settings, lease_seconds: float = LEASE_SECONDS) -> str:
        """Serves a store, no other one from now on; returns the URL."""
        return str(self._ask(path=str(path), settings=asdict(settings), lease_seconds=lease_seconds)["url"])

    def close(self) -> None:
        """Closes the store that is served."""
        self._ask()

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def _serve() -> None:
    """Serves what the lines of the input name; an empty request closes the store."""
    Maintainer.after_load = lambda self, table, state: None  # type: ignore[method-assign]
    opened: list[tuple[Store, FlightSqlServer]] = []
    for line in sys.stdin:
        request = json.loads(line)
        for store, server in opened:
            server.stop()
            store.close()
        opened.clear()
        if not request:
            print("{}", flush=True)
            continue
        store = Store.open(request["path"], settings=Settings(**request["settings"]))
        server = FlightSqlServer(
            ServerSessions(store), "127.0.0.1", 0, lease_seconds=request["lease_seconds"]
        )
        opened.append((store, server))
        print(json.dumps({"url": f"seqstore://127.0.0.1:{server.port}"}), flush=True)


if __name__ == "__main__":
    _serve()
