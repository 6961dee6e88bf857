"""The replies to the changes of one client: a request that arrives twice runs once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_KEPT_MAX: Final = 256
_BYTES_MAX: Final = 16 << 20


class _Reply:
    def __init__(self) -> None:
        self.is_there = threading.Event()
        self.data = b""


class Replies:
    """The newest replies, by the ids of their requests. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replies: OrderedDict[str, _Reply] = OrderedDict()

    def once(self, request: str, run: Callable[[], bytes]) -> bytes:
        """Runs a request, or waits for the reply of the first one with its id.

        Args:
            run: returns the reply; where it raises, the request counts as one that never arrived.
        """
        with self._lock:
            found = self._replies.get(request)
            if found is None:
                own = self._replies[request] = _Reply()
        if found is not None:
            found.is_there.wait()
            if found.data:
                return found.data
            return self.once(request, run)  # the first one did not arrive whole
        try:
            own.data = run()
        except BaseException:
            with self._lock:
                del self._replies[request]
            raise
        finally:
            own.is_there.set()
        self._forget_old()
        return own.data

    def find(self, request: str, seconds: float) -> bytes | None:
        """Returns the reply of a request, empty while it runs for longer than `seconds`; None for an unknown
        one."""
        with self._lock:
            found = self._replies.get(request)
        if found is None:
            return None
        if found.is_there.wait(seconds) and not found.data:
            return None
        return found.data

    def _forget_old(self) -> None:
        with self._lock:
            while len(self._replies) > 1:
                first = next(iter(self._replies.values()))
                size = sum(len(each.data) for each in self._replies.values())
                if not first.is_there.is_set() or (len(self._replies) <= _KEPT_MAX and size <= _BYTES_MAX):
                    return
                self._replies.popitem(last=False)
