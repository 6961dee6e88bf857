"""The sessions of one server, over all of its protocols: numbers, logins, limits and audit events.

A MySQL connection has a session for its whole life. A request of another protocol runs in `statement`, in a
session of its own: SHOW PROCESSLIST lists it, KILL and `query_timeout` end it, its workload group admits it,
and the audit log records it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from seqstore.cli.clients.audit_log import AuditLog, Client, Event
from seqstore.cli.clients.login_guard import LoginGuard, log_in
from seqstore.cli.clients.refusal import number_and_state
from seqstore.cli.clients.shared import Shared
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.store.errors import InvalidInputError, StoreError, UnavailableError
from seqstore.store.runtime.memory_limit import out_of_memory
from seqstore.store.runtime.memory_pool import MemoryPool
from seqstore.store.sql import ServerContext, Session
from seqstore.store.sql.session.server_context import Ports
from seqstore.store.sql.session.variables import MAX_ALLOWED_PACKET
from seqstore.store.store import Store

_TOKEN_BYTES: Final = 300  # of a token and its node in a tree
_TEXT_BYTES_MAX: Final = 64 << 20
_parses: Final = MemoryPool("parsing the statement", 1 / 3, 16 << 20)

HasClient = Callable[[bool], bool]


class ServerSessions:
    """Safe to share between threads.

    Args:
        guard: counts failed logins.
        audit: records logins and statements; None records none.
        ports: returns the ports of the server's services.
        shared: what all processes of the server share; None when this is the only one.

    Attributes:
        processes: for SHOW PROCESSLIST and KILL.
        global_variables: the values of SET GLOBAL.
        queues: of the workload groups.
    """

    def __init__(
        self,
        store: Store,
        *,
        guard: LoginGuard | None = None,
        audit: AuditLog | None = None,
        ports: Callable[[], Ports] = Ports,
        shared: Shared | None = None,
    ) -> None:
        self.store = store
        self.shared = shared = shared if shared is not None else Shared()
        self.guard = guard if guard is not None else shared.guard
        self.audit = audit
        self.ports = ports
        self.processes = shared.processes
        self.global_variables = shared.global_variables
        self._is_stopping = False

    def new_number(self) -> int:
        """Returns the number of a new connection or request, which KILL names."""
        return self.shared.new_number()

    def open(self, user: str, number: int, has_client: HasClient, database: str = "") -> Session:
        """Opens a session of a user.

        Args:
            has_client: see `ServerContext`.
        """
        context = ServerContext(
            self.global_variables,
            self.processes,
            StoreLoadJobs(self.store, user),
            number,
            lambda is_cancelled: not self._is_stopping and has_client(is_cancelled),
            self.shared.queues,
            self.ports,
        )
        return Session(self.store, database or None, user=user, server=context)

    def log_in(self, client: Client, password: str) -> str:
        """Returns the name in the catalog of the user that logs in, and records the login.

        Raises:
            AccessDeniedError: see `login_guard.log_in`.
        """
        with self.audited(Event("login", client)):
            return log_in(self.store.accounts, self.guard, client.user, password, client.address)

    @contextmanager
    def audited(self, event: Event) -> Iterator[Event]:
        """Yields an event, which the audit log gets at the end of the block."""
        if self.audit is None:
            yield event
            return
        with self.audit.timed(event):
            try:
                yield event
            except StoreError as error:
                event.fail(error, number_and_state(error)[0])
                event.is_parsed = event.is_parsed and error.kind != "syntax"
                raise

    @contextmanager
    def statement(
        self,
        client: Client,
        text: str,
        *,
        has_client: HasClient = lambda is_cancelled: True,
        stop: Callable[[], None] | None = None,
    ) -> Iterator[tuple[Session, Event]]:
        """Yields a session for one statement, and its audit event.

        Args:
            client: its user has logged in.
            text: as the process list and the audit log show it.
            has_client: see `ServerContext`.
            stop: closes the connection, for KILL CONNECTION; without it KILL ends the statement.

        Raises:
            UnavailableError: the server is stopping, or has no memory.
        """
        number = self.new_number()
        client = replace(client, connection=number)
        with self.audited(Event("statement", client, text, bytes_received=len(text))) as event:
            if self._is_stopping:
                raise UnavailableError("the server is stopping", kind="stopping")
            is_killed = threading.Event()

            def waits(is_cancelled: bool) -> bool:
                if is_killed.is_set():
                    session.interrupt()
                return has_client(is_cancelled)

            def interrupt() -> None:
                is_killed.set()  # the statement may not run yet
                session.interrupt()

            with self.open(client.user, number, waits, client.database) as session:
                end = interrupt if stop is None else _both(interrupt, stop)
                self.processes.add(number, stop=end, interrupt=interrupt)
                try:
                    with session.running(text):
                        yield session, event
                except MemoryError as error:
                    raise out_of_memory("the statement found no memory") from error
                finally:
                    self.processes.remove(number)

    def stop(self) -> None:
        """Ends running statements, and refuses others."""
        self._is_stopping = True
        for process in self.processes.own():
            process.interrupt()

    @contextmanager
    def parsed(self, session: Session, text: str, event: Event | None = None) -> Iterator[list[Any]]:
        """Yields the statements of a text for a session, and holds the memory of their trees.

        Args:
            event: of the text; it tells whether the text could be parsed.

        Raises:
            StoreError: the text is too long, or is no statement.
        """
        if event is not None:
            event.is_parsed = False
        most = int(self.global_variables.get(MAX_ALLOWED_PACKET, _TEXT_BYTES_MAX))
        if len(text) > most:
            raise InvalidInputError(
                f"a statement of {len(text)} characters is longer than max_allowed_packet ({most} bytes)",
                kind="packet_too_large",
            )
        with _parses.reserved(parse_bytes(text)):
            statements = session.parse(text)
            if event is not None:
                event.is_parsed = True
            yield statements


def parse_bytes(text: str) -> int:
    """Estimates the memory of a text and its parsed statements: values cost more than long texts."""
    tokens = 2 * (text.count(",") + text.count("(")) + text.count(" ")
    return 6 * len(text) + _TOKEN_BYTES * min(tokens, len(text))


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        first()
        second()

    return both
