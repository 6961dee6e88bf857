"""Where clients of a protocol wait, when several processes accept there."""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from socket import socket
from typing import Final, Protocol

TURN_SECONDS: Final = 0.002  # that others have, before a process with more clients accepts all the same
_LOOK_MS: Final = 500


class ClientCounts(Protocol):
    """The clients of each process, in memory that they share."""

    def set(self, place: int, count: int) -> None:
        """States the clients of a process."""

    def leave(self, place: int) -> None:
        """States that a process accepts no more."""

    def is_turn_of(self, place: int) -> bool:
        """Returns whether no other process has fewer clients."""


@dataclass(frozen=True)
class Entrance:
    """A listening socket of several processes, as one of them knows it.

    Attributes:
        listening: does not block.
        place: of this process.
    """

    listening: socket
    counts: ClientCounts
    place: int

    def set_clients(self, count: int) -> None:
        """States the clients of this process."""
        self.counts.set(self.place, count)

    @property
    def is_my_turn(self) -> bool:
        """Whether no other process has fewer clients."""
        return self.counts.is_turn_of(self.place)

    def accept(self) -> socket:
        """Waits for a client and accepts it; TimeoutError when there is none, or another process has it."""
        waiting = select.poll()
        waiting.register(self.listening, select.POLLIN)
        if not waiting.poll(_LOOK_MS):
            raise TimeoutError
        if not self.is_my_turn:
            time.sleep(TURN_SECONDS)
        try:
            accepted, _ = self.listening.accept()
        except BlockingIOError:
            raise TimeoutError from None
        accepted.setblocking(True)
        return accepted

    def close(self) -> None:
        """Accepts no more here; clients that wait are for the others."""
        self.counts.leave(self.place)
        self.listening.close()
