"""The shared options of every command, and their store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="DIR", help="Files may be read below it; may be repeated."),
]

if TYPE_CHECKING:
    from seqstore.store import Store


@dataclass(frozen=True)
class Settings:
    """The options before the command."""

    data_dir: Path | None
    debug: bool = False


def data_dir(ctx: typer.Context) -> Path:
    """Returns the data directory.

    Raises:
        typer.BadParameter: none was named.
    """
    settings: Settings = ctx.obj
    if settings.data_dir is None:
        raise typer.BadParameter("give --data-dir DIR before the command, or set SEQSTORE_DATA_DIR")
    return settings.data_dir


def open_store(ctx: typer.Context, *, create: bool = False) -> Store:
    """Returns the store in the data directory; use it in a `with` block.

    Args:
        create: make the directory when it is not there.
    """
    from seqstore.store import Store

    return Store.open(data_dir(ctx), create=create)


def split_table(name: str) -> tuple[str, str]:
    """Splits `DB.TABLE`.

    Raises:
        typer.BadParameter: it is not of that form.
    """
    database, dot, table = name.partition(".")
    if not (database and dot and table):
        raise typer.BadParameter(f"expected DB.TABLE, found {name!r}")
    return database, table
