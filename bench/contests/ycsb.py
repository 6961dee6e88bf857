"""YCSB by stores of records: clients work for a while, in turns; a value is seconds a request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np

from bench.engine.site import Site
from bench.engine.workload import Workload
from bench.inputs import ycsb
from bench.inputs.ycsb import FIELDS, Request, Requests, Writes
from bench.records.base import Client, RecordStore
from bench.records.catalog import OURS, STORES
from bench.trials.trial import Contender, Trial

CLIENTS: Final = (1, 8, 64)
_ROUNDS: Final = 3
_SERIALS: Final = 1 << 20  # inserts of one client are numbered apart from those of the next


def workloads() -> list[Workload]:
    """All mixes with all numbers of clients."""
    return [_workload(mix, clients) for mix in ycsb.MIXES for clients in CLIENTS]


def _workload(mix: str, clients: int) -> Workload:
    @contextmanager
    def prepare(site: Site, slow: bool) -> Iterator[Trial]:
        del slow
        yield from _trial(site, mix, clients)

    title = f"YCSB {mix.upper()}, {clients} client{'s' * (clients > 1)}"
    return Workload(f"ycsb_{mix}_{clients}", title, prepare, group="YCSB", clients=clients)


def _trial(site: Site, mix: str, clients: int) -> Iterator[Trial]:
    rows = site.sizes.operations_rows
    records = ycsb.first_records(rows)
    skipped: dict[str, str] = {}
    contenders = []
    with ExitStack() as closing:
        for name, kind in STORES.items():
            if name not in OURS and not site.takes_part(name):
                continue
            if (reason := kind.why_not()) is not None:
                skipped[name] = reason
                continue
            try:
                store = kind(site.new_path(name))
                closing.callback(store.close)
                store.load(records)
                crowd = _Crowd(store, mix, rows, clients, site)
            except Exception as error:
                if name in OURS:
                    raise
                skipped[name] = f"did not start: {type(error).__name__}: {str(error)[:200]}"
                continue
            closing.callback(crowd.close)
            contenders.append(crowd.contender())
        ours, *yardsticks = contenders
        limit = site.contender_seconds(len(contenders))
        rounds = site.sizes.rounds(_ROUNDS)
        yield Trial(ours, yardsticks, rounds=rounds, warmups=1, skipped=skipped, seconds_max=limit)


class _Crowd:
    """The clients of one store."""

    def __init__(self, store: RecordStore, mix: str, rows: int, clients: int, site: Site) -> None:
        self._store, self._rows, self._seconds = store, rows, site.sizes.client_seconds
        self._clients = [store.client() for _ in range(clients)]
        self._requests = [iter(Requests(mix, rows, number, site.seed)) for number in range(clients)]
        self._writes = [Writes(number) for number in range(clients)]
        self._taken: list[float] = []

    def contender(self) -> Contender:
        return Contender(self._store.name, self._round, check=self._findings, facts=self._facts)

    def _round(self, _: int) -> float:
        """Lets all clients work for a while; seconds an operation of all together."""
        until = time.perf_counter() + self._seconds
        taken: list[list[float]] = [[] for _ in self._clients]
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                self._work(number, until, taken[number])
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(self._clients))]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - started
        if errors:
            raise errors[0]
        every = [seconds for each in taken for seconds in each]
        self._taken += every
        return elapsed / len(every)

    def _work(self, number: int, until: float, taken: list[float]) -> None:
        client, writes, requests = self._clients[number], self._writes[number], self._requests[number]
        while (began := time.perf_counter()) < until or not taken:
            _do(client, next(requests), writes, self._rows)
            taken.append(time.perf_counter() - began)

    def _findings(self) -> list[str]:
        return ycsb.differences(self._rows, self._writes, self._store.records())

    def _facts(self) -> dict[str, Any]:
        cuts = np.quantile(self._taken, (0.5, 0.95, 0.99))
        return {
            "version": self._store.version(),
            "setup": self._store.setup,
            "is_durable": True,
            "latency": dict(zip(("p50", "p95", "p99"), map(float, cuts), strict=True)),
            "operations": len(self._taken),
            "retries": sum(client.retries for client in self._clients),
        }

    def close(self) -> None:
        for client in self._clients:
            client.close()


def _do(client: Client, request: Request, writes: Writes, rows: int) -> None:
    """One operation; what is written is noted before, for an error ends the contender anyway."""
    key = ycsb.key(request.number)
    if request.kind == "insert":
        number = rows + writes.client * _SERIALS + len(writes.inserted)
        writes.inserted.append(number)
        values = [writes.next_value() for _ in FIELDS]
        writes.last.update({(number, at): value for at, value in enumerate(values)})
        client.insert(ycsb.key(number), values)
        return
    if request.kind == "scan":
        found = client.scan(key, request.rows)
        if not found or found[0][0] != key:
            writes.wrong.append(f"a scan from {key} on did not begin with it")
        return
    if request.kind != "update":
        record = client.read(key)
        if record is None or record[0] != key:
            writes.wrong.append(f"{key} was not found")
    if request.kind != "read":
        value = writes.next_value()
        writes.last[request.number, request.field] = value
        client.update(key, request.field, value)
