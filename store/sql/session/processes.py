"""The sessions of a server, for SHOW PROCESSLIST and KILL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from seqstore.store.errors import NotFoundError


@dataclass(frozen=True)
class Process:
    """One session.

    Attributes:
        stop: ends it from another thread.
        text: of the running statement, empty between statements.
        since: `time.monotonic()` of the last change.
    """

    number: int
    stop: Callable[[], None]
    user: str = ""
    database: str = ""
    text: str = ""
    since: float = 0.0

    @property
    def seconds(self) -> int:
        """Seconds since the last change of its state."""
        return int(time.monotonic() - self.since)


class Processes:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[int, Process] = {}

    def add(self, number: int, stop: Callable[[], None]) -> None:
        with self._lock:
            self._found[number] = Process(number, stop, since=time.monotonic())

    def remove(self, number: int) -> None:
        with self._lock:
            self._found.pop(number, None)

    def change(self, number: int, *, user: str, database: str, text: str) -> None:
        """Sets the state of a session."""
        with self._lock:
            process = self._found.get(number)
            if process is not None:
                self._found[number] = replace(
                    process, user=user, database=database, text=text, since=time.monotonic()
                )

    def all(self) -> list[Process]:
        """Returns every session, by number."""
        with self._lock:
            return sorted(self._found.values(), key=lambda process: process.number)

    def kill(self, number: int) -> None:
        """Ends a session.

        Raises:
            NotFoundError: there is none of that number.
        """
        with self._lock:
            process = self._found.get(number)
        if process is None:
            raise NotFoundError(f"Unknown thread id: {number}", kind="unknown_process")
        process.stop()
