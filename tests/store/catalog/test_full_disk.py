"""A catalog whose disk is full or fails: nothing is stored, the label is free, and the process goes on."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import CommitUnknownError, Settings, Store, Table, UnavailableError
from seqstore.store.catalog.failed_transaction import abort_failed
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus, read_transaction
from tests.support.faults.lmdb_faults import broken_meta_page, full_disk, lmdb_fails
from tests.support.rows import rows_of, schema_of

pytestmark = pytest.mark.settings(Settings(auto_compaction=0))
# More than the pages that earlier commits have freed, so that the file must grow or be written.
WIDE = pa.table({"k": [1], "v": ["x" * 100_000]})


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))


def test_a_load_on_a_full_disk_names_the_disk_and_frees_its_label(table: Table) -> None:
    """It said that the outcome is unknown, and kept the label as PREPARE until the process ended."""
    load = table.begin_load(label="day")
    load.write(WIDE)
    with lmdb_fails(full_disk), pytest.raises(UnavailableError, match="disk of the catalog is full") as told:
        load.commit()
    assert told.value.kind == "disk_full"
    assert rows_of(table) == []
    assert table.upsert(WIDE, label="day").version == 2
    assert table.check() == []


def test_a_label_is_free_for_every_retry_during_the_fault_and_after_it(store: Store, table: Table) -> None:
    with lmdb_fails(full_disk):
        for _ in range(3):
            with pytest.raises(UnavailableError, match="disk of the catalog is full"):
                table.upsert(WIDE, label="day")
    with store.transaction(label="day") as transaction:
        transaction.table("db.t").upsert(WIDE)
    assert table.version == 2


def test_a_transaction_on_a_full_disk_frees_its_label(store: Store, table: Table) -> None:
    transaction = store.transaction(label="day")
    transaction.table("db.t").upsert(WIDE)
    with lmdb_fails(full_disk), pytest.raises(UnavailableError, match="disk of the catalog is full"):
        transaction.commit()
    assert table.upsert(WIDE, label="day").version == 2
    found = store.find_transaction("db", "day")
    assert found is not None
    assert found.status == "VISIBLE"


def test_files_of_a_load_on_a_full_disk_are_gone(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", settings=Settings(inline_bytes_max=1)) as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
        with lmdb_fails(full_disk), pytest.raises(UnavailableError, match="disk of the catalog is full"):
            table.upsert(WIDE, label="day")
        assert list(tmp_path.glob("data/tables/*/*")) == []


def test_a_head_that_was_not_synced_is_an_unknown_outcome(table: Table) -> None:
    syncs = 0

    def second_sync(name: str, _: tuple[int, ...]) -> int:
        nonlocal syncs
        syncs += name == "fdatasync"
        return errno.EIO if syncs == 2 else 0

    with lmdb_fails(second_sync), pytest.raises(CommitUnknownError, match="visible now, and a failure"):
        table.upsert(WIDE)
    assert rows_of(table) == [(1, "x" * 100_000)]


def test_a_failed_write_of_the_head_wedges_no_process(store: Store, table: Table) -> None:
    """LMDB answered every later call with MDB_PANIC."""
    table.upsert(WIDE)
    with lmdb_fails(broken_meta_page), pytest.raises(UnavailableError, match="nothing was stored") as told:
        table.upsert(WIDE, label="day")
    assert told.value.kind == "disk"
    assert rows_of(table) == [(1, "x" * 100_000)]
    assert table.upsert(pa.table({"k": [2], "v": ["y"]}), label="day").version == 3
    assert store.tables("db") == ["t"]
    assert table.check() == []


def test_a_transaction_whose_begin_was_not_stored_is_stored_as_aborted(store: Store) -> None:
    """The outcome of its begin is not known, and its label must be free in either case."""
    record = TransactionRecord(77, 1, "db.t", "l", TransactionStatus.PREPARE, "INSERT", 0)
    abort_failed(store.catalog, record, "the host failed")
    with store.catalog.read() as tx:
        stored = read_transaction(tx, 77)
    assert stored is not None
    assert (stored.status, stored.reason) == (TransactionStatus.ABORTED, "the host failed")


def test_a_label_that_stays_for_a_while_is_told(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    load = table.begin_load(label="day")
    load.write(WIDE)
    with lmdb_fails(full_disk), caplog.at_level(logging.WARNING):
        with pytest.raises(UnavailableError, match="disk of the catalog is full"):
            load.commit()
        load.abort("it cannot be stored")
    assert "label day is freed by the next write of this process" in caplog.text
