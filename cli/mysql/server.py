"""The listening side: one thread accepts clients, and every client has a thread of its own.

The server uses threads, not an event loop: a session runs one statement at a time and blocks in DuckDB and in
file reads. A blocking `send` is enough back-pressure for a slow reader.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final

from seqstore.cli.audit_log import AuditLog
from seqstore.cli.login_guard import LoginGuard
from seqstore.cli.mysql.admission import Admission, ConnectionLimits
from seqstore.cli.mysql.connection import Connection
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.store.catalog.accounts import Account
from seqstore.store.sql import ServerContext, Session
from seqstore.store.sql.session.server_context import Processes
from seqstore.store.store import Store

_LIMITS: Final = ConnectionLimits()
_LOOK_SECONDS: Final = 0.5
_STOP_SECONDS_MAX: Final = 10
_BACKLOG: Final = 1024  # clients that connect at once; beyond it a client may wait for a greeting for ever
_RETRY_SECONDS: Final = 0.1
_CLOSED: Final = (errno.EBADF, errno.EINVAL)  # of a listener that was shut down
_log: Final = logging.getLogger("seqstore.mysql")


class MysqlServer:
    """Serves a store to MySQL clients.

        with MysqlServer(store, port=9030):
            ...

    Args:
        host: address to listen on.
        port: 0 means a free one; `self.port` is its number.
        tls: certificate and key to encrypt with; None serves plain connections only.
        tls_required: refuse plain ones.
        limits: of connections, as the settings `mysql_...` have them.
        guard: counts failed logins; services of one server share it.
        audit: records logins and statements; None records none.
    """

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        tls_required: bool = False,
        limits: ConnectionLimits = _LIMITS,
        guard: LoginGuard | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._store = store
        self._address = (host, port)
        self._tls = tls
        self._tls_required = tls_required
        self._limits = limits
        self._guard = guard if guard is not None else LoginGuard()
        self._audit = audit
        self._admission = Admission(limits)
        self._global_variables: dict[str, str] = {}
        self._processes = Processes()
        self._open: dict[int, tuple[Connection, threading.Thread]] = {}
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._number = 0

    @property
    def port(self) -> int:
        """Returns the port it listens on."""
        assert self._listener is not None, "the server is not started"
        return int(self._listener.getsockname()[1])

    def start(self) -> MysqlServer:
        """Begins to listen; OSError when the address is in use."""
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        self._listener = socket.create_server(self._address, family=family, backlog=_BACKLOG)
        self._listener.settimeout(_LOOK_SECONDS)  # so that late logins are noticed
        self._acceptor = threading.Thread(target=self._accept, name="mysql-accept", daemon=True)
        self._acceptor.start()
        return self

    def stop(self) -> None:
        """Closes the port and every connection, and waits for their threads."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        listener.close()
        if self._acceptor is not None:
            self._acceptor.join(_STOP_SECONDS_MAX)
        with self._lock:
            open_now = list(self._open.values())
        for connection, _ in open_now:
            connection.stop()
        for _, thread in open_now:
            thread.join(_STOP_SECONDS_MAX)

    def _accept(self) -> None:
        listener = self._listener
        while listener is not None and self._listener is listener:
            self._end(self._admission.late())
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if error.errno in _CLOSED:
                    return
                _log.warning("no MySQL client can be accepted: %s", error.strerror)
                time.sleep(_RETRY_SECONDS)  # too many open files, most likely: some will be closed
                continue
            try:
                self._admit(client)
            except (OSError, RuntimeError) as error:  # it has left already, or there can be no other thread
                _log.warning("a MySQL client could not be served: %s", error)
                client.close()

    def _admit(self, client: socket.socket) -> None:
        client.settimeout(self._limits.login_seconds_max)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number += 1
        number = self._number
        oldest = self._admission.begin(number)
        self._end([oldest] if oldest is not None else [])
        connection = Connection(
            client,
            number,
            make_session=self._session,
            log_in=self._log_in,
            tls=self._tls,
            tls_required=self._tls_required,
            idle_seconds_max=self._limits.idle_seconds_max,
            audit=self._audit,
        )
        thread = threading.Thread(
            target=self._serve, args=(connection, client), name=f"mysql-{number}", daemon=True
        )
        with self._lock:
            self._open[number] = connection, thread
        self._processes.add(number, stop=connection.stop, interrupt=connection.interrupt)
        try:
            thread.start()
        except RuntimeError:
            self._forget(number)
            raise

    def _serve(self, connection: Connection, client: socket.socket) -> None:
        try:
            with client:
                connection.serve()
        finally:
            self._forget(connection.number)

    def _end(self, numbers: Iterable[int]) -> None:
        """Closes connections; their threads end by that."""
        for number in numbers:
            with self._lock:
                found = self._open.get(number)
            if found is not None:
                _log.warning("closed a connection from %s that had not logged in", found[0].address)
                found[0].stop()

    def _log_in(
        self, connection: Connection, name: str, matches: Callable[[Account], bool]
    ) -> Account | None:
        """Decides on a login, as `Connection` describes it."""
        account = self._store.accounts.at(name, connection.address)
        if not self._guard.decide(connection.address, name, lambda: account is not None and matches(account)):
            return None
        assert account is not None
        self._admission.admit(connection.number, account.name, is_administrator=account.may("ADMIN"))
        return account

    def _forget(self, number: int) -> None:
        self._admission.end(number)
        self._processes.remove(number)
        with self._lock:
            self._open.pop(number, None)

    def _session(self, user: str, number: int) -> Session:
        load_jobs = StoreLoadJobs(self._store, user)
        with self._lock:
            connection, _ = self._open[number]
        context = ServerContext(
            self._global_variables, self._processes, load_jobs, number, connection.has_client
        )
        return Session(self._store, user=user, server=context)

    def __enter__(self) -> MysqlServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
