"""Doris's own tools, unmodified, against `seqstore serve`: its Spark and Flink connectors, and dbt-doris.

The packages and jars are fetched once into the cache, some 500 MB (tests.support.connectors.doris_tools).
The Kafka Connect sink is not on Maven Central; tests/cli/server/test_connector_api.py sends its requests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest

from tests.cli.scan.conftest import TYPES, VALUES
from tests.support.connectors import doris_tools
from tests.support.http_server import ServerProcess

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]
TABLES: Final = f"""CREATE DATABASE db; USE db;
CREATE TABLE every ({TYPES.replace("w DECIMAL(50,1), ", "")}) UNIQUE KEY(k) DISTRIBUTED BY HASH(k);
INSERT INTO every VALUES ({VALUES.replace(" 3.5,", "")}); INSERT INTO every (k) VALUES (2);
CREATE TABLE t (k INT NOT NULL, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k);
INSERT INTO t VALUES (5, 50), (6, NULL), (7, 70);
CREATE TABLE w (k BIGINT NOT NULL, v VARCHAR(20), w INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k);
CREATE TABLE once (k BIGINT NOT NULL, u VARCHAR(40) NOT NULL) UNIQUE KEY(k, u) DISTRIBUTED BY HASH(k)"""
OPENS: Final = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in (
    "java.io", "java.lang", "java.net", "java.nio", "java.text", "java.time", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch")]  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    config = tmp_path / "server.toml"
    config.write_text("[server]\nthrift_port = 0\nflight_port = 0\n")
    running = ServerProcess(tmp_path / "data", "--config", str(config))
    yield running
    running.stop()


def execute(server: ServerProcess, text: str) -> list[tuple[Any, ...]]:
    """Runs statements; gives the rows of the last."""
    with pymysql.connect(
        host="127.0.0.1", port=server.mysql_port, user="root", autocommit=True
    ) as connection:
        cursor = connection.cursor()
        for statement in text.split(";\n") if ";\n" in text else [text]:
            for each in statement.split("; "):
                cursor.execute(each)
        return list(cursor.fetchall())


def run(command: list[str], **more: Any) -> str:
    """Runs a tool; gives what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, **more)
    printed = str(done.stdout)
    assert done.returncode == 0, printed[-6000:] + str(done.stderr)[-6000:]
    return printed


def test_the_spark_connector_reads_and_writes(server: ServerProcess) -> None:
    doris_tools.java_tool("java")
    execute(server, TABLES)
    python = doris_tools.environment(doris_tools.SPARK) / "bin" / "python"
    jars = ",".join(map(str, (doris_tools.jar("spark-doris"), doris_tools.jar("mysql"))))
    ports = [str(port) for port in (server.client.port, server.mysql_port, server.port("grpc"))]
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK", "PYSPARK", "PYTHON"))
    }
    job = str(doris_tools.FILES / "spark_job.py")
    printed = run([str(python), job, jars, *ports], env={**clean, "PYSPARK_PYTHON": str(python)})
    found = json.loads(printed.splitlines()[-1])
    full, empty = found["thrift"]
    assert found["arrow"] == found["thrift"]
    assert set(empty) == {2, None}
    assert full[5] == "170141183460469231731687303715884105727"
    assert full[9:12] == ["1969-12-31", "1960-01-01 10:00:00", "2300-05-06 07:08:09.123456"]
    assert full[16:] == ['["5",null]', {"x": "2024-01-01 00:00:00.000000"}, '{"p":1,"q":"7"}']
    for mode in ("thrift", "arrow"):
        assert (found[f"{mode} where"], found[f"{mode} count"]) == ([[5, 50], [6, None]], 3)
    assert found["written"] == [
        [100, "v100", 7], *([number, f"v{number}", None] for number in range(101, 105))
    ]  # fmt: skip
    assert found["overwritten"] == [[100, "v100", None], [101, "v101", None]]
    assert found["catalog"] == [["db"], ["every", "once", "t", "w"], [[700, "x", 1]]]


def flink(server: ServerProcess, tmp_path: Path, mode: str, *statements: str) -> str:
    """Runs statements of Flink SQL in a JVM of their own; gives what they printed."""
    compiler, java = doris_tools.java_tool("javac"), doris_tools.java_tool("java")
    connector = doris_tools.jar("flink-doris")
    libraries = doris_tools.environment(doris_tools.FLINK)
    jars = [str(path) for path in libraries.glob("lib/python*/site-packages/pyflink/lib/*.jar")]
    path = os.pathsep.join([str(tmp_path), *jars, str(connector)])
    run([compiler, "-cp", path, "-d", str(tmp_path), str(doris_tools.FILES / "FlinkSql.java")])
    return run([java, "-Xmx1g", *OPENS, "-cp", path, "FlinkSql", mode, *statements])


def table(server: ServerProcess, columns: str, name: str, **options: str) -> str:
    """A table of Flink SQL; `__` stands for a dot, `_` for a hyphen in the names of options."""
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    fixed = {"connector": "doris", "fenodes": f"127.0.0.1:{server.client.port}", "username": "root",
             "password": "", "table.identifier": f"db.{name}"}  # fmt: skip
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in {**fixed, **given}.items())
    return f"({columns}) WITH ({listed})"


