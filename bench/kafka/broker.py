"""A real Kafka broker for tests and measurements: one node, KRaft, on the loopback, as a process.

Three doors: without encryption; SASL over TLS for the client that knows the password; the controller's own.
Its ports stay the same over a restart, so clients find it again.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.kafka.jars import java, kafka_jars
from bench.trials.free_ports import free_ports

USER: Final = "loader"
PASSWORD: Final = "a secret"
STORE_PASSWORD: Final = "changeit"
_START_SECONDS: Final = 180
_STOP_SECONDS: Final = 60
_JVM: Final = ("-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-Xshare:auto")
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
required user_{user}="{password}";
ssl.keystore.type=PKCS12
ssl.keystore.location={keys}
ssl.keystore.password={store_password}
ssl.key.password={store_password}
log.dirs={logs}
num.network.threads=2
num.io.threads=2
auto.create.topics.enable={makes_topics}
num.partitions=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=0
"""


class KafkaBroker:
    """See the module.

    Args:
        directory: where it keeps everything; made.
        topics_by_themselves: a topic that a client names is made, with two partitions.
    """

    def __init__(self, directory: Path, *, topics_by_themselves: bool = False) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._classpath = os.pathsep.join(str(path) for path in kafka_jars())
        directory.mkdir(parents=True)
        self.keys = directory / "keys.p12"
        _make_keys(self.keys)
        plain, secure, controller = free_ports(3)
        self.address = f"127.0.0.1:{plain}"
        self.secure_address = f"127.0.0.1:{secure}"
        self._properties = directory / "broker.properties"
        self._properties.write_text(
            _PROPERTIES.format(
                plain=plain,
                secure=secure,
                controller=controller,
                user=USER,
                password=PASSWORD,
                store_password=STORE_PASSWORD,
                keys=self.keys,
                logs=directory / "logs",
                makes_topics=str(topics_by_themselves).lower(),
            )
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "-t", cluster.lstrip("-") or "0", "-c")

    def start(self) -> None:
        """Starts it and waits until it takes clients.

        Raises:
            RuntimeError: it ended, or takes too long.
        """
        log = self._directory / "broker.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [java(), *_JVM, "-cp", self._classpath, "kafka.Kafka", str(self._properties)],
                stdout=out,
                stderr=out,
                cwd=self._directory,
                start_new_session=True,  # a Ctrl-C is for the program that started it
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Kafka does not start:\n{log.read_text()[-4000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Asks it to end, and waits."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        """The door opens only when the broker is ready."""
        host, _, port = self.address.partition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    def _run(self, main: str, *arguments: str) -> None:
        done = subprocess.run(
            [java(), "-cp", self._classpath, main, *arguments, str(self._properties)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{main}: {done.stdout[-4000:]}")


@contextmanager
def running_broker(directory: Path) -> Iterator[KafkaBroker]:
    """A broker that runs within the block."""
    broker = KafkaBroker(directory)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def _make_keys(path: Path) -> None:
    """A key and its own certificate, which is also what clients are to trust."""
    tool = Path(java()).with_name("keytool") if os.sep in java() else Path("keytool")
    command = [str(tool), "-genkeypair", "-alias", "broker", "-keyalg", "RSA", "-validity", "3650"]
    command += ["-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1", "-storetype", "PKCS12"]
    command += ["-keystore", str(path), "-storepass", STORE_PASSWORD]
    subprocess.run(command, check=True, capture_output=True, timeout=_START_SECONDS)
