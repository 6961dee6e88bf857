"""The MySQL server: connections, logins and sessions of the clients of one port."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Final

from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.clients.entrance import Entrance
from seqstore.cli.clients.listener import Listener
from seqstore.cli.clients.login_guard import check_reachable
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.mysql.caching_sha2 import KnownPasswords
from seqstore.cli.mysql.connection import Connection, Logins
from seqstore.cli.mysql.wire import Pace
from seqstore.store.catalog.accounts import Account
from seqstore.store.sql.session.variables import MAX_ALLOWED_PACKET
from seqstore.store.store import Store

_LIMITS: Final = ConnectionLimits()
_NOBODY: Final = Account("", salt=b"nobody", slow_hash=b"none", mysql_hash=bytes(20))


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
        sessions: services of one server share them; None makes those of this server alone.
        entrance: where clients wait, if other processes accept there too.
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
        sessions: ServerSessions | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        self._store = store
        self._tls = tls
        self._tls_required = tls_required
        self._limits = limits
        self._sessions = sessions if sessions is not None else ServerSessions(store)
        self._sessions.global_variables.setdefault(MAX_ALLOWED_PACKET, str(limits.packet_bytes_max))
        self._logins = Logins(store.accounts.at, self._log_in, KnownPasswords())
        self._listener = Listener(
            "MySQL",
            (host, port),
            limits,
            self._sessions.new_number,
            self._connect,
            self._sessions.processes.remove,
            entrance,
        )
        self._listener.admission = self._sessions.shared.admission(limits)

    @property
    def port(self) -> int:
        """Returns the port it listens on, 0 before the start."""
        return self._listener.port

    def start(self) -> MysqlServer:
        """Begins to listen; OSError when the address is in use."""
        self._listener.start()
        return self

    def stop(self) -> None:
        """Closes the port and every connection, and waits for their threads."""
        self._listener.stop()

    def _connect(self, client: socket.socket, number: int) -> Connection:
        connection = Connection(
            client,
            number,
            sessions=self._sessions,
            logins=self._logins,
            tls=self._tls,
            tls_required=self._tls_required,
            idle_seconds_max=self._limits.idle_seconds_max,
            pace=Pace(self._limits.body_idle_seconds, self._limits.body_bytes_per_second_min),
        )
        self._sessions.processes.add(number, stop=connection.stop, interrupt=connection.interrupt)
        return connection

    def _log_in(
        self, connection: Connection, name: str, matches: Callable[[Account], bool]
    ) -> Account | None:
        """Decides on a login, as `Connection` describes it."""
        account = self._store.accounts.at(name, connection.address)

        def is_right() -> bool:  # an unknown user takes as long as a wrong password
            return matches(account if account is not None else _NOBODY) and account is not None

        if not self._sessions.guard.decide(connection.address, name, is_right):
            return None
        assert account is not None
        check_reachable(account, connection.address)
        admission = self._listener.admission
        admission.admit(connection.number, account.name, is_administrator=account.may("ADMIN"))
        return account

    def __enter__(self) -> MysqlServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
