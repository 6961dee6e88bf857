"""A thread that repeats one step until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

_log: Final = logging.getLogger(__name__)


class PeriodicThread:
    """Calls a step at once and then every `seconds`. An error is logged: the next call may succeed.

    Attributes:
        ending: set from `stop` on; a long step reads it.
    """

    def __init__(self, name: str, step: Callable[[], None], seconds: float) -> None:
        self.ending = threading.Event()
        self._name = name
        self._step = step
        self._seconds = seconds
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns after the running step has ended."""
        self.ending.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self.ending.is_set():
            try:
                self._step()
            except Exception:  # a thread that ended would stop every later step
                _log.exception("%s failed; the next try is in %g s", self._name, self._seconds)
            self.ending.wait(self._seconds)
