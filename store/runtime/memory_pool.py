"""Memory that many clients use a little of, and few clients much: requests wait until a share is free."""

from __future__ import annotations

import threading
import time
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
        self._freed = threading.Condition()

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Holds memory for a block.

        Raises:
            UnavailableError: it is more than all, or others hold it for too long.
        """
        self.take(size)
        try:
            yield
        finally:
            self.give_back(size)

    def take(self, size: int) -> None:
        """Reserves memory until `give_back`; raises as `reserved`."""
        if size <= self._small_bytes:
            return
        most = int(limit_bytes() * self._share)
        if size > most:
            raise self._refused(size, most, "split it, or raise the setting memory_bytes_max")
        end = time.monotonic() + _WAIT_SECONDS_MAX
        with self._freed:
            while self._taken + size > most:
                if time.monotonic() > end:
                    raise self._refused(size, most - self._taken, "try again later")
                self._freed.wait(_LOOK_SECONDS)
                cancellation.check()
            self._taken += size

    def give_back(self, size: int) -> None:
        if size > self._small_bytes:
            with self._freed:
                self._taken -= size
                self._freed.notify_all()

    def _refused(self, size: int, found: int, remedy: str) -> UnavailableError:
        return UnavailableError(
            f"{self._purpose} needs some {size >> 20} MiB of memory, and found {max(found, 0) >> 20} MiB; "
            f"{remedy}",
            kind="out_of_memory",
        )
