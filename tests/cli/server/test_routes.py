"""Each route of the HTTP service, asked without a login, without a privilege and with it (LR1)."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import Store
from seqstore.cli.clients.login_guard import LoginGuard
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.server.http import HttpService
from seqstore.cli.server.settings import ServerSettings
from tests.support.http_server import Answer, Client, basic, serving
from tests.support.rows import schema_of


@dataclass(frozen=True)
class Request:
    """One request for a route.

    Attributes:
        needs: "" for a route that is open to all, "login" for one that any user may ask, else a privilege on
            `db`.
        status: of the answer to a user that may ask.
    """

    path: str
    needs: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


CSV = {"column_separator": ","}
SQL = {"sql": 'INSERT INTO db.t SELECT c1, c2 FROM http_stream("format" = "csv", "column_separator" = ",")'}
PLAN = b'{"sql": "SELECT k FROM db.t"}'
END = {"label": "pending", "txn_operation": "abort"}
ICEBERG = "/iceberg/v1/namespaces"
REQUESTS = {
    ("PUT", "/api/{}/{}/_stream_load"): Request("/api/db/t/_stream_load", "LOAD", b"9,9\n", CSV),
    ("PUT", "/api/_http_stream"): Request("/api/_http_stream", "LOAD", b"9,9\n", SQL),
    ("PUT", "/api/{}/_stream_load_2pc"): Request("/api/db/_stream_load_2pc", "LOAD", b"", END),
    ("PUT", "/api/{}/{}/_stream_load_2pc"): Request("/api/db/t/_stream_load_2pc", "LOAD", b"", END),
    ("GET", "/api/{}/_load_info"): Request("/api/db/_load_info?label=stored", "LOAD"),
    ("GET", "/api/{}/get_load_state"): Request("/api/db/get_load_state?label=stored", "LOAD"),
    ("GET", "/api/_load_error_log"): Request("/api/_load_error_log?file=x", "", status=404),
    ("GET", "/health"): Request("/health", ""),
    ("GET", "/api/health"): Request("/api/health", ""),
    ("GET", "/health/live"): Request("/health/live", ""),
    ("GET", "/health/ready"): Request("/health/ready", ""),
    ("GET", "/metrics"): Request("/metrics", ""),
    ("GET", "/api/bootstrap"): Request("/api/bootstrap", ""),
    ("GET", "/api/backends"): Request("/api/backends", "login"),
    ("GET", "/api/fe_version_info"): Request("/api/fe_version_info", "login"),
    ("GET", "/api/{}/{}/_schema"): Request("/api/db/t/_schema", "SELECT"),
    ("GET", "/api/{}/{}/{}/_schema"): Request("/api/internal/db/t/_schema", "SELECT"),
    ("GET", "/api/{}/{}/_count"): Request("/api/db/t/_count", "SELECT"),
    ("POST", "/api/{}/{}/_query_plan"): Request("/api/db/t/_query_plan", "SELECT", PLAN),
    ("GET", "/api/{}/{}/_query_plan"): Request("/api/db/t/_query_plan", "SELECT", PLAN),
    ("GET", "/rest/v1/system"): Request("/rest/v1/system?path=//backends", "login"),
    ("POST", "/rest/v1/login"): Request("/rest/v1/login", "login"),
    ("GET", "/rest/v2/manager/node/backends"): Request("/rest/v2/manager/node/backends", "login"),
    ("GET", "/rest/v2/manager/node/frontends"): Request("/rest/v2/manager/node/frontends", "login"),
    ("POST", "/api/query/{}/{}"): Request("/api/query/internal/db", "SELECT", b'{"stmt": "SELECT * FROM t"}'),
    ("GET", "/api/enable_light_schema_change/{}/{}"): Request(
        "/api/enable_light_schema_change/db/t", "SELECT"
    ),
    ("GET", "/api/_get_ddl"): Request("/api/_get_ddl?db=db&table=t", "SELECT"),
    ("GET", "/iceberg/v1/config"): Request("/iceberg/v1/config", "login"),
    ("POST", "/iceberg/v1/oauth/tokens"): Request("/iceberg/v1/oauth/tokens", "", status=400),
    ("GET", f"{ICEBERG}"): Request(ICEBERG, "login"),
    ("GET", f"{ICEBERG}/{{}}"): Request(f"{ICEBERG}/db", "SELECT"),
    ("HEAD", f"{ICEBERG}/{{}}"): Request(f"{ICEBERG}/db", "SELECT"),
    ("GET", f"{ICEBERG}/{{}}/tables"): Request(f"{ICEBERG}/db/tables", "SELECT"),
    ("GET", f"{ICEBERG}/{{}}/tables/{{}}"): Request(f"{ICEBERG}/db/tables/opened", "SELECT"),
    ("HEAD", f"{ICEBERG}/{{}}/tables/{{}}"): Request(f"{ICEBERG}/db/tables/opened", "SELECT"),
    ("POST", f"{ICEBERG}"): Request(ICEBERG, "login", status=406),
    ("DELETE", f"{ICEBERG}/{{}}"): Request(f"{ICEBERG}/db", "login", status=406),
    ("POST", f"{ICEBERG}/{{}}/properties"): Request(f"{ICEBERG}/db/properties", "login", status=406),
    ("POST", f"{ICEBERG}/{{}}/tables"): Request(f"{ICEBERG}/db/tables", "login", status=406),
    ("POST", f"{ICEBERG}/{{}}/register"): Request(f"{ICEBERG}/db/register", "login", status=406),
    ("POST", f"{ICEBERG}/{{}}/tables/{{}}"): Request(f"{ICEBERG}/db/tables/t", "login", status=406),
    ("DELETE", f"{ICEBERG}/{{}}/tables/{{}}"): Request(f"{ICEBERG}/db/tables/t", "login", status=406),
    ("POST", "/iceberg/v1/tables/rename"): Request("/iceberg/v1/tables/rename", "login", status=406),
    ("POST", "/iceberg/v1/transactions/commit"): Request(
        "/iceberg/v1/transactions/commit", "login", status=406
    ),
    ("GET", "/api/tso"): Request("/api/tso", "login"),
    ("POST", "/api/ingestion_load/{}/{}/_create"): Request(
        "/api/ingestion_load/internal/db/_create", "login"
    ),
    ("POST", "/api/ingestion_load/{}/{}/_update"): Request(
        "/api/ingestion_load/internal/db/_update", "login"
    ),
}
# The console.
CONSOLE = "/api/console"
QUERY = b'{"sql": "SELECT * FROM db.t"}'
REQUESTS |= {
    ("GET", "/"): Request("/", ""),
    ("GET", "/console/{}"): Request("/console/app.js", ""),
    ("POST", f"{CONSOLE}/login"): Request(f"{CONSOLE}/login", "", b"{}", status=403),  # without an Origin
    ("POST", f"{CONSOLE}/logout"): Request(f"{CONSOLE}/logout", "login"),
    ("GET", f"{CONSOLE}/session"): Request(f"{CONSOLE}/session", "login"),
    ("GET", f"{CONSOLE}/overview"): Request(f"{CONSOLE}/overview", "login"),
    ("GET", f"{CONSOLE}/tables"): Request(f"{CONSOLE}/tables", "login"),
    ("GET", f"{CONSOLE}/table/{{}}/{{}}"): Request(f"{CONSOLE}/table/db/t", "SELECT"),
    ("GET", f"{CONSOLE}/table/{{}}/{{}}/versions"): Request(f"{CONSOLE}/table/db/t/versions", "SELECT"),
    ("GET", f"{CONSOLE}/table/{{}}/{{}}/segments"): Request(f"{CONSOLE}/table/db/t/segments", "SELECT"),
    ("GET", f"{CONSOLE}/table/{{}}/{{}}/lateness"): Request(f"{CONSOLE}/table/db/t/lateness", "SELECT"),
    ("GET", f"{CONSOLE}/loads"): Request(f"{CONSOLE}/loads", "login"),
    ("GET", f"{CONSOLE}/jobs"): Request(f"{CONSOLE}/jobs", "login"),
    ("GET", f"{CONSOLE}/rejected/{{}}"): Request(f"{CONSOLE}/rejected/999999", "login", status=404),
    ("PUT", f"{CONSOLE}/load/{{}}/{{}}"): Request(f"{CONSOLE}/load/db/t", "LOAD", b"9,9\n", CSV),
    ("POST", f"{CONSOLE}/preview/{{}}/{{}}"): Request(
        f"{CONSOLE}/preview/db/t?format=parquet&size=4&parts=0-4", "LOAD", b"PAR1", status=400
    ),
    ("POST", f"{CONSOLE}/query"): Request(f"{CONSOLE}/query", "SELECT", QUERY),
    ("POST", f"{CONSOLE}/download"): Request(f"{CONSOLE}/download", "SELECT", QUERY),
    ("GET", f"{CONSOLE}/names"): Request(f"{CONSOLE}/names?db=db&word=t", "login"),
    ("GET", f"{CONSOLE}/server"): Request(f"{CONSOLE}/server", "login"),
    ("GET", f"{CONSOLE}/audit"): Request(f"{CONSOLE}/audit", "login", status=403),  # needs ADMIN
    ("GET", f"{CONSOLE}/settings"): Request(f"{CONSOLE}/settings", "login", status=403),
}
# User -> the privileges that it has on `db`; it has all on another database.
USERS = {"stranger": (), "reader": ("SELECT",), "maker": ("ALTER", "SELECT"), "loader": ("LOAD",)}


@contextmanager
def open_store(path: Path) -> Iterator[Store]:
    with Store.open(path) as opened:
        for database in ("db", "other"):
            opened.create_database(database)
        table = opened.create_table("db.t", schema_of("k INT NOT NULL", "v INT"))
        table.upsert(pa.table({"k": [1], "v": [1]}), label="stored")
        formats = {"delta.universalFormat.enabledFormats": "iceberg", "open_every_seconds": "0"}
        opened.create_table("db.opened", schema_of("k INT NOT NULL", **formats)).upsert(pa.table({"k": [1]}))
        with table.begin_load(label="pending") as load:
            load.write(pa.table({"k": [2], "v": [2]}))
            load.precommit()
        for user, privileges in USERS.items():
            opened.accounts.create(user, "")
            opened.accounts.grant(user, ["ALL"], "other")
            if privileges:
                opened.accounts.grant(user, privileges, "db")
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def client(store: Store) -> Iterator[Client]:
    with serving(store) as running:
        yield running


@pytest.fixture(scope="module")
def unchanged_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One for all requests that are to change nothing."""
    with open_store(tmp_path_factory.mktemp("routes") / "data") as opened:
        yield opened


