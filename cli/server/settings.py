"""Settings of the server, units in the names; `[server]` of `conf/default.toml` has the reasons."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, fields, replace
from pathlib import Path

from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.logs.json_lines import FORMATS
from seqstore.store.errors import InvalidInputError
from seqstore.store.settings import INTEGER_MAX, read_section
from seqstore.store.sql.evaluate.connections import COPIES_PERCENT

_MIB, _GIB = 2**20, 2**30
_OTHER_FILES = 256  # of the store, of loads and of DuckDB
_LEAST = {
    "maintenance_seconds": 0,
    "memory_bytes_max": 0,
    "copies_memory_percent": 0,
    "workers": 0,
    "thrift_port": -1,
    "flight_port": -1,
}


@dataclass(frozen=True)
class ServerSettings:
    """One immutable set of settings; `ServerSettings.load(path)` reads the `[server]` table of a TOML file.

    Attributes:
        host: address to listen on.
        advertised_address: `host:port` that stream loads are redirected to with 307; empty for the address of
            the request.
        http_hosts: further names in Host that a server on a loopback address answers.
        tls_certificate_file, tls_key_file: PEM files; both or none.
        memory_bytes_max: of the process; statements that do not fit fail. 0: four fifths of the machine's.
        query_memory_percent: of it that queries may use before they write to disk.
        copies_memory_percent: of the memory of queries that copies of columns may use; 0: none are made.
        concurrent_loads_max: loads that run at a time; the others wait.
        user_loads_max: loads of one user that run at a time; the others wait.
        body_bytes_per_second_min: the server ends an upload that is slower, after `body_idle_seconds`.
        body_idle_seconds: the server ends an upload whose client sends nothing for this long.
        upload_bytes_max: of one body, compressed or not (LR5).
        header_bytes_max: of one header; lists of columns can be long.
        stop_seconds: time for running loads after a stop signal.
        http_connections_max: HTTP connections at a time; the oldest idle one makes room for a new one.
        mysql_connections_max: MySQL clients at a time; more are refused.
        mysql_user_connections_max: of one user without ADMIN.
        mysql_login_seconds: the server disconnects a client that has not logged in by then.
        mysql_idle_seconds: the server disconnects a MySQL client that is silent for longer.
        mysql_packet_bytes_max: of one statement, or of its long parameters; max_allowed_packet.
        mysql_tls_required: MySQL clients must encrypt; needs a certificate.
        log_format: of lines on standard error, `text` or `json`.
        audit_log: logins, statements and loads are recorded.
        audit_log_dir: the folder of the audit log; empty for `audit` in the data directory.
        audit_log_bytes_max: of one file.
        audit_log_hours: a file holds events of so many hours of UTC.
        audit_log_files_max: closed files that are kept.
        thrift_port: of the scans of Doris's connectors, Doris's `be_port`; -1 without them, 0 a free port.
        flight_port: of Arrow Flight SQL, Doris's `arrow_flight_sql_port`; -1 without it, 0 a free port.
        flight_lease_seconds: a client of `Store.connect` that is silent for longer has ended.
        flight_staging_seconds: the load of a Spark job that was not connected for longer has ended.
        disk_free_bytes_min: with less space for the data directory `/health/ready` says no.
        workers: processes that serve clients; 0 for one per core.
        maintenance_seconds: how often every table is checked for compaction and old versions; 0 never.
    """

    host: str = "127.0.0.1"
    advertised_address: str = ""
    http_hosts: tuple[str, ...] = ()
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    memory_bytes_max: int = 0
    query_memory_percent: int = 50
    copies_memory_percent: int = COPIES_PERCENT
    concurrent_loads_max: int = 64
    user_loads_max: int = 48
    body_bytes_per_second_min: int = 1024
    body_idle_seconds: int = 60
    upload_bytes_max: int = 10 * _GIB
    header_bytes_max: int = _MIB
    stop_seconds: int = 30
    http_connections_max: int = 1024
    mysql_connections_max: int = 256
    mysql_user_connections_max: int = 200
    mysql_login_seconds: int = 10
    mysql_idle_seconds: int = 28_800
    mysql_packet_bytes_max: int = 64 * _MIB
    mysql_tls_required: bool = False
    log_format: str = "text"
    audit_log: bool = True
    audit_log_dir: str = ""
    audit_log_bytes_max: int = 64 * _MIB
    audit_log_hours: int = 24
    audit_log_files_max: int = 30
    thrift_port: int = -1
    flight_port: int = -1
    flight_lease_seconds: int = 60
    flight_staging_seconds: int = 3600
    disk_free_bytes_min: int = _GIB
    workers: int = 1
    maintenance_seconds: int = 30

    def __post_init__(self) -> None:
        if self.log_format not in FORMATS:
            raise InvalidInputError(
                f"log_format expects {' or '.join(FORMATS)}, found {self.log_format!r}", kind="bad_setting"
            )

    @classmethod
    def load(cls, path: Path) -> ServerSettings:
        """Reads a TOML file; settings it does not name keep their default.

        Raises:
            InvalidInputError: unknown name or a value of another type.
        """
        given = read_section(path, "server")
        known: dict[str, type] = {field.name: type(field.default) for field in fields(cls)}
        for name, value in list(given.items()):
            if isinstance(value, list) and all(isinstance(each, str) for each in value):
                value = given[name] = tuple(value)
            if name not in known:
                raise InvalidInputError(f"{path}: unknown setting {name!r} in [server]", kind="bad_setting")
            least = _LEAST.get(name, 1)
            is_far = isinstance(value, int) and not least <= value <= INTEGER_MAX
            if type(value) is not known[name] or (is_far and not isinstance(value, bool)):
                integer = ("a positive integer" if least == 1 else f"an integer from {least}") + " of 64 bits"
                wanted = {str: "a text", bool: "true or false", tuple: "a list of texts"}.get(
                    known[name], integer
                )
                raise InvalidInputError(
                    f"{path}: setting {name!r} expects {wanted}, found {value!r}", kind="bad_setting"
                )
        return cls(**given)

    def fitting(self, descriptors: int) -> ServerSettings:
        """Returns the settings with fewer connections if the process may not open so many files."""
        ports = 2 if self.thrift_port >= 0 else 1  # Thrift has as many connections as MySQL
        ports += 3 if self.flight_port >= 0 else 0  # as many, and two more sockets for each
        wanted = self.http_connections_max + self.mysql_connections_max * ports
        share = min(max(descriptors - _OTHER_FILES, descriptors // 4) / wanted, 1.0)
        return replace(
            self,
            http_connections_max=max(int(self.http_connections_max * share), 1),
            mysql_connections_max=max(int(self.mysql_connections_max * share), 1),
        )

    def connection_limits(self) -> ConnectionLimits:
        """Returns the limits of connections that the settings `mysql_...` set."""
        return ConnectionLimits(
            connections_max=self.mysql_connections_max,
            user_connections_max=self.mysql_user_connections_max,
            login_seconds_max=self.mysql_login_seconds,
            idle_seconds_max=self.mysql_idle_seconds,
            packet_bytes_max=self.mysql_packet_bytes_max,
            body_idle_seconds=self.body_idle_seconds,
            body_bytes_per_second_min=self.body_bytes_per_second_min,
        )

    def share_of(self, workers: int, limit_bytes: int) -> ServerSettings:
        """Returns the settings of one of several processes that are one server.

        Each has an equal part of the memory, the HTTP connections and the threads of loads. Limits of users
        and MySQL connections stay, because the processes count them together.

        Args:
            limit_bytes: memory of all of them.
        """
        return replace(
            self,
            memory_bytes_max=limit_bytes // workers,
            http_connections_max=-(-self.http_connections_max // workers),
            concurrent_loads_max=-(-self.concurrent_loads_max // workers),
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Returns the certificate, None when none is set.

        Raises:
            InvalidInputError: one of the files is missing, or they do not belong together.
        """
        if not self.tls_certificate_file and not self.tls_key_file:
            if self.mysql_tls_required:
                raise InvalidInputError(
                    "mysql_tls_required needs tls_certificate_file and tls_key_file, found none",
                    kind="bad_setting",
                )
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.tls_certificate_file, self.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInputError(
                f"tls_certificate_file {self.tls_certificate_file!r} and tls_key_file "
                f"{self.tls_key_file!r} cannot be used: {error}",
                kind="bad_setting",
            ) from error
        return context
