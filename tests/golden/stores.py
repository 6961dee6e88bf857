"""The golden stores. Every kind of table, file and record of the format is in one of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tests.golden.contents import plain, shown, tables_of, transactions_of
from tests.golden.package import api, job_session, loaders, sql

_CENTURY: Final = 100 * 365 * 24 * 3600
_NOON: Final = datetime(2024, 5, 6, 12, 30)
_MANY: Final = 64


def settings(**more: Any) -> Any:
    """Settings under which nothing of a golden store expires."""
    kept: tuple[str, ...] = ("label_keep_seconds", "precommitted_keep_seconds", "version_retention_seconds")
    kept += ("tombstone_retention_seconds", "history_retention_seconds")
    given = dict.fromkeys(kept, _CENTURY) | {"catalog_bytes_max": 2**28, "auto_compaction": 0}
    if hasattr(api.Settings, "columns_not_null_by_default"):  # as columns were when the format was new
        given["columns_not_null_by_default"] = True
    return api.Settings(**given, **more)


def open_store(path: Path, **more: Any) -> Any:
    """Opens a golden store."""
    return api.Store.open(path, settings=settings(**more))


def _run(session: Any, text: str) -> None:
    for _ in session.execute(text):
        pass


def _rows(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


# tables


def make_tables(path: Path) -> None:
    """Tables of every kind: small loads stay in the catalog, the others are files."""
    with open_store(path) as store, sql.Session(store, clock=lambda: _NOON.astimezone()) as session:
        _run(session, "CREATE DATABASE db; USE db")
        for make in (_plain, _types, _sequences, _groups, _partitions, _generated, _constraints, _altered):
            make(store, session)
    with open_store(path, inline_bytes_max=1) as store, sql.Session(store, "db") as session:
        _files(store, session)
        _rewritten(store, session)


def _plain(store: Any, session: Any) -> None:
    _run(
        session,
        """CREATE TABLE plain (k BIGINT, name VARCHAR(10) NULL DEFAULT "none", n INT NULL) UNIQUE KEY (k)
           COMMENT "small loads" DISTRIBUTED BY HASH (k) BUCKETS 1;
           CREATE TABLE keys (a VARCHAR(20) NULL, b DATE, c DECIMAL(9, 2), v INT NULL) UNIQUE KEY (a, b, c)
           DISTRIBUTED BY HASH (a) BUCKETS 1;
           CREATE TABLE empty (k INT) UNIQUE KEY (k) DISTRIBUTED BY HASH (k) BUCKETS 1""",
    )
    table = store.table("db.plain")
    table.upsert(_rows(k=[1, 2, 3], name=["a", None, "ü"], n=[1, 2, 3]), label="plain-1")
    table.upsert(_rows(k=[2, 4], name=["b", "d"], n=[20, 40]))
    table.delete(_rows(k=[1, 9]))
    table.upsert(_rows(k=[3], n=[30]), mode="UPDATE_FIXED_COLUMNS")
    table.update({"n": pc.field("n") + 1}, pc.field("k") > 2)
    _run(
        session,
        """INSERT INTO keys VALUES (NULL, "2024-01-01", 1.5, 1),
               ("x", "1969-12-31", -2.25, 2), ("", "9999-12-31", 0, 3);
           INSERT INTO keys VALUES ("x", "1969-12-31", -2.25, 20)""",
    )


def _types(store: Any, session: Any) -> None:
    _run(
        session,
        """CREATE TABLE types (k LARGEINT, b BOOLEAN NULL, i1 TINYINT NULL, i2 SMALLINT NULL, f FLOAT NULL,
               d DOUBLE NULL, n DECIMAL(38, 10) NULL, w DECIMAL(60, 5) NULL, day DATE NULL,
               at DATETIME(6) NULL, c CHAR(4) NULL, s STRING NULL, j JSON NULL, l ARRAY<INT> NULL,
               m MAP<VARCHAR(5), INT> NULL, o STRUCT<x: INT, y: STRING> NULL) UNIQUE KEY (k)
               DISTRIBUTED BY HASH (k) BUCKETS 1;
           INSERT INTO types VALUES
               (-170141183460469231731687303715884105728, true, -128, 32767, 0.5, -1e300,
                1234567890.0123456789, 99999999999999999999999999999999.5, '0001-01-01',
                '2024-02-29 23:59:59.999999', 'ab', 'text', '{"a": [1, null]}', [1, NULL], NULL, NULL),
               (5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                NULL)""",
    )
    nested = {
        "m": pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int32())),
        "o": pa.array([{"x": 1, "y": None}], pa.struct([("x", pa.int32()), ("y", pa.string())])),
    }
    store.table("db.types").upsert(_rows(k=[5], **nested), mode="UPDATE_FIXED_COLUMNS")


def _sequences(store: Any, session: Any) -> None:
    _run(
        session,
        """CREATE TABLE seq_col (k INT, v VARCHAR(10) NULL, s DATETIME NULL) UNIQUE KEY (k)
           DISTRIBUTED BY HASH (k) BUCKETS 1 PROPERTIES ("function_column.sequence_col" = "s");
           CREATE TABLE seq_type (k INT, v VARCHAR(10) NULL) UNIQUE KEY (k)
           DISTRIBUTED BY HASH (k) BUCKETS 1 PROPERTIES ("function_column.sequence_type" = "bigint");
           INSERT INTO seq_col VALUES (1, "new", "2024-01-02 00:00:00"), (2, "first", NULL);
           INSERT INTO seq_col VALUES (1, "late", "2024-01-01 00:00:00"),
               (2, "next", "2020-01-01 00:00:00")""",
    )
    table = store.table("db.seq_type")
    table.upsert(_rows(k=[1, 2, 3], v=["a", "b", "c"], q=[5, 5, 5]), sequence="q")
    table.upsert(_rows(k=[1, 2], v=["late", "new"], q=[4, 6]), sequence="q")
    table.upsert(
        _rows(k=[3, 4], v=["x", "y"], q=[9, 9], __DORIS_DELETE_SIGN__=[1, 1]),
        sequence="q",
        merge_type="MERGE",
    )
    table.upsert(_rows(k=[3, 4], v=["too late", "new"], q=[8, 10]), sequence="q")


def _groups(store: Any, session: Any) -> None:
    _run(
        session,
        """CREATE TABLE grouped (k INT, c INT NULL, d INT NULL, e VARCHAR(5) NULL, s1 INT NULL, s2 INT NULL)
           UNIQUE KEY (k) DISTRIBUTED BY HASH (k) BUCKETS 1
           PROPERTIES ("sequence_mapping.s1" = "c,d", "sequence_mapping.s2" = "e",
                       "enable_unique_key_skip_bitmap_column" = "true");
           INSERT INTO grouped VALUES (1, 1, 1, "a", 5, 5), (2, 2, 2, "b", 5, 5);
           INSERT INTO grouped (k, c, d, s1) VALUES (1, 9, 9, 4), (2, 9, 9, 6), (3, 3, 3, 1);
           INSERT INTO grouped (k, e, s2) VALUES (1, "z", 6), (2, "z", 4), (3, "c", 1)""",
    )
    store.table("db.grouped").delete(_rows(k=[3]))
    _run(session, "INSERT INTO grouped (k, e, s2) VALUES (3, 'd', 7)")


def _partitions(_store: Any, session: Any) -> None:
    _run(
        session,
        """CREATE TABLE ranged (d DATE, k INT, v INT NULL) UNIQUE KEY (d, k) PARTITION BY RANGE (d)
           (PARTITION p1 VALUES LESS THAN ("2024-01-01"),
            PARTITION p2 VALUES [("2024-02-01"), ("2024-03-01")))
           DISTRIBUTED BY HASH (k) BUCKETS 2;
           CREATE TABLE listed (c VARCHAR(10), k INT, v INT NULL) UNIQUE KEY (c, k) PARTITION BY LIST (c)
           (PARTITION a VALUES IN ("x", "y"), PARTITION b VALUES IN ("z")) DISTRIBUTED BY HASH (k) BUCKETS 2;
           CREATE TABLE monthly (d DATETIME, k INT, v INT NULL) UNIQUE KEY (d, k)
           AUTO PARTITION BY RANGE (date_trunc(d, 'month')) () DISTRIBUTED BY HASH (k) BUCKETS 2;
           INSERT INTO ranged VALUES ("2023-05-05", 1, 1), ("2024-02-02", 2, 2);
           ALTER TABLE ranged ADD PARTITION p3 VALUES LESS THAN ("2024-05-01");
           INSERT INTO ranged VALUES ("2024-04-01", 3, 3);
           ALTER TABLE ranged DROP PARTITION p1;
           INSERT INTO listed VALUES ("x", 1, 1), ("z", 2, 2);
           INSERT INTO monthly VALUES ("2024-01-31 10:00:00", 1, 1), ("2024-03-01 00:00:00", 2, 2)""",
    )


def _generated(store: Any, session: Any) -> None:
    _run(
        session,
        """CREATE TABLE generated (k INT, id BIGINT NOT NULL AUTO_INCREMENT(100), v INT NULL,
               at DATETIME NULL DEFAULT CURRENT_TIMESTAMP, seen DATETIME NULL DEFAULT CURRENT_TIMESTAMP
               ON UPDATE CURRENT_TIMESTAMP) UNIQUE KEY (k) DISTRIBUTED BY HASH (k) BUCKETS 1""",
    )
    for rows in (_rows(k=[1, 2], v=[1, 2]), _rows(k=[2, 3], v=[20, 30])):
        with store.table("db.generated").begin_load(now=_NOON) as load:
            load.write(rows)
            load.commit()


def _constraints(store: Any, session: Any) -> None:
    _run(
        session,
        """CREATE TABLE checked (k INT, n INT NULL, m INT NULL) UNIQUE KEY (k)
           DISTRIBUTED BY HASH (k) BUCKETS 1
           PROPERTIES ("delta.enableDeletionVectors" = "true", "delta.isolationLevel" = "Serializable");
           ALTER TABLE checked ADD CONSTRAINT low CHECK (n < 100 AND k > 0);
           INSERT INTO checked VALUES (1, 1, 1), (2, 99, NULL);
           CREATE TABLE appended (k INT, v INT NULL) UNIQUE KEY (k) DISTRIBUTED BY HASH (k) BUCKETS 1
           PROPERTIES ("delta.appendOnly" = "true");
           INSERT INTO appended VALUES (1, 1)""",
    )
    store.table("db.checked").delete_where(pc.field("k") == 2)


def _altered(store: Any, session: Any) -> None:
    _run(
        session,
        """CREATE TABLE altered (k INT, old INT NULL, gone INT NULL) UNIQUE KEY (k)
           DISTRIBUTED BY HASH (k) BUCKETS 1;
           INSERT INTO altered VALUES (1, 1, 1), (2, 2, 2);
           ALTER TABLE altered ADD COLUMN more VARCHAR(5) NULL DEFAULT "d" AFTER old;
           INSERT INTO altered VALUES (2, 20, "e", 20);
           ALTER TABLE altered DROP COLUMN gone;
           ALTER TABLE altered RENAME COLUMN old fresh;
           ALTER TABLE altered MODIFY COLUMN fresh BIGINT NULL;
           INSERT INTO altered VALUES (3, 3000000000, NULL)""",
    )
    store.table("db.altered").upsert(_rows(k=[1], more=["f"]), mode="UPDATE_FIXED_COLUMNS")


def _many(first: int, step: int = 1) -> pa.Table:
    keys = range(first, first + _MANY * step, step)
    return _rows(k=list(keys), v=[f"value {k % 7}" for k in keys], n=[k * k for k in keys])


def _files(store: Any, session: Any) -> None:
    for name, format_name, compression in (
        ("arrow_lz4", "arrow", "lz4"),
        ("arrow_plain", "arrow", "none"),
        ("parquet_zstd", "parquet", "zstd"),
    ):
        _run(
            session,
            f"""CREATE TABLE {name} (k BIGINT, v VARCHAR(20) NULL, n BIGINT NULL) UNIQUE KEY (k)
                DISTRIBUTED BY HASH (k) BUCKETS 1
                PROPERTIES ("storage_format" = "{format_name}", "compression" = "{compression}")""",
        )
        table = store.table(f"db.{name}")
        table.upsert(_many(0))
        table.upsert(_many(20, 3))
        table.delete(_rows(k=[1, 2, 3]))
    store.table("db.arrow_lz4").upsert(_rows(k=[5, 6], n=[-5, -6]), mode="UPDATE_FIXED_COLUMNS")


def _rewritten(store: Any, session: Any) -> None:
    """Compacted with dead rows, then restored: later loads stand on both."""
    _run(
        session,
        """CREATE TABLE rewritten (k BIGINT, v VARCHAR(20) NULL, n BIGINT NULL) UNIQUE KEY (k)
           DISTRIBUTED BY HASH (k) BUCKETS 1""",
    )
    table = store.table("db.rewritten")
    table.upsert(_many(0))
    table.upsert(_many(50))
    table.optimize(full=True)
    table.delete_where(pc.field("k") < 20)
    table.restore(2)
    table.upsert(_rows(k=[-1], v=["last"], n=[0]))


# transactions


def make_transactions(path: Path) -> None:
    """Transactions in every state; its process ends in the middle of a load."""
    store = open_store(path, inline_bytes_max=1)
    with sql.Session(store) as session:
        _run(
            session,
            """CREATE DATABASE db; USE db;
               CREATE TABLE a (k INT NOT NULL, v INT NULL, w INT NULL) UNIQUE KEY (k)
               DISTRIBUTED BY HASH (k) BUCKETS 1;
               CREATE TABLE b (k INT NOT NULL, v INT NULL, w INT NULL) UNIQUE KEY (k)
               DISTRIBUTED BY HASH (k) BUCKETS 1;
               CREATE TABLE g (k INT, c INT NULL, s1 INT NULL) UNIQUE KEY (k)
               DISTRIBUTED BY HASH (k) BUCKETS 1 PROPERTIES ("sequence_mapping.s1" = "c");
               INSERT INTO a WITH LABEL `first` VALUES (1, 10, 0), (2, 20, 0), (3, 30, 0);
               INSERT INTO b VALUES (1, 100, 0), (2, 200, 0);
               INSERT INTO g VALUES (1, 1, 5)""",
        )
    a, b, g = (store.table(f"db.{name}") for name in "abg")
    a.upsert(_rows(k=[1], v=[11], w=[1]), txn_app_id="app", txn_version=7)
    _precommit(a, "load-whole", _rows(k=[2, 9], v=[21, 90], w=[1, 1]))
    _precommit(a, "load-partial", _rows(k=[3, 8], v=[31, 80]), mode="UPDATE_FIXED_COLUMNS")
    _precommit(a, "load-aborted", _rows(k=[7], v=[7], w=[7]))
    _precommit(g, "load-group", _rows(k=[1, 2], c=[4, 4], s1=[4, 4]))
    with open_store(path) as inline:
        _precommit(inline.table("db.b"), "load-inline", _rows(k=[5], v=[50], w=[5]))
    both = store.transaction(label="both")
    both.table("db.a").update({"w": pc.field("w") + 100}, pc.field("k") == 1)
    both.table("db.b").upsert(_rows(k=[3], v=[300], w=[3]))
    both.precommit()
    conflicting = store.transaction(label="conflicting", isolation="Serializable")
    conflicting.table("db.b").update({"v": pc.field("v") + 1}, pc.field("k") == 2)
    conflicting.precommit()
    b.update({"v": pc.scalar(205)}, pc.field("k") == 2)
    given_up = a.begin_load(label="given-up")
    given_up.write(_rows(k=[50], v=[5], w=[5]))
    given_up.abort("not wanted")
    load = a.begin_load(label="cut-short")
    load.write(_rows(k=[60], v=[6], w=[6]))
    load.prepare()


def _precommit(table: Any, label: str, rows: pa.Table, **options: Any) -> None:
    with table.begin_load(label=label, **options) as load:
        load.write(rows)
        load.precommit()


# jobs and accounts


def make_jobs(path: Path) -> None:
    """Load jobs, users and settings of the store. Records of jobs name files beside the store."""
    inbox = path.parent / "inbox"
    (inbox / "routine").mkdir(parents=True)
    (inbox / "broker.csv").write_text("1,a,1\n2,b,1\nx,c,1\n")
    (inbox / "routine" / "one.json").write_text('{"k": 5, "v": "e", "s": 1}\n{"k": 1, "v": "late", "s": 0}\n')
    with open_store(path, load_paths=(str(inbox),)) as store:
        session = job_session(store)
        _run(
            session,
            f"""CREATE DATABASE db; USE db;
                CREATE TABLE t (k BIGINT, v VARCHAR(10) NULL, s INT NULL) UNIQUE KEY (k)
                DISTRIBUTED BY HASH (k) BUCKETS 1 PROPERTIES ("function_column.sequence_col" = "s");
                CREATE USER reader IDENTIFIED BY "secret"; GRANT SELECT_PRIV ON db.* TO reader;
                CREATE USER writer IDENTIFIED BY ""; GRANT LOAD_PRIV, SELECT_PRIV ON *.* TO writer;
                ADMIN SET FRONTEND CONFIG ("enable_concurrent_update" = "true");
                CREATE ROUTINE LOAD feed ON t FROM FILES ("path" = "{inbox}/routine/*.json")""",
        )
        _broker_load(store, inbox)
        loaders("routine.runner").RoutineRunner(store).drain()
        _run(session, "PAUSE ROUTINE LOAD FOR feed")
        session.close()


def _broker_load(store: Any, inbox: Path) -> None:
    spec = loaders("broker.spec")
    file = str(inbox / "broker.csv")
    description = spec.DataDescription("t", (file,), column_separator=",", columns=("k", "v", "s"))
    job = spec.LoadSpec("db", "broker", (description,), {"max_filter_ratio": "0.5"})
    loaders("broker.run").BrokerLoad(store, job, [str(inbox)]).run()


# what is expected of them

LABELS: Final = (
    *("first", "load-whole", "load-partial", "load-aborted", "load-group", "load-inline"),
    *("both", "conflicting", "given-up", "cut-short", "never"),
)
_LOAD_COLUMNS: Final = ("JobId", "Label", "State", "Progress", "Type", "EtlInfo", "ErrorMsg")
_ROUTINE_COLUMNS: Final = ("Id", "Name", "DbName", "TableName", "State", "DataSourceType", "Progress")
_ROUTINE_COUNTS: Final = ("errorRows", "loadedRows", "totalRows", "unselectedRows")


def contents(name: str, path: Path) -> dict[str, Any]:
    """All of a golden store that a reader sees."""
    with open_store(path) as store:
        found: dict[str, Any] = {"tables": tables_of(store)}
        if name == "transactions":
            found["transactions"] = transactions_of(store, "db", LABELS)
        if name == "jobs":
            found |= _jobs(store)
        return {key: plain(value) for key, value in found.items()}


def _jobs(store: Any) -> dict[str, Any]:
    session = job_session(store, "db")
    (statistic,) = shown(session, "SHOW ALL ROUTINE LOAD FOR feed", ["Statistic"])
    counts = {
        name: value for name, value in json.loads(statistic["Statistic"]).items() if name in _ROUTINE_COUNTS
    }
    users = {user: store.accounts.find(user).grants for user in ("reader", "writer")}
    return {
        "broker": shown(session, "SHOW LOAD", _LOAD_COLUMNS),
        "routine": shown(session, "SHOW ALL ROUTINE LOAD FOR feed", _ROUTINE_COLUMNS),
        "routine counts": counts,
        "users": users,
        "passwords": {user: store.accounts.find(user).has_password for user in users},
        "config": shown(session, "SHOW FRONTEND CONFIG LIKE 'enable_concurrent_update'", ["Key", "Value"]),
    }


def make_duplicates(path: Path) -> None:
    """Duplicate tables, which 0.1.0 does not have: in the catalog, in files, with deletes, and compacted."""
    with open_store(path) as store, sql.Session(store) as session:
        _run(
            session,
            """CREATE DATABASE db; USE db;
               CREATE TABLE small (k INT, v VARCHAR(9) NULL) DUPLICATE KEY(k);
               INSERT INTO small VALUES (1, "a"), (1, "a"), (2, NULL);
               INSERT INTO small VALUES (1, "a"), (3, "c");
               DELETE FROM small WHERE k = 1 AND v = "a";
               INSERT INTO small VALUES (1, "a"), (1, "a");
               CREATE TABLE bare (d DOUBLE)""",
        )
    with open_store(path, inline_bytes_max=1) as store, sql.Session(store, "db") as session:
        for home in ("arrow", "parquet"):
            name, declared = f"in_{home}", "(k BIGINT, v VARCHAR(20) NULL, n BIGINT NULL)"
            _run(session, f"CREATE TABLE {name} {declared} PROPERTIES ('storage_format' = '{home}')")
            table = store.table(f"db.{name}")
            for first in (0, 32):
                table.upsert(_many(first))
            _run(session, f"DELETE FROM {name} WHERE v = 'value 3'")
            table.optimize(full=True)
            table.upsert(_many(32))
            _run(session, f"DELETE FROM {name} WHERE k > 90")


MAKERS: Final[dict[str, Callable[[Path], None]]] = {
    "tables": make_tables,
    "transactions": make_transactions,
    "jobs": make_jobs,
    "duplicates": make_duplicates,
}
