"""Stream load over HTTP: the steps between a request and `loaders.stream_load`.

1. A client that sends no body at all is redirected with 307 (LR1), to the advertised address or back to the
   address of the request; the mark in the new address ends this. So is every client that did not come to the
   advertised address, if there is one. Others are served at once: a connector that chose this server from
   `/api/backends` takes 307 for a failure.
2. The length must be announced, or the body be chunked (LR3).
3. The load runs in a thread, which checks headers, user and table before it requests the body: the server
   sends `100 Continue` when the thread reads its first byte. Small bodies that are on their way anyway are
   read before a thread starts.
4. The reply is 200 with a Status, whatever the outcome of the load (LR2).
"""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, BinaryIO, Final, cast

from aiohttp import HttpVersion11, web

from seqstore.cli.clients.audit_log import AuditLog, Client, Event
from seqstore.cli.clients.load_privileges import more_privileges
from seqstore.cli.clients.shared import UserLoads
from seqstore.cli.logs.current_ids import logged_as
from seqstore.cli.server.body import BodyPipe
from seqstore.cli.server.metrics import Metrics
from seqstore.cli.server.replies import failure, json_reply
from seqstore.cli.server.settings import ServerSettings
from seqstore.loaders.end_transaction import end_transaction
from seqstore.loaders.http_stream import http_stream, table_of
from seqstore.loaders.reply import StreamLoadReply, refusal
from seqstore.loaders.stream_load import stream_load
from seqstore.store import InvalidInputError, Store, StoreError, UnavailableError
from seqstore.store.catalog.transaction_record import TransactionRecord
from seqstore.store.runtime.cancellation import Cancellation, within
from seqstore.store.runtime.memory_limit import count_stack
from seqstore.store.runtime.short_work import staging_turn
from seqstore.store.runtime.traces import caller_of

_MARK: Final = "redirected"
_SMALL_BYTES: Final = 256 << 10
_ENDING_THREADS: Final = 4
_ADMINISTRATORS_THREADS: Final = 4

_CODE: Final = re.compile(r"\[([A-Z_]{1,40})\]")  # before a message

Turn = AbstractContextManager[None] | None


