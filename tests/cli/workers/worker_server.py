"""`seqstore serve --workers`: a server of several processes, and clients of a chosen one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pymysql

from tests.cli.mysql_client import ask
from tests.support.http_server import Answer, ServerProcess, basic

_T = TypeVar("_T")
SECONDS_MAX = 120
TOO_MANY_CONNECTIONS = 1203
ENDLESS = "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 1e12) SELECT max(n) FROM r"


def eventually(found: Callable[[], _T], what: str, seconds: float = SECONDS_MAX) -> _T:
    """The first true value of a function that is asked again and again."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"after {seconds} s there is still no {what}"
        time.sleep(0.02)
    return value


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return False


class WorkerClient:
    """One HTTP connection, which stays with its worker.

    Attributes:
        worker: process id of the worker.
    """

    def __init__(self, connection: HTTPConnection, worker: int) -> None:
        self.connection = connection
        self.worker = worker

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        user: str | None = "root:",
    ) -> Answer:
        """Sends a request on the connection; ConnectionError when the worker has ended."""
        given = dict(headers or {})
        if user is not None:
            given.setdefault("Authorization", basic(user))
        self.connection.request(method, path, body, given)
        response = self.connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())

    def load(self, table: str, body: str, user: str = "root:", **headers: str) -> Any:
        """PUTs a CSV body with commas; gives the reply."""
        path = f"/api/db/{table}/_stream_load"
        return self.request("PUT", path, body.encode(), {"column_separator": ",", **headers}, user).json


class WorkerServer(ServerProcess):
    """A server with workers."""

    def __init__(self, data_dir: Path, workers: int, *options: str, **given: Any) -> None:
        super().__init__(data_dir, "--workers", str(workers), *options, **given)
        self.count = workers
        self._clients: list[HTTPConnection] = []

    @property
    def hub(self) -> psutil.Process:
        """The parent of the workers."""
        return psutil.Process(self.process.pid)

    def workers(self) -> list[int]:
        """Process ids of the workers that run."""
        return sorted(each.pid for each in self.hub.children() if _runs(each))

    def worker_of(self, client: socket.socket) -> int:
        """Process id of the worker that has accepted a client."""
        ours, theirs = client.getsockname()[1], client.getpeername()[1]

        def found() -> int:
            for pid in self.workers():
                try:
                    for each in psutil.Process(pid).net_connections("tcp"):
                        if each.raddr and each.raddr.port == ours and each.laddr.port == theirs:
                            return pid
                except psutil.Error:
                    continue
            return 0

        return eventually(found, "worker of a connection")

    def http(self, worker: int) -> WorkerClient:
        """A connection to a worker, until `close_clients`."""

        def connect() -> tuple[HTTPConnection, socket.socket]:
            connection = HTTPConnection(self.client.host, self.client.port, timeout=SECONDS_MAX)
            connection.connect()
            return connection, connection.sock

        self._clients.append(self._at(worker, connect))
        return WorkerClient(self._clients[-1], worker)

    def close_clients(self) -> None:
        """Closes the connections of `http`."""
        while self._clients:
            self._clients.pop().close()

    def mysql(self, worker: int, **options: Any) -> Any:
        """A PyMySQL connection to a worker."""

        def connect() -> tuple[Any, socket.socket]:
            connection = pymysql.connect(
                **{"host": "127.0.0.1", "port": self.mysql_port, "user": "root", **options}
            )
            return connection, connection._sock

        return self._at(worker, connect)

    def _at(self, worker: int, connect: Callable[[], tuple[Any, socket.socket]]) -> Any:
        """Connects until the worker accepts; the worker with the fewest clients accepts as a rule.

        Clients that another one accepted stay open meanwhile, unless their user may have no more.
        """
        aside: list[Any] = []
        counted_until = 0.0  # the server may not have noticed yet that they have left
        try:
            while len(aside) < 100:
                try:
                    connection, opened = connect()
                except pymysql.err.OperationalError as error:
                    if error.args[0] != TOO_MANY_CONNECTIONS or not (
                        aside or time.monotonic() < counted_until
                    ):
                        raise
                    counted_until = time.monotonic() + SECONDS_MAX if aside else counted_until
                    _close(aside)
                    time.sleep(0.05)
                    continue
                if self.worker_of(opened) == worker:
                    return connection
                aside.append(connection)
        finally:
            _close(aside)
        raise AssertionError(f"worker {worker} of {self.workers()} accepted none of 100 clients")


def _close(connections: list[Any]) -> None:
    while connections:
        connections.pop().close()


@contextmanager
def serving_workers(data_dir: Path, workers: int, *options: str, **given: Any) -> Iterator[WorkerServer]:
    """A running server, which is killed at the end unless it was stopped."""
    server = WorkerServer(data_dir, workers, *options, **given)
    try:
        yield server
    finally:
        server.close_clients()
        server.kill()


def write_settings(path: Path, **settings: Any) -> Path:
    """Writes a file for `serve --config`."""
    lines = [
        f"{name} = {str(value).lower() if isinstance(value, bool) else value!r}"
        for name, value in settings.items()
    ]
    path.write_text("[server]\n" + "\n".join(lines) + "\n")
    return path


@contextmanager
def running_query(connection: Any) -> Iterator[list[Exception]]:
    """Runs an endless query in a thread; yields its errors, and waits for its end."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            ask(connection, ENDLESS)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        thread.join()
