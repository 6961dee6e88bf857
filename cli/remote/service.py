"""Answers the requests of clients of a store elsewhere; see `store.remote.requests`.

1. The user of a request has logged in (`cli.scan.flight_server`); the session that it names is the user's.
2. A change runs once, whatever its client sends again: its reply is kept (`replies`). It also runs to its end
   when its client has left. A read ends with its client.
3. A call is listed by SHOW PROCESSLIST, ended by KILL, admitted by its workload group, and audited, as a
   statement is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from seqstore.cli.clients.audit_log import Client, Event
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.remote.calls import Calls, call_of
from seqstore.cli.remote.client_sessions import ClientSession, ClientSessions
from seqstore.cli.remote.stagings import Stagings
from seqstore.store import ClosedError, InvalidInputError, NotFoundError, StoreError, UnavailableError
from seqstore.store.remote import requests
from seqstore.store.remote.failures import failure
from seqstore.store.remote.surface import Call
from seqstore.store.remote.wire import PROTOCOL, packed, unpacked
from seqstore.store.runtime.memory_pool import MemoryPool
from seqstore.store.sql import Session
from seqstore.store.sql.parse.statement_values import Query

_LOG: Final = logging.getLogger(__name__)
_REPLY_SECONDS: Final = 10.0
_ERROR_BYTES_MAX: Final = 3_000  # of the trailers of gRPC
_ROWS_BYTES_MAX: Final = 1 << 30
_rows: Final = MemoryPool("receiving rows", 1 / 3, 1 << 20)
_LOST: Final = packed({"lost": "session"})


@dataclass(frozen=True)
class Caller:
    """The client of one call of Flight.

    Attributes:
        admitted: holds its place among the calls that run, while the block lasts.
        waits: returns whether the client waits for the call; its argument is whether the call was cancelled.
        read: is called for each batch that was read of an upload.
    """

    client: Client
    admitted: Callable[[], AbstractContextManager[None]]
    waits: Callable[[bool], bool]
    read: Callable[[], None]


class RemoteService:
    """Safe to share between threads.

    Args:
        lease_seconds: the time after which a silent client has ended.
        staging_seconds: the time after which a load has ended whose job is not connected.
    """

    def __init__(self, sessions: ServerSessions, lease_seconds: float, staging_seconds: float) -> None:
        self._sessions = sessions
        self._clients = ClientSessions(lease_seconds)
        self._stagings = Stagings(sessions.store, staging_seconds)

    def stop(self) -> None:
        """Ends the sessions of all clients, and the loads that jobs stage."""
        self._clients.stop()
        self._stagings.stop()

    def act(self, caller: Caller, action: str, body: bytes) -> bytes:
        """Answers an action; errors are replies, too."""
        try:
            request = _message(body)
            if action == requests.OPEN:
                return self._open(caller, request)
            session = self._session(caller, request)
            if action == requests.CALL:
                return self._changed_once(caller, session, request, None)
            if action == requests.REPLY:
                return _earlier(session, _id(request))
            if action == requests.CLOSE:
                self._clients.end(session)
            return packed({"value": None})
        except NotFoundError as error:
            return _LOST if error.kind == "unknown_session" else packed({"error": failure(error)})
        except Exception as error:
            return _failed(error)

    def put(self, caller: Caller, body: bytes, reader: Any) -> bytes:
        """Answers a call that takes rows."""
        try:
            request = _message(body)
            session = self._session(caller, request)
            size = request.get("bytes")
            if not isinstance(size, int) or not 0 <= size <= _ROWS_BYTES_MAX:
                raise InvalidInputError(f"rows of {size!r} bytes", kind="bad_message")
            with _rows.reserved(size, caller.client.user):
                return self._changed_once(
                    caller, session, request, _received(reader, request, size, caller.read)
                )
        except NotFoundError as error:
            return _LOST if error.kind == "unknown_session" else packed({"error": failure(error)})
        except Exception as error:
            if not isinstance(error, (StoreError, pa.ArrowInvalid)):
                raise  # the connection broke: the request did not arrive
            return _failed(error)

    def rows(self, caller: Caller, body: bytes) -> Iterator[Any]:
        """Yields the columns of a call's rows, then the batches; the end of the iterator ends the call.

        Raises:
            RemoteError: the call failed.
        """
        try:
            request = _message(body)
            session = self._session(caller, request)
            call = call_of(request.get("call"))
            with session.calling(), self._running(caller, request, call) as (calls, event):
                found = self._reader(calls, session, request)
                with found as reader:
                    yield reader.schema
                    for batch in reader:
                        event.rows_read += batch.num_rows
                        event.bytes_sent += batch.nbytes
                        yield batch
        except GeneratorExit:
            raise
        except NotFoundError as error:
            raise RemoteError(
                {"lost": "session"} if error.kind == "unknown_session" else _shown(error)
            ) from error
        except Exception as error:
            raise RemoteError(_shown(error)) from error

    @contextmanager
    def _reader(
        self, calls: Calls, session: ClientSession, request: Mapping[str, Any]
    ) -> Iterator[pa.RecordBatchReader]:
        """Yields the rows of a call."""
        if request["call"] == "Session.stream":
            held = session.held("Session", request.get("on"))
            with held.reading():
                statements = held.value.parse(str(_arguments(request).get("query", "")))
                if len(statements) != 1 or not isinstance(statements[0], Query):
                    raise InvalidInputError(
                        "stream() takes one query; other statements run by execute()", kind="bad_query"
                    )
                with held.value.stream(statements[0], is_answer=True) as reader:
                    yield reader
            return
        found = calls.run(request["call"], request.get("on"), _arguments(request), None)
        if isinstance(found, pa.Table):
            found = found.to_reader()
        if not isinstance(found, pa.RecordBatchReader):
            raise InvalidInputError(f"{request['call']} has no rows", kind="bad_message")
        with found:
            yield found

    def _open(self, caller: Caller, request: Mapping[str, Any]) -> bytes:
        _check_protocol(request)
        session = self._clients.open(caller.client.user)
        return packed({"value": {"session": session.token, "lease_seconds": self._clients.lease_seconds}})

    def _session(self, caller: Caller, request: Mapping[str, Any]) -> ClientSession:
        session = self._clients.find(request.get("session"), caller.client.user)
        released = request.get("released", [])
        if isinstance(released, list) and released:
            session.release(each for each in released if isinstance(each, int))
        return session

    def _changed_once(
        self, caller: Caller, session: ClientSession, request: Mapping[str, Any], rows: pa.Table | None
    ) -> bytes:
        """Runs a call, or returns the reply that the same request had before."""
        _check_protocol(request)
        call = call_of(request.get("call"))

        def run() -> bytes:
            try:
                with session.calling(), self._running(caller, request, call) as (calls, event):
                    found = calls.run(request["call"], request.get("on"), _arguments(request), rows)
                    event.rows_written = getattr(found, "rows_loaded", 0)
                    return packed({"value": found})
            except Exception as error:
                return _failed(error)

        if call.is_read:
            return run()
        reply = session.replies.once(_id(request), run)
        return packed({"state": requests.FORGOTTEN}) if reply is None else reply

    @contextmanager
    def _running(
        self, caller: Caller, request: Mapping[str, Any], call: Call
    ) -> Iterator[tuple[Calls, Event]]:
        """Yields the calls of a client, and the audit event, while a call runs as a statement of its user."""
        client, name = caller.client, str(request["call"])
        if name in ("Session.execute", "Session.stream"):
            with self._statement(caller, request) as event:
                yield self._calls(caller, request), event
            return
        on = request.get("on")
        text = f"CALL {name} {on[0]}" if isinstance(on, list) and on else f"CALL {name}"
        with ExitStack() as stack:
            stack.enter_context(caller.admitted())
            has_client = caller.waits if call.is_read else (lambda _: True)
            session, event = stack.enter_context(
                self._sessions.statement(client, text, has_client=has_client)
            )
            stack.enter_context(session.working(_word(call)))
            yield self._calls(caller, request), event

    @contextmanager
    def _statement(self, caller: Caller, request: Mapping[str, Any]) -> Iterator[Event]:
        """Yields the audit event of a statement of SQL, which its session runs; KILL ends it."""
        owner = self._clients.find(request.get("session"), caller.client.user)
        session = owner.held("Session", request.get("on")).value
        number, processes = session.server.connection_id, self._sessions.processes
        given = _arguments(request)
        text = str(given.get("query" if request["call"] == "Session.stream" else "text", ""))
        client = replace(caller.client, connection=number, database=session.database or "")
        event = Event("statement", client, text, bytes_received=len(text))
        with caller.admitted(), self._sessions.audited(event):
            processes.add(number, stop=session.interrupt, interrupt=session.interrupt)
            try:
                with session.running(text):
                    yield event
            finally:
                processes.remove(number)

    def _calls(self, caller: Caller, request: Mapping[str, Any]) -> Calls:
        owner = self._clients.find(request.get("session"), caller.client.user)

        def open_session(database: str) -> Session:
            number = self._sessions.new_number()
            return self._sessions.open(caller.client.user, number, lambda _: True, database)

        return Calls(self._sessions.store, owner, open_session, self._stagings)


class RemoteError(Exception):
    """The error of a call whose reply is rows.

    Attributes:
        data: for the `extra_info` of Flight's error.
    """

    def __init__(self, message: Mapping[str, Any]) -> None:
        super().__init__(str(message.get("message", "the session has ended"))[:500])
        self.data = requests.PREFIX + packed(message)


def _word(call: Call) -> str:
    """Returns the first word of a statement that does the like of a call."""
    if call.is_read or not call.privileges:
        return "SELECT" if "SELECT" in call.privileges else "SHOW"
    return "INSERT" if call.privileges[0] == "LOAD" else "OPTIMIZE"


def _message(body: bytes) -> dict[str, Any]:
    found = unpacked(body)
    if not isinstance(found, dict):
        raise InvalidInputError("expected a message of seqstore", kind="bad_message")
    return found


def _arguments(request: Mapping[str, Any]) -> dict[str, Any]:
    found = request.get("arguments")
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found):
        raise InvalidInputError("a call without its arguments", kind="bad_message")
    return found


def _check_protocol(request: Mapping[str, Any]) -> None:
    found = request.get("protocol")
    if found != PROTOCOL:
        raise InvalidInputError(
            f"the client speaks version {found} of the protocol, this server version {PROTOCOL}; install the "
            "same version of seqstore on both sides",
            kind="other_protocol",
        )


def _received(reader: Any, request: Mapping[str, Any], size: int, read: Callable[[], None]) -> pa.Table:
    """Returns the rows of an upload, whole and sound.

    Raises:
        InvalidInputError: they are more, or fewer, than the request says.
    """
    batches, received = [], 0
    while True:
        try:
            batch = reader.read_chunk().data
        except StopIteration:
            break
        read()
        batch.validate(full=True)
        batches.append(batch)
        received += batch.nbytes
        if received > 2 * size + (1 << 20):
            raise InvalidInputError(f"more rows than the {size} bytes of the request", kind="bad_message")
    rows = pa.Table.from_batches(batches, reader.schema)
    if rows.num_rows != request.get("rows"):
        raise InvalidInputError(
            f"{rows.num_rows} of {request.get('rows')} rows arrived; send them again", kind="bad_message"
        )
    return rows


def _earlier(session: ClientSession, request: str) -> bytes:
    """Returns the reply of an earlier request, or what is known of it."""
    found = session.replies.find(request, _REPLY_SECONDS)
    if found:
        return found
    if found is not None:
        return packed({"state": requests.RUNNING})
    return packed(
        {"state": requests.FORGOTTEN if session.replies.is_forgotten(request) else requests.UNKNOWN}
    )


def _id(request: Mapping[str, Any]) -> str:
    found = request.get("request")
    if not isinstance(found, str) or not 0 < len(found) <= requests.ID_LENGTH_MAX:
        raise InvalidInputError("a request without its id", kind="bad_message")
    return found


def _failed(error: Exception) -> bytes:
    if isinstance(error, ClosedError) and error.kind == "session_ended":
        return _LOST
    return packed({"error": _noted(error)})


def _shown(error: Exception) -> Mapping[str, Any]:
    found = dict(_noted(error, _ERROR_BYTES_MAX))
    found["message"] = found["message"][:_ERROR_BYTES_MAX]
    return found


def _noted(error: Exception, fields_max: int = 1 << 20) -> dict[str, Any]:
    found = failure(error, fields_max)
    if not found["class"]:
        _LOG.error("a call of a client failed", exc_info=error)
        return failure(UnavailableError("the server met an internal error; its log has it", kind="internal"))
    return found
