"""Segment files on a real object store: SeaweedFS, started for these tests."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from seqstore import (
    ClosedError,
    Column,
    CorruptionError,
    InvalidInputError,
    Settings,
    Store,
    TableSchema,
    parse_type,
)
from seqstore.store.load.write_task import StagedRows, WriteTask
from seqstore.store.maintenance.recovery import end_loads
from seqstore.store.read.scan_task import ScanTask
from seqstore.store.segment.object_disk import ObjectDisk
from tests.support.forks.pools import forked_context
from tests.support.object_store import WEED, object_store

SMALL = Settings(inline_bytes_max=1_000, segment_rows=1_000)
pytestmark = pytest.mark.skipif(not WEED.exists(), reason="needs the object store of the extra test")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of an empty bucket on a server of its own."""
    with object_store(tmp_path_factory.mktemp("weed")) as uri:
        yield uri


SCHEMA = TableSchema.create(
    [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("STRING"))], ["k"]
)


def rows(low: int, high: int, text: str) -> pa.Table:
    return pa.table({"k": pa.array(range(low, high), pa.int64()), "v": [text] * (high - low)})


def objects(uri: str) -> list[str]:
    filesystem, path = pafs.FileSystem.from_uri(uri)
    found = filesystem.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    return sorted(info.base_name for info in found if info.type == pafs.FileType.File)


def test_segments_live_on_the_object_store(bucket: str, tmp_path: Path) -> None:
    """The catalog stays local; losing the cache loses nothing."""
    uri = bucket.format("one")
    with Store.open(tmp_path / "data", settings=SMALL, segments=uri) as store:
        store.create_database("db")
        table = store.create_table("db.t", SCHEMA)
        table.upsert(rows(0, 3_000, "a"))
        table.upsert(rows(1_000, 2_000, "b"))
    assert len(objects(uri)) == 2 * 4
    shutil.rmtree(tmp_path / "data" / "cache")
    assert not (tmp_path / "data" / "tables").exists()
    context = forked_context()
    with context.Pool(1) as pool:  # a process that has nothing open yet
        assert pool.apply(read_values, (str(tmp_path / "data"),)) == {"a": 2_000, "b": 1_000}
        assert pool.apply(check, (str(tmp_path / "data"),)) == []


def read_values(path: str) -> dict[str, int]:
    with Store.open(path, create=False) as store:
        counted = store.table("db.t").scan(["v"]).read_all().group_by("v").aggregate([([], "count_all")])
        return dict(
            zip(*(column.to_pylist() for column in counted.select(["v", "count_all"]).columns), strict=True)
        )


def check(path: str) -> list[str]:
    with Store.open(path, create=False) as store:
        return store.table("db.t").check()


