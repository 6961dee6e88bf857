"""Room for the frames of calls: where the system maps nothing more, calls that have room succeed.

Without room CPython 3.11 raises SystemError there, and drops references of the called function.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.children import MODULES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit needs Linux")

# `leaf(900)` needs several blocks of frames; a bound of one page refuses every mapping.
PROGRAM = """
import resource, sys, threading
from seqstore.store.runtime.call_room import RoomyIterator, give_threads_room, roomy

def leaf(n):
    return leaf(n - 1) if n else 0

soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
leaf(50); leaf(50)  # specialized

def without_memory(call):
    before = sys.getrefcount(leaf)
    resource.setrlimit(resource.RLIMIT_DATA, (4096, hard))
    try:
        call()
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    assert sys.getrefcount(leaf) == before
    print("done")
"""
FORMS = {
    "a function": "roomy(without_memory)(lambda: leaf(900))",
    "an iterator": """
def rows():
    without_memory(lambda: leaf(900))
    yield 1
assert list(RoomyIterator(rows())) == [1]
""",
    "a dropped iterator": """
def rows():
    try:
        yield 1
    finally:
        without_memory(lambda: leaf(900))
found = RoomyIterator(rows())
assert next(found) == 1
del found
""",
    "a thread": """
give_threads_room()
thread = threading.Thread(target=without_memory, args=(lambda: leaf(900),))
thread.start()
thread.join()
""",
}
# The system grants nothing more but what is added for the thread that begins.
STARTS = """
from seqstore.store.runtime import memory_limit
memory_limit.set_stack_size()
give_threads_room()
limit = memory_limit.MemoryLimit(8 << 30)
limit.look = lambda: None
limit.start()
limit._bound = memory_limit._data_bytes() - limit._stacks
limit._set()
ended = []

def work(number):
    ended.append(number)

threads = [threading.Timer(0, work, (number,)) for number in range(20)]
for thread in threads:
    thread.start()
    thread.join()
limit.stop()
assert len(ended) == 20
print("done")
"""
UNENDED = """
ended = []
def rows():
    try:
        yield 1
    finally:
        ended.append(1)
found = [RoomyIterator(rows())]
next(found[0])
roomy(without_memory)(found.clear)  # it uses the block of frames that CPython 3.14 keeps of the call before
assert not ended
RoomyIterator(iter(()))
assert ended
"""
REFUSED = """
@roomy
def begin():
    raise AssertionError("it has no room")

try:
    without_memory(begin)
except MemoryError:
    print("refused")
"""


@pytest.mark.parametrize("form", FORMS)
def test_calls_with_room_need_no_memory(form: str) -> None:
    """A server at its limit ended with SIGSEGV: the first calls of threads of gRPC had no memory."""
    assert run(PROGRAM + FORMS[form]) == "done\n"


def test_a_call_without_memory_for_its_room_is_refused() -> None:
    assert run(PROGRAM + REFUSED) == "refused\n"


def test_an_iterator_that_was_dropped_without_memory_ends_later() -> None:
    assert run(PROGRAM + UNENDED) == "done\n"


def test_a_thread_begins_at_the_limit() -> None:
    """A thread found no memory for its first call, and `Thread.start` waited for it for ever."""
    assert run(PROGRAM + STARTS) == "done\n"


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    child = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": MODULES}, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    return child.stdout
