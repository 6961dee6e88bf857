"""The endpoints of frontends that Doris's connectors call, request by request as they send them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Session, Store
from seqstore.store.sql.session.server_context import Ports
from tests.support.connectors.thrift_client import ThriftClient
from tests.support.http_server import Client, ServerProcess, basic, read_answer, serving


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data") as opened, Session(opened) as session:
        list(
            session.execute(
                "CREATE DATABASE db; USE db;"
                "CREATE TABLE t (k INT NOT NULL COMMENT 'the key', d DECIMAL(9,2), w DECIMAL(38,1), "
                "at DATETIME(3), j JSON) UNIQUE KEY(k) DISTRIBUTED BY HASH(k);"
                "INSERT INTO t (k, d) VALUES (1, 1.5), (2, 2.5); CREATE VIEW v AS SELECT k FROM t"
            )
        )
        yield opened


@pytest.fixture
def client(store: Store) -> Iterator[Client]:
    with serving(store) as running:
        yield running


def data(client: Client, method: str, path: str, **body: Any) -> Any:
    """The data of an answer that tells success."""
    answer = client.request(method, path, json.dumps(body).encode() if body else None).json
    assert (answer["code"], answer["msg"]) == (0, "success"), answer
    return answer["data"]


@pytest.mark.parametrize(
    "path", ["/api/db/t/_schema", "/api/internal/db/t/_schema", "/api/default_cluster/db/t/_schema"]
)
def test_a_schema_has_the_names_of_dorises_primitive_types(client: Client, path: str) -> None:
    schema = data(client, "GET", path)
    assert (schema["keysType"], schema["status"]) == ("UNIQUE_KEYS", 200)
    assert [(each["name"], each["type"]) for each in schema["properties"]] == [
        ("k", "INT"), ("d", "DECIMAL32"), ("w", "DECIMAL128"), ("at", "DATETIMEV2"), ("j", "JSONB")
    ]  # fmt: skip
    key, decimal = schema["properties"][:2]
    assert (key["comment"], key["is_nullable"], decimal["is_nullable"]) == ("the key", "No", "Yes")
    assert (decimal["precision"], decimal["scale"]) == ("9", "2")


def test_a_count_is_that_of_the_newest_version(client: Client, store: Store) -> None:
    assert data(client, "GET", "/api/db/t/_count") == {"size": 2, "status": 200}
    with Session(store, "db") as session:
        list(session.execute("INSERT INTO t (k) VALUES (3)"))
    assert data(client, "GET", "/api/db/t/_count")["size"] == 3


@pytest.mark.parametrize(
    "path", ["/api/db/nope/_schema", "/api/db/v/_count", "/api/other/db/t/_schema", "/api/nope/t/_count"]
)
def test_what_is_no_table_is_an_error_in_the_body(client: Client, path: str) -> None:
    answer = client.request("GET", path)
    assert (answer.status, answer.json["code"]) == (200, 1)
    assert answer.json["data"]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"sql": "SELECT count(*) FROM db.t"}, "single table filter-prune-scan, but found [ COUNT(*) ]"),
        ({"sql": "SELECT k FROM db.t GROUP BY k"}, "GROUP BY"),
        ({"sql": "SELECT k FROM db.t ORDER BY k"}, "ORDER BY"),
        ({"sql": "SELECT a.k FROM db.t a JOIN db.t b ON a.k = b.k"}, "JOIN"),
        ({"sql": "SELECT k FROM (SELECT k FROM db.t) x"}, "SELECT k FROM db.t"),
        ({"sql": "SELECT k FROM db.t UNION ALL SELECT k FROM db.t"}, "UNION"),
        ({"sql": "SELECT k FROM db.other"}, "must consistent with sql"),
        ({"sql": "SELECT nope FROM db.t"}, "nope"),
        ({"sql": "DROP TABLE db.t"}, "expected one SELECT"),
        ({"sql": " "}, "must contains [sql]"),
        ({}, "must contains [sql]"),
    ],
)
def test_a_plan_of_more_than_a_scan_has_an_exception(store: Store, body: dict[str, str], part: str) -> None:
    with serving(store, ports=lambda: Ports(thrift=9060)) as client:
        answer = client.request("POST", "/api/db/t/_query_plan", json.dumps(body).encode()).json
    assert answer["data"]["status"] != 200
    assert part in answer["data"]["exception"]


def test_a_server_without_scans_says_how_to_get_them(client: Client) -> None:
    plan = data(client, "POST", "/api/db/t/_query_plan", sql="SELECT k FROM db.t")
    assert "set thrift_port in [server]" in plan["exception"]


def test_a_plan_is_read_at_the_backend_that_it_names(tmp_path: Path, store: Store) -> None:
    """The whole way by real sockets, with nodes and ports as the connectors find them."""
    store.close()
    config = tmp_path / "server.toml"
    config.write_text("[server]\nthrift_port = 0\nflight_port = 0\n")
    server = ServerProcess(tmp_path / "data", "--config", str(config))
    try:
        client, ports = server.client, (server.port("thrift"), server.port("grpc"))
        backends = data(client, "GET", "/rest/v1/system?path=//backends")
        assert [int(backends["rows"][0][name]) for name in ("BePort", "ArrowFlightSqlPort")] == list(ports)
        assert int(backends["rows"][0]["HttpPort"]) == client.port
        plan = data(client, "POST", "/api/db/t/_query_plan", sql="SELECT `k` FROM `db`.`t` WHERE k > 1")
        [(tablet, where)] = plan["partitions"].items()
        assert where["routings"] == [f"127.0.0.1:{ports[0]}"]
        reader = ThriftClient(ports[0])
        context = reader.open(plan["opaqued_query_plan"], [int(tablet)])[2]
        [batch] = pa.ipc.open_stream(reader.next(context, 0)[3])
        assert batch.to_pylist() == [{"k": 2}]
        reader.close()
    finally:
        assert server.stop() == 0


def test_nodes_have_the_ports_of_the_services(store: Store) -> None:
    with serving(store, ports=lambda: Ports(mysql=9030, flight=8070)) as client:
        shown = data(client, "POST", "/api/query/default_cluster/information_schema", stmt="show frontends")
        [row] = shown["data"]
        node = dict(zip([each["name"] for each in shown["meta"]], row, strict=True))
        frontends = data(client, "GET", "/rest/v2/manager/node/frontends")
        backends = data(client, "GET", "/rest/v2/manager/node/backends")
        login = client.request("POST", "/rest/v1/login").json
        [alive] = data(client, "GET", "/api/backends?is_alive=true")["backends"]
    assert (node["QueryPort"], node["ArrowFlightSqlPort"]) == ("9030", "8070")
    named = dict(zip(frontends["columnNames"], frontends["rows"][0], strict=True))
    assert (named["Host"], named["HttpPort"], named["QueryPort"]) == (client.host, str(client.port), "9030")
    named = dict(zip(backends["columnNames"], backends["rows"][0], strict=True))
    assert (named["Alive"], named["BePort"], named["ArrowFlightSqlPort"]) == ("true", "-1", "8070")
    assert (login["code"], alive["http_port"], alive["is_alive"]) == (200, client.port, True)


def test_a_statement_returns_rows_or_what_it_did(client: Client, store: Store) -> None:
    path = "/api/query/default_cluster/db"
    found = data(client, "POST", path, stmt="SELECT k, d FROM t ORDER BY k")
    assert (found["type"], found["data"]) == ("result_set", [[1, "1.50"], [2, "2.50"]])
    assert data(client, "POST", path, stmt="SELECT k FROM t WHERE k < 9", limit=1)["data"] in ([[1]], [[2]])
    assert (
        data(client, "POST", path, stmt="ALTER TABLE `db`.`t` ADD COLUMN `x` INT COMMENT 'new'")["type"]
        == "exec_status"
    )
    assert "x" in store.table("db.t").schema.names


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/query/default_cluster/db", b'{"stmt": "SELEC"}'),
        ("/api/query/default_cluster/db", b'{"stmt": "SELECT 1; SELECT 2"}'),
        ("/api/query/default_cluster/db", b'{"stmt": "SELECT 1", "limit": -1}'),
        ("/api/query/default_cluster/db", b"[]"),
        ("/api/query/default_cluster/db", b"nonsense"),
        ("/api/query/default_cluster/db", b" " * (1 << 20) + b"{}"),
        ("/api/query/hive/db", b'{"stmt": "SELECT 1"}'),
        ("/api/ingestion_load/default_cluster/db/_create", b"{}"),
    ],
)
def test_what_cannot_run_has_code_1(client: Client, path: str, body: bytes) -> None:
    answer = client.request("POST", path, body)
    assert (answer.status, answer.json["code"]) == (200, 1)
    assert answer.json["data"]


def test_light_schema_changes_exclude_dropping_keys(client: Client) -> None:
    path = "/api/enable_light_schema_change/db/t"
    for column, is_drop, code in (("d", True, 0), ("k", True, 1), ("nope", True, 1), ("nope", False, 0)):
        body = json.dumps({"isDropColumn": is_drop, "columnName": column}).encode()
        assert client.request("GET", path, body).json["code"] == code, column


def test_the_statement_that_makes_a_table_is_returned(client: Client) -> None:
    [text] = data(client, "GET", "/api/_get_ddl?db=db&table=t")["create_table"]
    assert text.startswith("CREATE TABLE `t`")


def test_a_sink_loads_in_two_phases_straight_into_the_backend(client: Client, store: Store) -> None:
    """The requests of the Kafka Connect and Flink sinks: Expect, a hidden delete sign, an empty commit."""
    common = (
        f"Host: {client.host}:{client.port}\r\nAuthorization: {basic('root:')}\r\nExpect: 100-continue\r\n"
    )
    for columns in ("", "columns: k,d,__DORIS_DELETE_SIGN__\r\n"):
        body = b'{"k": 1, "d": 9.5, "__DORIS_DELETE_SIGN__": 0}\n{"k": 2, "__DORIS_DELETE_SIGN__": 1}'
        head = (
            f"PUT /api/db/t/_stream_load HTTP/1.1\r\n{common}{columns}format: json\r\n"
            f"read_json_by_line: true\r\ntwo_phase_commit: true\r\n"
            f"hidden_columns: __DORIS_DELETE_SIGN__\r\nlabel: l{len(columns)}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        reply = answered(client, head.encode(), body)
        assert (reply["Status"], reply["TwoPhaseCommit"]) == ("Success", "true"), reply
        head = f"PUT /api/db/_stream_load_2pc HTTP/1.1\r\n{common}txn_operation: commit\r\n"
        ending = f"txn_id: {reply['TxnId']}\r\nContent-Length: 0\r\n\r\n"
        assert answered(client, (head + ending).encode(), b"")["status"] == "Success"
        with Session(store, "db") as session:
            [result] = session.execute("SELECT k, d FROM t")
        assert result.rows is not None
        assert [str(row["d"]) for row in result.rows.to_pylist()] == ["9.50"]


def test_hidden_columns_beside_columns_must_be_listed_there(client: Client) -> None:
    reply = client.load("t", "1,1,0\n", columns="k,d,x", hidden_columns="__DORIS_DELETE_SIGN__")
    assert "is not in the header columns" in reply["Message"]


def answered(client: Client, head: bytes, body: bytes) -> Any:
    """Sends a request that waits for `100 Continue` where it has a body; gives its answer."""
    with socket.create_connection((client.host, client.port), timeout=30) as connection:
        connection.sendall(head)
        if body:
            assert read_answer(connection) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(body)
        answer = read_answer(connection)
        while answer.startswith(b"HTTP/1.1 100"):
            answer = answer.partition(b"\r\n\r\n")[2] or read_answer(connection)
    return json.loads(answer.partition(b"\r\n\r\n")[2])
