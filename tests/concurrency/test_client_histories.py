"""Histories of clients that are killed and stopped have an order: see `replays.client_histories`."""

from __future__ import annotations

import io
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from seqstore import Store
from seqstore.cli.mysql import MysqlServer
from seqstore.cli.server import stream_load_api
from seqstore.loaders.stream_load import stream_load
from seqstore.store.catalog.update_lock import ConcurrencyMode
from seqstore.store.read.store_snapshot import StoreSnapshot
from seqstore.store.transaction import statement, transaction
from tests.seeds import new_seed
from tests.support.checkout import commit_of_checkout
from tests.support.faults.file_faults import compiled
from tests.support.http_server import serving
from tests.support.replays import history_totals
from tests.support.replays.checked_history import Contents, Transaction, faults
from tests.support.replays.client_histories import (
    HTTP,
    MIXES,
    MYSQL,
    PYTHON,
    SPARK_MIX,
    Means,
    Mix,
    Notes,
    Outcome,
    check,
    run_batch,
    run_histories,
)
from tests.support.replays.histories import memory_directory
from tests.support.replays.history_clients import (
    SETTINGS,
    Address,
    HistoryClient,
    HttpClient,
    MysqlClient,
    PythonClient,
    make_store,
)
from tests.weight import by_form, torture_minutes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORIES = by_form(8, 20)
PLANTED_HISTORIES_MAX = 60
pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    return compiled(tmp_path_factory.mktemp("shim"))


def run(directory: Path, mix: Mix, means: Means) -> tuple[Outcome, str]:
    if mix.slow_us and means.shim is None:
        pytest.skip("no C compiler (gcc) for the shim that makes disks slow")
    seed = str(new_seed())
    return run_batch(directory / "data", seed, mix, means), seed


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "mixed" else pytest.mark.long) for name in MIXES]
)
def test_clients_that_are_killed_and_stopped_see_one_order(
    tmp_path: Path, name: str, shim: Path | None
) -> None:
    mix = replace(MIXES[name], histories=HISTORIES)
    outcome, seed = run(tmp_path, mix, Means(shim))
    assert outcome.faults == {}, f"seed {seed}"
    assert outcome.histories == HISTORIES
    assert outcome.kills + outcome.stops > 0


# planted faults


