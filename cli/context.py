"""The shared options of every command, and their store."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="DIR", help="Files may be read below it; may be repeated."),
]

PASSWORD: Final = "SEQSTORE_PASSWORD"

if TYPE_CHECKING:
    from seqstore.store import Store
    from seqstore.store.remote.remote_store import RemoteStore

# The commands that work beside the data only, each with the reason.
_BESIDE_THE_DATA: Final = {
    "serve": "it is the server of a directory",
    "repair": "a damaged catalog has no server",
    "ship": "the host that leads ships its own catalog",
    "doctor": "it checks this host for a server",
    "demo": "it makes a directory of its own",
    "backups": "it reads the place of backups itself; SHOW SNAPSHOT ON '..' reads it at the server",
    "routine-load create": "the file of the job is trusted with files and secrets of its host; CREATE "
    "ROUTINE LOAD makes a job at the server",
    "routine-load start": "a job runs in the process beside the data; the server runs those that are there",
}


@dataclass(frozen=True)
class Server:
    """A store elsewhere, as the options name it; the password is in the environment."""

    url: str
    user: str
    certificates: Path | None = None

    def connect(self) -> RemoteStore:
        """Connects to it."""
        from seqstore.store.remote.remote_store import connect

        password = os.environ.get(PASSWORD, "")
        return connect(self.url, user=self.user, password=password, certificates=self.certificates)


@dataclass(frozen=True)
class Settings:
    """The options before the command."""

    data_dir: Path | None
    debug: bool = False
    server: Server | None = None


_given: ContextVar[Settings] = ContextVar("settings")


def keep(settings: Settings) -> Settings:
    """Keeps the options before the command for commands that take no context; returns them."""
    _given.set(settings)
    return settings


def data_dir(ctx: typer.Context | None = None) -> Path:
    """Returns the data directory.

    Args:
        ctx: of the command; None reads what `keep` kept.

    Raises:
        typer.BadParameter: none was named.
    """
    settings: Settings = _given.get() if ctx is None else ctx.obj
    if settings.server is not None:
        raise beside_the_data("this command works in the directory of a store")
    if settings.data_dir is None:
        raise typer.BadParameter("give --data-dir DIR before the command, or set SEQSTORE_DATA_DIR")
    return settings.data_dir


def refuse_elsewhere(name: str) -> None:
    """Refuses a command that works beside the data only, if it was given a store elsewhere.

    Args:
        name: of the command, with that of its group.

    Raises:
        typer.BadParameter: says why.
    """
    if _given.get().server is not None and name in _BESIDE_THE_DATA:
        raise beside_the_data(f"{name}: {_BESIDE_THE_DATA[name]}")


def beside_the_data(why: str) -> typer.BadParameter:
    """Returns the error of a command, or of an option, that a store elsewhere does not have."""
    return typer.BadParameter(f"{why}; run it on the server's host, without --url")


def server(ctx: typer.Context) -> Server | None:
    """Returns the store elsewhere that the options name, None for one in a directory."""
    found: Server | None = ctx.obj.server
    return found


def open_store(ctx: typer.Context, *, create: bool = False, elsewhere: bool = False) -> Store:
    """Returns the store that the options name; use it in a `with` block.

    Args:
        create: make the directory when it is not there.
        elsewhere: the command needs the public calls of a store only, so its store may be elsewhere.
    """
    from seqstore.store import Settings as StoreSettings
    from seqstore.store import Store
    from seqstore.store.settings import registries_of_environment

    named = server(ctx)
    if elsewhere and named is not None:
        return named.connect()
    registries = registries_of_environment()
    return Store.open(data_dir(ctx), create=create, settings=StoreSettings(schema_registries=registries))


@contextmanager
def quick_imports() -> Iterator[None]:
    """Keeps the imports of a short command from taking longer than its work.

    Hardly anything is garbage while modules are imported, so the collector rests meanwhile, and leaves out
    what they have made. pyarrow looks for pandas when it converts its first list, and remembers the result.
    Only its conversions to pandas need it, which no command has but those on Spark; other packages import
    pandas as ever.
    """
    was_enabled, is_first = gc.isenabled(), "pyarrow" not in sys.modules
    gc.disable()
    try:
        _hide_pandas()
        yield
        if is_first:
            gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def _hide_pandas() -> None:
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not imported for this command", name=fullname)


def split_table(name: str) -> tuple[str, str]:
    """Splits `DB.TABLE`.

    Raises:
        typer.BadParameter: it is not of that form.
    """
    database, dot, table = name.partition(".")
    if not name.isprintable():
        raise typer.BadParameter(f"expected DB.TABLE of letters and digits, found {name!r}")
    if not (database and dot and table):
        raise typer.BadParameter(f"expected DB.TABLE, found {name!r}")
    return database, table
