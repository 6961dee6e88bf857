"""One Kafka broker for the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.kafka_broker import KafkaBroker, running_broker
from bench.kafka_jars import JarsUnreachableError, kafka_jars


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real one; tests that use it are marked `spark`, for its jars come with what Spark needs too."""
    try:
        kafka_jars()
    except JarsUnreachableError as error:
        pytest.skip(str(error))
    with running_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running
