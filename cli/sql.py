"""`seqstore sql`: statements from the command line, a file, standard input or a prompt."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from seqstore.cli import output
from seqstore.cli.context import open_store
from seqstore.cli.output import Format


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
) -> None:
    """Run Doris SQL; without -e and -f, at a prompt."""
    if execute and file:
        raise typer.BadParameter("give either -e or -f")
    text = _text(execute, file)
    from seqstore.loaders.load_jobs import StoreLoadJobs
    from seqstore.store.sql import ServerContext, Session

    with (
        open_store(ctx, create=True) as store,
        Session(store, server=ServerContext(load_jobs=StoreLoadJobs(store))) as session,
    ):
        if database is not None:
            from seqstore.store.sql.parse.statement_values import UseDatabase

            session.run(UseDatabase(database))
        if text is None:
            from seqstore.cli.prompt import Prompt

            Prompt(session, form).run()
            return
        started = time.perf_counter()
        for result in session.execute(text):
            if result.rows is not None:
                output.rows(result.rows, form)
            if timing:
                output.say(f"({time.perf_counter() - started:.3f} sec)")
                started = time.perf_counter()


def _text(execute: list[str] | None, file: Path | None) -> str | None:
    """Returns the statements to run, None for a prompt."""
    if execute:
        return ";\n".join(execute)
    if file is not None and str(file) != "-":
        return file.read_text(encoding="utf-8")
    if file is not None or not sys.stdin.isatty():
        return sys.stdin.read()
    return None
