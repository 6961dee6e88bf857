"""Durability: bytes and names of files are synced before a commit names them, and each commit before its call
returns. A killed process keeps the page cache, so only the order of the steps can show a missing sync."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import Session, Settings, Store
from seqstore.store.catalog.catalog import table_key
from seqstore.store.maintenance import recovery
from seqstore.store.open_table.delta_log import DeltaLog
from seqstore.store.open_table.iceberg_table import IcebergTable
from seqstore.store.repair.repair import repair
from seqstore.store.runtime.secrets.box import KEY_FILE, SecretBox
from seqstore.store.segment.disk import Disk
from tests.support.faults.sync_record import SyncRecord, names_recorded, recorded
from tests.support.rows import schema_of
from tests.support.statements import run

FILES = Settings(inline_bytes_max=0, segment_rows=1_000, batch_rows_max=256, auto_compaction=0)
INLINE = Settings(auto_compaction=0)
Work = Callable[[Store, SyncRecord], object]


def rows(low: int, high: int, value: str = "x") -> pa.Table:
    return pa.table(
        {"k": pa.array(range(low, high), pa.int64()), "v": [value] * (high - low), "n": [1] * (high - low)}
    )


def cells(low: int, high: int) -> pa.Table:
    return rows(low, high, "y").select(["k", "v"])


def labelled(store: Store, record: SyncRecord) -> None:
    with store.table("db.t").begin_load(label="l") as load:
        record.returned("begin_load")
        load.write(rows(0, 500))
        record.returned("write")
        load.prepare()
        load.commit()


def overtaken(store: Store, record: SyncRecord) -> None:
    """A load that is prepared for a version that others follow, and filled again."""
    table = store.table("db.t")
    with table.begin_load(mode="UPDATE_FIXED_COLUMNS") as load:
        load.write(cells(0, 500))
        load.prepare()
        table.upsert(rows(100, 300, "z"))
        record.returned("the other load")
        load.commit()


def two_tables(store: Store, record: SyncRecord) -> None:
    with store.transaction(label="both") as transaction:
        transaction.table("db.t").upsert(rows(0, 400))
        transaction.table("db.u").update({"v": "y"}, pc.field("k") < 400)


def two_phase(store: Store, record: SyncRecord, *, ends: bool = True, mode: str = "UPSERT") -> None:
    with store.table("db.t").begin_load(label="two-phase", mode=mode) as load:
        load.write(rows(0, 400) if mode == "UPSERT" else cells(0, 400))
        load.precommit()
        record.returned("precommit")
    if ends:
        store.commit_transaction("db", label="two-phase")
    else:
        store.abort_transaction("db", label="two-phase")


def staged_by_a_task(store: Store, record: SyncRecord) -> None:
    table = store.table("db.t")
    task = table.write_task()
    task.begin()
    share = task.run(rows(0, 1_500))
    record.handed_over("run")
    with table.begin_load() as load:
        load.adopt(share)
        load.commit()


def vacuumed(store: Store, record: SyncRecord) -> None:
    table = store.table("db.t")
    table.optimize(full=True)
    record.returned("optimize")
    assert table.vacuum(retention_seconds=0).files


def vacuumed_elsewhere(store: Store, record: SyncRecord) -> None:
    """The process that vacuumed has ended before it removed the files."""
    table = store.table("db.t")
    table.optimize(full=True)
    with mock.patch.object(Disk, "delete"):
        table.vacuum(retention_seconds=0)
    record.returned("vacuum")
    left = {name for name in record.named if (store.path / name).exists()}
    with mock.patch.object(recovery, "is_alive", return_value=False), Store.open(store.path, settings=FILES):
        record.returned("open")
    assert any(not (store.path / name).exists() for name in left)


def dropped_elsewhere(store: Store, record: SyncRecord) -> None:
    """The next opening removes the files; its process cannot know that the drop is durable."""
    files = [name for name in record.created if (store.path / name).match("tables/1/*")]
    assert files
    with mock.patch.object(Store, "_remove_files"):
        store.drop_table("db.t")
    with Store.open(store.path, settings=FILES):
        record.returned("open")
    assert not any((store.path / name).exists() for name in files)


def sql(text: str) -> Work:
    def work(store: Store, record: SyncRecord) -> None:
        with Session(store, "db") as session:
            run(session, text)

    return work


# Kind of work -> the work, and the suffixes of the files that its commits must have named.
WORK: dict[str, tuple[Work, str]] = {
    "load": (lambda store, _: store.table("db.t").upsert(rows(0, 500)), "arrow keys"),
    "load of several segments": (lambda store, _: store.table("db.t").upsert(rows(0, 9_000)), "arrow keys"),
    "load of Parquet": (lambda store, _: store.table("db.p").upsert(rows(0, 500)), "parquet keys"),
    "labelled load": (labelled, "arrow keys"),
    "load overtaken by another": (overtaken, "arrow keys"),
    "partial update": (
        lambda store, _: store.table("db.t").upsert(cells(0, 500), mode="UPDATE_FIXED_COLUMNS"),
        "arrow keys",
    ),
    "DELETE by key": (
        lambda store, _: store.table("db.t").delete(rows(0, 500).select(["k"])),
        "arrow keys",
    ),
    "DELETE": (sql("DELETE FROM t WHERE k < 500"), "arrow keys"),
    "UPDATE": (sql("UPDATE t SET v = 'y' WHERE k < 500"), "arrow keys"),
    "MERGE": (
        sql("MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN UPDATE SET v = 'y'"),
        "arrow keys",
    ),
    "INSERT OVERWRITE": (sql("INSERT OVERWRITE TABLE t SELECT * FROM u WHERE k < 500"), "arrow keys"),
    "transaction over two tables": (two_tables, "arrow keys"),
    "two-phase load": (two_phase, "arrow keys"),
    "two-phase partial update": (
        lambda store, record: two_phase(store, record, mode="UPDATE_FIXED_COLUMNS"),
        "arrow keys delta",
    ),
    "two-phase abort": (
        lambda store, record: two_phase(store, record, ends=False, mode="UPDATE_FIXED_COLUMNS"),
        "arrow keys delta",
    ),
    "load staged by a task": (staged_by_a_task, "arrow keys"),
    "OPTIMIZE": (lambda store, _: store.table("db.t").optimize(full=True), "arrow keys"),
    "ZORDER BY": (lambda store, _: store.table("db.t").optimize(zorder_by=["n"]), "arrow keys"),
    "VACUUM": (vacuumed, "arrow keys"),
    "VACUUM by a process that ended": (vacuumed_elsewhere, "arrow keys"),
    "RESTORE": (lambda store, _: store.table("db.t").restore(2), "arrow keys"),
    "TRUNCATE": (sql("TRUNCATE TABLE t"), ""),
    "ALTER": (sql("ALTER TABLE t ADD COLUMN w INT NULL"), ""),
    "CREATE": (sql("CREATE DATABASE d; CREATE TABLE d.t LIKE t; CREATE USER a IDENTIFIED BY 'b'"), ""),
    "DROP": (sql("DROP TABLE t"), ""),
    "DROP by another process": (dropped_elsewhere, ""),
    "REORG": (sql("REORG TABLE t APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))"), ""),
}


def made(path: Path, settings: Settings) -> Store:
    store = Store.open(path, settings=settings)
    store.create_database("db")
    columns = ("k BIGINT NOT NULL", "v STRING", "n BIGINT")
    for name, properties in (("t", {}), ("u", {}), ("p", {"storage_format": "parquet"})):
        table = store.create_table(f"db.{name}", schema_of(*columns, **properties))
        table.upsert(rows(0, 800))
        table.upsert(rows(200, 700))
    return store


@pytest.mark.parametrize("work", WORK)
def test_files_are_synced_before_their_commit_and_the_commit_before_the_answer(
    tmp_path: Path, work: str
) -> None:
    if work == "REORG" and find_spec("pyiceberg") is None:
        pytest.skip("pyiceberg is not installed")
    run_work, suffixes = WORK[work]
    with recorded(tmp_path / "data") as record, made(tmp_path / "data", FILES) as store:
        record.returned("made")
        record.named.clear()
        run_work(store, record)
        record.returned(work)
    assert record.faults() == []
    assert {Path(name).suffix for name in record.named} >= {f".{suffix}" for suffix in suffixes.split()}


@pytest.mark.parametrize("work", WORK)
def test_small_work_is_synced_before_the_answer(tmp_path: Path, work: str) -> None:
    """Rows that the catalog holds itself."""
    if work == "REORG" or "VACUUM" in work or "process" in work:
        pytest.skip("it is about files")
    with recorded(tmp_path / "data") as record, made(tmp_path / "data", INLINE) as store:
        record.returned("made")
        WORK[work][0](store, record)
        record.returned(work)
    assert record.faults() == []
    assert any(step.kind == "commit is synced" for step in record.steps)


def test_the_names_of_new_directories_and_of_the_catalog_are_synced(tmp_path: Path) -> None:
    """A loss of power would take away the directory of files that are durable themselves."""
    with names_recorded(tmp_path) as names, made(tmp_path / "new" / "data", FILES) as store:
        store.table("db.t").optimize(full=True)
        assert {"new", "new/data", "new/data/catalog", "new/data/catalog/data.mdb", "new/data/tables/1"} <= {
            *names.made
        }
        assert names.lost == set()


OPEN = {"open_every_seconds": "0"}
FORMATS = "delta.universalFormat.enabledFormats"


@pytest.mark.family(5)
@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("formats", ["delta", "iceberg", "delta,iceberg"])
@pytest.mark.parametrize("settings", [FILES, INLINE], ids=["files", "inline"])
def test_an_appearance_is_durable_before_the_answer(
    tmp_path: Path, formats: str, version: str, settings: Settings
) -> None:
    """A loss of power would take back a version that was acknowledged as shown to other readers."""
    if "iceberg" in formats and find_spec("pyiceberg") is None:
        pytest.skip("pyiceberg is not installed")
    data = tmp_path / "data"
    with recorded(data) as record, names_recorded(tmp_path) as names, made(data, settings) as store:
        properties = {**OPEN, FORMATS: formats, "iceberg.format-version": version}
        schema = schema_of("k BIGINT NOT NULL", "v STRING", "n BIGINT", **properties)
        table = store.create_table("db.o", schema)
        for low in range(0, 1_200, 100):
            table.upsert(rows(low, low + 300))
            record.handed_over(f"the appearance of {table.version}")
            assert (names.lost, names.unsynced) == (set(), [])
    assert record.faults() == []
    assert {Path(name).parent.name for name in names.made} >= {
        {"delta": "_delta_log", "iceberg": "metadata"}[each] for each in formats.split(",")
    }


@pytest.mark.parametrize("formats", ["delta", "iceberg"])
def test_an_appearance_of_a_killed_process_is_made_durable_before_it_counts(
    tmp_path: Path, formats: str
) -> None:
    """It was killed between the commit of the log and the sync of its name; the next one trusted it."""
    if formats == "iceberg" and find_spec("pyiceberg") is None:
        pytest.skip("pyiceberg is not installed")
    with names_recorded(tmp_path) as names, made(tmp_path / "data", FILES) as store:
        schema = schema_of("k BIGINT NOT NULL", "v STRING", "n BIGINT", **OPEN, **{FORMATS: formats})
        table = store.create_table("db.o", schema)
        table.upsert(rows(0, 300))
        with mock.patch.object(Disk, "sync_directory"):
            table.upsert(rows(100, 200))
        assert names.lost
        writer: type[DeltaLog] | type[IcebergTable] = DeltaLog if formats == "delta" else IcebergTable
        loader = table.loader
        with store.catalog.read() as tx:
            record = tx.get("tables", table_key(table.id))
        identity = uuid.uuid5(uuid.NAMESPACE_OID, f"seqstore/{table.id}/{record['created_ms']}")
        other = writer(loader.disk, loader.directory, str(identity))
        other.refresh()
        assert other.shown == table.version
        assert {name for name in names.lost if "_delta_log" in name or "metadata" in name} == set()


def test_the_key_of_secrets_is_synced_before_it_encrypts(tmp_path: Path) -> None:
    """A loss of power would leave secrets in the catalog that nothing can read."""
    pytest.importorskip("cryptography")
    with names_recorded(tmp_path) as names:
        SecretBox(tmp_path / KEY_FILE).seal("secret")
    assert (names.made, names.lost, names.unsynced) == ([KEY_FILE], set(), [])


def test_the_names_that_a_repair_makes_are_synced(tmp_path: Path) -> None:
    """The new catalog, the damaged one beside it, and files that come back from the trash."""
    with made(tmp_path / "made", FILES):
        pass
    data = tmp_path / "data"
    shutil.copytree(tmp_path / "made", data)  # this process keeps the catalog of the other one open
    segment, trash = min(data.glob("tables/1/*.arrow")), data / "trash" / "1"
    trash.mkdir(parents=True)
    segment.rename(trash / segment.name)
    catalog = data / "catalog" / "data.mdb"
    catalog.write_bytes(bytes(8192) + catalog.read_bytes()[8192:])
    with names_recorded(tmp_path) as names:
        report = repair(data)
    assert (report.is_done, report.aside is not None, segment.exists()) == (True, True, True)
    assert {"data/catalog/data.mdb", str(segment.relative_to(tmp_path))} <= {*names.made}
    assert names.lost == set()
