"""The HTTP/2 frames of a gRPC client: each request gets its sender, and what is under way is bounded.

gRPC neither tells a server's login which client calls, nor bounds what clients send before a call begins.

1. The header block of a request ends with a header of ours: a CONTINUATION frame with one literal that no
   table of the compression remembers. A client that leaves its block open at the end can swallow it, but not
   forge it, because its name is a secret.
2. Frames are passed on as they arrive. Bytes count from their arrival until the call of their stream ends, or
   has read a message: an upload may be longer than what a connection may have under way, because gRPC takes
   no more of it than a window before the call reads on.
3. A flag of its last frame ends what a call sends.
4. A client cancels a call by a frame that resets its stream. gRPC's own answer is freed with the call.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from seqstore.cli.scan.call_paces import CallPaces

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES: Final = 9
_DATA, _HEADERS, _RESET, _CONTINUATION = 0, 1, 3, 9
_END_STREAM, _END_HEADERS = 1, 4
_LITERAL: Final = b"\0"  # of a header that is not indexed, with a name of its own
_SHORT_MAX: Final = 126  # bytes of a text whose length has one byte


class RequestRefusedError(Exception):
    """The client sent what it may not send; its connection ends."""


class RequestFrames:
    """What one client sends. One thread feeds it; other methods are safe to call from others.

    Args:
        name: of the header, in lower case.
        client: its value is this, a space and the number of the stream.
        streams_max: calls of the connection at a time.
        paces: measures how long calls wait for the rest of what their client sends.

    Attributes:
        bytes_max: of calls that have not ended, with their headers.
        bytes: of calls that have not ended.
    """

    def __init__(self, name: str, client: str, *, bytes_max: int, streams_max: int, paces: CallPaces) -> None:
        self._name = _text(name)
        self._paces = paces
        self._client = client
        self._streams_max = streams_max
        self._streams: dict[int, int] = {}
        self._reset: set[int] = set()  # of these
        self._complete: set[int] = set()
        self._completing = 0  # the stream whose last frame is under way
        self._newest = 0
        self._ended: deque[int] = deque()
        self._read: deque[int] = deque()
        self._head = bytearray()  # the part of the preface or of a frame's head that is here
        self._wanted = len(PREFACE)
        self._stream = 0  # of the frame
        self._left = 0  # bytes of the frame that are to come
        self._behind = b""  # what follows the frame
        self.bytes_max = bytes_max
        self.bytes = 0

    def end(self, stream: int) -> None:
        """Forgets the bytes of a call that has ended."""
        self._ended.append(stream)
        self._paces.end(stream)

    def read(self, stream: int) -> None:
        """Forgets the bytes of a call up to now, which has read a message."""
        self._read.append(stream)

    def is_reset(self, stream: int) -> bool:
        """Returns whether the client has cancelled a call that has not ended."""
        return stream in self._reset

    def has_all(self, stream: int) -> bool:
        """Returns whether the client has sent all of a call that has not ended."""
        return stream in self._complete

    def feed(self, data: bytes) -> bytes:
        """Returns what the server gets for the next bytes of the client.

        Raises:
            RequestRefusedError: it is no HTTP/2, or more than the connection may have under way.
        """
        given: list[bytes | memoryview] = []
        view, place = memoryview(data), 0
        while place < len(view):
            if self._left:
                part = view[place : place + self._left]
                self._paces.arrived(self._stream, len(part))
                given.append(part)
                place += len(part)
                self._left -= len(part)
            else:
                part = view[place : place + self._wanted - len(self._head)]
                self._head += part
                place += len(part)
                if len(self._head) < self._wanted:
                    break
                given.append(self._begin())
            if not self._left and self._behind:
                given.append(self._behind)
                self._behind = b""
            if not self._left and self._completing:
                self._complete.add(self._completing)
                self._paces.end(self._completing)
                self._completing = 0
        return b"".join(given)

    def _begin(self) -> bytes:
        """Returns the preface or the head of a frame, as the server gets it."""
        head, self._head = bytes(self._head), bytearray()
        if self._wanted != _HEAD_BYTES:
            if head != PREFACE:
                raise RequestRefusedError("the client speaks no HTTP/2")
            self._wanted = _HEAD_BYTES
            return head
        self._left = int.from_bytes(head[:3], "big")
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        self._stream = stream
        if kind == _RESET and stream in self._streams:
            self._reset.add(stream)
            self._paces.end(stream)
        if kind not in (_DATA, _HEADERS, _CONTINUATION):
            return head
        self._count(kind, stream)
        if kind != _CONTINUATION and flags & _END_STREAM and stream in self._streams:
            self._completing = stream
        if kind == _DATA or not flags & _END_HEADERS:
            return head
        value = _text(f"{self._client} {stream}")
        block = _LITERAL + self._name + value
        self._behind = len(block).to_bytes(3, "big") + bytes([_CONTINUATION, _END_HEADERS]) + head[5:] + block
        return head[:4] + bytes([flags & ~_END_HEADERS]) + head[5:]

    def _count(self, kind: int, stream: int) -> None:
        while self._read:
            read = self._read.popleft()
            if read in self._streams:
                self.bytes -= self._streams[read]
                self._streams[read] = 0
        while self._ended:
            ended = self._ended.popleft()
            self.bytes -= self._streams.pop(ended, 0)
            self._reset.discard(ended)
            self._complete.discard(ended)
        if kind == _HEADERS and stream > self._newest:
            self._newest = stream
            self._streams[stream] = 0
            self._paces.begin(stream)
        if stream in self._streams:
            self._streams[stream] += self._left + _HEAD_BYTES
            self.bytes += self._left + _HEAD_BYTES
        if len(self._streams) > self._streams_max:
            raise RequestRefusedError(f"more than {self._streams_max} calls at a time")
        if self.bytes > self.bytes_max:
            raise RequestRefusedError(f"more than {self.bytes_max} bytes in calls that have not ended")


def _text(value: str) -> bytes:
    """Returns a text as the compression of headers writes it, without Huffman's code."""
    found = value.encode("ascii")
    if len(found) > _SHORT_MAX:
        raise ValueError(f"expected at most {_SHORT_MAX} bytes, found {value!r}")
    return bytes([len(found)]) + found
