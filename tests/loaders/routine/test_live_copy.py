"""A live copy of a real PostgreSQL: Debezium, Kafka and a routine load, killed while schemas change."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from bench.kafka.broker import KafkaBroker
from bench.kafka.jars import JarsUnreachableError
from tests.seeds import new_seed
from tests.support.streams.connect import connect_jars
from tests.support.streams.debezium import debezium_jars
from tests.support.streams.live_copy import LiveCopy
from tests.support.streams.postgres import Postgres, PostgresMissingError, running_postgres

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]
# A statement of a round while pgbench runs, and what the next rounds write beside the columns of the start.
CHANGES: tuple[tuple[str, dict[str, str]], ...] = (
    ("ALTER TABLE orders ADD COLUMN extra INT DEFAULT 7", {"extra": ":n"}),
    ("ALTER TABLE lines ALTER COLUMN amount TYPE BIGINT", {"extra": ":n"}),
    ("CREATE TABLE late (id INT PRIMARY KEY, word TEXT); INSERT INTO late VALUES (1, 'a')", {"extra": ":n"}),
    (
        "ALTER TABLE orders ADD COLUMN word TEXT, ALTER COLUMN extra TYPE NUMERIC(12, 3)",
        {"extra": ":n / 9.0", "word": "'w' || :n"},
    ),
    ("ALTER TABLE notes ADD COLUMN seen BOOLEAN DEFAULT true", {"extra": ":n"}),
    ("ALTER TABLE orders DROP COLUMN word", {"extra": ":n"}),
    (
        "ALTER TABLE orders ADD COLUMN fee NUMERIC(7, 2) NOT NULL DEFAULT 1.25",
        {"extra": ":n", "fee": ":n / 100.0"},
    ),
    ("ALTER TABLE lines ADD COLUMN note VARCHAR(5) DEFAULT 'none'", {"fee": ":n / 100.0"}),
    ("CREATE TABLE later (a INT, b TEXT, PRIMARY KEY (b, a)); INSERT INTO later VALUES (1, 'x')", {}),
    ("ALTER TABLE lines ALTER COLUMN item TYPE VARCHAR(100)", {}),
)
AFTER = (
    "UPDATE orders SET extra = 70000 WHERE id < 20",
    "UPDATE lines SET amount = 1000000000000 WHERE order_id < 9",
    "UPDATE late SET word = NULL",
)


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    try:
        debezium_jars()
        with running_postgres() as running:
            yield running
    except (JarsUnreachableError, PostgresMissingError) as error:
        pytest.skip(str(error))


@pytest.fixture
def making_broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that makes topics by itself, as Kafka does by default; Kafka Connect relies on it."""
    broker = KafkaBroker(tmp_path / "kafka", topics_by_themselves=True)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def run(
    postgres: Postgres,
    broker: KafkaBroker,
    directory: Path,
    *,
    rounds: int,
    seconds: float,
    samples: int,
    by_connect: bool = False,
) -> None:
    """Each round kills Kafka, the connector and the server while pgbench runs and a schema changes."""
    seed = new_seed(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    copy = LiveCopy(postgres, broker, directory, f"shop{seed}", by_connect=by_connect)
    names: Mapping[str, str] = {}
    try:
        copy.begin()
        for number in range(rounds):
            statement, following = CHANGES[number]
            work = copy.work(seconds, names, seed + number)
            stops = ["kafka", "connector", "server"]
            chance.shuffle(stops)
            for place, what in enumerate(stops):
                time.sleep(chance.random() * seconds / 4)
                if place == 1:
                    postgres.run(statement)
                kill(copy, what)
            told, _ = work.communicate(timeout=600)
            assert work.returncode == 0, told
            names = following
            postgres.run(AFTER[number] if number < len(AFTER) else "DELETE FROM orders WHERE id % 7 = 1")
            if number == 0:
                add_partition(copy, "orders")
            copy.settle()
            print(f"round {number}: {copy.compare()} rows are equal")
        again(copy, seed)
        print(f"freshness: {copy.freshness(samples)}")
    finally:
        copy.close()


def kill(copy: LiveCopy, what: str) -> None:
    """kill -9, and another start."""
    if what == "kafka":
        copy.broker.kill()
        copy.broker.start()
    elif what == "connector":
        copy.debezium.kill()
        copy.debezium.start()
    else:
        copy.server.kill()
        copy.server.start()


def add_partition(copy: LiveCopy, table: str) -> None:
    """From then on changes of a key are in another partition than those before."""
    admin = AdminClient({"bootstrap.servers": copy.broker.address, "log_level": 0})
    name = f"{copy.topics}.public.{table}"
    admin.create_partitions([NewPartitions(name, 5)])[name].result(60)


def again(copy: LiveCopy, seed: int) -> None:
    """All topics from their start into new tables, and in no order at all into others."""
    copy.create("again", f"{copy.topics}[.]public[.].*")
    copy.shuffle(f"{copy.topics}.public.", f"mixed{seed}", seed, without=("notes",))
    copy.create("mixed", f"mixed{seed}", mode="UPSERT")
    copy.settled("again", f"{copy.topics}.public.")
    print(f"{copy.compare('again')} rows are equal after the topics were read again")
    copy.settled("mixed", f"mixed{seed}")
    print(f"{copy.compare('mixed', without=('notes',))} rows are equal after the messages came in no order")
    for database in ("again", "mixed"):
        copy.server.ask(f"STOP ROUTINE LOAD FOR {database}.copy")


@pytest.mark.long
def test_every_table_equals_postgres_after_kills_and_a_new_column(
    postgres: Postgres, broker: KafkaBroker, tmp_path: Path
) -> None:
    """R11, R12, R39, EV9, EV10"""
    run(postgres, broker, tmp_path, rounds=1, seconds=10, samples=5)


@pytest.mark.long
def test_the_two_commands_of_the_page_make_a_copy_that_survives_kills(
    postgres: Postgres, making_broker: KafkaBroker, tmp_path: Path
) -> None:
    """By Kafka Connect, with the page's connector: R11, R12, R39, EV9, EV10."""
    try:
        connect_jars()
    except JarsUnreachableError as error:
        pytest.skip(str(error))
    run(postgres, making_broker, tmp_path, rounds=1, seconds=10, samples=5, by_connect=True)


@pytest.mark.torture
def test_every_table_equals_postgres_in_ten_rounds_of_kills_and_schema_changes(
    postgres: Postgres, broker: KafkaBroker, tmp_path: Path
) -> None:
    """R11, R12, R39, EV9, EV10"""
    run(postgres, broker, tmp_path, rounds=len(CHANGES), seconds=20, samples=100)
