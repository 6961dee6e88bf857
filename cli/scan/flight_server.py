"""Arrow Flight SQL: queries over gRPC, as Doris's frontends serve them on `arrow_flight_sql_port`.

1. A client logs in with a Basic header and gets a token, which its later calls carry.
2. `GetFlightInfo` with a statement answers the columns and one ticket, which holds the statement.
3. `DoGet` runs the statement and streams the rows.
4. Prepared statements have no parameters. Updates run at `DoPut` and answer the number of rows.

Each call has a session of its own: `SET` and `USE` have no effect on later ones. There are no transactions.

Clients of a store elsewhere (`Store.connect`) use the same port and logins: see `cli.remote`.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import flight

from seqstore.cli.clients.admission import Admission, ConnectionLimits
from seqstore.cli.clients.audit_log import Client, Event
from seqstore.cli.clients.login_guard import check_reachable
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.remote.service import Caller, RemoteError, RemoteService
from seqstore.cli.scan.flight_messages import command, encoded, message
from seqstore.cli.scan.plan import one_query
from seqstore.cli.scan.sent_rows import sent_batches, sent_schema
from seqstore.store import (
    AccessDeniedError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnavailableError,
)
from seqstore.store.catalog.accounts import Accounts
from seqstore.store.remote import requests
from seqstore.store.runtime.addresses import is_loopback
from seqstore.store.sql import Session
from seqstore.store.sql.parse.single_scan import names_tablets
from seqstore.store.sql.parse.statement_values import Query

_LIMITS: Final = ConnectionLimits()
# A middleware does not know its peer: users of particular hosts log in only where all clients are local.
_LOCAL: Final = "127.0.0.1"
_ANYWHERE: Final = "0.0.0.0"
_TOKEN_SECONDS: Final = 86_400.0
_TOKENS_MAX: Final = 10_000
_PREFIX_BYTES: Final = len(requests.PREFIX)
_LOGIN: Final = "login"
_LEASE_SECONDS: Final = 60.0
_QUERIES: Final = {"CommandStatementQuery": 1, "TicketStatementQuery": 1, "CommandPreparedStatementQuery": 1}
_UPDATES: Final = {"CommandStatementUpdate": 1, "CommandPreparedStatementUpdate": 1}


class _Tokens:
    """The users that logged in, by token; a token ends with the password it was given for.

    Safe to share between threads.
    """

    def __init__(self, accounts: Accounts, address: str) -> None:
        self._accounts = accounts
        self._address = address
        self._lock = threading.Lock()
        self._users: OrderedDict[str, tuple[str, bytes, float]] = OrderedDict()

    def add(self, user: str) -> str:
        token = secrets.token_urlsafe(32)
        account = self._accounts.find(user)
        password = account.slow_hash if account is not None else b""
        with self._lock:
            self._users[token] = user, password, time.monotonic() + _TOKEN_SECONDS
            if len(self._users) > _TOKENS_MAX:
                self._users.popitem(last=False)
        return token

    def user(self, token: str) -> str | None:
        """Returns the user of a token, None for one that is unknown or has ended.

        Raises:
            AccessDeniedError: an administrator whose password was emptied, from another machine.
        """
        with self._lock:
            user, password, until = self._users.get(token, ("", b"", 0.0))
        if time.monotonic() >= until:
            return None
        account = self._accounts.find(user)
        if account is None or account.slow_hash != password:
            return None
        check_reachable(account, self._address)
        return user


class _Login(flight.ServerMiddleware):  # type: ignore[misc]
    """The login of one call; a new token goes back in a header."""

    def __init__(self, user: str, token: str) -> None:
        self.user = user
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}


class _Logins(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads the header `authorization` of every call."""

    def __init__(self, sessions: ServerSessions, address: str) -> None:
        self._sessions = sessions
        self._address = address
        self._tokens = _Tokens(sessions.store.accounts, address)

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Login:
        given = next((values[0] for name, values in headers.items() if name.lower() == "authorization"), "")
        scheme, _, value = given.partition(" ")
        if scheme.lower() == "bearer":
            try:
                user = self._tokens.user(value)
            except AccessDeniedError as error:
                raise flight.FlightUnauthenticatedError(error.message) from error
            if user is None:
                raise flight.FlightUnauthenticatedError("the token is unknown or too old; log in again")
            return _Login(user, "")
        try:
            name, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = colon = password = ""
        if scheme.lower() != "basic" or not colon:
            raise flight.FlightUnauthenticatedError("no valid Basic authorization")
        try:
            user = self._sessions.log_in(Client("flight", self._address, name), password)
        except AccessDeniedError as error:
            raise flight.FlightUnauthenticatedError(error.message) from error
        return _Login(user, self._tokens.add(user))


class _AnyHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets every handshake through: the middleware has checked its header."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None: ...

    def is_valid(self, token: bytes) -> str:
        return ""


