"""Loads of 1,000 rows without end, by 1, 8 and 64 clients in one process; a value is seconds a load.

No two rows have the same sequence, so what must be stored does not depend on the order of the clients.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.engine.site import Site
from bench.engine.workload import Workload
from bench.inputs.cdc import whole_keys
from bench.inputs.orders import SEQUENCE, update_batch
from bench.inputs.script import Script, Step, differences
from bench.peers.base import KeyedPeer
from bench.peers.catalog import OURS, PEERS
from bench.trials.trial import Contender, Trial

CLIENTS: Final = (1, 8, 64)
_TAKING_PART: Final = ("seqstore", "duckdb-pk", "duckdb-append", "clickhouse", "sqlite", "lmdb")
_ROUNDS: Final = 3
_POOL: Final = 32  # batches that a client's loads are made of
_STEP: Final = 1 << 20


def workloads() -> list[Workload]:
    """One for each number of clients."""
    return [_workload(clients) for clients in CLIENTS]


def _workload(clients: int) -> Workload:
    @contextmanager
    def prepare(site: Site, slow: bool) -> Iterator[Trial]:
        del slow
        yield from _trial(site, clients)

    title = f"loads of 1k rows, {clients} client{'s' * (clients > 1)}"
    return Workload(f"small_loads_{clients}", title, prepare, group="small loads", clients=clients)


def _trial(site: Site, clients: int) -> Iterator[Trial]:
    rows = min(site.sizes.small_batch, site.sizes.rows)
    script = whole_keys(site.sizes.rows, rows, 1, site.seed)
    pool = [update_batch(site.sizes.rows, rows, number + 1, site.seed) for number in range(_POOL)]
    skipped: dict[str, str] = {}
    contenders = []
    with ExitStack() as closing:
        for name in _TAKING_PART:
            peer = PEERS[name]
            if peer is not OURS and not site.takes_part(name):
                continue
            if (reason := peer.why_not(script)) is not None:
                skipped[name] = reason
                continue
            table = peer(site.new_path(name), script.spec)
            closing.callback(table.close)
            table.load(script.base)
            contenders.append(_Loaders(table, script, pool, clients, site.sizes.client_seconds).contender())
        ours, *yardsticks = contenders
        limit, rounds = site.contender_seconds(len(contenders)), site.sizes.rounds(_ROUNDS)
        yield Trial(ours, yardsticks, rounds=rounds, warmups=1, skipped=skipped, seconds_max=limit)


class _Loaders:
    """The clients of one peer. Those of a store that takes one call at a time wait for each other."""

    def __init__(
        self, table: KeyedPeer, script: Script, pool: list[pa.Table], clients: int, seconds: float
    ) -> None:
        self._table, self._script, self._pool, self._seconds = table, script, pool, seconds
        self._own = [table.another() for _ in range(clients)]
        self._turn = threading.Lock()
        self._numbers = count()
        self._loads: list[pa.Table] = []
        self._taken: list[float] = []

    def contender(self) -> Contender:
        name = self._table.name
        return Contender(
            name, self._round, check=self._findings, settle=self._table.settle, facts=self._facts
        )

    def _round(self, _: int) -> float:
        until = time.perf_counter() + self._seconds
        before = len(self._loads)
        errors: list[BaseException] = []

        def work(table: KeyedPeer) -> None:
            try:
                while time.perf_counter() < until:
                    self._load(table)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(table,)) for table in self._own]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - started
        if errors:
            raise errors[0]
        return elapsed / (len(self._loads) - before)

    def _load(self, table: KeyedPeer) -> None:
        number = next(self._numbers)
        rows = _numbered(self._pool[number % len(self._pool)], number)
        began = time.perf_counter()
        if self._table.takes_many:
            table.upsert(rows)
        else:
            with self._turn:
                table.upsert(rows)
        self._taken.append(time.perf_counter() - began)
        self._loads.append(rows)

    def _findings(self) -> list[str]:
        done = Script(self._script.spec, self._script.base, [Step("upsert", rows) for rows in self._loads])
        return differences(done.expected(len(self._loads)), self._table.scan())

    def _facts(self) -> dict[str, Any]:
        cuts = np.quantile(self._taken, (0.5, 0.95, 0.99))
        return {
            "version": self._table.version(),
            "setup": self._table.setup,
            "is_durable": self._table.is_durable,
            "latency": dict(zip(("p50", "p95", "p99"), map(float, cuts), strict=True)),
            "operations": len(self._taken),
        }


def _numbered(rows: pa.Table, number: int) -> pa.Table:
    """The rows with sequences that no other load has: late rows stay behind those of the base."""
    old = np.asarray(rows.column(SEQUENCE))
    late = old < np.median(old) - 1_000
    places = np.arange(len(rows))
    sequence = (number + 1) * _STEP + places + 2**32
    sequence[late] = places[late] - (number + 1) * _STEP
    at = rows.schema.get_field_index(SEQUENCE)
    return rows.set_column(at, rows.schema.field(at), pa.array(sequence))
