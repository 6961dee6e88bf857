"""Ctrl-C during work that must not stop between two steps.

Python raises KeyboardInterrupt between any two steps of the main thread. One of these places is between the
acquisition of a lock and the block that releases it; the next thread that needs the lock would wait for ever.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class DeferredInterrupts:
    """Defers Ctrl-C: KeyboardInterrupt is raised at the end of the block. A second Ctrl-C raises it at once.

    Works in the main thread only, and only while Python's own handler of the signal is installed.
    """

    def __init__(self) -> None:
        self._is_installed = False
        self._is_pending = False

    def __enter__(self) -> None:
        is_main = threading.get_ident() == threading.main_thread().ident
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._is_installed = True
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_pending:
            signal.default_int_handler(number, frame)
        self._is_pending = True

    def __exit__(self, *_: object) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._is_pending:
                raise KeyboardInterrupt
