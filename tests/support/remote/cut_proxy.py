"""A TCP proxy that cuts connections: it passes bytes on, and withholds what the server answers."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final

_BYTES: Final = 65536


class CutProxy:
    """Passes connections on to a port of this host, until it is told to cut them.

    Attributes:
        port: it listens on.
        target_after_cut: where connections go after the next cut; 0 for where they went before.
    """

    def __init__(self, target: int) -> None:
        self._target = target
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

    def cut(self, *, refuse: bool = False) -> None:
        """Cuts all connections; new ones are passed on again, or refused."""
        self._refuses, self._mutes = refuse, False
        self._target = self.target_after_cut or self._target
        with self._lock:
            cut, self._open = self._open, set()
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

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_reply: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_BYTES):
                if not (is_reply and self._mutes):
                    sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
