"""A small store that holds every kind of record and file that docs/format.md describes.

It stays open while a test reads it, because some records and files exist only for a while: a held version, a
load that other processes stage, a pre-committed transaction.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from seqstore import Settings, Store
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.stream_load import stream_load
from seqstore.store.maintenance.scheduler import maintain
from seqstore.store.maintenance.schema_change_job import PENDING, SchemaChangeJob, SchemaChangeJobs
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.sql.session.server_context import ServerContext
from seqstore.store.sql.session.session import Session
from tests.support.faults.dying_child import run_until_dead

_ROWS = 200
_TABLES = (
    "plain (k INT NOT NULL, v VARCHAR(20) NULL DEFAULT 'x' COMMENT 'text', n INT NULL) UNIQUE KEY (k) "
    "COMMENT 'keys and values' DISTRIBUTED BY HASH (k) BUCKETS 1",
    "mapped (k BIGINT NOT NULL, at DATETIME(6) NULL, v STRING NULL, price DECIMAL(9, 2) NULL) "
    "UNIQUE KEY (k) DISTRIBUTED BY HASH (k) BUCKETS 1 PROPERTIES ('function_column.sequence_col' = 'at', "
    "'storage_format' = 'parquet', 'tombstone_retention_seconds' = '0')",
    "typed (a VARCHAR(9) NOT NULL, b INT NOT NULL, v DOUBLE NULL) UNIQUE KEY (a, b) DISTRIBUTED BY HASH (a) "
    "BUCKETS 1 PROPERTIES ('function_column.sequence_type' = 'LARGEINT', 'compression' = 'lz4')",
    "grouped (k INT NOT NULL, c INT NULL, s INT NULL, d INT NULL, p INT NULL, q INT NULL) UNIQUE KEY (k) "
    "DISTRIBUTED BY HASH (k) BUCKETS 1 PROPERTIES ('sequence_mapping.s' = 'c', 'sequence_mapping.p,q' = 'd')",
    "counted (id BIGINT NOT NULL AUTO_INCREMENT(5), v INT NULL, "
    "seen DATETIME NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP) UNIQUE KEY (id) "
    "DISTRIBUTED BY HASH (id) BUCKETS 1 PROPERTIES ('enable_unique_key_skip_bitmap_column' = 'true')",
    "parted (day DATE NOT NULL, k INT NOT NULL, v INT NULL) UNIQUE KEY (day, k) "
    "PARTITION BY RANGE (day) (PARTITION p1 VALUES LESS THAN ('2024-02-01'), "
    "PARTITION p2 VALUES LESS THAN ('2024-03-01')) DISTRIBUTED BY HASH (k) BUCKETS 1",
    "listed (city VARCHAR(9) NOT NULL, k INT NOT NULL) UNIQUE KEY (city, k) "
    "PARTITION BY LIST (city) (PARTITION p1 VALUES IN ('a', 'b')) DISTRIBUTED BY HASH (k) BUCKETS 1",
    "appended (k INT NOT NULL, v INT NULL) DUPLICATE KEY (k)",
)
# Killed between the two steps of a vacuum, so that segments stay in the trash.
_VACUUM = """
import sys
from seqstore import Store
store = Store.open(sys.argv[1])
print("ready", flush=True)
store.table("db.mapped").vacuum(retention_seconds=0)
"""


@dataclass(frozen=True)
class EveryKind:
    """The store, and where files for its loads lie."""

    store: Store
    files: Path


@contextlib.contextmanager
def every_kind(folder: Path, segments: str | None = None) -> Iterator[EveryKind]:
    """Makes the store below a folder that is empty, with its segments there or elsewhere."""
    files = folder / "files"
    files.mkdir()
    with (
        Store.open(folder / "data", settings=_settings(files), segments=segments) as store,
        Session(store, server=ServerContext(load_jobs=StoreLoadJobs(store))) as session,
        contextlib.ExitStack() as held,
    ):
        made = EveryKind(store, files)
        _run(session, "CREATE DATABASE db", "USE db", *(f"CREATE TABLE {table}" for table in _TABLES))
        _write_rows(made)
        _change_tables(session)
        _update(made, session)
        _prepare(store)
        _run_jobs(made, session)
        _set_up(session)
        held.callback(store.table("db.plain").snapshot(2).close)
        store.table("db.plain").vacuum(retention_seconds=0)
        _maintain(store)
        _thin_out(store)
        _stage(store)
        run_until_dead(_VACUUM, store.path, 0, failpoint="vacuum.forgotten")
        yield made


def _settings(files: Path) -> Settings:
    """A hundred rows become a file, fewer stay in the catalog."""
    return Settings(inline_bytes_max=2_000, auto_compaction=0, load_paths=(str(files),))


def _run(session: Session, *statements: str) -> None:
    for statement in statements:
        list(session.execute(statement))


def rows(first: int = 0, count: int = _ROWS) -> pa.Table:
    """Rows of db.plain."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "k": pa.array(numbers, pa.int32()),
            "v": [f"v{n}" for n in numbers],
            "n": pa.array(numbers, pa.int32()),
        }
    )


