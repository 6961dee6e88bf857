"""One client: handshake and password, then a command after the other until it leaves.

1. The client proves its password (cli.mysql.handshake). With TLS it first requests encryption.
2. Each command runs in the connection's own session, so no other connection sees its variables (W13).
3. Rows are sent as they are read; a slow client slows its query down, and nothing is buffered.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from seqstore.cli.clients.audit_log import Client, Event
from seqstore.cli.clients.listener import is_gone
from seqstore.cli.clients.refusal import message_of, number_and_state
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.mysql import wire
from seqstore.cli.mysql.caching_sha2 import KnownPasswords
from seqstore.cli.mysql.handshake import NATIVE, HandshakeResponse, PasswordExchange, greeting, new_nonce
from seqstore.cli.mysql.prepared import Prepared
from seqstore.cli.mysql.rows import column_definition, send_rows
from seqstore.cli.mysql.wire import Channel, Pace, PacketTooLargeError, Payload, ProtocolError
from seqstore.store.catalog.accounts import Account
from seqstore.store.errors import AccessDeniedError, InvalidInputError, StoreError, UnavailableError
from seqstore.store.runtime.memory_limit import out_of_memory
from seqstore.store.sql import Session
from seqstore.store.sql.evaluate.answer_origins import Origin
from seqstore.store.sql.parse.statement_values import Query, TableName, UseDatabase
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.running_statement import LONG_TEXT
from seqstore.store.sql.session.variables import MAX_ALLOWED_PACKET, WAIT_TIMEOUT
from seqstore.store.sql.translate.functions import SERVER_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_log: Final = logging.getLogger(__name__)
_GREETING_PAYLOAD_BYTES_MAX: Final = 1 << 16
_PREPARED_MAX: Final = 4096
_STATEMENTS_ON, _STATEMENTS_OFF = 0, 1  # values of COM_SET_OPTION
_UNREAD_SECONDS_MAX: Final = 2.0


_Described: TypeAlias = "tuple[pa.Field, Origin | None]"


def _described(schema: pa.Schema, origins: Sequence[Origin | None]) -> list[_Described]:
    """Returns the columns of an answer with their origins, None for all where their number is another."""
    known = origins if len(origins) == len(schema) else [None] * len(schema)
    return list(zip(schema, known, strict=True))


@dataclass(frozen=True)
class Logins:
    """The logins of a server.

    Attributes:
        find: finds the user that a client of a name and an address logs in as.
        decide: decides on the login of a user; called with the connection, the name and the check of its
            password. Returns its account, None if the password is another, and raises what else refuses it.
        known: the passwords that matched `caching_sha2_password`.
    """

    find: Callable[[str, str], Account | None]
    decide: Callable[[Connection, str, Callable[[Account], bool]], Account | None]
    known: KnownPasswords


class Connection:
    """Serves one client on its own thread.

    Args:
        sessions: of the server.
        logins: decides on logins.
        tls: certificate for clients that request TLS; None turns TLS off.
        tls_required: refuses clients without TLS.
        idle_seconds_max: that a client is silent between two commands.
        pace: of a client within a command.
    """

    def __init__(
        self,
        connection: socket.socket,
        number: int,
        *,
        sessions: ServerSessions,
        logins: Logins,
        tls: ssl.SSLContext | None,
        tls_required: bool,
        idle_seconds_max: float,
        pace: Pace,
    ) -> None:
        self.number = number
        self._channel = Channel(connection, _GREETING_PAYLOAD_BYTES_MAX)
        self._sessions = sessions
        self._logins = logins
        self.address = connection.getpeername()[0]
        self._tls = tls
        self._tls_required = tls_required
        self._idle_seconds_max = idle_seconds_max
        self._pace = pace
        self._nonce = new_nonce()
        self._prepared: dict[int, Prepared] = {}
        self._prepared_count = 0
        self._user = ""
        self._session: Session | None = None
        self._statement: object = None
        self._is_stopped = False

    def serve(self) -> None:
        """Serves the connection until the client leaves or breaks the protocol."""
        try:
            if self._greet():
                self._channel = Channel(
                    self._channel.socket, self._packet_bytes_max(), self._pace, self._user
                )
                while self._command(self._next()):
                    pass
        except PacketTooLargeError as error:
            with contextlib.suppress(OSError):
                self._refused(error.for_client)
        except StoreError as error:  # no memory for a packet, or it does not arrive
            with contextlib.suppress(OSError):
                self._refused(error)
        except MemoryError:
            with contextlib.suppress(OSError):
                self._refused(out_of_memory("the connection found no memory"))
        except (OSError, ProtocolError):  # it has gone, or talks something else; ssl.SSLError is an OSError
            pass
        finally:
            self._channel.give_back()
            # The session knows the connection: with a reference back, what both hold waited for a collection.
            session, self._session, self._statement = self._session, None, None
            self._prepared.clear()
            if session is not None:
                session.close()
            self._channel.socket.close()  # with TLS it is another than was accepted

    def _packet_bytes_max(self) -> int:
        return int(self.session.variables.values[MAX_ALLOWED_PACKET])

    def interrupt(self) -> None:
        """Ends the running statement; another thread calls this."""
        session = self._session
        if session is not None:
            session.interrupt()

    def has_client(self, is_cancelled: bool) -> bool:
        """Returns whether the client is still connected; another thread calls this.

        Args:
            is_cancelled: the statement should have ended. If the client reads nothing of its rows, the
                connection is closed, because a packet that was sent in part has no other end.
        """
        since = self._channel.sending_since
        if is_cancelled and since is not None and time.monotonic() - since > _UNREAD_SECONDS_MAX:
            self.stop()
        return not is_gone(self._channel.socket)

    def stop(self) -> None:
        """Interrupts the running statement and closes the connection; another thread calls this."""
        self._is_stopped = True
        self.interrupt()
        with contextlib.suppress(OSError):  # not TLS's own shutdown, whose state is the thread's
            socket.socket.shutdown(self._channel.socket, socket.SHUT_RDWR)

    def _next(self) -> bytes:
        """Returns the next command, which a client sends within its session's `wait_timeout`, too."""
        self._channel.flush()
        self._channel.sequence = 0
        seconds = min(self._idle_seconds_max, float(self.session.variables.values[WAIT_TIMEOUT]))
        if self._channel.socket.gettimeout() != seconds:
            self._channel.socket.settimeout(seconds)
        return self._channel.read()

    # ------------------------------------------------------------------------------------------ login

    def _greet(self) -> bool:
        """Performs the handshake; returns whether the client is admitted."""
        self._channel.write(greeting(self.number, self._nonce, has_tls=self._tls is not None))
        payload = self._channel.read()
        capabilities = int.from_bytes(payload[:4], "little")
        if capabilities & wire.SSL and self._tls is not None and len(payload) == 32:
            self._encrypt(self._tls)
            payload = self._channel.read()
        elif self._tls_required:
            error = AccessDeniedError(
                "Connections using insecure transport are prohibited; use TLS", kind="no_tls"
            )
            return self._refused(error)
        client = HandshakeResponse.parse(payload)
        self._takes_several = bool(client.capabilities & wire.MULTI_STATEMENTS)
        return self._admitted(client)

    def _encrypt(self, tls: ssl.SSLContext) -> None:
        """Performs TLS's handshake on a socket that `stop` knows: the one that was accepted is of no use."""
        encrypted = tls.wrap_socket(self._channel.socket, server_side=True, do_handshake_on_connect=False)
        self._channel.socket = encrypted
        if self._is_stopped:  # while `stop` knew the other one
            raise ConnectionAbortedError("the connection was closed")
        encrypted.do_handshake()

    def _admitted(self, client: HandshakeResponse) -> bool:
        try:
            with self._audited("login", user=client.name):
                self._log_in_as(client)
        except StoreError as error:
            return self._refused(error)
        self._ok(Result())
        self._channel.flush()
        return True

    def _log_in_as(self, client: HandshakeResponse) -> None:
        """Checks the password of a client, and begins its session.

        Raises:
            StoreError: the client is refused.
        """
        proof = PasswordExchange(
            self._channel,
            self._nonce,
            self._logins.known,
            lambda name: self._logins.find(name, self.address),
            lambda name, check: self._sessions.guard.quick(self.address, name, check) is not None,
        )
        account = self._logins.decide(self, client.name, proof.check_of(client))
        if account is None:
            using = "YES" if client.scramble.strip(b"\0") else "NO"
            raise AccessDeniedError(
                f"Access denied for user '{client.name}' (using password: {using})", kind="bad_password"
            )
        self._user = account.name
        self._renew(client.database)

    def _refused(self, error: StoreError) -> bool:
        self._error(error)
        self._channel.flush()
        return False

    def _renew(self, database: str) -> None:
        """Starts a session without variables or prepared statements, in a database if one is named."""
        if self._session is not None:
            self._session.close()
        self._session = self._sessions.open(self._user, self.number, self.has_client)
        self._prepared.clear()
        if database:
            self._session.run(UseDatabase(database))

    @property
    def session(self) -> Session:
        assert self._session is not None
        return self._session

    # --------------------------------------------------------------------------------------- commands

    def _command(self, payload: bytes) -> bool:
        """Runs one command; False when it was the last."""
        if not payload:
            raise ProtocolError("an empty command")
        if payload[0] == 0x01:
            return False
        run = self._COMMANDS.get(payload[0])
        self._statement = None
        try:
            if run is None:
                raise InvalidInputError(f"Unknown command 0x{payload[0]:02x}", kind="not_supported")
            run(self, payload[1:])
        except StoreError as error:
            self.session.note_failure()
            self._error(error)
        except KeyboardInterrupt:
            self._error(InvalidInputError("Query execution was interrupted", kind="interrupted"))
        except UnicodeDecodeError as error:
            self._error(InvalidInputError(f"the statement is not UTF-8 text: {error.reason}", kind="syntax"))
        except (OSError, ProtocolError):
            raise
        except MemoryError:
            self._error(out_of_memory("the statement found no memory"))
        except Exception as error:  # a defect here must not end the connection
            _log.exception("connection %d: a command raised what it should not", self.number)
            self._error(StoreError(f"internal error: {type(error).__name__}: {error}", kind="internal"))
        finally:
            self._statement = None  # its tree may be large, and the connection idle from now on
        return True

    def _query(self, data: bytes) -> None:
        self._run(data.decode(), is_binary=False)

    def _run(self, text: str, *, is_binary: bool) -> None:
        """Runs the statements of a text; one result for each."""
        with self._parsed(text) as statements:
            self._run_all(statements, text, is_binary=is_binary)

    @contextlib.contextmanager
    def _parsed(self, text: str) -> Iterator[list[Any]]:
        """Yields the statements of a text, and holds the memory of their trees."""
        with contextlib.ExitStack() as held:
            try:
                # SHOW PROCESSLIST has a text while its parsing can be ended.
                with self.session.running(text) if len(text) > LONG_TEXT else contextlib.nullcontext():
                    statements = held.enter_context(self._sessions.parsed(self.session, text))
                if not statements and not text.strip(" \t\r\n;"):
                    raise InvalidInputError("Query was empty", kind="empty_query")
                if len(statements) > 1 and not self._takes_several:
                    raise InvalidInputError(
                        f"expected one statement, found {len(statements)}: the client has not allowed "
                        "several in one text (CLIENT_MULTI_STATEMENTS)",
                        kind="syntax",
                    )
            except StoreError:
                with self._audited("statement", text) as event:
                    event.is_parsed = False
                    raise
            yield statements

    def _run_all(self, statements: list[Any], text: str, *, is_binary: bool) -> None:
        if not statements:
            self._ok(Result())  # a comment, such as one for servers of a later version
        for i, statement in enumerate(statements):
            more = wire.STATUS_MORE_RESULTS if i + 1 < len(statements) else 0
            self._statement = statement
            with self._audited("statement", text) as event:
                self._run_one(statement, event, more, is_binary=is_binary)

    def _run_one(self, statement: object, event: Event, more: int, *, is_binary: bool) -> None:
        """Runs one statement of the text of an event, and sends its result."""
        with self.session.running(event.statement):
            if isinstance(statement, Query):
                origins: list[Origin | None] = []
                with self.session.stream(statement, is_answer=True, origins=origins) as reader:
                    event.rows_read = self._rows(reader, more, origins, is_binary=is_binary)
                self.session.note_answer(event.rows_read)
                return
            event.label = str(getattr(statement, "label", None) or "")
            result = self.session.run(statement)
        event.rows_written = result.affected_rows
        if result.rows is None:
            self._ok(result, more)
            return
        with result.rows.to_reader() as reader:
            event.rows_read = self._rows(reader, more, (), is_binary=is_binary)

    @contextlib.contextmanager
    def _audited(self, name: str, text: str = "", *, user: str = "") -> Iterator[Event]:
        """Yields the event of a login or a statement, which the audit log gets at the end of the block."""
        database = (self._session.database if self._session is not None else None) or ""
        client = Client("mysql", self.address, user or self._user, self.number, database)
        event = Event(name, client, text, bytes_received=len(text))
        sent = self._channel.bytes_sent
        if self._sessions.audit is None:
            yield event
            return
        with self._sessions.audit.timed(event):
            try:
                yield event
            except StoreError as error:
                event.fail(error, number_and_state(error, self._statement)[0])
                raise
            finally:
                event.bytes_sent = self._channel.bytes_sent - sent

    def _rows(
        self, reader: pa.RecordBatchReader, more: int, origins: Sequence[Origin | None], *, is_binary: bool
    ) -> int:
        """Sends the rows of a result; returns how many.

        Args:
            origins: of its columns; of another number where they are not known.
        """
        count = 0
        self._channel.write(wire.lenenc(len(reader.schema)))
        for field, origin in _described(reader.schema, origins):
            self._channel.write(column_definition(field, origin, self.session.database or ""))
        self._eof(more)
        for batch in reader:
            send_rows(self._channel, batch, is_binary=is_binary)
            count += batch.num_rows
        self._eof(more)
        return count

    def _use(self, data: bytes) -> None:
        name = data.decode()
        with self._audited("statement", f"USE {name}"):
            self.session.run(UseDatabase(name))
        self._ok(Result())

    def _ping(self, _data: bytes) -> None:
        self._ok(Result())

    def _kill(self, data: bytes) -> None:
        self._run(f"KILL {int.from_bytes(data[:4], 'little')}", is_binary=False)

    def _statistics(self, _data: bytes) -> None:
        self._channel.write(f"Uptime: 0  Version: {SERVER_VERSION}".encode())

    def _set_option(self, data: bytes) -> None:
        """Allows several statements in one text, or one only."""
        wanted = int.from_bytes(data[:2], "little")
        if wanted not in (_STATEMENTS_ON, _STATEMENTS_OFF):
            raise InvalidInputError(f"Unknown option {wanted} of a connection", kind="not_supported")
        self._takes_several = wanted == _STATEMENTS_ON
        self._eof()

    def _field_list(self, data: bytes) -> None:
        payload = Payload(data)
        name = payload.zero_ended().decode()
        table = TableName(None, name)
        with self._audited("statement", f"SHOW COLUMNS FROM {name}"):
            self.session.require("SELECT", self.session.full_name(table))
            schema = self.session.table(table).schema
        for field in schema.arrow:
            origin = Origin(name, "", name, field.name, field.name in schema.unique_key, not field.nullable)
            self._channel.write(column_definition(field, origin, self.session.database or "") + b"\xfb")
        self._eof()

    def _reset(self, _data: bytes) -> None:
        self._renew(self.session.database or "")
        self._ok(Result())

    def _change_user(self, data: bytes) -> None:
        payload = Payload(data)
        name = payload.zero_ended().decode()
        scramble = payload.take(payload.integer(1))
        database = payload.zero_ended().decode()
        payload.at = min(payload.at + 2, len(data))
        plugin = payload.zero_ended() or NATIVE
        if not self._admitted(HandshakeResponse(wire.PLUGIN_AUTH, name, scramble, database, plugin)):
            raise ProtocolError("the new user was refused")

    def _prepare(self, data: bytes) -> None:
        text = data.decode()
        with self._audited("statement", f"PREPARE {text}") as event:
            event.is_parsed = False
            prepared = Prepared.of(text)
            event.is_parsed = True
            self._add_prepared(prepared, event)

    def _add_prepared(self, prepared: Prepared, event: Event) -> None:
        """Answers with the number of a new prepared statement, its parameters and its columns."""
        if len(self._prepared) >= _PREPARED_MAX:
            raise InvalidInputError(
                "Can't create more than max_prepared_stmt_count statements (current value: "
                f"{_PREPARED_MAX}); close some",
                kind="too_many_prepared",
            )
        parameters: list[_Described] = [(pa.field("?", pa.string()), None)] * len(prepared.places)
        with self.session.running(event.statement):
            columns = self._columns_of(prepared, event)
        self._prepared_count += 1
        self.session.held.set(self._prepared_count, prepared.held_bytes)
        self._prepared[self._prepared_count] = prepared
        self._channel.write(
            b"\0"
            + self._prepared_count.to_bytes(4, "little")
            + len(columns).to_bytes(2, "little")
            + len(parameters).to_bytes(2, "little")
            + bytes(3)
        )
        for described in filter(None, (parameters, columns)):
            for field, origin in described:
                self._channel.write(column_definition(field, origin, self.session.database or ""))
            self._eof()

    def _columns_of(self, prepared: Prepared, event: Event) -> list[_Described]:
        """Returns the columns of a prepared query, for clients that build their result from them.

        Every execution sends its columns again, because their types may depend on the values. A statement
        that only its execution can describe, or refuse, has none.

        Raises:
            UnavailableError: the statement reached a limit, or was ended.
        """
        for literal in ("NULL", "1"):  # 1: where NULL is no value, as behind LIMIT
            try:
                text = prepared.filled_with(literal)
                with self._sessions.parsed(self.session, text, event) as statements:
                    if len(statements) != 1 or not isinstance(statements[0], Query):
                        return []
                    origins: list[Origin | None] = []
                    return _described(self.session.columns_of(statements[0], origins=origins), origins)
            except UnavailableError:
                raise
            except StoreError:
                continue
        return []

    def _execute(self, data: bytes) -> None:
        payload = Payload(data)
        number = payload.integer(4)
        prepared = self._find_prepared(number)
        payload.take(5)  # cursors are not offered; the iteration count is always 1
        try:
            text = prepared.filled(payload)
        finally:
            self._forget_long_values(number, prepared)
        self._run(text, is_binary=True)

    def _find_prepared(self, number: int) -> Prepared:
        prepared = self._prepared.get(number)
        if prepared is None:
            raise InvalidInputError(f"Unknown prepared statement handler ({number})", kind="unknown_prepared")
        return prepared

    def _long_data(self, data: bytes) -> None:
        payload = Payload(data)
        number = payload.integer(4)
        prepared = self._find_prepared(number)
        parameter, value = payload.integer(2), payload.rest()
        if prepared.refused is not None:
            return
        try:  # the command has no answer
            self._reserve_long_data(number, prepared, len(value))
        except StoreError as error:
            self._forget_long_values(number, prepared)
            prepared.refused = error.with_traceback(None)  # whose frames hold the data
            return
        prepared.long_values.setdefault(parameter, bytearray()).extend(value)

    def _reserve_long_data(self, number: int, prepared: Prepared, size: int) -> None:
        most = self._packet_bytes_max()
        if sum(each.long_bytes for each in self._prepared.values()) + size > most:
            raise InvalidInputError(
                f"long data of more than max_allowed_packet ({most}) bytes; send less, or SET GLOBAL more",
                kind="packet_too_large",
            )
        self.session.held.set(("long data", number), prepared.long_bytes + size)

    def _forget_long_values(self, number: int, prepared: Prepared) -> None:
        prepared.forget_long_values()
        self.session.held.set(("long data", number), 0)

    def _close_prepared(self, data: bytes) -> None:
        number = int.from_bytes(data[:4], "little")
        prepared = self._prepared.pop(number, None)
        if prepared is not None:
            self._forget_long_values(number, prepared)
            self.session.held.set(number, 0)

    def _reset_prepared(self, data: bytes) -> None:
        number = int.from_bytes(data[:4], "little")
        self._forget_long_values(number, self._find_prepared(number))
        self._ok(Result())

    # ---------------------------------------------------------------------------------------- answers

    def _status(self) -> int:
        if self._session is None:
            return wire.STATUS_AUTOCOMMIT
        transactions = self._session.transactions
        status = wire.STATUS_AUTOCOMMIT if self._session.variables.autocommit else 0
        if transactions.current is None:
            return status
        read_only = wire.STATUS_IN_READ_ONLY_TRANSACTION if transactions.is_read_only else 0
        return status | wire.STATUS_IN_TRANSACTION | read_only

    def _ok(self, result: Result, more: int = 0) -> None:
        info = wire.text(result.info) if result.info else b""
        self._channel.write(
            b"\0"
            + wire.lenenc(result.affected_rows)
            + wire.lenenc(result.insert_id)
            + (self._status() | more).to_bytes(2, "little")
            + min(len(result.warnings), 0xFFFF).to_bytes(2, "little")
            + info
        )

    def _eof(self, more: int = 0) -> None:
        warnings = len(self._session.warnings) if self._session is not None else 0
        self._channel.write(
            b"\xfe"
            + min(warnings, 0xFFFF).to_bytes(2, "little")
            + (self._status() | more).to_bytes(2, "little")
        )

    def _error(self, error: StoreError) -> None:
        number, state = number_and_state(error, self._statement)
        message = message_of(error)
        self._channel.write(
            b"\xff"
            + number.to_bytes(2, "little")
            + b"#"
            + state.encode()
            + message.encode("utf-8", "replace")
        )

    _COMMANDS: Final = {
        0x02: _use,
        0x03: _query,
        0x04: _field_list,
        0x09: _statistics,
        0x0C: _kill,
        0x0E: _ping,
        0x11: _change_user,
        0x16: _prepare,
        0x17: _execute,
        0x18: _long_data,
        0x19: _close_prepared,
        0x1A: _reset_prepared,
        0x1B: _set_option,
        0x1F: _reset,
    }
