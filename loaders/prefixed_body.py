"""A body whose first bytes were read already."""

from __future__ import annotations

from typing import BinaryIO


class PrefixedBody:
    """Puts the bytes that were read back before the rest of a body."""

    closed = False

    def __init__(self, head: bytes, body: BinaryIO) -> None:
        self._head = head
        self._body = body

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._body.read(size)
        if size < 0:
            taken, self._head = self._head, b""
            return taken + self._body.read()
        taken, self._head = self._head[:size], self._head[size:]
        return taken if len(taken) == size else taken + self.read(size - len(taken))

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
