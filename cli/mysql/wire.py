"""Packets: a length of three bytes, a sequence number, a payload. Larger payloads need several packets.

Numbers are little-endian. A length-encoded integer has one byte below 251, else a mark and 2, 3 or 8
bytes; a length-encoded string is such a length and the bytes.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Final

from seqstore.store.errors import InvalidInputError, UnavailableError
from seqstore.store.runtime.memory_limit import with_memory
from seqstore.store.runtime.memory_pool import MemoryPool

PAYLOAD_MAX: Final = 0xFFFFFF
_BUFFER_BYTES: Final = 1 << 16

# Capabilities that this server has, and those it looks at.
CONNECT_WITH_DB: Final = 0x8
SSL: Final = 0x800
MULTI_STATEMENTS: Final = 0x1_0000
PLUGIN_AUTH: Final = 0x8_0000
PLUGIN_AUTH_LENENC: Final = 0x20_0000
SECURE_CONNECTION: Final = 0x8000
CAPABILITIES: Final = (
    0x1  # long passwords
    | 0x2  # found rows
    | 0x4  # long flags
    | CONNECT_WITH_DB
    | 0x100  # blanks behind function names
    | 0x200  # protocol 4.1
    | 0x400  # interactive clients
    | 0x2000  # transactions
    | SECURE_CONNECTION
    | MULTI_STATEMENTS
    | 0x2_0000  # several results
    | 0x4_0000  # several results of prepared statements
    | PLUGIN_AUTH
    | 0x10_0000  # connection attributes
    | PLUGIN_AUTH_LENENC
)

STATUS_IN_TRANSACTION: Final = 0x1
STATUS_AUTOCOMMIT: Final = 0x2
STATUS_MORE_RESULTS: Final = 0x8
STATUS_IN_READ_ONLY_TRANSACTION: Final = 0x2000


_SMALL_BYTES: Final = 1 << 20
_packets: Final = MemoryPool("a statement of this size", 1 / 8, _SMALL_BYTES)


class ProtocolError(Exception):
    """The client does not speak the protocol; the connection ends."""


class PacketTooLargeError(ProtocolError):
    """A client sends more than `max_allowed_packet` bytes; the connection ends, as in MySQL."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"a packet of more than {bytes_max} bytes")
        self.for_client = InvalidInputError(
            f"Got a packet bigger than 'max_allowed_packet' bytes ({bytes_max}); send less, or SET GLOBAL "
            "more",
            kind="packet_too_large",
        )


@dataclass(frozen=True)
class Pace:
    """How fast a client sends the rest of a payload that it has begun, whose memory is reserved.

    Attributes:
        idle_seconds: it sends something within them.
        bytes_per_second_min: it sends so much while the server waits, once that was `idle_seconds` in all.
    """

    idle_seconds: float
    bytes_per_second_min: float


