"""The maintenance of a store as a service: `serve` keeps every table in order, whoever loads it."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Final

from seqstore.store import Store, StoreError

_log: Final = logging.getLogger(__name__)


class MaintenanceService:
    """Calls `Store.maintain` again and again, in a thread; it listens nowhere.

    Loads of this process are followed by compactions of their own (maintenance.scheduler). This is for tables
    that other processes load and leave, and for what only time brings: old versions, labels, abandoned
    transactions.

    Args:
        seconds: between two rounds; 0 means never.
    """

    def __init__(self, store: Store, seconds: int) -> None:
        self._store = store
        self._seconds = seconds
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Nobody connects to it."""
        return ""

    async def start(self) -> None:
        """Begins with a round at once: what was left by a process that ended need not wait."""
        if self._seconds:
            self._thread = threading.Thread(target=self._work, name="seqstore-maintenance-service")
            self._thread.start()

    async def stop(self) -> None:
        """A compaction that runs stops between two segments."""
        self._ending.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                self._store.maintain(is_cancelled=self._ending.is_set)
            except (StoreError, OSError):
                _log.exception("maintenance failed; it is tried again in %d s", self._seconds)
            self._ending.wait(self._seconds)
