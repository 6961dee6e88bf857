"""`seqstore sql`: statements from the command line, a file, standard input or a prompt."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from seqstore.cli import output, progress
from seqstore.cli.context import Allow, Server, data_dir, quick_imports, server
from seqstore.cli.output import Format

if TYPE_CHECKING:
    from seqstore.store.sql import Session

_HEAD_CHARACTERS: Final = 60
_CREATE_DATABASE: Final = re.compile(
    r"(?:\s+|(?:--|#)[^\n]*\n|/\*.*?\*/|;)*CREATE\s+(?:DATABASE|SCHEMA)\b", re.IGNORECASE | re.DOTALL
)


def sql(
    ctx: typer.Context,
    execute: Annotated[
        list[str] | None,
        typer.Option("--execute", "-e", metavar="SQL", help="Statements to run; may be repeated."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="A file of statements; - is standard input."),
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", "-D", metavar="DB", help="The current database at the start.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.TABLE,
    timing: Annotated[bool, typer.Option("--timing", help="Print how long each statement took.")] = False,
    create: Annotated[
        bool,
        typer.Option("--create", help="Make the store when there is none, as a first CREATE DATABASE does."),
    ] = False,
    allow: Allow = None,
) -> None:
    """Run Doris SQL; without -e and -f, at a prompt."""
    if execute and file:
        raise typer.BadParameter("give either -e or -f")
    text = _text(execute, file)
    makes_store = create or _makes_database(text)
    named = server(ctx)
    opened = _elsewhere(named, allow) if named else _session(data_dir(ctx), makes_store, allow or ())
    with opened as session:
        if database is not None:
            quoted = database.replace("`", "``")
            list(session.execute(f"USE `{quoted}`"))
        if text is None:
            from seqstore.cli.prompt import Prompt

            Prompt(session, form).run()
            return
        progress.doing(_head(text))
        started = time.perf_counter()
        for result in session.execute(text):
            if result.rows is not None:
                output.rows(result.rows, form)
            if timing:
                output.say(f"({time.perf_counter() - started:.3f} sec)")
                started = time.perf_counter()


@contextmanager
def _elsewhere(named: Server, allow: Sequence[str] | None) -> Iterator[Session]:
    """Opens a session for SQL at a server."""
    from seqstore.store.sql import Session

    if allow:
        raise typer.BadParameter("--allow: the setting load_paths of the server says which files may be read")
    with named.connect() as store, Session(store) as session:
        yield session


@contextmanager
def _session(directory: Path, create: bool, load_paths: Sequence[str]) -> Iterator[Session]:
    """Opens the store, and a session that may load files below some paths."""
    with quick_imports():
        from seqstore.loaders.load_jobs import StoreLoadJobs
        from seqstore.store import NotFoundError, Settings, Store
        from seqstore.store.sql import ServerContext, Session

    try:
        store = Store.open(directory, create=create, settings=Settings(load_paths=tuple(load_paths)))
    except NotFoundError as error:
        raise NotFoundError(
            f"{error.message}: with --create, or by CREATE DATABASE as the first statement", kind=error.kind
        ) from None
    with store, Session(store, server=ServerContext(load_jobs=StoreLoadJobs(store))) as session:
        yield session
        store.schema_changes.wait()  # Ctrl-C leaves its jobs to the next opening of the store


def _head(text: str) -> str:
    """Returns the beginning of a text on one line, without secrets: a cut one would not be known as such."""
    from seqstore.store.runtime.secrets.statements import masked_statement

    text = masked_statement(text)
    line = " ".join(text[:_HEAD_CHARACTERS].split())
    return line if len(text) <= _HEAD_CHARACTERS else f"{line} .."


def _makes_database(text: str | None) -> bool:
    """Returns whether the first statement makes a database: a new store is meant, not a mistyped path."""
    return text is not None and _CREATE_DATABASE.match(text) is not None


def _text(execute: list[str] | None, file: Path | None) -> str | None:
    """Returns the statements to run, None for a prompt."""
    if execute:
        return ";\n".join(execute)
    if file is not None and str(file) != "-":
        try:
            return file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise typer.BadParameter(f"{file}: byte {error.start} is not UTF-8") from None
    if file is not None or not sys.stdin.isatty():
        return sys.stdin.read().removeprefix("\ufeff")  # the mark of an editor
    return None
