"""Vacuum: which versions can be read, what holds them, what is deleted."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    Column,
    ConflictError,
    InvalidInputError,
    Settings,
    Store,
    Table,
    TableSchema,
    UnavailableError,
    VersionExpiredError,
    parse_type,
)
from seqstore.store.catalog.leases import leases_of
from seqstore.store.segment.load_marker import new_segment_id
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython

HOLDER = """
import sys
from seqstore import Store
snapshot = Store.open(sys.argv[1]).table("db.t").snapshot(int(sys.argv[2]))
print("open", flush=True)
sys.stdin.readline()
print(snapshot.count(), flush=True)
"""


def make(store: Store, loads: int = 0, **properties: str) -> Table:
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))
    for number in range(loads):
        table.upsert(pa.table({"k": list(range(1000)), "v": [number] * 1000}))
    return table


pytestmark = pytest.mark.settings(inline_bytes_max=1)


def files(store: Store) -> list[str]:
    return sorted(path.name for path in store.path.glob("tables/*/*"))


def holder(store: Store, version: int) -> ForkedPython:
    environment = {**os.environ, "PYTHONPATH": MODULES}
    arguments = ["-c", HOLDER, str(store.path), str(version)]
    process = ForkedPython(arguments, environment=environment, has_input=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def test_vacuum_within_the_retention_takes_nothing(store: Store) -> None:
    table = make(store, 3)
    table.optimize(full=True)
    before = files(store)
    result = table.vacuum()
    assert (result.oldest, result.versions, result.files) == (1, 0, ())
    assert files(store) == before


def test_vacuum_without_retention_leaves_the_newest_version(store: Store) -> None:
    table = make(store, 3)
    table.optimize(full=True)
    planned = table.vacuum(retention_seconds=0, dry_run=True)
    assert len(planned.files) == 6
    assert len(files(store)) == 8
    assert table.vacuum(retention_seconds=0) == planned
    assert len(files(store)) == 2
    assert table.count() == 1000
    with pytest.raises(VersionExpiredError, match="the table has versions 5 to 5") as caught:
        table.scan(version=4)
    assert (caught.value.oldest, caught.value.kind) == (5, "version_expired")
    assert [line.version for line in table.history()] == [1, 2, 3, 4, 5], "history outlives versions"
    assert table.check() == []
    assert Store.open(store.path).table("db.t").count() == 1000


@pytest.mark.parametrize("seconds", [-1, 0.5, "0"])
def test_a_retention_that_is_no_number_of_seconds_is_refused(store: Store, seconds: Any) -> None:
    table = make(store, 2)
    with pytest.raises(InvalidInputError, match="retention_seconds must be a whole number of seconds, 0 or"):
        table.vacuum(retention_seconds=seconds)
    assert table.vacuum(dry_run=True).versions == 0


def test_the_retention_is_a_table_property(store: Store) -> None:
    table = make(store, 2, version_retention_seconds="0")
    table.optimize(full=True)
    assert table.vacuum().oldest == 4


def test_a_lock_file_that_cannot_be_used_is_named(store: Store) -> None:
    table = make(store, 1)
    path = store.path / "locks" / f"vacuum-{table.id}"
    path.mkdir(parents=True)
    with pytest.raises(UnavailableError, match=re.escape(str(path))) as caught:
        table.vacuum()
    assert caught.value.kind == "disk"


def test_a_held_version_stays_and_goes_when_it_is_let_go(store: Store) -> None:
    """Scenario 2: a snapshot reads on through loads, a compaction and vacuum."""
    table = make(store, 2)
    snapshot = table.snapshot(2)
    reader = snapshot.scan(["v"])
    for number in range(10):
        table.upsert(pa.table({"k": [number], "v": [77]}))
    table.optimize(full=True)
    assert table.vacuum(retention_seconds=0).held == (2,)
    assert set(snapshot.scan(["v"]).read_all().column("v").to_pylist()) == {0}
    snapshot.close()
    assert table.vacuum(retention_seconds=0).held == (2,), "a reader that is not read yet holds it"
    assert set(reader.read_all().column("v").to_pylist()) == {0}
    del reader
    result = table.vacuum(retention_seconds=0)
    assert result.held == ()
    assert len(files(store)) == 2


def test_who_opens_the_oldest_version_again_and_again_keeps_no_later_one(store: Store) -> None:
    """Each of these readers opens it before the one before it ends."""
    table = make(store, 2)
    snapshot = table.snapshot(2)
    for number in range(5):
        table.upsert(pa.table({"k": list(range(1000)), "v": [number] * 1000}))
        table.optimize(full=True)
        table.vacuum(retention_seconds=0)
        following = table.snapshot(table.oldest_version)
        snapshot.close()
        snapshot = following
        assert set(snapshot.scan(["v"]).read_all().column("v").to_pylist()) == {number}
    table.vacuum(retention_seconds=0)
    assert len(files(store)) == 2


def test_a_version_past_its_retention_is_opened_again_only_by_who_holds_it(store: Store) -> None:
    table = make(store, 3)
    process = holder(store, 3)
    assert table.vacuum(retention_seconds=0).oldest == 4
    with pytest.raises(VersionExpiredError, match="version 3 cannot be read: the table has versions 4 to 4"):
        table.snapshot(3)
    assert process.communicate("\n", timeout=60) == "1000\n"
    with table.snapshot(4):
        table.upsert(pa.table({"k": [1], "v": [9]}))
        assert table.vacuum(retention_seconds=0).oldest == 5
        with table.snapshot(4) as again:
            assert set(again.get({"k": [1]}).column("v").to_pylist()) == {2}
    with pytest.raises(VersionExpiredError):
        table.snapshot(4)


def test_another_process_holds_a_version_while_it_lives(store: Store) -> None:
    table = make(store, 3)
    process = holder(store, 3)
    table.optimize(full=True)
    result = table.vacuum(retention_seconds=0)
    assert (result.oldest, result.held, result.files) == (5, (3,), ())
    assert process.communicate("\n", timeout=60) == "1000\n"
    result = table.vacuum(retention_seconds=0)
    assert (result.oldest, result.held, len(files(store))) == (5, (), 2)


def test_a_dead_reader_does_not_hold_the_horizon(store: Store) -> None:
    table = make(store, 3)
    process = holder(store, 2)
    table.optimize(full=True)
    assert table.vacuum(retention_seconds=0).held == (2,)
    assert len(files(store)) > 2
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert table.vacuum(retention_seconds=0).held == ()
    assert len(files(store)) == 2
    assert not any(str(process.pid) in name for name in os.listdir(store.path / "readers"))


def test_handles_that_sat_still_follow_over_forgotten_versions(store: Store) -> None:
    table = make(store, 3)
    idle = Store.open(store.path).table("db.t")
    assert idle.count() == 1000
    table.delete({"k": [1, 2, 3]})
    table.optimize(full=True)
    table.upsert(pa.table({"k": [5000], "v": [1]}))
    table.optimize(full=True)
    table.vacuum(retention_seconds=0)
    assert idle.count() == 998
    assert idle.check() == []


def test_bitmaps_of_forgotten_versions_go(store: Store) -> None:
    """K6: what is left are the records of the horizon's chain."""
    table = make(store, 1)
    for number in range(40):
        table.upsert(pa.table({"k": [number], "v": [number]}))
    table.optimize(full=True)
    table.vacuum(retention_seconds=0)
    with store.catalog.read() as tx:
        left = [int.from_bytes(key[8:]) for key, _ in tx.items("bitmaps")]
    assert left == []
    table.upsert(pa.table({"k": [1], "v": [9]}))
    assert table.get({"k": [1]}).to_pylist() == [{"k": 1, "v": 9}]
    assert table.check() == []