@pytest.fixture(scope="module")
def unchanged(unchanged_store: Store) -> Iterator[Client]:
    """Its server; each wrong login is long after the one before, so that none of them waits."""
    guard = LoginGuard(partial(next, itertools.count(step=3600.0)))
    with serving(unchanged_store, guard) as running:
        yield running


def ask(client: Client, route: tuple[str, str], user: str | None) -> Answer:
    request = REQUESTS[route]
    return client.request(route[0], request.path, request.body or None, dict(request.headers), user)


def facts(store: Store) -> tuple[object, ...]:
    """What a request could have changed."""
    label = store.find_transaction("db", "pending")
    assert label is not None
    return store.table("db.t").version, label.status, [len(store.tables(name)) for name in store.databases()]


def is_denied(answer: Answer, privilege: str) -> bool:
    """Whether an answer tells of a lacking privilege, and nothing else."""
    if not answer.body:  # of a HEAD
        return answer.status == 403
    if not answer.headers.get("Content-Type", "").startswith("application/json"):
        return False
    text = json.dumps(answer.json)
    is_hidden = "Unknown database 'db'" in text  # as SQL says to a user that sees nothing of it
    return (
        f"needs the {privilege} privilege on database 'db'" in text or is_hidden
    ) and "VISIBLE" not in text