class StreamLoadApi:
    """Runs stream loads for the HTTP service."""

    def __init__(
        self,
        store: Store,
        settings: ServerSettings,
        metrics: Metrics,
        user_loads: UserLoads,
        audit: AuditLog | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._audit = audit
        self._threads = ThreadPoolExecutor(
            settings.concurrent_loads_max, thread_name_prefix="stream-load", initializer=count_stack
        )
        # Loads that wait for their clients hold all of the others at times.
        self._ending_threads = ThreadPoolExecutor(
            _ENDING_THREADS, thread_name_prefix="end-load", initializer=count_stack
        )
        self._administrators_threads = ThreadPoolExecutor(
            _ADMINISTRATORS_THREADS, thread_name_prefix="admin-load", initializer=count_stack
        )
        self._user_loads = user_loads
        self._running: set[asyncio.Future[Any]] = set()
        self._pipes: set[BodyPipe] = set()
        self._cancellations: set[Cancellation] = set()
        self._is_stopping = False

    async def finish(self, seconds: float) -> None:
        """Waits for running loads, then aborts the rest."""
        self._is_stopping = True
        try:
            if self._running:
                await asyncio.wait(set(self._running), timeout=seconds)
        finally:
            for pipe in self._pipes:
                pipe.fail(_stopping())
            for cancellation in self._cancellations:
                cancellation.cancel(_stopping())
            if self._running:
                await asyncio.wait(set(self._running))
            for threads in (self._threads, self._ending_threads, self._administrators_threads):
                threads.shutdown(wait=False)

    async def stream_load(self, request: web.BaseRequest, names: list[str], user: str) -> web.StreamResponse:
        """Serves PUT /api/{db}/{table}/_stream_load."""
        database, table = names
        load = partial(stream_load, self._store, database, table)
        return await self._load(request, user, lambda headers: (database, table), load)

    async def http_stream(self, request: web.BaseRequest, names: list[str], user: str) -> web.StreamResponse:
        """Serves PUT /api/_http_stream: a load by the statement in the header `sql` (LH26)."""

        def load(body: BinaryIO, headers: Mapping[str, str], *, turn: Turn) -> StreamLoadReply:
            return http_stream(self._store, headers.get("sql", ""), body, headers, turn=turn)

        return await self._load(request, user, lambda headers: table_of(headers.get("sql", "")), load)

    async def end_transaction(
        self, request: web.BaseRequest, names: list[str], user: str
    ) -> web.StreamResponse:
        """Serves PUT /api/{db}/_stream_load_2pc and /api/{db}/{table}/_stream_load_2pc.

        This is the second phase of a load in two phases (PC2).
        """
        if _is_elsewhere(request, self._settings.advertised_address):
            return _moved(request, self._settings.advertised_address)
        headers = _first_headers(request)

        def may_end(record: TransactionRecord) -> bool:
            return may_load(self._store, user, names[0], record)

        def end() -> dict[str, str]:
            with logged_as(event):
                self._store.accounts.require(user, "LOAD", names[0], within=True)
                return end_transaction(self._store, names[0], headers, may_end)

        event = _event(request, user, headers)
        running = asyncio.get_running_loop().run_in_executor(self._ending_threads, end)
        self._running.add(running)
        begun = time.monotonic()
        reply: Mapping[str, Any] = {"status": "Cancelled"}
        try:
            reply = await asyncio.shield(running)
        except StoreError as error:
            reply = {"status": "Fail", "msg": error.message}
        finally:
            self._running.discard(running)
            self._record(event, reply, time.monotonic() - begun)
        return json_reply(reply, indent=4)

    async def _load(
        self,
        request: web.BaseRequest,
        user: str,
        target_of: Callable[[Mapping[str, str]], tuple[str, str]],
        load: Callable[..., StreamLoadReply],
    ) -> web.StreamResponse:
        """Redirects, refuses or runs a load."""
        if _must_move(request, self._settings.advertised_address):
            return _moved(request, self._settings.advertised_address)
        headers = _first_headers(request)
        event = _event(request, user, headers)
        try:
            self._check_length(request)
            body = await self._body(request)
        except StoreError as error:
            reply = refusal(headers, error)
            self._record(event, reply, 0.0)
            return json_reply(reply, indent=4)

        def run() -> StreamLoadReply:
            try:
                self._store.accounts.require(user, "LOAD", *target_of(headers))
                for privilege, *name in more_privileges(headers, target_of(headers)):
                    self._store.accounts.require(user, privilege, *name)
            except StoreError as error:
                return refusal(headers, error)
            with logged_as(event), caller_of(request.headers):
                return load(body, headers, turn=_turn_of(body))

        begun = time.monotonic()
        async with self._user_loads.one(user):
            if self._is_stopping:
                reply = refusal(headers, _stopping())
            else:
                reply = await self._run(request, body, run, user)
        self._record(event, reply, time.monotonic() - begun)
        return json_reply(reply, indent=4)

    def _record(self, event: Event, reply: Mapping[str, Any], seconds: float) -> None:
        """Hands a load, or the second phase of one, to the audit log."""
        if self._audit is None:
            return
        event.ms = round(seconds * 1000)
        event.label = str(reply.get("Label") or event.label)
        status = str(reply.get("Status") or reply.get("status"))
        event.outcome = "OK" if status == "Success" else status
        code = _CODE.match(str(reply.get("Message") or ""))
        event.error = code[1] if code is not None else ""
        event.rows_written = int(reply.get("NumberLoadedRows") or 0)
        event.bytes_received = int(reply.get("LoadBytes") or 0)
        self._audit.record(event)

    async def _threads_for(self, user: str) -> ThreadPoolExecutor:
        """Returns the threads for a load; administrators have a few more when all are in use."""
        if len(self._running) < self._settings.concurrent_loads_max:
            return self._threads
        account = await asyncio.to_thread(self._store.accounts.find, user)
        is_administrator = account is not None and account.may("ADMIN")
        return self._administrators_threads if is_administrator else self._threads

    async def _run(self, request: web.BaseRequest, body: Any, load: Any, user: str) -> StreamLoadReply:
        """Runs a load in a thread while the body is fed to it; counts it."""
        threads = await self._threads_for(user)
        started = time.monotonic()
        self._metrics.begin_load()
        feeder = asyncio.create_task(_feed(request, body)) if isinstance(body, BodyPipe) else None
        if feeder is not None:
            self._pipes.add(body)
        cancellation = Cancellation(owner=user)

        def run() -> StreamLoadReply:
            with within(cancellation):
                reply: StreamLoadReply = load()
            return reply

        running = asyncio.get_running_loop().run_in_executor(threads, run)
        self._running.add(running)
        self._cancellations.add(cancellation)
        try:
            reply: StreamLoadReply = await asyncio.shield(running)
        except asyncio.CancelledError:
            if feeder is not None:
                body.fail(_stopping())
            raise
        finally:
            self._running.discard(running)
            self._cancellations.discard(cancellation)
            if feeder is not None:
                self._pipes.discard(body)
                feeder.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await feeder
            self._metrics.end_load()
        if reply.get("ErrorURL"):
            name = str(reply["ErrorURL"]).rpartition("/")[2]
            reply["ErrorURL"] = f"{_origin(request)}/api/_load_error_log?file={name}"
        self._metrics.count_load(reply, time.monotonic() - started)
        return reply

    def _check_length(self, request: web.BaseRequest) -> None:
        """Checks the headers of a request before its body is read (LR3, LR5)."""
        if self._is_stopping:
            raise _stopping()
        announced, is_chunked = request.content_length, _is_chunked(request)
        if announced is None and not is_chunked:
            raise _bad(
                "content_length is empty and transfer-encoding!=chunked, please set content_length or "
                "transfer-encoding=chunked"
            )
        if announced is not None and is_chunked:
            raise _bad("please do not set both content_length and transfer-encoding")
        if (announced or 0) > self._settings.upload_bytes_max:
            raise _bad(
                f"body exceed max size: {self._settings.upload_bytes_max >> 20} MB, data: {announced} bytes"
            )
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _bad(
                "Content-Encoding is not for stream loads; name the compression in the header compress_type"
            )

    async def _body(self, request: web.BaseRequest) -> BinaryIO | BodyPipe:
        announced = request.content_length
        idle = self._settings.body_idle_seconds
        if announced is None or announced > _SMALL_BYTES or _expects_continue(request):
            return BodyPipe(
                announced=announced,
                bytes_max=self._settings.upload_bytes_max,
                idle_seconds=float(idle),
                bytes_per_second_min=self._settings.body_bytes_per_second_min,
            )
        try:
            async with asyncio.timeout(idle):
                data = await request.content.read()
        except TimeoutError:
            raise UnavailableError(
                f"the body did not arrive within {idle} s; send it without a pause", kind="timeout"
            ) from None
        if len(data) != announced:
            raise _bad(f"receive body don't equal with body bytes, body bytes={len(data)} of {announced}")
        return io.BytesIO(data)


def _turn_of(body: Any) -> Turn:
    """Returns no turn for a body that waits for its client."""
    return None if isinstance(body, BodyPipe) else staging_turn()


def _event(request: web.BaseRequest, user: str, headers: Mapping[str, str]) -> Event:
    """Returns a load that begins, or the second phase of one, for the logs."""
    text = f"{request.method} {request.rel_url.raw_path}"
    for name in ("sql", "txn_operation", "txn_id"):
        text += f" {name}: {headers[name]}" if headers.get(name) else ""
    client = Client("http", str(request.remote), user)
    return Event("load", client, text, label=headers.get("label", ""), is_parsed=False)


async def _feed(request: web.BaseRequest, pipe: BodyPipe) -> None:
    """Moves the body from the connection to the pipe after the first read of the load."""
    await pipe.wanted.wait()
    if _expects_continue(request) and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        while piece := await request.content.readany():
            await pipe.feed(piece)
    except (web.RequestPayloadError, ConnectionError, OSError):
        pipe.end(is_cut=True)
    else:
        pipe.end(is_cut=bool(getattr(request.protocol, "is_cut", False)))


def may_load(store: Store, user: str, database: str, record: TransactionRecord) -> bool:
    """Returns whether a user holds LOAD on the table of a transaction; others do not exist for the user."""
    account = store.accounts.find(user)
    return account is not None and account.may("LOAD", database, record.table.partition(".")[2])


def _expects_continue(request: web.BaseRequest) -> bool:
    return bool(
        request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue"
    )


def _is_chunked(request: web.BaseRequest) -> bool:
    return "chunked" in request.headers.get("Transfer-Encoding", "").lower()


def _must_move(request: web.BaseRequest, advertised: str) -> bool:
    has_body = bool(request.content_length) or _is_chunked(request)
    return _is_elsewhere(request, advertised) or (not has_body and _MARK not in request.query)


def _is_elsewhere(request: web.BaseRequest, advertised: str) -> bool:
    """Returns whether a client must come to the advertised address first."""
    is_there = request.headers.get("Host", "").lower() == advertised.lower()
    return bool(advertised) and not is_there and _MARK not in request.query


def _moved(request: web.BaseRequest, advertised: str) -> web.Response:
    """Redirects with 307: method, headers and body stay the same at the new address."""
    origin = f"{request.scheme}://{advertised}" if advertised else _origin(request)
    query = f"{request.rel_url.raw_query_string}&{_MARK}=1".lstrip("&")
    response = failure(
        "[REDIRECT]send the load to the address in Location; with curl: --location-trusted", status=307
    )
    response.headers["Location"] = f"{origin}{request.rel_url.raw_path}?{query}"
    return response


def _origin(request: web.BaseRequest) -> str:
    """Returns the server's address in the request; HTTP/1.0 clients may send none."""
    host = request.headers.get("Host", "")
    if not host and request.transport is not None:
        name, port = request.transport.get_extra_info("sockname")[:2]
        host = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
    return f"{request.scheme}://{host}"


def _first_headers(request: web.BaseRequest) -> dict[str, str]:
    """Headers by lower-case name; of one that is repeated, the first."""
    headers: dict[str, str] = {}
    for name, value in cast(Mapping[str, str], request.headers).items():
        headers.setdefault(name.strip().lower(), value)
    return headers


def _bad(message: str) -> InvalidInputError:
    return InvalidInputError(message, kind="bad_request")


def _stopping() -> UnavailableError:
    return UnavailableError("the server is stopping; send the load again, with its label", kind="stopping")
