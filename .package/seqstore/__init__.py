"""seqstore: a unique-key table store for data that arrives late, twice and out of order.

`from seqstore import Store, TableSchema`

The public names are those of `seqstore.store`, and `Result` and `Session` of `seqstore.store.sql`. A name is
imported at its first use, so that the command line starts without the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqstore.store import *  # noqa: F403
    from seqstore.store.sql import Result as Result
    from seqstore.store.sql import Session as Session

__version__ = "0.2.0"
_OF_SQL = ("Result", "Session")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*import_module("seqstore.store").__all__, *_OF_SQL])
    if name in _OF_SQL:
        return getattr(import_module("seqstore.store.sql"), name)
    if name.startswith("_") or name not in import_module("seqstore.store").__all__:
        raise AttributeError(f"module 'seqstore' has no attribute {name!r}")
    return getattr(import_module("seqstore.store"), name)


def __dir__() -> list[str]:
    names: list[str] = __getattr__("__all__")
    return names
