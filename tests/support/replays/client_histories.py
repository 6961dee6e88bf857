"""Histories of real clients of all kinds on one store, whose processes are killed and stopped in between.

A batch is many histories, one after another on one store, each with keys of its own and all with the same
clients: processes with the Python API, and connections over the MySQL protocol and HTTP to one server
process. Beside them the server or a client process is killed by SIGKILL and started again, or stopped by
SIGSTOP for a while. Their disk may be slow: the shim of `support/faults` then delays writes and syncs at
random.

When all clients have ended, and the server was killed, an outcome that no client knows is looked up by its
label where it has one, and a load that is pre-committed still is committed or aborted. Then `checked_history`
compares every history with the cells.
"""

from __future__ import annotations

import math
import os
import random
import resource
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seqstore import Store
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython, start_python
from tests.support.forks.forked import processor_seconds as forked_seconds
from tests.support.http_server import Client, ServerProcess
from tests.support.replays import history_clients
from tests.support.replays.checked_history import ABORTED, LISTS, OK, OPEN, SETS, Transaction, faults, told
from tests.support.replays.history_clients import (
    KEYS,
    SETTINGS,
    Address,
    Cells,
    HistoryClient,
    HttpClient,
    MysqlClient,
    Tell,
    make_store,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSACTIONS: Final = 4  # of one client in one history
PYTHON, MYSQL, HTTP, SPARK = "python", "mysql", "http", "spark"
_SECONDS_MAX: Final = 3_600  # a machine may be busy with others
_STARTS_MAX: Final = 100
_TROUBLES: Final = 16  # of a batch, roughly: a start of a server costs as much as several histories


@dataclass(frozen=True)
class Mix:
    """The clients of a batch.

    Attributes:
        clients: kinds.
        slow_us: the longest delay of a write or sync, 0 for none.
        weight: share of the processor time of `make histories`.
        histories: of one batch.
    """

    clients: tuple[str, ...]
    weight: int
    slow_us: int = 0
    histories: int = 200

    @property
    def has_server(self) -> bool:
        return bool({MYSQL, HTTP} & set(self.clients))


MIXES: Final = {
    "python": Mix((PYTHON, PYTHON, PYTHON), 30),
    "mysql": Mix((MYSQL, MYSQL, MYSQL), 20),
    "http": Mix((HTTP, HTTP, HTTP), 15),
    "mixed": Mix((PYTHON, MYSQL, MYSQL, HTTP), 20),
    "mixed, slow disk": Mix((PYTHON, MYSQL, MYSQL, HTTP), 10, slow_us=20_000, histories=30),
}
# In the torture form alone, where one JVM serves many batches.
SPARK_MIX: Final = Mix((SPARK, MYSQL, HTTP, PYTHON), 5, histories=10)


@dataclass(frozen=True)
class Means:
    """What some mixes need.

    Attributes:
        shim: the compiled shim, for a slow disk.
        spark: a session, for clients by Spark.
    """

    shim: Path | None = None
    spark: SparkSession | None = None


@dataclass
class Outcome:
    """What came of a batch.

    Attributes:
        faults: by history, in words; those without are left out.
        unknown: transactions whose outcome no client knew.
        kills, stops: of processes.
    """

    histories: int = 0
    transactions: int = 0
    unknown: int = 0
    kills: int = 0
    stops: int = 0
    faults: dict[int, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    processor_seconds: float = 0.0


class Notes:
    """The ended transactions that the clients of a batch have reported, by history."""

    def __init__(self, histories: int) -> None:
        self.lines: list[dict[str, Transaction]] = [{} for _ in range(histories)]
        self.count = 0
        self._changed = threading.Condition()

    def teller(self, history: int) -> Tell:
        def tell(done: Transaction) -> None:
            with self._changed:
                self.lines[history][done.name] = done
                self.count += 1
                self._changed.notify_all()

        return tell

    def await_count(self, count: int, is_over: threading.Event) -> bool:
        """Waits for `count` reported transactions; returns False when the batch ends first."""
        with self._changed:
            self._changed.wait_for(lambda: self.count >= count or is_over.is_set())
        return not is_over.is_set()

    def end(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Processes:
    """The processes of a batch that may be killed and stopped.

    Args:
        environment: of each, beside this one's.
    """

    def __init__(self, path: Path, environment: dict[str, str]) -> None:
        self.path = path
        self.environment = {**os.environ, "PYTHONPATH": MODULES, **environment}
        self._server: ServerProcess | None = None
        self._is_up = threading.Event()
        self.running: dict[str, ForkedPython | subprocess.Popen[str]] = {}

    def start_server(self) -> None:
        self._server = ServerProcess(self.path, environment=self.environment)
        self.running["server"] = self._server.process
        threading.Thread(target=_drain, args=(self._server.process,), daemon=True).start()
        self._is_up.set()

    def address(self) -> Address:
        return Address(self._client, lambda: self._up().mysql_port, self._wait)

    def _up(self) -> ServerProcess:
        self._wait()
        assert self._server is not None
        return self._server

    def _client(self) -> Client:
        found = self._up().client
        found.timeout = _SECONDS_MAX
        return found

    def _wait(self) -> None:
        assert self._is_up.wait(_SECONDS_MAX), "no server has started"

    def kill(self, name: str) -> None:
        """Kills a process; the server is started again."""
        if name != "server":
            self.running[name].kill()
            return
        assert self._server is not None
        self._is_up.clear()
        self._server.kill()
        self.start_server()

    def end(self) -> None:
        """Kills what runs still."""
        for process in self.running.values():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):  # what was to be written
                    if pipe is not None:
                        pipe.close()


def _drain(process: ForkedPython | subprocess.Popen[str]) -> None:
    """Reads what a process says: a full pipe would stop it."""
    with suppress(ValueError):  # closed when it is killed
        for _ in process.stdout or ():
            pass


class ClientProcess(HistoryClient):
    """A Python client in a process of its own, which is started again when it was killed."""

    works: Mapping[str, int] = {}

    def __init__(self, name: str, notes: Notes, processes: Processes, concurrency: str) -> None:
        super().__init__(name, lambda done: None)
        self._notes = notes
        self._processes = processes
        self._concurrency = concurrency
        self._first = 1
        self._start()

    def _start(self) -> None:
        for _ in range(_STARTS_MAX):
            arguments = ["-m", history_clients.__name__, str(self._processes.path), self._concurrency]
            process = start_python(arguments, environment=self._processes.environment)
            self._process = self._processes.running[self.name] = process
            assert process.stdout is not None
            if process.stdout.readline() == "\n":
                return
            self._reap()
        raise RuntimeError("the client does not start")

    def _reap(self) -> None:
        status = self._process.wait(_SECONDS_MAX)
        self.close()
        assert status == -signal.SIGKILL, f"the client ended with {status}"

    def run(self, cells: Cells, chosen: random.Random, first: int, count: int) -> None:
        """Lets the process run the transactions, as far as it lives."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        tell = self._notes.teller(cells.history)
        with suppress(BrokenPipeError):
            asked = [cells.history, self.name, first, count, chosen.random()]
            process.stdin.write(" ".join(map(str, asked)) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            if line == "\n":
                return
            for done in told([line]):
                tell(done)
        self._reap()
        self._start()

    def attempt(self, work: str, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        raise NotImplementedError("the process does the work")

    def rows(self, text: str) -> Iterable[tuple[Any, ...]]:
        raise NotImplementedError("the process does the work")

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate(timeout=_SECONDS_MAX)


def run_batch(path: Path, seed: str, mix: Mix, means: Means = Means()) -> Outcome:
    """Runs a batch on a store that it makes."""
    chosen, outcome, began = random.Random(seed), Outcome(), time.monotonic()
    before = _processor_seconds()
    make_store(path, mix.histories)
    notes, is_over = Notes(mix.histories), threading.Event()
    processes = Processes(path, _slowness(path, mix.slow_us, means.shim, chosen))
    try:
        if mix.has_server:
            processes.start_server()
        kinds = enumerate(mix.clients)
        clients = [_client(kind, f"{kind}{i}", notes, processes, means) for i, kind in kinds]
        with ThreadPoolExecutor(1) as pool:
            gap = mix.histories * len(mix.clients) * TRANSACTIONS // _TROUBLES
            trouble = pool.submit(
                _trouble, processes, notes, is_over, random.Random(f"{seed}t"), outcome, gap
            )
            try:
                run_histories(clients, notes, seed, range(mix.histories))
            finally:
                is_over.set()
                notes.end()
            trouble.result()
        for client in clients:
            client.close()
    finally:
        processes.end()
    check(path, notes, chosen, outcome)
    outcome.seconds, outcome.processor_seconds = (
        time.monotonic() - began,
        _processor_seconds() - before,
    )
    return outcome


def _slowness(path: Path, slow_us: int, shim: Path | None, chosen: random.Random) -> dict[str, str]:
    """Returns the variables by which the shim delays writes and syncs of a process."""
    if not slow_us:
        return {}
    assert shim is not None
    return {"LD_PRELOAD": str(shim), "SEQSTORE_TESTS_SLOW": f"{slow_us}:{chosen.randrange(2**31)}:{path}"}


def _client(kind: str, name: str, notes: Notes, processes: Processes, means: Means) -> HistoryClient:
    if kind == PYTHON:
        return ClientProcess(name, notes, processes, "optimistic")
    if kind == SPARK:
        from tests.support.replays.spark_client import SparkClient

        assert means.spark is not None
        return SparkClient(name, _nothing, means.spark, processes.path, processes.path.with_name("spark"))
    address = processes.address()
    if kind == HTTP:
        return HttpClient(name, _nothing, address)
    return MysqlClient(name, _nothing, address, autocommit=name[-1] in "13579")


def _nothing(done: Transaction) -> None:
    """Is replaced with every history."""


def run_histories(clients: list[HistoryClient], notes: Notes, seed: str, histories: range) -> None:
    """Lets all clients run one history after another; in each they begin at once."""
    together = threading.Barrier(len(clients))

    def run(place: int) -> None:
        client = clients[place]
        try:
            for history in histories:
                client.tell = notes.teller(history)
                together.wait(_SECONDS_MAX)
                chosen = random.Random(f"{seed}-{history}-{place}")
                client.run(Cells(history), chosen, place * 1000 + 1, TRANSACTIONS)
        except BaseException:
            together.abort()
            raise

    with ThreadPoolExecutor(len(clients)) as pool:
        running = [pool.submit(run, place) for place in range(len(clients))]
        errors = [error for each in running if (error := each.exception()) is not None]
    for error in sorted(errors, key=lambda each: isinstance(each, threading.BrokenBarrierError)):
        raise error


def _trouble(
    processes: Processes,
    notes: Notes,
    is_over: threading.Event,
    chosen: random.Random,
    outcome: Outcome,
    gap: int,
) -> None:
    """Kills and stops processes until the batch is over, each after some more reported transactions."""
    count = 0
    while True:
        count += chosen.randint(20, 20 + 3 * gap)
        if not notes.await_count(count, is_over):
            return
        name = chosen.choice(sorted(processes.running))
        if chosen.random() < 0.4:
            processes.kill(name)
            outcome.kills += 1
        else:
            process = processes.running[name]
            process.send_signal(signal.SIGSTOP)
            outcome.stops += 1
            is_over.wait(chosen.random() / 5)
            process.send_signal(signal.SIGCONT)
        count = max(count, notes.count)


def check(path: Path, notes: Notes, chosen: random.Random, outcome: Outcome) -> None:
    """Resolves what is unknown, reads all cells, and adds up the outcome."""
    with Store.open(path, settings=SETTINGS) as store:
        for lines in notes.lines:
            for each in lines.values():
                outcome.unknown += each.status == OPEN
                _resolve(store, each, chosen)
        rows = _rows(store)
        for history, lines in enumerate(notes.lines):
            known = list(lines.values())
            outcome.histories += 1
            outcome.transactions += len(known)
            if found := faults(known, Cells(history).contents(rows[history])):
                outcome.faults[history] = found
        for name in store.tables("db"):
            if findings := store.table(f"db.{name}").check():
                outcome.faults[-1] = findings


def _rows(store: Store) -> dict[int, list[tuple[str, Any, Any]]]:
    """Reads all tables as of one moment; returns the rows of each history."""
    found: dict[int, list[tuple[str, Any, Any]]] = defaultdict(list)
    with store.snapshot() as moment:
        for name in (*LISTS, *SETS):
            for row in moment.table(f"db.{name}").scan().read_all().to_pylist():
                found[row["k"] // KEYS].append((name, row["k"], row["v" if name in LISTS else "n"]))
    return found


def _resolve(store: Store, done: Transaction, chosen: random.Random) -> None:
    if done.status != OPEN or not done.label:
        return
    found = store.find_transaction("db", done.label)
    status = str(found.status) if found is not None else "ABORTED"
    if status == "PRECOMMITTED":
        if chosen.random() < 0.5:
            store.abort_transaction("db", label=done.label)
            status = "ABORTED"
        else:
            store.commit_transaction("db", label=done.label)
            status = "VISIBLE"
    assert status in ("VISIBLE", "ABORTED"), f"{done.label} is {status} when no process runs"
    done.status = OK if status == "VISIBLE" else ABORTED
    done.ended = math.inf


def _processor_seconds() -> float:
    scopes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(scope) for scope in scopes]
    return sum(each.ru_utime + each.ru_stime for each in used) + forked_seconds()
