"""A TCP proxy that is a bad link: slow, far, cut, or silent; it withholds what the server answers."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Final

_BYTES: Final = 65536


class CutProxy:
    """Passes connections on to a port of this host, until it is told to cut them.

    Args:
        bytes_per_second: in each direction of a connection; 0 for as many as there are.
        delay_seconds: before each piece is passed on.

    Attributes:
        port: it listens on.
        passed: bytes so far, in both directions.
        target_after_cut: where connections go after the next cut; 0 for where they went before.
    """

    def __init__(self, target: int, *, bytes_per_second: int = 0, delay_seconds: float = 0.0) -> None:
        self._target = target
        self._bytes_per_second = bytes_per_second
        self._delay_seconds = delay_seconds
        self._piece = min(_BYTES, max(bytes_per_second // 20, 1)) if bytes_per_second else _BYTES
        self._passes = threading.Event()
        self._passes.set()
        self.passed = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target_after_cut = 0
        self._mutes = False
        self._refuses = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def withhold_replies(self) -> None:
        """From now on requests reach the server, and replies do not reach the client."""
        self._mutes = True

    def swallow(self) -> None:
        """From now on nothing passes, and no side is told: a link that is half open."""
        self._passes.clear()

    def pass_again(self) -> None:
        """Ends `swallow`; what was sent meanwhile is passed on."""
        self._passes.set()

    def cut(self, *, refuse: bool = False) -> None:
        """Cuts all connections; new ones are passed on again, or refused."""
        self._refuses, self._mutes = refuse, False
        self._target = self.target_after_cut or self._target
        with self._lock:
            cut, self._open = self._open, set()
        self._passes.set()
        for each in cut:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def accept_again(self, target: int | None = None) -> None:
        """Passes new connections on, to another port if one is given."""
        self._target = target if target is not None else self._target
        self._refuses = False

    def close(self) -> None:
        self.cut(refuse=True)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refuses:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._open |= {client, server}
                for source, sink, is_reply in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass_on, args=(source, sink, is_reply), daemon=True).start()

    def _wait_for(self, size: int) -> None:
        """Takes the time that bytes need on the link."""
        self.passed += size
        if self._delay_seconds or self._bytes_per_second:
            seconds = size / self._bytes_per_second if self._bytes_per_second else 0.0
            time.sleep(self._delay_seconds + seconds)
        self._passes.wait()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_reply: bool) -> None:
        with suppress(OSError):
            while data := source.recv(self._piece):
                self._wait_for(len(data))
                if not (is_reply and self._mutes):
                    sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
