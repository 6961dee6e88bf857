"""Accepts HTTP clients on a socket where other processes accept too."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Any, Final

from seqstore.cli.clients.entrance import TURN_SECONDS, Entrance

_RETRY_SECONDS: Final = 0.1
_log: Final = logging.getLogger("seqstore.http")


class SharedSite:
    """Between `start` and `stop`; on the event loop only.

    Args:
        server: makes the protocol of a client.
    """

    def __init__(self, server: Any, entrance: Entrance, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._entrance = entrance
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._greeted: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begins to accept."""
        self._entrance.set_clients(0)
        self._loop.add_reader(self._entrance.listening, self._readable)

    def stop(self) -> None:
        """Accepts no more."""
        if self._later is not None:
            self._later.cancel()
        self._loop.remove_reader(self._entrance.listening)
        self._entrance.close()

    def _readable(self) -> None:
        if self._entrance.is_my_turn:
            self._accept()
        else:
            self._pause(TURN_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._entrance.listening)
        self._later = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._later = None
        self._loop.add_reader(self._entrance.listening, self._readable)
        self._accept()

    def _accept(self) -> None:
        try:
            accepted, _ = self._entrance.listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # another process has it, or it has left
            return
        except OSError as error:  # too many open files, most likely: it waits, or another process accepts it
            _log.warning("no HTTP client can be accepted: %s", error.strerror)
            self._pause(_RETRY_SECONDS)
            return
        greeted = self._loop.create_task(self._greet(accepted))
        self._greeted.add(greeted)
        greeted.add_done_callback(self._greeted.discard)

    async def _greet(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._server, accepted, ssl=self._tls)
        except (OSError, ssl.SSLError) as error:
            _log.info("an HTTP client could not be served: %s", error)
            accepted.close()
