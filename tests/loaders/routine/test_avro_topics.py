"""Messages of a schema registry in topics of a real broker: rules AV2 and AV3, and a schema that changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.kafka.broker import KafkaBroker
from tests.support.kafka import Server, Topic, wait_until
from tests.support.streams.avro import change, envelope_schema, framed, key_schema, optional
from tests.support.streams.registry import RegistryServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # Spark starts in the first test
ID = {"name": "id", "type": "long"}
SCHEMA = envelope_schema([ID, {"name": "name", **optional("string")}], table="people")
WIDER = envelope_schema(
    [ID, {"name": "name", **optional("string")}, {"name": "age", **optional("int")}], "people"
)
KEY = key_schema([ID], "people")


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer("me:secret") as running:
        yield running


@pytest.fixture
def server(registry: RegistryServer, tmp_path: Path) -> Iterator[Server]:
    config = tmp_path / "server.toml"
    url = registry.url.replace("http://", "http://me:secret@")
    config.write_text(f'[store]\nschema_registries = ["{url}"]\n')
    running = Server(tmp_path / "data", "--config", str(config))
    running.ask("CREATE DATABASE db")
    try:
        yield running
    finally:
        running.kill()


def put(topic: Topic, *messages: tuple[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": topic.address, "log_level": 0})
    for key, value in messages:
        producer.produce(topic.name, value, key, partition=0)
    assert producer.flush(120) == 0


@pytest.mark.long
def test_a_live_topic_of_avro(server: Server, broker: KafkaBroker, registry: RegistryServer) -> None:
    """A table makes itself, its schema changes, the registry goes away, a message cannot be decoded."""
    first, keys = registry.put("people-value", SCHEMA), registry.put("people-key", KEY)
    topic = Topic(broker.address, "shop.public.people")

    def key(number: int) -> bytes:
        return framed(keys, KEY, {"id": number})

    def rows() -> list[tuple[object, ...]]:
        if not server.ask("SHOW TABLES FROM db"):
            return []
        return [tuple(row.values()) for row in server.ask("SELECT * FROM db.people ORDER BY id")]

    put(topic, (key(1), framed(first, SCHEMA, change("c", 5, None, {"id": 1, "name": "a"}, "people"))))
    put(topic, (key(2), framed(first, SCHEMA, change("c", 6, None, {"id": 2, "name": "b"}, "people"))))
    put(
        topic,
        (key(2), framed(first, SCHEMA, change("d", 7, {"id": 2, "name": "b"}, None, "people"))),
        (key(2), None),
    )
    server.ask(
        'CREATE ROUTINE LOAD db.j PROPERTIES("format" = "debezium_avro", "auto_create" = "true", '
        f'"schema_evolution" = "add", "schema_registry" = "{registry.url}", "max_batch_interval" = "1", '
        '"max_error_number" = "5", "timezone" = "UTC") FROM KAFKA('
        f'"kafka_broker_list" = "{broker.address}", "kafka_topic_pattern" = "shop[.]public[.].*")'
    )
    wait_until(lambda: rows() == [(1, "a")], "the first rows", lambda: f"{rows()} {server.show('db.j')}")

    registry.is_down = True
    second = registry.put("people-value", WIDER)
    put(
        topic,
        (key(3), framed(second, WIDER, change("c", 8, None, {"id": 3, "name": "c", "age": 9}, "people"))),
    )

    def told() -> str:
        return json.dumps(server.show("db.j"), default=str)

    wait_until(lambda: "schema registry" in told(), "the job to tell of the registry", told)
    assert "secret" not in told()
    assert rows() == [(1, "a")]
    registry.is_down = False
    put(topic, (key(4), b"\x00\x00\x00\x7f\x7f"))
    wanted = [(1, "a", None), (3, "c", 9)]
    wait_until(lambda: rows() == wanted, "the new column", lambda: f"{rows()} {told()}")
    server.wait_for("db.j", **{"pshop.public.people-0": 6})
    counts = json.loads(server.show("db.j")["Statistic"])
    assert (counts["loadedRows"], counts["errorRows"], counts["unselectedRows"]) == (4, 1, 1)
