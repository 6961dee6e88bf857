"""Bearer tokens of the HTTP service: each stands for the login with which it was issued.

A token ends with the server and after an hour. All processes of a server know it. Each request checks name
and password again, so that a dropped user, or another password, ends the tokens at once.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from seqstore.cli.clients.shared import NoReplicas, Replicas

SECONDS: Final = 3600
_TOKENS_MAX: Final = 10_000


class Tokens:
    """The tokens of one server. Threads may share it.

    Args:
        replicas: those of the other processes.
        seconds: how long each is valid.
    """

    def __init__(self, replicas: Replicas | None = None, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[str, str, float]] = OrderedDict()
        self._replicas = replicas if replicas is not None else NoReplicas()
        self._replicas.follow(self._learn)

    def issue(self, name: str, password: str) -> str:
        """Returns a new token of a login; the oldest one of too many ends."""
        token = secrets.token_urlsafe(32)
        value = name, password, time.monotonic() + self._seconds
        self._learn(_digest(token), value)
        self._replicas.tell(_digest(token), value)
        return token

    def _learn(self, digest: bytes, value: Sequence[Any]) -> None:
        name, password, end = value
        with self._lock:
            while len(self._known) >= _TOKENS_MAX:
                self._known.popitem(last=False)
            self._known[digest] = name, password, end

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
        ended = "", "", 0.0
        self._learn(_digest(token), ended)
        self._replicas.tell(_digest(token), ended)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
