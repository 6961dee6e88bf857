"""Compaction ends: what it writes is whole, so a table without new loads is not written again and again.

A table of wide rows was: a merge is cut at `segment_bytes_max`, and what had fewer rows than half of
`segment_rows` counted as small.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqstore import Settings, Table
from seqstore.store.maintenance.compaction_policy import is_tiny
from seqstore.store.maintenance.scheduler import maintain
from tests.support.rows import MakeTable
from tests.weight import by_form

LIMITS = Settings(
    segment_rows=1000,
    segment_bytes_max=50_000,
    batch_rows_max=100,
    inline_bytes_max=0,
    tombstone_retention_seconds=0,
)
ROUNDS_MAX = 20
NUMBERS = itertools.count()

pytestmark = [pytest.mark.maintenance, pytest.mark.settings(LIMITS)]


def load(table: Table, first: int, rows: int, width: int) -> None:
    # not the same text in each row, so that a codec leaves some of it
    texts = [f"{key * 2654435761 % 2**32:010}" * (width // 10) for key in range(first, first + rows)]
    table.upsert(pa.table({"k": list(range(first, first + rows)), "v": texts}))


def rounds_until_rest(table: Table) -> int:
    for number in range(ROUNDS_MAX):
        if not maintain(table):
            return number
    raise AssertionError(f"it goes on after {ROUNDS_MAX} rounds")


# 50 kB are 500, 84 and 25 rows: whole, less than half and less than a tenth of 1,000
@pytest.mark.family(3)
@pytest.mark.parametrize("width", [100, 600, 2000])
@pytest.mark.parametrize("kind", ["arrow", "zstd", "parquet"])
def test_a_table_of_wide_rows_comes_to_rest(make_table: MakeTable, kind: str, width: int) -> None:
    properties = {"arrow": {}, "zstd": {"compression": "zstd"}, "parquet": {"storage_format": "parquet"}}[
        kind
    ]
    table = make_table("k BIGINT NOT NULL", "v STRING", disable_auto_compaction="true", **properties)
    for number in range(30):
        load(table, number * 40, 40, width)
    assert rounds_until_rest(table) > 0
    assert table.count() == 1200
    assert table.check() == []


def test_a_second_optimize_of_wide_rows_has_nothing_to_do(make_table: MakeTable) -> None:
    table = make_table("k BIGINT NOT NULL", "v STRING", disable_auto_compaction="true")
    for number in range(20):
        load(table, number * 20, 20, 600)
    assert table.optimize().made_version
    assert not table.optimize().made_version


@pytest.mark.settings(replace(LIMITS, segment_growth=1))
def test_many_old_tombstones_come_to_rest(make_table: MakeTable) -> None:
    """Segments of nothing but tombstones were merged whenever there were more than ten, however large."""
    table = make_table("k BIGINT NOT NULL", "v STRING", "s BIGINT", sequence_col="s")
    keys = list(range(15_000))
    table.upsert(pa.table({"k": keys, "v": ["x"] * len(keys), "s": [1] * len(keys)}))
    table.delete(pa.table({"k": keys, "s": [2] * len(keys)}))
    table.optimize(full=True)
    guards = [live.segment.meta for live in table.state().segments.values()]
    assert len(guards) > 10
    assert all(meta.tombstones == meta.rows for meta in guards)
    rounds_until_rest(table)
    late = pa.table({"k": [7], "v": ["late"], "s": [1]})
    assert table.upsert(late).rows_late == 1
    assert table.check() == []


def test_a_tiny_segment_is_tiny_in_rows_and_in_bytes(make_table: MakeTable) -> None:
    table = make_table("k BIGINT NOT NULL", "v STRING", disable_auto_compaction="true")
    for first, rows, width in ((0, 20, 100), (20, 20, 1000), (40, 200, 10)):
        load(table, first, rows, width)
    live = sorted(table.state().segments.values(), key=lambda each: each.slot)
    assert [is_tiny(each, LIMITS) for each in live] == [True, False, False]


@given(
    st.lists(st.tuples(st.integers(1, 300), st.sampled_from([10, 100, 500, 3000])), min_size=1, max_size=25),
    st.integers(1, 9),
)
@settings(
    max_examples=by_form(10, 100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_loads_and_deletes_come_to_rest(
    make_table: MakeTable, loads: list[tuple[int, int]], every: int
) -> None:
    name = f"db.t{next(NUMBERS)}"
    table = make_table("k BIGINT NOT NULL", "v STRING", name=name, disable_auto_compaction="true")
    count = 0
    for rows, width in loads:
        load(table, count, rows, width)
        count += rows
    gone = list(range(0, count, every))
    table.delete(pa.table({"k": gone}))
    rounds_until_rest(table)
    assert table.count() == count - len(gone)
    assert table.check() == []
