"""The replies to the changes of one client: a request that arrives twice runs once.

1. Replies are kept until newer ones need their place, at most `_KEPT_MAX` and `_BYTES_MAX` of them.
2. The id of a request outlives its reply: a forgotten request did arrive, so it must not run again.
3. Ids need place, too. `_IDS_MAX` of them are kept. An id begins with a number, and those of a client rise.
   Of ids that are dropped the greatest number is kept. A request without a greater one may be one of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_KEPT_MAX: Final = 256
_BYTES_MAX: Final = 16 << 20
_IDS_MAX: Final = 10_000


class _Reply:
    def __init__(self) -> None:
        self.is_there = threading.Event()
        self.data = b""


class Replies:
    """The newest replies, by the ids of their requests. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replies: OrderedDict[str, _Reply] = OrderedDict()
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._forgotten_number = 0

    def once(self, request: str, run: Callable[[], bytes]) -> bytes | None:
        """Runs a request, or waits for the reply of the first one with its id.

        Args:
            run: returns the reply; where it raises, the request counts as one that never arrived.

        Returns:
            The reply; None where the request has run, and its reply is forgotten.
        """
        with self._lock:
            if request in self._forgotten:
                return None
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
        """Returns the reply of a request, empty while it runs for longer than `seconds`; None where there is
        none (`is_forgotten` tells why)."""
        with self._lock:
            found = self._replies.get(request)
        if found is None:
            return None
        if found.is_there.wait(seconds) and not found.data:
            return None
        return found.data

    def is_forgotten(self, request: str) -> bool:
        """Returns whether a request without a reply has run, or may have."""
        with self._lock:
            return request in self._forgotten or 0 < _number(request) <= self._forgotten_number

    def _forget_old(self) -> None:
        with self._lock:
            while len(self._replies) > 1:
                first = next(iter(self._replies.values()))
                size = sum(len(each.data) for each in self._replies.values())
                if not first.is_there.is_set() or (len(self._replies) <= _KEPT_MAX and size <= _BYTES_MAX):
                    return
                request, _ = self._replies.popitem(last=False)
                self._forgotten[request] = None
                if len(self._forgotten) > _IDS_MAX:
                    oldest, _ = self._forgotten.popitem(last=False)
                    self._forgotten_number = max(self._forgotten_number, _number(oldest))


def _number(request: str) -> int:
    """Returns the number with which an id begins, 0 for none."""
    number = request.partition("-")[0]
    return int(number) if number.isdecimal() else 0
