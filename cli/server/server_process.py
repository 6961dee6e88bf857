"""One process of a server: its store, its memory and its services, until a signal ends it.

A server has one such process, or several workers with a hub (`cli.workers`). The worker of place 0 runs what
a server has once: jobs, maintenance of all tables, and the services of connectors.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seqstore.cli.clients.audit_log import AuditLimits, AuditLog
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.clients.shared import Shared
from seqstore.cli.server.certificates import LOOK_SECONDS, Certificates
from seqstore.cli.server.http import HttpService
from seqstore.cli.server.mysql_service import MysqlService
from seqstore.cli.server.scan_services import FlightService, ThriftService
from seqstore.cli.server.service import (
    STOP_SIGNALS,
    BackgroundService,
    Service,
    run_services,
    warn_of_empty_password,
)
from seqstore.cli.server.settings import ServerSettings
from seqstore.cli.workers.hub_client import HubClient
from seqstore.cli.workers.worker_shared import shared_by
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.worker import resume
from seqstore.loaders.jobs.periodic import PeriodicThread
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.store import Settings, Store
from seqstore.store.runtime.call_room import roomy
from seqstore.store.runtime.memory_limit import MemoryLimit, default_limit
from seqstore.store.sql.evaluate import connections
from seqstore.store.sql.session.server_context import Ports

if TYPE_CHECKING:
    from seqstore.cli.workers.hub import Seat

_SPILL = "spill"


@dataclass(frozen=True)
class ServerPlace:
    """What a process serves.

    Attributes:
        data: the data directory.
        settings: of the whole server.
        ports: of HTTP and MySQL, where this process opens them.
        seat: of a worker; None for the only process.
        follow: where a leader ships its catalog to; None for a store of its own.
    """

    data: Path
    settings: ServerSettings
    ports: tuple[int, int]
    seat: Seat | None = None
    follow: str | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process runs what a server has once."""
        return self.seat is None or self.seat.place == 0

    @property
    def own_settings(self) -> ServerSettings:
        """The settings with this process's share of what the processes divide."""
        if self.seat is None:
            return self.settings
        limit = self.settings.memory_bytes_max or default_limit()
        share = self.settings.share_of(self.seat.workers, limit)
        ports = self.seat.ports  # another worker of place 0 has the ports of the one before
        return replace(
            share,
            thrift_port=ports.get("thrift", share.thrift_port),
            flight_port=ports.get("flight", share.flight_port),
        )


@roomy
def run_server(place: ServerPlace, engine: Settings, started: Callable[[Sequence[Service]], None]) -> None:
    """Serves until a signal.

    Args:
        engine: settings of the store.
        started: called when clients can connect; the hub calls its own when there are workers.

    Raises:
        StoreError: a service cannot start.
    """
    settings, seat = place.own_settings, place.seat
    hub = HubClient(seat.channel) if seat is not None else None
    shared = Shared()
    if hub is not None and seat is not None:
        shared = shared_by(hub, seat.place, seat.workers, seat.told)
        hub.start()
    with (
        Store.open(place.data, settings=engine, follow=place.follow) as store,
        _limited_memory(place, settings),
    ):
        place.data.chmod(0o700)  # it may have been made by another program
        connections.connect().close()  # while files can be opened: DuckDB ends a process that has none left
        if place.is_first:
            warn_of_empty_password(store)
        services = _Services(store, settings, place, shared)

        def ready(running: Sequence[Service]) -> None:
            if hub is None:
                started(running)
            else:
                addresses = [each.address for each in running if each.address]
                hub.say("ready", addresses, services.scan_ports())

        running = run_services(
            services.all(),
            ready,
            stop_seconds=settings.stop_seconds,
            stop_waiting=store.catalog.stop_waiting,
            abandoning=STOP_SIGNALS if hub is None else (signal.SIGINT,),
        )
        asyncio.run(running)


