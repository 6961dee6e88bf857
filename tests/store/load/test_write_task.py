"""Shares of a scan and of a load, handed to other processes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    Column,
    ConflictError,
    InvalidInputError,
    LoadRejectedError,
    Store,
    Table,
    TableSchema,
    parse_type,
)
from seqstore.store.ddl.alter import alter
from seqstore.store.ddl.column_changes import add_column
from seqstore.store.load.load import LoadResult
from seqstore.store.load.write_task import StagedRows, WriteTask
from seqstore.store.maintenance.recovery import end_loads
from seqstore.store.read.scan_task import ScanTask
from seqstore.store.settings import Settings
from tests.support.forks.pools import forked_context

SMALL = Settings(inline_bytes_max=2_000, segment_rows=1_000, batch_rows_max=256, clustered_rows_min=500)


def forbid_catalogs() -> None:
    """In this process none can be opened from now on: executors do without."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a task opened the catalog")

    setattr(lmdb, "open", refuse)  # noqa: B010
    with pytest.raises(AssertionError):
        lmdb.open("")


def begun(task: WriteTask) -> WriteTask:
    """A task that may run."""
    task.begin()
    return task


@pytest.fixture(params=["arrow", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    schema = TableSchema.create(
        [
            Column("k", parse_type("BIGINT"), nullable=False),
            Column("s", parse_type("INT")),
            Column("v", parse_type("VARCHAR(20)")),
        ],
        ["k"],
        properties={"function_column.sequence_col": "s", "storage_format": request.param},
    )
    with Store.open(tmp_path, settings=SMALL) as store:
        store.create_database("db")
        yield store.create_table("db.t", schema)


def rows(low: int, high: int, sequence: int, text: str) -> pa.Table:
    count = high - low
    return pa.table(
        {
            "k": pa.array(range(low, high), pa.int64()),
            "s": pa.array([sequence] * count, pa.int32()),
            "v": [text] * count,
        }
    )


def fill(table: Table) -> None:
    table.upsert(rows(0, 3_000, 1, "first"))
    table.upsert(rows(1_000, 1_400, 2, "second"))
    table.upsert(rows(5, 8, 3, "inline"))
    table.delete(pa.table({"k": pa.array(range(100, 200), pa.int64())}))


def read_elsewhere(task: bytes) -> bytes:
    """In another process: rows of a share, as an Arrow stream."""
    share: ScanTask = pickle.loads(task)
    result = share.read().read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, result.schema) as writer:
        writer.write_table(result)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def stage_elsewhere(task: bytes, low: int, high: int, sequence: int) -> StagedRows:
    share: WriteTask = pickle.loads(task)
    return share.run(rows(low, high, sequence, f"from {low}").to_reader(max_chunksize=300))


def by_key(rows: pa.Table) -> list[dict[str, object]]:
    return sorted(rows.to_pylist(), key=lambda row: row["k"])


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("rows_per_task", [1, 300, 10_000])
def test_the_shares_of_a_scan_are_the_scan(table: Table, filtered: bool, rows_per_task: int) -> None:
    fill(table)
    predicate = (pc.field("s") >= 2) & (pc.field("k") < 1_200) if filtered else None
    tasks = table.scan_tasks(["v", "k", "__VERSION_COL__"], predicate, rows_per_task=rows_per_task)
    shares = [pickle.loads(pickle.dumps(task)).read().read_all() for task in tasks]
    whole = table.scan(["v", "k", "__VERSION_COL__"], predicate).read_all()
    assert by_key(pa.concat_tables(shares)) == by_key(whole)
    if rows_per_task == 300:
        assert len(tasks) > (1 if filtered else 3)
        assert max(task.rows for task in tasks) <= 512


def test_other_processes_read_shares_of_an_older_version(table: Table) -> None:
    fill(table)
    version = table.version
    tasks = table.scan_tasks(rows_per_task=700)
    table.upsert(rows(0, 3_000, 9, "later"))
    with forked_context().Pool(2, forbid_catalogs) as pool:
        parts = pool.map(read_elsewhere, [pickle.dumps(task) for task in tasks])
    read = pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in parts])
    assert by_key(read) == by_key(table.scan(version=version).read_all())


