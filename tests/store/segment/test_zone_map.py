"""Zone maps prune batches, never rows: a filtered scan is a full scan, then filtered (SO12)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqstore import Settings, Store, TableSchema
from seqstore.store.segment.zone_map import Pruner, ZoneMap, ZoneMapBuilder
from tests.support.filter_text import needs_cut_text
from tests.support.rows import schema_of
from tests.weight import by_form

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int32(), st.integers(-4, 4) | st.sampled_from([-(2**31), 2**31 - 1])),
    "b": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1])),
    "n": (pa.decimal256(39, 0), st.sampled_from([-(2**127), -1, 0, 10**30, 2**127 - 1]).map(Decimal)),
    "m": (pa.decimal128(9, 2), st.sampled_from(["-1.50", "0.00", "0.01", "9999999.99"]).map(Decimal)),
    "f": (pa.float64(), st.sampled_from([-math.inf, -0.0, 0.0, 1.5, math.inf, math.nan])),
    "g": (pa.float32(), st.sampled_from([-1.5, 0.1, math.nan])),
    "d": (pa.date32(), st.sampled_from([date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)])),
    "t": (pa.timestamp("us"), st.sampled_from([datetime.min, datetime(1970, 1, 1), datetime.max])),
    "s": (
        pa.string(),
        st.sampled_from(["", "a", "é" * 40, "é" * 40 + "b", "z" * 64, "z" * 65, "\U0010ffff" * 30]),
    ),
    "o": (pa.bool_(), st.booleans()),
}
SCHEMA = pa.schema([(name, arrow) for name, (arrow, _) in VALUES.items()])
CELLS = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in VALUES.items()})


@dataclass(frozen=True)
class Filter:
    """A filter to be built in the test: the text of an Arrow expression, which a failing example would be
    told with, cannot always be had."""

    kind: str
    name: str = ""
    value: Any = None
    parts: tuple[Filter, ...] = ()

    def build(self) -> pc.Expression:
        if self.parts:
            return JOINS[self.kind](*(part.build() for part in self.parts))
        return TESTS[self.kind](pc.field(self.name), self.scalar)

    @property
    def scalar(self) -> pa.Scalar:
        return pa.scalar(self.value, VALUES[self.name][0])


JOINS: dict[str, Callable[..., pc.Expression]] = {
    "and": lambda left, right: left & right,
    "or": lambda left, right: left | right,
    "not": lambda left, _: ~left,
}
TESTS: dict[str, Callable[[pc.Expression, pa.Scalar], pc.Expression]] = {
    "=": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
    "in": lambda field, value: field.isin([value]),
    "in many": lambda field, value: field.isin([value] * 12),
    "null": lambda field, _: field.is_null(),
    "valid": lambda field, _: field.is_valid(),
    "not null": lambda field, _: ~field.is_null(),
    "itself": lambda field, _: field,
    "not itself": lambda field, _: ~field,
    "nan": lambda field, _: field.is_nan(),
    "null or nan": lambda field, _: pc.is_null(field, nan_is_null=True),
    "sum": lambda field, _: pc.add(field, 1) == 2,
    "in with null": lambda field, _: pc.is_in(field, pa.array([0, None], pa.int32())),
}
COMMON = ["=", "!=", "<", "<=", ">", ">=", "in", "in many", "null", "valid", "not null"]
TESTS_OF = dict.fromkeys(VALUES, COMMON) | {
    "o": ["itself", "not itself", "null"],
    "f": [*COMMON, "nan", "null or nan"],
    "g": [*COMMON, "nan", "null or nan"],
    "i": [*COMMON, "sum", "in with null"],
}


@st.composite
def filters(draw: st.DrawFn, depth: int = 2) -> Filter:
    if depth and draw(st.booleans()):
        parts = draw(filters(depth=depth - 1)), draw(filters(depth=depth - 1))
        return Filter(draw(st.sampled_from(sorted(JOINS))), parts=parts)
    name = draw(st.sampled_from(sorted(VALUES)))
    value = draw(VALUES[name][1].filter(lambda value: value == value))
    return Filter(draw(st.sampled_from(TESTS_OF[name])), name, value)


def zones_of(batches: list[pa.RecordBatch], key: list[str]) -> ZoneMap:
    builder = ZoneMapBuilder(batches[0].schema, key)
    assert list(builder.seen(batches)) == batches
    return builder.zones


@settings(
    max_examples=by_form(80, 600), deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
@given(
    st.lists(st.lists(CELLS, min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(filters(), min_size=1, max_size=8),
)
def test_a_pruned_batch_holds_no_matching_row(batches: list[list[Any]], tests: list[Filter]) -> None:
    arrow = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in batches]
    zones = msgpack.unpackb(msgpack.packb(zones_of(arrow, ["s"])))  # as the catalog keeps them
    pruner = Pruner(zones, {name: name for name in SCHEMA.names}, SCHEMA, len(arrow))
    for test in tests:
        predicate = test.build()
        kept = set(pruner.matching(predicate))
        for i, batch in enumerate(arrow):
            matching = pa.Table.from_batches([batch]).filter(predicate).num_rows
            assert not matching or i in kept, f"{test} matches {matching} rows of {batch.to_pylist()}"


@pytest.mark.parametrize(
    "compare", [pc.less, pc.less_equal, pc.greater, pc.greater_equal, pc.equal, pc.not_equal]
)
def test_comparing_with_nan_prunes_nothing_that_matches(compare: Any) -> None:
    """A comparison with NaN is false whatever the range, so that its negation holds for every row."""
    batch = pa.RecordBatch.from_pylist([{"f": 0.5}], schema=pa.schema([("f", pa.float64())]))
    pruner = Pruner(zones_of([batch], []), {"f": "f"}, batch.schema, 1)
    test = compare(pc.field("f"), pa.scalar(math.nan))
    many = pc.field("f").isin([*range(20), math.nan, *range(20)])  # Arrow leaves out the middle of its text
    for predicate in (test, ~test, many, ~many):
        if pa.Table.from_batches([batch]).filter(predicate).num_rows:
            assert pruner.matching(predicate) == [0], str(predicate)


def test_a_name_with_nan_in_it_is_no_nan() -> None:
    batches = [pa.record_batch({"finance": [i]}) for i in range(3)]
    pruner = Pruner(zones_of(batches, []), {"finance": "finance"}, batches[0].schema, 3)
    assert pruner.matching(pc.field("finance") == 1) == [1]


@needs_cut_text
def test_a_filter_whose_text_cannot_be_had_prunes_nothing() -> None:
    batches = [pa.record_batch({"s": [text]}) for text in "abc"]
    pruner = Pruner(zones_of(batches, ["s"]), {"s": "s"}, batches[0].schema, 3)
    assert pruner.matching(pc.field("s").isin(["b", "\U0010ffff" * 30])) == [0, 1, 2]


@pytest.mark.parametrize("storage_format", ["arrow", "parquet"])
def test_zone_maps_prune_most_batches_of_a_clustered_table(tmp_path: Path, storage_format: str) -> None:
    sizes = Settings(inline_bytes_max=1, batch_rows_max=10, clustered_rows_min=1)
    with Store.open(tmp_path / "data", settings=sizes) as store:
        store.create_database("db")
        table = store.create_table(
            "db.t", schema_of("k BIGINT NOT NULL", "v INT", storage_format=storage_format)
        )
        table.upsert(pa.table({"k": list(range(1000)), "v": list(range(1000))}))
        segment = next(iter(table.state().segments.values())).segment
        assert segment.pruner(table.schema).matching(pc.field("k") == 555) == [55]
        assert table.scan(filter=pc.field("k") == 555).read_all().to_pylist() == [{"k": 555, "v": 555}]


def test_guarantees_of_many_sets_of_columns(tmp_path: Path) -> None:
    """Those of a few are kept; what is pruned depends on none of them."""
    names = [f"c{number}" for number in range(12)]
    batches = [pa.record_batch({name: [at, at + 1] for name in names}) for at in (0, 10, 20)]
    pruner = Pruner(zones_of(batches, []), {name: name for name in names}, batches[0].schema, 3)
    for _ in range(2):
        for one, other in itertools.pairwise(names):
            both = (pc.field(one) > 5) & (pc.field(other) < 15)
            assert pruner.matching(both) == [1]
            assert pruner.matching(pc.field(one) == 20) == [2]


def test_a_filter_on_a_column_that_is_not_asked_for(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "at DATETIME(6)"))
        start = datetime(2024, 1, 1)
        table.upsert(pa.table({"k": [1, 2, 3], "at": [start, start + timedelta(days=1), None]}))
        found = table.scan(["k"], pc.field("at") > pa.scalar(start, pa.timestamp("us"))).read_all()
        assert found.to_pylist() == [{"k": 2}]


def test_a_filter_whose_text_arrow_cuts_inside_a_character_works(tmp_path: Path) -> None:
    words = ["a" * n + "é" * 100 for n in range(4)]
    with Store.open(tmp_path) as store:
        store.create_database("db")
        table = store.create_table("db.t", TableSchema.from_arrow(pa.schema([("s", pa.string())]), ["s"]))
        table.upsert(pa.table({"s": words}))
        for word in words:
            found = table.scan(filter=pc.is_in(pc.field("s"), pa.array([word, "b"]))).read_all()
            assert found["s"].to_pylist() == [word]


def test_a_batch_with_nan_has_no_bounds() -> None:
    """NaN would stand in the statistics of a Delta log, which is no JSON then."""
    schema = pa.schema({"f": pa.float64()})
    builder = ZoneMapBuilder(schema, [])
    batches = [pa.record_batch({"f": values}, schema) for values in ([1.0, math.nan], [1.0, 2.0])]
    assert list(builder.seen(batches)) == batches
    assert builder.zones == {"f": [None, [1.0, 2.0, False]]}
