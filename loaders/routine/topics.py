"""The topics of a job: one by name, or all that a pattern matches, those that are made later too (R39).

Partitions of a topic by name are called by their numbers, those of a pattern `<topic>-<number>`. The identity
of a topic is its id; that of a pattern are the ids of all topics it has ever matched, as a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError

PATTERN: Final = "kafka_topic_pattern"


def partition_name(pattern: str, topic: str, number: int) -> str:
    """Returns the name of a partition.

    Args:
        pattern: of the job, empty where it has one topic.
    """
    return f"{topic}-{number}" if pattern else str(number)


def place_of(name: str, topic: str) -> tuple[str, int]:
    """Returns the topic and the number of a partition.

    Args:
        topic: of the job, empty where it has a pattern.
    """
    if topic:
        return topic, int(name)
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def in_order(names: Iterable[str]) -> list[str]:
    """Returns names of partitions: by topic, then by number."""
    return sorted(names, key=lambda name: (name.rpartition("-")[0], int(name.rpartition("-")[2])))


def matching(pattern: str, topics: Collection[str]) -> list[str]:
    """Returns the topics whose whole name a regular expression matches, in order.

    Raises:
        InvalidInputError: it is none; the expressions are those of re2, which no name makes slow.
    """
    names = pa.array(sorted(topics), pa.string())
    try:
        return [
            str(name)
            for name in names.filter(pc.match_substring_regex(names, rf"\A(?:{pattern})\z")).to_pylist()
        ]
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"{PATTERN}: expected a regular expression (re2), found {pattern[:200]!r}: {error}",
            kind="bad_property",
        ) from error


def identity_of(pattern: str, ids: Mapping[str, str]) -> str:
    """Returns the identity of topics with ids; empty where the broker tells none."""
    told = {topic: found for topic, found in sorted(ids.items()) if found}
    return json.dumps(told) if pattern else "".join(told.values())


def recreated(before: str, now: str, partitions: Iterable[str]) -> set[str]:
    """Returns the partitions of topics that were deleted and created again.

    Args:
        before, now: identities, empty while unknown.
    """
    if not before or not now or before == now:
        return set()
    if not _is_many(now):
        return set(partitions)
    old, new = json.loads(before), json.loads(now)
    changed = {topic for topic, found in new.items() if old.get(topic, found) != found}
    return {name for name in partitions if place_of(name, "")[0] in changed}


def joined(before: str, now: str) -> str:
    """Returns the identity to keep: topics that are gone now may come back as others."""
    if not _is_many(now) or not before:
        return now or before
    return json.dumps({**json.loads(before), **json.loads(now)})


def without(identity: str, partitions: Iterable[str]) -> str:
    """Returns an identity without the topics of partitions, whose offsets are no longer those of before."""
    if not _is_many(identity):
        return identity
    gone = {place_of(name, "")[0] for name in partitions}
    return json.dumps({topic: found for topic, found in json.loads(identity).items() if topic not in gone})


def _is_many(identity: str) -> bool:
    return identity.startswith("{")
