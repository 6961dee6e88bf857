"""FROM KAFKA: offset ranges of a topic, read as batches by Spark's own Kafka connector.

Offsets are looked up with a Kafka consumer in Spark's JVM that joins no group and commits nothing; messages
are read by `spark.read.format("kafka")` over explicit ranges, committed ones only, and a range that is not
there any more fails the read rather than shrink it. Transaction markers take offsets too, so a range may
bring fewer messages than it has offsets.

The connector comes by `spark.jars.packages`, which Spark takes when its session starts: SPARK_CONF_DIR, or
the session that is active, must name `spark-sql-kafka-0-10` of Spark's version; else one is started that
does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from loaders.routine.kafka_properties import BEGINNING, END, KafkaProperties, kafka_properties, time_ms
from loaders.routine.source import Bounds, Piece, SourceUnavailable, Span
from loaders.routine.spec import RoutineSpec
from loaders.spark.requirements import missing_requirement
from store.errors import InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIECE_BYTES: Final = 64 << 20  # what the driver is to hold at a time, by the size of the messages before
_PIECE_OFFSETS: Final = 10_000  # of the first piece, whose messages may be of any size
_PIECE_OFFSETS_MAX: Final = 500_000
_ANSWER_MS: Final = 20_000
_SCALA: Final = "2.13"
_session_lock: Final = threading.Lock()


class KafkaSource:
    """See the module.

    Args:
        spec: of the job.
        wanted_offsets: where partitions begin that the job's owner moved, by partition.

    Raises:
        UnavailableError: Spark cannot run here.
    """

    def __init__(self, spec: RoutineSpec, wanted_offsets: Mapping[str, str]) -> None:
        missing = missing_requirement()
        if missing is not None:
            raise UnavailableError(f"FROM KAFKA: {missing}", kind="no_spark")
        self._given: KafkaProperties = kafka_properties(spec.source_properties)
        self._group = self._given.group_id or spec.name  # R24; Spark adds a number of its own to it
        self._wanted_offsets = wanted_offsets
        self._is_json = spec.options("").format == "json"
        self._offsets = _PIECE_OFFSETS
        self._spark = _session()

    def bounds(self) -> dict[str, Bounds]:
        """See `Source`.

        Raises:
            InvalidInputError: a partition that is asked for is not in the topic (R25).
        """
        with self._consumer() as consumer:
            found = self._topic_partitions(consumer)
            missing = [p for p in self._given.partitions if p not in found]
            if missing:
                raise InvalidInputError(
                    f"there is a custom kafka partition {missing[0]} which is invalid for topic "
                    f"{self._given.topic}",
                    kind="bad_property",
                )
            wanted = {p: found[p] for p in (self._given.partitions or sorted(found))}
            asked = self._java_list(wanted.values())
            first, last = consumer.beginningOffsets(asked), consumer.endOffsets(asked)
            return {str(p): Bounds(int(first.get(at)), int(last.get(at))) for p, at in wanted.items()}

    def first_offsets(self, partitions: Sequence[str], bounds: Mapping[str, Bounds]) -> dict[str, int]:
        """See `Source`."""
        found: dict[str, int] = {}
        for name in partitions:
            given = self._given.offsets.get(int(name), self._given.default_offset)
            offset = self._wanted_offsets.get(name, given)
            moment = time_ms(offset)
            if offset == BEGINNING:
                found[name] = bounds[name].earliest
            elif offset == END:
                found[name] = bounds[name].latest
            elif moment is not None:
                found[name] = self._offset_at(int(name), moment, bounds[name])
            else:
                found[name] = int(offset)
        return found

    def pieces(self, spans: Sequence[Span]) -> Iterator[Piece]:
        """See `Source`: ranges that fit the driver."""
        for span in spans:
            start = span.start
            while start < span.end:
                piece = self._piece(Span(span.partition, start, min(start + self._offsets, span.end)))
                yield piece
                start = piece.span.end
                if piece.size:
                    each = piece.size / (start - piece.span.start)
                    self._offsets = round(min(max(_PIECE_BYTES / each, 1), _PIECE_OFFSETS_MAX))

    def close(self) -> None:
        """The session is shared; it ends with the process."""

    # ------------------------------------------------------------------------------------------ reading

    def _piece(self, span: Span) -> Piece:
        topic = self._given.topic
        reader = self._spark.read.format("kafka")
        for name, value in self._client().items():
            reader = reader.option(f"kafka.{name}", value)
        rows = (
            reader.option("groupIdPrefix", self._group)
            .option("assign", json.dumps({topic: [int(span.partition)]}))
            .option("startingOffsets", json.dumps({topic: {span.partition: span.start}}))
            .option("endingOffsets", json.dumps({topic: {span.partition: span.end}}))
            .option("failOnDataLoss", "true")
            .load()
            .select("offset", "value")
            .toArrow()
            .sort_by("offset")
        )
        body, empty = lines_of(rows.column("value").combine_chunks(), is_json=self._is_json)
        return Piece(span, lambda: BytesIO(body), len(body), empty=empty)

    # ------------------------------------------------------------------------------------------ offsets

    def _client(self) -> dict[str, str]:
        return {
            "isolation.level": "read_committed",
            **self._given.client,
            "bootstrap.servers": self._given.brokers,
        }

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        """A Kafka consumer that only looks up offsets.

        Raises:
            SourceUnavailable: no broker answers.
        """
        jvm = self._jvm()
        settings = jvm.java.util.Properties()
        bytes_reader = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        ours = {
            "key.deserializer": bytes_reader,
            "value.deserializer": bytes_reader,
            "default.api.timeout.ms": str(_ANSWER_MS),
            "enable.auto.commit": "false",
            "allow.auto.create.topics": "false",
        }
        for name, value in {**self._client(), **ours}.items():
            settings.setProperty(name, value)
        consumer = None
        try:
            consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
            yield consumer
        except InvalidInputError:
            raise
        except Exception as error:  # py4j's: of Kafka's classes only the text comes through
            raise SourceUnavailable(
                f"kafka {self._given.brokers}, topic {self._given.topic}: {_first_line(error)}",
                kind="source",
            ) from error
        finally:
            if consumer is not None:
                consumer.close()

    def _topic_partitions(self, consumer: Any) -> dict[int, Any]:
        topic_partition = self._jvm().org.apache.kafka.common.TopicPartition
        found = consumer.partitionsFor(self._given.topic)
        if not found:
            raise SourceUnavailable(f"kafka topic {self._given.topic} does not exist", kind="source")
        return {int(info.partition()): topic_partition(self._given.topic, info.partition()) for info in found}

    def _offset_at(self, partition: int, moment: int, bounds: Bounds) -> int:
        """The first message not older than a moment; the end when all are."""
        with self._consumer() as consumer:
            jvm = self._jvm()
            at = jvm.org.apache.kafka.common.TopicPartition(self._given.topic, partition)
            asked = jvm.java.util.HashMap()
            asked.put(at, jvm.java.lang.Long.valueOf(moment))
            found = consumer.offsetsForTimes(asked).get(at)
            return bounds.latest if found is None else int(found.offset())

    def _jvm(self) -> Any:
        return self._spark.sparkContext._jvm

    def _java_list(self, values: Any) -> Any:
        made = self._jvm().java.util.ArrayList()
        for value in values:
            made.add(value)
        return made


def lines_of(messages: pa.Array, *, is_json: bool) -> tuple[bytes, int]:
    """Messages as lines, and how many are empty (R36)."""
    texts = pc.fill_null(messages.cast(pa.large_binary()), b"")
    if is_json:  # line ends between the tokens of a document mean nothing, within them there are none
        for end in (b"\n", b"\r"):
            texts = pc.replace_substring(texts, end, b" ")
    kept = texts.filter(pc.greater(pc.binary_length(texts), 0))
    if not len(kept):
        return b"", len(texts)
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(kept)], kept), pa.scalar(b"\n", kept.type))
    return joined[0].as_py() + b"\n", len(texts) - len(kept)


def _session() -> SparkSession:
    """The active session, or one with the connector."""
    import pyspark
    from pyspark.sql import SparkSession

    with _session_lock:
        active = SparkSession.getActiveSession()
        if active is not None:
            return active
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        package = f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{pyspark.__version__}"
        builder = SparkSession.builder.appName("seqstore routine load")
        if "SPARK_CONF_DIR" not in os.environ:
            builder = builder.config("spark.jars.packages", package)
        return builder.getOrCreate()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