def unchecked(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The conflicts of transactions are not checked, as with `concurrency = 'unchecked'`."""
    for module in (transaction, statement):
        monkeypatch.setattr(module, "update_mode", lambda *_: ConcurrencyMode.UNCHECKED)


def lost_own_write(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A transaction does not see what it wrote; a stream load loses its last row."""
    if kind != HTTP:
        hidden = property(lambda self: False, lambda self, value: None)
        monkeypatch.setattr(transaction.Transaction, "reads_own_writes", hidden, raising=False)
        return

    def load(store: Store, database: str, table: str, body: BinaryIO, *rest: Any, **options: Any) -> Any:
        left = b"".join(body.read().splitlines(keepends=True)[:-1])
        return stream_load(store, database, table, io.BytesIO(left), *rest, **options)

    monkeypatch.setattr(stream_load_api, "stream_load", load)


def torn_read(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A statement reads each of its tables as it is when its turn comes."""

    def newest(self: StoreSnapshot, table: Any) -> int:
        time.sleep(0.01)  # the reading of a table takes longer
        return int(table.version)

    monkeypatch.setattr(StoreSnapshot, "version", newest)


PLANTED: dict[str, Callable[[pytest.MonkeyPatch, str], None]] = {
    "unchecked": unchecked,
    "lost own write": lost_own_write,
    "torn read": torn_read,
}


@contextmanager
def clients_of(kind: str, path: Path, *, with_writer: bool) -> Iterator[list[HistoryClient]]:
    """Three clients of a kind, and a server in this process where they need one.

    Args:
        with_writer: two clients only read, and one more writes two tables at once: HTTP cannot.
    """
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(path, settings=SETTINGS))
        clients: list[HistoryClient] = []
        if kind == MYSQL or with_writer:
            mysql = stack.enter_context(MysqlServer(store))
            address = Address(lambda: pytest.fail("no HTTP"), lambda: int(mysql.port), lambda: None)
            count = 1 if with_writer else 3
            clients += [MysqlClient(f"m{i}", print, address, autocommit=i % 2 == 0) for i in range(count)]
        if with_writer:
            clients[0].works = {"add_both": 1}
        if kind == HTTP:
            http = stack.enter_context(serving(store))
            address = Address(lambda: http, lambda: pytest.fail("no MySQL"), lambda: None)
            clients += [HttpClient(f"h{i}", print, address) for i in range(3)]
        if with_writer:
            clients[1].works = clients[2].works = {"read": 1}
        if kind == PYTHON:
            clients += [PythonClient(f"p{i}", print, store) for i in range(3)]
        yield clients
        for client in clients:
            client.close()


@pytest.mark.family(3)
@pytest.mark.parametrize("planted", [None, *PLANTED])
@pytest.mark.parametrize("kind", [PYTHON, MYSQL, HTTP])
def test_the_checker_finds_planted_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, planted: str | None
) -> None:
    if planted is not None:
        PLANTED[planted](monkeypatch, kind)
    path = tmp_path / "data"
    make_store(path, PLANTED_HISTORIES_MAX)
    notes, step = Notes(PLANTED_HISTORIES_MAX), 5
    with clients_of(kind, path, with_writer=kind == HTTP and planted == "torn read") as clients:
        for first in range(0, PLANTED_HISTORIES_MAX, step):
            run_histories(clients, notes, f"{kind}{planted}", range(first, first + step))
            outcome = Outcome()
            check(path, notes, random.Random(1), outcome)
            if planted is None:
                assert outcome.faults == {}
                return
            if outcome.faults:
                return
    pytest.fail("no history showed the planted fault")


@pytest.mark.parametrize(
    ("history", "last", "expected"),
    [
        ([Transaction("x", {"a1": []}, {"a1": 1}, "ok")], {"a1": []}, "lost 1"),
        ([Transaction("x", {}, {"a1": 1}, "aborted")], {"a1": [1]}, "never committed"),
        (
            [Transaction("x", {}, {"a1": 1}, "open"), Transaction("y", {"a1": [2]}, {}, "ok")],
            {"a1": [1]},
            "became",
        ),
        (
            [
                Transaction("x", {"a1": [], "b1": []}, {"a1": 1}, "ok"),
                Transaction("y", {"a1": [], "b1": []}, {"b1": 2}, "ok"),
            ],
            {"a1": [1], "b1": [2]},
            "a cycle",
        ),
        (
            [
                Transaction("x", {}, {"r1": 1, "s1": 1}, "ok"),
                Transaction("y", {"r1": [1], "s1": []}, {}, "ok"),
            ],
            {"r1": [1], "s1": [1]},
            "a cycle",
        ),
        ([Transaction("x", {}, {"r1": 1, "s1": 1}, "open")], {"r1": [1], "s1": []}, "half there"),
        ([Transaction("x", {}, {"a1": 1}, "ok", own={"a1": []})], {"a1": [1]}, "after its own 1"),
        (
            [
                Transaction("x", {"a1": []}, {"a1": 1}, "aborted", own={"a1": [2, 1]}),
                Transaction("y", {}, {"a1": 2}, "ok"),
            ],
            {"a1": [2]},
            "and then",
        ),
        (
            [
                Transaction("x", {}, {"s1": 1}, "ok", begun=1, ended=2),
                Transaction("y", {"s1": []}, {}, "ok", begun=3, ended=4),
            ],
            {"s1": [1]},
            "a cycle",
        ),
    ],
    ids=[
        "lost update",
        "aborted write",
        "value out of nothing",
        "write skew",
        "torn read",
        "torn write",
        "lost own write",
        "two snapshots",
        "stale read",
    ],
)
def test_the_checker_finds(history: list[Transaction], last: Contents, expected: str) -> None:
    (fault,) = faults(history, last)
    assert expected in fault


def test_unknown_outcomes_may_have_happened_or_not() -> None:
    writes = [
        Transaction("x", {"a1": []}, {"a1": 1, "b1": 1}, "open"),
        Transaction("y", {"a1": []}, {}, "ok"),
    ]
    assert faults(writes, {"a1": [1], "b1": [1]}) == []
    assert faults(writes, {"a1": [], "b1": []}) == []


def test_totals_of_runs_at_once_add_up(tmp_path: Path) -> None:
    path = tmp_path / "totals.json"
    outcome = Outcome(histories=3, transactions=9, processor_seconds=2)
    threads = [
        threading.Thread(target=history_totals.add, args=("abc", name, outcome, path))
        for name in ("python", "python", "mixed", history_totals.INTERLEAVED)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    totals = history_totals.read(path)
    counts = {"python": 6, "mixed": 3, history_totals.INTERLEAVED: 3}
    assert {name: total["histories"] for name, total in totals["abc"].items()} == counts
    assert history_totals.next_mix(totals, MIXES) not in ("python", "mixed")
    *_, clients, one_process, _ = history_totals.lines(totals)
    assert clients.startswith("all clients: 9 histories, 27 transactions")
    assert one_process.startswith("interleaved: 3 histories, 9 transactions")


def add_up(mixes: dict[str, Mix], means: Means) -> None:
    """Runs batches for the time of the torture form; their totals stand in a file, by commit."""
    ends = time.monotonic() + 60 * torture_minutes()
    commit = commit_of_checkout()
    while time.monotonic() < ends:
        name = history_totals.next_mix(history_totals.read(), mixes)
        place = Path(tempfile.mkdtemp(dir=memory_directory()))
        outcome, seed = run(place, mixes[name], means)
        history_totals.add(commit, name, outcome)
        assert outcome.faults == {}, f"seed {seed}, {name}: {place}"
        shutil.rmtree(place)


@pytest.mark.torture
def test_very_many_histories_of_clients_add_up(shim: Path | None) -> None:
    """Every mix gets its share of the processor."""
    mixes = {name: mix for name, mix in MIXES.items() if shim is not None or not mix.slow_us}
    add_up(mixes, Means(shim))


@pytest.mark.torture
@pytest.mark.spark
def test_histories_with_spark_add_up(spark: SparkSession) -> None:
    add_up({"spark": SPARK_MIX}, Means(spark=spark))
