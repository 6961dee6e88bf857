"""Where the tests of Spark have their stores: in a directory, or behind a server of it in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from seqstore import Store
from tests.support.remote.server import serving

_servers: list[ExitStack] = []
_urls: dict[Path, str] = {}


@contextmanager
def elsewhere() -> Iterator[None]:
    """Within the block `at` starts a server for each directory, and returns its URL."""
    with ExitStack() as stack:
        _servers.append(stack)
        try:
            yield
        finally:
            _servers.pop()
            _urls.clear()


def at(path: Path) -> str | Path:
    """Where the store of a directory is: the directory, or the URL of its server."""
    if not _servers or not path.exists():
        return path
    if path not in _urls:
        store = _servers[-1].enter_context(Store.open(path, create=False))
        server = _servers[-1].enter_context(serving(store))
        _urls[path] = f"seqstore://127.0.0.1:{server.port}"
    return _urls[path]


def place(path: Path) -> dict[str, str]:
    """`at` as options of the data source."""
    found = at(path)
    return {"url": found} if isinstance(found, str) else {"path": str(found)}
