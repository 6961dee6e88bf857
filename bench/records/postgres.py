"""PostgreSQL of the machine's own packages, on the loopback, durable as it is by default."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bench.inputs.ycsb import FIELDS
from bench.records.base import COLUMNS, Client, Record, RecordStore, SqlClient
from bench.trials.free_ports import free_ports

_START_SECONDS: Final = 180
_SETTINGS: Final = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
shared_buffers = '1GB'
max_wal_size = '4GB'
max_connections = 200
"""


def _programs() -> Path | None:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    program = found[-1] if found else shutil.which("initdb")
    return Path(program).parent if program else None


def _account() -> str | None:
    """PostgreSQL refuses root: then the account of its package runs it."""
    return "postgres" if os.getuid() == 0 else None


class _PostgresClient(SqlClient):
    mark = "%s"

    def __init__(self, port: int) -> None:
        psycopg: Any = import_module("psycopg")
        self._connection = psycopg.connect(
            host="127.0.0.1", port=port, user="postgres", dbname="postgres", autocommit=True
        )
        self._connection.prepare_threshold = 1

    def run(self, statement: str, parameters: Sequence[Any]) -> Sequence[Record]:
        cursor = self._connection.execute(statement, parameters)
        rows: Sequence[Record] = cursor.fetchall() if cursor.description else []
        return rows

    def close(self) -> None:
        self._connection.close()


class PostgresRecords(RecordStore):
    """A cluster of its own."""

    name = "postgresql"
    setup = "shared_buffers 1 GB, max_wal_size 4 GB, durable commits; psycopg, prepared statements"
    module = "psycopg"
    package = "psycopg[binary]"

    @classmethod
    def why_not(cls) -> str | None:
        if _programs() is None:
            return "not installed: apt-get install postgresql"
        if (account := _account()) is not None:
            try:
                pwd.getpwnam(account)
            except KeyError:
                return "does not run as root, and there is no user postgres"
        return super().why_not()

    @classmethod
    def version(cls) -> str:
        programs = _programs()
        assert programs is not None
        done = subprocess.run(
            [str(programs / "postgres"), "--version"], capture_output=True, text=True, check=True
        )
        return done.stdout.split()[2]

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        programs = _programs()
        assert programs is not None
        # Its own account has to reach it, which it may not in a directory of root's.
        self._home = Path(tempfile.mkdtemp(prefix="bench-postgres-"))
        if (account := _account()) is not None:
            shutil.chown(self._home, account)
        data = self._home / "data"
        [self._port] = free_ports(1)
        make = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        subprocess.run(make, user=account, cwd=self._home, check=True, capture_output=True)
        with (data / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS.format(port=self._port))
        with (self._home / "log").open("wb") as log:
            start = [str(programs / "postgres"), "-D", str(data)]
            self._process = subprocess.Popen(start, stdout=log, stderr=log, user=account, cwd=self._home)
        self._wait()
        columns = ", ".join(f"{name} VARCHAR" for name in FIELDS)
        client = _PostgresClient(self._port)
        client.run(f'CREATE TABLE usertable (k VARCHAR COLLATE "C" PRIMARY KEY, {columns})', ())
        client.close()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                _PostgresClient(self._port).close()
                return
            except Exception:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = (self._home / "log").read_text()[-500:]
                    self.close()
                    raise RuntimeError(f"PostgreSQL did not start: {log}") from None
                time.sleep(0.1)

    def load(self, records: pa.Table) -> None:
        psycopg: Any = import_module("psycopg")
        where = {"host": "127.0.0.1", "port": self._port, "user": "postgres", "dbname": "postgres"}
        with psycopg.connect(**where) as connection:
            with connection.cursor().copy(f"COPY usertable ({COLUMNS}) FROM STDIN") as copy:
                for row in zip(*(records.column(n).to_pylist() for n in ("k", *FIELDS)), strict=True):
                    copy.write_row(row)
            connection.commit()
            connection.autocommit = True
            connection.execute("VACUUM ANALYZE usertable")

    def client(self) -> Client:
        return _PostgresClient(self._port)

    def records(self) -> Iterator[Record]:
        client = _PostgresClient(self._port)
        yield from client.run(f"SELECT {COLUMNS} FROM usertable", ())
        client.close()

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)
