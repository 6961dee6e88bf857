"""One server's memory limit: statements that want more fail, the process stays below it and serves others."""

from __future__ import annotations

import random
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest

from seqstore import Store
from seqstore.store.sql.session.session import Session
from tests.support.http_server import ServerProcess
from tests.weight import by_form

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit needs Linux")

LIMIT_BYTES = by_form(640 << 20, 2 << 30)
STATEMENTS = by_form(8, 50)
# Each wants gigabytes; DuckDB counts only the memory of the last three.
GREEDY = (
    "SELECT length(repeat('a', 2000000000))",
    "SELECT max(length(repeat('a', 60000000 + k))) FROM db.t",
    "SELECT size(array_range(1000000000))",
    "SELECT count(*) FROM (SELECT 1 a) t LATERAL VIEW explode_numbers(1000000000) x AS e",
    "SELECT length(concat(x, x, x, x, x, x, x, x)) FROM"
    " (SELECT concat(x, x, x, x, x, x, x, x) x FROM (SELECT repeat('a', 60000000) x) a) b",
    "SELECT length(replace(repeat('a', 1000000), 'a', repeat('b', 100000)))",
    "SELECT max(size(array_repeat(concat(repeat('a', 1000), k), 1000000))) FROM db.t",
    "SELECT length(group_concat(concat(repeat('a', 100000), a.k, b.k))) FROM db.t a, db.t b",
    "SELECT count(*) FROM (SELECT repeat('a', 500) x, a.k, b.k l FROM db.t a, db.t b, db.t c"
    " ORDER BY x, l, a.k LIMIT 100000000) s",
    "SELECT size(collect_list(concat(repeat('a', 1000), a.k, b.k))) FROM db.t a, db.t b",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        list(session.execute("CREATE DATABASE db; CREATE TABLE db.t (k BIGINT, v STRING) UNIQUE KEY(k)"))
        rows = ", ".join(f"({k}, 'v{k}')" for k in range(2000))
        list(session.execute(f"INSERT INTO db.t VALUES {rows}"))
    config = tmp_path / "server.toml"
    config.write_text(f"[server]\nmemory_bytes_max = {LIMIT_BYTES}\n")
    running = ServerProcess(tmp_path / "data", "--config", str(config))
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


def outcome(server: ServerProcess, text: str) -> str:
    connection = connect(server, init_command="SET query_timeout = 10")  # one of them goes on on disk
    try:
        with connection.cursor() as cursor:
            cursor.execute(text)
            cursor.fetchall()
            return "rows"
    except pymysql.err.Error as error:
        return str(error)
    finally:
        connection.close()


def test_greedy_statements_fail_and_others_have_answers(server: ServerProcess) -> None:
    """Fifty statements that wanted gigabytes each ended the process, or the machine."""
    seed = random.randrange(1 << 30)
    chosen = random.Random(seed).choices(GREEDY, k=STATEMENTS)
    answers = 0
    with Peak(server) as peak, ThreadPoolExecutor(STATEMENTS) as threads:
        running = [threads.submit(outcome, server, text) for text in chosen]
        other = connect(server)
        while not all(each.done() for each in running):
            with other.cursor() as cursor:
                cursor.execute("SELECT v FROM db.t WHERE k = %s", (answers % 2000,))
                assert cursor.fetchall() == ((f"v{answers % 2000}",),), f"seed {seed}"
            answers += 1
        outcomes = dict(zip(chosen, (each.result() for each in running), strict=True))
    told = f"seed {seed}, {peak.bytes >> 20} MiB, {answers} answers, {outcomes}"
    assert server.process.poll() is None, told
    assert peak.bytes < LIMIT_BYTES, told
    assert answers > 10, told
    assert all("Lost connection" not in each for each in outcomes.values()), told
    assert any("memory" in each for each in outcomes.values()), told
