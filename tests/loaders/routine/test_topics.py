"""R39: the names of partitions, and topics by pattern. Brokers are another test's business."""

from __future__ import annotations

import re

import pytest

from seqstore import InvalidInputError
from seqstore.loaders.routine.kafka_properties import kafka_properties
from seqstore.loaders.routine.topics import (
    identity_of,
    in_order,
    joined,
    matching,
    partition_name,
    place_of,
    recreated,
    without,
)
from seqstore.store.sql import Session
from tests.support.statements import dicts

PATTERN = {"kafka_broker_list": "a:9092", "kafka_topic_pattern": r"shop\.public\..*"}


def test_a_pattern_matches_whole_names() -> None:
    found = matching("shop[.](a|b)", ["shop.b", "shop.a", "shop.ab", "my.shop.a", "shopxa"])
    assert found == ["shop.a", "shop.b"]


def test_a_pattern_that_takes_long_elsewhere_takes_no_time() -> None:
    assert matching("(a+)+b", ["a" * 60]) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kafka_topic_pattern": "shop("}, "kafka_topic_pattern: expected a regular expression (re2)"),
        ({"kafka_topic": "shop"}, "expected kafka_topic or kafka_topic_pattern, found both"),
        ({"kafka_topic_pattern": " "}, "kafka_topic is a required property"),
        ({"kafka_partitions": "0"}, "expected different names such as topic-0,topic-1, found '0'"),
        ({"kafka_partitions": "a-0,a-0"}, "expected different names such as topic-0,topic-1"),
    ],
)
def test_wrong_patterns_are_refused(changed: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        kafka_properties({**PATTERN, **changed})


def test_topics_of_a_pattern_begin_at_their_beginning() -> None:
    assert kafka_properties(PATTERN).default_offset == "OFFSET_BEGINNING"
    given = {**PATTERN, "property.kafka_default_offsets": "OFFSET_END"}
    assert kafka_properties(given).default_offset == "OFFSET_END"


def test_a_job_of_a_pattern_has_no_list_of_partitions(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="kafka_partitions belongs to kafka_topic"):
        dicts(
            session,
            "CREATE ROUTINE LOAD job PROPERTIES ('format' = 'debezium_json') FROM KAFKA "
            "('kafka_broker_list' = '127.0.0.1:1', 'kafka_topic_pattern' = 't', 'kafka_partitions' = 't-0')",
        )


@pytest.mark.parametrize(("pattern", "topic"), [("", "t"), ("t.*", "t-1.a-b")])
def test_a_partition_is_known_by_its_name(pattern: str, topic: str) -> None:
    name = partition_name(pattern, topic, 12)
    assert place_of(name, "" if pattern else topic) == (topic, 12)


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    assert in_order(["10", "9"]) == ["9", "10"]
    assert in_order(["b-0", "a-10", "a-9"]) == ["a-9", "a-10", "b-0"]


def test_one_recreated_topic_of_many_is_told_from_the_others() -> None:
    before = identity_of("t.*", {"t1": "x", "t2": "y"})
    partitions = ["t1-0", "t1-1", "t2-0", "t3-0"]
    assert recreated(before, before, partitions) == set()
    now = identity_of("t.*", {"t1": "z", "t2": "y", "t3": "n"})
    assert recreated(before, now, partitions) == {"t1-0", "t1-1"}
    assert recreated(before, identity_of("t.*", {"t2": "y"}), partitions) == set()
    assert recreated("x", "y", ["0", "1"]) == {"0", "1"}


def test_a_topic_that_is_gone_is_remembered() -> None:
    """so that a later one of its name is another one"""
    kept = joined(identity_of("t.*", {"t1": "x", "t2": "y"}), identity_of("t.*", {"t2": "y"}))
    assert recreated(kept, identity_of("t.*", {"t1": "new", "t2": "y"}), ["t1-0", "t2-0"]) == {"t1-0"}
    assert recreated(without(kept, ["t1-0"]), identity_of("t.*", {"t1": "new"}), ["t1-0"]) == set()
