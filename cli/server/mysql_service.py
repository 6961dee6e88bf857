"""The MySQL server as a service beside the HTTP server."""

from __future__ import annotations

import asyncio

from cli.mysql.server import MysqlServer
from cli.server.service import check_exposure
from cli.server.settings import ServerSettings
from store import Store


class MysqlService:
    """Runs a `MysqlServer`, which has threads of its own.

    Args:
        port: 0 takes a free one.
    """

    def __init__(self, store: Store, settings: ServerSettings, port: int) -> None:
        self._store = store
        self._host = settings.host
        self._server = MysqlServer(store, host=settings.host, port=port, tls=settings.tls_context())

    @property
    def address(self) -> str:
        """`mysql://host:port`, once started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"mysql://{host}:{self._server.port}"

    async def start(self) -> None:
        """Listens.

        Raises:
            InvalidInputError: the address may not be used; see `check_exposure`.
            OSError: it cannot be used.
        """
        check_exposure(self._store, self._host)
        self._server.start()

    async def stop(self) -> None:
        """Closes the port and every connection."""
        await asyncio.to_thread(self._server.stop)
