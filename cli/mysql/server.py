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
from types import TracebackType
from typing import Final

from seqstore.cli.mysql.connection import Connection
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.store.sql import ServerContext, Session
from seqstore.store.sql.session.server_context import Processes
from seqstore.store.store import Store

_HANDSHAKE_SECONDS_MAX: Final = 20
_STOP_SECONDS_MAX: Final = 10
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
        connections_max: the server refuses more.
        idle_seconds_max: the server closes a connection that is silent for longer.
    """

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        tls_required: bool = False,
        connections_max: int = 256,
        idle_seconds_max: float = 28_800,
    ) -> None:
        self._store = store
        self._address = (host, port)
        self._tls = tls
        self._tls_required = tls_required
        self._connections_max = connections_max
        self._idle_seconds_max = idle_seconds_max
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
        self._listener = socket.create_server(self._address, family=family, backlog=128)
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
            try:
                client, _ = listener.accept()
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
        client.settimeout(_HANDSHAKE_SECONDS_MAX)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            is_full = len(self._open) >= self._connections_max
            self._number += 1
            number = self._number
        if is_full:
            message = b"\xff\x10\x04#08004Too many connections"
            with client, contextlib.suppress(OSError):
                client.sendall(len(message).to_bytes(3, "little") + b"\0" + message)
            return
        connection = Connection(
            client,
            number,
            make_session=self._session,
            find_account=self._store.accounts.find,
            tls=self._tls,
            tls_required=self._tls_required,
            idle_seconds_max=self._idle_seconds_max,
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

    def _forget(self, number: int) -> None:
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
