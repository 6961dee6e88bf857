"""Which version of the Kafka connector a session is started with."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkRuntimeError

from seqstore import UnavailableError
from seqstore.loaders.routine import kafka_session

SUBSTITUTE = "4.0.0"


@pytest.mark.skipif(not pyspark.__version__.startswith("4."), reason="others have no substitute")
def test_what_was_fetched_before_is_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every start would find out anew, in seconds, that Spark's own version cannot be had."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(kafka_session.CONNECTOR_VARIABLE, raising=False)
    tried: list[str] = []

    def launched(settings: dict[str, str]) -> None:
        tried.append(settings["spark.jars.packages"].rpartition(":")[2])
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(kafka_session, "_launched", launched)
    for fetched in ([], [SUBSTITUTE], [SUBSTITUTE, pyspark.__version__]):
        for version in fetched:
            jars = tmp_path / ".ivy2.5.2" / "jars"
            jars.mkdir(parents=True, exist_ok=True)
            (jars / f"org.apache.spark_spark-sql-kafka-0-10_2.13-{version}.jar").touch()
        tried.clear()
        with pytest.raises(UnavailableError, match=r"names another version"):
            kafka_session._with_packages()
        own = pyspark.__version__
        assert tried == ([SUBSTITUTE, own] if fetched == [SUBSTITUTE] and own != SUBSTITUTE else
                         list(dict.fromkeys([own, SUBSTITUTE])))  # fmt: skip
