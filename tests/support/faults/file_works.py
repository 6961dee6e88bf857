"""Every kind of work on a small store, in steps that can be acknowledged and repeated one by one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore import CorruptionError, Settings, Store, StoreError, UnavailableError
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.store.backup.stored_backups import backup_faults, stored_backups
from seqstore.store.backup.target import Target
from seqstore.store.catalog.catalog import TABLES
from seqstore.store.catalog.prepared_records import prepared_files
from seqstore.store.maintenance.recovery import file_ids
from seqstore.store.repair.repair import repair
from tests.support.faults import load_works
from tests.support.lake.delta_reader import open_delta
from tests.support.rows import schema_of

SETTINGS: Final = Settings(inline_bytes_max=400, auto_compaction=0, catalog_bytes_max=2**24)
COLUMNS: Final = ("k BIGINT NOT NULL", "v STRING", "w BIGINT")
_OPEN: Final = 'PROPERTIES ("delta.universalFormat.enabledFormats" = "delta", "open_every_seconds" = "0")'
Step = Callable[[Any], object]  # takes the store, in offline work its directory
# One step of these has several commits: after an error it may be done.
SEVERAL_COMMITS: Final = (
    *("routine_load", "modify_column", "repair", "backup", "restore_snapshot"),
    *load_works.COMMITS,
)
# The work on a store that no process has open. It begins with a damaged catalog.
OFFLINE: Final = ("repair",)
_JOB_SECONDS: Final = 4
_WITH_SECRET: Final = (
    "CREATE ROUTINE LOAD db.sealed ON fed FROM KAFKA ('kafka_broker_list' = '127.0.0.1:1', "
    "'kafka_topic' = 't', 'property.ssl.key.password' = 'secret')"
)


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
    load_works.make_lake(inbox)
    for number in range(2):
        lines = [json.dumps({"k": number * 100 + i, "v": "fed", "w": i}) for i in range(60)]
        (inbox / f"{number}.json").write_text("\n".join(lines) + "\n")


@contextmanager
def opened_for(work: str, path: Path) -> Iterator[Any]:
    """Yields what the steps of a kind of work take."""
    if work in OFFLINE:
        yield path
        return
    with open_store(path) as store:
        yield store


def prepare(work: str, path: Path) -> None:
    """Brings a copy of the store into the state in which the work begins."""
    if work not in OFFLINE:
        return
    file = path / "catalog" / "data.mdb"
    data = bytearray(file.read_bytes())
    place = data.rindex(b"second")  # in a record of the catalog, whose checksum fails then
    data[place] ^= 1
    file.write_bytes(data)


def inbox_of(path: Path) -> Path:
    """Returns the directory that the routine load reads; it stays the same for copies of the store."""
    return path.with_name("inbox")


def _sql(text: str) -> Step:
    def run(store: Store) -> None:
        with load_works.session_of(store) as session:
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


def _modify(store: Store) -> None:
    """Changes a type by a job; a job that was cancelled by a fault is asked for again.

    A job that cannot store its end tries to until it can, or the store is closed.
    """
    store.schema_changes.wait()
    if str(store.table("db.t").schema.column("w").type) != "STRING":
        _sql("ALTER TABLE t MODIFY COLUMN w STRING")(store)
        deadline = time.monotonic() + _JOB_SECONDS
        while any(not job.has_ended for job in store.schema_changes.jobs("db").values()):
            if time.monotonic() > deadline:
                raise UnavailableError("the job goes on", kind="disk")
            time.sleep(0.005)
    if str(store.table("db.t").schema.column("w").type) != "STRING":
        raise UnavailableError("the job was cancelled", kind="disk")


def _place_of(store: Store) -> str:
    """Returns the place of backups: in the data directory, whose operations alone have faults."""
    setattr(Target, "refuse_within", lambda _self, _directory: None)  # noqa: B010 - mypy knows the method
    return str(store.path / "backups")


def _back_up(store: Store) -> None:
    """Makes a backup; one that a fault has cancelled is asked for again."""
    _end_of_jobs(store)
    if not stored_backups(_place_of(store)):
        store.backups.backup("db", "daily", _place_of(store))
        _end_of_jobs(store)
    if not stored_backups(_place_of(store)):
        raise UnavailableError("the backup was cancelled", kind="disk")


def _restore_snapshot(store: Store) -> None:
    """Restores a table under another name; it is there after the one commit of the job."""
    _end_of_jobs(store)
    if "copy" not in store.tables("db"):
        store.backups.restore("db", "daily", _place_of(store), {"t": "copy"})
        _end_of_jobs(store)
    if "copy" not in store.tables("db"):
        raise UnavailableError("the restoration was cancelled", kind="disk")


def _end_of_jobs(store: Store) -> None:
    """Waits for jobs; one that cannot store its end tries to until it can, or the store is closed."""
    deadline = time.monotonic() + _JOB_SECONDS
    while store.backups.is_busy:
        if time.monotonic() > deadline:
            raise UnavailableError("the job goes on", kind="disk")
        time.sleep(0.005)


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
        "open_table": [
            _sql(f"CREATE TABLE s (k BIGINT NOT NULL, v STRING, w BIGINT) UNIQUE KEY(k) {_OPEN}"),
            lambda store: store.table("db.s").upsert(rows(range(80), "shown"), label="one"),
            lambda store: store.table("db.s").upsert(rows(range(60, 63), "again"), label="other"),
            lambda store: store.table("db.s").optimize(full=True),
            lambda store: store.table("db.s").delete(pa.table({"k": list(range(20, 60))})),
        ],
        "routine_load": [_create_routine(inbox), _routine],
        "secret": [_sql(_WITH_SECRET)],
        "modify_column": [_modify],
        "repair": [repair],
        "backup": [_back_up],
        "restore_snapshot": [_back_up, _restore_snapshot],
        **load_works.load_works(),
    }


def contents(path: Path) -> dict[str, Any]:
    """Returns what readers of the store see; a damaged catalog is repaired before."""
    try:
        with open_store(path) as store:
            return _contents(store) | {"is damaged": False}
    except CorruptionError:
        repair(path)
        with open_store(path) as store:
            return _contents(store) | {"is damaged": True}


def _contents(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = {}
    store.schema_changes.wait()  # those that a process left go on
    store.backups.join()
    for name in store.tables("db"):
        table = store.table(f"db.{name}")
        if load_works.is_empty_store_of_letters(table):
            continue
        columns = [f"{column.name} {column.type}" for column in table.schema.columns]
        found[name] = [columns, table.version, list(load_works.rows_to_compare(store, name))]
        assert table.check() == [], table.check()
        if table.schema.open_formats:
            store.opener.wait()
            shown = open_delta(store.path / table.loader.directory)
            assert [shown.shown, sorted(shown.read().to_pylist(), key=repr)] == [
                table.version,
                sorted(table.scan().read_all().to_pylist(), key=repr),
            ]
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
    place = _place_of(store)
    found["backups"] = [[each.label, each.objects, each.error] for each in stored_backups(place)]
    faults = backup_faults(place)
    assert all("belongs to no readable backup" in fault for fault in faults), faults
    found["exports"] = load_works.exported(store)
    found["schema changes"] = [
        [job["table"], job["state"]] for job in jobs if "revision" in job and job["state"] != "CANCELLED"
    ]
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def unnamed_files(path: Path) -> list[str]:
    """Returns the files of tables that no record of the catalog names."""
    unnamed = []
    with open_store(path) as store:
        store.backups.join()
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
                if name not in kept
                and name.rpartition(".")[0] not in known
                and not name.startswith(("_delta_log", "deletion_vector_"))
            ]
            unnamed += [file.name for file in directory.glob("_delta_log/.*")]
    return sorted(unnamed)
