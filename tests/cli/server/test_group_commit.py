"""Group commit with many clients over HTTP: what a load waits for, counted in publishes and fsyncs."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from seqstore import Store
from seqstore.store.catalog.environment import environment
from tests.support.http_server import Client, serving

CLIENTS = 64
LOADS = 4
ROWS = 100


TABLES = """
CREATE TABLE t (k INT NOT NULL, v INT) UNIQUE KEY(k);
"""
pytestmark = [pytest.mark.settings(auto_compaction=0), pytest.mark.sql(TABLES)]


class Syncs:
    """Counts what waits for the disk: commits of the catalog, and files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits = self.files = 0
        self._commit, self._fsync = environment._commit, os.fsync
        monkeypatch.setattr(environment, "_commit", self.commit)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def commit(self, env: Any, txn: Any) -> None:
        self.commits += 1
        self._commit(env, txn)

    def fsync(self, descriptor: int) -> None:
        self.files += 1
        self._fsync(descriptor)


def metrics_of(client: Client) -> dict[str, int]:
    text = client.request("GET", "/metrics").body.decode()
    found = re.findall(
        r'^seqstore_group_commit_(\w+?)_total(?:\{waited_for="(\w+)"\})? (\d+)\.0$', text, re.M
    )
    return {f"{name} {waited}".strip(): int(value) for name, waited, value in found}


def test_no_load_waits_for_more_than_one_publish_before_its_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6: 64 clients with loads of 100 rows. A publish is one fsync, so none waits for two beyond its own."""

    def run(number: int) -> list[str]:
        statuses = []
        for load in range(LOADS):
            first = (number * LOADS + load) * ROWS
            body = "".join(f"{k},{number}\n" for k in range(first, first + ROWS))
            statuses.append(client.load("t", body, group_commit="sync_mode")["Status"])
        return statuses

    with serving(store) as client:
        client.load("t", "-1,0\n")
        before = metrics_of(client)
        syncs = Syncs(monkeypatch)
        with ThreadPoolExecutor(CLIENTS) as pool:
            statuses = [status for told in pool.map(run, range(CLIENTS)) for status in told]
        done = {name: value - before[name] for name, value in metrics_of(client).items()}
    assert statuses == ["Success"] * CLIENTS * LOADS
    assert done["loads 0"] + done["loads 1"] == CLIENTS * LOADS, done
    assert done["loads more"] == 0, done
    assert (syncs.commits, syncs.files) == (done["publishes"], 0), done
    assert done["publishes"] < CLIENTS * LOADS, done
    assert store.table("db.t").count() == 1 + CLIENTS * LOADS * ROWS
