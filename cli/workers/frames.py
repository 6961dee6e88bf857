"""The frames between the hub and a worker: msgpack arrays on a socket pair, which no other process can reach.

worker to hub   [id, operation, *arguments]    id 0 expects no reply
hub to worker   [id, "reply", value]           also [id, "refused", class, message, kind]
hub to worker   [id, "do", operation, *arguments]
worker to hub   [id, "did", value]
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, Final

import msgpack

FRAME_BYTES_MAX: Final = 32 << 20
_PIECE_BYTES: Final = 1 << 18


def packed(frame: list[Any]) -> bytes:
    """Returns the bytes of a frame."""
    found: bytes = msgpack.packb(frame)
    return found


class FrameReader:
    """Cuts the bytes of one socket into frames."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._unpacker = msgpack.Unpacker(max_buffer_size=FRAME_BYTES_MAX, strict_map_key=False)

    def read(self) -> Iterator[list[Any]] | None:
        """Returns the frames that one read completes, None when the other side has closed.

        Raises:
            BlockingIOError: the socket does not block, and has nothing.
            msgpack.BufferFull: a frame is longer than allowed.
        """
        try:
            piece = self._source.recv(_PIECE_BYTES)
        except BlockingIOError:
            raise
        except OSError:
            piece = b""
        if not piece:
            return None
        self._unpacker.feed(piece)
        frames: Iterator[list[Any]] = iter(self._unpacker)
        return frames
