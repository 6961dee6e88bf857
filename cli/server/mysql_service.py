"""The MySQL server as a service beside the HTTP server."""

from __future__ import annotations

import asyncio

from seqstore.cli.clients.entrance import Entrance
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.mysql.server import MysqlServer
from seqstore.cli.server.service import check_exposure
from seqstore.cli.server.settings import ServerSettings
from seqstore.store import UnavailableError


class MysqlService:
    """Runs a `MysqlServer`, which has threads of its own.

    Args:
        port: 0 means a free one.
        entrance: where clients wait, if other processes accept there too.
    """

    def __init__(
        self,
        sessions: ServerSessions,
        settings: ServerSettings,
        port: int,
        entrance: Entrance | None = None,
    ) -> None:
        self._store = sessions.store
        self._host = settings.host
        self._wanted_port = port
        self.tls = settings.tls_context()
        self._server = MysqlServer(
            sessions.store,
            host=settings.host,
            port=port,
            tls=self.tls,
            tls_required=settings.mysql_tls_required,
            limits=settings.connection_limits(),
            sessions=sessions,
            entrance=entrance,
        )

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
