"""Clients that retry by label while the server is killed again and again: every acknowledged row is there
once.

Each client owns its keys and sends batch after batch, each under a label of its own, until it is
acknowledged: `Success`, or `Label Already Exists` with FINISHED, is an acknowledgement; everything else, a
broken connection above all, is sent again. In the end the table holds exactly the acknowledged rows, plus
those of batches that were under way when the clock stopped, each wholly or not at all.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from http.client import HTTPException
from pathlib import Path

import pytest

from seqstore import Store
from seqstore.store.sql.session.session import Session
from tests.seeds import new_seed
from tests.support.http_server import Client, ServerProcess
from tests.weight import by_form, torture_minutes

ROWS = 20
PROGRESS_SECONDS_MAX = 120.0
WAYS = ("csv", "json", "chunked", "two phases")


class Soak:
    """One run: the server, its clients and what they were told."""

    def __init__(self, data_dir: Path, seed: int, clients: int) -> None:
        self.data_dir = data_dir
        self.seed = seed
        self.clients = clients
        self.acknowledged: dict[int, int] = dict.fromkeys(range(clients), 0)  # batches of each client
        self.outcomes: Counter[str] = Counter()
        self.over = threading.Event()
        self.failures: list[BaseException] = []
        self.told = threading.Condition()  # of acknowledgements and failures
        self.server = ServerProcess(data_dir)

    def run(self, seconds: float, kill_every: float) -> None:
        """Sends and kills for some time, then lets the clients end their batches."""
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(self.clients)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.failures:
            wanted = self._batches() + self.clients  # also where a server needs most of the time to start
            self.over.wait(min(kill_every, max(until - time.monotonic(), 0)))
            self._await(wanted)
            self.server.kill()
            self.server = ServerProcess(self.data_dir)
        self.over.set()
        for thread in threads:
            thread.join()
        self.server.kill()

    def _await(self, batches: int) -> None:
        """Waits for acknowledgements, or for a client that fails."""
        with self.told:
            self.told.wait_for(
                lambda: self._batches() >= batches or bool(self.failures), PROGRESS_SECONDS_MAX
            )

    def _batches(self) -> int:
        return sum(self.acknowledged.values())

    def _client(self, number: int) -> None:
        rng = random.Random(self.seed * 1000 + number)
        batch = 0
        try:
            while not self.over.is_set():
                if self._send(number, batch, rng.choice(WAYS)):
                    batch += 1
                    with self.told:
                        self.acknowledged[number] = batch
                        self.told.notify_all()
        except BaseException as error:
            with self.told:
                self.failures.append(error)
                self.told.notify_all()

    def _send(self, number: int, batch: int, way: str) -> bool:
        """Sends a batch once; whether it was acknowledged."""
        keys = [number * 1_000_000 + batch * ROWS + i for i in range(ROWS)]
        client = Client(self.server.client.address)
        label = f"client-{number}-batch-{batch}"
        try:
            if way == "json":
                body = "".join(json.dumps({"k": k, "batch": batch}) + "\n" for k in keys)
                reply = client.load("t", body, label=label, format="json")
            elif way == "chunked":
                reply = client.load("t", iter([f"{k},{batch}\n".encode() for k in keys]), label=label)
            else:
                two = {"two_phase_commit": "true"} if way == "two phases" else {}
                reply = client.load("t", "".join(f"{k},{batch}\n" for k in keys), label=label, **two)
            return self._is_done(client, label, reply)
        except (OSError, HTTPException, ValueError):  # killed; ValueError: half of an answer
            self.outcomes["broken"] += 1
            self.over.wait(0.05)
            return False

    def _is_done(self, client: Client, label: str, reply: dict[str, str]) -> bool:
        status, existing = reply["Status"], reply.get("ExistingJobStatus", "")
        self.outcomes[f"{status} {existing}".strip()] += 1
        if "PRECOMMITTED" in existing or (status == "Success" and reply.get("TwoPhaseCommit") == "true"):
            ended = {"label": label, "txn_operation": "commit"}
            told = client.request("PUT", "/api/db/_stream_load_2pc", None, ended).json
            return told["status"] == "Success" or "already visible" in told["msg"]
        assert status in ("Success", "Label Already Exists") or "stopping" in reply["Message"], reply
        return status == "Success" or existing == "FINISHED"


def check(soak: Soak) -> None:
    told = f"seed {soak.seed}, outcomes {dict(soak.outcomes)}"
    assert soak.failures == [], told
    with Store.open(soak.data_dir) as store:
        table = store.table("db.t")
        rows = table.scan().read_all()
        found = Counter(zip(rows.column("k").to_pylist(), rows.column("batch").to_pylist(), strict=True))
        assert table.check() == [], told
    assert not found or max(found.values()) == 1, told
    by_batch = Counter((k // 1_000_000, batch) for k, batch in found)
    assert set(by_batch.values()) <= {ROWS}, f"half of a batch; {told}"
    acknowledged = {(number, b) for number, count in soak.acknowledged.items() for b in range(count)}
    assert acknowledged <= set(by_batch), f"acknowledged rows are missing; {told}"
    under_way = set(by_batch) - acknowledged
    assert all(batch == soak.acknowledged[number] for number, batch in under_way), told
    assert len(acknowledged) > soak.clients, told
    assert all(k % 1_000_000 // ROWS == batch for k, batch in found), told


def new_soak(path: Path, clients: int) -> Soak:
    with Store.open(path) as store, Session(store) as session:
        list(
            session.execute(
                "CREATE DATABASE db; CREATE TABLE db.t (k BIGINT NOT NULL, batch INT NOT NULL) UNIQUE KEY(k)"
            )
        )
    return Soak(path, int(os.environ.get("SOAK_SEED", new_seed(10**6))), clients)


@pytest.mark.crash
def test_acknowledged_rows_are_there_exactly_once_after_kills(tmp_path: Path) -> None:
    soak = new_soak(tmp_path / "data", clients=8)
    soak.run(seconds=by_form(6, 12), kill_every=by_form(2, 4))
    check(soak)


@pytest.mark.torture
def test_acknowledged_rows_are_there_exactly_once_after_minutes_of_kills(tmp_path: Path) -> None:
    """32 clients for five minutes, a kill every 20 seconds."""
    soak = new_soak(tmp_path / "data", clients=32)
    soak.run(seconds=60 * min(torture_minutes(5), 5), kill_every=20)
    check(soak)
