"""The HTTP service: connections, logins and routes.

    PUT  /api/{db}/{table}/_stream_load                  one load (cli.server.stream_load_api)
    PUT  /api/_http_stream                               one load by an INSERT statement
    PUT  /api/{db}/_stream_load_2pc                      commits or aborts a pre-committed load
    GET  /api/{db}/_load_info, /api/{db}/get_load_state  the state of a label
    GET  /api/_load_error_log?file=...                   rows that a load left out
    GET  /health, /api/health, /metrics, /api/fe_version_info, ...   for probes (cli.server.status_api)
    the endpoints of frontends that Doris's connectors call (cli.server.connector_api)
    /, /api/console/...                                  the console (cli.console)
    /iceberg/v1/...                                      Iceberg's REST catalog (cli.server.iceberg_api)

Paths may end with a slash. Every path but health, metrics, error logs, tokens and the pages of the console
requires HTTP Basic, a token of the catalog or, for the console, its cookie. The service refuses a wrong name
or password before it requests a byte of the body.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

from aiohttp import web

from seqstore.cli.clients.audit_log import Client, Event
from seqstore.cli.clients.entrance import Entrance
from seqstore.cli.clients.login_guard import check_reachable, log_in
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.console.console_api import ConsoleApi
from seqstore.cli.console.replies import refusal
from seqstore.cli.server.browsers import check_browser
from seqstore.cli.server.connection import Server
from seqstore.cli.server.connector_api import ConnectorApi
from seqstore.cli.server.cookies import PREFIX, CookieLogins
from seqstore.cli.server.iceberg_api import IcebergApi, requested_login
from seqstore.cli.server.metrics import Metrics
from seqstore.cli.server.replies import failure, iceberg_failure, json_reply
from seqstore.cli.server.service import check_exposure
from seqstore.cli.server.settings import ServerSettings
from seqstore.cli.server.shared_site import SharedSite
from seqstore.cli.server.status_api import StatusApi
from seqstore.cli.server.stream_load_api import StreamLoadApi
from seqstore.cli.server.tokens import SECONDS, Tokens
from seqstore.cli.web.bodies import BodyLimits
from seqstore.cli.web.routes import LOAD, NONE, REQUEST, STATEMENT, Route, route
from seqstore.cli.web.statement_threads import StatementThreads
from seqstore.store import AccessDeniedError, StoreError, UnavailableError
from seqstore.store.runtime.memory_limit import count_stack

logger = logging.getLogger("seqstore.http")
_IDLE_CONNECTION_SECONDS: Final = 75
_BACKLOG: Final = 1024
_ACCEPTED_AT_ONCE: Final = 32
_LOG_IN_THREADS: Final = 4
_CLEANUP_SECONDS: Final = 5.0


class HttpService:
    """The HTTP server of one store.

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
        store = sessions.store
        self._store = store
        self._sessions = sessions
        self._guard = sessions.guard
        self._logging_in: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._settings = settings
        self._port = port
        self._metrics = Metrics(store, sessions.audit, sessions.shared)
        user_loads = sessions.shared.user_loads(settings.user_loads_max)
        self._loads = StreamLoadApi(store, settings, self._metrics, user_loads, sessions.audit)
        self._status = StatusApi(store, self._metrics, settings.disk_free_bytes_min)
        self._statements = StatementThreads(sessions)
        self._connectors = ConnectorApi(sessions, self._statements, settings.advertised_address)
        self._console = ConsoleApi(sessions, self._statements, self._loads.stream_load, settings)
        self._iceberg = IcebergApi(store)
        self._tokens = Tokens(sessions.shared.tokens)
        self._log_in_threads = ThreadPoolExecutor(
            _LOG_IN_THREADS, thread_name_prefix="log-in", initializer=count_stack
        )
        self.tls = settings.tls_context()
        self._cookies = CookieLogins(
            self._recorded_log_in, sessions.shared.cookies, is_encrypted=self.tls is not None
        )
        self._routes = self.all_routes()
        self._runner: web.ServerRunner | None = None
        self._entrance = entrance
        self._site: SharedSite | None = None
        self._address: tuple[str, int] = ("", 0)

    def all_routes(self) -> list[Route]:
        """Returns every route of the service."""
        loads, status = self._loads, self._status
        return [
            route("PUT", "/api/{}/{}/_stream_load", loads.stream_load, LOAD),
            route("PUT", "/api/_http_stream", loads.http_stream, LOAD),
            route("PUT", "/api/{}/_stream_load_2pc", loads.end_transaction, LOAD),
            route("PUT", "/api/{}/{}/_stream_load_2pc", loads.end_transaction, LOAD),
            route("GET", "/api/{}/_load_info", status.load_info),
            route("GET", "/api/{}/get_load_state", status.load_state),
            route("GET", "/api/_load_error_log", status.error_log, NONE),
            route("GET", "/health", status.health, NONE),
            route("GET", "/health/live", status.live, NONE),
            route("GET", "/health/ready", status.ready, NONE),
            route("GET", "/api/health", status.health_of_backends, NONE),
            route("GET", "/metrics", status.metrics, NONE),
            route("GET", "/api/bootstrap", status.bootstrap, NONE),
            route("GET", "/api/fe_version_info", status.version),
            *self._connector_routes(),
            *self._iceberg_routes(),
            *self._console.routes(self._cookies.log_in, self._cookies.log_out),
        ]

    def _connector_routes(self) -> list[Route]:
        api = self._connectors
        return [
            route("GET", "/api/{}/{}/_schema", api.schema, STATEMENT),
            route("GET", "/api/{}/{}/{}/_schema", api.schema, STATEMENT),
            route("GET", "/api/{}/{}/_count", api.count, STATEMENT),
            route("POST", "/api/{}/{}/_query_plan", api.query_plan, STATEMENT),
            route("GET", "/api/{}/{}/_query_plan", api.query_plan, STATEMENT),
            route("GET", "/api/backends", api.backends),
            route("GET", "/rest/v1/system", api.system),
            route("POST", "/rest/v1/login", api.log_in),
            route("GET", "/rest/v2/manager/node/backends", api.manager_backends),
            route("GET", "/rest/v2/manager/node/frontends", api.manager_frontends),
            route("POST", "/api/query/{}/{}", api.statement, STATEMENT),
            route("GET", "/api/enable_light_schema_change/{}/{}", api.light_schema_change, STATEMENT),
            route("GET", "/api/_get_ddl", api.create_statement, STATEMENT),
            route("GET", "/api/tso", api.refused),
            route("POST", "/api/ingestion_load/{}/{}/_create", api.refused),
            route("POST", "/api/ingestion_load/{}/{}/_update", api.refused),
        ]

    def _iceberg_routes(self) -> list[Route]:
        api = self._iceberg
        return [
            route("GET", "/iceberg/v1/config", api.config),
            route("POST", "/iceberg/v1/oauth/tokens", self._issue_token, NONE),
            route("GET", "/iceberg/v1/namespaces", api.namespaces),
            route("GET", "/iceberg/v1/namespaces/{}", api.namespace),
            route("HEAD", "/iceberg/v1/namespaces/{}", api.namespace),
            route("GET", "/iceberg/v1/namespaces/{}/tables", api.tables),
            route("GET", "/iceberg/v1/namespaces/{}/tables/{}", api.table),
            route("HEAD", "/iceberg/v1/namespaces/{}/tables/{}", api.table),
            route("POST", "/iceberg/v1/namespaces", api.refused),
            route("DELETE", "/iceberg/v1/namespaces/{}", api.refused),
            route("POST", "/iceberg/v1/namespaces/{}/properties", api.refused),
            route("POST", "/iceberg/v1/namespaces/{}/tables", api.refused),
            route("POST", "/iceberg/v1/namespaces/{}/register", api.refused),
            route("POST", "/iceberg/v1/namespaces/{}/tables/{}", api.refused),
            route("DELETE", "/iceberg/v1/namespaces/{}/tables/{}", api.refused),
            route("POST", "/iceberg/v1/tables/rename", api.refused),
            route("POST", "/iceberg/v1/transactions/commit", api.refused),
        ]

    @property
    def port(self) -> int:
        """Returns the port it listens on, 0 before the start."""
        return self._address[1]

    @property
    def address(self) -> str:
        """`http://host:port`, once started."""
        host, port = self._address
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{host}:{port}"

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
            body_limits=BodyLimits(
                float(self._settings.body_idle_seconds), float(self._settings.body_bytes_per_second_min)
            ),
            entrance=self._entrance,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_CLEANUP_SECONDS)
        await self._runner.setup()
        if self._entrance is not None:
            self._address = self._entrance.listening.getsockname()[:2]
            self._site = SharedSite(server, self._entrance, self.tls)
            self._site.start()
        else:
            await self._listen(self._runner)
        self._connectors.address = self.address

    async def _listen(self, runner: web.ServerRunner) -> None:
        family = socket.AF_INET6 if ":" in self._settings.host else socket.AF_INET
        try:
            listener = socket.create_server((self._settings.host, self._port), family=family)
        except OSError as error:
            await runner.cleanup()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise UnavailableError(
                f"cannot listen on {self._settings.host}:{self._port}: {reason}; choose another --http-port",
                kind="port_taken",
            ) from error
        # asyncio accepts as many clients at once as the backlog says, and logs each that it cannot accept.
        site = web.SockSite(runner, listener, ssl_context=self.tls, backlog=_ACCEPTED_AT_ONCE)
        await site.start()
        listener.listen(_BACKLOG)
        self._address = listener.getsockname()[:2]

    async def stop(self) -> None:
        """Refuses new requests; running loads end or are aborted, then connections close."""
        if self._runner is None:
            return
        self._status.is_stopping = True
        try:
            if self._site is not None:
                self._site.stop()
            for site in list(self._runner.sites):
                await site.stop()
            self._statements.stop()
            await self._loads.finish(self._settings.stop_seconds)
        finally:
            await self._runner.cleanup()
            self._log_in_threads.shutdown(wait=False)

    # ------------------------------------------------------------------------------------------ one request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._checked(request)
        except StoreError as error:
            name = type(error).__name__.removesuffix("Error").upper()
            response = _refused(request, f"[{name}]{error.message}", 200)
        if not request.content.is_eof():  # what follows on this connection is the rest of a body, no request
            response.force_close()
        return response

    async def _checked(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            check_browser(request.headers, self._settings)
        except AccessDeniedError as error:
            return _refused(request, f"[NOT_AUTHORIZED]{error.message}", 403)
        return await self._answer(request)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = [unquote(part) for part in request.rel_url.raw_path.strip("/").split("/")]
        found = [(each, names) for each in self._routes if (names := each.match(parts)) is not None]
        if not found:
            return _refused(request, f"[NOT_FOUND]no such endpoint: {request.rel_url.raw_path[:200]}", 404)
        chosen = next(((each, names) for each, names in found if each.method == request.method), None)
        if chosen is None:
            allowed = ", ".join(each.method for each, _ in found)
            response = _refused(request, f"[INVALID_ARGUMENT]use {allowed}, not {request.method}", 405)
            response.headers["Allow"] = allowed
            return response
        each, names = chosen
        if each.is_open and (each.handler != self._status.metrics or "Authorization" not in request.headers):
            return await each.handler(request, names, "")
        try:
            user = await self._recorded_log_in(request, *self._login_of(request))
        except AccessDeniedError as error:
            return _not_logged_in(request, error)
        if each.event != REQUEST:
            return await each.handler(request, names, user)
        with self._sessions.audited(_event(REQUEST, request, user)) as event:
            response = await each.handler(request, names, user)
            event.outcome = "OK" if response.status < 400 else str(response.status)
            return response

    async def _issue_token(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves POST /iceberg/v1/oauth/tokens: a token for name and password, OAuth's client credentials."""
        name, password = await requested_login(request)
        if password is None:
            hint = "send name and password as a form of the grant type client_credentials"
            return json_reply({"error": "invalid_request", "error_description": hint}, status=400)
        try:
            await self._recorded_log_in(request, name, password)
        except AccessDeniedError as error:
            status = 429 if error.kind == "login_blocked" else 401
            return json_reply({"error": "invalid_client", "error_description": error.message}, status=status)
        token = await asyncio.to_thread(self._tokens.issue, name, password)
        return json_reply({"access_token": token, "token_type": "bearer", "expires_in": SECONDS})

    def _login_of(self, request: web.BaseRequest) -> tuple[str, str | None]:
        """Returns name and password of HTTP Basic, of a token, or of the console's cookie."""
        if "Authorization" not in request.headers:
            return self._cookies.login_of(request)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return self._tokens.login(token.strip()) if scheme.lower() == "bearer" else _credentials(request)

    async def _recorded_log_in(self, request: web.BaseRequest, name: str, password: str | None) -> str:
        """Logs in as `_log_in`; the audit log gets a refusal."""
        try:
            return await self._log_in(request, name, password)
        except AccessDeniedError as error:
            if self._sessions.audit is not None:
                event = _event("login", request, name)
                event.fail(error)
                self._sessions.audit.record(event)
            raise

    async def _log_in(self, request: web.BaseRequest, name: str, password: str | None) -> str:
        """Returns the user of a name and a password (LR1).

        Raises:
            AccessDeniedError: no credentials, wrong ones, or too many failures of the address before.
        """
        if password is None:
            raise AccessDeniedError("no valid Basic authorization", kind="no_credentials")
        address = str(request.remote)
        find = partial(self._store.accounts.known, name, password, address)
        if (known := self._guard.quick(address, name, find)) is not None:
            check_reachable(known, address)
            return known.name
        # One comparison of an address at a time: the next one knows the failures before it.
        async with self._logging_in.setdefault(address, asyncio.Lock()):
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._log_in_threads, log_in, self._store.accounts, self._guard, name, password, address
                )
            except RuntimeError as error:  # the threads have ended
                raise UnavailableError("the server is stopping", kind="stopping") from error


def _refused(request: web.BaseRequest, message: str, status: int) -> web.Response:
    """Returns a refusal in the form of the path's protocol; Iceberg has none that is a success."""
    if request.rel_url.raw_path.startswith("/iceberg/"):
        return iceberg_failure(message, status=503 if status == 200 else status)
    if request.rel_url.raw_path.startswith(PREFIX) and request.method != "PUT":
        return refusal(message, 400 if status == 200 else status)
    return failure(message, status=status)


def _not_logged_in(request: web.BaseRequest, error: AccessDeniedError) -> web.Response:
    """Returns the answer to a login that was refused."""
    if error.kind == "login_blocked":
        return _refused(request, f"[TOO_MANY_TASKS]{error.message}", 429)
    if error.kind == "bad_origin":
        return _refused(request, f"[NOT_AUTHORIZED]{error.message}", 403)
    response = _refused(request, f"[NOT_AUTHORIZED]{error.message}", 401)
    if not request.rel_url.raw_path.startswith(PREFIX):  # a browser would ask for a password by itself
        response.headers["WWW-Authenticate"] = 'Basic realm="seqstore"'
    return response


def _event(name: str, request: web.BaseRequest, user: str) -> Event:
    client = Client("http", str(request.remote), user)
    return Event(name, client, f"{request.method} {request.rel_url.raw_path}")


def _credentials(request: web.BaseRequest) -> tuple[str, str | None]:
    """Returns name and password of HTTP Basic; no password where the header is missing or malformed."""
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", None
    return (name, password) if scheme.lower() == "basic" and colon else ("", None)
