"""The MySQL server as a service beside the HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from seqstore.cli.audit_log import AuditLog
from seqstore.cli.login_guard import LoginGuard
from seqstore.cli.mysql.admission import ConnectionLimits
from seqstore.cli.mysql.server import MysqlServer
from seqstore.cli.server.service import check_exposure
from seqstore.cli.server.settings import ServerSettings
from seqstore.store import Store, UnavailableError
from seqstore.store.sql.session.server_context import Ports


class MysqlService:
    """Runs a `MysqlServer`, which has threads of its own.

    Args:
        port: 0 means a free one.
        guard: counts failed logins; the HTTP service has the same.
        audit: records logins and statements; None records none.
        ports: returns the ports of the server's services, for SHOW FRONTENDS.
    """

    def __init__(
        self,
        store: Store,
        settings: ServerSettings,
        port: int,
        guard: LoginGuard | None = None,
        audit: AuditLog | None = None,
        ports: Callable[[], Ports] = Ports,
    ) -> None:
        self._store = store
        self._host = settings.host
        self._wanted_port = port
        self.tls = settings.tls_context()
        self._server = MysqlServer(
            store,
            host=settings.host,
            port=port,
            tls=self.tls,
            tls_required=settings.mysql_tls_required,
            limits=ConnectionLimits(
                connections_max=settings.mysql_connections_max,
                user_connections_max=settings.mysql_user_connections_max,
                login_seconds_max=settings.mysql_login_seconds,
                idle_seconds_max=settings.mysql_idle_seconds,
                packet_bytes_max=settings.mysql_packet_bytes_max,
            ),
            guard=guard,
            audit=audit,
        )
        self._server.ports = ports

    @property
    def port(self) -> int:
        """Returns the port it listens on, 0 before the start."""
        return self._server.port

    @property
    def address(self) -> str:
        """`mysql://host:port`, once started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"mysql://{host}:{self._server.port}"

    async def start(self) -> None:
        """Listens.

        Raises:
            InvalidInputError: the address may not be used; see `check_exposure`.
            UnavailableError: the port is in use.
        """
        check_exposure(self._store, self._host)
        try:
            self._server.start()
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {self._host}:{self._wanted_port}: {error.strerror}; choose another "
                "--mysql-port",
                kind="port_taken",
            ) from error

    async def stop(self) -> None:
        """Closes the port and every connection."""
        await asyncio.to_thread(self._server.stop)
