"""Key indexes and runs: probing and merging find what a plain search does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seqstore.store.segment.key_index import KeyIndex, Matches, Run, merge_runs, probe_runs
from seqstore.store.segment.sequence import SequenceVector

CODES = st.lists(st.integers(0, 30), max_size=20)
# Codes near both ends of the range: bounds must not wrap.
EDGES = st.lists(st.sampled_from([0, 1, 2, 2**63, 2**64 - 2, 2**64 - 1]), max_size=8)


def index_of(codes: list[int], *, sequence: bool = True) -> KeyIndex:
    """Codes given in position order."""
    array = np.array(codes, dtype=np.uint64)
    order = np.argsort(array, kind="stable")
    ordered = array[order]
    repeats = bool((ordered[1:] == ordered[:-1]).any())
    vector = SequenceVector((order.astype(np.int64) * 10,)) if sequence else None
    return KeyIndex(ordered, order.astype(np.uint32), vector, repeats)


def found_by(runs: tuple[Run, ...], probe_keys: list[int]) -> set[tuple[int, int, int]]:
    ordered = np.sort(np.array(probe_keys, dtype=np.uint64))
    matches = probe_runs(runs, ordered, with_sequence=True)
    assert matches.sequence is not None
    assert np.array_equal(matches.sequence.columns[0], matches.positions.astype(np.int64) * 10)
    triples = list(
        zip(matches.probe_keys.tolist(), matches.slots.tolist(), matches.positions.tolist(), strict=True)
    )
    assert len(set(triples)) == len(triples)
    return set(triples)


def expected(
    segments: list[list[int]], probe_keys: list[int], live: set[tuple[int, int]]
) -> set[tuple[int, int, int]]:
    return {
        (i, slot, position)
        for i, needle in enumerate(sorted(probe_keys))
        for slot, codes in enumerate(segments)
        for position, code in enumerate(codes)
        if code == needle and (slot, position) in live
    }


@given(st.lists(CODES | EDGES, max_size=6), CODES | EDGES)
def test_probe_finds_every_row_of_a_code(segments: list[list[int]], probe_keys: list[int]) -> None:
    runs = tuple(Run(index_of(codes), slot) for slot, codes in enumerate(segments))
    everything = {(s, p) for s, codes in enumerate(segments) for p in range(len(codes))}
    assert found_by(runs, probe_keys) == expected(segments, probe_keys, everything)


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 60), max_size=20), st.booleans()), max_size=10),
    st.lists(st.integers(0, 60) | st.sampled_from([2**63, 2**64 - 1]), max_size=40),
    st.booleans(),
)
def test_many_runs_are_probed_as_one_by_one(
    segments: list[tuple[set[int], bool]], probe_keys: list[int], with_sequence: bool
) -> None:
    """Runs without equal codes share their comparisons; some have rows in the order of codes."""
    runs = []
    for slot, (codes, is_ordered) in enumerate(segments):
        index = index_of(sorted(codes, key=lambda code: code if is_ordered else -code % 7))
        runs.append(Run(replace(index, positions=None) if is_ordered else index, slot))
    ordered = np.sort(np.array(probe_keys, dtype=np.uint64))
    together = probe_runs(runs, ordered, with_sequence=with_sequence)
    alone = [run.probe(ordered, with_sequence=with_sequence) for run in runs]
    found = [each for each in alone if each is not None]
    expected = Matches.concatenate(found) if found else Matches.none(with_sequence)
    for name in ("probe_keys", "slots", "positions"):
        assert getattr(together, name).tolist() == getattr(expected, name).tolist()
        assert getattr(together, name).dtype == getattr(expected, name).dtype
    if with_sequence:
        assert together.sequence is not None
        assert together.sequence.columns[0].tolist() == expected.sequence.columns[0].tolist()  # type: ignore[union-attr]
    else:
        assert together.sequence is None


@given(st.lists(CODES, max_size=28), CODES, st.sets(st.tuples(st.integers(0, 27), st.integers(0, 19))))
def test_merged_runs_find_the_live_rows(
    segments: list[list[int]], probe_keys: list[int], dead: set[tuple[int, int]]
) -> None:
    def is_live(slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return np.array(
            [(s, p) not in dead for s, p in zip(slots.tolist(), positions.tolist(), strict=True)], bool
        )

    runs = merge_runs([Run(index_of(codes), slot) for slot, codes in enumerate(segments)], is_live)
    assert len(runs) <= max(8, len(segments) // 2)
    assert {slot for run in runs for slot in run.members} == set(range(len(segments)))
    found = {triple for triple in found_by(runs, probe_keys) if triple[1:] not in dead}
    everything = {(s, p) for s, codes in enumerate(segments) for p in range(len(codes))}
    assert found == expected(segments, probe_keys, everything - dead)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.booleans())
def test_an_index_survives_its_file(codes: list[int], sequence: bool) -> None:
    index = index_of(codes, sequence=sequence)
    sink = pa.BufferOutputStream()
    batch = index.to_arrow()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    again = KeyIndex.read(sink.getvalue())
    assert np.array_equal(again.codes, index.codes)
    assert np.array_equal(again.row_positions(slice(None)), index.row_positions(slice(None)))
    assert again.has_equal_codes == index.has_equal_codes
    assert (again.sequence is None) == (not sequence)
