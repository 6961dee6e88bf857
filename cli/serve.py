"""`seqstore serve`: the services of one data directory, until a signal ends them."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqstore.cli import output
from seqstore.cli.context import data_dir

if TYPE_CHECKING:
    from seqstore.cli.audit_log import AuditLog
    from seqstore.cli.server.service import Service
    from seqstore.cli.server.settings import ServerSettings
    from seqstore.store import Store


def serve(
    ctx: typer.Context,
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
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings, as in conf/default.toml.")
    ] = None,
) -> None:
    """Serve stream load over HTTP and SQL over the MySQL protocol; run jobs, keep tables in order."""
    _prepare_process()  # before the imports of Arrow and DuckDB
    _need_packages()
    from seqstore.cli.server.service import warn_of_empty_password
    from seqstore.cli.server.settings import ServerSettings
    from seqstore.store import Settings, Store
    from seqstore.store.sql.evaluate import connections

    settings = ServerSettings.load(config) if config else ServerSettings()
    given: dict[str, Any] = {
        "host": host,
        "advertised_address": advertise,
        "tls_certificate_file": str(tls_certificate) if tls_certificate else None,
        "tls_key_file": str(tls_key) if tls_key else None,
    }
    settings = _fitting(replace(settings, **{name: v for name, v in given.items() if v is not None}))
    engine = Settings.load(config) if config else Settings()
    with Store.open(data_dir(ctx), settings=engine) as store, _limited_memory(settings, data_dir(ctx)):
        data_dir(ctx).chmod(0o700)  # it may have been made by another program
        connections.connect().close()  # while files can be opened: DuckDB ends a process that has none left
        warn_of_empty_password(store)
        services = _services(store, settings, (http_port, mysql_port), data_dir(ctx))
        _run(services, settings.stop_seconds, store.catalog.stop_waiting)


def _run(services: Sequence[Service], seconds: float, stop_waiting: Callable[[], None]) -> None:
    import asyncio  # the other commands do without

    from seqstore.cli.server.service import run_services

    asyncio.run(run_services(services, _say_where, stop_seconds=seconds, stop_waiting=stop_waiting))


def _prepare_process() -> None:
    """Returns freed memory, keeps new files to the user of the server, and begins the log."""
    from seqstore.cli.server.log_throttle import LogThrottle
    from seqstore.cli.server.memory import keep_little_freed_memory

    keep_little_freed_memory()
    os.umask(0o077)  # whatever the shell says
    handler = logging.StreamHandler()
    handler.addFilter(LogThrottle())
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING, handlers=[handler]
    )


@contextmanager
def _limited_memory(settings: ServerSettings, directory: Path) -> Iterator[None]:
    """Limits the memory of the process and of its queries, which continue on disk in `spill`."""
    from seqstore.store.runtime.memory_limit import MemoryLimit, default_limit
    from seqstore.store.sql.evaluate import connections

    limit = MemoryLimit(settings.memory_bytes_max or default_limit())
    spill = directory / "spill"
    shutil.rmtree(spill, ignore_errors=True)  # of a server that was killed
    spill.mkdir()
    connections.configure(limit.limit_bytes * settings.query_memory_percent // 100, str(spill))
    limit.start()
    try:
        yield
    finally:
        limit.stop()
        shutil.rmtree(spill, ignore_errors=True)


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


def _services(store: Store, settings: ServerSettings, ports: tuple[int, int], data: Path) -> list[Service]:
    from seqstore.cli.server.certificates import LOOK_SECONDS, Certificates
    from seqstore.cli.server.http import HttpService
    from seqstore.cli.server.mysql_service import MysqlService
    from seqstore.cli.server.scan_services import FlightService, ThriftService
    from seqstore.cli.server.service import BackgroundService
    from seqstore.cli.sessions import ServerSessions
    from seqstore.loaders.broker.jobs import LoadJobs
    from seqstore.loaders.broker.worker import resume
    from seqstore.loaders.jobs.periodic import PeriodicThread
    from seqstore.loaders.routine.jobs import RoutineJobs
    from seqstore.loaders.routine.runner import RoutineRunner
    from seqstore.store.sql.session.server_context import Ports

    def maintain() -> None:
        store.maintain(is_cancelled=maintenance.ending.is_set)

    # Loads of this process start their own compactions: this serves tables that other processes load.
    maintenance = PeriodicThread("maintenance", maintain, settings.maintenance_seconds)
    runner = RoutineRunner(store)
    audit = _audit_log(settings, data)
    for jobs in (LoadJobs(store.catalog), RoutineJobs(store.catalog)):
        jobs.seal_stored()
    services: list[Service] = [
        *([BackgroundService(audit.start, audit.stop)] if audit is not None else []),
        BackgroundService(lambda: resume(store)),  # before clients: a reader cancels abandoned jobs
        BackgroundService(runner.start, runner.stop),
    ]
    if settings.maintenance_seconds:
        services.append(BackgroundService(maintenance.start, maintenance.stop))
    scans: list[FlightService | ThriftService] = []

    def listening() -> Ports:
        by_name = {each.name: each.port for each in scans}
        return Ports(http=http.port, mysql=mysql.port, **by_name)

    sessions = ServerSessions(store, audit=audit, ports=listening)
    scans += [ThriftService(sessions, settings)] if settings.thrift_port >= 0 else []
    scans += [FlightService(sessions, settings)] if settings.flight_port >= 0 else []
    http = HttpService(sessions, settings, ports[0])
    mysql = MysqlService(sessions, settings, ports[1])
    certificates = Certificates(settings, [tls for tls in (http.tls, mysql.tls) if tls is not None])
    signal.signal(signal.SIGHUP, lambda *_: certificates.reload())
    watch = PeriodicThread("certificates", certificates.look, LOOK_SECONDS)
    # Statements end at once when the server stops, before services that wait for their work. Scan services
    # start first, because HTTP answers name their ports.
    return [*services, BackgroundService(watch.start, watch.stop), *scans, http, mysql]


def _audit_log(settings: ServerSettings, data: Path) -> AuditLog | None:
    from seqstore.cli.audit_log import AuditLimits, AuditLog

    if not settings.audit_log:
        return None
    limits = AuditLimits(
        settings.audit_log_bytes_max, settings.audit_log_hours * 3600, settings.audit_log_files_max
    )
    return AuditLog(Path(settings.audit_log_dir) if settings.audit_log_dir else data / "audit", limits)


def _need_packages() -> None:
    from seqstore.store.errors import InvalidInputError

    for package in ("aiohttp", "prometheus_client"):
        if importlib.util.find_spec(package) is None:
            name = package.replace("_", "-")
            raise InvalidInputError(
                f"serving needs the package {name!r}, which is not installed; pip install 'seqstore[server]'",
                kind="missing_extra",
            )


def _say_where(services: Sequence[Service]) -> None:
    for service in services:
        if service.address:
            output.say(f"listening on {service.address}")
    output.say("ready")
