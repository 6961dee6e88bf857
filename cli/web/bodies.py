"""Bodies of requests that are read as a whole, within limits of bytes and time.

A body that does not arrive holds a connection. So one that pauses for `body_idle_seconds`, or is slower than
`body_bytes_per_second_min` behind them, is given up. The body of a login, which any client may begin, has
the time of a login of the other protocols, and gives its connection up when another client needs it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from seqstore.store import InvalidInputError, UnavailableError

LOGIN_SECONDS_MAX: Final = 10.0
_RATE_MIN: Final = 1024  # bytes a second, where the setting has no limit


@dataclass(frozen=True)
class BodyLimits:
    """The limits of a service.

    Attributes:
        idle_seconds: of a pause.
        bytes_per_second_min: of a body that takes longer; 0 stands for 1 KiB.
        login_seconds: of the body of a login as a whole.
    """

    idle_seconds: float = 60.0
    bytes_per_second_min: float = _RATE_MIN
    login_seconds: float = LOGIN_SECONDS_MAX


async def bytes_in(request: web.BaseRequest, most: int) -> bytes:
    """Reads a body.

    Raises:
        InvalidInputError: it has more than `most` bytes.
        UnavailableError: it does not arrive in time.
    """
    limits = _limits(request)
    rate = limits.bytes_per_second_min or _RATE_MIN
    now = asyncio.get_running_loop().time
    body, begun = bytearray(), now()
    try:
        while True:
            end = begun + limits.idle_seconds + len(body) / rate
            async with asyncio.timeout_at(min(end, now() + limits.idle_seconds)):
                piece = await request.content.readany()
            if not piece:
                return bytes(body)
            body += piece
            if len(body) > most:
                raise InvalidInputError(f"the body has more than {most} bytes", kind="bad_request")
    except TimeoutError:
        raise _late(len(body), limits.idle_seconds) from None


async def login_bytes_in(request: web.BaseRequest, most: int) -> bytes:
    """Reads the body of a login.

    Raises:
        InvalidInputError: it has more than `most` bytes.
        UnavailableError: it does not arrive in time.
    """
    connection: Any = request.protocol
    seconds = min(_limits(request).login_seconds, _limits(request).idle_seconds)
    connection.is_logging_in = True
    try:
        async with asyncio.timeout(seconds):
            return await bytes_in(request, most)
    except TimeoutError:
        raise _late(0, seconds) from None
    finally:
        connection.is_logging_in = False


def _limits(request: web.BaseRequest) -> BodyLimits:
    connection: Any = request.protocol
    found: BodyLimits = connection.server.body_limits
    return found


def _late(received: int, seconds: float) -> UnavailableError:
    after = f" after {received} bytes" if received else ""
    return UnavailableError(
        f"the body did not arrive within {seconds:g} s{after}; send it without a pause", kind="timeout"
    )
