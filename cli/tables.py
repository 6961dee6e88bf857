"""`seqstore history` and `seqstore check`: the loads of a table, and whether its stored data is sound."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from seqstore.cli import output, progress
from seqstore.cli.context import open_store, split_table
from seqstore.cli.output import Format

if TYPE_CHECKING:
    from seqstore.store import Table

_UNSOUND: Final = 5
_LINES_WITHOUT_TERMINAL: Final = 40


def history(
    ctx: typer.Context,
    table: Annotated[str, typer.Argument(metavar="DB.TABLE")],
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.TABLE,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="[COLUMN=]VALUE",
            help="Show the history of one key instead; once for each key column.",
        ),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the rows of each version as bars.")] = False,
) -> None:
    """Show what made each version of a table, oldest first; with --key, what became of one key and why."""
    split_table(table)
    if plot and (key or form is not Format.TABLE):
        raise typer.BadParameter("--plot cannot be combined with --key or --format")
    with open_store(ctx, elsewhere=True) as store:
        from seqstore.store.history.history_rows import history_table, key_history_table

        opened = store.table(table)
        if plot:
            output.say(_plot(opened))
            return
        lines = key_history_table(opened.key_history(_key(opened, key))) if key else history_table(opened)
    output.rows(lines, form)


def _plot(table: Table) -> str:
    from seqstore.cli.version_plot import version_plot

    size = shutil.get_terminal_size()
    height = size.lines - 3 if sys.stdout.isatty() else _LINES_WITHOUT_TERMINAL
    encoding = sys.stdout.encoding or "ascii"
    return version_plot(table.history(), width=size.columns, height=height, encoding=encoding)


def _key(table: Table, given: list[str]) -> dict[str, str]:
    """Returns the key columns' values, in key order where they are not named."""
    names = table.schema.key
    if len(given) != len(names):
        raise typer.BadParameter(f"--key: expected one for each of {', '.join(names)}, found {len(given)}")
    values = {}
    for name, text in zip(names, given, strict=True):
        column, equals, value = text.partition("=")
        is_named = bool(equals) and column.lower() in [n.lower() for n in names]
        values[column if is_named else name] = value if is_named else text
    return values


def check(
    ctx: typer.Context,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[DB.TABLE]...", help="Tables; all when none is named.")
    ] = None,
) -> None:
    """Read back everything tables consist of; exit code 5 when something is wrong."""
    for name in tables or []:
        split_table(name)
    is_sound = True
    with open_store(ctx, elsewhere=True) as store:
        names = tables or [f"{d}.{t}" for d in store.databases() for t in store.tables(d)]
        for name in progress.each(names):
            findings = store.table(name).check()
            for finding in findings:
                output.say(f"{name}: {finding}")
            if not findings:
                output.say(f"{name}: sound")
            is_sound = is_sound and not findings
    if not is_sound:
        raise typer.Exit(_UNSOUND)
