"""`compression = auto`: segments are written as they are read fastest, and compressed when they are old."""

from __future__ import annotations

import pyarrow as pa
import pytest

from seqstore import Settings, Store, Table
from seqstore.store.ddl.alter import alter, set_properties
from seqstore.store.maintenance import compaction_policy
from seqstore.store.maintenance.scheduler import maintain
from seqstore.store.segment.load_marker import made_at
from seqstore.store.segment.segment import INLINE
from tests.support.rows import MakeTable

pytestmark = [
    pytest.mark.maintenance,
    pytest.mark.settings(Settings(segment_rows=1000, batch_rows_max=100, inline_bytes_max=0)),
]


@pytest.fixture
def ages(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How many seconds earlier than it was a segment seems to have been made, by its id."""
    given: dict[str, float] = {}
    monkeypatch.setattr(compaction_policy, "made_at", lambda made: made_at(made) - given.get(made, 0))
    return given


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    return make_table("k BIGINT NOT NULL", "v INT", compression="auto", disable_auto_compaction="true")


def load(table: Table, first: int, rows: int = 1000) -> None:
    table.upsert(pa.table({"k": list(range(first, first + rows)), "v": [first] * rows}))


def codecs(table: Table) -> list[str]:
    return sorted(live.segment.meta.compression for live in table.state().segments.values())


def grow_old(table: Table, ages: dict[str, float], seconds: float = 3600) -> None:
    ages.update((live.segment.meta.id, seconds) for live in table.state().segments.values())


def rows_of(table: Table) -> dict[int, int]:
    found = table.scan(["k", "v"]).read_all().to_pydict()
    return dict(zip(found["k"], found["v"], strict=True))


def test_old_segments_are_compressed_once_and_young_ones_are_not(
    table: Table, ages: dict[str, float]
) -> None:
    for number in range(3):
        load(table, number * 1000)
    grow_old(table, ages)
    load(table, 3000)
    before = rows_of(table)
    assert codecs(table) == ["none"] * 4
    maintain(table)
    assert codecs(table) == ["none", "zstd", "zstd", "zstd"]
    assert rows_of(table) == before
    assert maintain(table) == [], "what is compressed stays as it is"
    assert table.check() == []


def test_the_age_is_a_property_of_the_table(table: Table, ages: dict[str, float]) -> None:
    load(table, 0)
    grow_old(table, ages, 60)
    assert maintain(table) == []
    alter(table, [set_properties({"compression_cold_seconds": "60"})])
    maintain(table)
    assert codecs(table) == ["zstd"]


def test_a_merge_compresses_when_all_of_its_inputs_are_old_or_compressed(
    table: Table, ages: dict[str, float]
) -> None:
    load(table, 0)
    grow_old(table, ages)
    table.optimize(full=True)
    assert codecs(table) == ["zstd"]
    load(table, 1000)
    table.optimize(full=True)
    assert codecs(table) == ["none", "none"], "one of them was young"
    grow_old(table, ages)
    maintain(table)
    load(table, 500, 600)
    assert codecs(table) == ["none", "zstd", "zstd"]
    expected = {k: 0 if k < 500 else 500 if k < 1100 else 1000 for k in range(2000)}
    assert rows_of(table) == expected
    maintain(table)  # more than 30 % of both compressed segments are dead
    assert rows_of(table) == expected
    assert "zstd" in codecs(table)
    assert table.check() == []


@pytest.mark.parametrize("chosen", ["default", "none", "lz4", "zstd"])
def test_other_tables_keep_what_they_were_given(
    make_table: MakeTable, ages: dict[str, float], chosen: str
) -> None:
    table = make_table("k BIGINT NOT NULL", "v INT", compression=chosen, disable_auto_compaction="true")
    load(table, 0)
    grow_old(table, ages)
    assert maintain(table) == []
    assert codecs(table) == [chosen.replace("default", "none")]


def test_auto_of_a_table_that_has_rows_compresses_them(make_table: MakeTable, ages: dict[str, float]) -> None:
    table = make_table("k BIGINT NOT NULL", "v INT", disable_auto_compaction="true")
    load(table, 0)
    grow_old(table, ages)
    alter(table, [set_properties({"compression": "auto"})])
    maintain(table)
    assert codecs(table) == ["zstd"]
    alter(table, [set_properties({"compression": "none"})])
    assert maintain(table) == [], "only a rewrite for another reason undoes it"


def test_parquet_is_compressed_from_the_start(make_table: MakeTable) -> None:
    table = make_table("k BIGINT NOT NULL", "v INT", compression="auto", storage_format="parquet")
    load(table, 0)
    assert codecs(table) == ["zstd"]


@pytest.mark.settings(Settings(segment_rows=1000))
def test_tiny_segments_stay_in_the_catalog(
    store: Store, make_table: MakeTable, ages: dict[str, float]
) -> None:
    table = make_table("k BIGINT NOT NULL", "v INT", compression="auto")
    load(table, 0, 10)
    store.maintainer.wait()
    grow_old(table, ages)
    assert maintain(table) == []
    assert [live.segment.meta.home for live in table.state().segments.values()] == [INLINE]
