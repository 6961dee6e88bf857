"""Files of loads that failed: none is left, and those that cannot be removed are removed by VACUUM."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import (
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    Session,
    Settings,
    Store,
    Table,
    UnavailableError,
)
from seqstore.store.publish.prepare_write import Filling
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.publish.unpublished_files import remove_unpublished
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.segment.disk import Disk, NewFile
from tests.support.faults.lmdb_faults import full_disk, lmdb_fails
from tests.support.rows import MakeTable, rows_of, schema_of
from tests.support.statements import run

pytestmark = pytest.mark.settings(Settings(inline_bytes_max=1, segment_rows=100, auto_compaction=0))
ROWS = pa.table({"k": list(range(2_000))})


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("db.t", schema_of("k BIGINT NOT NULL"))


def files(store: Store) -> list[str]:
    return sorted(path.name for path in store.path.glob("tables/*/*"))


def test_every_file_operation_of_a_load_of_several_segments_may_fail(
    store: Store, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of parts that were built beside the one that failed stayed as long as the process."""
    table.upsert(pa.table({"k": [1]}))
    before, finish = files(store), NewFile.finish
    written, failing = 0, 0

    def fails_once(self: NewFile, **options: bool) -> None:
        nonlocal written
        written += 1
        if written == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finish(self, **options)

    monkeypatch.setattr(NewFile, "finish", fails_once)
    for failing in range(1, 41):
        written = 0
        with pytest.raises(UnavailableError, match="No space left"):
            table.upsert(ROWS, label="l")
        assert files(store) == before, failing
    written, failing = 0, 0
    table.upsert(ROWS, label="l")
    assert written == 40
    assert len(rows_of(table)) == 2_000
    assert table.check() == []


