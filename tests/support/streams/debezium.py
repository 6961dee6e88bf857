"""The real Debezium engine as a process: PostgreSQL or MariaDB in, Kafka out."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.kafka.jars import java, listed_jars

_FILES: Final = Path(__file__).parent
PAGE: Final = Path(__file__).parents[3] / "docs/live-copy.md"
_JVM: Final = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:TieredStopAtLevel=1")


def debezium_jars() -> list[Path]:
    """The jars of the engine and its connectors, fetched once.

    Raises:
        JarsUnreachableError: they are not here and cannot be fetched.
    """
    return listed_jars(_FILES / "jars.txt", "debezium")


class Debezium:
    """One engine and its position; it ends with the process that started it, or by `kill`.

    Args:
        directory: of its properties, its position and its log; made.
        brokers: of Kafka.
        partitions: of each topic that it makes.
        connector: its properties.
    """

    def __init__(self, directory: Path, brokers: str, partitions: int, connector: Mapping[str, str]) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        given = {
            "name": "engine",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(directory / "position"),
            "offset.flush.interval.ms": "200",
            "poll.interval.ms": "50",
            "kafka.bootstrap.servers": brokers,
            "kafka.partitions": str(partitions),
            **connector,
        }
        text = "".join(f"{name}={value}\n" for name, value in given.items())
        (directory / "engine.properties").write_text(text.replace("\\", "\\\\"))
        self._classpath = os.pathsep.join(map(str, debezium_jars()))

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-6000:]

    def start(self) -> None:
        program, given = str(_FILES / "DebeziumToKafka.java"), str(self._directory / "engine.properties")
        with (self._directory / "log").open("ab") as out:
            logging = f"-Dlog4j.configuration={(_FILES / 'log4j.properties').as_uri()}"
            command = [java(), *_JVM, logging, "-cp", self._classpath, program, given]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self._directory)

    def require_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.log

    @property
    def stacks(self) -> str:
        """Where its threads stand."""
        assert self._process is not None
        command = [str(Path(java()).with_name("jstack")), str(self._process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout[:20_000]

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def page_connector(port: int, topics: str = "shop") -> dict[str, Any]:
    """The connector of the page `live-copy.md`, for the database `shop` of another port.

    Args:
        topics: the first part of the names of its topics.
    """
    found = re.search(r'```json title="connector.json"\n(?P<text>.*?)```', PAGE.read_text(), re.DOTALL)
    assert found is not None
    given: dict[str, Any] = json.loads(found["text"])
    own = {"database.hostname": "127.0.0.1", "database.port": str(port), "topic.prefix": topics}
    return {**given, "config": given["config"] | own}
