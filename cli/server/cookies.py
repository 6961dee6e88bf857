"""Logins of the console: a cookie that stands for a token.

1. POST /api/console/login checks name and password as every protocol does, and sets the cookie: HttpOnly (no
   script reads it), SameSite=Strict (no request of another site has it), Secure under TLS.
2. Only routes below /api/console/ accept the cookie. Whatever changes state needs the Origin of this server.
3. A token ends by POST /api/console/logout, after twelve hours, and with the user or its password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from seqstore.cli.clients.shared import Replicas
from seqstore.cli.console.replies import answered, login_in, refusal, reply
from seqstore.cli.server.tokens import Tokens
from seqstore.store import AccessDeniedError

PREFIX: Final = "/api/console/"
_SECONDS: Final = 12 * 3600

LogIn = Callable[[web.BaseRequest, str, str], Awaitable[str]]


class CookieLogins:
    """The logins of one server.

    Args:
        log_in: checks name and password of a request, and records a refusal.
        replicas: the cookies of the other processes.
        is_encrypted: the server has TLS.
    """

    def __init__(self, log_in: LogIn, replicas: Replicas, *, is_encrypted: bool) -> None:
        self._check = log_in
        self._is_encrypted = is_encrypted
        self._tokens = Tokens(replicas, _SECONDS)

    def login_of(self, request: web.BaseRequest) -> tuple[str, str | None]:
        """Returns name and password of the cookie; no password without a valid one.

        Raises:
            AccessDeniedError: the request would change state, and has no Origin.
        """
        token = _token(request)
        if not request.rel_url.raw_path.startswith(PREFIX) or not token:
            return "", None
        login = self._tokens.login(token)
        if login[1] is not None and request.method not in ("GET", "HEAD"):
            _require_origin(request)
        return login

    @answered
    async def log_in(self, request: web.BaseRequest, names: list[str], user: str) -> web.StreamResponse:
        """Serves POST /api/console/login: `user` and `password` of a JSON object."""
        _require_origin(request)
        given = await login_in(request)
        name, password = str(given.get("user", "")), str(given.get("password", ""))
        try:
            await self._check(request, name, password)
        except AccessDeniedError as error:
            return refusal(error.message, 429 if error.kind == "login_blocked" else 401, error.kind)
        response = reply({"user": name})
        response.set_cookie(
            _name(request),
            await asyncio.to_thread(self._tokens.issue, name, password),
            max_age=_SECONDS,
            path=PREFIX,
            httponly=True,
            samesite="Strict",
            secure=self._is_encrypted,
        )
        return response

    @answered
    async def log_out(self, request: web.BaseRequest, names: list[str], user: str) -> web.StreamResponse:
        """Serves POST /api/console/logout."""
        await asyncio.to_thread(self._tokens.end, _token(request))
        response = reply({})
        response.del_cookie(_name(request), path=PREFIX)
        return response


def _require_origin(request: web.BaseRequest) -> None:
    """Raises unless a page of this server sent the request; `check_browser` has compared the two."""
    if "Origin" not in request.headers:
        raise AccessDeniedError(
            "a request that changes state needs the header Origin when its login is a cookie; programs send "
            "HTTP Basic",
            kind="bad_origin",
        )


def _name(request: web.BaseRequest) -> str:
    """Returns the name of the cookie: servers on other ports of a host get the same cookies."""
    port = urlsplit(f"//{request.headers.get('Host', '')}").port
    return f"seqstore_{port or 'console'}"


def _token(request: web.BaseRequest) -> str:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(request.headers.get("Cookie", ""))
        found = cookies.get(_name(request))
    except (CookieError, ValueError):
        return ""
    return found.value if found is not None else ""
