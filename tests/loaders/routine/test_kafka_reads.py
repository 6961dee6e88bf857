"""The ranges of offsets that a task of a Kafka job reads at once."""

from __future__ import annotations

import pytest

from seqstore.loaders.routine import kafka_source
from seqstore.loaders.routine.kafka_source import KafkaSource
from seqstore.loaders.routine.source import Span

A, B, C = Span("a-0", 0, 6), Span("b-0", 5, 8), Span("c-1", 1, 2)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (10, [[A, B, C]]),
        (9, [[A, B], [C]]),
        (6, [[A], [B, C]]),
        (4, [[Span("a-0", 0, 4)], [Span("a-0", 4, 6)], [B, C]]),
        (1, [[Span(s.partition, at, at + 1)] for s in (A, B, C) for at in range(s.start, s.end)]),
    ],
)
def test_small_ranges_of_different_partitions_are_one_read(limit: int, expected: list[list[Span]]) -> None:
    source = KafkaSource.__new__(KafkaSource)  # what it is made with needs Spark
    source._offsets = limit
    assert list(source._together([A, B, C])) == expected


def test_a_read_is_no_larger_than_a_piece() -> None:
    source = KafkaSource.__new__(KafkaSource)
    source._offsets = kafka_source._PIECE_OFFSETS
    spans = [Span(f"t-{number}", 0, 3_000) for number in range(10)]
    sizes = [sum(span.end - span.start for span in together) for together in source._together(spans)]
    assert max(sizes) <= kafka_source._PIECE_OFFSETS
    assert sum(sizes) == 30_000
