"""The MySQL protocol as clients speak it: statements through PyMySQL, and packets byte by byte."""

from __future__ import annotations

import hashlib
import socket
from typing import Any

CAPABILITIES = 0x0008_A200  # protocol 4.1, transactions, secure connection, plugin authentication
_PLUGIN = b"mysql_native_password\0"


def ask(connection: Any, text: str, arguments: Any = None) -> list[tuple[Any, ...]]:
    """Runs a statement; gives its rows."""
    with connection.cursor() as cursor:
        cursor.execute(text, arguments)
        return list(cursor.fetchall())


def dial(port: int) -> tuple[socket.socket, bytes]:
    """A new connection, and the nonce of its greeting."""
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    return client, nonce_of(read_packet(client))


def read_packet(client: socket.socket) -> bytes:
    """The next payload; empty when the server has closed the connection."""
    head = _exactly(client, 4)
    return _exactly(client, int.from_bytes(head[:3], "little")) if head else b""


def _exactly(client: socket.socket, count: int) -> bytes:
    """So many bytes, or as many as come; sockets with TLS know no MSG_WAITALL."""
    data = b""
    while len(data) < count and (piece := client.recv(count - len(data))):
        data += piece
    return data


def send_packet(client: socket.socket, payload: bytes, sequence: int = 0) -> None:
    """Sends a payload of less than 16 MiB."""
    client.sendall(len(payload).to_bytes(3, "little") + bytes([sequence]) + payload)


def log_in(client: socket.socket, user: str, scrambled: bytes = b"") -> bytes:
    """Sends the handshake response; gives the first payload of the answer."""
    name = user.encode() + b"\0"
    body = CAPABILITIES.to_bytes(4, "little") + bytes(28) + name + bytes([len(scrambled)]) + scrambled
    send_packet(client, body + _PLUGIN, 1)
    return read_packet(client)


def scramble(password: str, nonce: bytes) -> bytes:
    """The answer of `mysql_native_password`."""
    once = hashlib.sha1(password.encode()).digest()
    mask = hashlib.sha1(nonce + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def nonce_of(greeting: bytes) -> bytes:
    """The random bytes of a greeting."""
    after = greeting.index(b"\0", 1) + 5  # the version and the connection's number
    return greeting[after : after + 8] + greeting[after + 27 : after + 39]
