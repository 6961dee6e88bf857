"""The newest events of the audit log, read from the end of its files; their number does not matter."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from seqstore.cli.clients.audit_log import FILE

_BLOCK_BYTES: Final = 1 << 16
_READ_BYTES_MAX: Final = 8 << 20


def newest_events(
    folder: Path, *, limit: int, like: str = "", ms_min: int = 0, has_console: bool = True
) -> dict[str, Any]:
    """Returns events, newest first, and whether the end of what may be read was reached before them.

    Args:
        like: only events whose line contains this text.
        ms_min: only events that took at least so many milliseconds.
        has_console: also the reads of the console itself.
    """
    found: list[dict[str, Any]] = []
    wanted = like.lower()
    left = [_READ_BYTES_MAX]
    for line in _lines(folder, left):
        if wanted and wanted not in line.lower():
            continue
        event = _event(line)
        if event is None or event.get("ms", 0) < ms_min:
            continue
        if not has_console and event.get("event") == "request" and "/api/console/" in event["statement"]:
            continue
        found.append(event)
        if len(found) == limit:
            break
    return {"events": found, "is_cut": left[0] <= 0}


def _event(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:  # the newest line may not be whole
        return None
    return found if isinstance(found, dict) else None


def _lines(folder: Path, left: list[int]) -> Iterator[str]:
    for path in [folder / FILE, *sorted(folder.glob("audit-*.log"), reverse=True)]:
        try:
            file = path.open("rb")
        except FileNotFoundError:  # it was closed, or made room
            continue
        with file:
            rest = b""
            position = file.seek(0, os.SEEK_END)
            while position > 0 and left[0] > 0:
                size = min(_BLOCK_BYTES, position)
                position -= size
                left[0] -= size
                file.seek(position)
                first, *others = (file.read(size) + rest).split(b"\n")
                yield from (line.decode(errors="replace") for line in reversed(others) if line)
                rest = first
            if position == 0 and rest:
                yield rest.decode(errors="replace")
        if left[0] <= 0:
            return