class _Caller:
    """The client of one call, as the statement that runs for it sees it from another thread."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = threading.Lock()

    def waits(self) -> bool:
        """Returns whether the client waits for the call."""
        with self._lock:
            return self._context is None or not self._context.is_cancelled()

    def end(self) -> None:
        """Forgets the call, whose memory is freed after it."""
        with self._lock:
            self._context = None


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the queries of a store; it listens from its construction to `stop`.

    Args:
        location: such as `grpc://127.0.0.1:8070`; port 0 means a free one, `self.port` is its number.
        certificate: chain and key in PEM, for `grpc+tls`.
        limits: of calls that run at a time; a call counts as a connection.
        lease_seconds: the time after which a client of `Store.connect` that is silent has ended.
    """

    def __init__(
        self,
        sessions: ServerSessions,
        location: str,
        certificate: tuple[bytes, bytes] | None = None,
        limits: ConnectionLimits = _LIMITS,
        lease_seconds: float = _LEASE_SECONDS,
    ) -> None:
        self._sessions = sessions
        self._remote = RemoteService(sessions, lease_seconds)
        self._admission = Admission(limits)
        is_local = is_loopback(urlsplit(location).hostname or "")
        super().__init__(
            location,
            auth_handler=_AnyHandshake(),
            tls_certificates=[certificate] if certificate is not None else None,
            middleware={_LOGIN: _Logins(sessions, _LOCAL if is_local else _ANYWHERE)},
        )

    def stop(self) -> None:
        """Ends running statements, and closes the port and every connection."""
        self._sessions.stop()
        self._remote.stop()
        self.shutdown()

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with _flight_errors():
            text = _statement(descriptor.command or b"", _QUERIES)
            schema = self._schema(context, text)
        ticket = flight.Ticket(message("TicketStatementQuery", {1: text.encode()}))
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with _flight_errors():
            return flight.SchemaResult(self._schema(context, _statement(descriptor.command or b"", _QUERIES)))

    def do_get(self, context: Any, ticket: Any) -> Any:
        if ticket.ticket.startswith(requests.PREFIX):
            rows = _remote_rows(self._remote.rows(self._caller(context), ticket.ticket[_PREFIX_BYTES:]))
            return flight.GeneratorStream(next(rows), rows)
        with _flight_errors():
            rows = self._rows(context, _statement(ticket.ticket, _QUERIES))
            return flight.GeneratorStream(next(rows), rows)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        given = descriptor.command or b""
        if given.startswith(requests.PREFIX):
            reply = self._remote.put(self._caller(context), given[_PREFIX_BYTES:], reader)
            writer.write(pa.py_buffer(reply))
            return
        with _flight_errors():
            text = _statement(descriptor.command or b"", _UPDATES)
            with self._run(context, text) as (session, event, statements):
                rows = sum(session.run(statement).affected_rows for statement in statements)
                event.rows_written = rows
        writer.write(pa.py_buffer(encoded({1: rows})))

    def list_actions(self, context: Any) -> Any:
        _user(context)
        return [
            ("CreatePreparedStatement", "Checks a statement without parameters."),
            ("ClosePreparedStatement", "Has nothing to release."),
            *requests.ACTIONS.items(),
        ]

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        if action.type in requests.ACTIONS:
            reply = self._remote.act(self._caller(context), action.type, action.body.to_pybytes())
            return iter([flight.Result(pa.py_buffer(reply))])
        with _flight_errors():
            return iter([flight.Result(pa.py_buffer(part)) for part in self._act(context, action)])

    def _act(self, context: Any, action: Any) -> list[bytes]:
        _user(context)
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
        with self._run(context, text) as (session, _, statements):
            if _are_query(statements):
                result[2] = _columns(session, statements[0]).serialize().to_pybytes()
        return [message("ActionCreatePreparedStatementResult", result)]

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

    def _rows(self, context: Any, text: str) -> Iterator[Any]:
        """Yields the columns of a query, then its rows; the end of the iterator ends the query."""
        has_left = False
        try:
            with self._run(context, text) as (session, event, statements):
                query = one_query(statements, text)
                with session.stream(query) as reader:
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
                raise _flight_error(error) from error

    @contextmanager
    def _run(self, context: Any, text: str) -> Iterator[tuple[Session, Event, list[Any]]]:
        """Yields a session, the audit event and the statements of a text, for one call."""
        caller = self._caller(context)
        with (
            caller.admitted(),
            self._sessions.statement(caller.client, text, has_client=lambda _: caller.is_there()) as started,
            self._sessions.parsed(text) as statements,
        ):
            yield *started, statements

    def _caller(self, context: Any) -> Caller:
        client, waiting = Client("flight", _address(context.peer()), _user(context)), _Caller(context)
        return Caller(client, partial(self._admitted, client, waiting), waiting.waits)

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


def _remote_rows(rows: Iterator[Any]) -> Iterator[Any]:
    """Yields the rows of a call; its errors become those of Flight."""
    try:
        yield from rows
    except RemoteError as error:
        raise flight.FlightServerError(str(error), error.data) from error


def _columns(session: Session, query: Query) -> pa.Schema:
    with session.stream(query) as rows:
        return sent_schema(rows.schema, has_timestamps=not names_tablets(query))


def _are_query(statements: Sequence[Any]) -> bool:
    return len(statements) == 1 and isinstance(statements[0], Query)


def _address(peer: str) -> str:
    """Returns the address in the name that gRPC has for a client, such as `ipv4:127.0.0.1:5000`."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _user(context: Any) -> str:
    found = context.get_middleware(_LOGIN)
    if found is None:
        raise flight.FlightUnauthenticatedError("log in first")
    user: str = found.user
    return user


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
        raise _flight_error(error) from error


def _flight_error(error: StoreError) -> Exception:
    kinds: tuple[tuple[type[StoreError], type[Exception]], ...] = (
        (AccessDeniedError, flight.FlightUnauthorizedError),
        (NotFoundError, pa.ArrowKeyError),
        (InvalidInputError, pa.ArrowInvalid),
    )
    found = (made for kind, made in kinds if isinstance(error, kind))
    made: type[Exception] = next(found, flight.FlightServerError)
    return made(error.message)
