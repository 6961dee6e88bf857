"""A real HTTP server for tests: in a thread of this process, or as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from seqstore import Store
from seqstore.cli.clients.audit_log import AuditLog
from seqstore.cli.clients.login_guard import LoginGuard
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.server.http import HttpService
from seqstore.cli.server.settings import ServerSettings
from seqstore.store.sql.session.server_context import Ports
from tests.support.children import MODULES, ROOT
from tests.support.forks.forked import PRELOAD, ForkedPython


@dataclass
class Answer:
    """Status, headers and body of an HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Requests to one server, each on a connection of its own.

    Attributes:
        timeout: seconds that an answer may take.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.timeout = 60.0
        self.host, _, port = address.partition("://")[2].rpartition(":")
        self.port = int(port)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        user: str | None = "root:",
    ) -> Answer:
        connection = HTTPConnection(self.host, self.port, timeout=self.timeout)
        given = dict(headers or {})
        if user is not None:
            given.setdefault("Authorization", basic(user))
        try:
            connection.request(method, path, body, given)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def load(self, table: str, body: Any, user: str = "root:", **headers: str) -> Any:
        """PUTs a body as CSV with commas unless the headers say otherwise; gives the reply."""
        given = {"column_separator": ","} | {k.replace("__", ".", 1): v for k, v in headers.items()}
        database, _, name = table.rpartition(".")
        path = f"/api/{database or 'db'}/{name}/_stream_load"
        data = body.encode() if isinstance(body, str) else body
        if not data:  # a client that sends nothing is sent on first
            path += "?redirected=1"
        return self.request("PUT", path, data, given, user).json

    def raw(self, data: bytes, *, close_our_side: bool = False, timeout: float = 30) -> bytes:
        """Sends bytes as they are; gives everything that comes back until the server closes or falls
        silent."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as connection:
            connection.sendall(data)
            if close_our_side:
                connection.shutdown(socket.SHUT_WR)
            return read_answer(connection)


def read_answer(connection: socket.socket) -> bytes:
    """One answer: head, and as much as its Content-Length says."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        if not piece:
            return received
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    while length and len(body) < int(length[1]):
        piece = connection.recv(65536)
        if not piece:
            break
        body += piece
    return head + b"\r\n\r\n" + body


def basic(user: str) -> str:
    return "Basic " + b64encode(user.encode()).decode()


@contextmanager
def serving(
    store: Store,
    guard: LoginGuard | None = None,
    audit: AuditLog | None = None,
    ports: Callable[[], Ports] = Ports,
    sessions: ServerSessions | None = None,
    **settings: Any,
) -> Iterator[Client]:
    """The HTTP service of a store on a free port, in a thread; `sessions` replace what stands before them."""
    given = sessions or ServerSessions(store, guard=guard, audit=audit, ports=ports)
    service = HttpService(given, ServerSettings(**settings), 0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(service.start(), loop).result(120)
        yield Client(service.address)
    finally:
        asyncio.run_coroutine_threadsafe(service.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def limit_files(count: int) -> None:
    """Limits the files that this process and its children may open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


class ServerProcess:
    """`seqstore serve` as a process of its own.

    Args:
        is_measured: it is a new interpreter, without modules that it does not import itself.

    Attributes:
        client: talks to it.
        process: to be killed.
        mysql_port: of the MySQL protocol.
    """

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        open_files_max: int | None = None,
        environment: dict[str, str] | None = None,
        is_measured: bool = False,
    ) -> None:
        ports = ("--http-port", "0", "--mysql-port", "0")
        command = ["-m", "seqstore.cli.main", "--data-dir", str(data_dir), "serve", *ports, *options]
        given = {**os.environ, "PYTHONPATH": MODULES} if environment is None else environment
        self.process: ForkedPython | subprocess.Popen[str]
        if is_measured or open_files_max is not None or PRELOAD in given:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=ROOT,
                env=given,
                preexec_fn=None if open_files_max is None else partial(limit_files, open_files_max),
            )
        else:
            self.process = ForkedPython(command, environment=given, stderr=subprocess.STDOUT)
        self.lines: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line == "ready\n":
                break
        else:
            self._close()
            raise RuntimeError(f"the server ended with {self.process.wait()}: {self.lines}")
        found = next(line for line in self.lines if "listening on http" in line)
        mysql = next(line for line in self.lines if "mysql://" in line)
        self.mysql_port = int(mysql.rpartition(":")[2])
        self.client = Client(found.rpartition(" ")[2])

    def port(self, scheme: str) -> int:
        """The port of one of its services, such as `grpc`."""
        line = next(line for line in self.lines if f" {scheme}://" in line)
        return int(line.rpartition(":")[2])

    def stop(self, timeout: float = 60) -> int:
        """Asks it to stop; its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        finally:
            self._close()

    def last_words(self) -> list[str]:
        """What it printed before it ended; from the name of a fatal signal on, if there was one."""
        assert self.process.stdout is not None
        lines = self.process.stdout.readlines()
        fatal = [number for number, line in enumerate(lines) if line.startswith("Fatal")]
        return lines[fatal[0] : fatal[0] + 100] if fatal else lines[-100:]

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()
