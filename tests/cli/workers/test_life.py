"""The hub and its workers: deaths under load, replacements, stops, a lack of files, and one worker alone."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path

import psutil
import pymysql
import pytest

from seqstore import Store
from tests.cli.mysql_client import ask
from tests.cli.scan.flight_client import FlightClient
from tests.cli.workers.conftest import make_store
from tests.cli.workers.worker_server import (
    WorkerServer,
    eventually,
    running_query,
    serving_workers,
    write_settings,
)
from tests.seeds import new_seed
from tests.support.http_server import Client, ServerProcess, basic
from tests.weight import by_form

CLIENTS = 6
STOP_SECONDS = 5


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make_store(tmp_path / "data")
    return tmp_path / "data"


def rows_of(data: Path) -> dict[int, int]:
    """Key -> value of `db.t`; fails where a key has two rows."""
    with Store.open(data) as store:
        found = store.table("db.t").scan().read_all().to_pylist()
        store.table("db.t").check()
    rows = {row["k"]: row["v"] for row in found}
    assert len(rows) == len(found)
    return rows


def is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def has_another(server: WorkerServer, before: list[int]) -> bool:
    """Whether a worker runs that did not run before."""
    return bool(set(server.workers()) - set(before))


class Loader(threading.Thread):
    """A client with keys of its own, which repeats a load under its label until it is acknowledged."""

    def __init__(self, client: Client, number: int, loads: int, seed: int) -> None:
        super().__init__()
        self.client = client
        self.number = number
        self.loads = loads
        self.random = random.Random(seed * 1000 + number)
        self.expected: dict[int, int] = {}
        self.statuses: list[str] = []
        self.failures: list[str] = []
        self.broken = 0

    def run(self) -> None:
        for i in range(self.loads):
            keys = self.random.sample(range(40), self.random.randint(1, 20))
            rows = {self.number * 100 + key: self.random.randint(0, 9999) for key in keys}
            body = "".join(f"{key},{value}\n" for key, value in rows.items())
            self.load(body, f"load-{self.number}-{i}")
            self.expected.update(rows)

    def load(self, body: str, label: str) -> None:
        while True:
            try:
                reply = self.client.load("t", body, label=label)
            except (OSError, HTTPException):  # its worker was killed
                self.broken += 1
                time.sleep(0.01)
                continue
            self.statuses.append(reply["Status"])
            if reply["Status"] == "Success":
                return
            if reply["Status"] == "Label Already Exists":
                if reply["ExistingJobStatus"] == "FINISHED":
                    return
                time.sleep(0.05)  # the crash is not noticed yet: the load before still counts as running
                continue
            self.failures.append(str(reply))
            return


def run_loaders(server: WorkerServer, loads: int, seed: int) -> list[Loader]:
    loaders = [Loader(server.client, number, loads, seed) for number in range(CLIENTS)]
    for each in loaders:
        each.start()
    return loaders


def check_rows(data: Path, loaders: list[Loader], seed: int) -> None:
    assert not [each.failures for each in loaders if each.failures], f"seed {seed}"
    expected: dict[int, int] = {}
    for each in loaders:
        expected |= each.expected
    assert rows_of(data) == expected, f"seed {seed}"


def test_loads_through_three_workers_agree_with_the_model(data: Path) -> None:
    seed = new_seed(1 << 30)
    with serving_workers(data, 3) as server:
        loaders = run_loaders(server, by_form(12, 60), seed)
        for each in loaders:
            each.join()
        assert server.stop() == 0
    check_rows(data, loaders, seed)


def test_a_worker_killed_under_load_is_replaced_and_loses_nothing(data: Path) -> None:
    """Each client repeats what was not acknowledged, by its label: every load is there once."""
    seed = new_seed(1 << 30)
    chance = random.Random(seed)
    with serving_workers(data, 2) as server:
        loaders = run_loaders(server, by_form(25, 120), seed)
        for _ in range(by_form(2, 8)):
            before = server.workers()
            time.sleep(chance.random() * 0.3)
            os.kill(chance.choice(before), signal.SIGKILL)
            eventually(partial(has_another, server, before), "new worker")
        for each in loaders:
            each.join()
        eventually(lambda: len(server.workers()) == 2, "second worker")
        for place in server.workers():
            with closing(server.mysql(place)) as connection:
                assert ask(connection, "SELECT 1") == [(1,)]
        assert server.stop() == 0
    check_rows(data, loaders, seed)


def test_clients_of_a_killed_worker_see_a_closed_connection(data: Path) -> None:
    with serving_workers(data, 2) as server:
        first, second = server.workers()
        http, mysql, other = server.http(first), server.mysql(first), server.mysql(second)
        assert http.request("GET", "/health").status == 200
        os.kill(first, signal.SIGKILL)
        with pytest.raises((OSError, HTTPException)):
            http.request("GET", "/health")
        with pytest.raises(pymysql.err.Error):
            ask(mysql, "SELECT 1")
        assert ask(other, "SELECT 1") == [(1,)]
        other.close()
        mysql.close()


def test_the_place_of_a_killed_worker_is_free_again(tmp_path: Path, data: Path) -> None:
    """The connections of a user that a dead worker held do not count any more."""
    config = write_settings(tmp_path / "server.toml", mysql_user_connections_max=1)
    with serving_workers(data, 2, "--config", str(config)) as server:
        options = {"host": "127.0.0.1", "port": server.mysql_port, "user": "ann"}
        held = pymysql.connect(**options)
        os.kill(server.worker_of(held._sock), signal.SIGKILL)

        def again() -> bool:
            with suppress(pymysql.err.Error), closing(pymysql.connect(**options)):
                return True
            return False

        eventually(again, "place for another connection")
        held.close()


def test_a_killed_worker_with_a_statement_that_runs_and_one_that_waits_ends_alone(data: Path) -> None:
    """The hub ended, and all workers with it."""
    with serving_workers(data, 2) as server:
        doomed, other = before = server.workers()
        with (
            closing(server.mysql(other)) as root,
            closing(server.mysql(doomed, user="ann")) as first,
            closing(server.mysql(doomed, user="ann")) as second,
        ):
            ask(
                root,
                'CREATE WORKLOAD GROUP small PROPERTIES ("max_concurrency" = "1", "max_queue_size" = "9")',
            )
            ask(root, "SET PROPERTY FOR 'ann' 'default_workload_group' = 'small'")

            def counts() -> tuple[int, int]:
                found = ask(root, "SELECT * FROM information_schema.workload_groups WHERE NAME = 'small'")
                return int(found[0][6]), int(found[0][7])

            with running_query(first) as errors, running_query(second) as more_errors:
                eventually(lambda: counts() == (1, 1), "statement that waits")
                os.kill(doomed, signal.SIGKILL)
            assert errors
            assert more_errors
            eventually(lambda: has_another(server, before), "new worker")
            assert counts() == (0, 0)
            assert other in server.workers()


@pytest.mark.long
def test_a_worker_that_is_replaced_leaves_the_spill_folders_of_others(data: Path) -> None:
    """One of place 0 removed them all, and queries of the others had no room on disk from then on."""
    with serving_workers(data, 2) as server:
        for doomed in server.workers():
            before = server.workers()
            os.kill(doomed, signal.SIGKILL)
            eventually(partial(has_another, server, before), "new worker")
            [new] = set(server.workers()) - set(before)
            server.mysql(new).close()  # it serves, so it has made its own folder
            assert sorted(each.name for each in (data / "spill").iterdir()) == ["worker-0", "worker-1"]


@pytest.mark.long
def test_what_was_told_holds_in_a_worker_that_begins_later(data: Path) -> None:
    with serving_workers(data, 2) as server:
        before = server.workers()
        with closing(server.mysql(before[0])) as connection:
            ask(connection, "SET GLOBAL query_timeout = 555")
        form = "grant_type=client_credentials&client_id=ann&client_secret="
        answer = server.client.request("POST", "/iceberg/v1/oauth/tokens", form, user=None)
        token = {"Authorization": f"Bearer {answer.json['access_token']}"}
        os.kill(before[1], signal.SIGKILL)
        eventually(lambda: has_another(server, before), "new worker")
        [new] = set(server.workers()) - set(before)
        with closing(server.mysql(new)) as connection:
            assert ask(connection, "SELECT @@query_timeout")[0][0] in (555, "555")
        assert server.http(new).request("GET", "/iceberg/v1/config", headers=token, user=None).status == 200


@pytest.mark.parametrize(("setting", "scheme"), [("thrift_port", "thrift"), ("flight_port", "grpc")])
def test_the_first_worker_is_replaced_with_its_services_on_their_ports(
    tmp_path: Path, data: Path, setting: str, scheme: str
) -> None:
    config = write_settings(tmp_path / "server.toml", **{setting: 0})
    with serving_workers(data, 2, "--config", str(config)) as server:
        port = server.port(scheme)
        before = server.workers()
        listening = [
            pid
            for pid in before
            if any(each.laddr.port == port for each in psutil.Process(pid).net_connections("tcp"))
        ]
        assert len(listening) == 1
        os.kill(listening[0], signal.SIGKILL)

        def serves() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        eventually(lambda: len(set(server.workers()) - set(before)) == 1 and serves(), f"{scheme} service")
        if scheme == "thrift":
            nodes = server.client.request("GET", "/rest/v2/manager/node/backends").json
            assert str(port) in str(nodes)
        else:
            assert FlightClient(port).query("SELECT 1 AS n").to_pylist() == [{"n": 1}]


def begin_load(server: WorkerServer) -> socket.socket:
    """Sends the head and a part of a load, which one of the workers has accepted."""
    slow = socket.create_connection((server.client.host, server.client.port), timeout=120)
    head = f"PUT /api/db/t/_stream_load HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('ann:')}\r\n"
    slow.sendall(f"{head}column_separator: ,\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n6,6\n\r\n".encode())
    running = b"} 1.0"
    eventually(
        lambda: any(
            line.startswith(b"seqstore_stream_loads_running{") and line.endswith(running)
            for line in server.client.request("GET", "/metrics", user=None).body.splitlines()
        ),
        "running load",
    )
    return slow


@pytest.mark.long
def test_sigterm_stops_all_within_their_time(tmp_path: Path, data: Path) -> None:
    """A load that waits for its client is aborted after `stop_seconds`; a query ends at once."""
    config = write_settings(tmp_path / "server.toml", stop_seconds=STOP_SECONDS)
    with serving_workers(data, 2, "--config", str(config)) as server:
        workers = server.workers()
        slow = begin_load(server)
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < STOP_SECONDS + 60
        assert all(map(is_gone, workers))
        assert b"the server is stopping" in slow.recv(65536)
        slow.close()
    assert rows_of(data) == {}


def test_a_load_ends_although_all_processes_get_the_signal(data: Path) -> None:
    """systemd sends SIGTERM to every process of a service, so workers get it twice: nothing is abandoned."""
    with serving_workers(data, 2) as server:
        slow = begin_load(server)
        for pid in server.workers():
            os.kill(pid, signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)
        with suppress(ConnectionRefusedError):
            while True:  # until the hub has closed the ports
                socket.create_connection((server.client.host, server.client.port), timeout=60).close()
        slow.sendall(b"0\r\n\r\n")
        assert b"Success" in slow.recv(65536)
        slow.close()
        assert server.process.wait(60) == 0
    assert rows_of(data) == {6: 6}


@pytest.mark.long
def test_a_second_signal_abandons_what_runs(data: Path) -> None:
    with serving_workers(data, 2) as server:
        slow = begin_load(server)
        server.process.send_signal(signal.SIGTERM)
        with suppress(ConnectionRefusedError):
            while True:
                socket.create_connection((server.client.host, server.client.port), timeout=60).close()
        workers = server.workers()
        server.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        server.process.wait(60)
        assert time.monotonic() - begun < 25, "it did not wait for stop_seconds"
        assert all(map(is_gone, workers))
        slow.close()
    assert rows_of(data) == {}


def test_a_hub_that_is_killed_takes_its_workers_with_it(data: Path) -> None:
    with serving_workers(data, 3) as server:
        workers = server.workers()
        server.kill()
        eventually(lambda: all(map(is_gone, workers)), "end of the workers")
        with serving_workers(data, 2) as again:
            assert again.client.load("t", "1,1\n")["Status"] == "Success"
            assert again.stop() == 0
    assert rows_of(data) == {1: 1}


def test_a_certificate_signal_reaches_the_workers_and_ends_none(data: Path) -> None:
    with serving_workers(data, 2) as server:
        before = server.workers()
        server.process.send_signal(signal.SIGHUP)
        assert server.client.load("t", "1,1\n")["Status"] == "Success"
        assert server.workers() == before


def test_a_server_that_cannot_begin_says_why_and_ends(tmp_path: Path, data: Path) -> None:
    config = write_settings(tmp_path / "server.toml", host="0.0.0.0")
    with pytest.raises(RuntimeError, match="root has an empty password"):
        WorkerServer(data, 2, "--config", str(config))


def test_a_port_that_is_taken_is_named(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(RuntimeError, match="choose another --http-port"):
            WorkerServer(data, 2, "--http-port", port)


def test_clients_are_served_after_a_lack_of_files(data: Path) -> None:
    """Clients beyond the files of the processes wait, and are served when others leave."""
    with serving_workers(data, 2) as server:
        limits = [psutil.Process(pid).num_fds() + 12 for pid in server.workers()]
        for pid, limit in zip(server.workers(), limits, strict=True):
            psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE, (limit, limit))
        waiting = [socket.create_connection((server.client.host, server.client.port)) for _ in range(60)]
        last = socket.create_connection(("127.0.0.1", server.mysql_port), timeout=120)
        for each in waiting:
            each.close()
        assert last.recv(5), "the MySQL client that waited is served"
        last.close()
        assert server.client.request("GET", "/health").status == 200
        assert len(server.workers()) == 2


def test_one_worker_is_one_process(data: Path) -> None:
    """The default starts no hub and no other process, and answers without a label of workers."""
    server = ServerProcess(data)
    try:
        assert psutil.Process(server.process.pid).children() == []
        assert server.client.load("t", "1,1\n")["Status"] == "Success"
        assert b"worker=" not in server.client.request("GET", "/metrics", user=None).body
    finally:
        assert server.stop() == 0


def test_the_audit_log_has_the_lines_of_all_workers_in_files_of_their_size(
    tmp_path: Path, data: Path
) -> None:
    """Workers rename the file under each other; each of their lines is there once, and whole."""
    config = write_settings(tmp_path / "server.toml", audit_log_bytes_max=2_000)
    with serving_workers(data, 2, "--config", str(config)) as server:
        for place in server.workers():
            client = server.http(place)
            for i in range(30):
                client.load("t", f"{i},1\n", label=f"audited-{place}-{i}")
        expected = {f"audited-{place}-{i}" for place in server.workers() for i in range(30)}
        assert server.stop() == 0
    files = list((data / "audit").glob("audit*.log"))
    assert len(files) > 5
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    labels = [line["label"] for line in lines if line["event"] == "load"]
    assert sorted(labels) == sorted(expected)
