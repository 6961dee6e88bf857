"""Doris's scan service: what a backend offers the Spark and Flink connectors on its `be_port`.

1. `open_scanner` has the opaque plan of `_query_plan`, tablets, a user and a password. It answers a context
   and the columns.
2. `get_next` answers the next rows as an Arrow stream of one batch, until one is marked as the end. `offset`
   is the number of rows that the client has: that of the batch before gets the same rows again, because its
   answer was lost.
3. `close_scanner`, or the end of the connection, ends the read.

Every connection has a thread, and its scanners live no longer than it. The protocol has no encryption.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

from seqstore.cli.clients.admission import Admission, ConnectionLimits
from seqstore.cli.clients.audit_log import Client
from seqstore.cli.clients.listener import Listener, is_gone
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan import thrift_wire as wire
from seqstore.cli.scan.plan import one_query, plan_text
from seqstore.cli.scan.sent_rows import sent_batches, sent_schema
from seqstore.store import AccessDeniedError, InvalidInputError, NotFoundError, StoreError
from seqstore.store.runtime import cancellation
from seqstore.store.sql.parse.single_scan import of_tablets

_log: Final = logging.getLogger("seqstore.thrift")
_LIMITS: Final = ConnectionLimits()
# Methods of the service, with the methods of `_Connection` that answer them.
METHODS: Final = {
    "open_scanner": "_open_scanner",
    "get_next": "_get_next",
    "close_scanner": "_close_scanner",
}
_SCANNERS_MAX: Final = 16  # of one connection; the connectors open one
_BATCH_ROWS: Final = 4064  # Doris's
_SILENT_SECONDS_MAX: Final = 2.0
_OK, _INTERNAL_ERROR, _INVALID_CONTEXT, _INVALID_OFFSET, _NOT_FOUND, _INVALID, _NOT_AUTHORIZED = (
    0, 6, 19, 20, 31, 33, 38)  # fmt: skip
_UNKNOWN_METHOD: Final = 1  # of Thrift's application exceptions
_NUMBERS: Final[dict[pa.DataType, int]] = {
    pa.bool_(): 2, pa.int8(): 3, pa.int16(): 4, pa.int32(): 5, pa.int64(): 6, pa.float32(): 7,
    pa.float64(): 8}  # fmt: skip
_LARGEINT, _LIST, _MAP, _STRUCT, _TEXT, _DATE, _DATETIME, _DECIMAL = 14, 20, 21, 22, 23, 26, 27, 31


class ThriftServer:
    """Serves the scans of a store.

    Args:
        host: address to listen on.
        port: 0 means a free one; `self.port` is its number.
        limits: of connections.
    """

    def __init__(
        self, sessions: ServerSessions, host: str, port: int, limits: ConnectionLimits = _LIMITS
    ) -> None:
        self._sessions = sessions
        self._idle_seconds = limits.idle_seconds_max
        self._listener = Listener("Thrift", (host, port), limits, sessions.new_number, self._connect)

    @property
    def port(self) -> int:
        """Returns the port it listens on, 0 before the start."""
        return self._listener.port

    def start(self) -> None:
        """Begins to listen; OSError when the address is in use."""
        self._listener.start()

    def stop(self) -> None:
        """Closes the port and every connection, and waits for their threads."""
        self._listener.stop()

    def _connect(self, client: socket.socket, number: int) -> _Connection:
        return _Connection(client, number, self._sessions, self._listener.admission, self._idle_seconds)


class _Connection:
    """One client: its calls one after another, and its scanners."""

    def __init__(
        self,
        client: socket.socket,
        number: int,
        sessions: ServerSessions,
        admission: Admission,
        idle_seconds: float,
    ) -> None:
        self.address = str(client.getpeername()[0])
        self._client = client
        self._number = number
        self._sessions = sessions
        self._admission = admission
        self._idle_seconds = idle_seconds
        self._scanners: dict[bytes, _Scanner] = {}
        self._silent_since: float | None = None  # None while a call runs
        self._calls = {name: getattr(self, method) for name, method in METHODS.items()}

    def serve(self) -> None:
        try:
            with self._client.makefile("rb") as stream:
                reader = wire.Reader(stream)
                while (message := reader.message()) is not None:
                    self._silent_since = None
                    self._client.sendall(self._answer(*message))
                    self._silent_since = time.monotonic()
        except (OSError, wire.ThriftError) as error:
            _log.info("a Thrift client was disconnected: %s", error)
        finally:
            for scanner in self._scanners.values():
                scanner.close()

    def stop(self) -> None:
        """Ends the running reads and the connection; called from another thread."""
        for scanner in list(self._scanners.values()):
            scanner.interrupt()
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def _answer(self, name: str, number: int, arguments: dict[int, Any]) -> bytes:
        call: Callable[[dict[int, Any]], dict[int, wire.Typed]] | None = self._calls.get(name)
        if call is None:
            text = f"there is no method {name[:100]!r}; this port serves the scans of Doris's connectors"
            refused = {1: (wire.STRING, text.encode()), 2: (wire.I32, _UNKNOWN_METHOD)}
            return wire.reply(name, number, refused, kind=wire.EXCEPTION)
        parameters = arguments.get(1)
        try:
            if not isinstance(parameters, dict):
                raise InvalidInputError(f"{name}: no parameters", kind="bad_request")
            result = call(parameters)
        except StoreError as error:
            result = {1: _status(_code(error), error.message)}
        except Exception as error:  # a defect here must not end the connection
            _log.exception("connection %d: %s raised what it should not", self._number, name)
            result = {1: _status(_INTERNAL_ERROR, f"internal error: {type(error).__name__}: {error}")}
        return wire.reply(name, number, result)

    def _open_scanner(self, given: dict[int, Any]) -> dict[int, wire.Typed]:
        user = self._log_in(_text(given, 9), _text(given, 10))
        if len(self._scanners) >= _SCANNERS_MAX:
            raise InvalidInputError(f"more than {_SCANNERS_MAX} scanners of one connection", kind="too_many")
        client = Client("thrift", self.address, user, database=_text(given, 2))
        scanner = _Scanner(self._sessions, client, given, has_client=self._has_client, stop=self.stop)
        context = secrets.token_hex(16).encode()
        self._scanners[context] = scanner
        columns = [
            {1: (wire.STRING, field.name.encode()), 2: (wire.I32, _primitive(field.type))}
            for field in scanner.columns
        ]
        return {
            1: _status(_OK),
            2: (wire.STRING, context),
            3: (wire.LIST, (wire.STRUCT, columns)),
        }

    def _has_client(self, is_cancelled: bool) -> bool:
        """Returns whether the client is still connected; called from another thread.

        A read that was cancelled while its client requests no rows ends with the connection.
        """
        since = self._silent_since
        if is_cancelled and since is not None and time.monotonic() - since > _SILENT_SECONDS_MAX:
            self.stop()
        return not is_gone(self._client)

    def _log_in(self, name: str, password: str) -> str:
        """Returns the user of a call; its connection takes a place of the user."""
        user = self._sessions.log_in(Client("thrift", self.address, name), password)
        account = self._sessions.store.accounts.find(user)
        is_administrator = account is not None and account.may("ADMIN")
        self._admission.admit(self._number, user, is_administrator=is_administrator)
        self._client.settimeout(self._idle_seconds)
        return user

    def _get_next(self, given: dict[int, Any]) -> dict[int, wire.Typed]:
        context = _text(given, 1).encode()
        scanner = self._scanners.get(context)
        if scanner is None:
            return {1: _status(_INVALID_CONTEXT, "this connection has no such scanner; open it again")}
        offset = given.get(2, 0)
        try:
            batch = scanner.next(offset)
        except _OffsetError as error:
            return {1: _status(_INVALID_OFFSET, str(error))}
        except StoreError:
            del self._scanners[context]
            raise
        if batch is None:
            return {1: _status(_OK), 2: (wire.BOOL, True)}
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        rows = sink.getvalue().to_pybytes()
        scanner.event.bytes_sent += len(rows)
        return {1: _status(_OK), 2: (wire.BOOL, False), 3: (wire.STRING, rows)}

    def _close_scanner(self, given: dict[int, Any]) -> dict[int, wire.Typed]:
        scanner = self._scanners.pop(_text(given, 1).encode(), None)
        if scanner is not None:
            scanner.close()
        return {1: _status(_OK)}


class _OffsetError(Exception):
    """The client has other rows than the server sent."""


class _Scanner:
    """The rows of some tablets, in batches: one statement of the server. One thread uses it.

    Args:
        given: the parameters of `open_scanner`.
        has_client, stop: see `ServerSessions.statement`.
    """

    def __init__(
        self,
        sessions: ServerSessions,
        client: Client,
        given: dict[int, Any],
        *,
        has_client: Callable[[bool], bool],
        stop: Callable[[], None],
    ) -> None:
        rows, limit, seconds = given.get(6), given.get(8), given.get(12)
        text = plan_text(_text(given, 5))
        self._held = ExitStack()
        # Scanners of a thread overlap: none stays the current statement between two calls.
        with cancellation.within(cancellation.current()), self._closed_by_errors():
            statement = sessions.statement(client, text, has_client=has_client, stop=stop)
            self._session, self.event = self._held.enter_context(statement)
            query = one_query(
                self._held.enter_context(sessions.parsed(self._session, text, self.event)), text
            )
            if isinstance(seconds, int) and seconds > 0:
                list(self._session.execute(f"SET query_timeout = {seconds}"))
            reader = self._held.enter_context(self._session.stream(of_tablets(query, _ids(given.get(4)))))
            self._cancellation = cancellation.current()
        self.columns = reader.schema
        schema = sent_schema(reader.schema, has_timestamps=False)
        self._left = limit if isinstance(limit, int) and limit > 0 else None
        rows_max = rows if isinstance(rows, int) and rows > 0 else _BATCH_ROWS
        self._batches: Iterator[pa.RecordBatch] = sent_batches(reader, schema, rows_max)
        self._sent = 0
        self._last: pa.RecordBatch | None = None

    def interrupt(self) -> None:
        """Ends the read; called from another thread."""
        self._session.interrupt()

    def next(self, offset: int) -> pa.RecordBatch | None:
        """Returns the rows behind the first `offset` ones, None when there are no more.

        Raises:
            StoreError: the read has failed, and is closed.
        """
        if self._last is not None and offset == self._sent - self._last.num_rows:
            return self._last
        if offset != self._sent:
            raise _OffsetError(f"expected offset {self._sent}, found {offset}")
        with cancellation.within(self._cancellation), self._closed_by_errors():
            cancellation.check()
            batch = next(self._batches, None) if self._left != 0 else None
        if batch is None:
            self.close()
        elif self._left is not None:
            batch = batch.slice(0, self._left)
            self._left -= batch.num_rows
        self._last = batch
        self._sent += batch.num_rows if batch is not None else 0
        self.event.rows_read = self._sent
        return batch

    def close(self) -> None:
        with cancellation.within(cancellation.current()):
            self._held.close()

    @contextlib.contextmanager
    def _closed_by_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._held.__exit__(type(error), error, error.__traceback__)
            raise


def _primitive(kind: pa.DataType) -> int:
    """Returns the number of Doris's TPrimitiveType for a column of a query."""
    if pa.types.is_dictionary(kind):
        return _primitive(kind.value_type)
    if pa.types.is_decimal(kind):
        if pa.types.is_string(sent_schema(pa.schema([("c", kind)]), has_timestamps=False).field(0).type):
            return _LARGEINT if not kind.scale else _TEXT
        return _DECIMAL
    others = ((pa.types.is_date, _DATE), (pa.types.is_timestamp, _DATETIME), (pa.types.is_list, _LIST),
              (pa.types.is_map, _MAP), (pa.types.is_struct, _STRUCT))  # fmt: skip
    found = next((number for matches, number in others if matches(kind)), _TEXT)
    return _NUMBERS.get(kind, found)


def _status(code: int, message: str = "") -> wire.Typed:
    texts = [message.encode()] if message else []
    return wire.STRUCT, {1: (wire.I32, code), 2: (wire.LIST, (wire.STRING, texts))}


def _code(error: StoreError) -> int:
    kinds = ((AccessDeniedError, _NOT_AUTHORIZED), (NotFoundError, _NOT_FOUND), (InvalidInputError, _INVALID))
    return next((code for kind, code in kinds if isinstance(error, kind)), _INTERNAL_ERROR)


def _text(given: dict[int, Any], field: int) -> str:
    value = given.get(field, b"")
    if not isinstance(value, bytes):
        raise InvalidInputError(f"field {field}: expected a text, found {value!r}", kind="bad_request")
    return value.decode(errors="replace")


def _ids(value: object) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(number, int) for number in value):
        raise InvalidInputError("tablet_ids: expected a list of numbers", kind="bad_request")
    return value
