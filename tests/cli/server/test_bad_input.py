"""Bad requests to the real server: always a JSON answer with a message, never a 500, a hang or half a
load."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import time
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import Store
from seqstore.cli.server.memory import keep_little_freed_memory
from tests.seeds import new_seed
from tests.support.hostile.bad_requests import BadRequest, bad_request
from tests.support.hostile.usage import private_bytes, resident_bytes
from tests.support.http_server import Client, read_answer, serving
from tests.weight import by_form, torture_minutes

SECONDS_MAX = 20.0


TABLES = """
CREATE TABLE t (k INT NOT NULL, v VARCHAR(20) NULL, n INT NULL)
    UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO t VALUES (1, 'one', 1);
"""
pytestmark = pytest.mark.sql(TABLES)


def ask(client: Client, request: BadRequest) -> bytes:
    """Sends a request; the final answer, after any `100 Continue`."""
    with socket.create_connection((client.host, client.port), timeout=SECONDS_MAX) as connection:
        try:
            connection.sendall(request.data)
            if request.closes:
                connection.shutdown(socket.SHUT_WR)
        except OSError:  # refused before all of it was sent
            pass
        answer = read_answer(connection)
        if answer.startswith(b"HTTP/1.1 100"):
            _, _, answer = answer.partition(b"\r\n\r\n")
            answer = answer or read_answer(connection)
        return answer


def check(request: BadRequest, answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] (\d{3}) ", head)
    assert status is not None, f"no HTTP answer: {answer[:200]!r}"
    assert int(status[1]) < 500, answer[:500]
    reply: dict[str, object] = json.loads(body)
    told = reply.get("Message") or reply.get("msg")
    assert isinstance(told, str)
    assert len(told) > 1
    assert "Traceback" not in told
    assert len(told) < 5_000, "a message is to be read"
    return reply


def rows_of(store: Store) -> pa.Table:
    return store.scan("db.t").read_all().sort_by("k")


def send_all(store: Store, seed: int, count: int) -> None:
    rng = random.Random(seed)
    folder = store.path / "tables"
    with serving(store, body_idle_seconds=5) as client:
        client.load("t", "1,one,1\n")
        descriptors = len(os.listdir("/proc/self/fd"))
        for number in range(count):
            request = bad_request(rng)
            before = rows_of(store)
            started = time.monotonic()
            told = f"seed {seed}, request {number}: {request.name}"
            try:
                reply = check(request, ask(client, request))
                loaded = reply.get("Status") == "Success" and reply.get("NumberLoadedRows")
                assert request.may_load or not loaded, reply
                if not loaded:
                    assert rows_of(store) == before, "something was loaded"
                assert time.monotonic() - started < SECONDS_MAX
            except Exception as error:
                raise AssertionError(told) from error
        metrics = client.request("GET", "/metrics", user=None).body.decode()
        assert "seqstore_stream_loads_running 0" in metrics
        assert len(os.listdir("/proc/self/fd")) < descriptors + 20
        assert client.load("t", "2,two,2\n")["Status"] == "Success"
    store.maintainer.wait()
    assert store.databases() == ["db"]
    assert store.tables("db") == ["t"]
    assert store.table("db.t").check() == []
    with store.catalog.read() as tx:
        named = {key[8:].decode() for key, _ in tx.items("segments")}
    files = {path.name.partition(".")[0] for path in folder.rglob("*") if path.is_file()}
    assert files <= named, "files were left that nobody names"
    assert not Path("/tmp/stolen.csv").exists()


def test_the_same_bad_requests_every_time_are_answered_and_change_nothing(store: Store) -> None:
    send_all(store, seed=20260601, count=by_form(100, 400))


def test_fresh_bad_requests_every_time(store: Store) -> None:
    send_all(store, seed=new_seed(), count=by_form(25, 100))


@pytest.mark.torture
@pytest.mark.maintenance  # thousands of loads that turn out to be fine would leave a segment each
def test_bad_requests_for_an_hour(store: Store) -> None:
    """`send_all` watches the descriptors. Freed memory is kept as in a server: by default for each thread."""
    keep_little_freed_memory()
    until, used, mapped = time.monotonic() + 60 * torture_minutes(60), 0, 0
    while time.monotonic() < until:
        send_all(store, seed=new_seed(), count=1000)
        used, mapped = used or resident_bytes(), mapped or private_bytes()
        assert resident_bytes() < used + (512 << 20)
        assert private_bytes() < mapped + (512 << 20)
