"""What a command waits for, on standard error: from the first second of each command on.

Every command has it without doing anything: `main` opens it around the command, with its name. A command says
more by `doing` (on what it works), `counted` (how much is done) and `paused` (it has the terminal itself).

1. On a terminal one line is drawn again four times a second and removed at the end.
2. Elsewhere, and with NO_COLOR or TERM=dumb, plain lines are printed: after 1, 2, 5, 10, 20 and 30 seconds,
   then every minute.

Standard output has none of it, and with `--quiet` nothing has.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

_T = TypeVar("_T")

_FIRST_SECONDS: Final = 1.0
_DRAW_SECONDS: Final = 0.25
_LINE_SECONDS: Final = (2.0, 5.0, 10.0, 20.0, 30.0)
_MINUTE: Final = 60.0
_CLEAR: Final = "\r\x1b[2K"
_TURNS: Final = "|/-\\"
_MIB: Final = 1 << 20


class _Screen(Protocol):
    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class Progress:
    """The progress of one command; safe to use from any thread.

    Args:
        name: of the command.
        screen: where it is shown.
        is_drawn: one line that is drawn again, instead of plain lines.
    """

    def __init__(self, name: str, screen: _Screen, *, is_drawn: bool) -> None:
        self._name = name
        self._screen = screen
        self._is_drawn = is_drawn
        self._doing = ""
        self._amount: Callable[[], str] = str
        self._began = time.monotonic()
        self._pauses = 0
        self._is_visible = False
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_ended: object) -> None:
        self._ending.set()
        self._thread.join()
        self.clear()

    def doing(self, text: str) -> None:
        """Sets what the command works on now, which is shown without secrets; the amount begins anew."""
        from seqstore.store.runtime.secrets.statements import masked_statement  # imports much of the store

        with self._lock:
            self._doing, self._amount = masked_statement(text), str

    def counted(self, amount: Callable[[], str]) -> None:
        """Sets the function that says how much is done; it is called only while it is shown."""
        with self._lock:
            self._amount = amount

    def clear(self) -> None:
        """Removes the drawn line, before something else is printed."""
        with self._lock:
            if self._is_visible:
                self._is_visible = False
                self._write(_CLEAR)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Shows nothing during a block, whose seconds do not count."""
        with self._lock:
            self._pauses += 1
            self.clear()
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1
                self._began = time.monotonic()

    def line(self) -> str:
        """Returns what is shown now."""
        with self._lock:
            seconds = int(time.monotonic() - self._began)
            try:
                amount = self._amount()
            except Exception:  # a reading of figures that has ended, or is under way
                amount = ""
            parts = [self._name, self._doing, amount, f"{seconds // 60}:{seconds % 60:02} min"]
        return ", ".join(" ".join(part.split()) for part in parts if part)

    def _run(self) -> None:
        dues = [_FIRST_SECONDS, *_LINE_SECONDS]
        began = self._began
        while not self._ending.wait(_DRAW_SECONDS if self._is_visible else 0.05):
            with self._lock:
                if began != self._began:
                    began, dues = self._began, [_FIRST_SECONDS, *_LINE_SECONDS]
                elapsed = time.monotonic() - began
                if self._pauses or elapsed < dues[0]:
                    continue
                if self._is_drawn:
                    self._draw(elapsed)
                    continue
                dues = dues[1:] or [elapsed // _MINUTE * _MINUTE + _MINUTE]
                self._write(f"seqstore: {self.line()}\n")

    def _draw(self, elapsed: float) -> None:
        width = max(shutil.get_terminal_size().columns - 3, 10)
        turn = _TURNS[int(elapsed / _DRAW_SECONDS) % len(_TURNS)]
        self._is_visible = True
        self._write(f"{_CLEAR}{turn} {self.line()[:width]}")

    def _write(self, text: str) -> None:
        try:
            self._screen.write(text)
            self._screen.flush()
        except (OSError, ValueError):  # it is closed, or its reader has ended
            self._ending.set()


_current: Progress | None = None


@contextmanager
def shown(name: str, *, is_quiet: bool) -> Iterator[None]:
    """Shows the progress of a command during a block."""
    global _current
    if is_quiet or _current is not None:
        yield
        return
    stream: Any = sys.stderr
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    with Progress(name, stream, is_drawn=stream.isatty() and not is_plain) as progress:
        _current = progress
        try:
            yield
        finally:
            _current = None


def clear() -> None:
    """Removes what is drawn, before something is printed."""
    if _current is not None:
        _current.clear()


def doing(text: str, number: int = 0, total: int = 0) -> None:
    """Sets what the command works on now.

    Args:
        number: of it, from 1, where there are `total` of them.
    """
    if _current is not None:
        _current.doing(f"{text} ({number} of {total})" if total > 1 else text)


def each(names: Sequence[str]) -> Iterator[str]:
    """Yields names, such as those of tables, each while the command works on it."""
    for number, name in enumerate(names, 1):
        doing(name, number, len(names))
        yield name


def counted(amount: Callable[[], str]) -> None:
    """Sets the function that says how much is done."""
    if _current is not None:
        _current.counted(amount)


def counting(items: Iterable[_T], unit: str) -> Iterator[_T]:
    """Yields items and shows how many there were."""
    count = 0
    counted(lambda: f"{count} {unit}")
    for item in items:
        count += 1
        yield item


def done(count: int, total: int, unit: str) -> None:
    """Says how much of what is countable is done."""
    counted(lambda: f"{count} of {total} {unit}")


def size(done_bytes: int, total_bytes: int | None) -> str:
    """Formats how many bytes are done, in MiB."""
    if total_bytes is None:
        return f"{done_bytes / _MIB:.1f} MiB"
    return f"{done_bytes / _MIB:.1f} of {total_bytes / _MIB:.1f} MiB"


@contextmanager
def paused() -> Iterator[None]:
    """Shows nothing while something else has the terminal, or nothing is awaited."""
    if _current is None:
        yield
        return
    with _current.paused():
        yield