def _write_rows(made: EveryKind) -> None:
    """Segments of all homes, deletes, a compaction, a restore."""
    store = made.store
    plain = store.table("db.plain")
    plain.upsert(rows(), label="first")
    plain.upsert(rows(0, 3), txn_app_id="app", txn_version=1)
    plain.delete(pa.table({"k": [1]}))
    plain.optimize(full=True)
    plain.restore(3)
    base = datetime(2024, 1, 1)
    times = [base + timedelta(hours=n) for n in range(_ROWS)]
    prices = pa.array([1] * _ROWS, pa.decimal128(9, 2))
    mapped = store.table("db.mapped")
    mapped.upsert(pa.table({"k": list(range(_ROWS)), "at": times, "v": ["a"] * _ROWS, "price": prices}))
    mapped.delete(pa.table({"k": [1, 2]}))
    mapped.purge()
    typed = store.table("db.typed")
    sequence = pa.array(range(_ROWS), pa.decimal256(39, 0))
    keys = {"a": [f"a{n}" for n in range(_ROWS)], "b": pa.array(range(_ROWS), pa.int32())}
    typed.upsert(pa.table({**keys, "v": [0.5] * _ROWS, "s": sequence}), sequence="s")
    store.table("db.grouped").upsert(pa.table({"k": [1, 2], "c": [1, 2], "s": [1, 1]}))
    store.table("db.counted").upsert(pa.table({"v": [1, 2]}))
    appended = store.table("db.appended")
    appended.upsert(
        pa.table({"k": pa.array([7] * _ROWS, pa.int32()), "v": pa.array([1] * _ROWS, pa.int32())})
    )
    appended.delete_where(pc.field("v") == 1)


def _change_tables(session: Session) -> None:
    _run(
        session,
        "ALTER TABLE plain ADD COLUMN w INT NULL DEFAULT '7'",
        "ALTER TABLE plain ADD COLUMN at DATETIME NULL DEFAULT CURRENT_TIMESTAMP",
        "ALTER TABLE plain ADD CONSTRAINT positive CHECK (n >= 0)",
        "INSERT INTO parted VALUES ('2024-01-01', 1, 1), ('2024-02-01', 2, 2)",
        "ALTER TABLE parted DROP PARTITION p1",
        "TRUNCATE TABLE parted",
        "ALTER TABLE plain SET TBLPROPERTIES ('delta.feature.appendOnly' = 'supported')",
        "ALTER TABLE grouped DROP COLUMN c",
        "ALTER TABLE grouped DROP COLUMN s",
    )


def _update(made: EveryKind, session: Session) -> None:
    """Versions whose reads are recorded, and one that only left a mark on another table."""
    _run(session, "UPDATE plain SET n = n + 1 WHERE k = 3", "UPDATE plain SET n = 0 WHERE abs(k) = 3")
    store = made.store
    store.table("db.plain").update({"n": 4}, pc.field("k") == 4, concurrency="unchecked")
    with store.transaction(concurrency="optimistic") as transaction:
        transaction.table("db.plain").get(pa.table({"k": [5]}))
        transaction.table("db.typed").scan(["v"]).read_all()
        transaction.table("db.counted").upsert(pa.table({"v": [3]}))


def _prepare(store: Store) -> None:
    """Pre-committed: a small partial update, a large one, and a transaction that has read and cleared."""
    plain = store.table("db.plain")
    with plain.begin_load(label="overwrite") as overwrite:
        overwrite.clear(pc.field("k") < 10)
        overwrite.write(rows(0, 2))
        overwrite.precommit()
    for label, count in (("small", 2), ("large", _ROWS)):
        load = plain.begin_load(mode="UPDATE_FIXED_COLUMNS", label=label, txn_app_id=label, txn_version=1)
        load.write(rows(0, count).select(["k", "v"]))
        load.precommit()
    transaction = store.transaction(label="transaction", concurrency="optimistic")
    opened = transaction.table("db.plain")
    opened.update({"n": 9}, pc.field("k") == 9)
    opened.upsert(rows(300, 2))
    transaction.precommit()


