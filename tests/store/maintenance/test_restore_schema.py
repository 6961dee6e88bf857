"""RESTORE brings back the schema of then: columns, names, types, properties, features."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Column, ConflictError, Settings, Store, Table, TableSchema, parse_type
from seqstore.store.ddl.alter import Change, alter, enable_sequence_load, set_properties
from seqstore.store.ddl.column_changes import add_column, drop_column, modify_column, rename_column
from seqstore.store.schema.column import Default
from tests.seeds import new_seed


def make(store: Store) -> Table:
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    return store.create_table("db.t", TableSchema.create(columns, ["k"]))


def content(table: Table, version: int | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.scan(version=version).read_all().sort_by("k").to_pylist()
    return rows


def load(table: Table, *rows: dict[str, Any]) -> int:
    return table.upsert(pa.Table.from_pylist(list(rows), schema=table.schema.arrow)).version


def test_added_columns_go_and_dropped_ones_come_back(store: Store) -> None:
    table = make(store)
    then = load(table, {"k": 1, "v": 10}, {"k": 2, "v": 20})
    alter(table, [add_column(Column("w", parse_type("int"), default=Default("constant", "7")))])
    with_both = load(table, {"k": 2, "v": 21, "w": 1})
    alter(table, [drop_column("v")])
    load(table, {"k": 3, "w": 3})
    table.restore(then)
    assert content(table) == [{"k": 1, "v": 10}, {"k": 2, "v": 20}]
    load(table, {"k": 3, "v": 30})
    alter(table, [add_column(Column("w", parse_type("varchar(5)")))])
    assert content(table)[2] == {"k": 3, "v": 30, "w": None}, "another column of that name, with no values"
    table.restore(with_both)
    assert content(table) == [{"k": 1, "v": 10, "w": 7}, {"k": 2, "v": 21, "w": 1}]
    table.optimize(full=True)
    assert content(table) == content(table, with_both)
    assert table.check() == []


def test_ids_of_columns_are_not_given_again_after_a_restore(store: Store) -> None:
    table = make(store)
    then = load(table, {"k": 1, "v": 10})
    alter(table, [add_column(Column("w", parse_type("int")))])
    taken = {column.id for column in table.schema.columns}
    table.restore(then)
    alter(table, [add_column(Column("x", parse_type("int")))])
    assert table.schema.column("x").id not in taken


def test_names_types_properties_and_features_are_those_of_then(store: Store) -> None:
    table = make(store)
    then = load(table, {"k": 1, "v": 10})
    schema = table.schema
    alter(
        table,
        [
            rename_column("v", "value"),
            modify_column("value", parse_type("bigint")),
            set_properties({"version_retention_seconds": "5", "delta.feature.appendOnly": "supported"}),
            enable_sequence_load({"function_column.sequence_type": "bigint"}),
        ],
    )
    wide = table.upsert(pa.table({"k": [1], "value": [2**40], "seq": [3]}), sequence="seq").version
    table.restore(then)
    restored = table.schema
    assert (restored.names, restored.arrow) == (schema.names, schema.arrow)
    assert (restored.properties, restored.features) == (schema.properties, schema.features)
    assert not restored.has_sequence
    assert restored.revision == 3
    found = table.changes(wide, table.version).read_all()
    kinds = [(row["_commit_version"], row["_change_type"], row["v"]) for row in found.to_pylist()]
    assert kinds == [(4, "-U", 10), (4, "+U", 2**40), (5, "-U", 2**40), (5, "+U", 10)]
    assert found.schema.field("v").type == pa.int64(), "wide enough for what was taken away"
    assert table.restore(wide) == 6
    assert content(table) == [{"k": 1, "value": 2**40}]
    assert table.schema.has_sequence
    with Store.open(store.path) as fresh:
        assert content(fresh.table("db.t")) == content(table)


def test_a_load_that_began_before_learns_that_the_schema_was_restored(store: Store) -> None:
    table = make(store)
    then = load(table, {"k": 1, "v": 10})
    alter(table, [add_column(Column("w", parse_type("int")))])
    opened = table.begin_load()
    opened.write(pa.table({"k": [1], "v": [1], "w": [1]}))
    table.restore(then)
    with pytest.raises(
        ConflictError, match=r"RESTORE TO VERSION 2 committed version 4.*the schema \(that of"
    ):
        opened.commit()


def test_a_restore_within_one_schema_makes_no_revision(store: Store) -> None:
    table = make(store)
    load(table, {"k": 1, "v": 10})
    load(table, {"k": 1, "v": 11})
    table.restore(2)
    assert table.schema.revision == 1


def test_any_history_of_changes_can_be_restored_from(store: Store) -> None:
    seed = new_seed()
    print("seed", seed)
    chosen = random.Random(seed)
    with Store.open(store.path, settings=Settings(inline_bytes_max=chosen.choice([1, 2**18]))) as opened:
        table = make(opened)
        seen = {1: content(table)}
        for _ in range(60):
            version = step(table, chosen, seen)
            seen[version] = content(table)
        for version, rows in seen.items():
            assert content(table, version) == rows, version
        assert table.check() == []
    with Store.open(store.path) as fresh:
        for version, rows in seen.items():
            assert content(fresh.table("db.t"), version) == rows, version


def step(table: Table, chosen: random.Random, seen: dict[int, list[dict[str, Any]]]) -> int:
    """A load, a change of the schema, a compaction or a restore; the version it makes."""
    names = [column.name for column in table.schema.columns if column.name != "k"]
    name = chosen.choice(names)
    fresh = f"c{table.version}"
    changes: list[Callable[[], Change]] = [
        lambda: add_column(Column(fresh, parse_type("int"), default=Default("constant", str(table.version)))),
        lambda: rename_column(name, fresh),
        lambda: modify_column(name, parse_type("bigint")),
    ]
    if len(names) > 1:
        changes.append(lambda: drop_column(name))
    match chosen.choice(["load", "load", "delete", "alter", "compact", "restore"]):
        case "load":
            keys = chosen.sample(range(12), chosen.randint(1, 6))
            return load(table, *({"k": k} | {n: chosen.randint(0, 99) for n in names} for k in keys))
        case "delete":
            return table.delete(pa.table({"k": chosen.sample(range(12), 2)})).version
        case "alter":
            return alter(table, [chosen.choice(changes)()])
        case "compact":
            return table.optimize(full=True).version
        case _:
            to = chosen.choice(sorted(seen))
            version = table.restore(to)
            assert content(table) == seen[to], to
            return version
