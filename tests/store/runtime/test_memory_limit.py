"""The memory limit of a process: the bound that the system keeps, and the statement that is ended."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import memory_limit
from seqstore.store.runtime.cancellation import Cancellation, watched
from seqstore.store.runtime.memory_limit import MemoryLimit
from seqstore.store.sql.evaluate import duck_errors
from tests.support.children import MODULES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit needs Linux")

# A process that takes all that it finds, in pieces that each fit in what one look adds.
GREEDY = """
import sys, time
from seqstore.store.runtime.memory_limit import MemoryLimit, _data_bytes
limit = MemoryLimit(_data_bytes() + (256 << 20))
limit.start()
held = []
try:
    for _ in range(200):
        held.append(bytes(4 << 20))
        limit.look()
except MemoryError:
    pass
print((_data_bytes() - limit._stacks) / limit.limit_bytes)
"""


def test_pieces_of_any_size_stay_below_the_bound() -> None:
    """Each look added three hundredths of the limit, whatever was used: small pieces passed the limit.

    Stacks are left out, which the bound leaves room for: older libraries start more threads.
    """
    command = [sys.executable, "-c", GREEDY]
    child = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": MODULES}, check=True)
    assert 0.6 < float(child.stdout) < 0.86, child


def test_the_statement_that_touches_memory_is_ended_and_no_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = MemoryLimit(1 << 20)  # everything is too much
    monkeypatch.setattr(limit, "_set", lambda: None)
    begun, ended = threading.Barrier(3), threading.Event()
    statements = [Cancellation(owner="u"), Cancellation(owner="u")]

    def run(statement: Cancellation, count: int) -> None:
        with watched(statement):
            held = bytearray(b"a" * count)
            begun.wait()
            ended.wait()
            del held

    sizes = (64 << 20, 1)
    threads = [threading.Thread(target=run, args=each) for each in zip(statements, sizes, strict=True)]
    for thread in threads:
        thread.start()
    begun.wait()
    limit.look()
    ended.set()
    for thread in threads:
        thread.join()
    assert [each.error is not None for each in statements] == [True, False]


def test_waiting_queries_begin_one_by_one_while_little_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = MemoryLimit(1000 << 20)
    monkeypatch.setattr(limit, "_set", lambda: None)
    monkeypatch.setattr(memory_limit, "_ROOM_SECONDS_MAX", 600.0)
    monkeypatch.setattr(memory_limit, "_data_bytes", lambda: 600 << 20)
    limit.look()
    threads = [threading.Thread(target=limit.wait_for_room) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(limit._waiting) < 3:
        pass
    limit.look()
    assert len(limit._waiting) == 2
    monkeypatch.setattr(memory_limit, "_data_bytes", lambda: 100 << 20)
    limit.look()
    for thread in threads:
        thread.join()


def test_an_error_of_memory_in_the_rows_of_an_answer_is_one_of_the_statement() -> None:
    """Arrow passes it on as an error of input or output, which ended the connection of the client."""
    error = duck_errors.translated(
        OSError("Out of Memory Error: ArrowBuffer: failed to allocate 536870912 bytes")
    )
    assert isinstance(error, UnavailableError)
    assert error.kind == "out_of_memory"
    lost = OSError(5, "Input/output error")
    assert duck_errors.translated(lost) is lost


def test_small_allocations_are_repeated() -> None:
    results: list[MemoryError | bytes] = [MemoryError(), MemoryError(), b"done"]

    def build() -> bytes:
        found = results.pop(0)
        if isinstance(found, MemoryError):
            raise found
        return found

    assert memory_limit.with_memory(build) == b"done"


def test_garbage_is_collected_during_a_shortage_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was collected behind a shortage only, which the garbage itself made last for ever."""
    limit = MemoryLimit(1 << 20)  # everything is too much
    monkeypatch.setattr(limit, "_set", lambda: None)
    now, collected = [1000.0], []
    monkeypatch.setattr(memory_limit, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(memory_limit, "gc", SimpleNamespace(collect=lambda: collected.append(now[0])))
    for _ in range(9):
        limit.look()
        now[0] += 1.0
    assert collected == [1006.0]
