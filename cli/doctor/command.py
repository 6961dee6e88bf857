"""`seqstore doctor`: prints the checks; its exit code is 1 if one of them failed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqstore.cli import output
from seqstore.cli.context import data_dir


def doctor(
    ctx: typer.Context,
    host: Annotated[str, typer.Option("--host", help="Address that the server is to listen on.")] = "",
    http_port: Annotated[int, typer.Option("--http-port", min=0, max=65535)] = 8030,
    mysql_port: Annotated[int, typer.Option("--mysql-port", min=0, max=65535)] = 9030,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings, as in conf/default.toml.")
    ] = None,
) -> None:
    """Check disk, descriptors, clock, ports, versions and catalog for a server; exit code 1 for errors."""
    from seqstore.cli.doctor.checks import ERROR, WARNING, checks
    from seqstore.cli.server.settings import ServerSettings
    from seqstore.store.settings import Settings

    settings = ServerSettings.load(config) if config else ServerSettings()
    if config:
        Settings.load(config)  # refuses what the server would refuse
    ports = {"http": http_port, "mysql": mysql_port}
    found = checks(data_dir(ctx), settings, host or settings.host, ports)
    for check in found:
        output.say(f"{check.state:8} {check.name:12} {check.found}")
        if check.advice:
            output.say(f"{'':21} -> {check.advice}")
    errors = sum(check.state == ERROR for check in found)
    warnings = sum(check.state == WARNING for check in found)
    output.say(f"{errors} errors, {warnings} warnings")
    if errors:
        raise typer.Exit(1)
