"""The HTTP service: connections, logins and routes.

    PUT  /api/{db}/{table}/_stream_load                  one load (cli.server.stream_load_api)
    PUT  /api/_http_stream                               one load by an INSERT statement
    PUT  /api/{db}/_stream_load_2pc                      commits or aborts a pre-committed load
    GET  /api/{db}/_load_info, /api/{db}/get_load_state  the state of a label
    GET  /api/_load_error_log?file=...                   rows that a load left out
    GET  /health, /api/health, /metrics, /api/fe_version_info, /api/backends, ...   for probes
    (cli.server.status_api)

Paths may end with a slash. Every path but health, metrics and error logs requires HTTP Basic. The service
refuses a wrong name or password before it requests a byte of the body.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

from aiohttp import web

from seqstore.cli.audit_log import AuditLog, Client, Event
from seqstore.cli.login_guard import LoginGuard
from seqstore.cli.server.connection import Server
from seqstore.cli.server.metrics import Metrics
from seqstore.cli.server.replies import failure
from seqstore.cli.server.service import check_exposure
from seqstore.cli.server.settings import ServerSettings
from seqstore.cli.server.status_api import StatusApi
from seqstore.cli.server.stream_load_api import StreamLoadApi
from seqstore.store import AccessDeniedError, Store, StoreError, UnavailableError

logger = logging.getLogger("seqstore.http")
_IDLE_CONNECTION_SECONDS: Final = 75
_BACKLOG: Final = 1024
_ACCEPTED_AT_ONCE: Final = 32
_LOG_IN_THREADS: Final = 4
_CLEANUP_SECONDS: Final = 5.0

Handler = Callable[[web.BaseRequest, list[str], str], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Route:
    """One kind of request. `{}` in the path stands for one name."""

    method: str
    path: tuple[str, ...]
    handler: Handler
    is_open: bool = False  # without login

    def match(self, parts: list[str]) -> list[str] | None:
        """Returns the names in the path, None when it is another path."""
        if len(parts) != len(self.path):
            return None
        if any(wanted not in ("{}", part) for wanted, part in zip(self.path, parts, strict=True)):
            return None
        return [part for wanted, part in zip(self.path, parts, strict=True) if wanted == "{}"]


def route(method: str, path: str, handler: Handler, *, is_open: bool = False) -> Route:
    return Route(method, tuple(path.strip("/").split("/")), handler, is_open)


class HttpService:
    """The HTTP server of one store.

    Args:
        port: 0 means a free one.
        guard: counts failed logins; the MySQL service has the same.
        audit: records refused logins, and loads; None records none.
    """

    def __init__(
        self,
        store: Store,
        settings: ServerSettings,
        port: int,
        guard: LoginGuard | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._store = store
        self._guard = guard if guard is not None else LoginGuard()
        self._logging_in: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._settings = settings
        self._port = port
        self._audit = audit
        self._metrics = Metrics(store, audit)
        self._loads = StreamLoadApi(store, settings, self._metrics, audit)
        self._status = StatusApi(store, self._metrics)
        self._log_in_threads = ThreadPoolExecutor(_LOG_IN_THREADS, thread_name_prefix="log-in")
        self._routes = self._all_routes()
        self._tls = settings.tls_context()
        self._runner: web.ServerRunner | None = None

    def _all_routes(self) -> list[Route]:
        loads, status = self._loads, self._status
        return [
            route("PUT", "/api/{}/{}/_stream_load", loads.stream_load),
            route("PUT", "/api/_http_stream", loads.http_stream),
            route("PUT", "/api/{}/_stream_load_2pc", loads.end_transaction),
            route("PUT", "/api/{}/{}/_stream_load_2pc", loads.end_transaction),
            route("GET", "/api/{}/_load_info", status.load_info),
            route("GET", "/api/{}/get_load_state", status.load_state),
            route("GET", "/api/_load_error_log", status.error_log, is_open=True),
            route("GET", "/health", status.health, is_open=True),
            route("GET", "/api/health", status.health_of_backends, is_open=True),
            route("GET", "/metrics", status.metrics, is_open=True),
            route("GET", "/api/bootstrap", status.bootstrap, is_open=True),
            route("GET", "/api/backends", status.backends),
            route("GET", "/api/fe_version_info", status.version),
        ]

    @property
    def address(self) -> str:
        """`http://host:port`, once started."""
        assert self._runner is not None
        host, port = self._runner.addresses[0][:2]
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{host}:{port}"

    async def start(self) -> None:
        """Listens.

        Raises:
            InvalidInputError: the address may not be used; see `check_exposure`.
            UnavailableError: the port is in use.
        """
        check_exposure(self._store, self._settings.host)
        server = Server(
            self._handle,
            keepalive_timeout=_IDLE_CONNECTION_SECONDS,
            access_log=None,
            auto_decompress=False,
            max_line_size=self._settings.header_bytes_max,
            max_field_size=self._settings.header_bytes_max,
            connections_max=self._settings.http_connections_max,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_CLEANUP_SECONDS)
        await self._runner.setup()
        family = socket.AF_INET6 if ":" in self._settings.host else socket.AF_INET
        try:
            listener = socket.create_server((self._settings.host, self._port), family=family)
        except OSError as error:
            await self._runner.cleanup()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise UnavailableError(
                f"cannot listen on {self._settings.host}:{self._port}: {reason}; choose another --http-port",
                kind="port_taken",
            ) from error
        # asyncio accepts as many clients at once as the backlog says, and logs each that it cannot accept.
        site = web.SockSite(self._runner, listener, ssl_context=self._tls, backlog=_ACCEPTED_AT_ONCE)
        await site.start()
        listener.listen(_BACKLOG)
        self._status.address = self.address

    async def stop(self) -> None:
        """Refuses new requests; running loads end or are aborted, then connections close."""
        if self._runner is None:
            return
        try:
            for site in list(self._runner.sites):
                await site.stop()
            await self._loads.finish(self._settings.stop_seconds)
        finally:
            await self._runner.cleanup()
            self._log_in_threads.shutdown(wait=False)

    # ------------------------------------------------------------------------------------------ one request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._answer(request)
        except StoreError as error:
            response = failure(f"[{type(error).__name__.removesuffix('Error').upper()}]{error.message}")
        if not request.content.is_eof():  # what follows on this connection is the rest of a body, no request
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = [unquote(part) for part in request.rel_url.raw_path.strip("/").split("/")]
        found = [(each, names) for each in self._routes if (names := each.match(parts)) is not None]
        if not found:
            return failure(f"[NOT_FOUND]no such endpoint: {request.rel_url.raw_path[:200]}", status=404)
        chosen = next(((each, names) for each, names in found if each.method == request.method), None)
        if chosen is None:
            allowed = ", ".join(each.method for each, _ in found)
            response = failure(f"[INVALID_ARGUMENT]use {allowed}, not {request.method}", status=405)
            response.headers["Allow"] = allowed
            return response
        each, names = chosen
        if each.is_open and (each.handler != self._status.metrics or "Authorization" not in request.headers):
            return await each.handler(request, names, "")
        try:
            user = await self._log_in(request)
        except AccessDeniedError as error:
            self._record_refusal(request, error)
            if error.kind == "login_blocked":
                return failure(f"[TOO_MANY_TASKS]{error.message}", status=429)
            response = failure(f"[NOT_AUTHORIZED]{error.message}", status=401)
            response.headers["WWW-Authenticate"] = 'Basic realm="seqstore"'
            return response
        return await each.handler(request, names, user)

    def _record_refusal(self, request: web.BaseRequest, error: AccessDeniedError) -> None:
        if self._audit is not None:
            client = Client("http", str(request.remote), _credentials(request)[0])
            event = Event("login", client, f"{request.method} {request.rel_url.raw_path}")
            event.fail(error)
            self._audit.record(event)

    async def _log_in(self, request: web.BaseRequest) -> str:
        """Returns the user of a request (LR1).

        Raises:
            AccessDeniedError: no credentials, wrong ones, or too many failures of the address before.
        """
        name, password = _credentials(request)
        if password is None:
            raise AccessDeniedError("no valid Basic authorization", kind="no_credentials")
        address = str(request.remote)
        if (known := self._store.accounts.known(name, password, address)) is not None:
            return known.name
        # One comparison of an address at a time: the next one knows the failures before it.
        async with self._logging_in.setdefault(address, asyncio.Lock()):
            self._guard.check(address, name)
            try:
                account = await asyncio.get_running_loop().run_in_executor(
                    self._log_in_threads, self._store.accounts.log_in, name, password, address
                )
            except RuntimeError as error:  # the threads have ended
                raise UnavailableError("the server is stopping", kind="stopping") from error
            except AccessDeniedError:
                self._guard.failed(address, name)
                raise
            self._guard.succeeded(address, name)
        return account.name


def _credentials(request: web.BaseRequest) -> tuple[str, str | None]:
    """Returns name and password of HTTP Basic; no password where the header is missing or malformed."""
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", None
    return (name, password) if scheme.lower() == "basic" and colon else ("", None)
