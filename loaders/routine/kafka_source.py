"""FROM KAFKA: offset ranges of topics, read as batches by Spark's own Kafka connector.

Offsets are looked up with a Kafka admin client in Spark's JVM; the source joins no group and commits nothing.
`spark.read.format("kafka")` reads explicit ranges, committed messages only. A range that is not there any
more fails the read rather than shrink it. Transaction markers occupy offsets too, so a range may have fewer
messages than offsets. Ranges of several partitions are one read while they are small: a read is a job of
Spark, which costs more than a few messages. The next ranges are read while the rows of some are mapped.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.avro.messages import AvroMessages
from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.changes.keyed_messages import keyed_messages
from seqstore.loaders.routine.change_messages import change_bodies
from seqstore.loaders.routine.kafka_properties import (
    BEGINNING,
    END,
    KafkaProperties,
    kafka_properties,
    time_ms,
)
from seqstore.loaders.routine.kafka_session import kafka_session, readers
from seqstore.loaders.routine.messages import bodies_of
from seqstore.loaders.routine.source import Bounds, Piece, SourceUnavailable, Span
from seqstore.loaders.routine.spec import RoutineSpec
from seqstore.loaders.routine.topics import identity_of, in_order, matching, partition_name, place_of
from seqstore.loaders.spark.py4j_access import jvm_of
from seqstore.store.errors import InvalidInputError

_PIECE_BYTES: Final = 64 << 20  # what the driver is to hold at a time, by the size of the messages before
_PIECE_OFFSETS: Final = 10_000  # of the first piece, whose messages may be of any size
_PIECE_OFFSETS_MAX: Final = 250_000
_READS_AHEAD: Final = 1
_ANSWER_MS: Final = 20_000
_log: Final = logging.getLogger(__name__)
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # of brokers without ids of topics


class KafkaSource:
    """See the module.

    Args:
        spec: of the job.
        wanted_offsets: where partitions begin that the job's owner moved, by partition.
        registries: the setting `schema_registries`.

    Raises:
        UnavailableError: Spark cannot run here.
    """

    def __init__(
        self, spec: RoutineSpec, wanted_offsets: Mapping[str, str], registries: Sequence[str] = ()
    ) -> None:
        self._given: KafkaProperties = kafka_properties(spec.source_properties)
        self._group = self._given.group_id or f"{spec.name}_{uuid.uuid4()}"  # of jobs of before it was kept
        self._wanted_offsets = wanted_offsets
        options = spec.options("")
        self._options, self._is_multi = options, spec.is_multi
        self._zone = options.time_zone
        avro = spec.avro_options("")
        given = None if avro is None else with_registry(avro, registries).avro
        self._avro = None if given is None else AvroMessages(given)
        self._offsets = _PIECE_OFFSETS
        self._spark = kafka_session()
        self._identity = ""
        self._admin: Any = None
        self._admin_lock = threading.Lock()

    def identity(self) -> str:
        """Implements `Source.identity`: ids of topics, which differ for later topics of the same name."""
        return self._identity

    def bounds(self) -> dict[str, Bounds]:
        """Implements `Source.bounds`.

        Raises:
            InvalidInputError: the topic lacks a partition of the job (R25).
        """
        return readers.submit(self._bounds).result()

    def first_offsets(self, partitions: Sequence[str], bounds: Mapping[str, Bounds]) -> dict[str, int]:
        """Implements `Source.first_offsets`."""
        found: dict[str, int] = {}
        for name in partitions:
            given = self._given.offsets.get(name, self._given.default_offset)
            offset = self._wanted_offsets.get(name, given)
            moment = time_ms(offset, self._zone)
            if offset == BEGINNING:
                found[name] = bounds[name].earliest
            elif offset == END:
                found[name] = bounds[name].latest
            elif moment is not None:
                at = readers.submit(self._offset_at, name, moment).result()
                found[name] = bounds[name].latest if at is None else at
            else:
                found[name] = int(offset)
        return found

    def pieces(self, spans: Sequence[Span]) -> Iterator[Piece]:
        """Implements `Source.pieces`: each piece is a range of offsets; those of a read fit the driver."""
        ahead: deque[Future[list[Piece]]] = deque()
        try:
            for together in self._together(spans):
                ahead.append(readers.submit(self._read, together))
                if len(ahead) > _READS_AHEAD:
                    yield from self._learned(ahead.popleft().result())
            while ahead:
                yield from self._learned(ahead.popleft().result())
        finally:
            for pieces in ahead:
                pieces.cancel()

    def close(self) -> None:
        """Closes the admin client. The session is shared and ends with the process."""
        with self._admin_lock:
            admin, self._admin = self._admin, None
        if admin is not None:
            error = readers.submit(admin.close).exception()
            if error is not None:
                _log.info("a Kafka admin client cannot be closed: %s", error)  # its JVM is gone, and it too

    # ------------------------------------------------------------------------------------------ reading

    def _cut(self, spans: Sequence[Span]) -> Iterator[Span]:
        for span in spans:
            start = span.start
            while start < span.end:
                end = min(start + self._offsets, span.end)
                yield Span(span.partition, start, end)
                start = end

    def _together(self, spans: Sequence[Span]) -> Iterator[list[Span]]:
        """Yields ranges that are read at once: of different partitions, as large as one piece at most."""
        found: list[Span] = []
        size = 0
        for span in self._cut(spans):
            more = span.end - span.start
            if found and (size + more > self._offsets or found[-1].partition == span.partition):
                yield found
                found, size = [], 0
            found.append(span)
            size += more
        if found:
            yield found

    def _learned(self, pieces: list[Piece]) -> list[Piece]:
        """Sets the offsets of the next pieces by the size of these."""
        size = sum(piece.size for piece in pieces)
        if size:
            each = size / sum(piece.span.end - piece.span.start for piece in pieces)
            self._offsets = round(min(max(_PIECE_BYTES / each, 1), _PIECE_OFFSETS_MAX))
        return pieces

    def _read(self, spans: list[Span]) -> list[Piece]:
        """Reads ranges of different partitions."""
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        places = [place_of(span.partition, self._given.topic) for span in spans]
        for (topic, number), span in zip(places, spans, strict=True):
            starts.setdefault(topic, {})[str(number)] = span.start
            ends.setdefault(topic, {})[str(number)] = span.end
        reader = self._spark.read.format("kafka")
        for name, value in self._client().items():
            reader = reader.option(f"kafka.{name}", value)
        rows = (
            reader.option("kafka.group.id", self._group)
            .option("assign", json.dumps({topic: list(map(int, each)) for topic, each in starts.items()}))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("failOnDataLoss", "true")
            .option("kafkaConsumer.pollTimeoutMs", str(_ANSWER_MS))
            .load()
            .select("topic", "partition", "offset", "value", *(["key"] if self._has_keys else []))
            .toArrow()
        )
        if len(spans) == 1:
            return [self._piece(spans[0], rows)]
        return [
            self._piece(span, rows.filter((pc.field("topic") == topic) & (pc.field("partition") == number)))
            for (topic, number), span in zip(places, spans, strict=True)
        ]

    @property
    def _has_keys(self) -> bool:
        return self._options.is_changes

    def _piece(self, span: Span, rows: pa.Table) -> Piece:
        if np.any(np.diff(rows.column("offset").to_numpy()) < 0):  # Spark promises no order
            rows = rows.sort_by("offset")
        messages = rows.column("value").combine_chunks()
        if self._has_keys:
            keys = rows.column("key").combine_chunks()
            keyed = keyed_messages(keys, messages) if self._avro is None else self._avro.lines(keys, messages)
            bodies = list(change_bodies(keyed, self._options.format, is_multi=self._is_multi))
        else:
            if self._avro is not None:
                messages = self._avro.lines(messages, messages)
            bodies = list(bodies_of(messages, self._options, is_multi=self._is_multi))
        return Piece(span, lambda: bodies, sum(body.size for body in bodies))

    # ------------------------------------------------------------------------------------------ offsets

    def _client(self) -> dict[str, str]:
        return {
            "isolation.level": "read_committed",
            **self._given.client,
            "bootstrap.servers": self._given.brokers,
        }

    def _bounds(self) -> dict[str, Bounds]:
        topics = self._topics()
        told = {name: str(topic.topicId().toString()) for name, topic in topics.items()}
        known = {name: found for name, found in told.items() if found != _NO_ID}
        self._identity = identity_of(self._given.pattern, known)
        found = in_order(
            partition_name(self._given.pattern, name, int(info.partition()))
            for name, topic in topics.items()
            for info in topic.partitions()
        )
        missing = [p for p in self._given.partitions if p not in found]
        if missing:
            raise InvalidInputError(
                f"there is a custom kafka partition {missing[0]} which is invalid for topic "
                f"{self._given.topic}",
                kind="bad_property",
            )
        wanted = self._given.partitions or tuple(found)
        spec = jvm_of(self._spark).org.apache.kafka.clients.admin.OffsetSpec
        first = self._listed(wanted, spec.earliest())
        last = self._listed(wanted, spec.latest())
        return {name: Bounds(first[name], last[name]) for name in wanted}

    def _offset_at(self, partition: str, moment: int) -> int | None:
        """Returns the first message not older than a moment; None when all are."""
        spec = jvm_of(self._spark).org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(moment)
        found = self._listed([partition], spec)[partition]
        return None if found < 0 else found

    def _topics(self) -> dict[str, Any]:
        """Returns the topics as the broker describes them; of a pattern those that there are now.

        Raises:
            SourceUnavailable: the named one is missing, or no broker answers.
        """
        wanted = [self._given.topic]
        if self._given.pattern:
            listed = self._answer(lambda admin: admin.listTopics().names())
            wanted = matching(self._given.pattern, [str(name) for name in listed])
        names = jvm_of(self._spark).java.util.ArrayList()
        for name in wanted:
            names.add(name)
        told = self._answer(lambda admin: admin.describeTopics(names).allTopicNames())
        return {name: told.get(name) for name in wanted}

    def _listed(self, partitions: Sequence[str], spec: Any) -> dict[str, int]:
        """Returns an offset of each partition; the latest one is that of committed messages."""
        jvm = jvm_of(self._spark)
        topic_partition = jvm.org.apache.kafka.common.TopicPartition
        asked = jvm.java.util.HashMap()
        at = {name: topic_partition(*place_of(name, self._given.topic)) for name in partitions}
        for each in at.values():
            asked.put(each, spec)
        level = self._client()["isolation.level"].upper()
        isolation = jvm.org.apache.kafka.common.IsolationLevel.valueOf(level)
        options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(isolation)
        told = self._answer(lambda admin: admin.listOffsets(asked, options).all())
        return {name: int(told.get(each).offset()) for name, each in at.items()}

    def _answer(self, ask: Any) -> Any:
        """Returns the answer of the broker.

        Raises:
            SourceUnavailable: it does not answer, or with an error.
        """
        try:
            return ask(self._open_admin()).get()
        except Exception as error:  # py4j's: of Kafka's classes only the text comes through
            topic = self._given.topic or self._given.pattern
            raise SourceUnavailable(
                f"kafka {self._given.brokers}, topic {topic}: {_reason(error)}", kind="source"
            ) from error

    def _open_admin(self) -> Any:
        with self._admin_lock:
            if self._admin is None:
                jvm = jvm_of(self._spark)
                settings = jvm.java.util.Properties()
                times = {
                    "default.api.timeout.ms": str(_ANSWER_MS),
                    "request.timeout.ms": str(_ANSWER_MS // 2),
                }
                for name, value in {**times, **self._client()}.items():
                    settings.setProperty(name, value)
                self._admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
            return self._admin


def _reason(error: BaseException) -> str:
    """Returns the innermost cause of a Java exception that has a message."""
    found = getattr(error, "java_exception", None)
    if found is None:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    told = found
    while found is not None:
        told = found if found.getMessage() else told
        found = found.getCause()
    return f"{told.getClass().getSimpleName()}: {told.getMessage()}"
