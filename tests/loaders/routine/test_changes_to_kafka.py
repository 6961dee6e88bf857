"""`seqstore changes --kafka`: a topic gets each change once, also of a follower that is killed."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from bench.kafka.broker import KafkaBroker
from seqstore import ConflictError, Session, Store
from seqstore.cli.main import app
from seqstore.loaders.changes import kafka_out
from seqstore.loaders.changes.kafka_out import POSITIONS, OutTopic
from seqstore.loaders.changes.outgoing import OutForm, OutgoingChanges
from tests.seeds import new_seed
from tests.support.children import MODULES
from tests.support.kafka import Server, wait_until
from tests.support.statements import dicts, run
from tests.weight import by_form

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # the broker's jars come with what Spark needs
NUMBERS = itertools.count()
TABLE = (
    "CREATE TABLE t (id BIGINT, v VARCHAR(20) NULL, n DECIMAL(20, 4) NULL) UNIQUE KEY(id) "
    "DISTRIBUTED BY HASH(id) BUCKETS 1"
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "data") as store, Session(store, "db") as session:
        store.create_database("db")
        run(session, TABLE)
        run(session, "INSERT INTO t VALUES (1, 'a', 0.0001), (2, 'ü\t\"', NULL)")
    return tmp_path / "data"


def write(data: Path, *statements: str) -> None:
    with Store.open(data) as store, Session(store, "db") as session:
        for statement in statements:
            run(session, statement)


def command(data: Path, broker: KafkaBroker, topic: str, *more: str) -> list[str]:
    given = ["--data-dir", str(data), "changes", "db.t", "--kafka", broker.address, "--topic", topic]
    return [*given, *more]


def follow(data: Path, broker: KafkaBroker, topic: str, *more: str) -> None:
    done = CliRunner().invoke(app, command(data, broker, topic, *more))
    assert done.exit_code == 0, done.output


def committed(broker: KafkaBroker, topic: str) -> list[tuple[Any, dict[str, Any]]]:
    """Keys and values of all committed messages, partition by partition."""
    given = {"bootstrap.servers": broker.address, "group.id": "reader", "enable.partition.eof": True}
    reader = Consumer({**given, "isolation.level": "read_committed"})
    found = []
    try:
        partitions = reader.list_topics(topic, timeout=60).topics[topic].partitions
        for number in partitions:
            reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
            while True:
                message = reader.poll(60)
                assert message is not None
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    break
                key = message.key()
                found.append((None if key is None else json.loads(key), json.loads(message.value())))
    finally:
        reader.close()
    return found


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    name = f"out-{next(NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, 3)])[name].result(60)
    return name


def test_each_change_is_in_the_topic_once(data: Path, broker: KafkaBroker, topic: str) -> None:
    follow(data, broker, topic)
    write(data, "UPDATE t SET v = 'b' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    follow(data, broker, topic)
    follow(data, broker, topic)
    found = committed(broker, topic)
    kinds = sorted((value["_commit_version"], value["_change_type"], key["id"]) for key, value in found)
    first = kinds[0][0]
    assert kinds == [
        (first, "+I", 1),
        (first, "+I", 2),
        (first + 1, "+U", 1),
        (first + 1, "-U", 1),
        (first + 2, "-D", 2),
    ]
    assert next(value["v"] for key, value in found if key["id"] == 2) == 'ü\t"'


def test_a_topic_that_does_not_exist_is_made(data: Path, broker: KafkaBroker) -> None:
    name = f"made-{next(NUMBERS)}"
    follow(data, broker, name, "--format", "debezium_json")
    assert sorted(key["id"] for key, _ in committed(broker, name)) == [1, 2]


@pytest.mark.long
def test_a_topic_has_one_form_and_one_table(data: Path, broker: KafkaBroker, topic: str) -> None:
    follow(data, broker, topic)
    done = CliRunner().invoke(app, command(data, broker, topic, "--format", "debezium_json"))
    assert (done.exit_code, "choose another topic" in done.output) == (1, True), done.output
    write(data, "DROP TABLE t", TABLE)
    done = CliRunner().invoke(app, command(data, broker, topic))
    assert (done.exit_code, "choose another topic" in done.output) == (1, True), done.output


@pytest.mark.parametrize(
    "given",
    [
        ["--kafka", "h:1"],
        ["--topic", "t"],
        ["--kafka-property", "a=b"],
        ["--kafka", "h:1", "--topic", "t", "--out", "x"],
    ],
)
def test_options_that_do_not_go_together_are_refused(data: Path, given: list[str]) -> None:
    done = CliRunner().invoke(app, ["--data-dir", str(data), "changes", "db.t", *given])
    assert done.exit_code == 2, done.output


def test_a_property_of_the_transaction_is_refused(data: Path, broker: KafkaBroker, topic: str) -> None:
    done = CliRunner().invoke(app, command(data, broker, topic, "--kafka-property", "transactional.id=x"))
    assert (done.exit_code, "is set by this command" in done.output) == (1, True), done.output


def started(data: Path, broker: KafkaBroker, topic: str) -> subprocess.Popen[bytes]:
    more = ("--follow", "--format", "debezium_json")
    line = [sys.executable, "-m", "seqstore", *command(data, broker, topic, *more)]
    return subprocess.Popen(line, env={"PYTHONPATH": MODULES, "PATH": ""}, stderr=subprocess.PIPE)


@pytest.mark.long
def test_a_later_follower_fences_an_earlier_one(data: Path, broker: KafkaBroker, topic: str) -> None:
    first = started(data, broker, topic)
    try:
        wait_until(lambda: len(committed(broker, topic)) == 2, "the rows of now")
        follow(data, broker, topic, "--format", "debezium_json")
        write(data, "INSERT INTO t VALUES (3, 'c', 1)")
        _, told = first.communicate(timeout=400)
    finally:
        first.kill()
        first.wait()
    assert b"another follower has taken over" in told
    assert len(committed(broker, topic)) == 2


def test_a_follower_is_told_amid_its_messages_that_it_is_fenced(
    data: Path, broker: KafkaBroker, topic: str
) -> None:
    """The client library says only "fatal error" to a producer that sends on."""

    def endless() -> Iterator[str]:
        while True:
            time.sleep(0.05)  # no event: the library tells of the fence while messages are sent
            yield "{}\t{}"

    with Store.open(data) as store:
        outgoing = OutgoingChanges(store.table("db.t"), OutForm.DEBEZIUM_JSON, has_keys=True)
        first, second = (OutTopic(outgoing, broker.address, topic, {}) for _ in range(2))
        with pytest.raises(ConflictError, match="another follower has taken over"):
            first.write(1, 1, endless())
        second.write(1, 1, iter(["{}\t{}"]))
        first.close()
        second.close()
    assert len(committed(broker, topic)) == 1


@pytest.fixture
def open_elsewhere(broker: KafkaBroker, topic: str) -> Producer:
    """The transaction of another follower that was killed between its position and its commit."""
    name = f"db.other to {topic}-other"
    other = Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": f"seqstore {name}",
            "transaction.timeout.ms": 900_000,
            "log_level": 0,
        }
    )
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(POSITIONS, "{}", name)
    other.flush(60)
    return other


@pytest.mark.long
def test_a_position_behind_an_open_transaction_is_waited_for(
    data: Path, broker: KafkaBroker, topic: str, request: pytest.FixtureRequest
) -> None:
    """Brokers report the end at the first open transaction, so all changes were written again."""
    with Store.open(data) as store:
        outgoing = OutgoingChanges(store.table("db.t"), OutForm.NDJSON, has_keys=True)
        mine = OutTopic(outgoing, broker.address, topic, {})
        other: Producer = request.getfixturevalue("open_elsewhere")
        mine.write(1, 7, iter(["{}\t{}"]))
        mine.close()
        told: list[str] = []

        def waiting(text: str) -> None:
            told.append(text)
            other.abort_transaction(60)

        assert OutTopic(outgoing, broker.address, topic, {}, waiting).last == 7
    (text,) = told
    assert text.startswith(f"the end of the open transaction of db.other to {topic}-other")


@pytest.mark.long
def test_a_transaction_that_stays_open_is_named(
    data: Path, broker: KafkaBroker, topic: str, open_elsewhere: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what ends it; nothing is written."""
    monkeypatch.setattr(kafka_out, "_OPEN_SECONDS", 0.1)
    try:
        done = CliRunner().invoke(app, command(data, broker, topic))
        assert done.exit_code == 1, done.output
        told = " ".join(done.output.split())
        assert f"the transaction of db.other to {topic}-other is open" in told
        assert "end it by themselves 15 minutes after its begin" in told
        assert committed(broker, topic) == []
    finally:
        open_elsewhere.abort_transaction(60)
    follow(data, broker, topic)
    follow(data, broker, topic)
    assert len(committed(broker, topic)) == 2


