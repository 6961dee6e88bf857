"""Every read that the server offers, over all of its protocols, has the limits of a MySQL query.

A read is in the audit log and in SHOW PROCESSLIST, KILL and `query_timeout` end it, its user's workload group
admits it, and its memory is limited.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from seqstore import Session, Store
from seqstore.cli.clients.audit_log import FILE, AuditLog
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.cli.scan.thrift_server import METHODS, ThriftServer
from seqstore.cli.server.http import HttpService
from seqstore.cli.server.settings import ServerSettings
from seqstore.cli.web.routes import STATEMENT
from seqstore.store.sql import parse
from seqstore.store.sql.session.server_context import Ports
from tests.support.connectors.thrift_client import ThriftClient
from tests.support.http_server import Client, serving
from tests.support.statements import run
from tests.support.waiting import until

pytestmark = pytest.mark.sql("CREATE TABLE t (k INT, v INT) UNIQUE KEY(k); INSERT INTO t VALUES (1, 1)")
TEXT = "SELECT k FROM db.t"
DAYS = "SELECT count(*) FROM " + ", ".join(f"(SELECT 1 a UNION ALL SELECT 2) x{n}" for n in range(60))
MEMORY = (
    "SELECT length(group_concat(md5(concat(a.e, ',', b.e)))) FROM (SELECT unnest(array_range(3000)) e) a,"
    " (SELECT unnest(array_range(300)) e) b"
)
ENDED_SECONDS_MAX = 60


class Served:
    """The HTTP, Thrift and Flight services of one store. `user` logs in."""

    def __init__(self, sessions: ServerSessions, http: Client, thrift: int, grpc: int) -> None:
        self.sessions, self.http, self.thrift, self.grpc = sessions, http, thrift, grpc
        self.user = "ann"

    def ask(self, method: str, path: str, **body: Any) -> str:
        """The body of an answer of HTTP."""
        data = json.dumps(body).encode() if body else None
        return self.http.request(method, path, data, user=f"{self.user}:").body.decode()

    def scan(self, text: str = TEXT) -> str:
        """The statuses of a scan over Thrift."""
        with self.sessions.store.table("db.t").snapshot() as snapshot:
            tablets = snapshot.tablet_ids()
        client = ThriftClient(self.thrift)
        try:
            opened = client.open(base64.b64encode(text.encode()).decode(), tablets, f"{self.user}:")
            found = [opened[1]]
            offset = 0
            while not found[-1][1]:
                answer = client.next(opened[2], offset)
                found.append(answer[1])
                if answer.get(2, True):
                    break
                offset += sum(batch.num_rows for batch in pa.ipc.open_stream(answer[3]))
            return str(found)
        finally:
            client.close()

    def fly(self, call: Callable[[Any, Any], Any]) -> str:
        """The result or the error of a call of Flight."""
        with flight.connect(f"grpc://127.0.0.1:{self.grpc}") as client:
            try:
                token = client.authenticate_basic_token(self.user, "")
                return str(call(client, flight.FlightCallOptions(headers=[token])))
            except (pa.ArrowException, KeyError) as error:
                return str(error)


def message(name: str, text: str) -> bytes:
    """An `Any` with a message whose first field is a text."""

    def sized(data: bytes) -> bytes:
        size = len(data)
        return (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + data

    kind = f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()
    return b"\x0a" + sized(kind) + b"\x12" + sized(b"\x0a" + sized(text.encode()))


def described(name: str, text: str = TEXT) -> Any:
    return flight.FlightDescriptor.for_command(message(name, text))


def fly_put(client: Any, options: Any) -> Any:
    text = "INSERT INTO db.t SELECT k + 1, v FROM db.t"
    writer, reader = client.do_put(described("CommandStatementUpdate", text), pa.schema([]), options)
    writer.done_writing()
    answer = reader.read()
    writer.close()  # raises the error of a call without an answer
    return answer.to_pybytes()


def fly_get(text: str = TEXT) -> Callable[[Any, Any], Any]:
    ticket = flight.Ticket(message("TicketStatementQuery", text))
    return lambda client, options: client.do_get(ticket, options).read_all().to_pylist()


PREPARED = flight.Action("CreatePreparedStatement", message("ActionCreatePreparedStatementRequest", TEXT))
Read = Callable[[Served], str]
# Reads of rows, which a workload group limits.
READS: dict[str, Read] = {
    "GET /api/{}/{}/_count": lambda served: served.ask("GET", "/api/db/t/_count"),
    "POST /api/{}/{}/_query_plan": lambda served: served.ask("POST", "/api/db/t/_query_plan", sql=TEXT),
    "GET /api/{}/{}/_query_plan": lambda served: served.ask("GET", "/api/db/t/_query_plan", sql=TEXT),
    "POST /api/query/{}/{}": lambda served: served.ask("POST", "/api/query/internal/db", stmt=TEXT),
    "POST /api/console/query": lambda served: served.ask("POST", "/api/console/query", sql=TEXT),
    "POST /api/console/download": lambda served: served.ask("POST", "/api/console/download", sql=TEXT),
    "GET /api/console/table/{}/{}/lateness": lambda served: served.ask(
        "GET", "/api/console/table/db/t/lateness"
    ),
    "thrift open_scanner": lambda served: served.scan(),
    "flight get_flight_info": lambda served: served.fly(
        lambda client, options: client.get_flight_info(described("CommandStatementQuery"), options).schema
    ),
    "flight get_schema": lambda served: served.fly(
        lambda client, options: client.get_schema(described("CommandStatementQuery"), options).schema
    ),
    "flight do_get": lambda served: served.fly(fly_get()),
    "flight do_put": lambda served: served.fly(fly_put),
    "flight do_action": lambda served: served.fly(
        lambda client, options: [each.body.to_pybytes() for each in client.do_action(PREPARED, options)]
    ),
}
# Reads of names and types, as SHOW in SQL.
NAMES: dict[str, Read] = {
    "GET /api/{}/{}/_schema": lambda served: served.ask("GET", "/api/db/t/_schema"),
    "GET /api/{}/{}/{}/_schema": lambda served: served.ask("GET", "/api/internal/db/t/_schema"),
    "GET /api/enable_light_schema_change/{}/{}": lambda served: served.ask(
        "GET", "/api/enable_light_schema_change/db/t"
    ),
    "GET /api/_get_ddl": lambda served: served.ask("GET", "/api/_get_ddl?db=db&table=t"),
}
# Parts of a read that another call began, and calls that answer the same to every user.
OTHERS = {"thrift get_next", "thrift close_scanner", "flight list_actions"}
# Methods of gRPC's service that the server does not have.
REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "flight list_flights": lambda client, options: list(client.list_flights(b"", options)),
    "flight do_exchange": lambda client, options: client.do_exchange(described("x"), options)[1].read_all(),
}
NOT_CALLED = {"connections", "port", "run", "serve", "shutdown", "stop", "wait"}
each_read = pytest.mark.parametrize("name", READS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "audit"


@pytest.fixture
def served(store: Store, folder: Path) -> Iterator[Served]:
    store.accounts.create("ann")
    store.accounts.grant("ann", ["SELECT", "LOAD"], "db")
    audit = AuditLog(folder)
    audit.start()
    sessions = ServerSessions(store, audit=audit, ports=lambda: Ports(thrift=thrift.port))
    thrift = ThriftServer(sessions, "127.0.0.1", 0)
    thrift.start()
    grpc = FlightSqlServer(sessions, "127.0.0.1", 0)
    try:
        with serving(store, sessions=sessions) as http:
            yield Served(sessions, http, thrift.port, grpc.port)
    finally:
        grpc.stop()
        thrift.stop()
        audit.stop()


def test_no_read_is_left_out(store: Store) -> None:
    """A new route, or method of Thrift or Flight, is added to READS or to one of the lists beside it."""
    routes = HttpService(ServerSessions(store), ServerSettings(), 0).all_routes()
    offered = {f"{each.method} /{'/'.join(each.path)}" for each in routes if each.event == STATEMENT}
    offered |= {f"thrift {name}" for name in METHODS}
    methods = {name for name in dir(FlightSqlServer) if not name.startswith("_")} - NOT_CALLED
    offered |= {f"flight {name}" for name in methods}
    assert offered == READS.keys() | NAMES.keys() | OTHERS | REFUSED.keys()


def events(served: Served, folder: Path, count: int) -> list[dict[str, Any]]:
    """The first events of the audit log beside logins."""
    deadline = time.monotonic() + ENDED_SECONDS_MAX
    while time.monotonic() < deadline:
        lines = (folder / FILE).read_text().splitlines() if (folder / FILE).exists() else []
        found = [event for event in map(json.loads, lines) if event["event"] != "login"]
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"expected {count} events, found {found}")


@pytest.mark.parametrize("name", [*READS, *NAMES])
def test_a_read_is_a_line_of_the_audit_log(served: Served, folder: Path, name: str) -> None:
    """Reads by Thrift, Flight and /api/query were in none."""
    answer = (READS | NAMES)[name](served)
    served.user = "eve"
    served.sessions.store.accounts.create("eve")
    refused = (READS | NAMES)[name](served)
    one, other = events(served, folder, 2)
    assert (one["event"], one["user"], one["outcome"]) == ("statement", "ann", "OK"), answer
    assert (other["user"], other["outcome"]) in (
        ("eve", "AccessDeniedError"),
        ("eve", "NotFoundError"),
    ), refused
    for event in (one, other):
        assert event["address"] == "127.0.0.1"
        assert event["protocol"] == {"t": "thrift", "f": "flight"}.get(name[0], "http")
        assert event["connection"] > 0
        assert "db" in event["statement"]


def test_the_rows_of_a_read_are_counted(served: Served, folder: Path) -> None:
    run(served.sessions.open("root", 0, lambda _: True), "INSERT INTO db.t VALUES (2, 2), (3, 3)")
    for name in ("POST /api/query/{}/{}", "thrift open_scanner", "flight do_get", "flight do_put"):
        READS[name](served)
    found = events(served, folder, 4)
    assert [event["rows_read"] for event in found] == [3, 3, 3, 0]
    assert found[3]["rows_written"] == 3
    assert all(event["bytes_sent"] > 0 for event in found[1:3])


@pytest.mark.parametrize("name", [*READS, *NAMES, *REFUSED])
def test_a_call_without_a_login_is_refused(served: Served, name: str) -> None:
    served.user = "nobody"
    found = served.fly(REFUSED[name]) if name in REFUSED else (READS | NAMES)[name](served)
    assert "nobody" in found
    assert "ccess denied" in found


@contextmanager
def full(served: Served, queue: int) -> Iterator[None]:
    """The one place of the workload group is taken within the block."""
    sessions = served.sessions
    run(
        sessions.open("root", 0, lambda _: True),
        "ALTER WORKLOAD GROUP normal PROPERTIES ('max_concurrency' = '1', 'queue_timeout' = '600000',"
        f" 'max_queue_size' = '{queue}')",
    )
    with sessions.open("root", 0, lambda _: True) as session, session.stream(parse(TEXT)[0]):
        yield


@each_read
def test_a_read_has_a_place_of_its_workload_group(served: Served, name: str) -> None:
    """Such reads were in no group."""
    with full(served, queue=0):
        assert "queue is full" in READS[name](served)
    assert "queue is full" not in READS[name](served)


@dataclass
class Waiting:
    """A read that waits for its workload group; `answer` is how it ended."""

    thread: threading.Thread
    number: int
    answer: list[str]

    def end(self) -> str:
        self.thread.join(ENDED_SECONDS_MAX)
        assert not self.thread.is_alive(), "the read still waits"
        return self.answer[0]


def begin(served: Served, read: Read) -> Waiting:
    answer: list[str] = []

    def ask() -> None:
        try:
            answer.append(read(served))
        except ConnectionError as error:
            answer.append(repr(error))

    thread = threading.Thread(target=ask)
    thread.start()
    deadline = time.monotonic() + ENDED_SECONDS_MAX
    while not (shown := [each for each in served.sessions.processes.all() if each.text]):
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
    [process] = shown
    assert (process.user, "db" in process.text) == ("ann", True)
    return Waiting(thread, process.number, answer)


@each_read
@pytest.mark.parametrize("words", ["KILL QUERY", "KILL"])
def test_a_read_is_listed_and_killed(served: Served, name: str, words: str) -> None:
    with full(served, queue=9), served.sessions.open("ann", 0, lambda _: True) as session:
        waiting = begin(served, READS[name])
        shown = [row for row in run(session, "SHOW PROCESSLIST") if str(waiting.number) in map(str, row)]
        assert ["ann" in row for row in shown] == [True]
        run(session, f"{words} {waiting.number}")
        assert "interrupted" in waiting.end() or words == "KILL"
        until(lambda: not any(each.text for each in served.sessions.processes.all()), ENDED_SECONDS_MAX)


def test_every_read_ends_at_its_timeout(served: Served) -> None:
    root = served.sessions.open("root", 0, lambda _: True)
    run(root, "SET GLOBAL query_timeout = 1")
    run(root, "SET GLOBAL insert_timeout = 1")
    with full(served, queue=99), ThreadPoolExecutor(len(READS)) as threads:
        answers = dict(zip(READS, threads.map(lambda read: read(served), READS.values()), strict=True))
    assert {name: "_timeout" in answer for name, answer in answers.items()} == dict.fromkeys(READS, True)


@pytest.mark.parametrize("name", ["query", "flight"])
def test_a_query_that_runs_is_killed(served: Served, name: str) -> None:
    calls = {
        "query": lambda served: served.ask("POST", "/api/query/internal/db", stmt=f"{DAYS} -- db"),
        "flight": lambda served: served.fly(fly_get(f"{DAYS} -- db")),
    }
    running = begin(served, calls[name])
    process = served.sessions.processes.find(running.number)
    assert process is not None
    process.interrupt()
    assert "interrupted" in running.end()


def test_a_query_of_http_ends_when_its_client_leaves(served: Served) -> None:
    with ExitStack() as held:
        body = json.dumps({"stmt": f"{DAYS} -- db"}).encode()
        head = (
            f"POST /api/query/internal/db HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: Basic {base64.b64encode(b'ann:').decode()}\r\n\r\n"
        )
        client = held.enter_context(socket.create_connection((served.http.host, served.http.port), 60))
        client.sendall(head.encode() + body)
        until(lambda: any(each.text for each in served.sessions.processes.all()), ENDED_SECONDS_MAX)
    until(lambda: not any(each.text for each in served.sessions.processes.all()), ENDED_SECONDS_MAX)


def test_a_query_of_flight_ends_when_its_client_leaves(served: Served) -> None:
    client = flight.connect(f"grpc://127.0.0.1:{served.grpc}")
    timed = flight.FlightCallOptions(timeout=1, headers=[client.authenticate_basic_token("ann", "")])
    with pytest.raises(flight.FlightTimedOutError):
        client.do_get(flight.Ticket(message("TicketStatementQuery", f"{DAYS} -- db")), timed).read_all()
    until(lambda: not any(each.text for each in served.sessions.processes.all()), ENDED_SECONDS_MAX)
    client.close()


def test_a_scan_between_two_calls_is_listed_and_killed(served: Served) -> None:
    with served.sessions.store.table("db.t").snapshot() as snapshot:
        tablets = snapshot.tablet_ids()
    client = ThriftClient(served.thrift)
    plan = base64.b64encode(TEXT.encode()).decode()
    one, two = (client.open(plan, tablets, "ann:") for _ in range(2))
    first, second = (each for each in served.sessions.processes.all() if each.text)
    assert first.user == "ann"
    first.interrupt()
    assert b"interrupted" in client.next(one[2], 0)[1][2][0]
    assert client.next(two[2], 0)[1][1] == 0, "the other scanner of the connection goes on"
    assert [each.number for each in served.sessions.processes.all()] == [second.number]
    client.close()


def test_a_scan_whose_client_requests_no_rows_ends_with_its_connection(served: Served) -> None:
    """It kept its version, and its place, for as long as the connection was open."""
    with served.sessions.store.table("db.t").snapshot() as snapshot:
        tablets = snapshot.tablet_ids()
    client = ThriftClient(served.thrift)
    client.open(base64.b64encode(TEXT.encode()).decode(), tablets, "ann:", query_timeout=1)
    until(lambda: not served.sessions.processes.all(), ENDED_SECONDS_MAX)
    client.close()


@pytest.mark.parametrize("name", ["query", "flight"])
def test_a_query_has_the_memory_of_its_user(served: Served, name: str) -> None:
    with Session(served.sessions.store) as session:
        run(session, "SET PROPERTY FOR 'ann' 'exec_mem_limit' = '33554432'")
    calls = {
        "query": lambda served: served.ask("POST", "/api/query/internal/db", stmt=MEMORY),
        "flight": lambda served: served.fly(fly_get(MEMORY)),
    }
    found = calls[name](served)
    assert "exec_mem_limit" in found


def test_statements_of_one_text_are_refused_before_one_runs(served: Served, store: Store) -> None:
    """Both ran, and then the answer was an error."""
    found = served.ask("POST", "/api/query/internal/db", stmt="INSERT INTO t VALUES (9, 9); SELECT 1")
    assert "expected one statement, found 2" in found
    assert len(store.table("db.t").scan().read_all()) == 1
