"""Scenario 52: a process is killed at each step of the commit of a transaction over two tables.

Reopening finds both tables as before, or both changed; the label tells which. A killed holder of the update
lock does not keep it.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import Column, Settings, Store, TableSchema, UnavailableError, parse_type
from seqstore.store.catalog.transaction_record import TransactionStatus
from seqstore.store.sql import Session
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython, run_forked

SETTINGS = Settings(catalog_bytes_max=2**28, inline_bytes_max=1, auto_compaction=0)
U4 = (
    "There is an update operation in progress for the current table. Please try again later, or set "
    "enable_concurrent_update in fe.conf to true"
)
CHILD = """
import sys
import pyarrow as pa, pyarrow.compute as pc
from seqstore import Settings, Store
settings = Settings(catalog_bytes_max=2**28, inline_bytes_max=1, auto_compaction=0)
store = Store.open(sys.argv[1], settings=settings)
with store.transaction(label="once") as tx:
    tx.table("db.t").update({"a": pc.field("a") + 1}, pc.field("k") == 1)
    tx.table("db.u").upsert(pa.table({"k": [1], "a": [1]}))
"""
HOLDER = """
import sys, time
import pyarrow.compute as pc
from seqstore import Settings, Store
store = Store.open(sys.argv[1], settings=Settings(catalog_bytes_max=2**28, auto_compaction=0))
with store.transaction() as tx:
    tx.table("db.t").update({"a": 77}, pc.field("k") == 1)
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with Store.open(path, settings=SETTINGS) as store:
        store.create_database("db")
        columns = [Column("k", parse_type("INT"), nullable=False), Column("a", parse_type("INT"))]
        for name in ("db.t", "db.u"):
            store.create_table(name, TableSchema.create(columns, ["k"]))
        store.table("db.t").upsert(pa.table({"k": [1], "a": [0]}))
    return path


def run_child(directory: Path, failpoint: str) -> int:
    return run_forked("-c", CHILD, str(directory), environment={"SEQSTORE_FAILPOINT": failpoint}).returncode


@pytest.mark.crash
@pytest.mark.parametrize(
    ("failpoint", "visible"),
    [
        ("disk.written:1", False),
        ("disk.written:3", False),
        ("load.staged:1", False),
        ("load.staged:2", False),
        ("publish.before_commit", False),
        ("publish.after_commit", True),
    ],
)
def test_52_a_killed_commit_is_whole_or_not_at_all(directory: Path, failpoint: str, visible: bool) -> None:
    assert run_child(directory, failpoint) == -signal.SIGKILL
    with Store.open(directory, settings=SETTINGS) as store:
        found = [
            store.table(name).scan(["a"]).read_all().column("a").to_pylist() for name in ("db.t", "db.u")
        ]
        assert found == ([[1], [1]] if visible else [[0], []])
        record = store.find_transaction("db", "once")
        assert record is not None
        assert record.status == (TransactionStatus.VISIBLE if visible else TransactionStatus.ABORTED)
        assert bool(record.reason) is not visible
        for name in ("db.t", "db.u"):
            assert store.table(name).check() == []
    if not visible:  # the label is free again
        assert run_child(directory, "nowhere") == 0


@pytest.mark.crash
def test_a_killed_holder_frees_the_update_lock(directory: Path) -> None:
    """Another process is within an UPDATE: others fail at once or after their time (U4), or wait; loads do
    not. When it is killed, whoever waits goes on, and nothing of it is there."""
    with Store.open(directory, settings=SETTINGS) as store, ThreadPoolExecutor(1) as threads:
        table, here = store.table("db.t"), pc.field("k") == 1
        environment = {**os.environ, "PYTHONPATH": MODULES}
        holder = ForkedPython(["-c", HOLDER, str(directory)], environment=environment)
        assert holder.stdout is not None
        with holder.stdout:
            assert holder.stdout.readline() == "held\n"
            for statement in (table.update, lambda _values, *given, **o: table.delete_where(*given, **o)):
                for seconds in (0, 0.05):
                    with pytest.raises(UnavailableError, match=U4):
                        statement({"a": 5}, here, lock_seconds=seconds)
            session = Session(store, "db")
            list(session.execute("SET update_lock_seconds = 0"))
            with pytest.raises(UnavailableError, match=U4):
                list(session.execute("UPDATE t SET a = 5 WHERE k = 1"))
            table.upsert(pa.table({"k": [2], "a": [2]}))
            assert table.update({"a": 3}, pc.field("k") == 2, concurrency="optimistic").rows_changed == 1
            waiting = threads.submit(table.update, {"a": pc.field("a") + 5}, here, lock_seconds=60)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            holder.kill()
            holder.wait()
            assert waiting.result(timeout=60).rows_changed == 1
        assert table.scan().read_all().sort_by("k").to_pylist() == [{"k": 1, "a": 5}, {"k": 2, "a": 3}]
