"""`seqstore backup`, `restore`, `backups` and `ship`: copies elsewhere, made and restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from seqstore.cli import output, progress
from seqstore.cli.context import beside_the_data, data_dir, open_store, server

if TYPE_CHECKING:
    from seqstore.store.backup.job import TransferJob

_CORRUPTED: Final = 5
_MIB: Final = 2**20
_Database = Annotated[str, typer.Argument(metavar="DB", help="The database.")]
_Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="A directory, or a URI such as s3://bucket/prefix.")
]
_Label = Annotated[str, typer.Option("--label", metavar="LABEL", help="The name of the backup.")]


def backup(
    ctx: typer.Context,
    database: _Database,
    target: _Target,
    label: _Label = "daily",
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", help="A table or view; may be repeated; all without it."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read files that the target has; copy damaged ones again.")
    ] = False,
) -> None:
    """Copy tables as of now; files that the target has are not copied again."""
    named = server(ctx)
    if named is not None:
        from seqstore.cli.elsewhere.statements import Backup

        with named.connect() as remote:
            Backup(remote, database, label, target).make(tables or (), verify=verify)
        return
    with open_store(ctx) as store:
        job_id = store.backups.backup(database, label, _absolute(target), tables or (), verify=verify)
        job = store.backups.wait(job_id, _progress())
    output.say(
        f"{database}.{label} {job.timestamp}: {job.files} files of {job.bytes_total / _MIB:.1f} MiB, "
        f"{job.files_copied} of {job.bytes_copied / _MIB:.1f} MiB copied"
    )


def ship(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A directory of another disk, or a URI s3://bucket/prefix."),
    ],
) -> None:
    """Ship the catalog to another place from now on, so that the store survives its host."""
    with open_store(ctx) as store:
        progress.doing(f"the first copy of the catalog to {target}")
        store.shipping.begin(_absolute(target))
        status = store.shipping.status()
    if status is not None:
        output.say(f"shipping to {status.place}: epoch {status.state.epoch}, commit {status.state.commit}")


def restore(
    ctx: typer.Context,
    database: Annotated[str, typer.Argument(metavar="[DB]", help="The database.", show_default=False)] = "",
    target: Annotated[
        str, typer.Argument(metavar="[TARGET]", help="Where its backups are.", show_default=False)
    ] = "",
    shipped: Annotated[
        str,
        typer.Option("--from", metavar="URI", help="A whole store, from where its catalog was shipped to."),
    ] = "",
    label: _Label = "daily",
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="NAME[=NEW]", help="A table or view, under a new name; may be repeated."
        ),
    ] = None,
    timestamp: Annotated[
        str, typer.Option("--timestamp", metavar="TIME", help="Of the backup; the newest without it.")
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace tables and views of the same names.")
    ] = False,
) -> None:
    """Make the tables of a backup, all or none; or take over a whole store that was shipped (--from)."""
    if shipped:
        if server(ctx) is not None:
            raise beside_the_data("restore --from: it makes a data directory on the host that takes over")
        _take_over(ctx, shipped, database, timestamp, *(tables or ()))
        return
    if not target:
        raise typer.BadParameter("give DB and TARGET of a backup, or --from URI of a shipped store")
    named = server(ctx)
    if named is not None:
        from seqstore.cli.elsewhere.statements import Backup

        with named.connect() as remote:
            Backup(remote, database, label, target).restore(tables or (), timestamp, is_replacing=replace)
        return
    pairs = [name.partition("=") for name in tables or []]
    names = {name: new or name for name, _, new in pairs} or None
    with open_store(ctx, create=True) as store:
        store.create_database(database, if_not_exists=True)
        job_id = store.backups.restore(
            database, label, _absolute(target), names, timestamp=timestamp, replace_tables=replace
        )
        job = store.backups.wait(job_id, _progress())
        restored = store.backups.restores(database)[job_id].names.values()
    output.say(f"{database}.{label} {job.timestamp}: {', '.join(sorted(restored))} restored")


def _take_over(ctx: typer.Context, shipped: str, *others: str) -> None:
    """Makes a data directory from what another host has shipped, and fences that host."""
    from seqstore.store.failover.restore import restore_store

    if any(others):
        raise typer.BadParameter("--from restores a whole store: give no database, table or timestamp")
    progress.doing(f"the catalog from {shipped}")
    restored = restore_store(_absolute(shipped), data_dir(ctx))
    output.say(
        f"epoch {restored.epoch}: all commits up to {restored.commit} are there; the old host is fenced"
    )


def backups(
    target: _Target,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file and compare it with its checksums.")
    ] = False,
) -> None:
    """List the backups of a target; --verify ends with code 5 when a file is damaged or missing."""
    from seqstore.store.backup.stored_backups import backup_faults, stored_backups
    from seqstore.store.errors import NotFoundError

    place = _absolute(target)
    there = stored_backups(place)
    if not there:
        raise NotFoundError(f"{place}: no backups here; check the path, or that it is mounted")
    for found in there:
        what = found.error or f"{len(found.objects)} tables and views, {found.files} files"
        size = "" if found.error else f" of {found.bytes / _MIB:.1f} MiB"
        output.say(f"{found.database}.{found.label} {found.timestamp}: {what}{size}")
    if not verify:
        return
    faults = backup_faults(place, lambda done, total: progress.done(done, total, "files"))
    for fault in faults:
        output.say(fault)
    if faults:
        raise typer.Exit(_CORRUPTED)
    output.say("every file is as it was written")


def _absolute(target: str) -> str:
    return target if "://" in target else str(Path(target).absolute())


def _progress() -> Callable[[TransferJob], None]:
    """Returns a function that prints a line for each state, and shows how far a job is within it."""
    said = ""

    def say(job: TransferJob) -> None:
        nonlocal said
        amount = f"{job.files_done}/{job.files} files, {progress.size(job.bytes_done, job.bytes_total)}"
        progress.doing(job.state)
        progress.counted(lambda: amount)
        if job.state != said:
            said = job.state
            output.say(f"{job.state} {amount}")

    return say
