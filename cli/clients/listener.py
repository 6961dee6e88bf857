"""The listening side of a protocol: one thread accepts clients, and every client has a thread of its own.

Servers use threads, not an event loop: a session runs one statement at a time and blocks in DuckDB and in
file reads. A blocking `send` is enough back-pressure for a slow reader.

1. A client has a place of the logins in progress until it has logged in (`Admission`).
2. A client that cannot be accepted, such as for a lack of file descriptors, waits in the backlog; the
   listener tries again.
3. `stop` closes the port, then every connection, and waits for their threads.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from seqstore.cli.clients.admission import Admission, ConnectionLimits
from seqstore.cli.clients.entrance import Entrance
from seqstore.store.runtime import memory_limit

_LOOK_SECONDS: Final = 0.5
_STOP_SECONDS_MAX: Final = 10
_BACKLOG: Final = 1024  # clients that connect at once; beyond it a client may wait for a greeting for ever
_RETRY_SECONDS: Final = 0.1
_CLOSED: Final = (errno.EBADF, errno.EINVAL)  # of a listener that was shut down
_GONE: Final = getattr(select, "POLLRDHUP", select.POLLHUP)


class Client(Protocol):
    """One connection, which its own thread serves.

    Attributes:
        address: of the other side.
    """

    address: str

    def serve(self) -> None:
        """Serves the client until it leaves; raises nothing that its protocol expects."""

    def stop(self) -> None:
        """Interrupts what runs and closes the connection; another thread calls this."""


Connect = Callable[[socket.socket, int], Client]


class Listener:
    """One port, from `start` to `stop`.

    Args:
        protocol: of the clients, for messages and names of threads.
        address: host and port; port 0 means a free one, `self.port` is its number.
        limits: of connections.
        new_number: returns the number of the next connection.
        connect: makes the connection of a socket and a number; OSError when the client has left.
        ended: called with the number of a connection that has ended.
        entrance: where clients wait, if other processes accept there too.

    Attributes:
        admission: the places of connections; the protocol calls its `admit` after a login.
    """

    def __init__(
        self,
        protocol: str,
        address: tuple[str, int],
        limits: ConnectionLimits,
        new_number: Callable[[], int],
        connect: Connect,
        ended: Callable[[int], None] = lambda number: None,
        entrance: Entrance | None = None,
    ) -> None:
        self.admission = Admission(limits)
        self._entrance = entrance
        self._protocol = protocol
        self._address = address
        self._login_seconds_max = limits.login_seconds_max
        self._new_number = new_number
        self._connect = connect
        self._ended = ended
        self._log = logging.getLogger(f"seqstore.{protocol.lower()}")
        self._open: dict[int, tuple[Client, threading.Thread]] = {}
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._acceptor: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Returns the port it listens on, 0 before the start."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    @property
    def connections(self) -> int:
        """Returns how many clients are connected."""
        return len(self._open)

    def start(self) -> None:
        """Begins to listen; OSError when the address is in use."""
        if self._entrance is not None:
            self._socket = self._entrance.listening
            self._entrance.set_clients(0)
        else:
            family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
            self._socket = socket.create_server(self._address, family=family, backlog=_BACKLOG)
            self._socket.settimeout(_LOOK_SECONDS)  # so that late logins are noticed
        name = f"{self._protocol.lower()}-accept"
        self._acceptor = threading.Thread(target=self._accept, args=(self._socket,), name=name, daemon=True)
        self._acceptor.start()

    def stop(self) -> None:
        """Performs step 3 of the module."""
        listening, self._socket = self._socket, None
        if listening is None:
            return
        if self._entrance is not None:
            self._entrance.close()
        else:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes accept
            listening.close()
        if self._acceptor is not None:
            self._acceptor.join(_STOP_SECONDS_MAX)
        with self._lock:
            open_now = list(self._open.values())
        for client, _ in open_now:
            client.stop()
        for _, thread in open_now:
            thread.join(_STOP_SECONDS_MAX)

    def find(self, number: int) -> Client | None:
        """Returns the connection of a number, None when it has ended."""
        with self._lock:
            found = self._open.get(number)
        return found[0] if found is not None else None

    def _accept(self, listening: socket.socket) -> None:
        while self._socket is listening:
            self._end(self.admission.late())
            try:
                accepted = self._entrance.accept() if self._entrance is not None else listening.accept()[0]
            except TimeoutError:
                continue
            except (OSError, ValueError) as error:
                if not isinstance(error, OSError) or error.errno in _CLOSED:
                    return
                self._log.warning("no %s client can be accepted: %s", self._protocol, error.strerror)
                time.sleep(_RETRY_SECONDS)  # too many open files, most likely: some will be closed
                continue
            try:
                self._admit(accepted)
            except (
                OSError,
                RuntimeError,
                MemoryError,
            ) as error:  # it has left already, or there can be no other thread
                self._log.warning("a %s client could not be served: %s", self._protocol, error)
                accepted.close()

    def _admit(self, accepted: socket.socket) -> None:
        accepted.settimeout(self._login_seconds_max)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = self._new_number()
        oldest = self.admission.begin(number)
        self._end([oldest] if oldest is not None else [])
        try:
            client = self._connect(accepted, number)
            name = f"{self._protocol.lower()}-{number}"
            thread = threading.Thread(
                target=self._serve, args=(client, accepted, number), name=name, daemon=True
            )
            with self._lock:
                self._open[number] = client, thread
                self._count()
            memory_limit.start_thread(thread)
        except BaseException:
            self._forget(number)
            raise

    def _serve(self, client: Client, accepted: socket.socket, number: int) -> None:
        try:
            with accepted:
                client.serve()
        finally:
            self._forget(number)
            memory_limit.end_thread()

    def _end(self, numbers: Iterable[int]) -> None:
        """Closes connections; their threads end by that."""
        for number in numbers:
            client = self.find(number)
            if client is not None:
                self._log.warning("closed a connection from %s that had not logged in", client.address)
                client.stop()

    def _forget(self, number: int) -> None:
        self.admission.end(number)
        self._ended(number)
        with self._lock:
            self._open.pop(number, None)
            self._count()

    def _count(self) -> None:
        if self._entrance is not None and self._socket is not None:
            self._entrance.set_clients(len(self._open))


def is_gone(connection: socket.socket) -> bool:
    """Returns whether the other side has closed its end, also while unread bytes of it lie here."""
    try:
        events = select.poll()
        events.register(connection, _GONE)
        return bool(events.poll(0))
    except (OSError, ValueError):  # closed here
        return True
