"""Repeated log lines: the first few of a kind in ten seconds, then the number of those left out."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

_SECONDS: Final = 10.0
_LINES_MAX: Final = 5
_KINDS_MAX: Final = 1024


@dataclass
class _Kind:
    """Lines of one place with one text before its values are put in."""

    since: float
    count: int = 0


class LogThrottle(logging.Filter):
    """Drops repeated lines of a handler."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether a line is written; the first of a new period has the number of dropped ones."""
        key, now = (record.name, record.levelno, str(record.msg)[:200]), time.monotonic()
        kind = self._kinds.get(key)
        if kind is None or now - kind.since > _SECONDS:
            dropped = max(kind.count - _LINES_MAX, 0) if kind is not None else 0
            if len(self._kinds) >= _KINDS_MAX:
                self._kinds.clear()
            kind = self._kinds[key] = _Kind(now)
            if dropped:
                record.msg, record.args = f"{record.getMessage()} ({dropped} such lines were left out)", ()
        kind.count += 1
        return kind.count <= _LINES_MAX
