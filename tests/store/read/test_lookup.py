"""Look-ups by hashed keys return the rows of a model, whatever codes collide and rows are deleted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Settings, Store, Table
from tests.support.equal_codes import keep_bits
from tests.support.rows import schema_of
from tests.weight import by_form

Key = tuple[str | None, int | None]


def _keys(numbers: list[int]) -> list[Key]:
    texts = [None if n % 7 == 0 else f"{'long ' * (n % 40)}{n}" for n in numbers]
    return [(text, None if n % 5 == 0 else n % 3) for text, n in zip(texts, numbers, strict=True)]


def _table(keys: list[Key], **columns: list[int]) -> pa.Table:
    texts, numbers = pa.array([k[0] for k in keys], pa.string()), pa.array([k[1] for k in keys], pa.int32())
    return pa.table({"t": texts, "n": numbers, **columns})


def _filled(store: Store, random: np.random.Generator) -> tuple[Table, dict[Key, int]]:
    table = store.create_table("db.t", schema_of("t VARCHAR(300)", "n INT", "v INT", key=["t", "n"]))
    model: dict[Key, int] = {}
    for _ in range(6):
        keys = list(dict.fromkeys(_keys(random.integers(0, 400, 150).tolist())))
        if random.random() < 0.3:
            table.delete(_table(keys))
            model = {key: value for key, value in model.items() if key not in set(keys)}
            continue
        values = random.integers(0, 1000, len(keys)).tolist()
        table.upsert(_table(keys, v=values))
        model.update(zip(keys, values, strict=True))
    return table, model


def _found(table: Table, keys: list[Key], columns: list[str] | None, **options: Any) -> list[tuple[Any, ...]]:
    rows = table.get(_table(keys), columns, **options)
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@pytest.mark.settings(Settings(inline_bytes_max=900, batch_rows_max=16, auto_compaction=0))
@pytest.mark.parametrize("bits", [64, 6], ids=["codes", "codes-that-collide"])
@pytest.mark.parametrize("seed", range(by_form(3, 20)))
def test_lookups_of_hashed_keys_return_the_rows_of_the_model(
    store: Store, seed: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bits < 64:
        keep_bits(monkeypatch, bits)
    random = np.random.default_rng(seed)
    table, model = _filled(store, random)
    for count in (1, 1, 1, 2, 5, 300):
        keys = _keys(random.integers(0, 500, count).tolist())
        expected = [(*key, model[key]) for key in keys if key in model]
        assert _found(table, keys, None) == expected
        assert _found(table, keys, ["v"]) == [row[2:] for row in expected]
        assert _found(table, keys, ["v", "T"]) == [(row[2], row[0]) for row in expected]
        signs = _found(table, keys, ["__DELETE_SIGN__", "v"], deleted=True)
        assert [row[1] for row in signs if not row[0]] == [row[2] for row in expected]


def test_a_key_is_found_among_no_rows_and_no_keys(store: Store) -> None:
    table = store.create_table("db.t", schema_of("t VARCHAR(300)", "n INT", "v INT", key=["t", "n"]))
    assert _found(table, [("a", 1)], None) == []
    table.upsert(_table([("a", 1)], v=[7]))
    assert _found(table, [("b", 1)], None) == []
    assert table.get(_table([])).num_rows == 0
    assert table.get(_table([("a", 1)])).schema.equals(table.scan().schema)
