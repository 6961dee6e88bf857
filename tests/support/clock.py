"""A clock for the times of versions, which a test moves."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Final
from unittest import mock

_MODULE: Final = "seqstore.store.catalog.transaction_record.time"


class Clock:
    """The time of the store's records; each look at it is a millisecond later.

    It starts at a full hour, so steps of time are the same in each run.
    """

    def __init__(self) -> None:
        self.now_ms = (time.time_ns() // 1_000_000 // 3_600_000 + 1) * 3_600_000
        self._patch = mock.patch(_MODULE, SimpleNamespace(time_ns=self._look))

    def start(self) -> None:
        """Sets the clock for this process."""
        self._patch.start()

    def stop(self) -> None:
        """Restores the time of day."""
        self._patch.stop()

    def __enter__(self) -> Clock:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def tick(self, seconds: float) -> None:
        """Moves the clock forward."""
        self.now_ms += round(seconds * 1000)

    def _look(self) -> int:
        self.now_ms += 1
        return self.now_ms * 1_000_000
