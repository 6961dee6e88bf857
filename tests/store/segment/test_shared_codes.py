"""Codes that several segments of a load have, and plans made with them: the same as without."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqstore import Settings, Store, Table
from seqstore.store.publish import winner_test as resolve
from seqstore.store.segment.key_index import KeyIndex
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.shared_codes import only_codes, shared_codes
from tests.seeds import new_seed
from tests.support.rows import rows_of, schema_of

EDGES = st.sampled_from([0, 1, 2**63, 2**64 - 2, 2**64 - 1])


def index_of(codes: list[int]) -> KeyIndex:
    ordered = np.sort(np.array(codes, dtype=np.uint64))
    order = np.arange(len(codes), dtype=np.uint32)[::-1].copy()
    return KeyIndex(ordered, order, SequenceVector((order.astype(np.int64),)))


@given(st.lists(st.lists(st.integers(0, 40) | EDGES, max_size=30), min_size=1, max_size=6), st.integers(1, 8))
def test_codes_that_occur_twice_are_found_whatever_the_slices(segments: list[list[int]], size: int) -> None:
    counts = Counter(code for codes in segments for code in codes)
    expected = sorted(code for code, count in counts.items() if count > 1)
    assert shared_codes([index_of(codes) for codes in segments], size).tolist() == expected


@given(st.lists(st.integers(0, 30), max_size=30), st.sets(st.integers(0, 30)))
def test_an_index_of_some_codes_tells_the_same_rows(codes: list[int], wanted: set[int]) -> None:
    whole = index_of(codes)
    part = only_codes(whole, np.array(sorted(wanted), dtype=np.uint64))
    kept = np.isin(whole.codes, np.array(sorted(wanted), dtype=np.uint64))
    assert part.codes.tolist() == whole.codes[kept].tolist()
    assert part.row_positions(slice(None)).tolist() == whole.row_positions(slice(None))[kept].tolist()
    assert part.sequence is not None
    assert part.sequence.columns[0].tolist() == part.row_positions(slice(None)).tolist()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    settings = Settings(auto_compaction=0)
    with (
        Store.open(tmp_path / "a", settings=settings) as one,
        Store.open(tmp_path / "b", settings=settings) as other,
    ):
        yield one, other


@pytest.mark.parametrize("sequence", ["", "seq"])
def test_a_load_of_many_segments_ends_as_one_that_compares_all(
    stores: tuple[Store, Store], sequence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SO1, SO11: rows, figures and hidden rows, with keys that many, two and one of the writes have."""
    seed = new_seed(10**6)
    outcomes = []
    for store, compared_whole in zip(stores, (2, 10**6), strict=True):
        monkeypatch.setattr(resolve, "_COMPARED_WHOLE_MAX", compared_whole)
        store.create_database("db")
        properties = {"sequence_col": sequence} if sequence else {}
        table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "seq INT", **properties))
        metrics = [_load(table, random.Random(seed + number), number) for number in range(3)]
        outcomes.append((metrics, rows_of(table)))
        assert table.check() == []
    assert outcomes[0] == outcomes[1], f"seed {seed}"


def _load(table: Table, rng: random.Random, number: int) -> dict[str, int]:
    with table.begin_load() as load:
        for write in range(9):
            keys = [rng.randrange(60) for _ in range(20)] + [10_000 + 100 * number + write]
            seqs = [rng.randrange(5) for _ in keys]
            load.write(pa.table({"k": keys, "seq": pa.array(seqs, pa.int32())}))
        result = load.commit()
    return {name: value for name, value in result.__dict__.items() if name.startswith("rows_")}
