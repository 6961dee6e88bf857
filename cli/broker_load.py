"""`seqstore broker-load`: runs one load job that a TOML file describes, to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqstore.cli import output, progress
from seqstore.cli.context import Allow, Server, open_store, quick_imports, server

if TYPE_CHECKING:
    from seqstore.loaders.broker.job import LoadJob
    from seqstore.loaders.broker.spec import LoadSpec


class Engine(StrEnum):
    """The reader of the files."""

    LOCAL = "local"
    SPARK = "spark"


_FAILED = 1
_REJECTED = 4


def broker_load(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The job; see conf/loads.")],
    label: Annotated[
        str | None, typer.Option("--label", metavar="LABEL", help="Instead of the label in the file.")
    ] = None,
    allow: Allow = None,
    engine: Annotated[
        Engine | None,
        typer.Option("--engine", help="The engine that reads the files; without it Spark from 1 GiB on."),
    ] = None,
    spark_master: Annotated[
        str | None,
        typer.Option(
            "--spark-master", metavar="URL", help="Where Spark runs; default: as spark-submit is configured."
        ),
    ] = None,
) -> None:
    """Load files as a job describes, several tables at once, all or nothing."""
    with quick_imports():
        from seqstore.loaders.broker.run import BrokerLoad
        from seqstore.loaders.broker.toml_spec import read_spec
        from seqstore.store.runtime.secrets.words import uri_references

    spec = read_spec(file, label=label)
    if engine is not None:
        spec = replace(spec, properties={**spec.properties, "engine": engine.value})
    named = server(ctx)
    if named is not None:
        if spark_master is not None:
            raise typer.BadParameter("--spark-master: the setting load_spark_master of the server says it")
        report(_run_elsewhere(named, spec, [*(allow or []), str(file.parent)]))
        return
    with open_store(ctx) as store:
        master = store.settings.load_spark_master if spark_master is None else spark_master
        # A user with the job file can read the files beside it, and secrets, without this program.
        allowed = [*store.settings.load_paths, *(allow or []), str(file.parent)]
        paths = [path for each in spec.descriptions for path in each.paths]
        load = BrokerLoad(
            store,
            spec,
            allowed,
            on_progress=show_progress,
            spark_master=master,
            references=[secret for path in paths for secret in uri_references(path).values()],
        )
        _, job = load.run()
    report(job)


def _run_elsewhere(named: Server, spec: LoadSpec, allowed: Sequence[str]) -> LoadJob:
    from seqstore.cli.elsewhere.loads import broker_load_elsewhere

    with named.connect() as remote:
        return broker_load_elsewhere(remote, spec, allowed, show_progress)


def report(job: LoadJob) -> None:
    """Prints the outcome of a job; a cancelled one ends the command with an exit code."""
    from seqstore.store.catalog.job_record import CANCELLED

    rows = {
        "Label": job.spec.label,
        "State": job.state,
        "TransactionId": job.txn_id,
        "Files": job.files,
        "LoadedRows": max(job.loaded, 0),
        "FilteredRows": max(job.filtered, 0),
        "UnselectedRows": max(job.unselected, 0),
        "LoadBytes": job.bytes_total,
        "LoadTimeMs": max(job.finished_ms - job.created_ms, 0),
        "ErrorMsg": job.error,
        "URL": job.url,
        **({"Created": "; ".join(job.created)} if job.created else {}),
    }
    output.reply(rows)
    if job.state == CANCELLED:
        raise typer.Exit(_REJECTED if job.filtered > 0 else _FAILED)


def show_progress(job: LoadJob) -> None:
    """Shows how far a job is."""
    progress.doing(job.state)
    progress.counted(lambda: f"{job.percent} %, {job.files_done} of {job.files} files")
