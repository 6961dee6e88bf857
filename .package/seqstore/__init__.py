"""seqstore: a unique-key table store for data that arrives late, twice and out of order.

`from seqstore import Store, TableSchema`

The public names are those of `seqstore.store` and `seqstore.store.sql`. A name is imported when it is first
used, so that the command line starts without the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from seqstore.store import *  # noqa: F403
    from seqstore.store.sql import Result as Result
    from seqstore.store.sql import ServerContext as ServerContext
    from seqstore.store.sql import Session as Session

__version__ = "0.2.0"
_SQL: Final = ("Result", "ServerContext", "Session")


def __getattr__(name: str) -> Any:
    if name in _SQL:
        return getattr(import_module("seqstore.store.sql"), name)
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'seqstore' has no attribute {name!r}")
    store = import_module("seqstore.store")
    if name == "__all__":
        return sorted([*store.__all__, *_SQL])
    if name not in store.__all__:
        raise AttributeError(f"module 'seqstore' has no attribute {name!r}")
    return getattr(store, name)


def __dir__() -> list[str]:
    names: list[str] = __getattr__("__all__")
    return names
