"""The real Kafka Connect as a process: a worker of a cluster of one, with Debezium's connector of PostgreSQL.

It keeps the connector and its position in topics of Kafka, so a worker that is started again goes on.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from bench.kafka.jars import java, listed_jars
from bench.trials.free_ports import free_ports
from tests.support.kafka import wait_until
from tests.support.streams.debezium import page_connector

_FILES: Final = Path(__file__).parent
_JVM: Final = ("-Xms64m", "-Xmx768m", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:TieredStopAtLevel=1")
_PROGRAM: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_PROPERTIES: Final = """\
bootstrap.servers={brokers}
group.id=connect
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
config.storage.topic=connect-configs
config.storage.replication.factor=1
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
offset.storage.partitions=1
status.storage.topic=connect-status
status.storage.replication.factor=1
status.storage.partitions=1
offset.flush.interval.ms=1000
plugin.discovery=only_scan
session.timeout.ms=6000
heartbeat.interval.ms=2000
scheduled.rebalance.max.delay.ms=0
"""


def connect_jars() -> list[Path]:
    """The jars of Kafka Connect and of the connector, fetched once.

    Raises:
        JarsUnreachableError: they are not here and cannot be fetched.
    """
    return listed_jars(_FILES / "connect_jars.txt", "connect")


class KafkaConnect:
    """A worker, and the connector of the manual's page in it; it ends by `kill`.

    Args:
        directory: of its properties and its log; made.
        brokers: of Kafka, which makes topics by itself.
        postgres_port: of the database.
        topics: the first part of the names of its topics.
    """

    def __init__(self, directory: Path, brokers: str, postgres_port: int, topics: str) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._connector = page_connector(postgres_port, topics)
        [self._port] = free_ports(1)
        properties = _PROPERTIES.format(brokers=brokers, port=self._port)
        (directory / "worker.properties").write_text(properties)
        self._classpath = os.pathsep.join(map(str, connect_jars()))

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-6000:]

    def start(self) -> None:
        """Starts the worker; has it start the connector, by the page's first command, the first time."""
        with (self._directory / "log").open("ab") as out:
            logging = f"-Dlog4j.configuration={(_FILES / 'log4j.properties').as_uri()}"
            given = str(self._directory / "worker.properties")
            command = [java(), *_JVM, logging, "-cp", self._classpath, _PROGRAM, given]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self._directory)
        wait_until(self._has_connector, "Kafka Connect with the connector", lambda: self.log)

    def _has_connector(self) -> bool:
        self.require_alive()
        try:
            if self._connector["name"] in self._asked("GET", None):
                return True
            self._asked("POST", self._connector)
        except OSError:
            return False  # it does not listen yet
        return False

    def _asked(self, method: str, body: Any) -> Any:
        """Returns the answer to a request about connectors; an empty one while the worker refuses it."""
        client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        try:
            text = None if body is None else json.dumps(body)
            client.request(method, "/connectors", text, {"Content-Type": "application/json"})
            answer = client.getresponse()
            read = answer.read()
            assert answer.status != 400, read  # the connector refuses its properties
            return json.loads(read) if answer.status < 300 else []
        finally:
            client.close()

    def require_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.log

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