def test_the_flink_connector_reads_and_writes(server: ServerProcess, tmp_path: Path) -> None:
    execute(server, TABLES)
    columns = "k INT, l STRING, d DECIMAL(9,2), da DATE, dt TIMESTAMP(0), dt6 TIMESTAMP(6), v STRING"
    flight = {"source__use_flight_sql": "true", "source__flight_sql_port": str(server.port("grpc"))}
    pair, label = "k BIGINT, v STRING", {"sink__label_prefix": "flink"}
    direct = {"sink__enable_2pc": "false", "sink__label_prefix": "direct"}
    printed = flink(
        server, tmp_path, "batch",
        f"CREATE TABLE a {table(server, columns, 'every')}",
        "SELECT dt6 FROM a WHERE k = 1", "SELECT * FROM a",
        f"CREATE TABLE b {table(server, columns, 'every', **flight)}", "SELECT dt FROM b WHERE k = 1",
        f"CREATE TABLE c {table(server, pair, 'w', **label)}", "INSERT INTO c VALUES (1, 'one'), (2, 'two')",
        f"CREATE TABLE d {table(server, pair, 'w', sink__enable__batch_mode='true')}",
        "INSERT INTO d VALUES (3, 'three')",
        f"CREATE TABLE e {table(server, pair, 'w', auto_redirect='false', **direct)}",
        "INSERT INTO e VALUES (4, 'four')",
    )  # fmt: skip
    assert "2300-05-06 07:08:09.123456" in printed
    assert "1960-01-01 10:00:00" in printed
    assert "2 rows in set" in printed
    assert execute(server, "SELECT k, v FROM db.w ORDER BY k") == [
        (1, "one"), (2, "two"), (3, "three"), (4, "four")
    ]  # fmt: skip


def test_a_flink_job_that_fails_between_checkpoints_writes_each_row_once(
    server: ServerProcess, tmp_path: Path
) -> None:
    """Rows that are sent again have another UUID, so rows of an aborted transaction would show."""
    execute(server, TABLES)
    numbers = ("'connector' = 'datagen', 'rows-per-second' = '60', 'fields.k.kind' = 'sequence', "
               "'fields.k.start' = '1', 'fields.k.end' = '300'")  # fmt: skip
    sink = table(
        server, "k BIGINT, u STRING, PRIMARY KEY (k, u) NOT ENFORCED", "once", sink__label_prefix="eo"
    )
    printed = flink(
        server, tmp_path, "stream",
        f"CREATE TABLE numbers (k BIGINT) WITH ({numbers})", f"CREATE TABLE once {sink}",
        "INSERT INTO once SELECT fail_once(k), UUID() FROM numbers",
    )  # fmt: skip
    assert "failed once" in printed
    assert execute(server, "SELECT count(*), count(DISTINCT k), min(k), max(k) FROM db.once") == [
        (300, 300, 1, 300)
    ]  # fmt: skip


class Dbt:
    """The project in tests/support/connectors/dbt, copied, with a server as its target."""

    def __init__(self, server: ServerProcess, directory: Path) -> None:
        self.program = doris_tools.environment(doris_tools.DBT) / "bin" / "dbt"
        self.directory = directory
        shutil.copytree(doris_tools.FILES / "dbt", directory)
        target = {"type": "doris", "host": "127.0.0.1", "port": server.mysql_port, "username": "root",
                  "password": "", "schema": "shop", "threads": 2}  # fmt: skip
        profile = {"shop": {"target": "dev", "outputs": {"dev": target}}}
        (directory / "profiles.yml").write_text(json.dumps(profile))  # JSON is YAML

    def run(self, *command: str) -> str:
        """Runs a command, which must succeed; gives what it printed."""
        environment = {**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "False"}
        options = ["--no-use-colors", *command, "--profiles-dir", str(self.directory)]
        return run([str(self.program), *options], cwd=self.directory, env=environment)


def test_dbt_builds_and_builds_again(server: ServerProcess, tmp_path: Path) -> None:
    """debug, seed, table, view, incremental, snapshot, tests and docs; then with changed rows, then anew."""
    dbt = Dbt(server, tmp_path / "dbt")
    execute(server, "SET GLOBAL autocommit_off_begins_transaction = false")  # dbt-doris never commits
    assert "All checks passed!" in dbt.run("debug")
    for _ in range(2):  # the second time replaces what the first has made
        dbt.run("seed")
        dbt.run("run")
    dbt.run("snapshot")
    dbt.run("test")
    totals = "SELECT customer, total, n FROM shop.totals ORDER BY customer"
    assert execute(server, totals) == [("ann", 40.75, 2), ("bob", 20.0, 1)]
    assert execute(server, "SELECT id FROM shop.paid ORDER BY id") == [(1,), (3,)]
    assert execute(server, "SELECT count(*) FROM shop.appended") == [(6,)]
    assert execute(server, "SELECT count(*), count(DISTINCT id) FROM shop.latest") == [(3, 3)]
    seed = dbt.directory / "seeds" / "orders.csv"
    seed.write_text(
        seed.read_text().replace("2,bob,20.0,2024-01-02 11:00:00", "2,bob,21.0,2024-01-05 00:00:00")
        + "4,cid,5.0,2024-01-06 00:00:00,true\n"
    )
    for command in ("seed", "run", "snapshot", "test"):
        dbt.run(command)
    assert execute(server, totals) == [("ann", 40.75, 2), ("bob", 21.0, 1), ("cid", 5.0, 1)]
    assert execute(server, "SELECT id, amount FROM shop.latest ORDER BY id") == [
        (1, 10.5), (2, 21.0), (3, 30.25), (4, 5.0)
    ]  # fmt: skip
    for name in ("orders_history", "orders_history_ts"):
        history = f"SELECT id, amount, dbt_valid_to IS NULL FROM shop.{name} ORDER BY id, amount"
        assert execute(server, history) == [
            (1, 10.5, 1), (2, 20.0, 0), (2, 21.0, 1), (3, 30.25, 1), (4, 5.0, 1)
        ], name  # fmt: skip
    dbt.run("run", "--full-refresh")
    assert execute(server, "SELECT count(*) FROM shop.appended") == [(4,)]
    assert "Catalog written" in dbt.run("docs", "generate")
