"""Routine load from Kafka, measured: `python -m bench.kafka`; some minutes, gigabytes in `bench/work`.

A broker of this machine holds `--messages` CSV messages in four partitions, one in ten of them a later state
of a key. In turn, `--rounds` times, each into a fresh place: a routine load into a unique-key table with a
sequence column, and Spark's own `readStream.format("kafka")` into plain Parquet, once as the bytes come and
once parsed into columns. Each side is a process with a Spark session of its own, warmed up before; they take
turns. Spark's side may be another Python (`--peer-python`), with a Spark whose connector can be had.
Afterwards the table must hold the newest row of every key, and the Parquet files every message.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow.dataset import dataset

from bench.kafka.broker import KafkaBroker, running_broker
from bench.kafka.peer import REPLY
from bench.trials import machine
from seqstore import Store
from seqstore.loaders.routine import manage
from seqstore.loaders.routine.kafka_session import SETTINGS, kafka_session
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.routine.spec import KAFKA, RoutineSpec
from seqstore.store.sql import Session

_PARTITIONS: Final = 4
_WARM_UP: Final = 20_000
_STOP_SECONDS: Final = 60
_COLUMNS: Final = "k BIGINT, s BIGINT, price INT, note STRING"
_CREATE: Final = (
    "CREATE TABLE db.{} (k BIGINT, s BIGINT, price INT, note VARCHAR(60)) UNIQUE KEY (k) "
    "DISTRIBUTED BY HASH (k) PROPERTIES ('function_column.sequence_col' = 's')"
)


def _fill(broker: KafkaBroker, topic: str, messages: int) -> int:
    """Writes the messages; their bytes."""
    admin = AdminClient({"bootstrap.servers": broker.address})  # to be kept until it has answered
    admin.create_topics([NewTopic(topic, _PARTITIONS)])[topic].result(60)
    rng = np.random.default_rng(1)
    keys = rng.permutation(messages) % _key_count(messages)
    prices = rng.integers(0, 1000, messages)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20})
    size = 0
    for number, (key, price) in enumerate(zip(keys.tolist(), prices.tolist(), strict=True)):
        text = f"{key},{number},{price},note number {price} of the event {number}"
        size += len(text)
        while True:
            try:
                producer.produce(topic, text, partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise RuntimeError("the broker did not take every message")
    return size


def _key_count(messages: int) -> int:
    return messages * 10 // 11


def _routine_load(store: Store, broker: KafkaBroker, topic: str, name: str, messages: int) -> float:
    """Seconds."""
    list(Session(store).execute(_CREATE.format(name)))
    properties = {
        "kafka_broker_list": broker.address,
        "kafka_topic": topic,
        "property.kafka_default_offsets": "OFFSET_BEGINNING",
    }
    spec = RoutineSpec("db", name, name, column_separator=",", source=KAFKA, source_properties=properties)
    job_id = manage.create(store, spec)
    started = time.perf_counter()
    job = RoutineRunner(store, names=[f"db.{name}"]).drain()[job_id]
    seconds = time.perf_counter() - started
    if job.statistic.loaded_rows != messages or store.table(f"db.{name}").count() != _key_count(messages):
        raise RuntimeError(f"WRONG: {job.reason or job.other_message} {job.statistic}")
    return seconds


class Peer:
    """Spark's own way, see `bench.kafka.peer`.

    Args:
        python: what runs it.
        connector: its version, empty for that of Spark.
        is_stream: else it reads a topic as one batch.
    """

    def __init__(self, python: str, connector: str, *, is_stream: bool) -> None:
        self._is_stream = is_stream
        environment = {k: v for k, v in os.environ.items() if k not in ("SPARK_HOME", "PYTHONPATH")}
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("peer.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "PYSPARK_PYTHON": python},
            text=True,
        )
        self.version = self._ask({"settings": SETTINGS, "connector": connector})

    def parquet(self, broker: KafkaBroker, topic: str, target: Path, messages: int, columns: str) -> float:
        """Seconds."""
        job = {"brokers": broker.address, "topic": topic, "target": str(target), "columns": columns}
        seconds = float(self._ask({**job, "is_stream": self._is_stream}))
        if dataset(target / "rows", format="parquet").count_rows() != messages:
            raise RuntimeError("WRONG: not every message is in the Parquet files")
        shutil.rmtree(target)
        return seconds

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_STOP_SECONDS)

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(question)}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(REPLY):
                return json.loads(line.removeprefix(REPLY))
        raise RuntimeError("the peer ended; what it said above tells why")


def measure(work: Path, messages: int, rounds: int, peer: Peer) -> list[str]:
    """Lines to print."""
    with running_broker(work / "broker") as broker, Store.open(work / "data") as store:
        store.create_database("db")
        size = _fill(broker, "measured", messages)
        _fill(broker, "warm", _WARM_UP)
        runs: dict[str, Callable[[str, str, int], float]] = {
            "routine load": lambda topic, name, count: _routine_load(store, broker, topic, name, count),
            "Parquet, bytes as they come": lambda topic, name, count: peer.parquet(
                broker, topic, work / name, count, ""
            ),
            "Parquet, parsed": lambda topic, name, count: peer.parquet(
                broker, topic, work / name, count, _COLUMNS
            ),
        }
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(rounds + 1):
            for at, (name, run) in enumerate(runs.items()):
                topic, count = ("measured", messages) if number else ("warm", _WARM_UP)
                took = run(topic, f"t{number}_{at}", count)
                if number:
                    seconds[name].append(took)
                    print(f"round {number}, {name}: {took:.1f} s", file=sys.stderr, flush=True)
    ours = seconds["routine load"]
    lines = [
        f"{messages:,} messages, {size / 2**20:.0f} MiB, {_PARTITIONS} partitions, {rounds} rounds; "
        f"Parquet by Spark {peer.version}, routine load with Spark {kafka_session().version}"
    ]
    for name, times in seconds.items():
        middle, ratio = median(times), median(a / b for a, b in zip(times, ours, strict=True))
        lines.append(
            f"{name}: {middle:.1f} s, {messages / middle:,.0f} messages/s, {size / middle / 2**20:.1f} MB/s; "
            f"routine load has {ratio:.2f} of its throughput"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description="Routine load from Kafka.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable, help="runs Spark's side; has pyspark")
    parser.add_argument(
        "--peer-connector", default="", help="its version; that of the peer's Spark if not given"
    )
    parser.add_argument(
        "--batch",
        action="store_true",
        help="let Spark read the topic as a batch, for connectors of another version that cannot stream",
    )
    parser.add_argument("--work", type=Path, default=Path(__file__).parents[1] / "work" / "kafka")
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    try:
        print(machine.sentence(machine.commit_info(given.work)))
        peer = Peer(given.peer_python, given.peer_connector, is_stream=not given.batch)
        try:
            print("\n".join(measure(given.work, given.messages, given.rounds, peer)))
        finally:
            peer.close()
    finally:
        shutil.rmtree(given.work, ignore_errors=True)


if __name__ == "__main__":
    main()
