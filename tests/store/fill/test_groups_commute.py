"""Loads of tables with column groups commute: any order, any split, any way of bringing the same events.

The end is compared with registers in plain dictionaries, to which the events were applied in another order.
"""

from __future__ import annotations

import itertools
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqstore import Settings, Store
from tests.support.groups.group_events import (
    EXACT,
    FIXED,
    FLEXIBLE,
    HASHED,
    KEEP_NULLS,
    ROWS,
    WIDE,
    Event,
    GroupShape,
    assert_agrees,
    parts,
)
from tests.support.groups.group_model import DELETE_SIGN
from tests.weight import by_form

_POOLS: dict[str, list[Any]] = {
    "s": [None, -(2**63), -1, 0, 1, 2**63 - 1],
    "t": [None, date(1, 1, 1), date(2024, 2, 29)],
    "u": [None, -(2**31), 0, 5],
    "p": [None, -(2**127), -1, 2**64, 2**127 - 1],
    "q": [None, 1, 2, 3, 4],
    "r": [None, -5, 2**40, -(2**63)],
}
SIZES = st.builds(
    Settings,
    catalog_bytes_max=st.just(2**28),
    inline_bytes_max=st.sampled_from([1, 2**18]),
    segment_rows=st.sampled_from([2, 1_000_000]),
    batch_rows_max=st.sampled_from([1, 65_536]),
    clustered_rows_min=st.sampled_from([2, 262_144]),
)
WAYS = st.sampled_from([FLEXIBLE, FIXED, ROWS, WIDE, KEEP_NULLS])
_serial = itertools.count()


@st.composite
def events_of(draw: st.DrawFn, shape: GroupShape) -> list[Event]:
    """Events no two of which have the same sequence for a group of a key."""
    made: list[Event] = []
    used: set[Any] = set()
    for number in range(draw(st.integers(1, 14))):
        key = draw(st.sampled_from(shape.keys))
        event: dict[str, Any] = dict(zip(shape.key_names, key, strict=True))
        for index in draw(st.sets(st.integers(0, len(shape.groups) - 1), min_size=1)):
            group = shape.groups[index]
            sequence = tuple(draw(st.sampled_from(_POOLS[name])) for name in group.sequence)
            if (key, index, sequence) in used:
                continue
            used.add((key, index, sequence))
            has_sequence = any(value is not None for value in sequence)
            event |= dict(zip(group.sequence, sequence, strict=True))
            for name in group.cells:
                is_null = has_sequence and draw(st.booleans())
                value = f"v{number}" if name in ("b", "y") else number
                event[name] = None if is_null else value
        if len(event) > len(key):
            if draw(st.integers(0, 3)) == 0:
                event[DELETE_SIGN] = 1
            made.append(event)
    return made


@st.composite
def splits(draw: st.DrawFn, events: list[Event]) -> list[list[Event]]:
    """The events in another order, cut into runs."""
    mixed = draw(st.permutations(events))
    ends = sorted(draw(st.sets(st.integers(1, max(len(mixed), 1)), max_size=4)) | {len(mixed)})
    return [mixed[start:end] for start, end in itertools.pairwise([0, *ends]) if start < end]


@pytest.mark.family(1)
@pytest.mark.parametrize("storage_format", ["arrow", "parquet"])
@pytest.mark.parametrize("shape", [EXACT, HASHED], ids=["exact keys", "hashed keys"])
@settings(
    max_examples=by_form(30, 300),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_order_and_any_split_of_events_end_in_the_same_table(
    shape: GroupShape, storage_format: str, tmp_path: Path, data: st.DataObject
) -> None:
    """SM4-SM6, with deletes, NULL sequences and partial updates; loads one after the other or overlapping;
    with tombstones purged at once, or kept (K3, K4)."""
    events = data.draw(events_of(shape), label="events")
    path, sizes = tmp_path / "data", data.draw(SIZES, label="sizes")
    with Store.open(path, settings=sizes) as store:
        store.create_database("db", if_not_exists=True)
        name = f"db.t{next(_serial)}"
        properties = {"storage_format": storage_format, "tombstone_retention_seconds": "0"}
        table = store.create_table(name, shape.schema(**properties))
        purged = data.draw(st.booleans(), label="purged")
        loads = [
            part
            for run in data.draw(splits(events), label="split")
            for part in parts(run, data.draw(WAYS, label="way"), shape)
        ]
        if data.draw(st.booleans(), label="overlapping"):
            opened = []
            for way, rows in loads:
                load = way.begin(table)
                way.write(load, table.schema, rows)
                load.prepare()
                opened.append(load)
            for load in data.draw(st.permutations(opened), label="commits"):
                load.commit()
                if purged:
                    table.purge()
        else:
            for way, rows in loads:
                with way.begin(table) as load:
                    way.write(load, table.schema, rows)
                    load.commit()
                if purged:
                    table.purge()
        assert not purged or not table.purge().made_version
    model = shape.model()
    model.apply(events)
    with Store.open(path, create=False) as store:
        assert_agrees(store.table(name), model, purged=purged)
