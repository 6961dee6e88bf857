"""A real MariaDB of the machine's own packages, with row-based binlogs, on the loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.trials.free_ports import free_ports

Run = Callable[[str], str]


class MariaDbMissingError(RuntimeError):
    """The machine has no MariaDB."""


def mariadb_properties(port: int, scratch: Path, topics: str = "mariadb") -> dict[str, str]:
    """Of Debezium's connector for MariaDB.

    Args:
        scratch: where it keeps the history of schemas.
        topics: the first part of their names.
    """
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": "copier",
        "database.password": "secret",
        "database.server.id": "77",
        "database.ssl.mode": "disable",
        "topic.prefix": topics,
        "database.include.list": "shop",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(scratch / "history"),
    }


@contextmanager
def running_mariadb() -> Iterator[tuple[int, Run]]:
    """A new MariaDB with row-based binlogs and a database `shop`; its port, and what runs statements."""
    if shutil.which("mariadb-install-db") is None:
        raise MariaDbMissingError("MariaDB was not found; apt-get install mariadb-server")
    home = Path(tempfile.mkdtemp(prefix="seqstore-mariadb-"))
    user = "mysql" if os.getuid() == 0 else None
    if user is not None:
        shutil.chown(home, user)
    [port] = free_ports(1)
    data, door = home / "data", home / "door"
    common = ["--no-defaults", f"--datadir={data}"]
    install = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, user=user, cwd=home, check=True, capture_output=True, timeout=300)
    server = subprocess.Popen(
        ["/usr/sbin/mariadbd", *common, f"--socket={door}", f"--port={port}", "--bind-address=127.0.0.1",
         "--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-image=FULL", "--server-id=1",
         "--character-set-server=utf8mb4", f"--pid-file={home / 'pid'}"],
        user=user, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def run(statements: str, database: str = "shop") -> str:
        client = [
            "mariadb",
            "--no-defaults",
            f"--socket={door}",
            "-uroot",
            "-BNr",
            "--default-character-set=utf8mb4",
        ]
        done = subprocess.run(
            [*client, *([database] if database else [])],
            input=statements,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        deadline = time.monotonic() + 120
        while not door.exists():
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        run(
            "CREATE DATABASE shop; CREATE USER copier@'%' IDENTIFIED BY 'secret'; "
            "GRANT ALL ON *.* TO copier@'%'",
            "",
        )
        yield port, run
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(home, ignore_errors=True)
