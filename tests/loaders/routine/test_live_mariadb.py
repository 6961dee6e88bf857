"""A live copy of a real MariaDB: Debezium, Kafka and a routine load are killed while a schema changes."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bench.kafka.broker import KafkaBroker
from bench.kafka.jars import JarsUnreachableError
from tests.seeds import new_seed
from tests.support.kafka import Server, wait_until
from tests.support.streams.debezium import Debezium, debezium_jars
from tests.support.streams.mariadb import MariaDbMissingError, Run, mariadb_properties, running_mariadb
from tests.support.streams.messages import ends_of

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]
TABLES: Final = """
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, state VARCHAR(20), price DECIMAL(9, 2), at DATETIME(6), day DATE, ok BOOLEAN,
    size ENUM('s', 'm', 'l'), big BIGINT UNSIGNED, ratio DOUBLE, body TEXT, octets VARBINARY(20)
) CHARACTER SET utf8mb4;
CREATE TABLE pairs (a INT, b INT, n INT, PRIMARY KEY (a, b));
INSERT INTO orders (id, state, price) SELECT seq, 'old', seq / 3 FROM seq_1_to_50;
INSERT INTO pairs SELECT seq, 1, 0 FROM seq_1_to_50;
"""
COLUMNS: Final = {
    "orders": {
        "id": "id",
        "state": "state",
        "price": "CAST(price AS CHAR)",
        "at": "DATE_FORMAT(at, '%Y-%m-%d %H:%i:%s.%f')",
        "day": "CAST(day AS CHAR)",
        "ok": "ok",
        "size": "size",
        "big": "CAST(big AS CHAR)",
        "body": "body",
    },
    "pairs": {"a": "a", "b": "b", "n": "n"},
}


@pytest.fixture(scope="module")
def mariadb() -> Iterator[tuple[int, Run]]:
    try:
        debezium_jars()
        with running_mariadb() as running:
            yield running
    except (JarsUnreachableError, MariaDbMissingError) as error:
        pytest.skip(str(error))


def statement(chance: random.Random, number: int, more: str) -> str:
    """One transaction."""
    key = chance.randrange(1, 70)
    row = f"{key}, 'new', {number} / 7, NOW(6), CURDATE(), {number % 2}, 'm', {2**63 + number}, 0.1, 'ü'"
    columns = "(id, state, price, at, day, ok, size, big, ratio, body, octets)"
    return chance.choice(
        [
            f"REPLACE INTO orders {columns} VALUES ({row}, X'00FF')",
            f"UPDATE orders SET state = 's{number}', price = NULL {more} WHERE id = {key}",
            f"DELETE FROM orders WHERE id = {key}",
            f"BEGIN; DELETE FROM orders WHERE id = {key}; "
            f"INSERT INTO orders (id, state) VALUES ({key}, 'anew'); "
            f"UPDATE orders SET state = 'changed' WHERE id = {key}; COMMIT",
            f"BEGIN; DELETE FROM orders; ROLLBACK; UPDATE orders SET state = 'rolled' WHERE id = {key}",
            f"UPDATE pairs SET b = b + 1, n = {number} WHERE a = {key} ORDER BY b DESC",  # other keys
            f"INSERT IGNORE INTO pairs VALUES ({key}, 1, {number})",
            "FLUSH BINARY LOGS",  # positions begin anew in the next file
        ]
    )


class Work(threading.Thread):
    """Writes until `end`."""

    def __init__(self, run: Run, seed: int) -> None:
        super().__init__()
        self._write, self._chance = run, random.Random(seed)
        self._ended = threading.Event()
        self.more = ""
        self.count = 0

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self.count += 1
            self._write(statement(self._chance, self.count, self.more))

    def end(self) -> None:
        self._ended.set()
        self.join()


class Copy:
    """MariaDB, Debezium, Kafka and a server with one job."""

    def __init__(self, mariadb: tuple[int, Run], broker: KafkaBroker, directory: Path, topics: str) -> None:
        port, self.write = mariadb
        self.broker, self.topics = broker, topics
        given = mariadb_properties(port, directory, topics)
        given["bigint.unsigned.handling.mode"] = "precise"  # without it they are negative from 2^63 on
        self.debezium = Debezium(directory / "debezium", broker.address, 2, given)
        self.server = Server(directory / "data")

    def begin(self) -> None:
        self.write(TABLES)
        self.debezium.start()
        self.server.ask("CREATE DATABASE shop")
        self.server.ask(
            'CREATE ROUTINE LOAD shop.copy PROPERTIES("format" = "debezium_json", "auto_create" = "true", '
            '"schema_evolution" = "widen", "timezone" = "UTC", "max_batch_interval" = "1", '
            '"desired_concurrent_number" = "3") FROM KAFKA('
            f'"kafka_broker_list" = "{self.broker.address}", '
            f'"kafka_topic_pattern" = "{self.topics}[.]shop[.].*")'
        )
        wait_until(self._streams, "the first streamed row", lambda: self.debezium.log)

    def _streams(self) -> bool:
        self.debezium.require_alive()
        self.write("REPLACE INTO orders (id, state) VALUES (-1, 'first')")
        return bool(self.stored("orders", "id = -1"))

    def stored(self, table: str, where: str = "1 = 1", names: str = "1") -> list[dict[str, object]]:
        if table not in [next(iter(row.values())) for row in self.server.ask("SHOW TABLES FROM shop")]:
            return []
        return self.server.ask(f"SELECT {names} FROM shop.{table} WHERE {where}")

    def kill(self, what: str) -> None:
        """kill -9, and another start."""
        victim = {"kafka": self.broker, "connector": self.debezium, "server": self.server}[what]
        victim.kill()  # type: ignore[attr-defined]
        victim.start()  # type: ignore[attr-defined]

    def settle(self) -> None:
        """Waits until the last change is in Kafka, and everything in Kafka in the store."""
        mark = str(random.randrange(10**9))
        self.write(f"UPDATE orders SET state = '{mark}' WHERE id = -1; UPDATE pairs SET n = n + 1")

        def is_there() -> bool:
            self.debezium.require_alive()
            return bool(self.stored("orders", f"id = -1 AND state = '{mark}'"))

        def told() -> str:
            return f"{self.server.show('shop.copy')}\n{self.debezium.log}"

        wait_until(is_there, "the last change", told)
        wanted = f"{self.topics}.shop."
        wait_until(
            lambda: self.server.progress("shop.copy") == ends_of(self.broker.address, wanted),
            "every message",
            told,
        )

    def compare(self, more: tuple[str, ...]) -> int:
        """Checks that every table is in the store, row for row; returns the rows."""
        count = 0
        for table, forms in COLUMNS.items():
            forms = {**forms, **({name: name for name in more} if table == "orders" else {})}
            text = ", ".join(f"'{name}', {form}" for name, form in forms.items())
            told = self.write(f"SELECT JSON_OBJECT({text}) FROM {table}").splitlines()
            wanted = sorted(_row(json.loads(line), forms) for line in told)
            names = ", ".join(
                "CAST(CAST(at AS DATETIME(6)) AS VARCHAR(30)) at" if name == "at" else name for name in forms
            )
            found = sorted(_row(row, forms) for row in self.stored(table, names=names))
            assert found == wanted, f"{table}: {set(found) ^ set(wanted)}"
            count += len(wanted)
        return count


def _row(row: dict[str, object], names: dict[str, str]) -> tuple[str, ...]:
    return tuple("NULL" if row[name] is None else str(row[name]) for name in names)


def go(
    mariadb: tuple[int, Run], broker: KafkaBroker, directory: Path, *, rounds: int, seconds: float
) -> None:
    seed = new_seed(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    mariadb[1]("DROP TABLE IF EXISTS orders; DROP TABLE IF EXISTS pairs")
    copy = Copy(mariadb, broker, directory, f"maria{seed}")
    more: tuple[str, ...] = ()
    try:
        copy.begin()
        for number in range(rounds):
            work = Work(copy.write, seed + number)
            work.start()
            stops = ["kafka", "connector", "server"]
            chance.shuffle(stops)
            for place, what in enumerate(stops):
                time.sleep(chance.random() * seconds / 3)  # no event: a kill comes at any moment
                if place == 1:
                    name = f"extra{number}"
                    copy.write(f"ALTER TABLE orders ADD COLUMN {name} INT DEFAULT 7")
                    work.more, more = f", {name} = 8", (*more, name)
                copy.kill(what)
            work.end()
            copy.settle()
            rows = copy.compare(more)
            print(f"round {number}: {rows} rows are equal after {work.count} transactions")
    finally:
        copy.debezium.kill()
        copy.server.kill()


@pytest.mark.long
def test_every_table_equals_mariadb_after_kills_and_a_new_column(
    mariadb: tuple[int, Run], broker: KafkaBroker, tmp_path: Path
) -> None:
    """R11, R12, R39, CS4, EV9, EV10"""
    go(mariadb, broker, tmp_path, rounds=1, seconds=10)


@pytest.mark.torture
def test_every_table_equals_mariadb_in_ten_rounds(
    mariadb: tuple[int, Run], broker: KafkaBroker, tmp_path: Path
) -> None:
    """R11, R12, R39, CS4, EV9, EV10"""
    go(mariadb, broker, tmp_path, rounds=10, seconds=20)
