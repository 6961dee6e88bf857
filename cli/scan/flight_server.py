"""Arrow Flight SQL: queries over gRPC, as Doris's frontends serve them on `arrow_flight_sql_port`.

1. A client logs in with a Basic header and gets a token, which its later calls carry.
2. `GetFlightInfo` with a statement answers the columns and a ticket, which holds the statement; more of them
   for a scan of a client that asks for more (`flight_shares`).
3. `DoGet` runs the statement and streams the rows.
4. Prepared statements have parameters (`flight_parameters`). Updates run at `DoPut` and answer the number of
   rows; so does bulk ingest (`flight_ingest`). Lists of names are those of `flight_catalog`.
5. A change that comes as a query runs at `GetFlightInfo`, which answers the number of rows; so does a SHOW,
   whose rows are in the ticket.

Each call has a session of its own: `SET` and `USE` have no effect on later ones. There are no transactions.

Clients of a store elsewhere (`Store.connect`) use the same port and logins: see `cli.remote`.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from seqstore.cli.clients.admission import Admission, ConnectionLimits
from seqstore.cli.clients.audit_log import Client, Event
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.remote.service import Caller, RemoteError, RemoteService
from seqstore.cli.scan.flight_calls import SentRows, in_call
from seqstore.cli.scan.flight_catalog import LISTS, Asked
from seqstore.cli.scan.flight_gate import FlightGate
from seqstore.cli.scan.flight_ingest import COMMAND, Ingest
from seqstore.cli.scan.flight_logins import LOGIN, Login, Logins
from seqstore.cli.scan.flight_messages import command, encoded, listed, message, named
from seqstore.cli.scan.flight_parameters import (
    bound_text,
    bound_texts,
    check_bound,
    columns_texts,
    parameter_count,
)
from seqstore.cli.scan.flight_rows import ROWS, rows_of_ticket, ticket_of_rows
from seqstore.cli.scan.flight_shares import share_of, tickets, wanted_shares
from seqstore.cli.scan.parameter_types import parameter_schema
from seqstore.cli.scan.plan import one_query
from seqstore.cli.scan.sent_rows import sent_batches, sent_schema, sent_table
from seqstore.cli.scan.whole_upload import WholeUpload
from seqstore.store import (
    AccessDeniedError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnavailableError,
)
from seqstore.store.remote import requests
from seqstore.store.sql import Session
from seqstore.store.sql.parse.single_scan import names_tablets
from seqstore.store.sql.parse.statement_values import Query

_LIMITS: Final = ConnectionLimits()
_UNREAD_SECONDS_MAX: Final = 2.0
_PREFIX_BYTES: Final = len(requests.PREFIX)
_LEASE_SECONDS: Final = 60.0
_STAGING_SECONDS: Final = 3600.0
_QUERIES: Final = {"CommandStatementQuery": 1, "TicketStatementQuery": 1, "CommandPreparedStatementQuery": 1}
_UPDATES: Final = {"CommandStatementUpdate": 1, "CommandPreparedStatementUpdate": 1}


class _AnyHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets every handshake through: the middleware has checked its header."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None: ...

    def is_valid(self, token: bytes) -> str:
        return ""


class _Caller:
    """The client of one call, as the statement that runs for it sees it from another thread.

    Args:
        waits: whether the client is connected and has not cancelled the call.
        close: closes its connection.
    """

    def __init__(self, waits: Callable[[], bool], close: Callable[[], None]) -> None:
        self._waits = waits
        self._close = close
        self._lock = threading.Lock()
        self._has_ended = False
        self._cancelled_at: float | None = None

    def waits(self, is_cancelled: bool) -> bool:
        """Returns whether the client waits; closes its connection if it reads nothing of a cancelled call."""
        now = time.monotonic()
        with self._lock:
            if self._has_ended:
                return True
            self._cancelled_at = now if self._cancelled_at is None and is_cancelled else self._cancelled_at
            if self._cancelled_at is not None and now > self._cancelled_at + _UNREAD_SECONDS_MAX:
                self._close()
            return self._waits()

    def end(self) -> None:
        """Notes that the call has ended, whose connection may have others."""
        with self._lock:
            self._has_ended = True


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the queries of a store; it listens from its construction to `stop`.

    Args:
        host: address to listen on.
        port: 0 means a free one, `self.port` is its number.
        tls: for `grpc+tls`; None without encryption.
        limits: of connections, and of calls that run at a time.
        lease_seconds: the time after which a client of `Store.connect` that is silent has ended.
        staging_seconds: the time after which the load of a job has ended that is not connected.

    Raises:
        OSError: the address is in use.
    """

    def __init__(
        self,
        sessions: ServerSessions,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        limits: ConnectionLimits = _LIMITS,
        lease_seconds: float = _LEASE_SECONDS,
        staging_seconds: float = _STAGING_SECONDS,
    ) -> None:
        self._sessions = sessions
        self._remote = RemoteService(sessions, lease_seconds, staging_seconds)
        self._admission = Admission(limits)
        if tls is not None:
            tls.set_alpn_protocols(["h2"])
        self._gate = FlightGate((host, port), limits, sessions.new_number, tls)
        try:
            super().__init__(
                self._gate.inside,
                auth_handler=_AnyHandshake(),
                middleware={LOGIN: Logins(sessions, self._gate)},
            )
            self._gate.start()
        except BaseException:
            self._gate.stop()
            raise

    @property
    def port(self) -> int:
        """Returns the port that clients connect to."""
        return self._gate.port

    @property
    def connections(self) -> int:
        """Returns how many clients are connected."""
        return self._gate.connections

    def stop(self) -> None:
        """Ends running statements, and closes the port and every connection."""
        self._sessions.stop()
        self._remote.stop()
        self._gate.stop()
        self.shutdown()

    @in_call
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        given = descriptor.command or b""
        with _flight_errors():
            name, _ = named(given)
            if name in LISTS:
                schema, ticket = self._list(context, given).schema, flight.Ticket(given)
            else:
                return self._info(context, descriptor, _statement(given, _QUERIES))
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    @in_call
    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with _flight_errors():
            given = descriptor.command or b""
            if named(given)[0] in LISTS:
                return flight.SchemaResult(self._list(context, given).schema)
            return flight.SchemaResult(self._schema(context, _statement(given, _QUERIES)))

    @in_call
    def do_get(self, context: Any, ticket: Any) -> Any:
        if ticket.ticket.startswith(requests.PREFIX):
            rows = _remote_rows(self._remote.rows(self._caller(context), ticket.ticket[_PREFIX_BYTES:]))
            return flight.GeneratorStream(next(rows), SentRows(rows))
        with _flight_errors():
            if ticket.ticket.startswith(ROWS):
                return flight.RecordBatchStream(rows_of_ticket(ticket.ticket))
            if named(ticket.ticket)[0] in LISTS:
                return flight.RecordBatchStream(self._list(context, ticket.ticket))
            rows = self._rows(context, _statement(ticket.ticket, _QUERIES), ticket.ticket)
            return flight.GeneratorStream(next(rows), SentRows(rows))

    @in_call
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        gate, caller = self._gate, _login(context).caller
        upload = WholeUpload(reader, partial(gate.has_all, caller), partial(gate.waiting, caller))
        with gate.working(caller):
            writer.write(pa.py_buffer(self._put(context, descriptor.command or b"", upload)))

    def _put(self, context: Any, given: bytes, upload: WholeUpload) -> bytes:
        """Runs a call that takes rows; returns its reply."""
        if given.startswith(requests.PREFIX):
            return self._remote.put(self._caller(context), given[_PREFIX_BYTES:], upload)
        with _flight_errors():
            if named(given)[0] == COMMAND:
                return encoded({1: self._ingest(context, given, upload)})
            if named(given)[0] == "CommandPreparedStatementQuery":
                return encoded({1: bound_text(_statement(given, _QUERIES), upload).encode()})
            text = _statement(given, _UPDATES)
            texts = list(bound_texts(text, upload)) if parameter_count(text) else [text]
            return encoded({1: self._changed(context, texts)})

    def _changed(self, context: Any, texts: Sequence[str]) -> int:
        """Runs changes, several as one transaction; returns the number of rows."""
        ends = ("BEGIN", "COMMIT") if len(texts) > 1 else ()
        with self._run(context, ";\n".join([*ends[:1], *texts, *ends[1:]])) as (session, event, statements):
            done = [session.run(statement).affected_rows for statement in statements]
            rows = event.rows_written = sum(done[1:-1] if ends else done)
            return rows

    def _info(self, context: Any, descriptor: Any, text: str) -> Any:
        """Answers a query with its columns and a ticket; runs any other statement."""
        with self._run(context, text) as (session, event, statements):
            if _are_query(statements):
                schema = _columns(session, statements[0])
                count = wanted_shares(_login(context).endpoints)
                made = tickets(session, statements[0], text, count)
                return flight.FlightInfo(schema, descriptor, _endpoints(*made), -1, -1)
            done = [session.run(statement) for statement in statements]
            rows = event.rows_written = sum(each.affected_rows for each in done)
            if not done or done[-1].rows is None:
                return flight.FlightInfo(pa.schema([]), descriptor, [], rows, -1)
            found = sent_table(done[-1].rows)
            ticket = ticket_of_rows(found)
            return flight.FlightInfo(found.schema, descriptor, _endpoints(ticket), found.num_rows, -1)

    def _list(self, context: Any, given: bytes) -> pa.Table:
        """Returns the rows of a list of names."""
        kind, value = named(given)
        caller = self._caller(context)
        with (
            caller.admitted(),
            self._sessions.statement(caller.client, kind, has_client=caller.waits) as (session, event),
            session.working("SHOW"),
        ):
            rows = LISTS[kind](session, Asked(listed(value)))
            event.rows_read = rows.num_rows
            return rows

    def _ingest(self, context: Any, given: bytes, reader: Any) -> int:
        """Loads an upload and returns the number of its rows."""
        ingest = Ingest.of(Asked(listed(named(given)[1])))
        caller = self._caller(context)
        text = f"INGEST INTO {ingest.table}"
        with (
            caller.admitted(),
            self._sessions.statement(caller.client, text, has_client=caller.waits) as (session, event),
            session.working("INSERT"),
        ):
            rows = ingest.run(self._sessions.store, caller.client.user, reader, caller.read)
            event.rows_written = rows
            return rows

    @in_call
    def list_actions(self, context: Any) -> Any:
        _login(context)
        return [
            ("CreatePreparedStatement", "Checks a statement, and tells its columns and parameters."),
            ("ClosePreparedStatement", "Has nothing to release."),
            *requests.ACTIONS.items(),
        ]

    @in_call
    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        if action.type in requests.ACTIONS:
            reply = self._remote.act(self._caller(context), action.type, action.body.to_pybytes())
            return iter([flight.Result(pa.py_buffer(reply))])
        with _flight_errors():
            return iter([flight.Result(pa.py_buffer(part)) for part in self._act(context, action)])

    def _act(self, context: Any, action: Any) -> list[bytes]:
        _login(context)
        if action.type == "ClosePreparedStatement":
            return []
        if action.type != "CreatePreparedStatement":
            raise InvalidInputError(
                f"action {action.type!r} is not supported; transactions are those of the MySQL protocol",
                kind="not_supported",
            )
        _, given = command(action.body.to_pybytes())
        text = _text(given.get(1, b""))
        result: dict[int, bytes | int] = {1: text.encode()}
        if parameter_count(text):
            with self._run(context, columns_texts(text)[0], is_parsed=False) as (session, _, _):
                result[3] = parameter_schema(session, text).serialize().to_pybytes()
        columns = self._prepared_columns(context, text)
        if columns is not None:
            result[2] = columns.serialize().to_pybytes()
        return [message("ActionCreatePreparedStatementResult", result)]

    def _prepared_columns(self, context: Any, text: str) -> pa.Schema | None:
        """Returns the columns of a statement that may have parameters; None where only its run tells them."""
        texts = columns_texts(text)
        for each in texts:
            try:
                with self._run(context, each) as (session, _, statements):
                    return _columns(session, statements[0]) if _are_query(statements) else None
            except AccessDeniedError:
                raise
            except StoreError:
                if len(texts) == 1:
                    raise
        return None

    def _schema(self, context: Any, text: str) -> pa.Schema:
        """Returns the columns of a statement; those of another one than a query are known when it has run."""
        with self._run(context, text) as (session, _, statements):
            if _are_query(statements):
                return _columns(session, statements[0])
            raise InvalidInputError(
                "a statement that is no query has no rows here; send it as an update, or over the MySQL "
                "protocol",
                kind="not_supported",
            )

    def _rows(self, context: Any, text: str, ticket: bytes) -> Iterator[Any]:
        """Yields the columns of a ticket's query, then its rows; the end of the iterator ends the query."""
        has_left = False
        try:
            with self._run(context, text) as (session, event, statements):
                query = one_query(statements, text)
                with session.stream(share_of(query, ticket)) as reader:
                    schema = sent_schema(reader.schema, has_timestamps=not names_tablets(query))
                    try:
                        yield schema
                        for batch in sent_batches(reader, schema):
                            event.rows_read += batch.num_rows
                            event.bytes_sent += batch.nbytes
                            yield batch
                    except GeneratorExit as error:
                        has_left = True
                        raise UnavailableError("the client has left", kind="interrupted") from error
        except StoreError as error:
            if not has_left:
                raise _flight_error(error) from None

    @contextmanager
    def _run(
        self, context: Any, text: str, *, is_parsed: bool = True
    ) -> Iterator[tuple[Session, Event, list[Any]]]:
        """Yields a session, the audit event and the statements of a text, for one call."""
        check_bound(text)
        caller = self._caller(context)
        parse: Callable[[Session, str, Event], AbstractContextManager[list[Any]]] = self._sessions.parsed
        if not is_parsed:
            parse = _nothing
        with (
            caller.admitted(),
            self._sessions.statement(caller.client, text, has_client=caller.waits) as (session, event),
            parse(session, text, event) as statements,
        ):
            yield session, event, statements

    def _caller(self, context: Any) -> Caller:
        login = _login(context)
        client = Client("flight", login.caller.address, login.user)
        waiting = _Caller(partial(self._gate.waits, login.caller), partial(self._gate.close, login.caller))
        read = partial(self._gate.read, login.caller)
        return Caller(client, partial(self._admitted, client, waiting), waiting.waits, read)

    @contextmanager
    def _admitted(self, client: Client, waiting: _Caller) -> Iterator[None]:
        """Holds a place among the calls that run."""
        account, number = self._sessions.store.accounts.find(client.user), self._sessions.new_number()
        is_administrator = account is not None and account.may("ADMIN")
        self._admission.admit(number, client.user, is_administrator=is_administrator)
        try:
            yield
        finally:
            waiting.end()
            self._admission.end(number)


