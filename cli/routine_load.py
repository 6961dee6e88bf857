"""`seqstore routine-load`: jobs that keep loading, made, run and steered."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqstore.cli import output, progress
from seqstore.cli.context import Allow, open_store, refuse_elsewhere, server, split_table
from seqstore.cli.output import Format

if TYPE_CHECKING:
    from seqstore.loaders.routine.job import RoutineJob
    from seqstore.store.sql.result import Result

_FAILED = 1
app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
Job = Annotated[str, typer.Argument(metavar="DB.JOB", help="The job.")]


@app.command("create")
def create(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The job; see conf/routine.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Instead of the name in the file.")
    ] = None,
    allow: Allow = None,
) -> None:
    """Make a job as a file describes it; `start` and `serve` run it."""
    refuse_elsewhere("routine-load create")
    from seqstore.loaders.routine import manage
    from seqstore.loaders.routine.toml_spec import read_spec
    from seqstore.store.runtime.secrets.words import references_in

    spec = read_spec(file, name=name)
    with open_store(ctx) as store:
        # A user with the job file can read the files beside it, and secrets, without this program.
        job_id = manage.create(
            store,
            spec,
            allowed=[*(allow or []), str(file.parent.resolve())],
            references=list(references_in(spec.source_properties).values()),
        )
    output.reply({"Id": job_id, "Name": spec.name, "State": "NEED_SCHEDULE"})


@app.command("start")
def start(
    ctx: typer.Context,
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[DB.JOB]...", help="Jobs to run; default: all.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when the sources have no more rows.")] = False,
) -> None:
    """Run jobs here until a signal ends it. A job runs in one process at a time; others wait for that."""
    refuse_elsewhere("routine-load start")
    from seqstore.loaders.routine.jobs import RoutineJobs
    from seqstore.loaders.routine.runner import RoutineRunner

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    with open_store(ctx) as store:
        for name in jobs or []:
            RoutineJobs(store.catalog).find(*split_table(name))
        runner = RoutineRunner(store, names=jobs or None)
        if once:
            _report(list(runner.drain().values()))
            return
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        runner.start()
        output.say("ready")
        with progress.paused():
            ended.wait()
        runner.stop()


def _report(jobs: list[RoutineJob]) -> None:
    from seqstore.loaders.routine.job import PAUSED
    from seqstore.loaders.routine.show import lag

    for job in jobs:
        counts = job.statistic
        elsewhere = f"runs in process {job.owner[0]}" if job.owner[0] else ""
        output.reply(
            {
                "Name": job.spec.name,
                "State": job.state,
                "LoadedRows": counts.loaded_rows,
                "FilteredRows": counts.error_rows,
                "UnselectedRows": counts.unselected_rows,
                "CommittedTasks": counts.committed_tasks,
                "Reason": job.reason or elsewhere or job.other_message,
            }
        )
    if any(job.state == PAUSED or sum(lag(job).values()) for job in jobs):
        raise typer.Exit(_FAILED)


@app.command("pause")
def pause(ctx: typer.Context, job: Job) -> None:
    """Pause a job; what it has not committed is dropped and read again later."""
    _control(ctx, "PAUSE", job)


@app.command("resume")
def resume(ctx: typer.Context, job: Job) -> None:
    """Resume a paused job at its offsets."""
    _control(ctx, "RESUME", job)


@app.command("stop")
def stop(ctx: typer.Context, job: Job) -> None:
    """End a job for good."""
    _control(ctx, "STOP", job)


def _control(ctx: typer.Context, action: str, job: str) -> None:
    from seqstore.loaders.routine import manage
    from seqstore.loaders.routine.jobs import RoutineJobs

    database, name = split_table(job)
    named = server(ctx)
    if named is not None:
        from seqstore.cli.elsewhere.statements import control_job

        with named.connect() as store:
            control_job(store, action, database, name)
        return
    with open_store(ctx) as store:
        manage.control(RoutineJobs(store.catalog), database, name, action)


@app.command("show")
def show(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="[DB.JOB]", help="One job; default: all.")] = None,
    all_jobs: Annotated[bool, typer.Option("--all", help="Stopped and cancelled ones too.")] = False,
    tasks: Annotated[bool, typer.Option("--tasks", help="Their tasks instead.")] = False,
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.TABLE,
) -> None:
    """Show jobs: state, progress, lag, counts, why they are paused."""
    database, name = split_table(job) if job is not None else (None, None)
    named = server(ctx)
    if named is not None:
        from seqstore.cli.elsewhere.statements import jobs_shown

        with named.connect() as remote:
            for rows in jobs_shown(remote, database, name, "ALL " * all_jobs, is_of_tasks=tasks):
                output.rows(rows, form)
        return
    with open_store(ctx) as store:
        from seqstore.loaders.routine.jobs import RoutineJobs

        found = RoutineJobs(store.catalog)
        if database is not None and name is not None:
            found.find(database, name)
        listed = {i: each for i, each in found.all(database, name).items() if all_jobs or not each.has_ended}
    found_rows = _lines(listed, tasks=tasks).rows
    if found_rows is not None:
        output.rows(found_rows, form)


def _lines(jobs: dict[int, RoutineJob], *, tasks: bool) -> Result:
    from seqstore.loaders.routine.show import JOB_COLUMNS, TASK_COLUMNS, job_line, task_lines
    from seqstore.store.sql.result import text_rows

    if tasks:
        return text_rows(TASK_COLUMNS, [line for i, job in jobs.items() for line in task_lines(i, job)])
    return text_rows(JOB_COLUMNS, [job_line(i, job) for i, job in jobs.items()])
