"""A server whose clients open more connections than the process may open files."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pymysql
import pytest

from seqstore import Store, UnavailableError
from seqstore.cli.logs.log_throttle import LogThrottle
from seqstore.cli.mysql import MysqlServer
from seqstore.cli.server.settings import ServerSettings
from seqstore.store.runtime.descriptors import raise_limit, require_for_duckdb
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import parse_type
from tests.cli.mysql_client import ask
from tests.support.http_server import ServerProcess, serving


@contextlib.contextmanager
def no_files_left() -> Iterator[None]:
    """This process can open no further file within the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each) for each in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_mysql_port_is_served_after_a_lack_of_descriptors(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The accepting thread ended for good at the first client that it could not accept."""
    with MysqlServer(store) as server:
        with contextlib.ExitStack() as opened:
            clients = [opened.enter_context(socket.socket()) for _ in range(20)]
            with no_files_left(), caplog.at_level(logging.WARNING):
                for client in clients:  # a file that another thread closes meanwhile lets one more in
                    client.settimeout(60)
                    client.connect(("127.0.0.1", server.port))
                    until = time.monotonic() + 10
                    while "no MySQL client can be accepted" not in caplog.text and time.monotonic() < until:
                        pass
                    if time.monotonic() < until:
                        break
            assert "no MySQL client can be accepted" in caplog.text
            assert client.recv(5), "the client that waited is served"
        with pymysql.connect(host="127.0.0.1", port=server.port, user="root") as connection:
            assert ask(connection, "SELECT 1") == [(1,)]


def test_duckdb_is_not_opened_without_descriptors() -> None:
    """DuckDB ends the whole process then."""
    with no_files_left(), pytest.raises(UnavailableError, match="too many open files"):
        require_for_duckdb()


def test_a_cast_opens_no_duckdb_without_descriptors() -> None:
    """Each thread has a connection of its own, and the first cast in it ended the whole process."""

    def cast() -> None:
        try_cast(pa.array(["[1]"]), parse_type("ARRAY<INT>"))

    cast()
    refused = pytest.raises(UnavailableError, match="too many open files")
    with ThreadPoolExecutor(1) as pool, no_files_left(), refused:
        pool.submit(cast).result()


def test_the_limit_of_open_files_is_raised_to_what_the_system_allows() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 400));"
        "from seqstore.store.runtime.descriptors import raise_limit;"
        "print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["400", "(400,", "400)"]
    assert raise_limit() > 0


@pytest.mark.parametrize(("limit", "http", "mysql"), [(1 << 20, 1024, 256), (1024, 614, 153), (300, 60, 15)])
def test_connections_fit_into_the_limit_of_open_files(limit: int, http: int, mysql: int) -> None:
    fitting = ServerSettings().fitting(limit)
    assert (fitting.http_connections_max, fitting.mysql_connections_max) == (http, mysql)


def test_idle_http_connections_make_room_for_new_ones(store: Store) -> None:
    with serving(store, http_connections_max=20) as client:
        idle = [socket.create_connection((client.host, client.port), timeout=60) for _ in range(60)]
        try:
            for _ in range(20):
                assert client.request("GET", "/health").status == 200
            assert sum(not is_open(each) for each in idle) >= 60 - 20
        finally:
            for each in idle:
                each.close()


@pytest.mark.sql("CREATE TABLE t (k INT, v STRING, n INT) UNIQUE KEY(k)")
def test_busy_http_connections_are_not_closed_for_new_ones(store: Store) -> None:
    with serving(store, http_connections_max=4, body_idle_seconds=60) as client:
        head = (
            b"PUT /api/db/t/_stream_load?redirected=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
        )
        head += b"Authorization: Basic cm9vdDo=\r\nExpect: 100-continue\r\n\r\n"
        busy = [socket.create_connection((client.host, client.port), timeout=60) for _ in range(4)]
        for each in busy:
            each.sendall(head)
            assert b"100 Continue" in each.recv(65536)
        answers = [client.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(3)]
        assert any(b"503" in each and b"too many connections" in each for each in answers)
        for each in busy:
            each.sendall(b"1,a,1\n1,a,")
            assert b"HTTP/1.1 200" in each.recv(65536)
            each.close()


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_repeated_log_lines_are_counted_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log grew by a megabyte a second."""
    now = [0.0]
    monkeypatch.setattr("seqstore.cli.logs.log_throttle.time.monotonic", lambda: now[0])
    throttle = LogThrottle()

    def lines(count: int) -> list[str]:
        made = [
            logging.makeLogRecord({"name": "a", "msg": "no room for %s", "args": (n,)}) for n in range(count)
        ]
        return [record.getMessage() for record in made if throttle.filter(record)]

    assert lines(1000) == [f"no room for {n}" for n in range(5)]
    now[0] = 11.0
    assert lines(1) == ["no room for 0 (995 such lines were left out)"]
    assert throttle.filter(logging.makeLogRecord({"name": "a", "msg": "another"}))


def test_more_idle_connections_than_files_leave_the_server_in_order(tmp_path: Path) -> None:
    """DuckDB ended the process, or the MySQL port stayed dead, and the log filled the disk."""
    server = ServerProcess(tmp_path / "data", open_files_max=400)
    held: list[socket.socket] = []
    try:
        for number in range(1_100):
            port = server.mysql_port if number % 2 else server.client.port
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", port), timeout=60))
        assert server.client.request("GET", "/health").status == 200
        for each in held:
            each.close()
        assert answers(server)
        server.process.terminate()
        assert server.process.stdout is not None
        log = server.process.stdout.read()
        assert server.process.wait(60) == 0
        assert len(log) < 100_000, log[:5000]
    finally:
        server.kill()


def answers(server: ServerProcess) -> bool:
    """Whether SQL is answered, once the server has noticed that the others have left."""
    while True:
        try:
            with pymysql.connect(host="127.0.0.1", port=server.mysql_port, user="root") as connection:
                return ask(connection, "SELECT 1 + 1") == [(2,)]
        except pymysql.MySQLError as error:
            if error.args[0] not in (1040, 2003, 2013):
                raise


def test_files_of_the_server_belong_to_its_user_alone(tmp_path: Path) -> None:
    """They had the modes that the umask of the shell left to them: error logs and tables were open to all."""
    before = os.umask(0)
    try:
        server = ServerProcess(tmp_path / "data")
    finally:
        os.umask(before)
    try:
        with pymysql.connect(host="127.0.0.1", port=server.mysql_port, user="root") as connection:
            ask(connection, "CREATE DATABASE db")
            ask(connection, "CREATE TABLE db.t (k INT NOT NULL, v STRING) UNIQUE KEY(k)")
        rows = "".join(f"{number},{number:0300}\n" for number in range(3000))  # too many for the catalog
        reply = server.client.load("db.t", rows + "x,y\n", max_filter_ratio="0.5")
        assert (reply["Status"], reply["NumberFilteredRows"]) == ("Success", 1), reply
        found = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
        modes = {str(path): path.stat().st_mode & 0o777 for path in found}
        assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}
        assert any(path.endswith(".arrow") for path in modes)
    finally:
        server.kill()