@contextmanager
def _limited_memory(place: ServerPlace, settings: ServerSettings) -> Iterator[None]:
    """Limits the memory of the process and of its queries, which continue on disk in `spill`."""
    limit = MemoryLimit(settings.memory_bytes_max or default_limit())
    spill = place.data / _SPILL
    if place.seat is not None:
        if place.seat.is_first_start:
            shutil.rmtree(spill, ignore_errors=True)
        spill /= f"worker-{place.seat.place}"
    shutil.rmtree(spill, ignore_errors=True)  # of a process that was killed
    spill.mkdir(parents=True)
    query_bytes = limit.limit_bytes * settings.query_memory_percent // 100
    connections.configure(query_bytes, str(spill), settings.copies_memory_percent)
    limit.start()
    try:
        yield
    finally:
        limit.stop()
        shutil.rmtree(spill, ignore_errors=True)


class _Services:
    """The services of one process."""

    def __init__(self, store: Store, settings: ServerSettings, place: ServerPlace, shared: Shared) -> None:
        self._store = store
        self._settings = settings
        self._place = place
        self._audit = _audit_log(settings, place)
        self._sessions = ServerSessions(store, audit=self._audit, ports=self._ports, shared=shared)
        entrances = place.seat.entrances if place.seat is not None else {}
        self._http = HttpService(self._sessions, settings, place.ports[0], entrances.get("http"))
        self._mysql = MysqlService(self._sessions, settings, place.ports[1], entrances.get("mysql"))
        self._scans = self._connector_services() if place.is_first else []

    def all(self) -> list[Service]:
        """Returns the services in the order of their start.

        Statements end at once when the server stops, before services that wait for their work. Scan services
        start first, because HTTP answers name their ports.
        """
        audit, http, mysql = self._audit, self._http, self._mysql
        contexts = [each.tls for each in (http, mysql, *self._scans)]
        certificates = Certificates(self._settings, [tls for tls in contexts if tls is not None])
        signal.signal(signal.SIGHUP, lambda *_: certificates.reload())
        watch = PeriodicThread("certificates", certificates.look, LOOK_SECONDS)
        return [
            *([BackgroundService(audit.start, audit.stop)] if audit is not None else []),
            *(self._once() if self._place.is_first and self._store.follower is None else []),
            BackgroundService(watch.start, watch.stop),
            *self._scans,
            http,
            mysql,
        ]

    def scan_ports(self) -> dict[str, int]:
        """Returns the ports of the services that run in one process only, by name."""
        return {each.name: each.port for each in self._scans}

    def _once(self) -> list[Service]:
        store = self._store

        def maintain() -> None:
            store.maintain(is_cancelled=maintenance.ending.is_set)

        # Loads of a process start their own compactions: this serves tables that other processes load.
        maintenance = PeriodicThread("maintenance", maintain, self._settings.maintenance_seconds)
        runner = RoutineRunner(store)
        for jobs in (LoadJobs(store.catalog), RoutineJobs(store.catalog)):
            jobs.seal_stored()
        services: list[Service] = [
            BackgroundService(lambda: resume(store)),  # before clients: a reader cancels abandoned jobs
            BackgroundService(runner.start, runner.stop),
        ]
        if self._settings.maintenance_seconds:
            services.append(BackgroundService(maintenance.start, maintenance.stop))
        return services

    def _connector_services(self) -> list[FlightService | ThriftService]:
        settings, sessions = self._settings, self._sessions
        found: list[FlightService | ThriftService] = []
        found += [ThriftService(sessions, settings)] if settings.thrift_port >= 0 else []
        found += [FlightService(sessions, settings)] if settings.flight_port >= 0 else []
        return found

    def _ports(self) -> Ports:
        elsewhere = self._place.seat.ports if self._place.seat is not None else {}
        scans = self.scan_ports() if self._place.is_first else elsewhere
        return Ports(http=self._http.port, mysql=self._mysql.port, **scans)


def _audit_log(settings: ServerSettings, place: ServerPlace) -> AuditLog | None:
    if not settings.audit_log:
        return None
    limits = AuditLimits(
        settings.audit_log_bytes_max, settings.audit_log_hours * 3600, settings.audit_log_files_max
    )
    folder = Path(settings.audit_log_dir) if settings.audit_log_dir else place.data / "audit"
    return AuditLog(folder, limits, is_shared=place.seat is not None)
