"""How many clients each worker has, in memory that all of them map: the one with the fewest accepts the next.

All workers accept on the same sockets, which the hub has opened: clients that wait there outlive a worker.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

_COUNT: Final = struct.Struct("=q")
_ABSENT: Final = 1 << 40  # clients of a worker that does not run: more than anyone has


class Balance:
    """The clients of one protocol, by the place of their worker."""

    def __init__(self, workers: int) -> None:
        self._counts = mmap.mmap(-1, _COUNT.size * workers)
        self._workers = workers
        for place in range(workers):
            self.leave(place)

    def set(self, place: int, count: int) -> None:
        """States the clients of a worker."""
        _COUNT.pack_into(self._counts, place * _COUNT.size, count)

    def leave(self, place: int) -> None:
        """States that a worker accepts no more."""
        self.set(place, _ABSENT)

    def is_turn_of(self, place: int) -> bool:
        """Returns whether no other worker has fewer clients."""
        found = [_COUNT.unpack_from(self._counts, each * _COUNT.size)[0] for each in range(self._workers)]
        return bool(found[place] <= min(found))
