"""Routine loads from a real Kafka broker, run by `seqstore serve`; every test has a topic and a table."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from bench.kafka_broker import KafkaBroker
from tests.support.kafka import Server, Topic

pytestmark = pytest.mark.spark
NUMBERS = itertools.count()
EVERY_SECOND = '"max_batch_interval" = "1"'
JSON = f'{EVERY_SECOND}, "format" = "json"'


@pytest.fixture(scope="module")
def server(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("served") / "data")
    running.ask("CREATE DATABASE db")
    try:
        yield running
    finally:
        running.kill()


@dataclass
class Job:
    """A topic, a table and what loads the one into the other."""

    server: Server
    topic: Topic
    name: str
    table: str

    def make(
        self,
        properties: str = EVERY_SECOND,
        clauses: str = 'COLUMNS TERMINATED BY ","',
        source: str = '"property.kafka_default_offsets" = "OFFSET_BEGINNING"',
    ) -> None:
        source = f"{source}," if source else ""
        brokers = "" if "kafka_broker_list" in source else f'"kafka_broker_list" = "{self.topic.address}",'
        self.server.ask(
            f"""CREATE ROUTINE LOAD {self.name} ON {self.table.rpartition(".")[2]} {clauses}
            PROPERTIES ({properties})
            FROM KAFKA ({source} {brokers} "kafka_topic" = "{self.topic.name}")"""
        )

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.server.ask(f"SELECT * FROM {self.table} ORDER BY 1")]

    @property
    def statistic(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.server.show(self.name)["Statistic"])
        return found


@pytest.fixture
def job(server: Server, broker: KafkaBroker) -> Iterator[Job]:
    made = new_job(server, broker)
    yield made
    if server.show(made.name)["State"] not in ("STOPPED", "CANCELLED"):
        server.ask(f"STOP ROUTINE LOAD FOR {made.name}")


def new_job(
    server: Server,
    broker: KafkaBroker,
    columns: str = "k BIGINT, v BIGINT NULL",
    properties: str = "",
    partitions: int = 1,
) -> Job:
    number = next(NUMBERS)
    table = f"db.t{number}"
    properties = f"PROPERTIES ({properties})" if properties else ""
    server.ask(f"CREATE TABLE {table} ({columns}) UNIQUE KEY (k) DISTRIBUTED BY HASH (k) {properties}")
    return Job(server, Topic(broker.address, f"topic{number}", partitions), f"db.job{number}", table)


def test_messages_become_rows_and_offsets_progress(job: Job) -> None:
    """R11, R32, R36: an empty message is a bad row; the offset moves over it."""
    job.topic.put(["1,10", "2,20", "1,11", "", None])
    job.make(f'{EVERY_SECOND}, "max_error_number" = "10"')
    line = job.server.wait_for(job.name, p0=5)
    assert job.rows == [(1, 11), (2, 20)]
    assert json.loads(line["Progress"]) == {"0": "4"}
    assert json.loads(line["Lag"]) == {"0": 0}
    assert (job.statistic["loadedRows"], job.statistic["errorRows"]) == (3, 2)
    job.topic.put(["3,30"])
    job.server.wait_for(job.name, p0=6)
    assert job.rows == [(1, 11), (2, 20), (3, 30)]
