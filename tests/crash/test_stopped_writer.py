"""A process that was stopped inside a commit delays other processes up to their time limits, not longer."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from seqstore import Settings, Store, UnavailableError
from seqstore.store.locks.file_lock import waiting_at_most
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython
from tests.support.rows import rows_of, schema_of

pytestmark = pytest.mark.crash
# A commit that is stopped holds LMDB's write lock, and the program's before it.
STOPPED = """
import os, signal, sys
from seqstore import Store
with Store.open(sys.argv[1]).catalog.write() as tx:
    tx.put("config", b"x", "y")
    print("inside", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
READ = """
import sys
from seqstore import Store
from tests.support.rows import rows_of
with Store.open(sys.argv[1]) as store:
    print(rows_of(store.table("db.t")), flush=True)
"""


def child(program: str, *arguments: object, has_input: bool = False) -> ForkedPython:
    environment = {**os.environ, "PYTHONPATH": MODULES}
    return ForkedPython(["-c", program, *map(str, arguments)], environment=environment, has_input=has_input)


@contextmanager
def stopped_in_a_commit(directory: Path) -> Iterator[ForkedPython]:
    """Runs the block while another process is stopped inside a commit; then lets it go on."""
    process = child(STOPPED, directory)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=60)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        store.create_table("db.t", schema_of("k BIGINT NOT NULL")).upsert(pa.table({"k": [1]}))
    return tmp_path / "data"


def test_a_store_is_opened_and_read_while_a_writer_is_stopped(directory: Path) -> None:
    with stopped_in_a_commit(directory):
        reader = child(READ, directory)
        assert reader.communicate() == "[(1,)]\n"


def test_a_load_fails_in_its_time_and_names_the_holder(directory: Path) -> None:
    with Store.open(directory, settings=Settings(commit_wait_seconds=1)) as store:
        table = store.table("db.t")
        with stopped_in_a_commit(directory) as holder:
            with pytest.raises(UnavailableError, match="stopped by a signal") as told:
                table.upsert(pa.table({"k": [2]}), label="l")
            assert told.value.kind == "writer_busy"
            assert f"process {holder.pid} has held it for" in told.value.message
            assert rows_of(table) == [(1,)]
        assert table.upsert(pa.table({"k": [2]}), label="l").version == 3
        assert store.find_transaction("db", "l").status == "VISIBLE"  # type: ignore[union-attr]


@pytest.mark.long
def test_writers_that_wait_together_fail_in_one_time(directory: Path) -> None:
    """Each that became the leader waited for the whole time again."""
    failed: list[str] = []

    def load(table: object, number: int) -> None:
        try:
            table.upsert(pa.table({"k": [number]}))  # type: ignore[attr-defined]
        except UnavailableError as error:
            failed.append(error.kind)

    with Store.open(directory, settings=Settings(commit_wait_seconds=5)) as store:
        table = store.table("db.t")
        with stopped_in_a_commit(directory):
            began = time.monotonic()
            threads = [threading.Thread(target=load, args=(table, n)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert time.monotonic() - began < 8 * 5
        assert failed == ["writer_busy"] * 8
        assert table.upsert(pa.table({"k": [9]})).version == 3


def test_a_block_with_a_limit_waits_no_longer(directory: Path) -> None:
    with Store.open(directory, settings=Settings(commit_wait_seconds=3600)) as store:
        table = store.table("db.t")
        refused = pytest.raises(UnavailableError, match="stopped by a signal")
        with stopped_in_a_commit(directory), refused, waiting_at_most(1):
            table.upsert(pa.table({"k": [2]}))
        assert table.upsert(pa.table({"k": [2]})).version == 3


def test_a_store_opened_for_reading_writes_once_the_holder_goes_on(directory: Path) -> None:
    program = READ.splitlines()
    with stopped_in_a_commit(directory):
        writer = child("\n".join([*program, WRITE]), directory, has_input=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "[(1,)]\n"
        assert writer.stdout.readline() == "writer_busy\n"
    assert writer.communicate("go on\n") == "3\n"


WRITE = """
    import pyarrow as pa
    from seqstore import UnavailableError
    from seqstore.store.locks.file_lock import waiting_at_most
    table = store.table("db.t")
    try:
        with waiting_at_most(1):
            table.upsert(pa.table({"k": [5]}))
    except UnavailableError as error:
        print(error.kind, flush=True)
    sys.stdin.readline()
    print(table.upsert(pa.table({"k": [5]})).version, flush=True)
"""


def test_a_server_stops_in_its_time(directory: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    config = tmp_path / "server.toml"
    config.write_text("[server]\nstop_seconds = 1\nmaintenance_seconds = 1\n")
    ports = ["--http-port", "0", "--mysql-port", "0", "--config", str(config)]
    command = ["-m", "seqstore", "--data-dir", str(directory), "serve", *ports]
    environment = {**os.environ, "PYTHONPATH": MODULES}
    server = ForkedPython(command, environment=environment, stderr=subprocess.STDOUT)
    assert server.stdout is not None
    lines = iter(server.stdout.readline, "")
    address = next(line.split()[-1] for line in lines if "http://" in line)
    assert any(line == "ready\n" for line in lines)
    with stopped_in_a_commit(directory):
        load = child(LOAD, address)
        assert load.stdout is not None
        assert load.stdout.readline() == "sending\n"
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
        assert server.returncode is not None
        load.communicate(timeout=60)


LOAD = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/api/db/t/_stream_load", b"7\\n", method="PUT")
request.add_header("Authorization", "Basic cm9vdDo=")
print("sending", flush=True)
print(urllib.request.urlopen(request).read().decode())
"""