def test_zone_maps_leave_shares_out(table: Table) -> None:
    table.upsert(rows(0, 1_400, 1, "first"))
    narrow = table.scan_tasks(filter=pc.field("k") < 10, rows_per_task=1)
    assert len(narrow) < len(table.scan_tasks(rows_per_task=1))


def test_shares_staged_by_other_processes_become_one_version(table: Table) -> None:
    """Rows of a key that several shares hold are resolved by sequence (SO4), whoever staged them."""
    table.upsert(rows(0, 100, 5, "before"))
    task = begun(table.write_task())
    with forked_context().Pool(2, forbid_catalogs) as pool:
        shares = pool.starmap(
            stage_elsewhere, [(pickle.dumps(task), 0, 1_500, 3), (pickle.dumps(task), 500, 2_500, 7)]
        )
    with table.begin_load(label="shares") as load:
        for share in shares:
            load.adopt(share)
        result = load.commit()
    assert (result.version, result.rows_total, result.rows_late) == (3, 3_500, 100)
    found = {row["k"]: row["v"] for row in table.scan().read_all().to_pylist()}
    assert found == {k: "before" if k < 100 else "from 0" if k < 500 else "from 500" for k in range(2_500)}
    assert table.check() == []


def test_bad_rows_of_shares_count_and_may_fail_the_load(table: Table) -> None:
    task = begun(table.write_task())
    bad = pa.table({"k": ["1", "x", "3"], "s": [1, 1, 1], "v": ["a", "b", "c"]})
    share = task.run(bad)
    assert (share.rows_total, share.rows_filtered) == (3, 1)
    assert [row.row for row in share.rejected] == [1]
    with table.begin_load() as load:
        load.adopt(share)
        with pytest.raises(LoadRejectedError, match="1 of 3"):
            load.commit(max_filter_ratio=0.2)
    assert table.count() == 0


def test_shares_of_tasks_that_ran_twice_are_discarded(table: Table, tmp_path: Path) -> None:
    task = begun(table.write_task())
    kept = task.run(rows(0, 900, 1, "kept"))
    task.run(rows(0, 900, 1, "twice"))
    with table.begin_load() as load:
        load.adopt(kept)
        load.commit()
    end_loads(table, [task.load])
    files = [path.name for path in (tmp_path / "tables").rglob("*") if path.is_file()]
    assert len(files) == 2 * len(kept.segments)
    assert table.count() == 900
    assert table.check() == []


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[Table]:
    """Two rows to update partially; deltas of more than a few bytes are files."""
    columns = [Column("k", parse_type("BIGINT"), nullable=False)]
    columns += [Column("price", parse_type("INT")), Column("stock", parse_type("INT"))]
    properties = {"enable_unique_key_skip_bitmap_column": "true"}
    settings = Settings(inline_bytes_max=100, auto_compaction=0)
    with Store.open(tmp_path, settings=settings) as store:
        store.create_database("d")
        made = store.create_table("d.stock", TableSchema.create(columns, ["k"], properties=properties))
        made.upsert(pa.table({"k": [1, 2], "price": [10, 20], "stock": [100, 200]}))
        yield made


def adopted(table: Table, task: WriteTask, *shares: StagedRows) -> LoadResult:
    with table.begin_load() as load:
        for share in shares:
            load.adopt(pickle.loads(pickle.dumps(share)))
        result = load.commit()
    end_loads(table, [task.load])
    return result


