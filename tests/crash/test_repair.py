"""`seqstore repair`: damaged and lost catalogs are rebuilt, losses are named, and nothing is deleted."""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

import lmdb
import pyarrow as pa
import pytest

from seqstore import Settings, Store, Table, UnavailableError
from seqstore.store.catalog.catalog import DATABASES, unpack
from seqstore.store.catalog.environment.page_check import NODE, PAGE, Head, read_head
from seqstore.store.repair.repair import repair
from seqstore.store.repair.report import RepairReport
from seqstore.store.repair.salvage import salvage
from seqstore.store.sql import Session
from tests.golden import make_golden, stores
from tests.golden.test_golden import ARCHIVES, expected, name_of
from tests.seeds import new_seed
from tests.support.children import MODULES
from tests.support.faults.flipped_catalog import PAGE_BYTES, contents, make_store, places
from tests.support.forks.forked import ForkedPython, run_forked
from tests.support.rows import rows_of, schema_of
from tests.weight import by_form

ROOT = Path(__file__).parents[2]
FLIPS = by_form(8, 20)
STORES = by_form(3, 15)
FILES_ONLY = Settings(inline_bytes_max=0, auto_compaction=0, catalog_bytes_max=2**26)
ALL_INLINE = Settings(auto_compaction=0, catalog_bytes_max=2**26)
KILLS = ("repair.built", "repair.kept_aside", "repair.in_place")
pytestmark = pytest.mark.crash

Rows = dict[int, tuple[int, str]]


def data_file(path: Path) -> Path:
    return path / "catalog" / "data.mdb"


def copy_of(path: Path, name: str) -> Path:
    """A copy that no process has opened."""
    copy = path.with_name(name)
    shutil.copytree(path, copy)
    return copy


def flip(path: Path, offset: int, bit: int) -> None:
    data = bytearray(data_file(path).read_bytes())
    data[offset] ^= 1 << bit
    data_file(path).write_bytes(data)


def losses(report: RepairReport) -> list[str]:
    return [*report.findings, *(finding for table in report.tables for finding in table.findings)]


# one flipped bit


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "store"
    make_store(path)
    return path


def test_one_flipped_bit_costs_nothing(sound: Path, tmp_path: Path) -> None:
    whole = contents(sound)
    found = list(places(sound, 0, 1))
    seed = new_seed()
    for offset, bit in random.Random(seed).sample(found, FLIPS):
        copy = tmp_path / f"{offset}"
        shutil.copytree(sound, copy)
        flip(copy, offset, bit)
        report = repair(copy)
        assert contents(copy) == whole, f"{offset}:{bit}, seed {seed}: {losses(report)}"
        assert not report.fault or report.aside is not None


