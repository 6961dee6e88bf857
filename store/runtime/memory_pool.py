"""Memory that many clients use a little of, and few clients much: requests wait until a share is free."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import cancellation
from seqstore.store.runtime.memory_limit import limit_bytes

_WAIT_SECONDS_MAX: Final = 30.0
_LOOK_SECONDS: Final = 0.1


class MemoryPool:
    """Safe to share between threads.

    Args:
        purpose: of the memory, for messages.
        share: of the memory limit of the process.
        small_bytes: requests up to this size are not counted.
    """

    def __init__(self, purpose: str, share: float, small_bytes: int) -> None:
        self._purpose = purpose
        self._share = share
        self._small_bytes = small_bytes
        self._taken = 0
        self._owned: Counter[str] = Counter()
        self._freed = threading.Condition()

    @contextmanager
    def reserved(self, size: int, owner: str = "") -> Iterator[None]:
        """Holds memory for a block; `owner` is as for `take`.

        Raises:
            UnavailableError: it is more than all, or others hold it for too long.
        """
        self.take(size, owner)
        try:
            yield
        finally:
            self.give_back(size, owner)

    def take(self, size: int, owner: str = "", own: int = 0) -> None:
        """Reserves memory until `give_back`; raises as `reserved`.

        Args:
            owner: whose requests wait while they hold half of the memory together; one alone may have more.
            own: what this request holds already.
        """
        if size <= self._small_bytes:
            return
        most = int(limit_bytes() * self._share)
        if size > most:
            raise self._refused(size, most, "split it, or raise the setting memory_bytes_max")
        end = time.monotonic() + _WAIT_SECONDS_MAX
        with self._freed:
            while self._taken + size > most or self._is_greedy(owner, own, size, most):
                if time.monotonic() > end:
                    raise self._refused(size, most - self._taken, "try again later")
                self._freed.wait(_LOOK_SECONDS)
                cancellation.check()
            self._taken += size
            if owner:
                self._owned[owner] += size

    def _is_greedy(self, owner: str, own: int, size: int, most: int) -> bool:
        """Returns whether another request of the owner leaves too little of its half."""
        held = self._owned.get(owner, 0)
        return held > own and held + size > most // 2

    def give_back(self, size: int, owner: str = "") -> None:
        if size > self._small_bytes:
            with self._freed:
                self._taken -= size
                if owner:
                    self._owned[owner] -= size
                    if not self._owned[owner]:
                        del self._owned[owner]
                self._freed.notify_all()

    def _refused(self, size: int, found: int, remedy: str) -> UnavailableError:
        return UnavailableError(
            f"{self._purpose} needs some {size >> 20} MiB of memory, and found {max(found, 0) >> 20} MiB; "
            f"{remedy}",
            kind="out_of_memory",
        )
