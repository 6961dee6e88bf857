"""`seqstore serve`: the services of one data directory, until a signal ends them."""

from __future__ import annotations

import faulthandler
import importlib.util
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from seqstore.cli import output
from seqstore.cli.context import data_dir

if TYPE_CHECKING:
    from seqstore.cli.server.service import Service
    from seqstore.cli.server.settings import ServerSettings
    from seqstore.cli.workers.hub import Seat

_STDERR: Final = 2
_BACKLOG: Final = 1024  # clients that connect at once
_beside: Final[ContextVar[Mapping[str, Any] | None]] = ContextVar("beside", default=None)
_PORTS: Final = {"http": "--http-port", "mysql": "--mysql-port"}


def _keep(parameter: typer.CallbackParam, value: Any) -> Any:
    _beside.set({**(_beside.get() or {}), str(parameter.name): value})
    return value


def _more(name: str) -> Any:
    return (_beside.get() or {}).get(name)


def _more_options(
    follow: Annotated[
        str | None,
        typer.Option(
            "--follow",
            metavar="URI",
            help="Read what a leader ships there; --advertise names the leader.",
            callback=_keep,
        ),
    ] = None,
    flight_port: Annotated[
        int | None,
        typer.Option(
            "--flight-port",
            min=0,
            max=65535,
            help="Port of Arrow Flight: clients elsewhere, Flight SQL; 0 a free one. Default: without.",
            callback=_keep,
        ),
    ] = None,
) -> None:
    """Has the options of `serve` that its function does not get."""


class ServeCommand(TyperCommand):
    """`serve` with the options of `_more_options`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        one = typer.Typer(add_completion=False)
        one.command()(_more_options)
        for option in typer.main.get_command(one).params:
            option.expose_value = False
            self.params.append(option)


def serve(
    http_port: Annotated[
        int, typer.Option("--http-port", min=0, max=65535, help="Port of stream load; 0 picks a free one.")
    ] = 8030,
    mysql_port: Annotated[
        int, typer.Option("--mysql-port", min=0, max=65535, help="Port of the MySQL protocol; 0 a free one.")
    ] = 9030,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on; default: 127.0.0.1.")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST:PORT", help="Where stream loads are sent on to with 307."),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="PEM file; turns TLS on.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM file of the certificate's key.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=0, help="Processes that serve clients; 0: one per core. Default: 1."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings, as in conf/default.toml.")
    ] = None,
) -> None:
    """Serve stream load over HTTP and SQL over the MySQL protocol; run jobs, keep tables in order."""
    _prepare_process()  # before the imports of Arrow and DuckDB
    from seqstore.cli.logs.traces import send_traces
    from seqstore.cli.server.server_process import ServerPlace, run_server
    from seqstore.store import Settings

    _import_statements()
    given = {
        "host": host,
        "advertised_address": advertise,
        "tls_certificate_file": str(tls_certificate) if tls_certificate else None,
        "tls_key_file": str(tls_key) if tls_key else None,
        "workers": workers,
        "flight_port": _more("flight_port"),
    }
    settings = _settings(config, given)
    engine = Settings.load(config) if config else Settings()
    count = settings.workers or _cores()
    seat = _seat(count, settings, (http_port, mysql_port)) if count > 1 else None
    send_traces()
    place = ServerPlace(data_dir(), settings, (http_port, mysql_port), seat, _more("follow"))
    run_server(place, engine, _say_services)


def _import_statements() -> None:
    """Imports all statements, before a client waits for them and before workers are forked."""
    from seqstore.store.sql.session.statement_kind import all_kinds

    all_kinds()


def _settings(config: Path | None, given: Mapping[str, Any]) -> ServerSettings:
    """Returns the settings of a file, with those of the command line before them; forms the log."""
    from seqstore.cli.logs.json_lines import log_formatter
    from seqstore.cli.server.settings import ServerSettings

    settings = ServerSettings.load(config) if config else ServerSettings()
    settings = replace(settings, **{name: v for name, v in given.items() if v is not None})
    for handler in logging.getLogger().handlers:
        handler.setFormatter(log_formatter(settings.log_format))
    return _fitting(settings)


def _prepare_process() -> None:
    """Returns freed memory, keeps new files to the user of the server, and begins the log.

    Refuses to go on without the packages of a server, the extra `server`.
    A fatal signal, such as that of a library that finds no memory, logs what each thread was doing.
    """
    from seqstore.cli.logs.current_ids import AddIds
    from seqstore.cli.logs.json_lines import TEXT_FORMAT
    from seqstore.cli.logs.log_throttle import LogThrottle
    from seqstore.cli.server.memory import keep_little_freed_memory

    faulthandler.enable(_STDERR)
    keep_little_freed_memory()
    from seqstore.store.runtime.call_room import give_threads_room  # imports Arrow

    give_threads_room()
    _need_packages()
    os.umask(0o077)  # whatever the shell says
    handler = logging.StreamHandler()
    handler.addFilter(LogThrottle())
    handler.addFilter(AddIds())
    logging.basicConfig(format=TEXT_FORMAT, level=logging.WARNING, handlers=[handler])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seat(count: int, settings: ServerSettings, ports: tuple[int, int]) -> Seat:
    """Opens the ports and runs the hub of several workers; returns the seat in each of them.

    Raises:
        typer.Exit: this is the hub, and the workers have ended.
    """
    from seqstore.cli.workers.hub import Hub

    listeners = {name: _listener(settings.host, port, name) for name, port in zip(_PORTS, ports, strict=True)}
    hub = Hub(count, listeners, settings.connection_limits(), settings.stop_seconds, _say_where)
    seat = hub.run()
    if seat is None:
        raise typer.Exit(hub.exit_code)
    return seat


def _listener(host: str, port: int, name: str) -> socket.socket:
    from seqstore.store.errors import UnavailableError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UnavailableError(
            f"cannot listen on {host}:{port}: {reason}; choose another {_PORTS[name]}", kind="port_taken"
        ) from error
    found.setblocking(False)
    return found


def _fitting(settings: ServerSettings) -> ServerSettings:
    """Raises the limit of open files; returns the settings with as many connections as it allows."""
    from seqstore.store.runtime.descriptors import raise_limit

    limit = raise_limit()
    fitting = settings.fitting(limit)
    if fitting != settings:
        logging.getLogger("seqstore.serve").warning(
            "the process may open %d files: at most %d HTTP and %d MySQL connections; raise it by ulimit -n",
            limit,
            fitting.http_connections_max,
            fitting.mysql_connections_max,
        )
    return fitting


def _need_packages() -> None:
    from seqstore.store.errors import InvalidInputError

    for package in ("aiohttp", "prometheus_client"):
        if importlib.util.find_spec(package) is None:
            name = package.replace("_", "-")
            raise InvalidInputError(
                f"serving needs the package {name!r}, which is not installed; pip install 'seqstore[server]'",
                kind="missing_extra",
            )


def _say_services(services: Sequence[Service]) -> None:
    _say_where([service.address for service in services if service.address])


def _say_where(addresses: Sequence[str]) -> None:
    for address in addresses:
        output.say(f"listening on {address}")
    output.say("ready")
