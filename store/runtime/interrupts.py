"""Ctrl-C in the middle of a transaction of the catalog: put off until it has ended.

Python raises KeyboardInterrupt between any two steps of the main thread, also between the taking of a lock
and the block that gives it back; whoever wanted the lock next would wait for ever.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class InterruptsPutOff:
    """A block that Ctrl-C does not break off: KeyboardInterrupt is raised at its end. A second Ctrl-C does
    not wait. Of effect in the main thread only, and where nobody else has taken care of the signal."""

    def __init__(self) -> None:
        self._is_mine = False
        self._came = False

    def __enter__(self) -> None:
        is_main = threading.get_ident() == threading.main_thread().ident
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._is_mine = True
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            signal.default_int_handler(number, frame)
        self._came = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._came:
                raise KeyboardInterrupt
