"""Exactly once from a real Kafka, while server, Spark's driver and broker are killed -9 and come back."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from bench.kafka.broker import KafkaBroker
from tests.seeds import new_seed
from tests.support.kafka import Server, Topic, wait_until
from tests.weight import by_form

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]
PARTITIONS = 4
CHUNKS = 50
JOB = "db.events_from_kafka"


class Events:
    """Messages `k,s,v` in no order, one in ten of them twice, and the rows they must end as."""

    def __init__(self, count: int, seed: int) -> None:
        drawn = np.random.default_rng(seed)
        once = count * 10 // 11
        keys = drawn.integers(0, max(count // 10, 1), once)
        sequences = drawn.permutation(once)
        order = drawn.permutation(np.concatenate([np.arange(once), drawn.integers(0, once, count - once)]))
        self.keys, self.sequences = keys[order], sequences[order]
        newest = np.full(int(keys.max()) + 1, -1)
        np.maximum.at(newest, keys, sequences)
        self.rows = {int(k): (int(s), int(k) ^ int(s)) for k, s in enumerate(newest) if s >= 0}

    def send(self, topic: Topic, pause: float) -> None:
        for chunk in np.array_split(np.arange(len(self.keys)), CHUNKS):
            for partition in range(PARTITIONS):
                rows = chunk[partition::PARTITIONS]
                pairs = zip(self.keys[rows].tolist(), self.sequences[rows].tolist(), strict=True)
                topic.put((f"{k},{s},{k ^ s}" for k, s in pairs), partition)
            time.sleep(pause)  # so that there is something to come whenever the server is back


def run(
    broker: KafkaBroker,
    directory: Path,
    seed: int,
    *,
    messages: int,
    kills: int = 0,
    restarts: int = 0,
    drivers: int = 0,
) -> None:
    """Half of the kills strike after the job got on, the others at any moment, Spark's start too."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    events = Events(messages, seed)
    topic = Topic(broker.address, f"events{seed}", PARTITIONS)
    server = Server(directory / "data")
    server.ask("CREATE DATABASE db")
    server.ask(
        "CREATE TABLE db.events (k BIGINT NOT NULL, s BIGINT, "
        "v BIGINT) UNIQUE KEY (k) DISTRIBUTED BY HASH (k) "
        'PROPERTIES ("function_column.sequence_col" = "s")'
    )
    server.ask(
        f"""CREATE ROUTINE LOAD {JOB} ON events COLUMNS TERMINATED BY ","
        PROPERTIES ("max_batch_interval" = "1", "max_batch_rows" = "200000")
        FROM KAFKA ("kafka_broker_list" = "{broker.address}", "kafka_topic" = "{topic.name}",
                    "property.kafka_default_offsets" = "OFFSET_BEGINNING")"""
    )
    sender = threading.Thread(target=events.send, args=(topic, 0.2), daemon=True)
    sender.start()
    stops = ["server"] * kills + ["broker"] * restarts + ["driver"] * drivers
    chance.shuffle(stops)
    try:
        for number, what in enumerate(stops):
            if number % 2 == 0:
                wait_for_progress(server, topic)
            time.sleep(chance.random() * 3)
            if what == "server":
                server.kill()
                server.start()
            elif what == "driver":
                wait_until(server.kill_driver, "Spark's driver")
            else:
                broker.kill()
                time.sleep(chance.random() * 2)
                broker.start()
        sender.join()
        wait_until(lambda: server.progress(JOB) == topic.ends, "every message", lambda: str(server.show(JOB)))
        found = {row["k"]: (row["s"], row["v"]) for row in server.ask("SELECT k, s, v FROM db.events")}
        statistic = json.loads(server.show(JOB)["Statistic"])
        assert sum(topic.ends.values()) == statistic["loadedRows"] == messages
        assert found == events.rows
    finally:
        server.kill()


def wait_for_progress(server: Server, topic: Topic) -> None:
    """Until more is loaded than now, or all there is."""
    before = server.progress(JOB)
    wait_until(
        lambda: server.progress(JOB) not in (before, {}) or before == topic.ends != {},
        "the job to get on",
        lambda: str(server.show(JOB)),
    )


@pytest.mark.long
def test_kills_of_server_and_driver_and_a_broker_restart_lose_and_repeat_nothing(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    """R11, R12, R34: a driver is started again by the server itself, from the offsets that the catalog has.

    The short form has one of the three: each is a start of Spark, which costs more than all else here.
    """
    seed = new_seed(10**6)
    stops = {"kills": 1, "restarts": 1, "drivers": 1}
    chosen = random.Random(seed).sample(sorted(stops), by_form(1, 3))
    run(
        broker, tmp_path, seed=seed, messages=by_form(5_000, 20_000), **{name: stops[name] for name in chosen}
    )


@pytest.mark.torture
def test_a_million_messages_ten_kills_two_broker_restarts_a_driver_killed(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    """R11, R12, R34"""
    run(broker, tmp_path, seed=random.randrange(10**6), messages=1_000_000, kills=10, restarts=2, drivers=1)
