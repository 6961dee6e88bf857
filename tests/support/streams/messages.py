"""Reads all messages of topics whose names begin alike."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

Message = tuple[bytes | None, bytes | None]


def ends_of(brokers: str, topics: str) -> dict[str, int]:
    """The next offset of each partition, as `<topic>-<number>`."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "ends", "log_level": 0})
    try:
        found = consumer.list_topics(timeout=60).topics
        return {
            f"{name}-{number}": consumer.get_watermark_offsets(TopicPartition(name, number), timeout=60)[1]
            for name, topic in found.items()
            if name.startswith(topics)
            for number in topic.partitions
        }
    finally:
        consumer.close()


def messages_of(brokers: str, topics: str, without: tuple[str, ...] = ()) -> list[Message]:
    """Key and value of each message, by partition in order.

    Args:
        without: beginnings of names of partitions that are left out.
    """
    ends = {name: end for name, end in ends_of(brokers, topics).items() if not name.startswith(without)}
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "again", "log_level": 0})
    found: list[Message] = []
    deadline = time.monotonic() + 300
    try:
        for name, end in ends.items():
            topic, _, number = name.rpartition("-")
            consumer.assign([TopicPartition(topic, int(number), 0)])
            at = 0
            while at < end:
                assert time.monotonic() < deadline, f"{name} ends at {end}, read {at}"
                for message in consumer.consume(1000, 1):
                    if message.error() is None:
                        found.append((message.key(), message.value()))
                        at = message.offset() + 1
    finally:
        consumer.close()
    return found
