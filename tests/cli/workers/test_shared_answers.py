"""What one worker answers, the other one answers too: sessions, limits, loads, logins, metrics."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pymysql
import pytest

from seqstore.cli.clients.shared import Shared
from seqstore.cli.workers.hub_client import HubClient
from seqstore.cli.workers.worker_shared import shared_by
from seqstore.store.sql.session.server_context import ServerContext
from tests.cli.mysql_client import ask
from tests.cli.server.test_routes import REQUESTS
from tests.cli.workers.worker_server import (
    ENDLESS,
    WorkerClient,
    WorkerServer,
    eventually,
    running_query,
)
from tests.support.http_server import Answer, basic


def listed(connection: Any) -> dict[int, str]:
    """Number -> text of SHOW FULL PROCESSLIST."""
    return {int(row[1]): row[11] for row in ask(connection, "SHOW FULL PROCESSLIST")}


def test_the_process_list_has_the_sessions_of_all_workers(server: WorkerServer, places: list[int]) -> None:
    with closing(server.mysql(places[0])) as first, closing(server.mysql(places[1])) as second:
        numbers = {first.thread_id(), second.thread_id()}
        assert len(numbers) == 2
        for connection in (first, second):
            assert numbers <= listed(connection).keys()
            rows = ask(connection, "SELECT ID FROM information_schema.processlist")
            assert numbers <= {int(row[0]) for row in rows}


def test_kill_ends_a_query_of_another_worker_and_its_session_goes_on(
    server: WorkerServer, places: list[int]
) -> None:
    with closing(server.mysql(places[0])) as first, closing(server.mysql(places[1])) as second:
        with running_query(second) as errors:
            number = second.thread_id()
            eventually(lambda: listed(first).get(number) == ENDLESS, "query in the list of the other worker")
            ask(first, f"KILL QUERY {number}")
        assert errors
        assert ask(second, "SELECT 1") == [(1,)]


def test_kill_ends_a_connection_of_another_worker(server: WorkerServer, places: list[int]) -> None:
    with closing(server.mysql(places[0])) as first:
        second = server.mysql(places[1])
        ask(first, f"KILL {second.thread_id()}")
        with pytest.raises(pymysql.err.Error):
            ask(second, "SELECT 1")
        with pytest.raises(pymysql.err.Error, match="Unknown thread id: 4000000"):
            ask(first, "KILL 4000000")


def test_a_user_sees_and_kills_its_own_sessions_only(server: WorkerServer, places: list[int]) -> None:
    with (
        closing(server.mysql(places[0], user="ann")) as ann,
        closing(server.mysql(places[1])) as root,
        closing(server.mysql(places[1], user="ann")) as other,
    ):
        own = {ann.thread_id(), other.thread_id()}  # those of the test before may not have ended yet
        eventually(lambda: listed(ann).keys() == own, "list of the two")
        with pytest.raises(pymysql.err.Error, match="Unknown thread id"):
            ask(ann, f"KILL {root.thread_id()}")


def test_connections_of_a_user_are_counted_over_all_workers(server: WorkerServer, places: list[int]) -> None:
    """The user may have three; they are opened again until both workers have some of them."""
    options = {"host": "127.0.0.1", "port": server.mysql_port, "user": "bob"}
    found: set[int] = set()

    def opened() -> list[Any]:
        made: list[Any] = []
        while len(made) < 3:
            try:
                made.append(pymysql.connect(**options))
            except pymysql.err.Error:  # the server has not noticed yet that one before has left
                assert len(made) < 3
        return made

    while found != set(places):
        connections = opened()
        found = {server.worker_of(each._sock) for each in connections}
        with pytest.raises(pymysql.err.Error, match="max_user_connections"):
            pymysql.connect(**options)
        for each in connections:
            each.close()


def test_loads_of_a_user_are_counted_over_all_workers(server: WorkerServer, places: list[int]) -> None:
    """The server lets a user run one load; the other one waits in another worker."""
    slow = socket.create_connection((server.client.host, server.client.port), timeout=120)
    head = f"PUT /api/db/t/_stream_load HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('ann:')}\r\n"
    slow.sendall(f"{head}column_separator: ,\r\nlabel: slow\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    place = server.worker_of(slow)
    other = server.http(next(each for each in places if each != place))
    eventually(lambda: b"seqstore_stream_loads_running" in metrics(server) and is_loading(server), "load")
    replies: list[Any] = []
    thread = threading.Thread(target=lambda: replies.append(other.load("t", "7,7\n", user="ann:")))
    thread.start()
    assert server.client.load("t", "8,8\n", user="bob:")["Status"] == "Success", "other users go on"
    assert not replies
    slow.sendall(b"4\r\n6,6\n\r\n0\r\n\r\n")
    assert b"Success" in slow.recv(65536)
    thread.join()
    assert replies[0]["Status"] == "Success"
    slow.close()


def metrics(server: WorkerServer) -> bytes:
    return server.client.request("GET", "/metrics", user=None).body


def is_loading(server: WorkerServer) -> bool:
    return bool(re.search(rb'seqstore_stream_loads_running{worker="\d"} 1.0', metrics(server)))


def test_statements_of_a_workload_group_are_counted_over_all_workers(
    server: WorkerServer, places: list[int]
) -> None:
    with closing(server.mysql(places[0])) as root:
        eventually(lambda: sessions_of(root, "ann") == 0, "end of the connections of the test before")
    with (
        closing(server.mysql(places[0])) as root,
        closing(server.mysql(places[0], user="ann")) as first,
        closing(server.mysql(places[1], user="ann")) as second,
    ):
        ask(root, 'CREATE WORKLOAD GROUP small PROPERTIES ("max_concurrency" = "1", "max_queue_size" = "0")')
        ask(root, "SET PROPERTY FOR 'ann' 'default_workload_group' = 'small'")
        with running_query(first) as errors:
            eventually(lambda: running_in_group(root) == 1, "running statement")
            with pytest.raises(pymysql.err.Error, match="query waiting queue is full"):
                ask(second, "SELECT count(*) FROM db.t")
            ask(root, f"KILL QUERY {first.thread_id()}")
        assert errors
        eventually(lambda: is_answered(second, "SELECT count(*) FROM db.t"), "free place")


def sessions_of(connection: Any, user: str) -> int:
    """How many sessions a user has in all workers."""
    found = ask(connection, f"SELECT count(*) FROM information_schema.processlist WHERE USER = '{user}'")
    return int(found[0][0])


def is_answered(connection: Any, text: str) -> bool:
    """Whether there was a place for a statement: one is answered before it gives its place back."""
    try:
        return bool(ask(connection, text))
    except pymysql.err.Error:
        return False


def running_in_group(connection: Any) -> int:
    found = ask(connection, "SELECT * FROM information_schema.workload_groups WHERE NAME = 'small'")
    return int(found[0][6])


def test_a_global_variable_holds_in_all_workers(server: WorkerServer, places: list[int]) -> None:
    with closing(server.mysql(places[0])) as first, closing(server.mysql(places[1])) as second:
        ask(first, "SET GLOBAL query_timeout = 777")
        assert ask(second, "SELECT @@global.query_timeout")[0][0] in (777, "777")
    with closing(server.mysql(places[1])) as later:
        assert ask(later, "SELECT @@query_timeout")[0][0] in (777, "777")


def test_a_token_holds_in_all_workers(server: WorkerServer, places: list[int]) -> None:
    form = "grant_type=client_credentials&client_id=ann&client_secret="
    answer = server.http(places[0]).request("POST", "/iceberg/v1/oauth/tokens", form, user=None)
    token = {"Authorization": f"Bearer {answer.json['access_token']}"}
    for place in places:
        found = server.http(place).request("GET", "/iceberg/v1/config", headers=token, user=None)
        assert found.status == 200


def test_metrics_have_the_loads_of_each_worker(server: WorkerServer, places: list[int]) -> None:
    clients = [server.http(place) for place in places]

    def loads(client: Any) -> dict[bytes, float]:
        body = client.request("GET", "/metrics", user=None).body
        found = re.findall(rb'seqstore_stream_loads_total{status="Success",worker="(\d)"} (\S+)', body)
        return {worker: float(count) for worker, count in found}

    before = loads(clients[0])
    for client in clients:
        assert client.load("t", "1,1\n")["Status"] == "Success"
    after = loads(clients[1])
    assert after.keys() == {b"0", b"1"}
    assert {worker: count - before.get(worker, 0) for worker, count in after.items()} == {b"0": 1, b"1": 1}


def test_a_load_and_its_errors_are_known_to_all_workers(server: WorkerServer, places: list[int]) -> None:
    clients = [server.http(place) for place in places]
    for i, client in enumerate(clients):
        other = clients[1 - i]
        reply = client.load("t", "1,1\nx,1\n", label=f"both-{i}", max_filter_ratio="1")
        assert reply["Status"] == "Success"
        path = reply["ErrorURL"].partition(f":{server.client.port}")[2]
        assert b"x,1" in other.request("GET", path).body
        state = other.request("GET", f"/api/db/get_load_state?label=both-{i}").json
        assert state["data"] == "VISIBLE"
        info = other.request("GET", f"/api/db/_load_info?label=both-{i}").json
        assert info["jobInfo"]["state"] == "FINISHED"
        again = other.load("t", "1,1\n", label=f"both-{i}")
        assert again["Status"] == "Label Already Exists"
        with closing(server.mysql(other.worker, database="db")) as connection:
            rows = ask(connection, "SHOW STREAM LOAD")
            assert any(f"both-{i}" in map(str, row) for row in rows)


@pytest.mark.parametrize("operation", ["commit", "abort"])
def test_a_load_in_two_phases_ends_in_another_worker(
    server: WorkerServer, places: list[int], operation: str
) -> None:
    first, second = (server.http(place) for place in places)
    key = 500 if operation == "commit" else 501
    headers = {"label": f"two-{operation}", "two_phase_commit": "true"}
    assert first.load("t", f"{key},1\n", **headers)["Status"] == "Success"
    given = {"label": f"two-{operation}", "txn_operation": operation}
    assert second.request("PUT", "/api/db/_stream_load_2pc", headers=given).json["status"] == "Success"
    with closing(server.mysql(places[0])) as connection:
        count = ask(connection, f"SELECT count(*) FROM db.t WHERE k = {key}")[0][0]
    assert count == (operation == "commit")


def test_a_committed_row_is_seen_by_all_workers_at_once(server: WorkerServer, places: list[int]) -> None:
    clients = [server.http(place) for place in places]
    with (
        closing(server.mysql(places[0], autocommit=True)) as first,
        closing(server.mysql(places[1], autocommit=True)) as second,
    ):
        for i in range(20):
            clients[i % 2].load("t", f"900,{i}\n")
            for each in (first, second):
                assert ask(each, "SELECT v FROM db.t WHERE k = 900") == [(i,)]


VOLATILE = {
    ("PUT", "/api/{}/{}/_stream_load"): "every load has its own transaction",
    ("PUT", "/api/_http_stream"): "every load has its own transaction",
    ("PUT", "/api/{}/_stream_load_2pc"): "the first one ends the load",
    ("PUT", "/api/{}/{}/_stream_load_2pc"): "the first one ends the load",
    ("PUT", "/api/console/load/{}/{}"): "every load has its own transaction",
    ("GET", "/api/console/server"): "the memory of the process that is asked",
    ("GET", "/metrics"): "the memory of the processes",
    ("GET", "/api/{}/{}/_query_plan"): "it has a time",
    ("POST", "/api/{}/{}/_query_plan"): "it has a time",
}


@pytest.mark.family(12)
@pytest.mark.parametrize("route", REQUESTS, ids=" ".join)
def test_every_route_has_one_answer_in_all_workers(
    server: WorkerServer, places: list[int], route: tuple[str, str]
) -> None:
    """A new route is walked here by itself: its answer is the same in both workers, or it says why not."""
    for _ in range(5 if route[0] == "GET" else 1):  # a compaction or a minute may end between two of them
        answers = answers_of(server, places, route)
        bodies = [without_time(answer.body) for answer in answers]
        if bodies[0] == bodies[1]:
            break
    assert answers[0].status == answers[1].status
    if route not in VOLATILE:
        assert bodies[0] == bodies[1]


def answers_of(server: WorkerServer, places: list[int], route: tuple[str, str]) -> list[Answer]:
    request = REQUESTS[route]
    return [
        server.http(place).request(
            route[0],
            request.path,
            request.body or None,
            dict(request.headers),
            "root:" if request.needs else None,
        )
        for place in places
    ]


def without_time(body: bytes) -> bytes:
    return re.sub(rb'"(time|(age_)?seconds|milliseconds)": ?[\d.]+', b"", body)


STATEMENTS = [
    "SHOW FULL PROCESSLIST",
    "SELECT ID, USER FROM information_schema.processlist ORDER BY ID",
    "SHOW GLOBAL VARIABLES",
    "SELECT * FROM information_schema.global_variables ORDER BY 1",
    "SHOW WORKLOAD GROUPS",
    "SHOW FRONTENDS",
    "SHOW BACKENDS",
    "SHOW STREAM LOAD FROM db",
    "SHOW LOAD FROM db",
    "SHOW ROUTINE LOAD FOR db",
    "SHOW DATABASES",
    "SHOW TABLES FROM db",
    "SHOW ALL GRANTS",
    "SHOW ROLES",
]


@pytest.mark.family(6)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_of_the_whole_server_have_one_answer(
    server: WorkerServer, places: list[int], statement: str
) -> None:
    with closing(server.mysql(places[0])) as first, closing(server.mysql(places[1])) as second:
        # A connection of the test before may end between the two.
        eventually(lambda: answer_to(first, statement) == answer_to(second, statement), "one answer")


def answer_to(connection: Any, statement: str) -> str:
    """The rows or the error, without what differs from one asking to the next."""
    try:
        rows = ask(connection, statement)
    except pymysql.err.Error as error:
        return str(error)
    if "PROCESSLIST" in statement:  # which one asks, and since when
        rows = [(row[1], row[2]) for row in rows]
    return json.dumps(rows, default=str)


def test_every_part_that_sessions_share_is_shared_between_workers() -> None:
    """A new part of `Shared` or `ServerContext` must be told to the others, or belong to one connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        shared, alone = shared_by(HubClient(ours), 0, 2, {}), Shared()
        for each in dataclasses.fields(Shared):
            value, other = getattr(shared, each.name), getattr(alone, each.name)
            assert type(value) is not type(other) or value is not other
            if not callable(value):
                assert type(value) is not type(other), f"{each.name} is that of a server of one process"
    known = {"global_variables", "processes", "queues", "ports"}  # shared, or the same in all
    own = {"connection_id", "has_client", "load_jobs"}  # of one connection; jobs are in the catalog
    assert {each.name for each in dataclasses.fields(ServerContext)} == known | own


def test_failed_logins_are_counted_over_all_workers(server: WorkerServer, places: list[int]) -> None:
    """Ten guesses and one more a second are heard, whoever takes them; two that count alone would hear 20.

    The last test of the module: the address is refused for some seconds.
    """
    clients = [server.http(place) for place in places]

    def guesses(client: WorkerClient) -> list[int]:
        return [client.request("GET", "/iceberg/v1/config", user="nobody:wrong").status for _ in range(20)]

    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        statuses = [status for found in threads.map(guesses, clients) for status in found]
    heard = statuses.count(401)
    assert heard + statuses.count(429) == 40
    assert 10 <= heard <= 11 + time.monotonic() - began, statuses
