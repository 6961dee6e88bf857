"""An upload on its way from the event loop to the thread that loads it.

The thread reads; the loop feeds. Between them lie at most `HELD_BYTES_MAX` bytes, so a load that is slower
than its client makes the client wait (TCP does the rest). The thread notifies the loop when it wants the
first byte: until then a client that expects `100 Continue` has sent none, and every possible refusal was
made.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from seqstore.store.errors import InvalidInputError, StoreError, UnavailableError

HELD_BYTES_MAX: Final = 4 << 20


class BodyPipe:
    """A readable stream; made in the event loop's thread.

    Args:
        announced: the Content-Length, None without one.
        bytes_max: reading fails beyond these.
        idle_seconds: reading fails when nothing arrives for so long.
        bytes_per_second_min: reading fails when less arrives while it waits, once it has waited
            `idle_seconds` in all.
    """

    def __init__(
        self, *, announced: int | None, bytes_max: int, idle_seconds: float, bytes_per_second_min: float = 0
    ) -> None:
        self._bytes_per_second_min = bytes_per_second_min
        self._waited = 0.0
        self._loop = asyncio.get_running_loop()
        self._announced = announced
        self._bytes_max = bytes_max
        self._idle_seconds = idle_seconds
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._received = 0
        self._changed = threading.Condition()
        self._is_ended = False
        self._error: StoreError | None = None
        self._is_wanted = False
        self.wanted = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    # ------------------------------------------------------------------------------------------ event loop

    async def feed(self, piece: bytes) -> None:
        """Adds bytes of the client; waits while the reader is behind."""
        self._received += len(piece)
        if self._received > self._bytes_max:
            limit = f"{self._bytes_max >> 20} MB" if self._bytes_max >> 20 else f"{self._bytes_max} bytes"
            self.fail(
                InvalidInputError(
                    f"body exceed max size: {limit}, data: {self._received} bytes", kind="too_large"
                )
            )
            return
        with self._changed:
            self._pieces.append(piece)
            self._held += len(piece)
            self._changed.notify()
            if self._held > HELD_BYTES_MAX:
                self._has_room.clear()
        await self._has_room.wait()

    def end(self, *, is_cut: bool) -> None:
        """Marks the end of the body.

        Args:
            is_cut: the client left before it had sent everything (LR4).
        """
        if is_cut or (self._announced is not None and self._received != self._announced):
            announced = "" if self._announced is None else f" of {self._announced}"
            self.fail(
                InvalidInputError(
                    f"receive body don't equal with body bytes, body bytes={self._received}{announced}: "
                    "the client stopped before the end",
                    kind="short_body",
                )
            )
            return
        with self._changed:
            self._is_ended = True
            self._changed.notify()

    def fail(self, error: StoreError) -> None:
        """Makes reading raise from now on."""
        with self._changed:
            self._error = self._error or error
            self._pieces.clear()
            self._held = 0
            self._changed.notify()
        self._has_room.set()

    # ------------------------------------------------------------------------------------------ loading
    # thread

    def read(self, size: int = -1) -> bytes:
        """Reads `size` bytes, and fewer only at the end of the body.

        Raises:
            StoreError: the client stopped, sent too much or nothing for too long, or the server stops.
        """
        taken: list[bytes] = []
        left = size if size >= 0 else self._bytes_max + 1
        self._want()
        while left:
            with self._changed:
                self._wait()
                if not self._pieces:
                    break
                piece = self._pieces.popleft()
                if len(piece) > left:
                    self._pieces.appendleft(piece[left:])
                    piece = piece[:left]
                before = self._held
                self._held -= len(piece)
                is_half_empty = before > HELD_BYTES_MAX // 2 >= self._held
            if is_half_empty:
                self._in_loop(self._has_room.set)
            left -= len(piece)
            taken.append(piece)
        return b"".join(taken)

    def _wait(self) -> None:
        started = time.monotonic()
        deadline = started + self._idle_seconds
        while not self._pieces and not self._is_ended and self._error is None:
            if not self._changed.wait(deadline - time.monotonic()):
                self._error = UnavailableError(
                    f"the client sent nothing for {self._idle_seconds:g} s after {self._received} bytes; "
                    "send the body without a pause",
                    kind="timeout",
                )
        self._waited += time.monotonic() - started
        enough = self._waited * self._bytes_per_second_min
        if self._waited > self._idle_seconds and self._received < enough and not self._is_ended:
            self._error = self._error or UnavailableError(
                f"the client sent {self._received} bytes in {self._waited:.0f} s; send at least "
                f"{self._bytes_per_second_min:g} a second",
                kind="timeout",
            )
        if self._error is not None:
            raise self._error

    def _want(self) -> None:
        if not self._is_wanted:
            self._is_wanted = True
            self._in_loop(self.wanted.set)

    def _in_loop(self, call: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Ignores the rest of the body."""
