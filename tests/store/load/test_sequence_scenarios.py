"""Scenarios 35 and 36: what a sequence promises, whatever the order of arrival."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from seqstore import Column, Store, Table, TableSchema, parse_type
from tests.seeds import new_seed

Event = tuple[int, int]  # sequence, value


def make(store: Store, name: str = "db.t") -> Table:
    columns = [
        Column("k", parse_type("INT"), nullable=False),
        Column("s", parse_type("INT")),
        Column("v", parse_type("INT")),
    ]
    properties = {"function_column.sequence_col": "s"}
    return store.create_table(name, TableSchema.create(columns, ["k"], properties=properties))


def put(table: Table, *events: Event) -> None:
    sequences, values = zip(*events, strict=True)
    table.upsert(
        pa.table(
            {
                "k": pa.array([1] * len(events), pa.int32()),
                "s": pa.array(sequences, pa.int32()),
                "v": pa.array(values, pa.int32()),
            }
        )
    )


def shown(table: Table) -> list[tuple[int, int]]:
    return [(row["s"], row["v"]) for row in table.scan().read_all().to_pylist()]


@pytest.mark.parametrize("ties", [False, True])
def test_35_twelve_upserts_in_any_order_and_split_end_in_one_row(store: Store, ties: bool) -> None:
    """The larger sequence wins; of equal ones the row that came later, by version, then by its row."""
    seed = new_seed()
    print("seed", seed)
    chosen = random.Random(seed)
    events = [(number // 2 if ties else number, 100 + number) for number in range(12)]
    for number in range(40):
        table = make(store, f"db.t{number}")
        order = chosen.sample(events, len(events))
        cuts = sorted(chosen.sample(range(1, 12), chosen.randrange(4)))
        for low, high in zip([0, *cuts], [*cuts, 12], strict=True):
            put(table, *order[low:high])
        largest = max(sequence for sequence, _ in events)
        last = [event for event in order if event[0] == largest][-1]
        assert shown(table) == [last], (order, cuts)
        store.drop_table(table.name)


@pytest.mark.parametrize("compacts", [False, True])
def test_36_a_deleted_key_stays_away_until_a_larger_sequence(store: Store, compacts: bool) -> None:
    table = make(store)
    put(table, (5, 50))
    table.delete(pa.table({"k": pa.array([1], pa.int32())}))
    put(table, (3, 30))
    assert shown(table) == []
    if compacts:
        assert table.optimize(full=True).made_version
        assert table.purge() is not None
    put(table, (4, 40))
    assert shown(table) == []
    put(table, (6, 60))
    assert shown(table) == [(6, 60)]
