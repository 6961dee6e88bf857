"""Bearer tokens of the HTTP service: each stands for the login with which it was issued.

A token ends with the process and after an hour. Each request checks name and password again, so that a
dropped user, or another password, ends the tokens at once.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from typing import Final

SECONDS: Final = 3600
_TOKENS_MAX: Final = 10_000


class Tokens:
    """The tokens of one server. Threads may share it.

    Args:
        seconds: how long each is valid.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[str, str, float]] = OrderedDict()

    def issue(self, name: str, password: str) -> str:
        """Returns a new token of a login; the oldest one of too many ends."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._known) >= _TOKENS_MAX:
                self._known.popitem(last=False)
            self._known[_digest(token)] = name, password, time.monotonic() + self._seconds
        return token

    def login(self, token: str) -> tuple[str, str | None]:
        """Returns name and password of a token; no password where it is unknown or has ended."""
        with self._lock:
            found = self._known.get(_digest(token))
            if found is None:
                return "", None
            name, password, end = found
            if time.monotonic() >= end:
                del self._known[_digest(token)]
                return name, None
        return name, password

    def end(self, token: str) -> None:
        """Ends a token; one that is unknown has ended."""
        with self._lock:
            self._known.pop(_digest(token), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
