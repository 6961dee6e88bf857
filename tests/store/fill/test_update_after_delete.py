"""Rows that one transaction deletes and then updates: by X7 the UPDATE saw the row, so it keeps its cells.

All transactions here read none of their own writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import Column, Default, Store, Table, TableSchema, Transaction, parse_type
from tests.support.rows import rows_of

KEY = Column("k", parse_type("INT"), nullable=False)
NUMBERS = [Column(name, parse_type("INT")) for name in ("grp", "a", "b")]
f = pc.field


def made(store: Store, columns: list[Column] | None = None, **properties: str) -> Table:
    """Keys 1 and 2."""
    declared = [KEY, *(columns or NUMBERS)]
    table = store.create_table("db.t", TableSchema.create(declared, ["k"], properties=properties))
    table.upsert(rows((1, 5, 10, 7), (2, 6, 20, 8)))
    return table


def rows(*values: tuple[int, ...]) -> pa.Table:
    columns = zip(*values, strict=True)
    names = ("k", "grp", "a", "b")
    return pa.table({n: pa.array(c, pa.int32()) for n, c in zip(names, columns, strict=False)})


def stored(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().read_all().to_pylist())


def delete_and_update(store: Store, key: int = 1, **options: Any) -> Transaction:
    """Ready to commit."""
    transaction = store.transaction(reads_own_writes=False, **options)
    opened = transaction.table("db.t")
    opened.delete_where(f("k") == key)
    opened.update({"a": 99}, f("k") == key)
    return transaction


def test_x7_an_update_keeps_the_cells_of_a_row_deleted_before_it(store: Store) -> None:
    table = made(store)
    delete_and_update(store).commit()
    assert stored(table) == [(1, 5, 99, 7), (2, 6, 20, 8)]


def test_x7_a_deletion_by_key_is_not_seen_either(store: Store) -> None:
    table = made(store)
    with store.transaction(reads_own_writes=False) as transaction:
        opened = transaction.table("db.t")
        opened.delete({"k": [1]})
        opened.update({"a": f("a") + 1}, f("k") == 1)
    assert stored(table)[0] == (1, 5, 11, 7)


def test_x7_a_row_with_the_delete_sign_is_not_seen_either(store: Store) -> None:
    table = made(store)
    with store.transaction(reads_own_writes=False) as transaction:
        opened = transaction.table("db.t")
        opened.upsert(rows((1, 0, 0, 0)), merge_type="DELETE")
        opened.update({"a": 99}, f("k") == 1)
    assert stored(table)[0] == (1, 5, 99, 7)


def test_x7_rows_deleted_and_rows_that_were_not_are_updated_by_one_statement(store: Store) -> None:
    table = made(store)
    with store.transaction(reads_own_writes=False) as transaction:
        opened = transaction.table("db.t")
        opened.delete_where(f("k") == 2)
        opened.update({"a": f("a") + 1, "b": 0})
    assert stored(table) == [(1, 5, 11, 0), (2, 6, 21, 0)]


def test_x7_a_second_update_lies_on_the_first(store: Store) -> None:
    table = made(store)
    with delete_and_update(store) as transaction:
        transaction.table("db.t").update({"b": 1}, f("k") == 1)
    assert stored(table)[0] == (1, 5, 99, 1)


def test_x7_a_deletion_behind_the_update_stands(store: Store) -> None:
    table = made(store)
    with delete_and_update(store) as transaction:
        transaction.table("db.t").delete_where(f("k") == 1)
    assert stored(table) == [(2, 6, 20, 8)]


def test_x7_columns_that_may_not_be_null_are_kept(store: Store) -> None:
    table = made(store, [Column(name, parse_type("INT"), nullable=False) for name in ("grp", "a", "b")])
    delete_and_update(store).commit()
    assert stored(table)[0] == (1, 5, 99, 7)


def test_x7_keys_that_are_hashed(store: Store) -> None:
    key = Column("k", parse_type("VARCHAR(20)"), nullable=False)
    table = store.create_table("db.t", TableSchema.create([key, *NUMBERS[1:]], ["k"]))
    table.upsert(pa.table({"k": ["x", "y"], "a": [1, 2], "b": [3, 4]}))
    with store.transaction(reads_own_writes=False) as transaction:
        opened = transaction.table("db.t")
        opened.delete_where()
        opened.update({"a": 99}, f("k") == "x")
    assert stored(table) == [("x", 99, 3)]


def test_x7_cells_of_nested_types_are_kept(store: Store) -> None:
    columns = [KEY, NUMBERS[1], Column("list", parse_type("ARRAY<INT>"))]
    table = store.create_table("db.t", TableSchema.create(columns, ["k"]))
    table.upsert(pa.table({"k": [1, 2], "a": [1, 2], "list": [[1, 2], [3]]}))
    delete_and_update(store).commit()
    assert stored(table) == [(1, 99, [1, 2]), (2, 2, [3])]


def test_u16_a_column_of_the_moment_takes_the_moment_of_the_update(store: Store) -> None:
    moment = Default("current_timestamp")
    changed = Column("changed", parse_type("DATETIME"), default=moment, on_update_current_timestamp=True)
    table = store.create_table("db.t", TableSchema.create([KEY, NUMBERS[1], changed], ["k"]))
    table.upsert(pa.table({"k": [1], "a": [1], "changed": [datetime(2000, 1, 1)]}))
    delete_and_update(store).commit()
    assert stored(table)[0][2] > datetime(2000, 1, 1)


def test_p25_a_partial_load_over_a_deleted_row_starts_from_defaults(store: Store) -> None:
    """It read nothing: only an UPDATE did."""
    table = made(store)
    with store.transaction(reads_own_writes=False) as transaction:
        opened = transaction.table("db.t")
        opened.delete_where(f("k") == 1)
        opened.upsert(pa.table({"k": [1], "a": [99]}), mode="UPDATE_FIXED_COLUMNS")
    assert stored(table)[0] == (1, None, 99, None)


def test_x7_others_published_other_rows_meanwhile(store: Store) -> None:
    table = made(store)
    transaction = delete_and_update(store)
    table.upsert(rows((3, 0, 0, 0)))
    transaction.commit()
    assert stored(table) == [(1, 5, 99, 7), (2, 6, 20, 8), (3, 0, 0, 0)]


def test_c7_cells_that_others_changed_meanwhile_are_kept_as_they_left_them(store: Store) -> None:
    table = made(store)
    transaction = delete_and_update(store, concurrency="unchecked")
    table.update({"b": 70}, f("k") == 1)
    transaction.commit()
    assert stored(table)[0] == (1, 5, 99, 70)


def test_p25_a_row_that_others_deleted_meanwhile_starts_from_defaults(store: Store) -> None:
    table = made(store)
    transaction = delete_and_update(store, concurrency="unchecked")
    table.delete({"k": [1]})
    transaction.commit()
    assert stored(table)[0] == (1, None, 99, None)


def overtaken(store: Store, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> None:
    """Commits while others publish between the plan and the commit point."""
    from seqstore.store.runtime import failpoint

    transaction = delete_and_update(store, concurrency="unchecked")
    waiting = [work]
    monkeypatch.setattr(
        failpoint, "hit", lambda name: waiting.pop()() if name == "load.staged" and waiting else None
    )
    transaction.commit()


def test_c7_others_published_between_plan_and_commit_point(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(store)
    overtaken(store, monkeypatch, lambda: table.upsert(rows((1, 50, 0, 70))))
    assert stored(table)[0] == (1, 50, 99, 70)


SEQUENCES = [{"function_column.sequence_col": "grp"}, {"function_column.sequence_type": "INT"}]


def sequenced(store: Store, properties: dict[str, str]) -> Table:
    """Key 1 has sequence 5."""
    table = store.create_table("db.t", TableSchema.create([KEY, *NUMBERS], ["k"], properties=properties))
    given = rows((1, 5, 10, 7))
    is_mapped = "function_column.sequence_col" in properties
    table.upsert(given if is_mapped else given.append_column("__SEQUENCE_COL__", given.column("grp")))
    return table


@pytest.fixture(params=SEQUENCES, ids=["sequence_col", "sequence_type"])
def ordered(request: pytest.FixtureRequest, store: Store) -> Table:
    return sequenced(store, request.param)


def sequence_of(table: Table) -> list[Any]:
    found: list[Any] = table.scan(["__SEQUENCE_COL__"]).read_all().column(0).to_pylist()
    return found


def test_x7_a_table_with_a_sequence_keeps_the_cells(store: Store, ordered: Table) -> None:
    delete_and_update(store).commit()
    assert stored(ordered) == [(1, 5, 99, 7)]


def test_u11_u12_the_row_keeps_its_sequence(store: Store, ordered: Table) -> None:
    delete_and_update(store).commit()
    assert sequence_of(ordered) == [5]


def test_u11_a_deletion_of_a_larger_sequence_wins(store: Store, ordered: Table) -> None:
    """The UPDATE writes the row that it read, whose sequence is smaller."""
    with store.transaction(reads_own_writes=False) as transaction:
        opened = transaction.table("db.t")
        gone = pa.table({"k": [1], "__SEQUENCE_COL__": [6]})
        opened.upsert(gone, mode="UPDATE_FIXED_COLUMNS", merge_type="DELETE")
        opened.update({"a": 99}, f("k") == 1)
    assert stored(ordered) == []


@pytest.mark.parametrize(("sequence", "expected"), [(4, []), (6, [(1, 6, 10, 7)])])
def test_u13_u14_an_assigned_sequence_decides(store: Store, sequence: int, expected: list[Any]) -> None:
    table = sequenced(store, SEQUENCES[0])
    with store.transaction(reads_own_writes=False) as transaction:
        opened = transaction.table("db.t")
        opened.delete_where(f("k") == 1)
        opened.update({"grp": sequence}, f("k") == 1)
    assert stored(table) == expected


GROUPS = {"sequence_mapping.s1": "a", "sequence_mapping.s2": "b"}


def grouped(store: Store) -> Table:
    """Key 1 has both groups, key 2 only the first."""
    columns = [KEY, *(Column(name, parse_type("INT")) for name in ("a", "s1", "b", "s2"))]
    table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=GROUPS))
    table.upsert(pa.table({"k": [1, 2], "a": [10, 20], "s1": [1, 1]}), mode="UPDATE_FIXED_COLUMNS")
    table.upsert(pa.table({"k": [1], "b": [7], "s2": [3]}), mode="UPDATE_FIXED_COLUMNS")
    return table


def test_x7_all_groups_of_a_row_come_back(store: Store) -> None:
    table = grouped(store)
    delete_and_update(store).commit()
    assert stored(table) == [(1, 99, 1, 7, 3), (2, 20, 1, None, None)]


def test_x7_a_column_of_the_moment_stays_with_its_group(store: Store) -> None:
    """U16: the update assigns a column of another group, so it is no update of this one."""
    moment = Default("current_timestamp")
    changed = Column("b", parse_type("DATETIME"), default=moment, on_update_current_timestamp=True)
    columns = [KEY, *(Column(name, parse_type("INT")) for name in ("a", "s1")), changed]
    columns.append(Column("s2", parse_type("INT")))
    table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=GROUPS))
    then = datetime(2000, 1, 1)
    table.upsert(pa.table({"k": [1], "a": [10], "s1": [1]}), mode="UPDATE_FIXED_COLUMNS")
    table.upsert(pa.table({"k": [1], "b": [then], "s2": [3]}), mode="UPDATE_FIXED_COLUMNS")
    delete_and_update(store).commit()
    assert stored(table) == [(1, 99, 1, then, 3)]


def test_x7_each_row_keeps_its_own_cells_and_groups(store: Store) -> None:
    table = grouped(store)
    with store.transaction(reads_own_writes=False) as transaction:
        opened = transaction.table("db.t")
        opened.delete_where(f("k") > 0)
        opened.update({"a": f("a") + 1}, f("k") > 0)
    assert stored(table) == [(1, 11, 1, 7, 3), (2, 21, 1, None, None)]
    assert rows_of(table, columns=["k", "__GROUPS_COL__"]) == [(1, 3), (2, 1)]


def test_x7_a_group_that_was_not_there_does_not_come(store: Store) -> None:
    table = grouped(store)
    delete_and_update(store, key=2).commit()
    assert table.scan(["k", "__GROUPS_COL__"]).read_all().to_pylist() == [
        {"k": 1, "__GROUPS_COL__": 3},
        {"k": 2, "__GROUPS_COL__": 1},
    ]
