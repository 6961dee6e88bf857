"""Ports for servers that get theirs before they start, or take it again after a restart.

The system gives a client of any process a port between two numbers (`ip_local_port_range`). A server whose
port lies there may find it taken when it starts; so these ports lie below.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST: Final = 10_000
_CLIENTS_FROM: Final = 32_768  # by default, where the system does not tell


def free_ports(count: int) -> list[int]:
    """Returns ports of the loopback that nothing listens on."""
    chosen: list[int] = []
    with ExitStack() as held:
        while len(chosen) < count:
            port = random.SystemRandom().randrange(_FIRST, _clients_from())
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                chosen.append(port)
    return chosen


def _clients_from() -> int:
    """Returns the first port that clients get; the default where that leaves too few."""
    try:
        first = int(_RANGE.read_text().split()[0])
    except OSError:
        return _CLIENTS_FROM
    return first if first > 2 * _FIRST else _CLIENTS_FROM
