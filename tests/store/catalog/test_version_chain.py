"""Records that are missing or older copies are noticed, whatever they are, and no file is removed then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import CorruptionError, Settings, Store, Table
from seqstore.store.catalog.catalog import CatalogTransaction, table_key, version_key
from tests.support.children import MODULES
from tests.support.faults.flipped_catalog import files, make_store
from tests.support.rows import rows_of, schema_of

SETTINGS = Settings(inline_bytes_max=300, auto_compaction=0, catalog_bytes_max=2**26)
OF_TABLES = ("tables", "heads", "schemas", "versions", "segments", "inline", "bitmaps")
MAKE = f"""
import sys
from pathlib import Path
from {make_store.__module__} import make_store
make_store(Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose process has ended: only the catalog keeps its files."""
    path = tmp_path_factory.mktemp("made") / "data"
    subprocess.run(
        [sys.executable, "-c", MAKE, str(path)], check=True, env={**os.environ, "PYTHONPATH": MODULES}
    )
    return path


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "data")
    return tmp_path / "data"


def changed(path: Path, change: Callable[[CatalogTransaction], None]) -> None:
    with Store.open(path, settings=SETTINGS) as store, store.catalog.write() as tx:
        change(tx)


def keys(path: Path, database: str, prefix: bytes) -> list[bytes]:
    with Store.open(path, settings=SETTINGS) as store, store.catalog.read() as tx:
        return [key for key, _ in tx.items(database, prefix)]


def everything(table: Table) -> list[object]:
    """All versions, as a handle that knows nothing reads them."""
    with Store.open(table.catalog.data_dir, settings=SETTINGS) as store:
        fresh = store.table(table.name)
        return [rows_of(fresh, version=n) for n in range(fresh.oldest_version, fresh.version + 1)]


@pytest.mark.parametrize("database", OF_TABLES)
def test_each_missing_record_of_a_table_is_corruption(copy: Path, database: str) -> None:
    with Store.open(copy, settings=SETTINGS) as store:
        expected = everything(store.table("db.u"))
    found = keys(copy, database, table_key(2))
    assert found
    noticed = 0
    for key in found:
        with Store.open(copy, settings=SETTINGS) as store:
            with store.catalog.write() as tx:
                before = tx.get(database, key)
                tx.delete(database, key)
            fault = ""
            try:
                assert everything(store.table("db.u")) == expected
                store.table("db.u").vacuum(retention_seconds=0, dry_run=True)
            except CorruptionError as error:
                fault = error.message
            if fault:
                assert any(word in fault for word in (database, "lost", "states")), fault
                noticed += 1
            else:  # a schema that no readable version has
                assert store.table("db.u").check() != [] or database == "schemas", key
            with store.catalog.write() as tx:
                tx.put(database, key, before)
    assert noticed > 0


def test_an_older_head_is_corruption(copy: Path) -> None:
    """All that it names is there and sound: only the next version proves that it is old."""
    with Store.open(copy, settings=SETTINGS) as store:
        head, revision = (store.table("db.u").version, 1)

    def go_back(tx: CatalogTransaction) -> None:
        tx.put("heads", table_key(2), [head - 1, revision])

    changed(copy, go_back)
    with Store.open(copy, settings=SETTINGS) as store:
        with pytest.raises(CorruptionError, match=r"heads/.* names version \d+, and a later one exists"):
            rows_of(store.table("db.u"))
        with pytest.raises(CorruptionError):
            store.table("db.u").upsert(pa.table({"k": [1], "v": ["x"]}))


def test_an_older_bitmap_is_corruption(copy: Path) -> None:
    with Store.open(copy, settings=SETTINGS) as store:
        with store.catalog.read() as tx:
            found = list(tx.records("bitmaps", table_key(2)))
        (first, _), (_, other) = found[0], found[-1]
        assert found[0][1] != other
        with store.catalog.write() as tx:
            tx.put("bitmaps", first, other)
        assert any("bitmaps/" in finding for finding in store.table("db.u").check())


def test_a_damaged_catalog_removes_no_file(copy: Path) -> None:
    """The next open deleted the files whose records a flipped bit had hidden."""
    before = files(copy)
    [record] = keys(copy, "segments", table_key(1))[:1]
    changed(copy, lambda tx: tx.delete("segments", record))
    with Store.open(copy, settings=SETTINGS) as store:
        assert {path.name for path in (copy / "tables").rglob("*.*")} >= before
        with pytest.raises(CorruptionError):
            store.table("db.t").vacuum()
    assert files(copy) == before


def test_what_a_sweep_removes_is_in_the_trash_for_a_day(copy: Path) -> None:
    directory = copy / "tables" / "1"
    orphan = "0000000000000001-7fffffff-1-1.arrow"  # of a process that has ended
    (directory / orphan).write_bytes(b"rows")
    Store.open(copy, settings=SETTINGS).close()
    moved = copy / "trash" / "1" / orphan
    assert not (directory / orphan).exists()
    assert moved.read_bytes() == b"rows"
    Store.open(copy, settings=SETTINGS).close()
    assert moved.exists()
    os.utime(moved, (0, 0))
    Store.open(copy, settings=SETTINGS).close()
    assert not moved.exists()


def test_a_catalog_older_than_its_files_removes_none(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", settings=SETTINGS) as store:
        store.create_database("db")
        store.create_table("db.t", schema_of("k BIGINT NOT NULL"))
    later = tmp_path / "data" / "tables" / "2" / "0000000000000001-7fffffff-1-1.arrow"
    later.parent.mkdir(parents=True)
    later.write_bytes(b"rows of a table that this catalog does not know")
    Store.open(tmp_path / "data", settings=SETTINGS).close()
    assert later.exists()


@pytest.fixture
def vacuumed(tmp_path: Path) -> Store:
    """A store with a table of ten versions, of which the first that is whole is the ninth."""
    store = Store.open(tmp_path / "data", settings=SETTINGS)
    store.create_database("db")
    table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
    for number in range(8):
        table.upsert(pa.table({"k": [number % 3], "v": [str(number)]}))
    table.vacuum(retention_seconds=0)
    assert (table.version, table.oldest_version) == (9, 9)
    table.upsert(pa.table({"k": [7], "v": ["new"]}))
    return store


def delete(store: Store, database: str, version: int) -> None:
    with store.catalog.write() as tx:
        tx.delete(database, version_key(store.table("db.t").id, version))


def test_vacuum_reads_no_record_that_only_the_history_shows(vacuumed: Store) -> None:
    """They stay for a month, and at many loads a second there are millions; `check` reads them."""
    delete(vacuumed, "versions", 4)
    table = vacuumed.table("db.t")
    table.vacuum(retention_seconds=0)
    assert [fault for fault in table.check() if "versions 4 to 4 are lost" in fault]


@pytest.mark.parametrize(("database", "version"), [("versions", 9), ("versions", 10), ("bitmaps", 8)])
def test_vacuum_removes_nothing_when_a_record_of_a_whole_version_is_lost(
    vacuumed: Store, database: str, version: int
) -> None:
    """The ninth version has its delete bitmaps from records before it."""
    with vacuumed.catalog.read() as tx:
        assert tx.get(database, version_key(vacuumed.table("db.t").id, version)) is not None
    delete(vacuumed, database, version)
    with pytest.raises(CorruptionError):
        vacuumed.table("db.t").vacuum(retention_seconds=0, dry_run=True)