def test_no_route_is_left_out(store: Store) -> None:
    """A new route is added to REQUESTS with the privilege that it needs."""
    routes = HttpService(ServerSessions(store), ServerSettings(), 0).all_routes()
    assert {(each.method, "/" + "/".join(each.path)) for each in routes} == REQUESTS.keys()
    is_open = {(each.method, "/" + "/".join(each.path)) for each in routes if each.is_open}
    assert is_open == {route for route, request in REQUESTS.items() if not request.needs}


@pytest.mark.parametrize("route", REQUESTS, ids=" ".join)
def test_a_request_without_a_login_is_refused_unless_the_route_is_open(
    unchanged: Client, unchanged_store: Store, route: tuple[str, str]
) -> None:
    before, request = facts(unchanged_store), REQUESTS[route]
    expected = 401 if request.needs else request.status
    assert ask(unchanged, route, None).status == expected
    if route[1] == "/metrics":  # its answer depends on the login
        expected = 401
    for user in ("reader:wrong", "nobody:"):
        assert ask(unchanged, route, user).status == expected
    assert facts(unchanged_store) == before


@pytest.mark.parametrize(
    ("route", "user"),
    [
        pytest.param(route, user, id=f"{' '.join(route)}-{user}")
        for route, request in REQUESTS.items()
        for user in USERS
        if request.needs not in USERS[user]
    ],
)
def test_a_request_without_the_privilege_is_refused_and_changes_nothing(
    unchanged: Client, unchanged_store: Store, route: tuple[str, str], user: str
) -> None:
    before, request = facts(unchanged_store), REQUESTS[route]
    answer = ask(unchanged, route, f"{user}:")
    if request.needs in ("", "login"):
        assert answer.status == request.status
    else:
        assert is_denied(answer, request.needs), answer.body
    assert facts(unchanged_store) == before


