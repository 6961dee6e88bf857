"""What tests of routine loads from Kafka use: topics to write to, and `seqstore serve` to read them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pymysql
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 400  # Spark alone takes minutes to start on a machine with much else to do


class Topic:
    """A topic of a broker, made anew."""

    def __init__(
        self, address: str, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        self.address, self.name = address, name
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._make(partitions, config or {})
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        """Repeats what a broker that went away did not acknowledge, without making two of it."""
        return Producer(
            {
                "bootstrap.servers": self.address,
                "linger.ms": 5,
                "enable.idempotence": True,
                "max.in.flight": 1,  # a partition just made may refuse the first batch and take the second
                "log_level": 0,  # that a broker is away is what some tests are about
            }
        )

    @property
    def ends(self) -> dict[str, int]:
        """The next offset of each partition.

        A broker refuses requests until it has read its metadata after a start: a new client asks again.
        """
        found: list[dict[str, int]] = []
        refused: list[KafkaException] = []

        def is_told() -> bool:
            try:
                found.append(self._ends())
            except KafkaException as error:
                refused.append(error)
                self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            return bool(found)

        wait_until(is_told, f"the end offsets of {self.name}", lambda: str(refused[-1:]))
        return found[-1]

    def _ends(self) -> dict[str, int]:
        partitions = self._admin.list_topics(self.name, timeout=60).topics[self.name].partitions
        at = {TopicPartition(self.name, partition): OffsetSpec.latest() for partition in partitions}
        found = self._admin.list_offsets(at)
        return {str(each.partition): int(told.result(60).offset) for each, told in found.items()}

    def _make(self, partitions: int, config: dict[str, str]) -> None:
        topic = NewTopic(self.name, partitions, 1, config=config)
        self._admin.create_topics([topic])[self.name].result(60)

    def put(self, messages: Iterable[str | bytes | None], partition: int = 0) -> None:
        for message in messages:
            while True:
                try:
                    self._producer.produce(self.name, message, partition=partition)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(120) == 0

    def add_partitions(self, total: int) -> None:
        self._admin.create_partitions([NewPartitions(self.name, total)])[self.name].result(60)
        self._producer = self._new_producer()

    def drop_before(self, offset: int, partition: int = 0) -> None:
        """What retention does."""
        at = TopicPartition(self.name, partition, offset)
        self._admin.delete_records([at])[at].result(60)

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(60)
        wait_until(
            lambda: self.name not in self._admin.list_topics(timeout=60).topics, "the topic to be gone"
        )

    def make_again(self, partitions: int = 1) -> None:
        """Under the same name; the broker may still be busy with the one before."""
        wait_until(lambda: self._is_made(partitions), "the topic to be made")

    def _is_made(self, partitions: int) -> bool:
        try:
            self._make(partitions, {})
        except (KafkaException, TimeoutError):
            return False
        self._producer = self._new_producer()
        return True


class Server:
    """`seqstore serve` of a data directory as a process, and a MySQL client of it."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data, self._options = data, options
        self._log = data.parent / "server.log"
        self.process: ForkedPython | None = None
        self._connected: Any = None
        self.start()

    def start(self) -> None:
        begin = self._log.stat().st_size if self._log.exists() else 0
        command = ["-m", "seqstore.cli.main", "--data-dir", str(self.data), "serve"]
        command += ["--http-port", "0", "--mysql-port", "0", *self._options]
        with self._log.open("ab") as out:
            environment = {**os.environ, "PYTHONPATH": MODULES}
            self.process = ForkedPython(command, environment=environment, stdout=out, stderr=out)

        def said() -> list[str]:
            assert self.process is not None
            assert self.process.poll() is None, self._log.read_text()[-4000:]
            return self._log.read_bytes()[begin:].decode(errors="replace").splitlines()

        wait_until(lambda: "ready" in said(), "the server")
        lines = [line for line in said() if line.startswith("listening on")]
        self.http = lines[0].rpartition(" ")[2]
        self.port = int(lines[1].rpartition(":")[2])

    def kill(self) -> None:
        """kill -9; Spark's JVM sees that nobody talks to it any more and ends."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    def kill_driver(self) -> bool:
        """kill -9 of Spark's JVM, which the server started; whether there is one."""
        assert self.process is not None
        for told in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for child in told.read_text().split():
                if b"SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)
                    return True
        return False

    def ask(self, statement: str, database: str = "") -> list[dict[str, Any]]:
        with self._connection().cursor() as cursor:
            if database:
                cursor.execute(f"USE {database}")
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _connection(self) -> Any:
        """One for all statements between two starts: tests ask many times a second."""
        if self._connected is None:
            self._connected = pymysql.connect(
                host="127.0.0.1",
                port=self.port,
                user="root",
                autocommit=True,  # each statement sees what is there
                cursorclass=pymysql.cursors.DictCursor,
            )
        return self._connected

    def show(self, job: str) -> dict[str, Any]:
        (line,) = self.ask(f"SHOW ALL ROUTINE LOAD FOR {job}")
        return line

    def progress(self, job: str) -> dict[str, int]:
        """The next offset of each partition, as SHOW tells the last one read."""
        told = json.loads(self.show(job)["Progress"])
        return {name: 0 if at == "OFFSET_ZERO" else int(at) + 1 for name, at in told.items()}

    def wait_for(self, job: str, **progress: int) -> dict[str, Any]:
        """Until partitions (`p0=3`) are read that far; the job's line then."""
        wanted = {name[1:]: end for name, end in progress.items()}

        def is_there() -> bool:
            line = self.show(job)
            assert line["State"] != "PAUSED", line["ReasonOfStateChanged"]
            return wanted.items() <= self.progress(job).items()

        wait_until(is_there, f"{job} to come to {wanted}", lambda: str(self.show(job)))
        return self.show(job)

    def wait_for_pause(self, job: str) -> str:
        """The reason of it."""
        wait_until(lambda: self.show(job)["State"] == "PAUSED", f"{job} to pause")
        return str(self.show(job)["ReasonOfStateChanged"])


def wait_until(is_so: Callable[[], bool], what: str, told: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"waited in vain for {what}: {told()}"
        time.sleep(0.1)