def test_a_flipped_bit_of_a_branch_or_of_a_database_name_costs_no_record(sound: Path, tmp_path: Path) -> None:
    """Such pages have no checksum: only what they lead to tells that a key of theirs is wrong."""
    data = data_file(sound).read_bytes()
    whole = salvage(data_file(sound)).records
    head = max((read_head(number, data[number * PAGE_BYTES :][:PAGE_BYTES]) for number in (0, 1)), key=age_of)
    keys = [data.index(b"meta", head.main.root * PAGE_BYTES)]
    for page in range(2, len(data) // PAGE_BYTES):
        number, _, flags, lower, _ = PAGE.unpack_from(data, page * PAGE_BYTES)
        if (number, flags) == (page, 1):
            places = struct.unpack_from(f"<{(lower - PAGE.size) // 2}H", data, page * PAGE_BYTES + PAGE.size)
            keys += [page * PAGE_BYTES + place + NODE.size for place in places[1:]]
    assert len(keys) > 5
    chosen = [keys[0], *random.Random(len(data)).sample(keys[1:], min(by_form(4, 12), len(keys) - 1))]
    for offset in chosen:
        flipped = bytearray(data)
        flipped[offset + 2] ^= 2
        (tmp_path / "data.mdb").write_bytes(flipped)
        found = salvage(tmp_path / "data.mdb").records
        lost = [
            (name, key) for name in whole for key in whole[name] if found[name].get(key) != whole[name][key]
        ]
        assert lost == [], offset


def age_of(head: Head) -> int:
    return head.transaction


@pytest.mark.family(3)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{name_of(path)}")
def test_a_golden_store_is_rebuilt_from_a_flipped_and_from_a_cut_catalog(
    archive: Path, tmp_path: Path
) -> None:
    whole = make_golden.unpack(archive, tmp_path / "whole")
    size = data_file(whole).stat().st_size
    random_places = random.Random(archive.stat().st_size)
    if archive.parent.name != "format1":  # whose records have no checksum of their keys
        flipped = copy_of(whole, "flipped")
        flip(flipped, *random_places.choice(list(places(whole, 0, 1))))
        repair(flipped)
        assert stores.contents(name_of(archive), flipped) == expected(archive)
    for cut in (0, 3 * PAGE_BYTES + 5, random_places.randrange(size)):
        copy = copy_of(whole, f"cut-{cut}")
        os.truncate(data_file(copy), cut)
        repair(copy, copy=whole)
        assert stores.contents(name_of(archive), copy) == expected(archive), cut


# random stores and a model of plain dictionaries


class Worker:
    """Random work on two tables, one of which has a sequence."""

    def __init__(self, path: Path, seed: int, settings: Settings) -> None:
        self.random = random.Random(seed)
        self.store = Store.open(path, settings=settings)
        self.store.create_database("db")
        columns = ("k BIGINT NOT NULL", "v STRING", "s BIGINT")
        self.tables = [
            self.store.create_table("db.plain", schema_of(*columns)),
            self.store.create_table("db.ordered", schema_of(*columns, sequence_col="s")),
        ]
        self.rows: list[dict[int, tuple[Any, ...] | None]] = [{}, {}]
        self.newest: list[dict[int, int]] = [{}, {}]
        self.loaded: list[set[tuple[Any, ...]]] = [set(), set()]
        self.number = 0

    def work(self, steps: int) -> None:
        for _ in range(steps):
            i = self.random.randrange(2)
            self._step(i, self.tables[i])

    def _step(self, i: int, table: Table) -> None:
        self.number += 1
        kind = self.random.choice(("upsert", "upsert", "upsert", "delete", "optimize", "vacuum"))
        if kind == "optimize":
            table.optimize(full=True)
        elif kind == "vacuum":
            table.vacuum(retention_seconds=0)
        else:
            keys = self.random.sample(range(60), self.random.randint(1, 30))
            order = self.random.randrange(100)
            is_delete = kind == "delete"
            value = f"{self.number}"
            table.upsert(
                pa.table(
                    {
                        "k": keys,
                        "v": [value] * len(keys),
                        "s": [order] * len(keys),
                        "__DELETE_SIGN__": pa.array([int(is_delete)] * len(keys), pa.int8()),
                    }
                )
            )
            self.loaded[i] |= set() if is_delete else {(key, value, order) for key in keys}
            for key in keys:
                if i and order < self.newest[1].get(key, -1):
                    continue
                self.newest[i][key] = order
                self.rows[i][key] = None if is_delete else (key, value, order)

    def expected(self) -> list[list[tuple[Any, ...]]]:
        return [sorted((row for row in rows.values() if row is not None), key=repr) for rows in self.rows]

    def close(self) -> None:
        self.store.close()


def found_in(path: Path, names: tuple[str, ...] = ("db.plain", "db.ordered")) -> list[list[tuple[Any, ...]]]:
    with Store.open(path, create=False, settings=ALL_INLINE) as store:
        for name in names:
            assert store.table(name).check() == []
        return [rows_of(store.table(name)) for name in names]


@pytest.mark.parametrize("number", range(STORES))
def test_tables_are_rebuilt_from_their_files_alone(tmp_path: Path, number: int) -> None:
    """Names, schemas and rows: the key index file of each segment describes it."""
    worker = Worker(tmp_path / "store", number, FILES_ONLY)
    worker.work(40)
    worker.close()
    copy = copy_of(tmp_path / "store", "lost")
    if number % 2:
        shutil.rmtree(copy / "catalog")
    else:
        data_file(copy).unlink()
    report = repair(copy)
    assert found_in(copy) == worker.expected(), f"seed {number}: {losses(report)}"
    assert "users, jobs, labels" in " ".join(report.findings)
    with Store.open(copy, settings=FILES_ONLY) as store:  # it can be worked with
        store.table("db.plain").upsert(pa.table({"k": [7], "v": ["new"], "s": [1]}))
        assert (7, "new", 1) in rows_of(store.table("db.plain"))


@pytest.mark.parametrize("number", range(STORES))
def test_an_older_copy_is_brought_up_to_date_with_the_files(tmp_path: Path, number: int) -> None:
    worker = Worker(tmp_path / "store", number, FILES_ONLY)
    worker.work(20)
    backup = copy_of(tmp_path / "store", "backup")
    worker.work(20)
    worker.close()
    copy = copy_of(tmp_path / "store", "lost")
    data_file(copy).write_bytes(b"")
    report = repair(copy, copy=backup)
    assert found_in(copy) == worker.expected(), f"seed {number}: {losses(report)}"


NAMED = (
    "rows are lost",
    "rows may be lost",
    "left out",
)  # sentences that say that rows are not the newest ones


@pytest.mark.parametrize("number", range(STORES * 2))
def test_what_verifies_is_kept_and_what_is_lost_is_named(tmp_path: Path, number: int) -> None:
    """Whole pages are overwritten. A table has its newest rows, or the report has a sentence about it.

    No table has a row that was never loaded. Without a fault the pages were free, and nothing is lost.
    """
    worker = Worker(tmp_path / "store", number, ALL_INLINE)
    worker.work(40)
    worker.close()
    copy = copy_of(tmp_path / "store", "torn")
    data = bytearray(data_file(copy).read_bytes())
    for page in worker.random.sample(range(2, len(data) // PAGE_BYTES), 1 + number % 4):
        data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = worker.random.randbytes(PAGE_BYTES)
    data_file(copy).write_bytes(data)
    report = repair(copy)
    if not report.fault:
        assert found_in(copy) == worker.expected(), f"seed {number}"
        return
    findings = {table.name: table for table in report.tables}
    with Store.open(copy, settings=ALL_INLINE) as store:
        for i, (name, rows) in enumerate(zip(("db.plain", "db.ordered"), worker.expected(), strict=True)):
            said = findings.get(name)
            if said is None or said.outcome == "left out":
                assert losses(report), name
                continue
            found, told = rows_of(store.table(name)), f"seed {number}: {list(said.lines())}"
            assert set(found) <= worker.loaded[i], told
            if not any(each in finding for each in NAMED for finding in said.findings):
                assert found == rows, told
                assert store.table(name).check() == []


def lose_segment_records(path: Path, home: str) -> int:
    """Removes the records of the segments of a home from a catalog; returns their number."""
    with lmdb.open(str(path / "catalog"), max_dbs=len(DATABASES) + 8) as env:
        database = env.open_db(b"segments", create=False)
        with env.begin(write=True, db=database) as txn:
            keys = [
                key for key, data in txn.cursor() if unpack("segments", key, data)["meta"]["home"] == home
            ]
            for key in keys:
                txn.delete(key)
    return len(keys)


def test_lost_records_of_inline_segments_are_made_again(sound: Path, tmp_path: Path) -> None:
    """Versions and history are as before, with tombstones, duplicate keys and an altered schema."""
    statements = (
        "CREATE TABLE other.sums (k BIGINT, v STRING, s BIGINT) UNIQUE KEY(k) "
        "PROPERTIES ('function_column.sequence_col' = 's')",
        "CREATE TABLE other.log (k BIGINT, v STRING) DUPLICATE KEY(k)",
        "INSERT INTO other.sums VALUES (1, 'a', 9), (2, NULL, 9)",
        "INSERT INTO other.sums VALUES (1, 'older', 8), (3, 'b', 8)",
        "DELETE FROM other.sums WHERE k = 2",
        "INSERT INTO other.log VALUES (1, 'a'), (1, 'a'), (2, NULL)",
        "ALTER TABLE other.t ADD COLUMN later STRING",
        "INSERT INTO other.t VALUES (2, 'y', 'z'), (200, 'y', NULL)",
        "UPDATE other.t SET later = 'changed' WHERE k = 200",
    )
    whole = copy_of(sound, "altered")
    with Store.open(whole, settings=ALL_INLINE) as store, Session(store, "other") as session:
        for statement in statements:
            list(session.execute(statement))
    expected_contents = contents(whole)
    copy = tmp_path / "lost"
    shutil.copytree(whole, copy)
    assert lose_segment_records(copy, "inline") > 20
    report = repair(copy)
    assert [table.name for table in report.tables if table.outcome != "kept"] == []
    assert contents(copy) == expected_contents, losses(report)


def test_segments_that_nothing_describes_are_counted(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "store", 3, ALL_INLINE)
    for number in range(3):
        worker.tables[0].upsert(pa.table({"k": [number], "v": ["a"], "s": [1]}))
    worker.close()
    copy = copy_of(tmp_path / "store", "lost")
    with lmdb.open(str(copy / "catalog"), max_dbs=len(DATABASES) + 8) as env:
        rows = env.open_db(b"inline", create=False)
        with env.begin(write=True, db=rows) as txn:
            last = [key for key, _ in txn.cursor()][-1]
            txn.delete(last)
            txn.delete(last, db=env.open_db(b"segments", txn=txn, create=False))
    (plain,) = [table for table in repair(copy).tables if table.name == "db.plain"]
    assert any("1 of the 3 segments of version 4 have no record" in each for each in plain.findings)
    assert plain.rows == 2


# the procedure


@pytest.fixture
def damaged(sound: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "store"
    shutil.copytree(sound, copy)
    flip(copy, 2 * PAGE_BYTES + 3, 1)
    os.truncate(data_file(copy), data_file(copy).stat().st_size // 2)
    return copy


def run_repair(path: Path, failpoint: str = "", *options: str) -> subprocess.CompletedProcess[str]:
    environment = {"SEQSTORE_FAILPOINT": failpoint} if failpoint else {}
    return run_forked("-m", "seqstore", "repair", str(path), *options, environment=environment)


def test_it_is_killed_and_run_again(damaged: Path, sound: Path) -> None:
    before = data_file(damaged).read_bytes()
    for point in KILLS:
        killed = run_repair(damaged, point, "--from", str(sound))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert data_file(damaged).read_bytes() == before or point == KILLS[-1]
    assert "the catalog is sound" in run_repair(damaged).stdout
    assert contents(damaged) == contents(sound)
    kept = list((damaged / "damaged").glob("*/data.mdb"))
    assert kept
    assert all(each.read_bytes() == before for each in kept)


def test_a_dry_run_changes_nothing(damaged: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(damaged.rglob("*")) if path.is_file()}

    before = files()
    report = repair(damaged, dry_run=True)
    assert report.fault
    assert not report.is_done
    assert files() == before
    assert "dry run: nothing was changed" in list(report.lines())


def test_it_refuses_a_store_that_is_open(damaged: Path, sound: Path, tmp_path: Path) -> None:
    """Of another process, which is named, and of this one."""
    copy = tmp_path / "open"
    shutil.copytree(sound, copy)
    program = (
        "import sys; from seqstore import Store; "
        "s = Store.open(sys.argv[1]); print('open', flush=True); input()"
    )
    environment = {**os.environ, "PYTHONPATH": MODULES}
    with ForkedPython(["-c", program, str(copy)], environment=environment, has_input=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(UnavailableError, match=f"process {child.pid} has the store open"):
            repair(copy)
        child.communicate("\n")
    with Store.open(copy), pytest.raises(UnavailableError, match="this process has the store open"):
        repair(copy)


def test_files_that_a_sweep_has_moved_are_taken_back(tmp_path: Path) -> None:
    """An older program opened the damaged store, and its sweep moved files that it did not find any more."""
    worker = Worker(tmp_path / "store", 1, FILES_ONLY)
    worker.work(20)
    worker.close()
    copy = copy_of(tmp_path / "store", "swept")
    data_file(copy).unlink()
    for table in (copy / "tables").iterdir():
        (copy / "trash").mkdir(exist_ok=True)
        table.rename(copy / "trash" / table.name)
    (copy / "tables").mkdir(exist_ok=True)
    repair(copy)
    assert found_in(copy) == worker.expected()


def test_damaged_rows_are_left_out_and_named(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "store", 2, FILES_ONLY)
    worker.work(12)
    worker.close()
    copy = copy_of(tmp_path / "store", "rows")
    data_file(copy).unlink()
    victim = max((copy / "tables").rglob("*.arrow"), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 4
    victim.write_bytes(data)
    report = repair(copy)
    (said,) = [each for each in losses(report) if victim.stem in each]
    assert "left out" in said
    assert "does not match its checksum" in said