def _run_jobs(made: EveryKind, session: Session) -> None:
    """A broker load, a routine load that has read a file, a stream load with a bad row, schema changes."""
    (made.files / "broker.csv").write_text("400,a,1\nx,a,1\n")
    (made.files / "routine.csv").write_text("401,a,1\nx,a,1\n")
    description = DataDescription(
        "plain",
        (f"{made.files}/broker.csv",),
        columns=("k", "v", "n"),
        column_separator=",",
        partitions=("plain",),
        assignments=("w = n",),
        properties={"strict_mode": "false"},
    )
    job = LoadSpec("db", "broker", (description,), {"max_filter_ratio": "0.5"})
    BrokerLoad(made.store, job, [str(made.files)], references=["env:NAME"]).run()
    settings = f"FROM FILES ('path' = '{made.files}/routine*.csv')"
    _run(
        session,
        "CREATE ROUTINE LOAD job ON plain COLUMNS TERMINATED BY ',', COLUMNS (k, v, n) "
        f"PROPERTIES ('max_error_number' = '9') {settings}",
    )
    RoutineRunner(made.store).drain()
    _run(session, f"CREATE ROUTINE LOAD running ON plain {settings}")
    _run(
        session,
        "CREATE ROUTINE LOAD moved ON plain FROM KAFKA ('kafka_broker_list' = 'b:9092', 'kafka_topic' = 't', "
        "'property.ssl.key.password' = 'secret')",
        "PAUSE ROUTINE LOAD FOR moved",
    )
    jobs = RoutineJobs(made.store.catalog)
    running, moved = (jobs.find("db", name)[0] for name in ("running", "moved"))
    jobs.change(running, lambda job: replace(job.divided({"0": 0}, {"0": 1}), references=("env:NAME",)))
    jobs.change(moved, lambda job: replace(job, progress={"0": 5}))
    offsets = "'kafka_partitions' = '0', 'kafka_offsets' = 'OFFSET_END'"
    _run(session, f"ALTER ROUTINE LOAD FOR moved FROM KAFKA ({offsets})")
    place = f"{made.files.parent}/backups"
    _run(
        session,
        f"EXPORT TABLE listed TO 'file://{place}/part_'",
        f"BACKUP SNAPSHOT daily TO '{place}' ON (listed)",
        f"RESTORE SNAPSHOT daily FROM '{place}' ON (listed AS restored)",
    )
    stream_load(made.store, "db", "plain", io.BytesIO(b"x,a,1\n"), {"column_separator": ","})
    table = made.store.table("db.plain")
    change = SchemaChangeJob(table.name, table.id, PENDING, this_process(), 1, 1, table.schema.to_record())
    SchemaChangeJobs(made.store.catalog).add(change.cancelled("x"))
    SchemaChangeJobs(made.store.catalog).add(change)


def _set_up(session: Session) -> None:
    _run(
        session,
        "CREATE TABLE filled UNIQUE KEY(k) AS SELECT k FROM plain WHERE k < 5",
        "CREATE VIEW shown (k COMMENT 'key') COMMENT 'keys' AS SELECT k FROM plain",
        "CREATE USER ann IDENTIFIED BY 'one'",
        "GRANT LOAD_PRIV ON db.* TO ann",
        "CREATE ROLE readers COMMENT 'of all tables'",
        "GRANT SELECT_PRIV ON db.plain TO ROLE readers",
        "GRANT readers TO ann",
        "ADMIN SET FRONTEND CONFIG ('enable_concurrent_update' = 'true')",
    )


def _maintain(store: Store) -> None:
    """The lock files of compactions, and of a statement that runs again after conflicts."""
    maintain(store.table("db.listed"))
    typed = store.table("db.typed")
    typed.meets_conflicts = True
    typed.update({"v": 1.0}, pc.field("b") == 1, concurrency="optimistic", retries=1)


def _thin_out(store: Store) -> None:
    """Thins out the versions of a table, as the setting does."""
    with Store.open(store.path, settings=replace(store.settings, version_thinning="0:1")) as other:
        other.table("db.appended").vacuum()


def _stage(store: Store) -> None:
    """A load that other processes stage, once of whole rows and once of a part: marker, segment, delta."""
    task = store.table("db.plain").write_task()
    task.begin()
    task.run(rows(500))
    partial = store.table("db.plain").write_task(mode="UPDATE_FIXED_COLUMNS", purpose="a query")
    partial.begin()
    partial.run(rows(500).select(["k", "v"]))
