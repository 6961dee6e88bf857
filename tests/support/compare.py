"""A table against its model: everything a reader can ask, at one version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from seqstore import Table, TableSchema
from seqstore.store.schema.column import DELETE_SIGN, SEQUENCE_COL, VERSION_COL
from tests.support.model import Key, Model, ModelRow

# key -> (visible values or None for tombstones, sequence, sign, version)
Seen = dict[Key, tuple[Any, ...]]


def expected_rows(model: Model, version: int, *, deleted: bool) -> Seen:
    """The model's rows in comparable form. Value cells of tombstones are free (D10), so they are left out."""
    rows = model.at(version) if deleted else model.live(version)
    return {key: _facts(row) for key, row in rows.items()}


def _facts(row: ModelRow) -> tuple[Any, ...]:
    visible = None if row.sign else tuple(sorted(row.values.items()))
    return visible, row.sequence, row.sign, row.version


def seen_rows(rows: pa.Table, schema: TableSchema) -> Seen:
    """Scanned rows, hidden columns included; fails when a key comes twice (T1)."""
    seen: Seen = {}
    for row in rows.to_pylist():
        key = tuple(row[name] for name in schema.key)
        assert key not in seen, f"key {key} has two rows"
        sign, version, sequence = row.pop(DELETE_SIGN), row.pop(VERSION_COL), row.pop(SEQUENCE_COL, None)
        seen[key] = (None if sign else tuple(sorted(row.items())), sequence, sign, version)
    return seen


def assert_version(table: Table, model: Model, version: int, pool: Iterable[Key] = ()) -> None:
    """Scan, scan with tombstones, count and look-ups of a version agree with the model."""
    with table.snapshot(version) as snapshot:
        scanned = snapshot.scan(hidden=True, deleted=True).read_all()
        assert seen_rows(scanned, table.schema) == expected_rows(model, version, deleted=True)
        live = expected_rows(model, version, deleted=False)
        assert seen_rows(snapshot.scan(hidden=True).read_all(), table.schema) == live
        assert snapshot.count() == len(live)
        wanted = [*pool, *pool]
        if wanted:
            keys = key_table(table.schema, wanted)
            found = snapshot.get(keys, hidden=True)
            present = [key for key in wanted if key in live]
            assert [tuple(row[name] for name in model.key) for row in found.to_pylist()] == present
            once = found.slice(0, len(live.keys() & set(pool)))
            assert seen_rows(once, table.schema) == {key: live[key] for key in pool if key in live}
            every = snapshot.get(key_table(table.schema, list(pool)), hidden=True, deleted=True)
            stored = expected_rows(model, version, deleted=True)
            assert seen_rows(every, table.schema) == {key: stored[key] for key in pool if key in stored}


def key_table(schema: TableSchema, keys: list[Key]) -> pa.Table:
    """Keys as an Arrow table of the key columns."""
    columns = {
        column.name: pa.array([key[i] for key in keys], column.type.arrow)
        for i, column in enumerate(schema.key_columns)
    }
    return pa.table(columns)
