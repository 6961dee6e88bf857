"""ALTER ROUTINE LOAD ... FROM KAFKA: new offsets, brokers, topic, client properties (R29)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.kafka_properties import kafka_properties, with_group
from seqstore.loaders.routine.topics import PATTERN, without
from seqstore.store.errors import InvalidInputError

_OFFSETS: Final = frozenset(["kafka_partitions", "kafka_offsets"])
_TOPICS: Final = ("kafka_topic", PATTERN)


def with_kafka(job: RoutineJob, given: Mapping[str, str]) -> RoutineJob:
    """Returns a job with changed source properties.

    Raises:
        InvalidInputError: a value is impossible, or the job does not read the partition.
    """
    before = job.spec.source_properties
    if any(name in given and given[name] != before.get(name, "") for name in _TOPICS):
        kept = {name: value for name, value in _without_offsets(before).items() if name not in _TOPICS}
        changed = _with_source(job, {**kept, **given})
        return replace(changed, source_id="", progress={}, latest={}, wanted_offsets={})
    changed = _with_source(job, {**before, **_without_offsets(given)})
    wanted = _wanted_offsets(changed, given)
    progress = {name: offset for name, offset in job.progress.items() if name not in wanted}
    numbers = {name: int(offset) for name, offset in wanted.items() if offset.isdigit()}
    words = {name: offset for name, offset in wanted.items() if not offset.isdigit()}
    return replace(
        changed,
        # A statement with offsets for every partition may mean a topic that was recreated.
        source_id=without(job.source_id, wanted) if progress else "",
        progress={**progress, **numbers},
        wanted_offsets={**job.wanted_offsets, **words},
    )


def _with_source(job: RoutineJob, properties: Mapping[str, str]) -> RoutineJob:
    source = with_group(job.name, properties)
    kafka_properties(source, job.database_id)
    return replace(job, spec=replace(job.spec, source_properties=source))


def _without_offsets(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in _OFFSETS}


def _wanted_offsets(job: RoutineJob, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the offsets of a statement by partition; each partition must be one that the job reads."""
    blank = dict.fromkeys(_OFFSETS, "")
    offsets = kafka_properties({**job.spec.source_properties, **blank, **given}).offsets
    if not offsets and _OFFSETS & given.keys():
        raise InvalidInputError(
            "kafka_partitions and kafka_offsets are altered together, one offset for each partition",
            kind="bad_property",
        )
    wanted = dict(offsets)
    for name in wanted:
        if name not in job.progress and name not in job.wanted_offsets:
            raise InvalidInputError(
                f"The specified partition {name} is not in the consumed partitions", kind="bad_property"
            )
    return wanted
