"""How long the calls of one connection have waited for their client.

gRPC sets no limit to the silence of a client within a call. So a call is late when its client sends nothing
for `body_idle_seconds`, or less than `body_bytes_per_second_min` behind these, as with bodies of HTTP. Time
in which the server works does not count: the client may have no room to send then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from seqstore.cli.clients.admission import ConnectionLimits


@dataclass
class _Pace:
    """Of one call: since when it waits, None while the server works; seconds before that; bytes so far."""

    since: float | None
    waited: float = 0.0
    bytes: int = 0

    def seconds(self, now: float) -> float:
        return self.waited + (now - self.since if self.since is not None else 0.0)


class CallPaces:
    """The calls of a connection of which more is to come, by stream. Safe to share between threads."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._idle_seconds = limits.body_idle_seconds
        self._rate = limits.body_bytes_per_second_min
        self._lock = threading.Lock()
        self._paces: dict[int, _Pace] = {}

    def begin(self, stream: int) -> None:
        """Begins a call, of which more is to come."""
        with self._lock:
            self._paces[stream] = _Pace(time.monotonic())

    def arrived(self, stream: int, size: int) -> None:
        """Counts bytes of a call."""
        with self._lock:
            pace = self._paces.get(stream)
            if pace is None:
                return
            pace.bytes += size
            if pace.since is not None:
                now = time.monotonic()
                pace.waited, pace.since = pace.seconds(now), now

    def end(self, stream: int) -> None:
        """Forgets a call that has ended, or of which all is here."""
        with self._lock:
            self._paces.pop(stream, None)

    def working(self, stream: int) -> AbstractContextManager[None]:
        """Stops the clock of a call within the block, but for `waiting`."""
        return self._within(stream, is_waiting=False)

    def waiting(self, stream: int) -> AbstractContextManager[None]:
        """Runs the clock of a call within the block."""
        return self._within(stream, is_waiting=True)

    @contextmanager
    def _within(self, stream: int, *, is_waiting: bool) -> Iterator[None]:
        self._set(stream, is_waiting=is_waiting)
        try:
            yield
        finally:
            self._set(stream, is_waiting=not is_waiting)

    def _set(self, stream: int, *, is_waiting: bool) -> None:
        now = time.monotonic()
        with self._lock:
            pace = self._paces.get(stream)
            if pace is not None:
                pace.waited, pace.since = pace.seconds(now), now if is_waiting else None

    def late(self) -> str:
        """Returns what a client does too slowly, empty when none is late."""
        now = time.monotonic()
        with self._lock:
            for pace in self._paces.values():
                if pace.since is None:
                    continue
                if now - pace.since >= self._idle_seconds:
                    return f"the client sent nothing for {self._idle_seconds:g} s within a call"
                seconds = pace.seconds(now)
                if seconds > self._idle_seconds and pace.bytes < seconds * self._rate:
                    return f"the client sent {pace.bytes} bytes of a call in {seconds:.0f} s"
        return ""
