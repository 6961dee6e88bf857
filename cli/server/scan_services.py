"""The services of Doris's connectors: scans over Thrift, and Arrow Flight SQL."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.thrift_server import ThriftServer
from seqstore.cli.server.service import check_exposure
from seqstore.cli.server.settings import ServerSettings
from seqstore.store import InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from seqstore.cli.scan.flight_server import FlightSqlServer


class ThriftService:
    """Runs a `ThriftServer`, which has threads of its own."""

    name: Final = "thrift"  # in `Ports`
    tls: Final = None

    def __init__(self, sessions: ServerSessions, settings: ServerSettings) -> None:
        self._store = sessions.store
        self._settings = settings
        self._server = ThriftServer(
            sessions, settings.host, settings.thrift_port, settings.connection_limits()
        )

    @property
    def port(self) -> int:
        """Returns the port it listens on, 0 before the start."""
        return self._server.port

    @property
    def address(self) -> str:
        """`thrift://host:port`, once started."""
        return f"thrift://{_in_brackets(self._settings.host)}:{self.port}"

    async def start(self) -> None:
        """Listens.

        Raises:
            InvalidInputError: the server has a certificate, but this protocol has no encryption; or see
                `check_exposure`.
            UnavailableError: the port is in use.
        """
        check_exposure(self._store, self._settings.host)
        if self._settings.tls_certificate_file:
            raise InvalidInputError(
                "thrift_port: the scan service has no encryption, and this server has a certificate; use "
                "flight_port, and doris.read.mode = arrow in the connector",
                kind="no_tls",
            )
        try:
            self._server.start()
        except OSError as error:
            raise _port_taken(self._settings, "thrift_port", str(error.strerror)) from error

    async def stop(self) -> None:
        """Closes the port and every connection."""
        await asyncio.to_thread(self._server.stop)


class FlightService:
    """Runs a `FlightSqlServer`, which has threads of its own."""

    name: Final = "flight"  # in `Ports`

    def __init__(self, sessions: ServerSessions, settings: ServerSettings) -> None:
        self._sessions = sessions
        self._settings = settings
        self._server: FlightSqlServer | None = None
        self.tls = settings.tls_context()

    @property
    def port(self) -> int:
        """Returns the port it listens on, 0 before the start."""
        return int(self._server.port) if self._server is not None else 0

    @property
    def address(self) -> str:
        """`grpc://host:port`, once started."""
        return f"{self._scheme}://{_in_brackets(self._settings.host)}:{self.port}"

    @property
    def _scheme(self) -> str:
        return "grpc+tls" if self.tls is not None else "grpc"

    async def start(self) -> None:
        """Listens.

        Raises:
            InvalidInputError: the address may not be used; see `check_exposure`.
            UnavailableError: the port is in use.
        """
        from seqstore.cli.scan.flight_server import FlightSqlServer  # loads gRPC

        check_exposure(self._sessions.store, self._settings.host)
        limits, host, port = (
            self._settings.connection_limits(),
            self._settings.host,
            self._settings.flight_port,
        )
        try:
            times = self._settings.flight_lease_seconds, self._settings.flight_staging_seconds
            self._server = FlightSqlServer(self._sessions, host, port, self.tls, limits, *times)
        except OSError as error:
            raise _port_taken(self._settings, "flight_port", str(error.strerror or error)) from error

    async def stop(self) -> None:
        """Closes the port and every connection."""
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _port_taken(settings: ServerSettings, name: str, reason: str) -> UnavailableError:
    return UnavailableError(
        f"cannot listen on {settings.host}:{getattr(settings, name)}: {reason}; choose another {name} in "
        "[server]",
        kind="port_taken",
    )