def test_files_that_cannot_be_removed_are_removed_by_vacuum(
    store: Store, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(pa.table({"k": [1]}))
    before, unlink = files(store), Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self.suffix in (".arrow", ".keys"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(self, missing_ok)

    load = table.begin_load(label="l")
    load.write(ROWS)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        with lmdb_fails(full_disk), pytest.raises(UnavailableError, match="disk of the catalog is full"):
            load.commit()
    assert len(files(store)) == len(before) + 40
    assert len(table.vacuum().orphans) == 40
    assert files(store) == before
    table.upsert(ROWS, label="l")
    assert table.check() == []


def test_an_unlink_that_fails_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(UnavailableError, match=r"tables/1/x.arrow: cannot be removed: .* Read-only"):
        Disk(tmp_path).delete("tables/1/x.arrow")


def test_a_directory_that_cannot_be_synced_fails_the_load(
    store: Store, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(pa.table({"k": [1]}))
    before, fsync = files(store), os.fsync

    def refuse(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(UnavailableError, match="cannot be synced"):
            table.upsert(ROWS, label="l")
    assert files(store) == before
    assert table.upsert(ROWS, label="l").version == 3


def test_names_of_new_directories_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a table's first file was made, and its name in its parent was not synced."""
    synced: list[Path] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with Store.open(tmp_path / "a" / "data", settings=Settings(inline_bytes_max=1)) as store:
        store.create_database("db")
        assert {tmp_path, tmp_path / "a", tmp_path / "a" / "data"} <= set(synced)
        assert tmp_path / "a" / "data" / "catalog" in synced
        synced.clear()
        store.create_table("db.t", schema_of("k BIGINT NOT NULL")).upsert(pa.table({"k": [1]}))
    data = tmp_path / "a" / "data"
    assert {data, data / "tables", data / "tables" / "1"} <= set(synced)


def test_the_file_of_leases_has_no_hole(store: Store, table: Table) -> None:
    """A store into a hole of a mapped file ended the process when the disk was full."""
    with table.snapshot():
        (path,) = (store.path / "readers").iterdir()
        assert path.stat().st_blocks * 512 >= path.stat().st_size > 0


def test_a_full_disk_refuses_leases_by_name(
    store: Store, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(UnavailableError, match=r"readers/.* No space left"):
        table.snapshot()


def test_parts_that_were_filled_before_one_that_breaks_a_check_leave_no_file(store: Store) -> None:
    with Session(store, "db") as session:
        run(session, "CREATE TABLE c (k BIGINT NOT NULL, a INT, b INT) UNIQUE KEY(k)")
        run(session, "ALTER TABLE c ADD CONSTRAINT small CHECK (a + b < 1000)")
    table = store.table("db.c")
    table.upsert(pa.table({"k": range(400), "a": [0] * 400, "b": range(400)}))
    before = files(store)
    load = table.begin_load(mode="UPDATE_FIXED_COLUMNS")
    for keys, value in ((range(200), 1), (range(200, 400), 999)):
        load.write(pa.table({"k": keys, "a": [value] * 200}))
    with pytest.raises(InvalidInputError, match="small"):
        load.commit()
    assert files(store) == before
    assert {row[1] for row in rows_of(table)} == {0}


def test_damage_that_a_commit_meets_is_told_and_nothing_is_stored(store: Store, table: Table) -> None:
    version = table.upsert(ROWS).version
    for path in store.path.glob("tables/*/*.keys"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.chmod(0o600)
        path.write_bytes(content)
    with Store.open(store.path, create=False) as other:
        load = other.table("db.t").begin_load()
        load.write(ROWS)
        with pytest.raises(CorruptionError, match="does not match its checksum"):
            load.commit()
        assert other.table("db.t").version == version


def test_a_partial_update_that_is_committed_later_leaves_no_file_of_its_cells(store: Store) -> None:
    table = store.create_table("db.cells", schema_of("k BIGINT NOT NULL", "v BIGINT"))
    before = [path.name for path in store.path.glob("tables/*/*.delta")]
    with table.begin_load(label="l", mode="UPDATE_FIXED_COLUMNS") as load:
        load.write(pa.table({"k": range(2_000), "v": range(2_000)}))
        load.precommit()
    assert len(list(store.path.glob("tables/*/*.delta"))) == len(before) + 1
    store.commit_transaction("db", label="l")
    assert [path.name for path in store.path.glob("tables/*/*.delta")] == before
    assert len(rows_of(table)) == 2_000


def test_files_that_the_catalog_names_outlast_an_interrupted_commit(make_table: MakeTable) -> None:
    """The commit was interrupted behind the point from which its version is stored."""
    table = make_table("k INT NOT NULL")
    table.upsert(pa.table({"k": [1]}))
    segments = [live.segment for live in table.state().segments.values()]
    disk, directory = table.loader.disk, table.loader.directory
    named = disk.list(directory)
    remove_unpublished(table, segments)
    assert disk.list(directory) == named


def test_deltas_of_a_load_without_segments_are_removed(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "v INT", "w INT")
    disk, directory = table.loader.disk, table.loader.directory
    kept = disk.list(directory)
    load = table.begin_load(mode="UPDATE_FIXED_COLUMNS")
    load.write(pa.table({"k": [1], "v": [1]}))
    deltas = load.writers[0].write_delta_files()
    assert disk.list(directory) != kept
    remove_unpublished(table, [], deltas)
    assert disk.list(directory) == kept


def test_segments_of_a_filling_that_fails_are_removed(store: Store, table: Table) -> None:
    before = files(store)
    rows = CheckedRows(pa.table({"k": [1, 2]}, schema=table.schema.arrow))
    stager = table.begin_load().writers[0].target.stager

    def fail() -> None:
        with Filling(stager) as filling:
            filling.stage(rows)
            assert files(store) != before
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert files(store) == before


def test_a_file_that_went_with_its_table_is_no_damage(
    store: Store, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(self: TableWriter) -> None:
        store.drop_table("db.t")
        raise CorruptionError("the catalog names this file, but it is missing")

    load = table.begin_load()
    load.write(ROWS)
    monkeypatch.setattr(TableWriter, "prepare", prepare)
    with pytest.raises(NotFoundError):
        load.commit()
