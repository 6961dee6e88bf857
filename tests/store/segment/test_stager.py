"""Staging: rows in several pieces, segments of several code ranges."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Store
from seqstore.store.check.row_checker import pieces_of
from seqstore.store.schema.column import DELETE_SIGN
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.segment.stager import Staged, Stager
from seqstore.store.settings import Settings
from tests.support.rows import schema_of

SCHEMA = schema_of("k VARCHAR(20)", "v BIGINT", "t VARCHAR(9)", sequence_col="v")


def checked(rows: int, rng: np.random.Generator) -> CheckedRows:
    keys = [None if key == 0 else f"key-{key}" for key in rng.integers(0, 700, rows).tolist()]
    columns = [keys, rng.integers(0, 5, rows), [f"t{i}" for i in rng.integers(0, 99_999, rows).tolist()]]
    visible = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA.arrow)
    return CheckedRows(visible, pa.array((rng.random(rows) < 0.1).astype(np.int8)))


def winners(staged: Staged) -> list[tuple[object, ...]]:
    """All stored rows, sorted."""
    batches = [segment.batch(i) for segment in staged.segments for i in range(segment.batches)]
    rows = [{DELETE_SIGN: 0, **row} for batch in batches for row in batch.to_pylist()]
    return sorted(((row["k"], row["v"], row["t"], row[DELETE_SIGN]) for row in rows), key=repr)


def expected(pieces: list[CheckedRows]) -> list[tuple[object, ...]]:
    best: dict[object, tuple[Any, ...]] = {}
    for piece in pieces:
        signs = piece.signs.to_pylist() if piece.signs is not None else []
        for row, sign in zip(piece.visible.to_pylist(), signs, strict=True):
            if row["k"] not in best or row["v"] >= best[row["k"]][1]:
                best[row["k"]] = (*row.values(), sign)
    return sorted(best.values(), key=repr)


@pytest.mark.parametrize("sizes", [[900], [1, 0, 899], [300, 300, 300], [5] * 50])
@pytest.mark.parametrize("segment_rows", [50, 10_000])
def test_pieces_give_the_winners_of_all_rows_in_input_order(
    tmp_path: Path, sizes: list[int], segment_rows: int
) -> None:
    rng = np.random.default_rng(len(sizes))
    settings = Settings(
        inline_bytes_max=1, segment_rows=segment_rows, batch_rows_max=64, clustered_rows_min=100
    )
    with Store.open(tmp_path) as store:
        store.create_database("db")
        table = store.create_table("db.t", SCHEMA)
        stager = Stager(SCHEMA, table.loader.disk, table.loader.directory, settings)
        pieces = [checked(size, rng) for size in sizes]
        staged = stager.stage(*pieces)
        assert winners(staged) == expected(pieces)
        assert staged.superseded == sum(sizes) - len(expected(pieces))
        assert (len(staged.segments) > 1) == (sum(sizes) > 1.5 * segment_rows)
        ranges = [(codes.min(), codes.max()) for codes in (s.index.codes for s in staged.segments)]
        assert all(high < low for (_, high), (low, _) in itertools.pairwise(ranges))
        for segment in staged.segments:
            assert np.array_equal(segment.read_index().codes, segment.index.codes)


def test_large_chunks_are_pieces_of_their_own_and_small_ones_are_gathered() -> None:
    sizes = [200_000, 3, 50_000, 100_000, 2**20 + 1, 7]
    starts = np.cumsum([0, *sizes])
    table = pa.concat_tables(
        [pa.table({"a": np.arange(low, low + size)}) for low, size in zip(starts, sizes, strict=False)]
    )
    pieces = list(pieces_of(table))
    assert [len(piece) for piece in pieces] == [200_000, 50_003, 100_000, 2**20, 8]
    assert pa.concat_tables(pieces).equals(table)
    assert [len(piece) for piece in pieces_of(table.slice(0, 0))] == [0]


def test_rejected_rows_of_later_pieces_keep_their_number(tmp_path: Path) -> None:
    rows = 300_000
    values = np.arange(rows).astype(str).tolist()
    bad = [5, 140_000, rows - 1]
    for row in bad:
        values[row] = "no number"
    with Store.open(tmp_path) as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of("k BIGINT", "v BIGINT"))
        data = pa.table({"k": np.arange(rows), "v": values})
        data = pa.concat_tables([data.slice(0, 150_000), data.slice(150_000)])
        result = table.upsert(data, max_filter_ratio=0.5)
        assert [row.row for row in result.rejected] == bad
        assert (result.rows_total, result.rows_loaded, table.count()) == (rows, rows - 3, rows - 3)
