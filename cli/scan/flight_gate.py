"""The port of Arrow Flight SQL: clients are admitted here, and their bytes passed to gRPC and back.

pyarrow offers no limits of gRPC's connections, of what they send before a call, or of their silence, and does
not tell the login which client calls. So gRPC listens on a socket of the file system that only this user
can open, and this gate on the port:

1. A client has a thread, and a place among the logins in progress until its first login, as with MySQL
   (`Listener`, `Admission`). The gate ends TLS.
2. What the client sends is read as HTTP/2 (`RequestFrames`). Before its first login it may have 1 MiB under
   way, afterwards a statement of the longest length; large ones share `_large`.
3. Each request gets a header with the connection and the client's address, which `caller` reads again.
4. A client that is silent for too long is disconnected, within a call earlier than between them
   (`CallPaces`).
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.clients.listener import Listener
from seqstore.cli.scan.call_paces import CallPaces
from seqstore.cli.scan.request_frames import RequestFrames, RequestRefusedError
from seqstore.cli.scan.socket_folder import SocketFolder
from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.runtime.memory_pool import MemoryPool

_log: Final = logging.getLogger("seqstore.flight")
_MIB: Final = 1 << 20
_NEW_BYTES_MAX: Final = _MIB  # under way before a login
_STREAMS_MAX: Final = 256
_READ_BYTES: Final = 256 << 10
_STEP_BYTES: Final = 4 * _MIB
_RETRY_SECONDS: Final = 0.05
_GONE: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_large: Final = MemoryPool("a message of Arrow Flight SQL", 1 / 4, 0)


@dataclass(frozen=True)
class Caller:
    """The sender of a request: the connection, the address of its client, and the number of its stream."""

    number: int
    address: str
    stream: int


class FlightGate:
    """One port, from `start` to `stop`.

    Args:
        address: host and port; port 0 means a free one.
        new_number: returns the number of the next connection.
        tls: for `grpc+tls`; None without encryption.

    Attributes:
        inside: the location where gRPC listens.
    """

    def __init__(
        self,
        address: tuple[str, int],
        limits: ConnectionLimits,
        new_number: Callable[[], int],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = Listener("Flight", address, limits, new_number, self._connect)
        self._limits = limits
        self._tls = tls
        self._folder = SocketFolder()
        self._header = f"x-{secrets.token_hex(16)}"
        self.inside = f"grpc+unix://{self._folder.path}/grpc"

    @property
    def port(self) -> int:
        """Returns the port it listens on, 0 before the start."""
        return self._listener.port

    @property
    def connections(self) -> int:
        """Returns how many clients are connected."""
        return self._listener.connections

    def start(self) -> None:
        """Begins to listen; OSError when the address is in use."""
        self._listener.start()

    def stop(self) -> None:
        """Closes the port and every connection."""
        self._listener.stop()
        self._folder.remove()

    def caller(self, headers: dict[str, list[str]]) -> Caller:
        """Returns the sender of a request with these headers.

        Raises:
            UnavailableError: the client made the header of the gate unreadable.
        """
        try:
            number, address, stream = headers[self._header][-1].split(" ")
            return Caller(int(number), address, int(stream))
        except (KeyError, IndexError, ValueError):
            raise UnavailableError("the request has no valid headers", kind="bad_request") from None

    def admit(self, caller: Caller, user: str, *, is_administrator: bool) -> None:
        """Gives a connection whose user has logged in a place of the user.

        Raises:
            UnavailableError: all places are taken.
        """
        self._listener.admission.admit(caller.number, user, is_administrator=is_administrator)
        found = self._listener.find(caller.number)
        if isinstance(found, _Connection):
            found.frames.bytes_max = self._limits.packet_bytes_max + _NEW_BYTES_MAX

    def end_call(self, caller: Caller) -> None:
        """Forgets a call that has ended."""
        found = self._listener.find(caller.number)
        if isinstance(found, _Connection):
            found.frames.end(caller.stream)

    def waits(self, caller: Caller) -> bool:
        """Returns whether the client of a call is connected and has not cancelled it."""
        found = self._listener.find(caller.number)
        return isinstance(found, _Connection) and not found.frames.is_reset(caller.stream)

    def has_all(self, caller: Caller) -> bool:
        """Returns whether the client has sent all of a call, and is connected."""
        found = self._listener.find(caller.number)
        return isinstance(found, _Connection) and found.frames.has_all(caller.stream)

    def read(self, caller: Caller) -> None:
        """Forgets what a call has read of a longer upload."""
        found = self._listener.find(caller.number)
        if isinstance(found, _Connection):
            found.frames.read(caller.stream)

    def working(self, caller: Caller) -> AbstractContextManager[None]:
        """Does not count the time of the block as a wait for the client of a call."""
        found = self._listener.find(caller.number)
        return found.paces.working(caller.stream) if isinstance(found, _Connection) else nullcontext()

    def waiting(self, caller: Caller) -> AbstractContextManager[None]:
        """Counts the time of the block, within `working`, as a wait for the client of a call."""
        found = self._listener.find(caller.number)
        return found.paces.waiting(caller.stream) if isinstance(found, _Connection) else nullcontext()

    def close(self, caller: Caller) -> None:
        """Closes a connection, whose calls end by that."""
        found = self._listener.find(caller.number)
        if found is not None:
            found.stop()

    def _connect(self, client: socket.socket, number: int) -> _Connection:
        address = str(client.getpeername()[0])
        paces = CallPaces(self._limits)
        frames = RequestFrames(
            self._header,
            f"{number} {address}",
            bytes_max=_NEW_BYTES_MAX,
            streams_max=_STREAMS_MAX,
            paces=paces,
        )
        inside = self.inside.partition("://")[2]
        return _Connection(client, address, frames, paces, inside, self._tls, self._limits)


class _Connection:
    """One client, and gRPC's connection for it. Its thread moves bytes in both directions."""

    def __init__(
        self,
        client: socket.socket,
        address: str,
        frames: RequestFrames,
        paces: CallPaces,
        inside: str,
        tls: ssl.SSLContext | None,
        limits: ConnectionLimits,
    ) -> None:
        self.address = address
        self.frames = frames
        self.paces = paces
        self._client = client
        self._inside = inside
        self._tls = tls
        self._idle_seconds = limits.idle_seconds_max
        self._look_seconds = min(limits.idle_seconds_max, limits.body_idle_seconds)
        self._held = 0  # bytes of `_large`
        self._is_stopped = False

    def serve(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                if self._tls is not None:
                    self._client = stack.enter_context(
                        self._tls.wrap_socket(self._client, server_side=True, do_handshake_on_connect=False)
                    )
                    if self._is_stopped:  # while `stop` knew the socket that was accepted
                        return
                    self._client.do_handshake()
                client = self._client
                inside = stack.enter_context(socket.socket(socket.AF_UNIX))
                inside.connect(self._inside)
                client.setblocking(False)
                inside.setblocking(False)
                self._pass(_Way(client, inside, self._sent), _Way(inside, client, bytes))
        except RequestRefusedError as error:
            _log.warning("closed the connection of an Arrow Flight SQL client at %s: %s", self.address, error)
        except StoreError as error:
            _log.warning("closed the connection of %s: %s", self.address, error.message)
        except OSError as error:  # of TLS, too
            _log.info("an Arrow Flight SQL client was disconnected: %s", error)
        except MemoryError:
            _log.warning("closed the connection of %s: it found no memory", self.address)
        finally:
            _large.give_back(self._held)

    def stop(self) -> None:
        """Closes the connection; another thread calls this."""
        self._is_stopped = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(
                self._client, socket.SHUT_RDWR
            )  # not TLS's own, whose state is the thread's

    def _sent(self, data: bytes) -> bytes:
        """Returns what gRPC gets for bytes of the client, and holds memory for what is under way."""
        given = self.frames.feed(data)
        if self.frames.bytes > max(self._held, _NEW_BYTES_MAX):
            _large.take(_STEP_BYTES)
            self._held += _STEP_BYTES
        elif self._held and self.frames.bytes <= _NEW_BYTES_MAX:
            held, self._held = self._held, 0
            _large.give_back(held)
        return given

    def _pass(self, there: _Way, back: _Way) -> None:
        """Moves bytes until a side closes, both are silent for too long, or the client is within a call."""
        ways, has_left = (there, back), False
        moved = looked = time.monotonic()
        while True:
            now = time.monotonic()
            if now - looked >= self._look_seconds:
                looked = now
                if late := self.paces.late():
                    raise RequestRefusedError(late)
            steps = [way.step() for way in ways]
            if any(way.is_over for way in ways):
                return
            if any(steps):
                moved = now
                continue
            if has_left:
                return
            waiting = select.poll()
            events = dict.fromkeys((there.source, back.source), 0)
            for way in ways:
                events[way.sink if way.rest else way.source] |= select.POLLOUT if way.rest else select.POLLIN
            for connection, wanted in events.items():
                waiting.register(connection, wanted)  # poll reports a closed side in any case
            found = waiting.poll(self._look_seconds * 1000)
            if not found and time.monotonic() - moved >= self._idle_seconds:
                return
            has_left = any(event & _GONE for _, event in found)  # nothing more comes, once it is read


class _Way:
    """Bytes from one socket to another, neither of which blocks.

    Attributes:
        rest: was read, and is to be sent.
        is_over: one of the sockets was closed.
    """

    def __init__(self, source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes]) -> None:
        self.source = source
        self.sink = sink
        self.rest = memoryview(b"")
        self.is_over = False
        self._change = change

    def step(self) -> bool:
        """Reads if all was sent, and sends; returns whether anything moved."""
        moved = False
        try:
            if not self.rest:
                data = _received(self.source)
                self.is_over = not data
                self.rest = memoryview(self._change(data))
                moved = True
            while self.rest:
                self.rest = self.rest[self.sink.send(self.rest) :]
                moved = True
        except _WOULD_BLOCK:
            pass
        return moved


def _received(source: socket.socket) -> bytes:
    """Returns the next bytes of a socket, none when it was closed."""
    while True:
        try:
            return source.recv(_READ_BYTES)
        except MemoryError:  # others have all of it for a moment
            time.sleep(_RETRY_SECONDS)
