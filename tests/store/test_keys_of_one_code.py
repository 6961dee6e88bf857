"""NULL and the one BIGINT with its key code are two keys, whatever is done with them (T3)."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import Settings, Table
from seqstore.store.segment.key_codes import encode_keys
from tests.seeds import new_seed
from tests.support.equal_codes import AS_NULL
from tests.support.rows import MakeTable, rows_of
from tests.weight import by_form

pytestmark = pytest.mark.settings(Settings(segment_rows=4, inline_bytes_max=0, clustered_rows_min=3))
KEYS = [None, AS_NULL, 0, -1, 1, -(2**63), 2**63 - 1]


def keys_of(*keys: int | None) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def load(table: Table, rows: dict[int | None, int], **options: str) -> None:
    values = pa.array(rows.values(), pa.int64())
    table.upsert(keys_of(*rows).append_column("v", values), **options)  # type: ignore[arg-type]


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    made = make_table("k BIGINT", "v BIGINT", "w BIGINT")
    codes = encode_keys([pa.array([None, AS_NULL], pa.int64())], exact=False)
    assert codes[0] == codes[1]
    return made


@pytest.mark.parametrize("first", [None, AS_NULL])
def test_a_load_replaces_its_own_key_alone(table: Table, first: int | None) -> None:
    other = AS_NULL if first is None else None
    load(table, {first: 1})
    load(table, {other: 2})
    assert set(rows_of(table)) == {(first, 1, None), (other, 2, None)}
    load(table, {first: 3, other: 4})
    assert set(rows_of(table)) == {(first, 3, None), (other, 4, None)}
    assert table.get(keys_of(first)).to_pylist() == [{"k": first, "v": 3, "w": None}]
    assert table.get(keys_of(other, 5, first))["v"].to_pylist() == [4, 3]
    table.delete(keys_of(first))
    assert rows_of(table) == [(other, 4, None)]
    assert table.check() == []


def test_any_work_on_such_keys_agrees_with_a_dictionary(make_table: MakeTable) -> None:
    for number in range(by_form(3, 40)):
        seed = new_seed()
        drawn = random.Random(seed)
        table = make_table("k BIGINT", "v BIGINT", "w BIGINT", name=f"db.t{number}")
        model: dict[int | None, tuple[int, int | None]] = {}
        for step in range(12):
            keys = drawn.sample(KEYS, drawn.randint(1, len(KEYS)))
            kind = drawn.choice(["whole", "partial", "delete", "optimize", "where"])
            if kind == "whole":
                load(table, dict.fromkeys(keys, step))
                model |= dict.fromkeys(keys, (step, None))
            elif kind == "partial":
                load(table, dict.fromkeys(keys, step), mode="UPDATE_FIXED_COLUMNS")
                model |= {key: (step, model.get(key, (0, None))[1]) for key in keys}
            elif kind == "delete":
                table.delete(keys_of(*keys))
                model = {key: row for key, row in model.items() if key not in keys}
            elif kind == "optimize":
                table.optimize(full=True)
            else:
                table.update({"w": step}, pc.field("k").is_null())
                model |= {None: (model[None][0], step)} if None in model else {}
            assert {key: (v, w) for key, v, w in rows_of(table)} == model, f"seed {seed}, {step}: {kind}"
            found = table.get(keys_of(*KEYS)).to_pylist()
            assert {row["k"]: (row["v"], row["w"]) for row in found} == model, f"seed {seed}, {step}: {kind}"
        assert table.check() == [], f"seed {seed}"