def test_version_as_of_a_moment(store: Store) -> None:
    table = make(store, 3)
    lines = table.history()
    for line, following in itertools.pairwise(lines):
        if following.timestamp > line.timestamp:
            assert table.version_as_of(line.timestamp) == line.version
    assert table.version_as_of(datetime.now(UTC) + timedelta(days=1)) == 4
    with pytest.raises(VersionExpiredError):
        table.version_as_of(datetime(2001, 1, 1))


def id_of_dead_process() -> str:
    """A segment id that a process made which is gone."""
    code = "from seqstore.store.segment.load_marker import new_segment_id; print(new_segment_id())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_vacuum_takes_what_dead_processes_left(store: Store) -> None:
    table = make(store)
    directory = store.path / "tables" / str(table.id)
    directory.mkdir(parents=True, exist_ok=True)
    orphan = directory / f"{id_of_dead_process()}.arrow"
    ours = directory / f"{new_segment_id()}.arrow"
    for path in (orphan, ours):
        path.write_bytes(b"half")
    name = f"tables/{table.id}/{orphan.name}"
    assert table.vacuum(dry_run=True).orphans == (name,)
    assert orphan.exists()
    assert table.vacuum().orphans == (name,)
    assert not orphan.exists()
    assert ours.exists(), "its process may publish it yet"
    assert table.vacuum().orphans == ()


