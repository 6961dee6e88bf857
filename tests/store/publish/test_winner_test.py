"""The plan of a load, extended to a later version, against one that is made anew for that version."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Load, Table
from seqstore.store.publish import prepare_write
from seqstore.store.publish.winner_test import Plan, extend_plan, make_plan
from tests.support.rows import MakeTable, rows_of

KEYS = 12
Drawn = list[tuple[int, int | None, int]]


def batch(rows: Drawn) -> pa.Table:
    """Rows as (key, sequence, delete sign)."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(
        {
            "k": pa.array(columns[0], pa.int32()),
            "s": pa.array(columns[1], pa.int32()),
            "__DELETE_SIGN__": pa.array(columns[2], pa.int8()),
        }
    )


def draw(random_of: random.Random) -> Drawn:
    keys = random_of.sample(range(KEYS), random_of.randint(1, KEYS // 2))
    return [(key, random_of.choice([None, 1, 2, 3, 4, 5]), int(random_of.random() < 0.3)) for key in keys]


def prepared(table: Table, rows: Drawn) -> Load:
    load = table.begin_load()
    load.write(batch(rows))
    load.prepare()
    return load


def facts(plan: Plan) -> tuple[Any, ...]:
    """Everything that a plan says, in an order that does not depend on how it was made."""
    hidden = {name: sorted(positions.tolist()) for name, positions in plan.positions().items()}
    return plan.version, hidden, plan.effects(), plan.rows_late, plan.rows_too_late


@pytest.mark.family(12)
@pytest.mark.parametrize("sequence", ["", "s"], ids=["by arrival", "by sequence"])
@pytest.mark.parametrize("seed", range(20))
def test_an_extended_plan_is_the_plan_of_the_later_version(
    make_table: MakeTable, sequence: str, seed: int
) -> None:
    """A row that lost must stay hidden, and rows that other loads hid since count for those loads."""
    random_of = random.Random(seed)
    properties = {"sequence_col": sequence} if sequence else {}
    table = make_table("k INT NOT NULL", "s INT", **properties)
    for _ in range(random_of.randint(1, 3)):
        table.upsert(batch(draw(random_of)))
    load = prepared(table, draw(random_of))
    plan, before = load._writer.prepared.plan, load._writer.prepared.state
    (segment,) = load._writer.segments
    for _ in range(3):
        for _ in range(random_of.randint(1, 2)):
            table.upsert(batch(draw(random_of)))
        now = table.state()
        plan = extend_plan(plan, before, now, segment)
        assert facts(plan) == facts(make_plan(now, [segment])), f"seed {seed}, version {now.version}"
        before = now
    load.abort("the plan was all that mattered")


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Collects the plans that loads extend."""
    plans: list[Plan] = []

    def collect(*arguments: Any) -> Plan:
        plans.append(extend_plan(*arguments))
        return plans[-1]

    monkeypatch.setattr(prepare_write, "extend_plan", collect)
    return plans


def test_a_row_that_lost_stays_hidden_when_its_load_is_overtaken(
    make_table: MakeTable, extended: list[Plan]
) -> None:
    """C18, SO1."""
    table = make_table("k INT NOT NULL", "s INT", sequence_col="s")
    table.upsert(batch([(1, 5, 0), (2, 5, 0)]))
    load = prepared(table, [(1, 4, 0), (2, 6, 0)])
    table.upsert(batch([(3, 1, 0)]))
    result = load.commit()
    assert (result.rows_late, result.rows_replaced) == (1, 1)
    assert rows_of(table) == [(1, 5), (2, 6), (3, 1)]
    assert (len(extended), table.check()) == (1, [])


def test_a_row_that_another_load_hid_is_counted_once(make_table: MakeTable, extended: list[Plan]) -> None:
    table = make_table("k INT NOT NULL", "s INT", sequence_col="s")
    table.upsert(batch([(1, 1, 0), (2, 1, 0)]))
    load = prepared(table, [(1, 3, 0), (2, 3, 0)])
    overtaking = table.upsert(batch([(1, 2, 0)]))
    result = load.commit()
    assert (overtaking.rows_replaced, result.rows_replaced, result.rows_late) == (1, 2, 0)
    assert rows_of(table) == [(1, 3), (2, 3)]
    assert (len(extended), table.check()) == (1, [])
