"""The hub with workers that do nothing: which places begin, and when."""

from __future__ import annotations

import os
import signal

from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython

# Each worker prints its place, whether it is the first start, and its process. Those of other places than 0
# are ready when they have read one byte.
PROGRAM = """
import os, signal
from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.workers.frames import packed
from seqstore.cli.workers.hub import Hub

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

seat = Hub(3, {}, ConnectionLimits(), 1.0, lambda _: say("started")).run()
if seat is not None:
    if seat.place != 0:
        say(seat.place, seat.is_first_start, os.getpid())
        os.read(0, 1)
    seat.channel.sendall(packed([0, "ready", [], {}]))
    if seat.place == 0:
        say(seat.place, seat.is_first_start, os.getpid())
    signal.pause()
"""


def test_a_first_worker_that_is_replaced_during_the_start_begins_no_place_twice() -> None:
    """Its second "ready" began all other places once more, so two workers had the same one."""
    environment = {**os.environ, "PYTHONPATH": MODULES}
    with ForkedPython(["-c", PROGRAM], environment=environment, has_input=True) as hub:
        assert hub.stdin is not None
        assert hub.stdout is not None
        begun = [hub.stdout.readline().split() for _ in range(3)]
        first = next(int(pid) for place, _, pid in begun if place == "0")
        os.kill(first, signal.SIGKILL)
        begun.append(hub.stdout.readline().split())
        hub.stdin.write("xx")
        hub.stdin.flush()
        assert hub.stdout.readline().split() == ["started"]
        hub.terminate()
        begun += [line.split() for line in hub.stdout]
    assert sorted(place for place, *_ in begun) == ["0", "0", "1", "2"]
    assert [is_first for place, is_first, _ in begun if place == "0"] == ["True", "False"]
    assert {is_first for place, is_first, _ in begun if place != "0"} == {"False"}