def killed_followers(data: Path, broker: KafkaBroker, topic: str, rounds: int, rng: random.Random) -> None:
    """Writes versions while followers of the table are killed at any moment."""
    for number in range(rounds):
        child = started(data, broker, topic)
        for step in range(rng.randrange(1, 5)):
            key = rng.randrange(1, 9)
            change = f"INSERT INTO t VALUES ({key}, '{number}-{step}', {number}.{step})"
            write(data, rng.choice([f"DELETE FROM t WHERE id = {key}", change]))
        time.sleep(rng.random() * 3)  # no event: a kill comes at any moment
        child.kill()
        child.communicate()
    follow(data, broker, topic, "--format", "debezium_json")


@pytest.mark.long
def test_killed_followers_neither_lose_nor_repeat(data: Path, broker: KafkaBroker, topic: str) -> None:
    seed = new_seed(10**6)
    killed_followers(data, broker, topic, by_form(3, 12), random.Random(seed))
    found = [(v["source"]["commit_version"], k["id"], v["op"]) for k, v in committed(broker, topic)]
    assert len(found) == len(set(found)), f"seed {seed}"
    with Store.open(data) as store:
        table = store.table("db.t")
        first = min(found)[0]
        expected = [
            (row["_commit_version"], row["id"])
            for batch in table.changes(first + 1, table.version)
            for row in batch.to_pylist()
            if row["_change_type"] != "-U"
        ]
    later = [(version, key) for version, key, _ in found if version > first]
    assert sorted(later) == sorted(expected), f"seed {seed}"


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "second")
    try:
        yield running
    finally:
        running.kill()


