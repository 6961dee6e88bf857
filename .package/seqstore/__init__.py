"""seqstore: a unique-key table store for data that arrives late, twice and out of order.

`from seqstore import Store, TableSchema`

The public names are those of `seqstore.store`, and `Session` of `seqstore.store.sql`. A name is imported when
it is first used, so that the command line starts without the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqstore.store import *  # noqa: F403
    from seqstore.store.sql import Session as Session

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*import_module("seqstore.store").__all__, "Session"])
    if name == "Session":
        return import_module("seqstore.store.sql").Session
    if name.startswith("_") or name not in import_module("seqstore.store").__all__:
        raise AttributeError(f"module 'seqstore' has no attribute {name!r}")
    return getattr(import_module("seqstore.store"), name)


def __dir__() -> list[str]:
    names: list[str] = __getattr__("__all__")
    return names
