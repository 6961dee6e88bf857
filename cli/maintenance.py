"""`seqstore optimize`, `vacuum` and `repair`: fewer segments, fewer versions, a new catalog after damage."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqstore.cli import output, progress
from seqstore.cli.context import beside_the_data, data_dir, open_store, server, split_table

if TYPE_CHECKING:
    from seqstore.store import Store, Table
    from seqstore.store.maintenance.compaction import CompactionResult

_Tables = Annotated[
    list[str] | None, typer.Argument(metavar="[DB.TABLE]...", help="Tables; all when none is named.")
]
_MIB = 2**20


class Engine(StrEnum):
    """What merges segments."""

    LOCAL = "local"
    SPARK = "spark"


def optimize(
    ctx: typer.Context,
    tables: _Tables = None,
    zorder_by: Annotated[
        str, typer.Option("--zorder-by", metavar="COLUMN,...", help="Order rows along these columns.")
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="Rewrite every segment.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Only rewrite segments with dead rows.")] = False,
    engine: Annotated[
        Engine, typer.Option("--engine", help="What merges: this process, or the executors of Spark.")
    ] = Engine.LOCAL,
    spark_master: Annotated[
        str | None,
        typer.Option(
            "--spark-master", metavar="URL", help="Where Spark runs; default: as spark-submit is configured."
        ),
    ] = None,
) -> None:
    """Merge small segments and remove dead rows; no answer changes."""
    if purge and (full or zorder_by or engine is Engine.SPARK):
        raise typer.BadParameter("--purge cannot be combined with --full, --zorder-by or --engine spark")
    if spark_master is not None and engine is Engine.LOCAL:
        raise typer.BadParameter("--spark-master needs --engine spark")
    columns = [name.strip() for name in zorder_by.split(",") if name.strip()]
    if engine is Engine.SPARK and server(ctx) is not None:
        raise beside_the_data("--engine spark: executors read and write the segment files")
    with open_store(ctx, elsewhere=True) as store:
        for name in progress.each(_names(store, tables)):
            table = store.table(name)
            if engine is Engine.SPARK:
                result = _on_spark(table, columns, full, spark_master)
            else:
                result = table.purge() if purge else table.optimize(zorder_by=columns, full=full)
            if not result.made_version:
                output.say(f"{name}: nothing to do")
                continue
            output.say(
                f"{name}: version {result.version}, {result.segments_before} segments to "
                f"{result.segments_after}, {result.rows} rows kept, {result.rows_removed} dead rows and "
                f"{result.tombstones_removed} tombstones removed, {result.bytes_read / _MIB:.1f} MiB read, "
                f"{result.bytes_written / _MIB:.1f} MiB written, {result.milliseconds} ms"
            )


def _on_spark(table: Table, zorder_by: list[str], full: bool, master: str | None) -> CompactionResult:
    from seqstore.loaders.spark.optimize import optimize_here

    if master is None:
        master = table.settings.load_spark_master
    return optimize_here(table, zorder_by=zorder_by, full=full, master=master)


def vacuum(
    ctx: typer.Context,
    tables: _Tables = None,
    retain_seconds: Annotated[
        int | None, typer.Option("--retain-seconds", min=0, help="Instead of the table's own retention.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the files that would be removed.")
    ] = False,
) -> None:
    """Remove old versions, and the files that only they need."""
    with open_store(ctx, elsewhere=True) as store:
        for name in progress.each(_names(store, tables)):
            result = store.table(name).vacuum(retention_seconds=retain_seconds, dry_run=dry_run)
            held = f", held: {', '.join(map(str, result.held))}" if result.held else ""
            output.say(
                f"{name}: {'would be ' if dry_run else ''}readable from version {result.oldest}, "
                f"{len(result.files)} files of {result.bytes / _MIB:.1f} MiB and "
                f"{len(result.orphans)} orphans deleted, "
                f"{result.transactions} old transactions forgotten{held}"
            )
            if dry_run:
                for file in (*result.files, *result.orphans):
                    output.say(f"  {file}")


def repair(
    ctx: typer.Context,
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The data directory, instead of --data-dir.")
    ] = None,
    copy: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="BACKUP",
            help="A copy of the data directory, its catalog or data.mdb; or a place of backups.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report, change nothing.")] = False,
) -> None:
    """Rebuild a damaged or lost catalog from its remains, a copy and the segment files."""
    from seqstore.store.repair.repair import repair as repaired

    progress.doing(f"the catalog of {directory or data_dir(ctx)}")
    for line in repaired(directory or data_dir(ctx), copy=copy, dry_run=dry_run).lines():
        output.say(line)


def _names(store: Store, tables: list[str] | None) -> list[str]:
    for name in tables or []:
        split_table(name)
    return tables or [f"{d}.{t}" for d in store.databases() for t in store.tables(d)]
