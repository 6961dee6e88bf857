"""A real PostgreSQL of the machine's own packages, with logical decoding, on the loopback."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.trials.free_ports import free_ports

_START_SECONDS: Final = 180
_SETTINGS: Final = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
wal_level = logical
fsync = off
max_replication_slots = 8
max_wal_senders = 8
timezone = 'UTC'
"""


class PostgresMissingError(RuntimeError):
    """The machine has no PostgreSQL, or no account that may run it."""


class Postgres:
    """A new database cluster; a superuser `postgres` comes in without a password.

    Raises:
        PostgresMissingError: see there.
    """

    def __init__(self) -> None:
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=_version)
        initdb = found[-1] if found else shutil.which("initdb")
        if initdb is None:
            raise PostgresMissingError("PostgreSQL was not found; apt-get install postgresql")
        self._programs = Path(initdb).parent
        self._user = _user()
        self._home = Path(tempfile.mkdtemp(prefix="seqstore-postgres-"))
        if self._user is not None:
            shutil.chown(self._home, self._user)
        self._data = self._home / "data"
        [self.port] = free_ports(1)
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        settings = self._data / "postgresql.conf"
        settings.write_text(settings.read_text() + _SETTINGS.format(port=self.port))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self._home / "log").open("ab")
        command = [str(self._programs / "postgres"), "-D", str(self._data)]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd=self._home)
        log.close()
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            assert self._process.poll() is None, (self._home / "log").read_text()[-4000:]
            assert time.monotonic() < deadline, (self._home / "log").read_text()[-4000:]
            time.sleep(0.1)

    def remove(self) -> None:
        """Ends it at once, and deletes everything."""
        if self._process is not None:
            self._process.send_signal(subprocess.signal.SIGQUIT)  # type: ignore[attr-defined]
            self._process.wait(60)
        shutil.rmtree(self._home, ignore_errors=True)

    def run(self, statements: str, database: str = "shop") -> str:
        """Runs statements; returns what they print: a line a row, a tab between its fields."""
        done = subprocess.run(
            [*self._client("psql", database), "-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1"],
            input=statements,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def bench(self, script: Path, *arguments: str, database: str = "shop") -> subprocess.Popen[str]:
        """Starts pgbench with a script."""
        command = [*self._client("pgbench", database), "-n", "-f", str(script), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _client(self, program: str, database: str) -> list[str]:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        return [
            str(self._programs / program),
            *where,
            *([database] if program == "pgbench" else ["-d", database]),
        ]

    def _is_ready(self) -> bool:
        command = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            user=self._user,
            cwd=self._home,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def _version(initdb: str) -> tuple[int, ...]:
    return tuple(int(part) for part in Path(initdb).parents[1].name.split(".") if part.isdigit())


def _user() -> str | None:
    """The account that runs it: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return None
    try:
        pwd.getpwnam("postgres")
    except KeyError as error:
        raise PostgresMissingError(
            "PostgreSQL does not run as root, and there is no user postgres"
        ) from error
    return "postgres"


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """One with a database `shop`, that runs within the block."""
    postgres = Postgres()
    try:
        postgres.start()
        postgres.run("CREATE DATABASE shop", "postgres")
        yield postgres
    finally:
        postgres.remove()
