"""A client of Doris's scan service, with a codec of its own: the bytes are those that the connectors send."""

from __future__ import annotations

import socket
import struct
from typing import Any

OPEN_TYPES = {1: "s", 2: "s", 3: "s", 4: "l", 5: "s", 6: "i", 8: "q", 9: "s", 10: "s", 12: "i"}
NEXT_TYPES = {1: "s", 2: "q"}
CLOSE_TYPES = {1: "s"}
_CODES = {"s": 11, "l": 15, "i": 8, "q": 10}


class ThriftClient:
    """One connection."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=30)
        self._stream = self.socket.makefile("rb")
        self._number = 0

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def open(self, plan: str, tablets: list[int], user: str = "root:", **more: Any) -> dict[int, Any]:
        """Calls open_scanner; `more` has batch_size, limit, query_timeout."""
        name, _, password = user.partition(":")
        values = {1: "default_cluster", 2: "db", 3: "t", 4: tablets, 5: plan, 9: name, 10: password}
        numbers = {"batch_size": 6, "limit": 8, "query_timeout": 12}
        return self.call("open_scanner", values | {numbers[key]: more[key] for key in more}, OPEN_TYPES)

    def next(self, context: bytes, offset: int) -> dict[int, Any]:
        return self.call("get_next", {1: context.decode(), 2: offset}, NEXT_TYPES)

    def close_scanner(self, context: bytes) -> dict[int, Any]:
        return self.call("close_scanner", {1: context.decode()}, CLOSE_TYPES)

    def call(self, name: str, values: dict[int, Any], types: dict[int, str]) -> dict[int, Any]:
        """Returns the struct of the result, with lists and structs as Python has them."""
        self._number += 1
        fields = b"".join(_field(number, types[number], value) for number, value in values.items())
        head = struct.pack(">II", 0x80010001, len(name)) + name.encode() + struct.pack(">i", self._number)
        self.socket.sendall(head + b"\x0c\x00\x01" + fields + b"\x00\x00")
        return self.answer()

    def answer(self) -> dict[int, Any]:
        version, length = struct.unpack(">II", self._read(8))
        self._read(length + 4)
        result: dict[int, Any] = self._value(12)
        return result if version & 0xFF == 3 else result[0]

    def _read(self, count: int) -> bytes:
        data: bytes = self._stream.read(count)
        if len(data) < count:
            raise ConnectionError("the server closed the connection")
        return bytes(data)

    def _value(self, kind: int) -> Any:
        if kind == 12:
            found = {}
            while (inner := self._read(1)[0]) != 0:
                [number] = struct.unpack(">h", self._read(2))
                found[number] = self._value(inner)
            return found
        if kind == 11:
            return self._read(struct.unpack(">i", self._read(4))[0])
        if kind == 15:
            inner, count = struct.unpack(">bi", self._read(5))
            return [self._value(inner) for _ in range(count)]
        form = {2: ">?", 8: ">i", 10: ">q", 6: ">h"}[kind]
        return struct.unpack(form, self._read(struct.calcsize(form)))[0]


def _field(number: int, kind: str, value: Any) -> bytes:
    head = struct.pack(">bh", _CODES[kind], number)
    if kind == "s":
        return head + struct.pack(">i", len(value.encode())) + bytes(value.encode())
    if kind == "l":
        return head + struct.pack(">bi", 10, len(value)) + b"".join(struct.pack(">q", item) for item in value)
    return head + struct.pack(f">{kind}", value)