@pytest.mark.parametrize("ending", ["commit", "rollback", "conflict"])
def test_a_transaction_that_ended_holds_no_version(store: Store, ending: str) -> None:
    """Not even until the garbage collector comes: a server's horizon would wait for it."""
    table = make(store, 2)
    gc.disable()
    try:
        with suppress(ConflictError), store.transaction() as transaction:
            transaction.table("db.t").update({"v": 7}, pc.field("k") == 1)
            assert leases_of(store.catalog.data_dir).held(table.id) == {3}
            if ending == "rollback":
                transaction.rollback()
            elif ending == "conflict":
                table.upsert(pa.table({"k": [1], "v": [9]}))
        assert leases_of(store.catalog.data_dir).held(table.id) == set()
    finally:
        gc.enable()
    table.delete_where(pc.field("k") == 2)
    assert table.vacuum(retention_seconds=0).held == ()


@pytest.mark.timeout(60)
def test_a_handle_that_sat_still_is_told_that_its_newest_version_is_gone(store: Store) -> None:
    table = make(store, 2)
    idle = Store.open(store.path).table("db.t")
    assert idle.count() == 1000
    last = idle.version
    for held in (table.snapshot(2), None):  # an older version that is held keeps the files of this one
        table.upsert(pa.table({"k": [1], "v": [1]}))
        table.vacuum(retention_seconds=0)
        with pytest.raises(VersionExpiredError, match=f"version {last} cannot be read"):
            idle.snapshot(last)
        if held is not None:
            held.close()


def commits_of(store: Store) -> int:
    return int(store.catalog._environment().env.info()["last_txnid"])


@pytest.mark.parametrize("loads", [0, 1, 5])
def test_maintenance_of_an_idle_store_writes_nothing(tmp_path: Path, loads: int) -> None:
    """Each vacuum committed its horizon anew: two waits for the disk for each table, every five minutes."""
    with Store.open(tmp_path / "data", settings=Settings(vacuum_seconds=0)) as store:
        store.create_database("db")
        columns = [Column("k", parse_type("INT"), nullable=False), Column("v", parse_type("INT"))]
        table = store.create_table("db.t", TableSchema.create(columns, ["k"]))
        for number in range(loads):
            table.upsert(pa.table({"k": [1, 2], "v": [number, number]}))
        store.maintain()
        before = commits_of(store)
        for _ in range(3):
            store.maintain()
            table.vacuum()
        assert commits_of(store) == before
        table.vacuum(retention_seconds=0)
        assert table.check() == []
        assert (table.count(), commits_of(store) > before) == (2 if loads else 0, loads > 0)


def test_a_vacuum_reads_the_slots_of_all_processes(tmp_path: Path) -> None:
    leases = leases_of(tmp_path)
    held = [leases.acquire(7, version) for version in (3, 2**40, 3)] + [leases.acquire(8, 5)]
    assert (leases.held(7), leases.held(8), leases.held(9)) == ({3, 2**40}, {5}, set())
    held[0].release()
    held[1].release()
    assert leases.held(7) == {3}
