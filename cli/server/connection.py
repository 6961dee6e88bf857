"""HTTP connections whose replies are all JSON, also to requests that are no HTTP.

Three cases extend aiohttp's connections. A request that cannot be parsed is answered with a Status and a
Message. A client that closes its side in the middle of a body (of a wrong length) still receives its reply.
A connection that finds no memory for received bytes waits for it: asyncio would end it without a reply.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from aiohttp import web

from seqstore.cli.clients.entrance import Entrance
from seqstore.cli.server.replies import failure
from seqstore.cli.web.bodies import BodyLimits
from seqstore.store.runtime.memory_limit import with_memory

logger = logging.getLogger("seqstore.http")
_LOGGED_CHARACTERS: Final = 200
_READ_BYTES: Final = 256 << 10  # at most at a time


class Connection(web.RequestHandler, asyncio.BufferedProtocol):  # type: ignore[misc]
    """One client connection. It receives into the buffer of its server, which all connections share.

    Attributes:
        is_cut: the client has closed its side before the end of the request.
        is_ended: the client has closed its side, or the connection.
        is_logging_in: the body of a login is being read.
        payload: the body of the newest request.
    """

    __slots__ = ("is_cut", "is_ended", "is_logging_in", "payload", "server")

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server, **options)
        self.server = server
        self.is_cut = False
        self.is_ended = False
        self.is_logging_in = False
        self.payload: Any = None

    @property
    def is_closing(self) -> bool:
        """Whether the server has closed it."""
        return bool(self._force_close)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being read or answered."""
        return self._current_request is None and not self._messages

    def connection_made(self, transport: Any) -> None:
        """Begins to serve, or refuses a connection beyond the limit with 503."""
        if self.server.make_room():
            super().connection_made(transport)
            self.server.count()
            return
        logger.warning("refused a connection: all %d are in use", len(self.server.connections))
        body = b'{"Status": "Fail", "Message": "[TOO_MANY_TASKS]too many connections; try again later"}'
        head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Length: {len(body)}\r\nConnection: close"
        transport.write(head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + body)
        transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the buffer of the server: `buffer_updated` follows before another connection reads."""
        return self.server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Takes received bytes from the buffer.

        Raises:
            UnavailableError: there is no memory for them for two seconds; the connection ends.
        """
        self.data_received(with_memory(self.server.buffer[:nbytes].tobytes))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_ended = True
        super().connection_lost(exc)
        self.server.count()

    def eof_received(self) -> bool | None:
        """Ends the bodies that are being read; True keeps our side open for the answer."""
        self.is_ended = True
        is_idle = self._waiter is not None and not self._messages
        if is_idle or self.transport is None or not self.transport.can_write_eof():
            return None
        for payload in (self.payload, *(payload for _, payload in self._messages)):
            if payload is not None and not payload.is_eof():
                self.is_cut = True
                payload.feed_eof()
        self.close()  # after the answer
        return True

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Returns the reply to invalid HTTP (400) and to unexpected errors (500)."""
        if status < 500:
            what = (message or str(exc) or "bad request").split("\n")[0][:_LOGGED_CHARACTERS]
            logger.info("refused a request from %s: %s", request.remote, what)
            response = failure(f"[INVALID_ARGUMENT]the request is not valid HTTP: {what}", status=status)
        else:
            logger.error("request %s failed", request.path, exc_info=exc)
            response = failure(
                f"[INTERNAL_ERROR]{type(exc).__name__}; the log of the server has the details", status=status
            )
        response.force_close()
        return response


class Server(web.Server):  # type: ignore[misc]
    """Makes a `Connection` for each client.

    Args:
        entrance: where clients wait, if other processes accept there too.

    Attributes:
        body_limits: of bodies that are read as a whole.
        buffer: for the bytes that a connection is receiving.
    """

    def __init__(
        self,
        handler: Any,
        *,
        connections_max: int,
        entrance: Entrance | None = None,
        body_limits: BodyLimits | None = None,
        **options: Any,
    ) -> None:
        super().__init__(handler, request_factory=self._make_known)
        self.body_limits = body_limits if body_limits is not None else BodyLimits()
        self.buffer = memoryview(bytearray(_READ_BYTES))
        self._entrance = entrance
        self._connections_max = connections_max
        self._options = options

    def count(self) -> None:
        """Tells other processes how many clients there are."""
        if self._entrance is not None and self._entrance.listening.fileno() >= 0:
            self._entrance.set_clients(len(self.connections))

    def make_room(self) -> bool:
        """Returns whether one more connection is allowed; closes another one if there is no room.

        That is the oldest idle one, else the oldest that waits for the body of a login.
        """
        found = [each for each in self.connections if not each.is_closing]
        if len(found) < self._connections_max:
            return True
        idle = (each for each in found if each.is_idle)
        other = next(idle, None) or next((each for each in found if each.is_logging_in), None)
        if other is not None:
            other.force_close()
        return other is not None

    def _make_known(
        self, message: Any, payload: Any, protocol: Connection, writer: Any, task: Any
    ) -> web.BaseRequest:
        protocol.payload = payload
        return self._make_request(message, payload, protocol, writer, task)

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._options)
