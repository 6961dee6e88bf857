"""The changes of a table as messages of a Kafka topic, each exactly once for readers of committed messages.

A range of versions is one transaction of Kafka, with the position behind it: a message in the compacted topic
`seqstore-positions`, whose key is the table and the topic. A follower that is killed leaves an open
transaction, which the next one ends (`transactional.id`), so it begins behind the last committed position.
Two followers of one table and topic cannot write side by side: the later one fences the earlier one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from seqstore.store.errors import ConflictError, InvalidInputError, UnavailableError
from seqstore.store.runtime.secrets.references import is_reference, read_secret

if TYPE_CHECKING:
    from seqstore.loaders.changes.outgoing import OutgoingChanges

POSITIONS: Final = "seqstore-positions"
_ANSWER_SECONDS: Final = 30.0
_OPEN_SECONDS: Final = 60.0  # a transaction of a follower that lives holds a position for less
_TRANSACTION_MS: Final = 900_000
_OWN: Final = frozenset(
    ["bootstrap.servers", "transactional.id", "enable.idempotence", "isolation.level", "group.id"]
)
_log: Final = logging.getLogger(__name__)


class OutTopic:
    """A topic and the position of the last committed transaction; close it after use.

    Args:
        outgoing: the changes that it gets.
        brokers: `host:port`, several with commas between.
        topic: made where there is none, with the broker's defaults.
        properties: of librdkafka; a value may be `env:NAME` or `file:/path`.
        waiting: called with what the topic waits for before it can be written.

    Raises:
        UnavailableError: the package confluent-kafka is not installed, the brokers do not answer, or another
            follower that was killed has left a transaction open.
        InvalidInputError: a property is refused, or the topic has the changes of another table or form.
    """

    def __init__(
        self,
        outgoing: OutgoingChanges,
        brokers: str,
        topic: str,
        properties: Mapping[str, str],
        waiting: Callable[[str], None] = _log.info,
    ) -> None:
        try:
            import confluent_kafka as client
        except ImportError as error:
            raise UnavailableError(
                "--kafka needs the extra kafka: pip install 'seqstore[kafka]'", kind="no_kafka"
            ) from error
        self._client: Any = client
        self._topic = topic
        self._waiting = waiting
        self._name = f"{outgoing.table.name} to {topic}"
        self._mark = {"table_id": outgoing.table.id, "format": outgoing.form.value}
        self._settings = {"bootstrap.servers": brokers, "log_level": 0, **_checked(properties)}
        own = {"transactional.id": f"seqstore {self._name}", "partitioner": "murmur2_random"}
        try:
            self._make_topics()
            self._producer = client.Producer(
                {**self._settings, **own, "transaction.timeout.ms": _TRANSACTION_MS}
            )
            self._producer.init_transactions(_ANSWER_SECONDS)
            self.last = self._position()
        except client.KafkaException as error:
            raise self._unavailable(error) from error

    def write(self, first: int, last: int, lines: Iterator[str]) -> None:
        """Writes the changes of versions, and the position, in one transaction.

        Args:
            first: for the interface of all targets.
            lines: the message's key, a tab and its value.

        Raises:
            ConflictError: another follower has taken over.
            UnavailableError: the brokers do not answer; nothing of the transaction is visible.
        """
        try:
            self._producer.begin_transaction()
            for line in lines:
                key, _, value = line.partition("\t")
                self._produce(self._topic, key or None, value)
            self._produce(POSITIONS, self._name, json.dumps({**self._mark, "version": last}))
            self._commit()
        except self._client.KafkaException as error:
            if not error.args[0].fatal():
                self._abort()
            raise self._unavailable(error) from error
        except BaseException:
            self._abort()  # the lines ended early
            raise
        self.last = last

    def close(self) -> None:
        """Ends the connection."""
        with suppress(self._client.KafkaException):  # a producer that was fenced repeats it
            self._producer.flush(0)

    def _produce(self, topic: str, key: str | None, value: str) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key)
            except BufferError:  # its queue is full
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(_ANSWER_SECONDS)
                return
            except self._client.KafkaException as error:
                if not error.args[0].retriable():
                    raise
                _log.info("%s: the commit is asked for again: %s", self._name, error.args[0].str())

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(_ANSWER_SECONDS)
        except self._client.KafkaException as error:
            _log.info("%s: the transaction cannot be aborted: %s", self._name, error.args[0].str())

    def _make_topics(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self._settings)
        known = admin.list_topics(timeout=_ANSWER_SECONDS).topics
        wanted = [NewTopic(self._topic), NewTopic(POSITIONS, 1, config={"cleanup.policy": "compact"})]
        missing = [each for each in wanted if each.topic not in known]
        for future in admin.create_topics(missing).values() if missing else ():
            try:
                future.result(_ANSWER_SECONDS)
            except self._client.KafkaException as error:
                if error.args[0].code() != self._client.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _position(self) -> int | None:
        """Returns the last version that was written, None before the first one.

        The brokers report the end of the partition already where the first open transaction begins, that of
        another follower that was killed. Committed positions may follow it, so the end is asked for.
        """
        kafka, found = self._client, None
        reader = self._reader("read_committed")
        try:
            end = self._end()
            at: int | None = None if end else 0  # the end that the brokers reported last
            reader.assign([kafka.TopicPartition(POSITIONS, 0, kafka.OFFSET_BEGINNING)])
            while at is None or at < end:
                message = self._next(reader, at, end)
                error = message.error()
                if error is not None and error.code() == kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001
                    at = message.offset()
                elif error is not None:
                    raise kafka.KafkaException(error)
                else:
                    at = None
                    if message.key() == self._name.encode() and message.value() is not None:
                        found = message.value().decode()
        finally:
            reader.close()
        return None if found is None else self._version(json.loads(found))

    def _reader(self, isolation: str) -> Any:
        given = {"isolation.level": isolation, "enable.partition.eof": True, "group.id": POSITIONS}
        return self._client.Consumer({**self._settings, **given, "enable.auto.commit": False})

    def _end(self) -> int:
        """Returns the offset behind all positions, those of open transactions among them."""
        from confluent_kafka.admin import AdminClient, OffsetSpec

        place = self._client.TopicPartition(POSITIONS, 0)
        admin = AdminClient(self._settings)  # a client without a name ends, and never answers
        asked = admin.list_offsets(
            {place: OffsetSpec.latest()},
            isolation_level=self._client.IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_ANSWER_SECONDS,
        )
        return int(asked[place].result().offset)

    def _next(self, reader: Any, at: int | None, end: int) -> Any:
        """Returns the next message or event of a reader of positions.

        Args:
            at: where the reader has met an open transaction, None while further messages come.
            end: the offset that it has to reach.

        Raises:
            UnavailableError: the brokers do not answer, or the transaction stays open.
        """
        message = reader.poll(_ANSWER_SECONDS if at is None else 0)
        if at is not None and message is None:
            owner = self._owner(at)
            self._waiting(
                f"the end of the open transaction of {owner}, which hides {end - at} offsets of {POSITIONS}"
            )
            message = reader.poll(_OPEN_SECONDS)
            if message is None:
                raise UnavailableError(
                    f"changes of {self._name}: the last position cannot be read, because the transaction "
                    f"of {owner} is open in {POSITIONS}; start that follower again, which ends it, or try "
                    f"again later: brokers end it by themselves {_TRANSACTION_MS // 60_000} minutes after "
                    "its begin",
                    kind="open_transaction",
                )
        if message is None:
            raise UnavailableError(
                f"changes of {self._name}: {POSITIONS} cannot be read in {_ANSWER_SECONDS:g} s", kind="kafka"
            )
        return message

    def _owner(self, offset: int) -> str:
        """Returns the follower whose position is the first at an offset or behind it."""
        reader = self._reader("read_uncommitted")
        try:
            reader.assign([self._client.TopicPartition(POSITIONS, 0, offset)])
            message = reader.poll(_ANSWER_SECONDS)
            is_known = message is not None and message.error() is None and message.key() is not None
            return message.key().decode("utf-8", "replace") if is_known else "another follower"
        finally:
            reader.close()

    def _version(self, position: Mapping[str, Any]) -> int:
        if {name: position.get(name) for name in self._mark} != self._mark:
            raise InvalidInputError(
                f"topic {self._topic} has the changes of another table {self._name.partition(' ')[0]} or in "
                f"format {position.get('format')}; choose another topic",
                kind="other_table",
            )
        return int(position["version"])

    def _unavailable(self, error: Any) -> UnavailableError | ConflictError:
        codes, reason = self._client.KafkaError, error.args[0]
        if reason.code() == codes._FATAL:  # noqa: SLF001 - the producer has ended before; `poll` tells why
            try:
                self._producer.poll(0)
            except self._client.KafkaException as cause:
                reason = cause.args[0]
        if reason.code() in (codes._FENCED, codes.INVALID_PRODUCER_EPOCH, codes.PRODUCER_FENCED):  # noqa: SLF001
            return ConflictError(f"changes of {self._name}: another follower has taken over", kind="fenced")
        return UnavailableError(f"changes of {self._name}: {reason.str()}", kind="kafka")


def _checked(properties: Mapping[str, str]) -> dict[str, str]:
    for name in properties:
        if name in _OWN:
            raise InvalidInputError(
                f"--kafka-property {name}: it is set by this command, so nothing is lost or twice",
                kind="bad_property",
            )
    return {
        name: read_secret(name, value, [value]) if is_reference(value) else value
        for name, value in properties.items()
    }
