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
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

from seqstore.cli.login_guard import LoginGuard, log_in
from seqstore.cli.scan import thrift_wire as wire
from seqstore.cli.scan.plan import planned_query
from seqstore.cli.scan.sent_rows import sent_batches, sent_schema
from seqstore.store import AccessDeniedError, InvalidInputError, NotFoundError, Store, StoreError
from seqstore.store.sql import Session

_log: Final = logging.getLogger("seqstore.thrift")
_CONNECTIONS_MAX: Final = 256
_SCANNERS_MAX: Final = 16  # of one connection; the connectors open one
_BATCH_ROWS: Final = 4064  # Doris's
_OPEN_SECONDS: Final = 60.0  # for the first call of a connection
_STOP_SECONDS: Final = 10.0
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
        guard: counts failed logins; services of one server share it.
        idle_seconds: the server closes a connection that is silent for longer.
    """

    def __init__(self, store: Store, host: str, port: int, guard: LoginGuard, idle_seconds: float) -> None:
        self._store = store
        self._address = (host, port)
        self._guard = guard
        self._idle_seconds = idle_seconds
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[_Connection, threading.Thread]] = {}
        self._acceptor: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Returns the port it listens on, 0 before the start."""
        return int(self._listener.getsockname()[1]) if self._listener is not None else 0

    def start(self) -> None:
        """Begins to listen; OSError when the address is in use."""
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        self._listener = socket.create_server(self._address, family=family, backlog=128)
        self._acceptor = threading.Thread(target=self._accept, name="thrift-accept", daemon=True)
        self._acceptor.start()

    def stop(self) -> None:
        """Closes the port and every connection, and waits for their threads."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        listener.close()
        if self._acceptor is not None:
            self._acceptor.join(_STOP_SECONDS)
        with self._lock:
            open_now = list(self._open.items())
        for client, (connection, _) in open_now:
            connection.interrupt()
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for _, (_, thread) in open_now:
            thread.join(_STOP_SECONDS)

    def _accept(self) -> None:
        while (listener := self._listener) is not None:
            try:
                client, _ = listener.accept()
            except OSError:  # it was closed, or the client has left already
                continue
            with self._lock:
                is_full = len(self._open) >= _CONNECTIONS_MAX
            if is_full:
                _log.warning("%d clients read over Thrift; refused one more", _CONNECTIONS_MAX)
                client.close()
                continue
            connection = _Connection(client, self._store, self._guard, self._idle_seconds)
            thread = threading.Thread(target=self._serve, args=(connection, client), daemon=True)
            with self._lock:
                self._open[client] = connection, thread
            thread.start()

    def _serve(self, connection: _Connection, client: socket.socket) -> None:
        try:
            with client:
                connection.serve()
        except (OSError, wire.ThriftError) as error:
            _log.info("a Thrift client was disconnected: %s", error)
        finally:
            with self._lock:
                self._open.pop(client, None)


class _Connection:
    """One client: its calls one after another, and its scanners."""

    def __init__(self, client: socket.socket, store: Store, guard: LoginGuard, idle_seconds: float) -> None:
        self._client = client
        self._store = store
        self._guard = guard
        self._idle_seconds = idle_seconds
        self._address = str(client.getpeername()[0])
        self._scanners: dict[bytes, _Scanner] = {}
        self._calls: dict[str, Callable[[dict[int, Any]], dict[int, wire.Typed]]] = {
            "open_scanner": self._open_scanner,
            "get_next": self._get_next,
            "close_scanner": self._close_scanner,
        }

    def serve(self) -> None:
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client.settimeout(_OPEN_SECONDS)
        try:
            with self._client.makefile("rb") as stream:
                reader = wire.Reader(stream)
                while (message := reader.message()) is not None:
                    self._client.sendall(self._answer(*message))
        finally:
            for scanner in self._scanners.values():
                scanner.close()

    def interrupt(self) -> None:
        """Ends the running reads; called from another thread."""
        for scanner in list(self._scanners.values()):
            scanner.session.interrupt()

    def _answer(self, name: str, number: int, arguments: dict[int, Any]) -> bytes:
        call = self._calls.get(name)
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
        return wire.reply(name, number, result)

    def _open_scanner(self, given: dict[int, Any]) -> dict[int, wire.Typed]:
        name, password = (_text(given, field) for field in (9, 10))
        user = log_in(self._store.accounts, self._guard, name, password, self._address)
        if len(self._scanners) >= _SCANNERS_MAX:
            raise InvalidInputError(f"more than {_SCANNERS_MAX} scanners of one connection", kind="too_many")
        self._client.settimeout(self._idle_seconds)
        query = planned_query(_text(given, 5), _ids(given.get(4)))
        session = Session(self._store, _text(given, 2) or None, user=user)
        rows, seconds = given.get(6), given.get(12)
        try:
            if isinstance(seconds, int) and seconds > 0:
                list(session.execute(f"SET query_timeout = {seconds}"))
            rows_max = rows if isinstance(rows, int) and rows > 0 else _BATCH_ROWS
            scanner = _Scanner(session, query, rows_max, given.get(8))
        except BaseException:
            session.close()
            raise
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

    def _get_next(self, given: dict[int, Any]) -> dict[int, wire.Typed]:
        scanner = self._scanners.get(given.get(1, b""))
        if scanner is None:
            return {1: _status(_INVALID_CONTEXT, "this connection has no such scanner; open it again")}
        offset = given.get(2, 0)
        try:
            batch = scanner.next(offset)
        except _OffsetError as error:
            return {1: _status(_INVALID_OFFSET, str(error))}
        if batch is None:
            return {1: _status(_OK), 2: (wire.BOOL, True)}
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        rows = sink.getvalue().to_pybytes()
        return {1: _status(_OK), 2: (wire.BOOL, False), 3: (wire.STRING, rows)}

    def _close_scanner(self, given: dict[int, Any]) -> dict[int, wire.Typed]:
        scanner = self._scanners.pop(given.get(1, b""), None)
        if scanner is not None:
            scanner.close()
        return {1: _status(_OK)}


class _OffsetError(Exception):
    """The client has other rows than the server sent."""


class _Scanner:
    """The rows of some tablets, in batches. One thread uses it."""

    def __init__(self, session: Session, query: Any, rows_max: int, limit: object) -> None:
        self.session = session
        self._held = ExitStack()
        rows = self._held.enter_context(session.stream(query))
        self._held.callback(session.close)
        self.columns = rows.schema
        schema = sent_schema(rows.schema, has_timestamps=False)
        self._left = limit if isinstance(limit, int) and limit > 0 else None
        self._batches: Iterator[pa.RecordBatch] = sent_batches(rows, schema, rows_max)
        self._sent = 0
        self._last: pa.RecordBatch | None = None

    def next(self, offset: int) -> pa.RecordBatch | None:
        """Returns the rows behind the first `offset` ones, None when there are no more."""
        if self._last is not None and offset == self._sent - self._last.num_rows:
            return self._last
        if offset != self._sent:
            raise _OffsetError(f"expected offset {self._sent}, found {offset}")
        batch = next(self._batches, None) if self._left != 0 else None
        if batch is not None and self._left is not None:
            batch = batch.slice(0, self._left)
            self._left -= batch.num_rows
        self._last = batch
        self._sent += batch.num_rows if batch is not None else 0
        return batch

    def close(self) -> None:
        self._held.close()


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
