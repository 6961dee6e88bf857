"""pyarrow's client of Arrow Flight SQL; the messages are built as the protocol describes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import flight


class FlightClient:
    """A client that has logged in."""

    def __init__(
        self, port: int, user: str = "root", password: str = "", certificate: bytes | None = None
    ) -> None:
        scheme = "grpc" if certificate is None else "grpc+tls"
        self.client = flight.connect(f"{scheme}://localhost:{port}", tls_root_certs=certificate)
        self.token = self.client.authenticate_basic_token(user, password)
        self.options = flight.FlightCallOptions(headers=[self.token])

    def query(self, text: str, name: str = "CommandStatementQuery") -> pa.Table:
        info = self.client.get_flight_info(descriptor(name, text), self.options)
        [endpoint] = info.endpoints
        rows = self.client.do_get(endpoint.ticket, self.options).read_all()
        assert rows.schema == info.schema
        return rows


def message(name: str, text: str) -> bytes:
    """An `Any` with a message whose first field is a text."""
    return _sized(1, f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()) + _sized(
        2, _sized(1, text.encode())
    )


def _sized(field: int, value: bytes) -> bytes:
    size, length = len(value), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([field << 3 | 2]) + bytes([*length, size]) + value


def descriptor(name: str, text: str) -> Any:
    return flight.FlightDescriptor.for_command(message(name, text))