class Channel:
    """Packets over a socket.

    Args:
        pace: of the client; None sets no other limit than that of the socket.
        user: whose large payloads share half of their memory.

    Attributes:
        sequence: the number of the next packet in either direction.
        sending_since: `time.monotonic()` when a send began that still waits for the client, else None.
    """

    def __init__(
        self, connection: socket.socket, payload_bytes_max: int, pace: Pace | None = None, user: str = ""
    ) -> None:
        self.socket = connection
        self._pace = pace
        self._user = user
        self._waited = 0.0  # for the rest of a payload
        self._arrived = 0
        self.sequence = 0
        self._sent = 0
        self._payload_bytes_max = payload_bytes_max
        self._pending = bytearray()
        self.sending_since: float | None = None
        self._reserved = 0

    def read(self) -> bytes:
        """Returns the next payload, after a flush of the written bytes.

        Raises:
            ConnectionError: the client has disconnected.
            ProtocolError: the payload is larger than allowed.
            UnavailableError: there is no memory for it, or the client sends it too slowly.
        """
        self.flush()
        self.give_back()
        parts: list[bytes] = []
        total = 0
        self._waited, self._arrived = 0.0, 0
        while True:
            header = self._exactly(4, None if not parts else self._pace)
            length = int.from_bytes(header[:3], "little")
            self.sequence = (header[3] + 1) & 0xFF
            total += length
            if total > self._payload_bytes_max:
                raise PacketTooLargeError(self._payload_bytes_max)
            _packets.take(length, self._user, self._reserved)
            self._reserved += length if length > _SMALL_BYTES else 0
            parts.append(self._exactly(length, self._pace))
            if length < PAYLOAD_MAX:
                return b"".join(parts)

    def give_back(self) -> None:
        """Ends the reservation for the last payload."""
        if self._reserved:
            _packets.give_back(self._reserved, self._user)
            self._reserved = 0

    def _exactly(self, count: int, pace: Pace | None) -> bytes:
        data = with_memory(lambda: bytearray(count))
        view, got = memoryview(data), 0
        while got < count:
            rest = view[got:]
            received = self.socket.recv_into(rest) if pace is None else self._received(rest, pace)
            if not received:
                raise ConnectionResetError("the client closed the connection")
            got += received
        return with_memory(lambda: bytes(data))

    def _received(self, view: memoryview, pace: Pace) -> int:
        """Receives a part of a payload from a client of some pace."""
        before = self.socket.gettimeout()
        begun = time.monotonic()
        self.socket.settimeout(pace.idle_seconds)
        try:
            received = self.socket.recv_into(view)
        except TimeoutError as error:
            raise self._too_slow(f"nothing for {pace.idle_seconds:g} s") from error
        finally:
            self.socket.settimeout(before)
        self._waited += time.monotonic() - begun
        self._arrived += received
        is_late = self._waited > pace.idle_seconds
        if received and is_late and self._arrived < self._waited * pace.bytes_per_second_min:
            raise self._too_slow(f"less than {pace.bytes_per_second_min:g} bytes a second")
        return received

    def _too_slow(self, what: str) -> UnavailableError:
        return UnavailableError(
            f"Got timeout reading communication packets: the client sent {what} after {self._arrived} bytes "
            "of a packet; send the packet without a pause",
            kind="read_timeout",
        )

    @property
    def bytes_sent(self) -> int:
        """The bytes for the client, those included that are queued."""
        return self._sent + len(self._pending)

    def write(self, payload: bytes) -> None:
        """Queues one payload."""
        start = 0
        while True:
            part = payload[start : start + PAYLOAD_MAX]
            self._pending += len(part).to_bytes(3, "little") + bytes([self.sequence]) + part
            self.sequence = (self.sequence + 1) & 0xFF
            start += len(part)
            if len(part) < PAYLOAD_MAX:
                break
        if len(self._pending) >= _BUFFER_BYTES:
            self.flush()

    def write_packets(self, packets: bytes | memoryview, count: int) -> None:
        """Sends packets that carry their headers already, numbered from `sequence` on."""
        self.flush()
        self._send(packets)
        self.sequence = (self.sequence + count) & 0xFF

    def flush(self) -> None:
        if self._pending:
            self._send(self._pending)
            self._pending.clear()

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        self.sending_since = time.monotonic()
        self.socket.sendall(data)
        self.sending_since = None
        self._sent += len(data)


def lenenc(number: int) -> bytes:
    """Returns a length-encoded integer."""
    if number < 251:
        return bytes([number])
    if number < 1 << 16:
        return b"\xfc" + struct.pack("<H", number)
    if number < 1 << 24:
        return b"\xfd" + struct.pack("<I", number)[:3]
    return b"\xfe" + struct.pack("<Q", number)


def text(value: str) -> bytes:
    """Returns a length-encoded string in UTF-8."""
    data = value.encode("utf-8", "replace")
    return lenenc(len(data)) + data


class Payload:
    """Reads the fields of one payload, front to back."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise ProtocolError("a packet that ends too early")
        self.at += count
        return part

    def integer(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def lenenc(self) -> int:
        first = self.integer(1)
        return first if first < 251 else self.integer({0xFC: 2, 0xFD: 3}.get(first, 8))

    def lenenc_bytes(self) -> bytes:
        return self.take(self.lenenc())

    def zero_ended(self) -> bytes:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            end = len(self.data)
        part = self.data[self.at : end]
        self.at = min(end + 1, len(self.data))
        return part

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.data)
