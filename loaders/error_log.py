"""The rows a load left out, for its user: one line each, with the reason and the unchanged row (LS11).

A log keeps the first rows only, and a store the newest logs only, so both are bounded for every load.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from seqstore.loaders.source import TEXT_SHOWN_MAX, BadRow, one_line

ROWS_MAX: Final = 1_000
FILES_MAX: Final = 1_000
_FOLDER: Final = "error_log"


class ErrorLog:
    """The error log of one load; its first row creates the file.

    Args:
        txn_id: returns the load's transaction, for the name of the file.

    Attributes:
        path: of the file, None while nothing was written.
    """

    def __init__(self, data_dir: Path, txn_id: Callable[[], int]) -> None:
        self._folder = data_dir / _FOLDER
        self._txn_id = txn_id
        self._file: IO[str] | None = None
        self._rows = 0
        self.first: BadRow | None = None
        self.path: Path | None = None

    @property
    def is_full(self) -> bool:
        return self._rows >= ROWS_MAX

    def add(self, row: BadRow) -> None:
        """Writes one line, unless the log is full."""
        if self.is_full:
            return
        if self._file is None:
            self._folder.mkdir(exist_ok=True)
            _forget_oldest(self._folder)
            name = f"error_log_{self._txn_id()}_{uuid.uuid4().hex[:16]}"
            self.first, self.path = row, self._folder / name
            self._file = self.path.open("w", encoding="utf-8", errors="backslashreplace")
        self._rows += 1
        reason = " ".join(row.reason.split())
        self._file.write(f"line {row.place.line}: Reason: {reason}. src line [{_cut(row.place.text)}];\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _cut(text: str) -> str:
    """Returns a text for the log: a whole one is only kept for dead letters."""
    if len(text) <= TEXT_SHOWN_MAX and "\n" not in text:
        return text
    return one_line(text.encode("utf-8", "surrogatepass"))


def log_path(data_dir: Path, name: str) -> Path:
    """Returns the path of a log, which may not exist any more; the name must be one of a reply."""
    return data_dir / _FOLDER / name


def _forget_oldest(folder: Path) -> None:
    """Makes room for one more file."""
    logs = [path for path in folder.iterdir() if path.name.startswith("error_log_")]
    if len(logs) < FILES_MAX:
        return
    ages = []
    for path in logs:
        try:
            ages.append((path.stat().st_mtime_ns, path))
        except FileNotFoundError:  # another process was faster
            continue
    for _, path in sorted(ages)[: len(ages) - FILES_MAX + 1]:
        path.unlink(missing_ok=True)
