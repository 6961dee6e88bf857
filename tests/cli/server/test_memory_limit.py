"""One server's memory limit: statements that want more fail, the process stays below it and serves others."""

from __future__ import annotations

import itertools
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest

from seqstore import Store
from seqstore.store.sql.session.session import Session
from tests.cli.scan.flight_client import FlightClient
from tests.seeds import new_seed
from tests.support.http_server import ServerProcess
from tests.support.kafka import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit needs Linux")

# The limit, and how many statements at once meet it.
SIZES = (
    pytest.param(640 << 20, 8, id="8 statements"),
    pytest.param(2 << 30, 50, id="50 statements", marks=pytest.mark.torture),
)
# Each wants gigabytes; DuckDB counts the memory of some of them only.
GREEDY = (
    "SELECT length(repeat('a', 2000000000))",
    "SELECT max(length(repeat('a', 60000000 + k))) FROM db.t",
    "SELECT size(array_range(1000000000))",
    "SELECT max(size(array_range(900000 + k))) FROM db.t",
    "SELECT count(*) FROM (SELECT 1 a) t LATERAL VIEW explode_numbers(1000000000) x AS e",
    "SELECT count(*), max(e) FROM (SELECT array_range(900000) a FROM db.t) t LATERAL VIEW explode(a) x AS e",
    "SELECT length(concat(x, x, x, x, x, x, x, x)) FROM"
    " (SELECT concat(x, x, x, x, x, x, x, x) x FROM (SELECT repeat('a', 60000000) x) a) b",
    "SELECT length(replace(repeat('a', 1000000), 'a', repeat('b', 100000)))",
    "SELECT max(size(array_repeat(concat(repeat('a', 1000), k), 1000000))) FROM db.t",
    "SELECT length(group_concat(concat(repeat('a', 100000), a.k, b.k))) FROM db.t a, db.t b",
    "SELECT group_concat(concat(repeat('a', 100000), k)) FROM db.t GROUP BY k % 3",
    "SELECT count(*) FROM (SELECT repeat('a', 500) x, a.k, b.k l FROM db.t a, db.t b, db.t c"
    " ORDER BY x, l, a.k LIMIT 100000000) s",
    "SELECT size(collect_list(concat(repeat('a', 1000), a.k, b.k))) FROM db.t a, db.t b",
    "SELECT count(*) FROM (SELECT concat(a.k, '-', b.k) x FROM db.t a, db.t b) l"
    " JOIN (SELECT concat(a.k, '-', b.k) x FROM db.t a, db.t b) r ON l.x = r.x",
    "SELECT upper(repeat(v, 1000000)) FROM db.t",
    "INSERT INTO db.other SELECT k, repeat('a', 60000000) FROM db.t",
)
# gRPC says it in its own words where it finds no memory for a thread.
_REFUSED = re.compile("memory|Threadpool Exhausted", re.IGNORECASE)
LONG_DATA = "64 MB by COM_STMT_SEND_LONG_DATA"
LOAD = "columns: k, w, v=repeat(w, 60000000)"


@pytest.fixture
def limit_bytes() -> int:
    return 640 << 20


@pytest.fixture
def server(tmp_path: Path, limit_bytes: int) -> Iterator[ServerProcess]:
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        for name in ("t", "other"):
            made = f"CREATE TABLE db.{name} (k BIGINT, v STRING) UNIQUE KEY(k)"
            list(session.execute(f"CREATE DATABASE IF NOT EXISTS db; {made}"))
        rows = ", ".join(f"({k}, 'v{k}')" for k in range(2000))
        list(session.execute(f"INSERT INTO db.t VALUES {rows}"))
    config = tmp_path / "server.toml"
    config.write_text(
        f"[server]\nmemory_bytes_max = {limit_bytes}\nmysql_login_seconds = 120\nflight_port = 0\n"
    )
    running = ServerProcess(tmp_path / "data", "--config", str(config), is_measured=True)
    try:
        yield running
    finally:
        running.kill()


