"""Arrow Flight SQL: queries over gRPC, as Doris's frontends serve them on `arrow_flight_sql_port`.

1. A client logs in with a Basic header and gets a token, which its later calls carry.
2. `GetFlightInfo` with a statement answers the columns and one ticket, which holds the statement.
3. `DoGet` runs the statement and streams the rows.
4. Prepared statements have no parameters. Updates run at `DoPut` and answer the number of rows.

Each call has a session of its own: `SET` and `USE` have no effect on later ones. There are no transactions.
"""

from __future__ import annotations

import base64
import binascii
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from seqstore.cli.login_guard import LoginGuard, log_in
from seqstore.cli.scan.flight_messages import command, encoded, message
from seqstore.cli.scan.plan import parse_query
from seqstore.cli.scan.sent_rows import sent_batches, sent_schema
from seqstore.store import AccessDeniedError, InvalidInputError, NotFoundError, Store, StoreError
from seqstore.store.runtime.addresses import is_loopback
from seqstore.store.sql import Session, parse
from seqstore.store.sql.parse.single_scan import names_tablets
from seqstore.store.sql.parse.statement_values import Query

_log: Final = logging.getLogger("seqstore.flight")
# A middleware does not know its peer: users of particular hosts log in only where all clients are local.
_LOCAL: Final = "127.0.0.1"
_ANYWHERE: Final = "0.0.0.0"
_TOKEN_SECONDS: Final = 86_400.0
_TOKENS_MAX: Final = 10_000
_LOGIN: Final = "login"
_QUERIES: Final = {"CommandStatementQuery": 1, "TicketStatementQuery": 1, "CommandPreparedStatementQuery": 1}
_UPDATES: Final = {"CommandStatementUpdate": 1, "CommandPreparedStatementUpdate": 1}


class _Tokens:
    """The users that logged in, by token. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def add(self, user: str) -> str:
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._users[token] = user, time.monotonic() + _TOKEN_SECONDS
            if len(self._users) > _TOKENS_MAX:
                self._users.popitem(last=False)
        return token

    def user(self, token: str) -> str | None:
        with self._lock:
            user, until = self._users.get(token, (None, 0.0))
        return user if time.monotonic() < until else None


class _Login(flight.ServerMiddleware):  # type: ignore[misc]
    """The login of one call; a new token goes back in a header."""

    def __init__(self, user: str, token: str) -> None:
        self.user = user
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}


class _Logins(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads the header `authorization` of every call."""

    def __init__(self, store: Store, guard: LoginGuard, address: str) -> None:
        self._store = store
        self._guard = guard
        self._address = address
        self._tokens = _Tokens()

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Login:
        given = next((values[0] for name, values in headers.items() if name.lower() == "authorization"), "")
        scheme, _, value = given.partition(" ")
        if scheme.lower() == "bearer":
            user = self._tokens.user(value)
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
            user = log_in(self._store.accounts, self._guard, name, password, self._address)
        except AccessDeniedError as error:
            raise flight.FlightUnauthenticatedError(error.message) from error
        return _Login(user, self._tokens.add(user))


class _AnyHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets every handshake through: the middleware has checked its header."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None: ...

    def is_valid(self, token: bytes) -> str:
        return ""


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the queries of a store; it listens from its construction to `shutdown`.

    Args:
        location: such as `grpc://127.0.0.1:8070`; port 0 means a free one, `self.port` is its number.
        certificate: chain and key in PEM, for `grpc+tls`.
    """

    def __init__(
        self, store: Store, location: str, guard: LoginGuard, certificate: tuple[bytes, bytes] | None = None
    ) -> None:
        self._store = store
        is_local = is_loopback(urlsplit(location).hostname or "")
        super().__init__(
            location,
            auth_handler=_AnyHandshake(),
            tls_certificates=[certificate] if certificate is not None else None,
            middleware={_LOGIN: _Logins(store, guard, _LOCAL if is_local else _ANYWHERE)},
        )

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        try:
            text = _statement(descriptor.command or b"", _QUERIES)
            schema = self._schema(_user(context), text)
        except StoreError as error:
            raise _flight_error(error) from error
        ticket = flight.Ticket(message("TicketStatementQuery", {1: text.encode()}))
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        try:
            text = _statement(descriptor.command or b"", _QUERIES)
            return flight.SchemaResult(self._schema(_user(context), text))
        except StoreError as error:
            raise _flight_error(error) from error

    def do_get(self, context: Any, ticket: Any) -> Any:
        try:
            text = _statement(ticket.ticket, _QUERIES)
            schema, batches = self._run(_user(context), text)
        except StoreError as error:
            raise _flight_error(error) from error
        return flight.GeneratorStream(schema, batches)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        try:
            text = _statement(descriptor.command or b"", _UPDATES)
            with Session(self._store, user=_user(context)) as session:
                rows = sum(result.affected_rows for result in session.execute(text))
        except StoreError as error:
            raise _flight_error(error) from error
        writer.write(pa.py_buffer(encoded({1: rows})))

    def list_actions(self, context: Any) -> Any:
        return [
            ("CreatePreparedStatement", "Checks a statement without parameters."),
            ("ClosePreparedStatement", "Has nothing to release."),
        ]

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        try:
            return iter([flight.Result(pa.py_buffer(part)) for part in self._act(_user(context), action)])
        except StoreError as error:
            raise _flight_error(error) from error

    def _act(self, user: str, action: Any) -> list[bytes]:
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
        if _is_query(text):
            result[2] = self._schema(user, text).serialize().to_pybytes()
        return [message("ActionCreatePreparedStatementResult", result)]

    def _schema(self, user: str, text: str) -> pa.Schema:
        """Returns the columns of a statement; those of another one than a query are known when it has run."""
        with ExitStack() as held:
            session = held.enter_context(Session(self._store, user=user))
            if _is_query(text):
                query = parse_query(text)
                rows = held.enter_context(session.stream(query))
                return sent_schema(rows.schema, has_timestamps=not names_tablets(query))
            raise InvalidInputError(
                "a statement that is no query has no rows here; send it as an update, or over the MySQL "
                "protocol",
                kind="not_supported",
            )

    def _run(self, user: str, text: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        query = parse_query(text)
        held = ExitStack()
        try:
            session = held.enter_context(Session(self._store, user=user))
            rows = held.enter_context(session.stream(query))
            schema = sent_schema(rows.schema, has_timestamps=not names_tablets(query))
        except BaseException:
            held.close()
            raise

        def batches() -> Iterator[pa.RecordBatch]:
            with held:
                try:
                    yield from sent_batches(rows, schema)
                except StoreError as error:
                    raise _flight_error(error) from error

        return schema, batches()


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


def _is_query(text: str) -> bool:
    statements = parse(text)
    return len(statements) == 1 and isinstance(statements[0], Query)


def _flight_error(error: StoreError) -> Exception:
    kinds: tuple[tuple[type[StoreError], type[Exception]], ...] = (
        (AccessDeniedError, flight.FlightUnauthorizedError),
        (NotFoundError, pa.ArrowKeyError),
        (InvalidInputError, pa.ArrowInvalid),
    )
    found = (made for kind, made in kinds if isinstance(error, kind))
    made: type[Exception] = next(found, flight.FlightServerError)
    return made(error.message)
