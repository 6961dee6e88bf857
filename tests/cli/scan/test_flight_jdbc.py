"""Arrow Flight SQL by the JDBC driver of Arrow, in a JVM."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.kafka.jars import JarsUnreachableError, java, listed_jars
from seqstore import Store
from seqstore.cli.scan.flight_server import FlightSqlServer
from tests.support.clients.jdbc import CLIENTS
from tests.support.rows import schema_of

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which(java()) is None, reason="needs Java")]
OPENS = "--add-opens=java.base/java.nio=org.apache.arrow.memory.core,ALL-UNNAMED"


def driver() -> Path:
    try:
        [jar] = listed_jars(CLIENTS / "flight_jdbc_jars.txt", "flight-jdbc")
    except JarsUnreachableError as error:
        pytest.skip(str(error)[:500])
    return jar


def test_a_program_connects_reads_and_changes(server: FlightSqlServer, store: Store) -> None:
    columns = ("k INT NOT NULL", "s STRING", "d DECIMAL(10, 2)", "f DOUBLE", "day DATE", "b BOOLEAN")
    store.create_table("db.typed", schema_of(*columns))
    store.accounts.create("someone", "a-word")
    store.accounts.grant("someone", ["SELECT", "LOAD"])
    source = CLIENTS / "FlightSqlJdbc.java"
    command = [java(), OPENS, "-cp", str(driver()), str(source), str(server.port), "someone", "a-word"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert steps == {
        "wrong password": "refused",
        "product": "seqstore",
        "schemas": "db,internal;",
        "tables": "every;t;typed;",
        "columns": "k INTEGER;v INTEGER;",
        "keys": "k;",
        "select": "0,0;1,0;2,0;",
        "update": "2",
        "error": "names it",
        "parameters": "1,5;2,0;|7,0;",
        "insert": "1",
        "null": "1",
        "batch": "3",
    }
    rows = store.table("db.typed").scan().read_all().to_pylist()
    assert [str(value) for value in rows[0].values()] == ["1", "it's", "12.50", "0.5", "2024-02-29", "True"]
    assert set(rows[1].values()) == {2, None}
    assert store.table("db.t").get({"k": [9000, 9001, 9002]}).num_rows == 3
