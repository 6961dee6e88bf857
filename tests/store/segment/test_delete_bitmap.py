"""Delete bitmaps: the chain of records gives what uniting all additions does, at every version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqstore.store.catalog.version_record import hidden_of, hidden_record
from seqstore.store.segment.delete_bitmap import (
    DeleteVector,
    HiddenRows,
    are_live,
    bitmap_of,
    chain,
    children,
    positions_of,
    span,
    unite,
)


def positions(rows: set[int]) -> np.ndarray:
    return np.array(list(rows), dtype=np.uint32)


def as_sets(hidden: HiddenRows) -> dict[str, set[int]]:
    return {name: set(positions_of(rows).tolist()) for name, rows in hidden.items()}


@pytest.mark.parametrize("version", [*range(1, 140), 511, 512, 513, 4095, 4096, 4097, 32768])
def test_chain_and_children_cover_each_version_once(version: int) -> None:
    covered = [v for link in chain(version) for v in range(link - span(link) + 1, link + 1)]
    assert sorted(covered) == list(range(1, version + 1))
    below = [v for link in children(version) for v in range(link - span(link) + 1, link + 1)]
    assert sorted(below) == list(range(version - span(version) + 1, version))


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.sets(st.integers(0, 70_000), max_size=5), max_size=3),
        min_size=1,
        max_size=80,
    )
)
def test_reading_the_chain_is_uniting_everything(additions: list[dict[str, set[int]]]) -> None:
    """Records go through their bytes, as in the catalog."""
    stored: dict[int, dict[str, bytes]] = {}
    union: dict[str, set[int]] = {}
    for version, addition in enumerate(additions, start=2):  # the first load makes version 2 (X4)
        own = {name: bitmap_of(positions(rows)) for name, rows in addition.items() if rows}
        parts = [own, *(hidden_of(stored[v]) for v in children(version) if v in stored)]
        record = unite(parts)
        if record:
            stored[version] = hidden_record(record)
        for name, rows in addition.items():
            if rows:
                union.setdefault(name, set()).update(rows)
        assert as_sets(unite(hidden_of(stored[v]) for v in chain(version) if v in stored)) == union


@given(
    st.integers(1, 3_000),
    st.lists(st.tuples(st.sets(st.integers(0, 2_999), max_size=400), st.booleans()), max_size=8),
    st.data(),
)
def test_a_delete_vector_is_a_set_of_rows(
    rows: int, steps: list[tuple[set[int], bool]], data: st.DataObject
) -> None:
    vector, hidden = DeleteVector(rows), set[int]()
    everything = np.arange(rows, dtype=np.uint32)
    earlier: list[tuple[DeleteVector, set[int]]] = []
    for step, is_looked_at in steps:
        chosen = {row for row in step if row < rows}
        earlier.append((vector, set(hidden)))
        all_live = not chosen & hidden and data.draw(st.booleans())
        vector = vector.hide(positions(chosen), all_live=all_live)
        hidden |= chosen
        assert (vector.hidden, vector.live_count) == (len(hidden), rows - len(hidden))
        assert vector.is_live(everything).tolist() == [row not in hidden for row in range(rows)]
        if is_looked_at:
            assert set(vector.hidden_positions().tolist()) == hidden
    for before, was in data.draw(st.permutations(earlier)):
        assert vector.hidden_since(before).tolist() == sorted(hidden - was)
        assert before.hidden_positions().tolist() == sorted(was), "vectors are values"
    start = data.draw(st.integers(0, rows - 1))
    length = data.draw(st.integers(0, rows - start))
    mask = vector.live_mask(start, length)
    shown = [True] * length if mask is None else mask.to_pylist()
    assert shown == [row not in hidden for row in range(start, start + length)]


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 99)), st.sets(st.integers(0, 99)))))
def test_rows_of_several_segments_are_live_as_in_each(
    segments: list[tuple[bool, set[int], set[int]]],
) -> None:
    vectors = [
        DeleteVector(100).hide(positions(hidden)) if is_there else None for is_there, hidden, _ in segments
    ]
    asked = [positions(rows) for _, _, rows in segments]
    bounds = np.cumsum([0, *map(len, asked)]).tolist()
    together = are_live(vectors, bounds, np.concatenate([positions(set()), *asked]))
    expected = [
        vector is not None and row not in hidden
        for vector, rows, (_, hidden, _) in zip(vectors, asked, segments, strict=True)
        for row in rows.tolist()
    ]
    assert together.tolist() == expected