def _nothing(_session: Session, _text: str, _event: Event) -> AbstractContextManager[list[Any]]:
    return nullcontext([])


def _remote_rows(rows: Iterator[Any]) -> Iterator[Any]:
    """Yields the rows of a call; its errors become those of Flight."""
    try:
        yield from rows
    except RemoteError as error:
        raise flight.FlightServerError(str(error), error.data) from None


def _columns(session: Session, query: Query) -> pa.Schema:
    with session.stream(query) as rows:
        return sent_schema(rows.schema, has_timestamps=not names_tablets(query))


def _endpoints(*made: bytes) -> list[Any]:
    return [flight.FlightEndpoint(flight.Ticket(each), []) for each in made]


def _are_query(statements: Sequence[Any]) -> bool:
    return len(statements) == 1 and isinstance(statements[0], Query)


def _login(context: Any) -> Login:
    found: Login | None = context.get_middleware(LOGIN)
    if found is None:
        raise flight.FlightUnauthenticatedError("log in first")
    return found


def _statement(data: bytes, kinds: dict[str, int]) -> str:
    """Returns the statement of a command."""
    name, given = command(data)
    if name not in kinds:
        raise InvalidInputError(
            f"command {name!r} of Arrow Flight SQL is not supported here; names are in information_schema",
            kind="not_supported",
        )
    return _text(given.get(kinds[name], b""))


def _text(value: bytes | int) -> str:
    if not isinstance(value, bytes) or not value:
        raise InvalidInputError("the command has no statement", kind="bad_command")
    return value.decode(errors="replace")


@contextmanager
def _flight_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise _flight_error(error) from None


def _flight_error(error: StoreError) -> Exception:
    """Returns the error of Flight for one of the store.

    Raise it without a cause: gRPC sends its traceback as a header, and those of causes are longer than some
    clients take (8 KiB).
    """
    kinds: tuple[tuple[type[StoreError], type[Exception]], ...] = (
        (AccessDeniedError, flight.FlightUnauthorizedError),
        (NotFoundError, pa.ArrowKeyError),
        (InvalidInputError, pa.ArrowInvalid),
    )
    found = (made for kind, made in kinds if isinstance(error, kind))
    made: type[Exception] = next(found, flight.FlightServerError)
    return made(error.message)
