"""Every kind of work on a small store, in steps that can be acknowledged and repeated one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore import Session, Settings, Store, StoreError, UnavailableError
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.store.catalog.catalog import TABLES
from seqstore.store.catalog.prepared_records import prepared_files
from seqstore.store.maintenance.recovery import file_ids
from seqstore.store.sql import ServerContext
from tests.support.rows import rows_of, schema_of

SETTINGS: Final = Settings(inline_bytes_max=400, auto_compaction=0, catalog_bytes_max=2**24)
COLUMNS: Final = ("k BIGINT NOT NULL", "v STRING", "w BIGINT")
Step = Callable[[Store], object]
# One step of these has several commits: after an error it may be done.
SEVERAL_COMMITS: Final = ("routine_load",)


def rows(keys: range, value: str, **others: Any) -> pa.Table:
    return pa.table({"k": list(keys), "v": [value] * len(keys), "w": [1] * len(keys), **others})


def open_store(path: Path) -> Store:
    return Store.open(path, settings=replace(SETTINGS, load_paths=(str(inbox_of(path)),)))


def make_store(path: Path) -> None:
    """Makes tables with inline segments, files, versions, tombstones and orders for the work."""
    with open_store(path) as store:
        store.create_database("db")
        for name in ("t", "u"):
            table = store.create_table(f"db.{name}", schema_of(*COLUMNS))
            table.upsert(rows(range(80), "first"))
            table.upsert(rows(range(40, 120), "second"))
            table.delete(pa.table({"k": list(range(5))}))
            table.upsert(rows(range(200, 203), "small"))
        store.create_table("db.fed", schema_of(*COLUMNS))
    inbox = inbox_of(path)
    inbox.mkdir()
    for number in range(2):
        lines = [json.dumps({"k": number * 100 + i, "v": "fed", "w": i}) for i in range(60)]
        (inbox / f"{number}.json").write_text("\n".join(lines) + "\n")


def inbox_of(path: Path) -> Path:
    """Returns the directory that the routine load reads; it stays the same for copies of the store."""
    return path.with_name("inbox")


def session_of(store: Store) -> Session:
    return Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store)))


def _sql(text: str) -> Step:
    def run(store: Store) -> None:
        with session_of(store) as session:
            list(session.execute(text))

    return run


def _precommit(store: Store) -> None:
    with store.table("db.t").begin_load(label="two") as load:
        load.write(rows(range(300, 380), "two"))
        load.precommit()


def _partly_precommit(store: Store) -> None:
    with store.table("db.u").begin_load(label="part", mode="UPDATE_FIXED_COLUMNS") as load:
        load.write(pa.table({"k": list(range(100)), "w": [7] * 100}))
        load.precommit()


def _several(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.table("db.t").upsert(rows(range(400, 480), "both"))
        transaction.table("db.u").upsert(rows(range(400, 404), "both"))
        transaction.table("db.u").update({"v": pc.scalar("changed")}, pc.field("k") == 50)
        transaction.commit()


def _routine(store: Store) -> None:
    RoutineRunner(store).drain()
    if not store.table("db.fed").count():
        with suppress(StoreError):  # it is not paused
            _sql("RESUME ROUTINE LOAD FOR feed")(store)
        RoutineRunner(store).drain()
    if not store.table("db.fed").count():  # the job has noted its error, and is tried again
        raise UnavailableError("the routine load has loaded nothing", kind="disk")


def _create_routine(inbox: Path) -> Step:
    properties = f'"path" = "{inbox}/*.json"'
    return _sql(
        f'CREATE ROUTINE LOAD db.feed ON fed PROPERTIES ("format" = "json") FROM FILES ({properties})'
    )


def works(inbox: Path) -> dict[str, list[Step]]:
    """Returns the steps of each kind of work."""
    return {
        "load": [
            lambda store: store.table("db.t").upsert(rows(range(60, 140), "loaded"), label="one"),
            lambda store: store.table("db.t").upsert(rows(range(60, 63), "again"), label="other"),
        ],
        "partial": [
            lambda store: store.table("db.t").upsert(
                pa.table({"k": list(range(70)), "w": [9] * 70}), mode="UPDATE_FIXED_COLUMNS"
            )
        ],
        "delete": [lambda store: store.table("db.t").delete(pa.table({"k": list(range(20, 90))}))],
        "update": [_sql("UPDATE t SET v = 'updated', w = w + 1 WHERE k < 70")],
        "two_phase": [_precommit, lambda store: store.commit_transaction("db", label="two")],
        "two_phase_partial": [_partly_precommit, lambda store: store.commit_transaction("db", label="part")],
        "several_tables": [_several],
        "optimize": [lambda store: store.table("db.t").optimize(full=True)],
        "vacuum": [
            lambda store: store.table("db.t").optimize(full=True),
            lambda store: store.table("db.t").vacuum(retention_seconds=0),
        ],
        "restore": [lambda store: store.table("db.t").restore(3)],
        "alter": [
            _sql("ALTER TABLE t ADD COLUMN x BIGINT NULL DEFAULT '5'"),
            _sql("ALTER TABLE t DROP COLUMN w"),
        ],
        "truncate": [_sql("TRUNCATE TABLE t"), _sql("DROP TABLE u"), _sql("CREATE TABLE n LIKE t")],
        "overwrite": [_sql("INSERT OVERWRITE TABLE t SELECT k + 1000, v, w FROM u WHERE k < 100")],
        "routine_load": [_create_routine(inbox), _routine],
    }


def contents(path: Path) -> dict[str, Any]:
    """Returns what readers of the store see."""
    found: dict[str, Any] = {}
    with open_store(path) as store:
        for name in store.tables("db"):
            table = store.table(f"db.{name}")
            columns = [column.name for column in table.schema.columns]
            found[name] = [columns, table.version, [list(row) for row in rows_of(table)]]
            assert table.check() == [], table.check()
        for label in ("two", "part"):
            record = store.find_transaction("db", label)
            status = str(record.status) if record is not None else ""
            found[f"label {label}"] = status if status in ("PRECOMMITTED", "VISIBLE") else "free"
        with store.catalog.read() as tx:
            jobs = [record["job"] for _, record in tx.records("jobs")]
        found["jobs"] = [
            [job["spec"]["name"], [item for item in sorted(job["progress"].items()) if item[1]]]
            for job in jobs
            if "spec" in job
        ]
        found["schema changes"] = [[job["table"], job["state"]] for job in jobs if "spec" not in job]
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def unnamed_files(path: Path) -> list[str]:
    """Returns the files of tables that no record of the catalog names."""
    unnamed = []
    with open_store(path) as store, store.catalog.read() as tx:
        tables = {int.from_bytes(key) for key, _ in tx.items("tables")}
        for directory in (path / TABLES).iterdir():
            number = int(directory.name)
            known = file_ids(tx, number, "segments", "trash") if number in tables else set()
            kept = prepared_files(tx, number)
            names = [file.name for file in directory.iterdir()]
            unnamed += [
                f"{number}/{name}"
                for name in names
                if name not in kept and name.rpartition(".")[0] not in known
            ]
    return sorted(unnamed)
