"""A server of the standard library in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from typing import TypeVar

_Server = TypeVar("_Server", bound=HTTPServer)


@contextmanager
def served(server: _Server) -> Iterator[_Server]:
    """Lets a server answer until the block ends, and closes it."""
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