def test_shares_of_a_partial_update_are_filled_by_the_load_that_adopts_them(stock: Table) -> None:
    """P6, P19, C7: from the version it publishes on, and a key of two shares takes the cells of both."""
    task = pickle.loads(pickle.dumps(begun(stock.write_task(mode="UPDATE_FIXED_COLUMNS"))))
    first = task.run(pa.table({"k": [1, 3], "price": [11, 31]}))
    second = task.run(pa.table({"k": [3], "stock": [300]}))
    assert any(delta.name for delta in first.deltas)
    stock.upsert(pa.table({"k": [1], "price": [0], "stock": [111]}))  # after the shares were staged
    result = adopted(stock, task, first, second)
    assert (result.version, result.rows_total) == (4, 3)
    assert by_key(stock.scan().read_all()) == [
        {"k": 1, "price": 11, "stock": 111},
        {"k": 2, "price": 20, "stock": 200},
        {"k": 3, "price": 31, "stock": 300},
    ]
    left = task.stager.disk.list(task.stager.directory)
    assert [name for name in left if name.endswith(".delta")] == []


def test_shares_of_a_partial_update_may_refuse_new_keys(stock: Table) -> None:
    """P10"""
    task = begun(stock.write_task(mode="UPDATE_FIXED_COLUMNS", new_keys="ERROR"))
    share = task.run(pa.table({"k": [7], "price": [1]}))
    with pytest.raises(InvalidInputError, match="new rows in partial update"):
        adopted(stock, task, share)
    assert stock.version == 2


def test_rows_of_shares_say_which_columns_they_supply(stock: Table) -> None:
    """F9: by a column of the data; NULL supplies all of them."""
    task = begun(stock.write_task(mode="UPDATE_FLEXIBLE_COLUMNS", supplied="given"))
    data = pa.table({"k": [1, 2, 3], "price": [5, 6, 7], "stock": [8, 9, 10], "given": [["PRICE"], [], None]})
    adopted(stock, task, task.run(data))
    assert by_key(stock.scan().read_all()) == [
        {"k": 1, "price": 5, "stock": 100},
        {"k": 2, "price": 20, "stock": 200},
        {"k": 3, "price": 7, "stock": 10},
    ]
    task.begin()
    with pytest.raises(InvalidInputError, match="a row supplies 'nope'"):
        task.run(pa.table({"k": [1], "price": [1], "given": [["nope"]]}))
    with pytest.raises(InvalidInputError, match="a list of strings"):
        task.run(pa.table({"k": [1], "price": [1], "given": ["price"]}))
    with pytest.raises(InvalidInputError, match="only for updates of mode UPDATE_FLEXIBLE_COLUMNS"):
        stock.write_task(mode="UPDATE_FIXED_COLUMNS", supplied="given")


def test_a_share_staged_for_an_older_schema_is_refused(stock: Table) -> None:
    """Scenario 42: the load that adopts it has begun after the ALTER, the share before."""
    task = begun(stock.write_task())
    share = task.run(pa.table({"k": [5], "price": [1], "stock": [1]}))
    alter(stock, [add_column(Column("extra", parse_type("INT")))])
    with pytest.raises(ConflictError, match="prepared for schema revision 1, but the table has 2"):
        adopted(stock, task, share)


def test_files_of_a_living_owner_are_left_alone_and_of_a_dead_one_swept(table: Table, tmp_path: Path) -> None:
    begun(table.write_task()).run(rows(0, 900, 1, "alive"))
    begun(table.write_task(owner=(2**22 + 1, 1))).run(rows(0, 900, 1, "dead"))
    before = len([path for path in (tmp_path / "tables").rglob("*") if path.is_file()])
    context = forked_context()
    opener = context.Process(target=open_and_close, args=(str(tmp_path),))
    opener.start()
    opener.join(60)
    assert opener.exitcode == 0
    after = len([path for path in (tmp_path / "tables").rglob("*") if path.is_file()])
    assert (before, after) == (6, 3)


def open_and_close(path: str) -> None:
    Store.open(path).close()
