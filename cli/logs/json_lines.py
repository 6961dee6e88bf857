"""Log lines: text for people, or one JSON object for programs that collect logs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

FORMATS: Final = ("text", "json")
TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """One object a line: `time` (UTC), `level`, `logger`, `message`, `process`, `thread`.

    A line of a statement or load also has its `query_id`, `label`, `user`, `address`, `protocol` and
    `connection`, one of an exception has the trace as `exception`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
            **getattr(record, "ids", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_formatter(name: str) -> logging.Formatter:
    """Returns the formatter of a name in `FORMATS`."""
    return JsonLines() if name == "json" else logging.Formatter(TEXT_FORMAT)
