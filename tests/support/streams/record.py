"""Records the change streams of real databases: `python -m tests.support.streams.record`.

Needs PostgreSQL, MariaDB's server and Java. Each database does the same work; Debezium's messages of it, as
lines of key, tab and value, and the rows that the tables end with go to `recorded/`. Tests load them without
servers.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.kafka.broker import KafkaBroker, running_broker
from tests.support.streams.debezium import Debezium, page_connector
from tests.support.streams.mariadb import Run, mariadb_properties, running_mariadb
from tests.support.streams.messages import ends_of, messages_of
from tests.support.streams.postgres import running_postgres

RECORDED: Final = Path(__file__).with_name("recorded")
_TABLE: Final = """
CREATE TABLE things (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(9, 2), day DATE, note TEXT);
CREATE TABLE pairs (a INT, b INT, n BIGINT, PRIMARY KEY (a, b));
INSERT INTO things (id, name, price) VALUES (1, 'old', 1.50), (2, 'old', 2.50), (3, 'old', NULL);
INSERT INTO pairs VALUES (1, 1, 0), (1, 2, 0);
"""
_WORK: Final = (
    "UPDATE things SET price = price + 1",
    "INSERT INTO things VALUES (4, 'tab\tand \"quote\"', 99.99, '2024-02-29', 'ünï😀')",
    "INSERT INTO things VALUES (5, NULL, NULL, NULL, NULL)",
    "BEGIN; DELETE FROM things WHERE id = 4; INSERT INTO things (id, name) VALUES (4, 'anew'); "
    "UPDATE things SET name = 'changed' WHERE id = 4; COMMIT",
    "UPDATE things SET id = 30 WHERE id = 3",
    "BEGIN; DELETE FROM things WHERE id = 1; ROLLBACK",
    "UPDATE pairs SET n = n + 1",
    "UPDATE pairs SET b = b + 10 WHERE a = 1",
    "INSERT INTO pairs VALUES (1, 1, 9), (1, 2, 9)",
    "DELETE FROM pairs WHERE b = 12",
    "ALTER TABLE things ADD COLUMN more BIGINT DEFAULT 7",
    "UPDATE things SET more = 8 WHERE id = 2",
    "DELETE FROM things WHERE id = 5",
    "INSERT INTO things (id, name) VALUES (5, 'back')",
)
_NEXT_LOG: Final = "FLUSH BINARY LOGS"  # MariaDB goes on in another file, at a smaller position


def main() -> None:
    RECORDED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, running_broker(Path(scratch) / "kafka") as broker:
        with running_postgres() as postgres:
            postgres.run("ALTER SYSTEM SET wal_writer_delay = '10ms'")
            given = page_connector(postgres.port, "postgresql")["config"]
            _record("postgresql", postgres.run, broker, Path(scratch), given)
        with running_mariadb() as (port, run):
            _record("mariadb", run, broker, Path(scratch), mariadb_properties(port, Path(scratch)))


def _record(name: str, run: Run, broker: KafkaBroker, scratch: Path, given: dict[str, str]) -> None:
    run(_TABLE)
    engine = Debezium(scratch / name, broker.address, 1, given)
    engine.start()
    _wait(lambda: "first" in _streamed(broker, name, run), engine)
    for number, statement in enumerate(_WORK):
        run(statement)
        if number in (3, 7) and name == "mariadb":
            run(_NEXT_LOG)
    run("UPDATE things SET name = 'last' WHERE id = 100")
    _wait(lambda: "last" in _values(broker, name), engine)
    engine.kill()
    lines = [
        f"{(key or b'').decode()}\t{value.decode()}\n"
        for key, value in messages_of(broker.address, name)
        if value
    ]
    (RECORDED / f"{name}.json").write_text("".join(lines))
    (RECORDED / f"{name}.rows.json").write_text(
        json.dumps(_rows(run, name), indent=1, ensure_ascii=False) + "\n"
    )


def _streamed(broker: KafkaBroker, name: str, run: Run) -> str:
    """Inserts a row until a change of it comes: then the snapshot is over."""
    if not ends_of(broker.address, name):
        return ""
    verb = (
        "ON CONFLICT (id) DO UPDATE SET name = excluded.name"
        if name == "postgresql"
        else ("ON DUPLICATE KEY UPDATE name = VALUES(name)")
    )
    run(f"INSERT INTO things (id, name) VALUES (100, 'first') {verb}")
    return _values(broker, name)


def _values(broker: KafkaBroker, name: str) -> str:
    found = [json.loads(value)["payload"] for _, value in messages_of(broker.address, name) if value]
    return " ".join(str((each.get("after") or {}).get("name")) for each in found if each.get("op") != "r")


def _wait(is_so: Callable[[], bool], engine: Debezium) -> None:
    deadline = time.monotonic() + 300
    while not is_so():
        engine.require_alive()
        assert time.monotonic() < deadline, engine.log
        time.sleep(0.5)


def _rows(run: Run, name: str) -> dict[str, Any]:
    """The rows as texts, by table."""
    found = {}
    for table, columns in (("things", "id, name, price, day, note, more"), ("pairs", "a, b, n")):
        text = ", ".join(
            f"CAST({each} AS {'CHAR' if name == 'mariadb' else 'TEXT'})" for each in columns.split(", ")
        )
        array = f"JSON_ARRAY({text})" if name == "mariadb" else f"json_build_array({text})"
        order = ", ".join(columns.split(", ")[: 1 if table == "things" else 2])
        told = run(f"SELECT {array} FROM {table} ORDER BY {order}")
        found[table] = [json.loads(line) for line in told.splitlines()]
    return found


if __name__ == "__main__":
    main()