@pytest.mark.long
def test_a_store_that_reads_the_topic_of_another_one_is_its_copy(
    data: Path, broker: KafkaBroker, topic: str, second: Server
) -> None:
    second.ask("CREATE DATABASE copy")
    second.ask(
        'CREATE ROUTINE LOAD copy.j PROPERTIES("format" = "debezium_json", "auto_create" = "true", '
        '"max_batch_interval" = "1", "timezone" = "UTC") FROM KAFKA('
        f'"kafka_broker_list" = "{broker.address}", "kafka_topic" = "{topic}", '
        '"property.kafka_default_offsets" = "OFFSET_BEGINNING")'
    )
    seed = new_seed(10**6)
    killed_followers(data, broker, topic, by_form(3, 8), random.Random(seed))
    with Store.open(data) as store, Session(store, "db") as session:
        expected = dicts(session, "SELECT id, v, CAST(n AS DECIMAL(20, 4)) n FROM t ORDER BY id")

    def copied() -> list[dict[str, Any]]:
        if not second.ask("SHOW TABLES FROM copy") or len(second.ask("DESC copy.t")) < 3:
            return []  # its columns come with the events that have them
        return second.ask("SELECT id, v, CAST(n AS DECIMAL(20, 4)) n FROM copy.t ORDER BY id")

    wait_until(lambda: copied() == expected, f"the copy, seed {seed}", lambda: f"{copied()} {expected}")
