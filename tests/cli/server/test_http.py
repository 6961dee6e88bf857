"""The HTTP server: who gets in, where loads go, lengths, and what becomes of a load the client leaves
(LR1-LR7)."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import socket
import subprocess
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Store, UnavailableError
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.server.http import HttpService
from seqstore.cli.server.settings import ServerSettings
from seqstore.store.sql.session.session import Session
from tests.support.http_server import Client, ServerProcess, basic, read_answer, serving

TABLE = (
    "CREATE TABLE db.t (k INT NOT NULL, v VARCHAR(20) NULL, n INT NULL) UNIQUE KEY(k) "
    "DISTRIBUTED BY HASH(k) BUCKETS 1"
)
PUT = f"PUT /api/db/t/_stream_load HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('root:')}\r\n"
MARKED = PUT.replace("_stream_load", "_stream_load?redirected=1")


def new_store(path: Path) -> Store:
    store = Store.open(path)
    with Session(store) as session:
        list(session.execute("CREATE DATABASE db; " + TABLE))
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with new_store(tmp_path_factory.mktemp("http") / "data") as opened:
        yield opened


@pytest.fixture(scope="module")
def client(store: Store) -> Iterator[Client]:
    with serving(store) as running:
        yield running


def values(store: Store, table: str = "db.t") -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in store.scan(table).read_all().to_pylist())


def answer_of(raw: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


# ---------------------------------------------------------------------------------------------- who, where


def test_a_load_over_http_is_visible_and_replies_as_doris_does(client: Client, store: Store) -> None:
    """LR1, LR2, LS1, LS6."""
    reply = client.load("t", "1,a,1\n2,b,2\n", label="first", comment="a note")
    assert list(reply)[:6] == ["TxnId", "Label", "Comment", "TwoPhaseCommit", "Status", "Message"]
    assert (reply["Label"], reply["Comment"], reply["Status"], reply["Message"]) == (
        "first",
        "a note",
        "Success",
        "OK",
    )
    assert (reply["NumberTotalRows"], reply["LoadBytes"]) == (2, 12)
    assert {row[0] for row in values(store)} >= {1, 2}


def test_a_taken_port_is_told(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = HttpService(ServerSessions(store), ServerSettings(), port)
        with pytest.raises(UnavailableError, match=rf"127.0.0.1:{port}: .*choose another --http-port"):
            asyncio.run(service.start())


@pytest.mark.parametrize("credentials", [None, "root:x", "nobody:", "root", ":"])
def test_wrong_credentials_are_refused_before_a_byte_of_the_body(
    client: Client, credentials: str | None
) -> None:
    """LR1."""
    headers = {"Authorization": "Basic !!"} if credentials is None else {}
    answer = client.request("PUT", "/api/db/t/_stream_load", b"1,a,1\n", headers, credentials)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic")
    assert answer.json["Status"] == "Fail"
    assert re.search("no valid Basic authorization|Access denied", answer.json["Message"])


def test_a_user_needs_the_load_privilege_on_the_database(client: Client, store: Store) -> None:
    store.accounts.create("ann", "one")
    reply = client.load("t", "1,a,1\n", user="ann:one")
    assert reply["Status"] == "Fail"
    assert "LOAD privilege on database 'db'" in reply["Message"]
    store.accounts.grant("ann", ["LOAD"], "db")
    assert client.load("t", "1,a,1\n", user="ann:one")["Status"] == "Success"
    assert "LOAD privilege" in client.load("other.t", "1,a,1\n", user="ann:one")["Message"]


def test_a_load_that_may_change_the_schema_needs_the_alter_privilege(client: Client, store: Store) -> None:
    """EV8."""
    store.accounts.create("bea", "one")
    store.accounts.grant("bea", ["LOAD"], "db")
    headers = {"format": "json", "schema_evolution": "add", "column_separator": ""}
    body = '{"k": 1, "x": 1}'
    with Session(store, "db") as session:
        list(session.execute("CREATE TABLE grown (k INT) UNIQUE KEY (k)"))
    reply = client.load("grown", body, user="bea:one", **headers)
    assert reply["Message"].startswith("[NOT_AUTHORIZED]")
    assert "ALTER privilege" in reply["Message"]
    store.accounts.grant("bea", ["ALTER"], "db")
    assert client.load("grown", body, user="bea:one", **headers)["Status"] == "Success"
    assert "x" in store.table("db.grown").schema.names


def test_a_load_that_may_make_its_table_needs_the_create_privilege(client: Client, store: Store) -> None:
    """EV10."""
    store.accounts.create("cid", "one")
    store.accounts.grant("cid", ["LOAD"], "db")
    headers = {"format": "json", "auto_create": "true", "column_separator": ""}
    reply = client.load("made", '{"k": 1}', user="cid:one", **headers)
    assert "CREATE privilege" in reply["Message"]
    store.accounts.grant("cid", ["CREATE"], "db")
    assert client.load("made", '{"k": 1}', user="cid:one", **headers)["Status"] == "Success"
    store.drop_table("db.made")


def test_a_client_that_waits_is_told_to_continue_at_its_first_request(client: Client, store: Store) -> None:
    """LR1: connectors that load into a backend take 307 for a failure; before, each that waits got one."""
    head = f"{PUT}column_separator: ,\r\nContent-Length: 8\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection((client.host, client.port), timeout=30) as connection:
        connection.sendall(head.encode())
        assert read_answer(connection) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"31,x,31\n")
        assert answer_of(read_answer(connection))[1]["Status"] == "Success"
    assert (31, "x", 31) in values(store)


def test_a_client_that_waits_is_refused_without_being_told_to_continue(client: Client) -> None:
    """LR7: headers, user and table are checked first."""
    for name in ("format: nonsense", "max_filter_ratio: 7", "columns: nothing_like_this"):
        raw = client.raw(f"{MARKED}{name}\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n".encode())
        status, reply = answer_of(raw)
        assert (status, reply["Status"]) == (200, "Fail")


def test_a_client_that_waits_is_told_to_continue_and_loads(client: Client, store: Store) -> None:
    head = f"{MARKED}column_separator: ,\r\nContent-Length: 8\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection((client.host, client.port), timeout=30) as connection:
        connection.sendall(head.encode())
        assert read_answer(connection) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"30,x,30\n")
        assert answer_of(read_answer(connection))[1]["Status"] == "Success"
    assert (30, "x", 30) in values(store)


def test_an_empty_request_is_sent_on_and_then_is_an_empty_load(client: Client) -> None:
    """LR1, V12."""
    assert client.request("PUT", "/api/db/t/_stream_load", b"").status == 307
    reply = client.load("t", b"")
    assert (reply["Status"], reply["NumberTotalRows"]) == ("Success", 0)


def test_loads_go_to_the_advertised_address(store: Store) -> None:
    with serving(store, advertised_address="store.example:8040") as client:
        answer = client.request("PUT", "/api/db/t/_stream_load/?x=1", b"1,a,1\n")
    assert answer.status == 307
    assert answer.headers["Location"] == "http://store.example:8040/api/db/t/_stream_load/?x=1&redirected=1"


def test_backends_are_at_the_advertised_address_and_loads_there_are_not_sent_on(store: Store) -> None:
    with serving(store, advertised_address="store.example:8040") as client:
        [backend] = client.request("GET", "/api/backends").json["data"]["backends"]
        headers = {"Host": "store.example:8040", "column_separator": ","}
        answer = client.request("PUT", "/api/db/t/_stream_load", b"1,a,1\n", headers)
    assert (backend["ip"], backend["http_port"]) == ("store.example", 8040)
    assert (answer.status, answer.json["Status"]) == (200, "Success")


def test_a_trailing_slash_and_old_clients_are_served(client: Client, store: Store) -> None:
    raw = client.raw(
        (
            f"PUT /api/db/t/_stream_load/ HTTP/1.0\r\nAuthorization: {basic('root:')}\r\n"
            "column_separator: ,\r\nContent-Length: 7\r\nExpect: 100-continue\r\n\r\n10,x,1\n"
        ).encode()
    )
    assert answer_of(raw)[1]["Status"] == "Success"
    assert (10, "x", 1) in values(store)


# ---------------------------------------------------------------------------------------------- bodies


def test_chunked_bodies_load(client: Client, store: Store) -> None:
    """LR3."""
    rows = [f"{k},c,{k}\n".encode() for k in range(100, 120)]
    reply = client.load("t", iter(rows))
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", 20)


def test_a_length_must_be_announced_once(client: Client) -> None:
    """LR3."""
    status, reply = answer_of(client.raw(f"{MARKED}\r\n".encode()))
    assert status == 200
    assert "content_length is empty and transfer-encoding!=chunked" in reply["Message"]
    both = f"{PUT}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n"
    status, reply = answer_of(client.raw(both.encode()))
    assert (status, reply["Status"]) == (400, "Fail")


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 100\r\n\r\n50,x,1\n",
        "Content-Length: 1000000\r\n\r\n51,x,1\n",
        "Transfer-Encoding: chunked\r\n\r\n7\r\n52,x,1\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nff\r\n53,x,1\n",
    ],
)
def test_a_body_that_stops_early_fails_and_loads_nothing(client: Client, store: Store, head: str) -> None:
    """LR4, LS12: the label is free again."""
    before, label = values(store), f"short-{zlib.crc32(head.encode())}"
    start = f"{PUT}column_separator: ,\r\nlabel: {label}\r\n{head}".encode()
    _, reply = answer_of(client.raw(start, close_our_side=True))
    assert reply["Status"] == "Fail"
    assert "receive body don't equal with body bytes" in reply["Message"]
    assert values(store) == before
    assert client.load("t", "54,x,1\n", label=label)["Status"] == "Success"


def test_a_body_larger_than_allowed_is_refused(store: Store) -> None:
    """LR5."""
    with serving(store, upload_bytes_max=1 << 20) as client:
        announced = client.load("t", b"x" * ((1 << 20) + 1))
        chunked = client.load("t", iter([b"1,a,1\n" * 50_000] * 10))
    for reply in (announced, chunked):
        assert reply["Status"] == "Fail"
        assert "body exceed max size: 1 MB" in reply["Message"]


def test_a_client_that_falls_silent_is_given_up(store: Store) -> None:
    with serving(store, body_idle_seconds=1) as client:
        small = client.raw(f"{PUT}Content-Length: 100\r\n\r\n1".encode())
        large = client.raw(f"{PUT}Content-Length: 10000000\r\n\r\n1".encode())
    for raw in (small, large):
        assert answer_of(raw)[1]["Message"].startswith("[TIMEOUT]")


def test_a_refused_load_is_answered_while_its_body_still_comes(client: Client) -> None:
    reply = client.load("nowhere", b"1,a,1\n" * 1_000_000)
    assert reply["Status"] == "Fail"
    assert "nowhere" in reply["Message"]


def test_of_a_repeated_header_the_first_counts(client: Client) -> None:
    labels = "label: one-of-two\r\nlabel: two-of-two"
    head = f"{PUT}column_separator: ,\r\n{labels}\r\nContent-Length: 6\r\n\r\n"
    raw = client.raw(f"{head}1,a,1\n".encode())
    assert answer_of(raw)[1]["Label"] == "one-of-two"


# ---------------------------------------------------------------------------------------------- other
# endpoints


def test_the_error_log_can_be_fetched_by_its_url(client: Client) -> None:
    """LS11."""
    reply = client.load("t", "1,a,1\nx,b,2\n", strict_mode="true")
    assert reply["Status"] == "Fail"
    assert reply["ErrorURL"].startswith(f"{client.address}/api/_load_error_log?file=")
    log = client.request("GET", reply["ErrorURL"].removeprefix(client.address), user=None)
    assert "Reason: column k: 'x' cannot be converted to INT. src line [x,b,2]" in log.body.decode()


@pytest.mark.parametrize(
    "name", ["", "../catalog/data.mdb", "error_log_1/../../catalog/data.mdb", "error_log_no"]
)
def test_no_other_file_can_be_fetched(client: Client, name: str) -> None:
    answer = client.request("GET", f"/api/_load_error_log?file={name}", user=None)
    assert (answer.status, answer.json["Status"]) == (404, "Fail")


def test_what_became_of_a_label_can_be_asked(client: Client) -> None:
    client.load("t", "1,a,1\n", label="asked")
    info = client.request("GET", "/api/db/_load_info?label=asked").json["jobInfo"]
    assert (info["state"], info["tblNames"], info["dbName"]) == ("FINISHED", ["t"], "db")
    assert client.request("GET", "/api/db/get_load_state?label=asked").json["data"] == "VISIBLE"
    assert client.request("GET", "/api/db/get_load_state?label=never").json["data"] == "UNKNOWN"
    assert client.request("GET", "/api/db/_load_info?label=never").status == 404


def test_probes_are_answered(client: Client) -> None:
    assert client.request("GET", "/health", user=None).json["status"] == "OK"
    assert client.request("GET", "/api/health", user=None).json["data"]["online_backend_num"] == 1
    assert client.request("GET", "/api/bootstrap", user=None).json["code"] == 0
    backend = client.request("GET", "/api/backends").json["data"]["backends"][0]
    assert (backend["ip"], backend["http_port"]) == (client.host, client.port)
    version = client.request("GET", "/api/fe_version_info").json["data"]["feVersionInfo"]
    assert version["dorisBuildVersionMajor"] >= 2


def test_metrics_count_loads_rows_and_bytes(client: Client) -> None:
    def read() -> dict[str, float]:
        text = client.request("GET", "/metrics", user=None).body.decode()
        pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    client.load("t", "1,a,1\n")
    before = read()
    client.load("t", "1,a,1\n2,b,2\n")
    client.load("t", "x\n")
    after = read()
    for name, added in (
        ('seqstore_stream_loads_total{status="Success"}', 1),
        ('seqstore_stream_load_rows_total{outcome="loaded"}', 2),
        ('seqstore_stream_load_rows_total{outcome="filtered"}', 1),
        ("seqstore_stream_load_bytes_total", 14),
        ("seqstore_stream_load_duration_seconds_count", 2),
        ("seqstore_stream_loads_running", 0),
    ):
        assert after[name] - before.get(name, 0) == added, name


def test_unknown_paths_and_methods_are_answered_in_json(client: Client) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("POST", "/api/db/t/_stream_load", 405)):
        answer = client.request(method, path)
        assert (answer.status, answer.json["Status"]) == (status, "Fail")


def test_what_is_no_http_is_answered_in_json(client: Client) -> None:
    status, reply = answer_of(client.raw(b"NONSENSE\r\n\r\n"))
    assert (status, reply["Status"]) == (400, "Fail")


# ---------------------------------------------------------------------------------------------- the process


def test_the_server_refuses_to_listen_beyond_this_machine_without_a_password_for_root(tmp_path: Path) -> None:
    new_store(tmp_path / "data").close()
    with pytest.raises(RuntimeError, match="root has an empty password"):
        ServerProcess(tmp_path / "data", "--host", "0.0.0.0")
    with Store.open(tmp_path / "data") as store:
        store.accounts.set_password("root", "one")
    server = ServerProcess(tmp_path / "data", "--host", "0.0.0.0")
    try:
        client = Client(f"http://127.0.0.1:{server.client.port}")
        assert client.load("t", "1,a,1\n", user="root:one")["Status"] == "Success"
        assert client.request("PUT", "/api/db/t/_stream_load", b"1,a,1\n", user="root:").status == 401
    finally:
        assert server.stop() == 0


def test_a_graceful_stop_lets_running_loads_end_and_aborts_those_that_need_too_long(tmp_path: Path) -> None:
    new_store(tmp_path / "data").close()
    config = tmp_path / "server.toml"
    config.write_text("[server]\nstop_seconds = 2\n")
    server = ServerProcess(tmp_path / "data", "--config", str(config))
    head = f"{PUT}column_separator: ,\r\nTransfer-Encoding: chunked\r\nlabel: LABEL\r\n\r\n7\r\n10,x,1\n\r\n"
    answers: dict[str, bytes] = {}
    with (
        socket.create_connection((server.client.host, server.client.port), timeout=30) as ending,
        socket.create_connection((server.client.host, server.client.port), timeout=30) as hanging,
    ):
        ending.sendall(head.replace("LABEL", "ending").encode())
        hanging.sendall(head.replace("LABEL", "hanging").encode())
        while server.client.request("GET", "/metrics", user=None).body.count(b"stream_loads_running 2") == 0:
            pass
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        ending.sendall(b"0\r\n\r\n")
        answers["ending"] = read_answer(ending)
        answers["hanging"] = read_answer(hanging)
        stopping.join()
    assert answer_of(answers["ending"])[1]["Status"] == "Success"
    assert "the server is stopping" in answer_of(answers["hanging"])[1]["Message"]
    with Store.open(tmp_path / "data") as store:
        assert values(store) == [(10, "x", 1)]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed: apt-get install curl")
def test_with_a_certificate_the_server_speaks_tls(tmp_path: Path) -> None:
    new_store(tmp_path / "data").close()
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        f"-keyout {key} -out {certificate}".split(),
        check=True,
        capture_output=True,
    )
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    server = ServerProcess(tmp_path / "data", *options)
    try:
        assert server.client.address.startswith("https://127.0.0.1:")
        done = subprocess.run(
            [
                *("curl", "-sk", "--location-trusted", "-u", "root:", "-H", "column_separator: ,"),
                *("-H", "Expect: 100-continue", "-T", "-", f"{server.client.address}/api/db/t/_stream_load"),
            ],
            input=b"1,a,1\n",
            capture_output=True,
            check=True,
        )
        assert json.loads(done.stdout)["Status"] == "Success"
    finally:
        server.stop()


# ---------------------------------------------------------------------------------------------- two phases


def end(client: Client, path: str = "/api/db/_stream_load_2pc", **headers: str) -> tuple[str, str]:
    reply = client.request("PUT", path, None, headers).json
    return reply["status"], reply["msg"]


@pytest.mark.parametrize(
    "path", ["/api/db/_stream_load_2pc", "/api/db/t/_stream_load_2pc", "/api/db/_stream_load_2pc/"]
)
def test_a_load_in_two_phases_is_visible_after_the_second(client: Client, store: Store, path: str) -> None:
    """PC1, PC2, PC3, PC6, PC7."""
    key = 1000 + len(path)
    reply = client.load("t", f"{key},x,1\n", two_phase_commit="true", label=f"two-{key}")
    assert (reply["Status"], reply["TwoPhaseCommit"], reply["CommitAndPublishTimeMs"]) == (
        "Success",
        "true",
        0,
    )
    assert (key, "x", 1) not in values(store)
    again = client.load("t", f"{key},x,1\n", two_phase_commit="true", label=f"two-{key}")
    assert (again["Status"], again["ExistingJobStatus"]) == ("Label Already Exists", "PRECOMMITTED")
    txn = str(reply["TxnId"])
    assert end(client, path, txn_id=txn, txn_operation="commit") == (
        "Success",
        f"transaction [{txn}] commit successfully.",
    )
    assert (key, "x", 1) in values(store)
    assert end(client, path, txn_id=txn, txn_operation="commit") == (
        "Fail",
        f"transaction [{txn}] is already visible, not pre-committed.",
    )


def test_a_load_in_two_phases_can_be_given_up_by_label(client: Client, store: Store) -> None:
    """PC3, PC4, LS12."""
    client.load("t", "2000,x,1\n", two_phase_commit="true", label="given-up")
    assert end(client, label="given-up", txn_operation="abort") == (
        "Success",
        "label [given-up] abort successfully.",
    )
    status, message = end(client, label="given-up", txn_operation="commit")
    assert status == "Fail"
    assert "is already aborted. abort reason: User Abort" in message
    assert 2000 not in {row[0] for row in values(store)}
    assert client.load("t", "2000,x,1\n", label="given-up")["Status"] == "Success"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"txn_id": "x1", "txn_operation": "commit"}, "convert txn_id [x1] failed"),
        ({"txn_id": "1", "txn_operation": "undo"}, "transaction operation should be 'commit' or 'abort'"),
        ({"txn_id": "1"}, "transaction operation should be 'commit' or 'abort'"),
        ({"txn_operation": "commit"}, "expected the header txn_id or label"),
        ({"txn_id": "999999", "txn_operation": "commit"}, "transaction [999999] not found"),
        ({"label": "never", "txn_operation": "abort"}, "[never] not found"),
    ],
)
def test_bad_second_phases_are_told(client: Client, headers: dict[str, str], message: str) -> None:
    """PC4, PC5."""
    status, told = end(client, **headers)
    assert status == "Fail"
    assert message in told


def test_of_two_pre_committed_loads_the_one_committed_later_is_newer(client: Client, store: Store) -> None:
    """PC9."""
    first = client.load("t", "3000,first,1\n", two_phase_commit="true")["TxnId"]
    second = client.load("t", "3000,second,1\n", two_phase_commit="true")["TxnId"]
    for txn in (second, first):
        assert end(client, txn_id=str(txn), txn_operation="commit")[0] == "Success"
    assert (3000, "first", 1) in values(store)


def test_the_second_phase_needs_the_load_privilege(client: Client, store: Store) -> None:
    store.accounts.create("reader", "one")
    reply = client.request("PUT", "/api/db/_stream_load_2pc", None, {"txn_id": "1"}, "reader:one").json
    assert reply["status"] == "Fail"
    assert "LOAD privilege" in reply["msg"]


def test_group_commit_over_http(client: Client, store: Store) -> None:
    """G6."""
    reply = client.load("t", "4000,x,1\n", group_commit="async_mode")
    assert reply["GroupCommit"] is True
    assert (4000, "x", 1) in values(store)


def test_what_http_loads_is_selected_over_the_mysql_protocol(tmp_path: Path) -> None:
    pymysql = pytest.importorskip("pymysql")
    new_store(tmp_path / "data").close()
    server = ServerProcess(tmp_path / "data")
    try:
        assert server.client.load("t", "1,a,1\n2,b,2\n")["Status"] == "Success"
        connection = pymysql.connect(host="127.0.0.1", port=server.mysql_port, user="root", database="db")
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT k, v FROM t ORDER BY k")
            assert cursor.fetchall() == ((1, "a"), (2, "b"))
    finally:
        assert server.stop() == 0


# ---------------------------------------------------------------------------------------------- SQL

COMMA = '"column_separator" = ","'


@pytest.mark.parametrize(
    ("sql", "body", "row"),
    [
        (
            "INSERT INTO db.t WITH LABEL by_sql_1 (k, v) "
            f'SELECT c1, upper(c3) FROM http_stream("format" = "csv", {COMMA})',
            b"5001,skipped,abc\n",
            (5001, "ABC", None),
        ),
        (
            f'insert into db.t select c1 + 1, concat(c2, "!"), c3 from http_stream({COMMA}) where c3 > 5;',
            b"5002,a,1\n5002,b,9\n",
            (5003, "b!", 9),
        ),
        (
            'INSERT INTO `db`.`t` SELECT * FROM http_stream("column_separator"="|")',
            b"5004|x|4\n",
            (5004, "x", 4),
        ),
        (
            'INSERT INTO db.t (k, n) SELECT id, amount * 2 FROM http_stream("format"="json")',
            b'{"id": 5005, "amount": 4}\n',
            (5005, None, 8),
        ),
        (
            f'INSERT INTO db.t (k, n) SELECT c1, 1 FROM http_stream({COMMA}, "compress_type"="gz")',
            gzip.compress(b"5006,x\n", mtime=0),
            (5006, None, 1),
        ),
    ],
)
def test_a_load_by_an_insert_statement(
    client: Client, store: Store, sql: str, body: bytes, row: tuple[Any, ...]
) -> None:
    """LH26."""
    reply = client.request("PUT", "/api/_http_stream", body, {"sql": sql}).json
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", 1), reply["Message"]
    assert row in values(store)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "expected INSERT INTO db.table"),
        ("DROP TABLE db.t", "expected INSERT INTO db.table"),
        ("INSERT INTO t SELECT * FROM http_stream()", "name the table as database.table"),
        ("INSERT INTO db.t SELECT c1 FROM http_stream()", "1 values are selected for 3 columns"),
        (f"INSERT INTO db.t SELECT c1, c2, c9 FROM http_stream({COMMA})", "unknown column 'c9'"),
        ("INSERT INTO db.t SELECT * FROM http_stream(format)", 'expected "name" = "value"'),
        ("INSERT INTO db.nothing SELECT * FROM http_stream()", "Unknown table"),
        (f"INSERT INTO db.t SELECT c1, (SELECT 1), 2 FROM http_stream({COMMA})", "over one row"),
    ],
)
def test_other_statements_are_refused(client: Client, sql: str, message: str) -> None:
    """LH26."""
    reply = client.request("PUT", "/api/_http_stream", b"6000,a,1\n", {"sql": sql}).json
    assert reply["Status"] == "Fail"
    assert message in reply["Message"]


def test_show_stream_load_tells_what_became_of_loads(tmp_path: Path) -> None:
    """LS15: labels, statuses, rows and reasons; by label, by pattern, by status."""
    with new_store(tmp_path / "data") as opened, serving(opened) as running, Session(opened) as session:
        running.load("t", "1,a,1\n2,b,2\n", label="day-1")
        running.load("t", "x,a,1\n3,b,2\n", label="day-2", max_filter_ratio="0.5")
        running.load("t", "x,a,1\n", label="late")
        running.load("t", "4,a,1\n", label="held", two_phase_commit="true")
        opened.upsert("db.t", pa.table({"k": pa.array([9], pa.int32())}))

        def shown(rest: str = "") -> list[tuple[Any, ...]]:
            (told,) = session.execute(f"SHOW STREAM LOAD FROM db {rest}")
            assert told.rows is not None
            names = ("Label", "Table", "Status", "TotalRows", "LoadedRows", "FilteredRows")
            return list(zip(*(told.rows.column(name).to_pylist() for name in names), strict=True))

        assert shown() == [
            ("day-1", "t", "Success", "2", "2", "0"),
            ("day-2", "t", "Success", "2", "1", "1"),
            ("late", "t", "Fail", None, None, None),
            ("held", "t", "PRECOMMITTED", None, None, None),
        ]
        assert [row[0] for row in shown("WHERE label = 'late'")] == ["late"]
        assert [row[0] for row in shown("WHERE label LIKE 'day-%' AND status = 'success' LIMIT 1")] == [
            "day-1"
        ]
        assert shown("WHERE label = 'day'") == []


# ---------------------------------------------------------------------------------------------- ends of loads

# Milliseconds for each row; DuckDB looks for an interrupt between some thousand rows.
SLOW = "levenshtein(repeat(v, 400), repeat(concat(v, 'x'), 400))"
MANY_ROWS = "".join(f"{1000 + k},ab\n" for k in range(200_000))


def test_an_expression_ends_at_the_timeout_of_its_load(client: Client, store: Store) -> None:
    """The timeout was looked at between batches; an expression over a batch ran for minutes."""
    reply = client.load("t", MANY_ROWS, columns=f"k, v, n = {SLOW}", timeout="1")
    assert reply["Status"] == "Publish Timeout" or "timeout of 1 s" in reply["Message"], reply
    assert reply["LoadTimeMs"] < 30_000
    assert not any(row[0] >= 1000 and row[1] == "ab" for row in values(store))


def test_a_stopping_server_ends_the_expressions_of_loads(tmp_path: Path) -> None:
    """Loads have `stop_seconds` to end; the expression of one kept the server for minutes."""
    with new_store(tmp_path / "data") as opened:
        replies: list[Any] = []
        with serving(opened, stop_seconds=1) as running:
            load = partial(running.load, "t", MANY_ROWS, columns=f"k, v, n = {SLOW}")
            thread = threading.Thread(target=lambda: replies.append(load()))
            thread.start()
            while "stream_loads_running 1" not in running.request("GET", "/metrics").body.decode():
                assert thread.is_alive(), replies
        thread.join(60)
        assert "stopping" in replies[0]["Message"], replies
        assert not values(opened)
