"""`seqstore sql`: statements from the command line, a file, standard input or a prompt."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli import output
from cli.context import open_store
from cli.output import Format

if TYPE_CHECKING:
    from store.sql import Result, Session

_HISTORY_LINES_MAX: Final = 2000
_FAREWELLS: Final = frozenset(["quit", "exit", "\\q"])
_HELP: Final = "Statements end with ';'. quit, exit or Ctrl-D leaves, Ctrl-C drops what was typed."


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
) -> None:
    """Run Doris SQL; without -e and -f, at a prompt."""
    if execute and file:
        raise typer.BadParameter("give either -e or -f")
    text = _text(execute, file)
    from loaders.load_jobs import StoreLoadJobs
    from store.sql import Session

    with (
        open_store(ctx, create=True) as store,
        Session(store, load_jobs=StoreLoadJobs(store)) as session,
    ):
        if database is not None:
            from store.sql.statements import UseDatabase

            session.run(UseDatabase(database))
        if text is None:
            Prompt(session, form).run()
            return
        for result in session.execute(text):
            if result.rows is not None:
                output.rows(result.rows, form)


def _text(execute: list[str] | None, file: Path | None) -> str | None:
    """The statements to run, None when they come from a prompt."""
    if execute:
        return ";\n".join(execute)
    if file is not None and str(file) != "-":
        return file.read_text(encoding="utf-8")
    if file is not None or not sys.stdin.isatty():
        return sys.stdin.read()
    return None


class Prompt:
    """Reads statements at a terminal, several lines if need be, and shows answers with the time they took."""

    def __init__(self, session: Session, form: Format) -> None:
        self.session = session
        self.form = form

    def run(self) -> None:
        """Until the user leaves."""
        history = _load_history()
        output.say(_HELP)
        try:
            while (text := self._read()) is not None:
                if text.strip():
                    self._execute(text)
        finally:
            _save_history(history)

    def _read(self) -> str | None:
        """One or more whole statements, empty when they were dropped, None at the end."""
        from store.sql.tokens import is_complete

        lines: list[str] = []
        while True:
            try:
                line = input(f"seqstore [{self.session.database or '(none)'}]> " if not lines else "    -> ")
            except EOFError:
                output.say("")
                return None
            except KeyboardInterrupt:
                output.say("")
                return ""
            word = line.strip().rstrip(";").lower()
            if not lines and word in _FAREWELLS:
                return None
            if not lines and word == "help":
                output.say(_HELP)
                return ""
            lines.append(line)
            text = "\n".join(lines)
            if is_complete(text):
                return text

    def _execute(self, text: str) -> None:
        from store.errors import StoreError

        started = time.perf_counter()
        try:
            for result in self.session.execute(text):
                self._show(result, time.perf_counter() - started)
                started = time.perf_counter()
        except StoreError as error:
            output.error(str(error))
        except KeyboardInterrupt:
            output.error("interrupted")

    def _show(self, result: Result, seconds: float) -> None:
        took = f"({seconds:.2f} sec)"
        if result.rows is None:
            output.say(f"Query OK, {_counted(result.affected_rows)} affected {took}")
        elif result.rows.num_rows == 0:
            output.say(f"Empty set {took}")
        else:
            output.rows(result.rows, self.form)
            output.say(f"{_counted(result.rows.num_rows)} in set {took}")
        if result.info:
            output.say(result.info)
        for warning in result.warnings:
            output.say(f"Warning: {warning}")
        output.say("")


def _counted(rows: int) -> str:
    return f"{rows} row" if rows == 1 else f"{rows} rows"


def _load_history() -> Path | None:
    """Lines typed in earlier sessions, for the arrow keys; None where there is no line editing."""
    try:
        import readline
    except ImportError:
        return None
    path = Path.home() / ".seqstore_history"
    try:
        readline.read_history_file(path)
    except OSError:
        return path
    return path


def _save_history(path: Path | None) -> None:
    if path is None:
        return
    import readline

    readline.set_history_length(_HISTORY_LINES_MAX)
    try:
        readline.write_history_file(path)
    except OSError as error:
        output.error(f"what was typed cannot be kept in {path}: {error.strerror}")
