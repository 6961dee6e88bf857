"""Histories of clients that are killed and stopped have no cycles; see tests.support.client_histories."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from seqstore import Session, Store
from tests.support import client_histories
from tests.support.client_histories import SETTINGS, Transaction, faults, make_store, read_all, told
from tests.weight import by_form, torture_minutes

ROOT: Final = Path(__file__).parents[2]
TOTALS: Final = Path(os.environ.get("SEQSTORE_HISTORIES", ROOT / ".histories.json"))
COUNT: Final = by_form(20, 150)
CLIENTS: Final = 3
SECONDS_MAX: Final = 300


def start(path: Path, client: int, count: int, concurrency: str) -> subprocess.Popen[str]:
    python_path = os.pathsep.join([str(ROOT / ".package"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    with path.with_name(f"client-{client}").open("w") as output:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", client_histories.__name__),
                *(str(path), str(client), str(count), concurrency),
            ],
            stdout=output,
            env={**os.environ, "PYTHONPATH": python_path},
            cwd=ROOT,
            text=True,
        )


def lines_of(path: Path, client: int) -> list[str]:
    return path.with_name(f"client-{client}").read_text().splitlines(keepends=True)


def await_lines(path: Path, child: subprocess.Popen[str], client: int, count: int) -> None:
    """Waits until a client has printed so many lines, or has ended."""
    deadline = time.monotonic() + SECONDS_MAX
    while len(lines_of(path, client)) < count and child.poll() is None:
        assert time.monotonic() < deadline, "a client does not go on"
        time.sleep(0.002)


def run_clients(path: Path, seed: int, count: int, concurrency: str = "optimistic") -> tuple[int, list[str]]:
    """Runs clients on one store; one is killed, another is stopped for a while; returns how many transactions
    there were, and the faults."""
    chosen = random.Random(seed)
    make_store(path)
    first = seed % 1000 * 10 + 1
    clients = {number: start(path, number, count, concurrency) for number in range(first, first + CLIENTS)}
    killed, stopped, *_ = chosen.sample(sorted(clients), CLIENTS)
    await_lines(path, clients[killed], killed, chosen.randint(1, count))
    clients[killed].kill()
    clients[stopped].send_signal(signal.SIGSTOP)
    late = first + CLIENTS
    clients[late] = start(path, late, count, concurrency)
    await_lines(path, clients[late], late, 1)  # it has opened the store, and works beside the stopped one
    clients[stopped].send_signal(signal.SIGCONT)
    for number, child in clients.items():
        assert child.wait(SECONDS_MAX) == (-signal.SIGKILL if number == killed else 0)
    with Store.open(path, settings=SETTINGS) as store, Session(store, "db") as session:
        last = read_all(session)
        for name in client_histories.TABLES:
            assert store.table(f"db.{name}").check() == []
    history = [each for number in clients for each in told(lines_of(path, number))]
    return len(history), faults(history, last)


def test_clients_that_are_killed_and_stopped_see_one_order(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    count, found = run_clients(tmp_path / "data", seed, COUNT)
    assert found == [], f"seed {seed}"
    assert count > COUNT


def test_the_checker_finds_that_conflicts_are_not_checked(tmp_path: Path) -> None:
    for seed in range(5):
        directory = tmp_path / str(seed)
        directory.mkdir()
        if run_clients(directory / "data", seed, COUNT, "unchecked")[1]:
            return
    pytest.fail("no history showed the planted fault")


@pytest.mark.parametrize(
    ("history", "last", "expected"),
    [
        ([Transaction("a", {"x": []}, {"x": 1}, "ok")], {"x": []}, "lost 1"),
        ([Transaction("a", {}, {"x": 1}, "aborted")], {"x": [1]}, "never committed"),
        (
            [Transaction("a", {}, {"x": 1}, "open"), Transaction("b", {"x": [2]}, {}, "ok")],
            {"x": [1]},
            "became",
        ),
        (
            [
                Transaction("a", {"x": [], "y": []}, {"x": 1}, "ok"),
                Transaction("b", {"x": [], "y": []}, {"y": 2}, "ok"),
            ],
            {"x": [1], "y": [2]},
            "a cycle",
        ),
    ],
    ids=["lost update", "aborted write", "value out of nothing", "write skew"],
)
def test_the_checker_finds(history: list[Transaction], last: dict[str, list[int]], expected: str) -> None:
    (fault,) = faults(history, last)
    assert expected in fault


@pytest.mark.torture
def test_very_many_histories_of_clients_add_up(tmp_path: Path) -> None:
    """The totals of all runs stand in a file, by commit."""
    ends = time.monotonic() + 60 * torture_minutes()
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    while time.monotonic() < ends:
        seed = random.SystemRandom().randrange(2**32)
        directory = tmp_path / str(seed)
        directory.mkdir()
        count, found = run_clients(directory / "data", seed, 300)
        totals = json.loads(TOTALS.read_text()) if TOTALS.exists() else {}
        total = totals.setdefault(commit, {"histories": 0, "transactions": 0, "with faults": 0})
        total["histories"] += 1
        total["transactions"] += count
        total["with faults"] += bool(found)
        TOTALS.write_text(json.dumps(totals, indent=2) + "\n")
        assert found == [], f"seed {seed}"