def connect(server: ServerProcess, **options: Any) -> Any:
    return pymysql.connect(host="127.0.0.1", port=server.mysql_port, user="root", autocommit=True, **options)


def memory_bytes(server: ServerProcess) -> int:
    """The anonymous memory of a server: without the pages of mapped files."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024


def data_bytes(server: ServerProcess) -> int:
    """The private writable mappings of a server, which the limit bounds."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmData:\s+(\d+) kB", status)[0]) * 1024


class Peak:
    """The most memory that a server had while a block ran."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.bytes = 0

    def _run(self) -> None:
        while not self._ending.wait(0.01):
            self.bytes = max(self.bytes, memory_bytes(self._server))

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending.set()
        self._thread.join()


@pytest.mark.parametrize("limit_bytes", [1 << 30])  # beside slow threads the statement needs over 640 MiB
def test_freed_memory_leaves_the_mappings_of_the_server(server: ServerProcess) -> None:
    """DuckDB's allocator kept address space, which it could fill again whatever the limit was."""
    text = "SELECT max(length(repeat('a', 80000 + k))) FROM db.t"
    assert outcome(server, text) == "rows"
    wait_until(lambda: data_bytes(server) < 400 << 20, "memory", lambda: f"{data_bytes(server) >> 20} MiB")


def outcome(server: ServerProcess, text: str) -> str:
    if text == LOAD:
        body = "".join(f"{k},{k}\n" for k in range(1000))
        return str(
            server.client.load("other", body, columns=text.partition(": ")[2], timeout="30")["Message"]
        )
    connection = connect(server, init_command="SET query_timeout = 10")  # one of them goes on on disk
    try:
        if text == LONG_DATA:
            return long_data(connection)
        with connection.cursor() as cursor:
            cursor.execute(text)
            cursor.fetchall()
            return "rows"
    except pymysql.err.Error as error:
        return str(error)
    finally:
        connection.close()


def long_data(connection: Any) -> str:
    """Runs a prepared statement whose parameter comes in pieces."""
    connection._execute_command(0x16, "SELECT length(upper(concat(?, 'b')))")
    reply = connection._read_packet()
    statement = int.from_bytes(reply.get_all_data()[1:5], "little")
    for _ in range(4):  # the definition of the parameter, of the column, and an end behind each
        connection._read_packet()
    for _ in range(63):
        piece = statement.to_bytes(4, "little") + bytes(2) + b"a" * (1 << 20)
        connection._execute_command(0x18, piece)
    connection._execute_command(0x17, statement.to_bytes(4, "little") + b"\0\1\0\0\0" + b"\0\1\xfd\0")
    while not connection._read_packet().is_eof_packet():
        pass
    while not connection._read_packet().is_eof_packet():
        pass
    return "rows"


