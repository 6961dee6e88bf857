"""Arrow Flight SQL by the ADBC driver: queries, bulk ingest, lists of names; Polars and pandas by it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Store
from seqstore.cli.scan.flight_server import FlightSqlServer

dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")


def connected(
    server: FlightSqlServer,
    user: str = "root",
    password: str = "",
    *,
    is_autocommit: bool = True,
    **more: str,
) -> Any:
    return dbapi.connect(
        f"grpc://127.0.0.1:{server.port}",
        db_kwargs={"username": user, "password": password},
        autocommit=is_autocommit,
    )


@pytest.fixture
def adbc(server: FlightSqlServer) -> Iterator[Any]:
    with connected(server) as opened:
        yield opened


def ingest(adbc: Any, rows: Any, table: str = "t", mode: str = "append", database: str | None = "db") -> int:
    with adbc.cursor() as cursor:
        return int(cursor.adbc_ingest(table, rows, mode=mode, db_schema_name=database))


def test_a_query_returns_rows(adbc: Any) -> None:
    with adbc.cursor() as cursor:
        cursor.execute("SELECT sum(v) AS n FROM db.t WHERE k < 100")
        assert cursor.fetch_arrow_table().to_pylist() == [{"n": 10}]


def test_a_statement_is_prepared(adbc: Any) -> None:
    with adbc.cursor() as cursor:
        cursor.adbc_prepare("SELECT count(*) AS n FROM db.t")
        cursor.execute("SELECT count(*) AS n FROM db.t")
        assert cursor.fetchone() == (280,)


def test_an_update_tells_its_rows(adbc: Any, store: Store) -> None:
    with adbc.cursor() as cursor:
        cursor.adbc_statement.set_sql_query("UPDATE db.t SET v = 7 WHERE k < 10")
        assert cursor.adbc_statement.execute_update() == 10
    assert store.table("db.t").get({"k": [3]}).to_pylist()[0]["v"] == 7


def test_a_query_has_parameters(adbc: Any) -> None:
    with adbc.cursor() as cursor:
        cursor.execute("SELECT k, ? AS text FROM db.t WHERE k IN (?, ?) ORDER BY k", ("it's ?", 3, 4))
        assert cursor.fetchall() == [(3, "it's ?"), (4, "it's ?")]


@pytest.mark.family(4)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("BOOLEAN", True),
        ("BIGINT", -(2**63)),
        ("DOUBLE", 1.5e-300),
        ("DECIMAL(30, 5)", Decimal("-12345678901234567890.12345")),
        ("STRING", "\\ ' \" \n ; -- ? é 漢"),
        ("STRING", ""),
        ("DATE", dt.date(1, 2, 3)),
        ("DATETIME(6)", dt.datetime(2024, 2, 29, 23, 59, 59, 999999)),
        ("BIGINT", None),
    ],
)
def test_a_parameter_of_each_type_is_stored_as_it_is(adbc: Any, kind: str, value: Any) -> None:
    with adbc.cursor() as cursor:
        cursor.execute(f"CREATE TABLE db.x (k INT, v {kind}) UNIQUE KEY(k) DISTRIBUTED BY HASH(k)")
        cursor.execute("INSERT INTO db.x VALUES (1, ?)", (value,))
        cursor.execute("SELECT v FROM db.x")
        assert cursor.fetchall() == [(value,)]


def test_a_change_tells_its_rows(adbc: Any, store: Store) -> None:
    with adbc.cursor() as cursor:
        for text, rows in [
            ("UPDATE db.t SET v = 7 WHERE k < 10", 10),
            ("DELETE FROM db.t WHERE k = 3", 1),
            ("INSERT INTO db.t VALUES (1000, 1), (1001, 1)", 2),
            ("DELETE FROM db.t WHERE k = -5", 0),
        ]:
            cursor.execute(text)
            assert cursor.rowcount == rows
            assert cursor.fetchall() == []
    assert store.table("db.t").count() == 281


def test_a_change_runs_once(adbc: Any, store: Store) -> None:
    before = store.table("db.t").version
    with adbc.cursor() as cursor:
        cursor.execute("UPDATE db.t SET v = v + 1 WHERE k = 1")
        cursor.execute("UPDATE db.t SET v = v + ? WHERE k = ?", (1, 1))
    assert store.table("db.t").version == before + 2
    assert store.table("db.t").get({"k": [1]}).to_pylist()[0]["v"] == 2


def test_many_rows_of_parameters_are_one_transaction(adbc: Any, store: Store) -> None:
    table = store.table("db.t")
    before = table.version
    with adbc.cursor() as cursor:
        cursor.executemany("INSERT INTO db.t VALUES (?, ?)", [(2000 + n, n) for n in range(50)])
        assert cursor.rowcount == 50
        assert (table.version, table.count()) == (before + 1, 330)
        with pytest.raises(dbapi.Error):
            cursor.executemany("INSERT INTO db.t VALUES (?, ?)", [("3000", "1"), ("3001", "no number")])
    assert table.get({"k": [3000]}).num_rows == 0


def test_a_statement_of_other_rows_shows_them(adbc: Any) -> None:
    with adbc.cursor() as cursor:
        cursor.execute("SHOW TABLES FROM db")
        assert ("t",) in cursor.fetchall()


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        ("SELECT ? AS x", (), "1 parameters without values"),
        ("SELECT ? AS x", (1, 2), "expected values of 1 parameters, found 2"),
        ("SELECT ? AS x", (float("nan"),), "nan"),
        ("SELECT ? AS x", ([1],), "list<item: int64>"),
    ],
)
def test_values_that_do_not_fit_are_refused(
    adbc: Any, text: str, values: tuple[Any, ...], message: str
) -> None:
    with adbc.cursor() as cursor, pytest.raises(dbapi.Error, match=message):
        cursor.execute(text, values)


def test_too_many_rows_of_parameters_are_refused(adbc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqstore.cli.scan.flight_parameters.ROWS_MAX", 2)
    with adbc.cursor() as cursor, pytest.raises(dbapi.Error, match="bulk ingest"):
        cursor.executemany("INSERT INTO db.t VALUES (?, 1)", [(n,) for n in range(3)])


def test_a_change_needs_its_privilege(server: FlightSqlServer) -> None:
    with (
        connected(server, "reader", "a-word") as adbc,
        adbc.cursor() as cursor,
        pytest.raises(dbapi.Error, match="privilege"),
    ):
        cursor.execute("UPDATE db.t SET v = ?", (1,))


def test_there_are_no_transactions(server: FlightSqlServer) -> None:
    with pytest.warns(Warning, match="autocommit"), connected(server, is_autocommit=False):
        pass


def test_ingest_upserts_as_one_version(adbc: Any, store: Store) -> None:
    table = store.table("db.t")
    before = table.version
    assert ingest(adbc, pa.table({"k": [0, 1000, 1001], "v": [5, 6, 7]})) == 3
    assert (table.version, table.count()) == (before + 1, 282)
    assert table.get({"k": [0]}).to_pylist()[0]["v"] == 5


def test_ingest_of_many_batches_is_one_version(
    adbc: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqstore.cli.scan.flight_ingest._BYTES_MAX", 2_000)
    table = store.table("db.t")
    before, rows = table.version, pa.table({"k": range(20_000), "v": [1] * 20_000})
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=1_000))
    assert ingest(adbc, reader) == 20_000
    assert (table.version, table.count()) == (before + 1, 20_000)


def test_ingest_replaces_all_rows(adbc: Any, store: Store) -> None:
    ingest(adbc, pa.table({"k": [1], "v": [1]}), mode="replace")
    assert store.table("db.t").scan(["k", "v"]).read_all().to_pylist() == [{"k": 1, "v": 1}]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mode": "create"}, "CREATE TABLE names the key"),
        ({"table": "none"}, "CREATE TABLE first"),
        ({"table": "none", "mode": "replace"}, "CREATE TABLE first"),
        ({"table": "none", "mode": "create_append"}, "CREATE TABLE first"),
        ({"database": None}, "name the database, as db_schema_name"),
        ({"rows": pa.table({"k": [1], "nope": [1]})}, "nope"),
        ({"rows": pa.table({"k": ["x"], "v": [1]})}, "'x'"),
    ],
)
def test_what_cannot_be_ingested_is_refused(
    adbc: Any, store: Store, changed: dict[str, Any], message: str
) -> None:
    before = store.table("db.t").version
    with pytest.raises(dbapi.Error, match=message):
        ingest(adbc, **{"rows": pa.table({"k": [1], "v": [1]}), **changed})
    assert store.table("db.t").version == before


def test_ingest_needs_the_privilege(server: FlightSqlServer, store: Store) -> None:
    rows = pa.table({"k": [1], "v": [1]})
    with connected(server, "reader", "a-word") as adbc, pytest.raises(dbapi.Error, match="LOAD privilege"):
        ingest(adbc, rows)
    with connected(server, "loader", "a-word") as adbc:
        assert ingest(adbc, rows) == 1
    store.accounts.create("none", "a-word")
    with (
        connected(server, "none", "a-word") as adbc,
        pytest.raises(dbapi.Error, match=r"Unknown (table|database)"),
    ):
        ingest(adbc, rows)


def test_the_columns_of_a_table_are_told(adbc: Any) -> None:
    found = adbc.adbc_get_table_schema("t", db_schema_filter="db")
    assert found.names == ["k", "v"]


def test_objects_are_databases_tables_and_columns(adbc: Any) -> None:
    [catalog] = adbc.adbc_get_objects(db_schema_filter="d%").read_all().to_pylist()
    assert catalog["catalog_name"] == "internal"
    [database] = catalog["catalog_db_schemas"]
    tables = {each["table_name"]: each for each in database["db_schema_tables"]}
    assert {name: each["table_type"] for name, each in tables.items()} == {
        "every": "TABLE",
        "seen": "VIEW",
        "t": "TABLE",
    }
    assert [column["column_name"] for column in tables["t"]["table_columns"]] == ["k", "v"]


def test_a_pattern_and_a_type_choose_tables(adbc: Any) -> None:
    found = adbc.adbc_get_objects(
        depth="tables", db_schema_filter="db", table_name_filter="%e%", table_types_filter=["TABLE"]
    )
    [catalog] = found.read_all().to_pylist()
    [database] = catalog["catalog_db_schemas"]
    assert [each["table_name"] for each in database["db_schema_tables"]] == ["every"]


def test_the_server_names_itself(adbc: Any) -> None:
    assert adbc.adbc_get_info()["vendor_name"] == "seqstore"


def test_the_kinds_of_tables_are_told(adbc: Any) -> None:
    assert adbc.adbc_get_table_types() == ["TABLE", "VIEW", "SYSTEM TABLE"]


def test_a_user_sees_what_it_holds_privileges_on(server: FlightSqlServer, store: Store) -> None:
    store.create_database("hidden")
    with connected(server, "reader", "a-word") as adbc:
        [catalog] = adbc.adbc_get_objects(depth="db_schemas").read_all().to_pylist()
    names = {each["db_schema_name"] for each in catalog["catalog_db_schemas"]}
    assert "db" in names
    assert "hidden" not in names


def test_polars_reads_and_writes(adbc: Any, store: Store) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.read_database("SELECT k, v FROM db.t WHERE k < 3 ORDER BY k", adbc)
    assert frame.rows() == [(0, 0), (1, 0), (2, 0)]
    frame.with_columns(v=polars.lit(9, polars.Int32)).write_database(
        "db.t", adbc, if_table_exists="append", engine="adbc"
    )
    assert store.table("db.t").get({"k": [2]}).to_pylist()[0]["v"] == 9


def test_pandas_reads(adbc: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_sql("SELECT k, v FROM db.t WHERE k < 3 ORDER BY k", adbc)
    assert frame["k"].tolist() == [0, 1, 2]