def test_shares_are_staged_and_read_by_processes_without_the_data_directory(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark's executors on other hosts: they know the URI, and keep a cache of their own."""
    uri = bucket.format("two")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Store.open(tmp_path / "data", settings=SMALL, segments=uri) as store:
        store.create_database("db")
        table = store.create_table("db.t", SCHEMA)
        # What a host makes of a task that has no such data directory.
        disk = ObjectDisk(uri, tmp_path / "none", SMALL.cache_bytes_max)
        task = table.write_task()
        task.begin()
        task = replace(task, stager=replace(task.stager, disk=disk))
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # with the variable from above
            share = pool.apply(stage, (pickle.dumps(task), 0, 2_500))
            with table.begin_load() as load:
                load.adopt(share)
                load.commit()
            shares = [replace(each, disk=disk) for each in table.scan_tasks(rows_per_task=1_000)]
            assert sum(pool.map(count_rows, [pickle.dumps(each) for each in shares])) == 2_500
        assert table.check() == []
    assert list(tmp_path.glob("seqstore-cache-*/tables/*/*.arrow"))


def test_a_load_that_ends_while_it_is_staged_leaves_no_object(bucket: str, tmp_path: Path) -> None:
    """Nor does it begin without one, or go on behind it."""
    uri = bucket.format("ended")
    with Store.open(tmp_path / "data", settings=SMALL, segments=uri) as store:
        store.create_database("db")
        table = store.create_table("db.t", SCHEMA)
        task = table.write_task()
        with pytest.raises(ClosedError):
            task.run(rows(0, 1_000, "early"))
        task.begin()
        seen: list[str] = []

        def batches() -> Iterator[pa.RecordBatch]:
            yield from rows(0, 2_000, "staged").to_batches(max_chunksize=1_000)
            seen.extend(objects(uri))
            end_loads(table, [task.load])
            yield from rows(2_000, 3_000, "late").to_batches()

        reader = pa.RecordBatchReader.from_batches(rows(0, 1, "").schema, batches())
        with pytest.raises(ClosedError):
            task.run(reader)
        assert len(seen) > 1
        assert objects(uri) == []
        assert [path for path in (tmp_path / "data" / "cache").rglob("*") if path.is_file()] == []


def stage(task: bytes, low: int, high: int) -> StagedRows:
    share: WriteTask = pickle.loads(task)
    return share.run(rows(low, high, "staged"))


def count_rows(task: bytes) -> int:
    share: ScanTask = pickle.loads(task)
    return int(share.read().read_all().num_rows)


def test_the_cache_keeps_its_size(bucket: str, tmp_path: Path) -> None:
    uri = bucket.format("three")
    limit = 150_000
    tight = Settings(inline_bytes_max=1_000, segment_rows=1_000, cache_bytes_max=limit)
    with Store.open(tmp_path / "data", settings=tight, segments=uri) as store:
        store.create_database("db")
        table = store.create_table("db.t", SCHEMA)
        for start in range(0, 20_000, 2_000):
            table.upsert(rows(start, start + 2_000, "x" * 20))
        cached = sum(
            path.stat().st_size for path in (tmp_path / "data" / "cache").rglob("*") if path.is_file()
        )
        assert 0 < cached <= limit + 100_000  # the newest file stays, whatever its size
    with forked_context().Pool(1) as pool:
        assert pool.apply(read_values, (str(tmp_path / "data"),)) == {"x" * 20: 20_000}


def test_a_missing_object_is_corruption(bucket: str, tmp_path: Path) -> None:
    uri = bucket.format("four")
    with Store.open(tmp_path / "data", settings=SMALL, segments=uri) as store:
        store.create_database("db")
        table = store.create_table("db.t", SCHEMA)
        table.upsert(rows(0, 900, "a"))
        filesystem, path = pafs.FileSystem.from_uri(uri)
        filesystem.delete_dir_contents(path)
        shutil.rmtree(tmp_path / "data" / "cache")
    with (
        forked_context().Pool(1) as pool,  # it has nothing mapped yet
        pytest.raises(CorruptionError, match="is missing"),
    ):
        pool.apply(read_values, (str(tmp_path / "data"),))


def test_dropping_a_table_removes_its_objects(bucket: str, tmp_path: Path) -> None:
    uri = bucket.format("five")
    with Store.open(tmp_path / "data", settings=SMALL, segments=uri) as store:
        store.create_database("db")
        store.create_table("db.t", SCHEMA).upsert(rows(0, 900, "a"))
        assert objects(uri)
        store.drop_table("db.t")
        assert objects(uri) == []


def test_the_place_of_segments_is_chosen_once(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.create_database("db")
        store.create_table("db.t", SCHEMA)
    with pytest.raises(InvalidInputError, match="its segments are in its own directory"):
        Store.open(tmp_path, segments="s3://elsewhere/x")


def write_object(disk: ObjectDisk, name: str) -> None:
    with disk.create(name) as file:
        file.write(b"x" * 100)


def test_an_object_has_the_age_of_its_upload(tmp_path: Path) -> None:
    disk = ObjectDisk(f"file://{tmp_path}/objects", tmp_path / "data", SMALL.cache_bytes_max)
    write_object(disk, "a/b")
    os.utime(tmp_path / "objects" / "a" / "b", (1_000, 1_000))
    assert disk.age_seconds("a/b", 1_500) == 500
    assert disk.age_seconds("a/none", 1_500) == 0


def test_an_object_that_is_moved_has_its_old_name_no_more(tmp_path: Path) -> None:
    disk = ObjectDisk(f"file://{tmp_path}/objects", tmp_path / "data", SMALL.cache_bytes_max)
    write_object(disk, "a/b")
    disk.move("a/b", "c/b")
    assert (disk.list("a"), disk.list("c")) == ([], ["b"])
    assert disk.map("c/b").to_pybytes() == b"x" * 100


def test_a_load_that_ends_during_an_upload_leaves_no_object(tmp_path: Path) -> None:
    """Its files were listed for removal before the object had its name."""
    disk = ObjectDisk(f"file://{tmp_path}/objects", tmp_path / "data", SMALL.cache_bytes_max)
    checks: list[bool] = []

    def check() -> None:
        checks.append(disk.exists("a/b"))
        if checks[-1]:
            raise ClosedError("the load has ended")

    with pytest.raises(ClosedError):
        write_object(disk.guarded(check), "a/b")
    assert checks == [False, True]
    assert not disk.exists("a/b")