class Others:
    """Clients that read, list processes and load while a block runs.

    Attributes:
        kinds: of requests.
        seconds: the longest that each kind of request took.
        answers: of each kind.
        failures: what did not have the right answer.
        refusals: requests that found no memory.
    """

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._ending = threading.Event()
        self.seconds: dict[str, float] = {}
        self.answers: dict[str, int] = {}
        self.failures: list[str] = []
        self.refusals = 0
        requests = {
            "key": self._by_key,
            "rows": self._of_rows,
            "processes": self._processes,
            "load": self._loads,
            "flight": self._flight,
        }
        self.kinds = set(requests)
        self._threads = [threading.Thread(target=self._repeat, args=each) for each in requests.items()]

    def _repeat(self, name: str, kind: Callable[[], Iterator[None]]) -> None:
        requests = kind()
        while not self._ending.wait(0.02):
            began = time.monotonic()
            try:
                next(requests)
            except Exception as error:
                if _REFUSED.search(str(error)):  # a moment without memory; the client goes on
                    self.refusals += 1
                    requests = kind()
                    continue
                self.failures.append(f"{name} after {time.monotonic() - began:.1f} s: {error!r}")
                return
            self.answers[name] = self.answers.get(name, 0) + 1
            self.seconds[name] = max(self.seconds.get(name, 0), time.monotonic() - began)

    def _by_key(self) -> Iterator[None]:
        with connect(self._server) as connection, connection.cursor() as cursor:
            for number in itertools.count():
                cursor.execute("SELECT v FROM db.t WHERE k = %s", (number % 2000,))
                assert cursor.fetchall() == ((f"v{number % 2000}",),)
                yield

    def _of_rows(self) -> Iterator[None]:
        with connect(self._server) as connection, connection.cursor() as cursor:
            while True:
                cursor.execute("SELECT count(*), max(v) FROM db.t WHERE k % 2 = 0")
                assert cursor.fetchall() == ((1000, "v998"),)
                yield

    def _processes(self) -> Iterator[None]:
        with connect(self._server) as connection, connection.cursor() as cursor:
            while True:
                cursor.execute("SHOW PROCESSLIST")
                assert cursor.fetchall()
                yield

    def _flight(self) -> Iterator[None]:
        client = FlightClient(self._server.port("grpc"))
        for number in itertools.count():
            rows = client.query(f"SELECT v FROM db.t WHERE k = {number % 2000}").to_pylist()
            assert rows == [{"v": f"v{number % 2000}"}]
            yield

    def _loads(self) -> Iterator[None]:
        for number in itertools.count():
            body = "".join(f"{k},{number}\n" for k in range(10_000, 11_000))
            reply = self._server.client.load("other", body)
            if (reply["Status"], reply["NumberLoadedRows"]) != ("Success", 1000):
                raise RuntimeError(str(reply))  # whole: an assertion would cut the message
            yield

    def __enter__(self) -> Others:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize(("limit_bytes", "statements"), SIZES)
def test_greedy_statements_fail_and_others_have_answers(
    server: ServerProcess, limit_bytes: int, statements: int
) -> None:
    """Fifty statements that wanted gigabytes each ended the process, or the machine."""
    seed = new_seed(1 << 30)
    every = (*GREEDY, LONG_DATA, LOAD)
    chosen = [*every, *random.Random(seed).choices(every, k=statements)][-statements:]
    with (
        Peak(server) as peak,
        Others(server) as others,
        ThreadPoolExecutor(statements) as threads,
    ):
        outcomes = list(threads.map(partial(outcome, server), chosen))
    code = server.process.poll()
    printed = server.last_words() if code is not None else []
    told = f"seed {seed}, {peak.bytes >> 20} MiB, {others.answers}, {others.seconds}, "
    told += f"{others.refusals} refused, {outcomes}"
    print(told)
    assert code is None, f"the server ended with {code} and printed {printed}; {told}"
    assert peak.bytes < limit_bytes, told
    assert not others.failures, f"{others.failures}, {told}"
    assert set(others.answers) == others.kinds, told
    assert all("Lost connection" not in each for each in outcomes), told
    assert any("memory" in each for each in outcomes), told


def test_the_allocator_of_duckdb_keeps_no_caches_of_threads() -> None:
    """A thread whose cache had found no memory ended the process when it became idle."""
    code = """if True:
        import ctypes
        from seqstore.cli.server.memory import keep_little_freed_memory

        keep_little_freed_memory()
        import _duckdb

        library = ctypes.CDLL(_duckdb.__file__)
        if not hasattr(library, "duckdb_je_mallctl"):
            raise SystemExit("this build has another allocator")
        found, size = ctypes.c_bool(True), ctypes.c_size_t(1)
        asked = library.duckdb_je_mallctl(b"opt.tcache", ctypes.byref(found), ctypes.byref(size), None, 0)
        print(asked, found.value)
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "another allocator" in run.stderr:
        pytest.skip(run.stderr)
    assert run.stdout.split() == ["0", "False"], run.stderr


def test_a_server_that_is_ended_by_a_signal_logs_its_threads(server: ServerProcess) -> None:
    """It ended without a message: a library that finds no memory aborts the process."""
    server.process.send_signal(signal.SIGABRT)
    assert server.process.wait(60) != 0
    printed = "".join(server.last_words())
    assert "Fatal Python error: Aborted" in printed
    assert 'File "' in printed
