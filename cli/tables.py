"""`seqstore history` and `seqstore check`: what was loaded, and whether what is stored is sound."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from cli import output
from cli.context import open_store, split_table
from cli.output import Format

_UNSOUND: Final = 5
_FIGURES: Final = (
    "rows_total",
    "rows_loaded",
    "rows_filtered",
    "rows_superseded",
    "rows_late",
    "rows_too_late",
    "rows_replaced",
    "rows_deleted",
    "bytes_written",
    "milliseconds",
)


def history(
    ctx: typer.Context,
    table: Annotated[str, typer.Argument(metavar="DB.TABLE")],
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.TABLE,
) -> None:
    """Show what made each version of a table, oldest first."""
    split_table(table)
    import pyarrow as pa

    with open_store(ctx) as store:
        versions = store.table(table).history()
    columns = {
        "version": pa.array([v.version for v in versions], pa.int64()),
        "time (UTC)": pa.array([v.timestamp.strftime("%Y-%m-%d %H:%M:%S") for v in versions], pa.string()),
        "operation": pa.array([v.operation for v in versions], pa.string()),
        "label": pa.array([v.label for v in versions], pa.string()),
        "txn_id": pa.array([v.txn_id for v in versions], pa.int64()),
    }
    for name in _FIGURES:
        columns[name] = pa.array([getattr(v, name) for v in versions], pa.int64())
    output.rows(pa.table(columns), form)


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
    with open_store(ctx) as store:
        names = tables or [f"{d}.{t}" for d in store.databases() for t in store.tables(d)]
        for name in names:
            findings = store.table(name).check()
            for finding in findings:
                output.say(f"{name}: {finding}")
            if not findings:
                output.say(f"{name}: sound")
            is_sound = is_sound and not findings
    if not is_sound:
        raise typer.Exit(_UNSOUND)
