"""The demo's output: text, statements, tables, progress; plain lines without a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

Item = TypeVar("Item")

_LINES_WITHOUT_TERMINAL = 4
_WIDTH_WITHOUT_TERMINAL = 110


class Screen:
    """Writes to one console; nothing else in the demo prints."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = _WIDTH_WITHOUT_TERMINAL

    def title(self, text: str) -> None:
        self.console.print(f"\n[bold]{escape(text)}[/bold]")

    def say(self, text: str) -> None:
        self.console.print(escape(text))

    def prompt(self, prompt: str, text: str) -> None:
        """Prints a command behind its prompt."""
        self.console.print(f"\n[bold cyan]{escape(prompt)}[/bold cyan] {escape(text)}", soft_wrap=True)

    def block(self, text: str) -> None:
        """Prints lines that must stay unchanged."""
        self.console.print(text, markup=False, soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Numbers to the right with thousands separated, None as NULL."""
        rows = list(rows)
        table = Table(box=box.SQUARE if self.console.is_terminal else box.ASCII)
        for i, column in enumerate(columns):
            is_number = any(isinstance(row[i], int | float) for row in rows)
            table.add_column(column, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(escape(shown(value)) for value in row))
        self.console.print(table)

    def track(self, items: Sequence[Item], doing: str) -> Iterator[Item]:
        """Hands out the items under a progress bar, or a few lines that count them."""
        if not self.console.is_terminal:
            step = -(-len(items) // _LINES_WITHOUT_TERMINAL)
            for i, item in enumerate(items, start=1):
                yield item
                if i % step == 0 or i == len(items):
                    self.say(f"{doing}: {i} of {len(items)}")
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console) as progress:
            yield from progress.track(items, description=doing)


def shown(value: Any) -> str:
    """Returns a value in readable form."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