@pytest.mark.parametrize("route", REQUESTS, ids=" ".join)
def test_a_request_with_the_privilege_is_answered(
    client: Client, store: Store, route: tuple[str, str]
) -> None:
    before = facts(store)
    answer = ask(client, route, "reader:" if REQUESTS[route].needs == "SELECT" else "loader:")
    assert answer.status == REQUESTS[route].status
    assert not is_denied(answer, REQUESTS[route].needs)
    assert (facts(store) != before) == (route[0] == "PUT")


@pytest.mark.parametrize("is_trickling", [False, True], ids=["stalled", "trickling"])
def test_a_body_that_does_not_come_ends_its_request(store: Store, is_trickling: bool) -> None:
    """Only stream loads had a limit of time for their bodies."""
    with serving(store, body_idle_seconds=1, body_bytes_per_second_min=1000) as client, ExitStack() as held:
        waiting = {}
        for (method, name), request in REQUESTS.items():
            user = "reader:" if request.needs == "SELECT" else "loader:"
            headers = {"Authorization": basic(user), "Origin": f"http://{client.host}:{client.port}"}
            lines = [f"{key}: {value}" for key, value in (headers | request.headers).items()]
            head = [f"{method} {request.path} HTTP/1.1", f"Host: {client.host}:{client.port}", *lines]
            connection = held.enter_context(socket.create_connection((client.host, client.port), timeout=60))
            connection.sendall("\r\n".join((*head, "Content-Length: 2000", "", "{")).encode())
            waiting[f"{method} {name}"] = connection
        ended = threading.Event()

        def trickle() -> None:
            while is_trickling and not ended.wait(0.1):
                for each in waiting.values():
                    with suppress(OSError):
                        each.sendall(b" ")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            for name, connection in waiting.items():
                assert _answered(connection), name
        finally:
            ended.set()
            thread.join()


def _answered(connection: socket.socket) -> bool:
    """Whether the server answers a request or closes its connection; waits until it is closed."""
    try:
        found = connection.recv(1)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return found in (b"H", b"")
