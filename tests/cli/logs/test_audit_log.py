"""The audit log: each login, statement and load is a line, without secrets; no fault of it stops a client."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from seqstore import Store
from seqstore.cli.clients.audit_log import FILE, AuditLimits, AuditLog, Client, Event
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.mysql import MysqlServer
from seqstore.cli.server.metrics import Metrics
from tests.cli.mysql_client import ask
from tests.support.http_server import ServerProcess, serving

pytestmark = pytest.mark.sql("CREATE TABLE t (k INT NULL, v STRING NULL) UNIQUE KEY(k)")
HTTP = Client("http", "127.0.0.1", "ann")


@contextmanager
def running(folder: Path, **limits: int) -> Iterator[AuditLog]:
    log = AuditLog(folder, AuditLimits(**limits))
    log.start()
    try:
        yield log
    finally:
        log.stop()


def lines(folder: Path) -> list[dict[str, Any]]:
    """The events of all files, the oldest first."""
    files = [*sorted(folder.glob("audit-*.log")), folder / FILE]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "audit"


def connect(server: MysqlServer, user: str = "root", **options: Any) -> Any:
    return pymysql.connect(host="127.0.0.1", port=server.port, user=user, **options)


def test_each_statement_is_a_line_with_its_outcome(store: Store, folder: Path) -> None:
    with running(folder) as log, MysqlServer(store, sessions=ServerSessions(store, audit=log)) as server:
        root = connect(server, database="db", client_flag=CLIENT.MULTI_STATEMENTS)
        ask(root, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        ask(root, "SELECT * FROM t; SELECT k FROM t WHERE k = 1")
        for bad in ("SELECT * FROM absent", "SELEC 1"):
            with pytest.raises(pymysql.MySQLError):
                ask(root, bad)
        root.close()
        with pytest.raises(pymysql.MySQLError):
            connect(server, "eve", password="guess")
    # The driver sets its character set and autocommit first.
    found = [event for event in lines(folder) if not event["statement"].startswith("SET ")]
    told = [
        (e["event"], e["user"], e["outcome"], e["code"], e["rows_read"], e["rows_written"]) for e in found
    ]
    assert told == [
        ("login", "root", "OK", 0, 0, 0),
        ("statement", "root", "OK", 0, 0, 2),
        ("statement", "root", "OK", 0, 2, 0),
        ("statement", "root", "OK", 0, 1, 0),
        ("statement", "root", "NotFoundError", 1146, 0, 0),
        ("statement", "root", "InvalidInputError", 1064, 0, 0),
        ("login", "eve", "AccessDeniedError", 1045, 0, 0),
    ]
    assert len({event["query_id"] for event in found}) == len(found)
    assert {(e["protocol"], e["address"]) for e in found} == {("mysql", "127.0.0.1")}
    assert found[1]["statement"].startswith("INSERT INTO t")
    assert (found[1]["database"], found[1]["connection"]) == ("db", 1)
    assert found[2]["bytes_sent"] > 0
    assert all(event["time"].endswith("Z") and event["ms"] >= 0 for event in found)


def test_each_load_is_a_line_with_label_rows_and_bytes(store: Store, folder: Path) -> None:
    with running(folder) as log, serving(store, audit=log) as http:
        http.load("db.t", "1,a\n2,b\n", label="one")
        http.load("db.t", "x", label="two", column_separator="bad" * 300)
        http.load("db.t", "3,c\n", label="three", two_phase_commit="true")
        http.request("PUT", "/api/db/_stream_load_2pc", b"", {"label": "three", "txn_operation": "abort"})
        http.request("GET", "/api/backends", user="eve:guess")
    found = lines(folder)
    assert [(e["event"], e["user"], e["label"], e["outcome"], e["rows_written"]) for e in found] == [
        ("load", "root", "one", "OK", 2),
        ("load", "root", "two", "Fail", 0),
        ("load", "root", "three", "OK", 1),
        ("load", "root", "three", "OK", 0),
        ("login", "eve", "", "AccessDeniedError", 0),
    ]
    assert found[0]["bytes_received"] == 8
    assert [event["error"] for event in found] == ["", "DATA_QUALITY_ERROR", "", "", "bad_password"]
    assert "txn_operation: abort" in found[3]["statement"]


SECRETS = [
    "CREATE USER ann IDENTIFIED BY 'hush-hush'",
    "CREATE USER ann IDENTIFIED 'hush-hush'",
    'ALTER USER root IDENTIFIED WITH mysql_native_password BY "hush-hush"',
    "SET PASSWORD FOR root = PASSWORD('hush-hush')",
    "SET PASSWORD 'hush-hush'",
    "SET PASSWORD = 'hush-hush",
    "LOAD LABEL l (DATA INFILE('s3://b/x') INTO TABLE t) WITH S3 ('s3.secret_key' = 'hush-hush')",
    "CREATE ROUTINE LOAD j ON t FROM KAFKA ('property.sasl.password' = 'hush-hush', 'x' = 'y')",
    "SELECT 1; CREATE USER eve IDENTIFIED BY 'hush-hush'",
    "SET PASSWORD FOR 'root' = 'hush-hush'",
    "SET PASSWORD FOR 'root'@'%' = 'hush-hush'",
    "CREATE USER ann IDENTIFIED BY'hush-hush'",
    "CREATE USER ann IDENTIFIED BY /* new */ 'hush-hush'",
    "-- ann's new account\nCREATE USER ann IDENTIFIED BY 'hush-hush'",
    "# it's for the nightly job\nCREATE USER ann IDENTIFIED BY 'hush-hush'",
    "/* it's */ CREATE USER ann IDENTIFIED BY 'hush-hush'",
    "/*!40101 CREATE USER ann IDENTIFIED BY 'hush-hush' */",
    "SELECT 1 /* then CREATE USER ann IDENTIFIED BY 'hush-hush' */",
    "CREATE USER ann IDENTIFED BY 'hush-hush'",
    "CREATE USER ann IDENTIFIED BY hush-hush",
    "LOAD LABEL l (DATA INFILE('s3://b/x') INTO TABLE t) WITH S3 (s3.secret_key = 'hush-hush')",
    "LOAD LABEL l (DATA INFILE('s3://b/x') INTO TABLE t) WITH S3 (`s3.secret_key` = 'hush-hush')",
    "LOAD LABEL l (DATA INFILE('s3://b/x') INTO TABLE t) WITH S3 ('s3.secret_key' /* k */ = 'hush-hush')",
    "LOAD LABEL l (DATA INFILE('s3://b/x') INTO TABLE t) WITH S3 (s3.secret_key = hush-hush)",
    f"BACKUP SNAPSHOT db.b TO {' ' * 4060}'s3://key:hush-hush@bucket/p'",
    f"BACKUP SNAPSHOT db.b TO 's3://key:hush-hush@{'b' * 4100}/p'",
]


@pytest.mark.family(4)
@pytest.mark.parametrize("text", SECRETS)
def test_no_line_has_a_password_or_a_secret(store: Store, folder: Path, text: str) -> None:
    """Also where the statement is wrong: its grammar does not tell which literal is the password."""
    with running(folder) as log, MysqlServer(store, sessions=ServerSessions(store, audit=log)) as server:
        with suppress(pymysql.MySQLError):
            ask(connect(server, password="", database="db"), text)
        with pytest.raises(pymysql.MySQLError):
            connect(server, "ann", password="hush-hush-hush")
    data = (folder / FILE).read_text()
    assert "hush" not in data
    assert "******" in data


@pytest.mark.parametrize("path", ["/api/query/internal/db", "/api/console/query"])
@pytest.mark.parametrize(
    "text", ["CREATE USER eve IDENTIFIED 'hush-hush'", "CREATE USER eve IDENTIFED BY 'hush-hush'"]
)
def test_no_line_of_a_wrong_statement_over_http_has_a_password(
    store: Store, folder: Path, path: str, text: str
) -> None:
    """Only the MySQL protocol told the log that the statement could not be parsed."""
    with running(folder) as log, serving(store, audit=log) as http:
        http.request("POST", path, json.dumps({"stmt": text, "sql": text}))
    [found] = lines(folder)
    assert found["statement"] == "CREATE USER ******"
    assert (found["outcome"], found["error"]) == ("InvalidInputError", "syntax")


def test_a_login_of_a_uri_that_the_line_cuts_is_masked(folder: Path) -> None:
    with running(folder) as log:
        for blanks in range(4030, 4096):
            log.record(Event("statement", HTTP, f"BACKUP TO {' ' * blanks}'s3://key:hush-hush@bucket/p'"))
    assert "hu" not in (folder / FILE).read_text()


def test_a_file_ends_at_its_size_and_the_oldest_are_deleted(folder: Path) -> None:
    with running(folder, bytes_max=2_000, files_max=3) as log:
        for number in range(100):
            log.record(Event("load", HTTP, label=f"l{number}"))
            while log.written <= number:
                threading.Event().wait(0.001)
    files = sorted(folder.iterdir())
    assert len(files) == 4
    assert all(file.stat().st_size <= 2_000 for file in files)
    found = [event["label"] for event in lines(folder)]
    assert found == [f"l{n}" for n in range(100 - len(found), 100)]


def test_a_file_ends_with_its_period(folder: Path) -> None:
    """The files of a server that was down meanwhile too."""
    with running(folder) as log:
        log.record(Event("load", HTTP, label="before"))
    os.utime(folder / FILE, (0, 0))
    with running(folder) as log:
        log.record(Event("load", HTTP, label="after"))
    assert [event["label"] for event in lines(folder)] == ["before", "after"]
    assert len(list(folder.iterdir())) == 2


def test_files_belong_to_their_user_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        with running(folder) as log:
            log.record(Event("load", HTTP))
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600


def test_a_full_disk_loses_whole_lines_and_stops_no_statement(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Callable[..., int] = os.write
    is_full = threading.Event()

    def fill(file: int, data: Any) -> int:
        if not is_full.is_set() or file < 3:
            return write(file, data)
        if len(data) > 10:
            return write(file, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seqstore.cli.clients.audit_log.os.write", fill)
    with running(folder) as log, MysqlServer(store, sessions=ServerSessions(store, audit=log)) as server:
        root = connect(server)
        ask(root, "SELECT 1")
        while not (folder / FILE).exists() or "SELECT 1" not in (folder / FILE).read_text():
            threading.Event().wait(0.001)
        is_full.set()
        assert ask(root, "SELECT 2") == [(2,)]
        while not log.lost:
            threading.Event().wait(0.001)
        metrics = Metrics(store, log).scrape("", lambda _database, _table: True)[0].decode()
    found = lines(folder)
    assert found[-1]["statement"] == "SELECT 1"
    assert f"seqstore_audit_events_total {len(found):.1f}" in metrics
    assert "seqstore_audit_events_lost_total 1.0" in metrics


def test_a_folder_that_cannot_be_made_stops_no_statement(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        running(tmp_path / "file" / "audit") as log,
        MysqlServer(store, sessions=ServerSessions(store, audit=log)) as server,
    ):
        assert ask(connect(server), "SELECT 2") == [(2,)]
    assert (log.written, log.lost > 0) == (0, True)


def test_a_full_queue_loses_events_at_once(folder: Path) -> None:
    log = AuditLog(folder)  # its thread is not started
    for _ in range(5_000):
        log.record(Event("load", HTTP, statement="x" * 100_000))
    assert log.lost > 0


def test_serve_has_an_audit_log_unless_it_is_turned_off(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    for text, expected in (("", True), ("[server]\naudit_log = false", False)):
        config.write_text(text)
        server = ServerProcess(tmp_path / f"data{expected}", "--config", str(config))
        try:
            assert server.client.request("GET", "/api/backends", user="eve:guess").status == 401
        finally:
            server.stop()
        file = tmp_path / f"data{expected}" / "audit" / FILE
        assert file.is_file() == expected
        if expected:
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert json.loads(file.read_text())["user"] == "eve"
