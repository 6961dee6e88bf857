"""The SQL prompt: lines with history, completion and highlighting, several for one statement.

Enter runs text that ends with a semicolon and opens a new line otherwise. Words, tables and columns complete
with Tab; tables are drawn to the terminal's width, and a row too wide for it stands on lines of its own.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings

from seqstore.cli import output, progress
from seqstore.cli.output import Format
from seqstore.cli.sql_words import functions, sql_words
from seqstore.store.errors import StoreError
from seqstore.store.sql import Result, Session
from seqstore.store.sql.parse.tokens import is_complete

_HISTORY: Final = ".seqstore_history"
_FAREWELLS: Final = frozenset(["quit", "exit", "\\q"])
_HELP: Final = (
    "Statements end with ';'. Tab completes, the up arrow brings earlier statements, Ctrl-C drops what was\n"
    "typed; quit, exit or Ctrl-D leaves. A statement that ends with \\G shows each row on lines of its own."
)
_WORD: Final = re.compile(r"[\w.`$]*$")


class SqlCompleter(Completer):
    """Completes the word before the cursor: key words, functions, databases, tables, columns."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._words = sql_words()
        self._functions = [f"{name}(" for name in functions()]

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yields completions at the cursor; names of the catalog first."""
        found = _WORD.search(document.text_before_cursor)
        word = found[0] if found is not None else ""
        is_lower = word.islower()
        words = [key.lower() if is_lower else key for key in self._words]
        for name in _starting(word, self._names(document.text, word)):
            yield Completion(name, start_position=-len(word))
        if word and "." not in word:
            for name in _starting(word, [*words, *self._functions]):
                yield Completion(name, start_position=-len(word))

    def _names(self, text: str, word: str) -> list[str]:
        """Databases, tables and the columns of tables that the statement mentions."""
        session, store = self._session, self._session.store
        try:
            databases, sees = session.visible_databases(), session.table_filter()
            before, dot, _ = word.rpartition(".")
            if dot and before in databases:
                return [f"{before}.{table}" for table in store.tables(before) if sees(before, table)]
            current = session.database if session.database in databases else None
            tables = [] if current is None else [t for t in store.tables(current) if sees(current, t)]
            mentioned = set(re.findall(r"\w+", text))
            columns = [
                column
                for table in tables
                if table in mentioned
                for column in store.table(f"{session.database}.{table}").schema.names
            ]
        except StoreError:  # dropped meanwhile: the next statement reports it
            return []
        return [*dict.fromkeys(columns), *tables, *databases]


def _starting(word: str, names: Iterable[str]) -> Iterator[str]:
    lowered = word.lower()
    return (name for name in names if name.lower().startswith(lowered) and name != word)


class Prompt:
    """Reads statements at a terminal and shows answers with their execution time."""

    def __init__(self, session: Session, form: Format, **terminal: Any) -> None:
        """Args:
        terminal: `input` and `output` of prompt_toolkit, the terminal's own when left out.
        """
        self.session = session
        self.form = form
        self._lines: PromptSession[str] = PromptSession(
            history=_history(),
            completer=SqlCompleter(session),
            complete_while_typing=False,
            multiline=Condition(_is_unfinished),
            prompt_continuation="    -> ",
            key_bindings=KeyBindings(),
            enable_history_search=False,
            **terminal,
        )

    def run(self) -> None:
        """Runs statements until the user leaves."""
        output.say(_HELP)
        while (text := self._read()) is not None:
            if text.strip():
                self._execute(text)

    def _read(self) -> str | None:
        """Reads one or more whole statements; empty when the user dropped them, None at the end."""
        try:
            # An exception in the terminal's event loop is a defect here, no reason to wait for Enter.
            with progress.paused():
                text = self._lines.prompt(
                    f"seqstore [{self.session.database or '(none)'}]> ", set_exception_handler=False
                )
        except EOFError:
            return None
        except KeyboardInterrupt:
            return ""
        word = text.strip().rstrip(";").lower()
        if word in _FAREWELLS:
            return None
        if word in ("help", "\\h", "?"):
            output.say(_HELP)
            return ""
        return text

    def _execute(self, text: str) -> None:
        is_vertical = text.rstrip().rstrip(";").endswith("\\G")
        text = text.rstrip().rstrip(";").removesuffix("\\G") if is_vertical else text
        started = time.perf_counter()
        progress.doing("")
        try:
            for result in self.session.execute(text):
                self._show(result, time.perf_counter() - started, is_vertical=is_vertical)
                started = time.perf_counter()
        except StoreError as error:
            output.error(str(error))
        except KeyboardInterrupt:
            output.error("interrupted")

    def _show(self, result: Result, seconds: float, *, is_vertical: bool) -> None:
        took = f"({seconds:.2f} sec)"
        if result.rows is None:
            output.say(f"Query OK, {_counted(result.affected_rows)} affected {took}")
        elif result.rows.num_rows == 0:
            output.say(f"Empty set {took}")
        else:
            width = shutil.get_terminal_size().columns
            is_table = self.form is Format.TABLE
            if is_table and (is_vertical or output.box_width(result.rows) > width):
                output.say(output.vertical(result.rows))
            else:
                output.rows(result.rows, self.form)
            output.say(f"{_counted(result.rows.num_rows)} in set {took}")
        if result.info:
            output.say(result.info)
        for warning in result.warnings:
            output.say(f"Warning: {warning}")
        output.say("")


def _is_unfinished() -> bool:
    """Returns whether Enter opens another line."""
    text = get_app().current_buffer.text
    word = text.strip().rstrip(";").lower()
    if not word or word in _FAREWELLS or word in ("help", "\\h", "?") or word.endswith("\\g"):
        return False
    return not is_complete(text)


def _counted(rows: int) -> str:
    return f"{rows} row" if rows == 1 else f"{rows} rows"


def _history() -> FileHistory | InMemoryHistory:
    """Statements of earlier sessions; in memory only where the home directory cannot be written."""
    path = Path.home() / _HISTORY
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
