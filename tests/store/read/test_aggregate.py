"""Counts and extremes from zone maps are those of the rows a scan returns, mostly told without reading."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import Settings, Store, Table
from seqstore.store.expressions.condition import Condition
from seqstore.store.read import aggregate
from seqstore.store.read.live_segment import project
from tests.support.rows import schema_of

_SIZES = Settings(
    inline_bytes_max=3_000, batch_rows_max=16, clustered_rows_min=32, segment_rows=100, auto_compaction=0
)
_DAY = date(2024, 1, 1)


pytestmark = pytest.mark.settings(_SIZES)


def rows(keys: list[int], random: np.random.Generator) -> pa.Table:
    def maybe(make: Callable[[int], Any], share: float) -> list[Any]:
        return [None if random.random() < share else make(int(random.integers(0, 60))) for _ in keys]

    return pa.table(
        {
            "k": pa.array(keys, pa.int32()),
            "t": [f"{'x' * 61 if key % 3 else ''}{key:05d}" for key in keys],
            "a": pa.array(maybe(int, float(random.choice([0.0, 0.3, 1.0]))), pa.int64()),
            "d": pa.array(maybe(lambda i: _DAY + timedelta(i), 0.1), pa.date32()),
            "n": pa.array(maybe(lambda i: Decimal(i) / 4, 0.0), pa.decimal128(9, 2)),
        }
    )


def filled(store: Store, random: np.random.Generator) -> Table:
    schema = schema_of(
        "k INT NOT NULL", "t VARCHAR(90)", "a BIGINT", "d DATE", "n DECIMAL(9,2)", key=["k", "t"]
    )
    table = store.create_table("db.t", schema)
    for _ in range(int(random.integers(1, 7))):
        low, count = int(random.integers(0, 300)), int(random.integers(1, 200))
        keys = random.permutation(np.arange(low, low + count)).tolist()
        table.upsert(rows(keys, random), merge_type="DELETE" if random.random() < 0.3 else "APPEND")
    return table


def any_condition(random: np.random.Generator) -> Condition:
    number = int(random.integers(-2, 62))
    column, value = [
        ("k", pa.scalar(number * 8, pa.int32())),
        ("t", pa.scalar(f"{number * 8:05d}")),
        ("t", pa.scalar(f"{'x' * 61}{number * 8:05d}")),
        ("a", pa.scalar(number, pa.int64())),
        ("d", pa.scalar(_DAY + timedelta(number))),
        ("n", pa.scalar(Decimal(number) / 4, pa.decimal128(9, 2))),
    ][random.integers(0, 6)]
    sign = str(random.choice(["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"]))
    if sign == "in":
        return Condition(column, sign, (value, value))
    return Condition(column, sign, () if "null" in sign else (value,))


@pytest.mark.family(2)
@pytest.mark.parametrize("seed", range(5))
def test_counts_and_extremes_are_those_of_the_rows_scanned(store: Store, seed: int) -> None:
    random = np.random.default_rng(seed)
    with filled(store, random).snapshot() as snapshot:
        for number in range(30):
            conditions = [any_condition(random) for _ in range(number % 3)]
            parts = [condition.expression for condition in conditions]
            scanned = snapshot.scan(
                filter=reduce(operator.and_, parts) if parts else None, deleted=number % 5 == 0
            ).read_all()
            options = {"deleted": number % 5 == 0}
            assert snapshot.count(conditions, **options) == scanned.num_rows, conditions
            for column in scanned.column_names:
                if not snapshot.has_bounds(column):
                    assert column == "t", "only texts are cut"
                    continue
                extremes = pc.min_max(scanned[column])
                for largest, name in ((False, "min"), (True, "max")):
                    found = snapshot.extreme(column, conditions, largest=largest, **options)
                    assert found == extremes[name], (conditions, column, name)


def test_batches_within_the_bounds_are_counted_without_being_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(store.path, settings=replace(_SIZES, inline_bytes_max=1, segment_rows=1_000))
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v BIGINT"))
    table.upsert(pa.table({"k": np.arange(1_000), "v": np.arange(1_000) * 2}))
    table.delete({"k": list(range(0, 1_000, 10))})
    read: list[int] = []

    def spy(live: Any, number: int, *more: Any) -> pa.RecordBatch:
        read.append(number)
        return project(live, number, *more)

    monkeypatch.setattr(aggregate, "project", spy)
    with table.snapshot() as snapshot:
        assert snapshot.count([Condition("v", ">=", (pa.scalar(0),))]) == 900
        assert read == []
        between = [
            Condition("k", ">=", (pa.scalar(105, pa.int32()),)),
            Condition("v", "<", (pa.scalar(1_500),)),
        ]
        assert snapshot.count(between) == 645 - 64
        assert len(read) <= 4, "the batches at the two ends, of rows and of tombstones"
        read.clear()
        assert snapshot.extreme("k", (), largest=False).as_py() == 1
        assert snapshot.extreme("v", (), largest=True).as_py() == 1_998
        assert len(read) <= 4
