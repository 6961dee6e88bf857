"""Why is this row not there: the history of one key."""

from __future__ import annotations

import pyarrow as pa
import pytest

from seqstore import Column, InvalidInputError, Store, Table, TableSchema, parse_type


def make(store: Store, sequence: bool = True) -> Table:
    columns = [Column("k", parse_type("varchar(10)"), False), Column("v", parse_type("int"))]
    properties = {"function_column.sequence_type": "int"} if sequence else {}
    return store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))


def load(table: Table, key: str, value: int, sequence: int, label: str) -> None:
    data = pa.table({"k": [key], "v": [value], "__SEQUENCE_COL__": [sequence]})
    table.upsert(data, label=label)


def told(table: Table, key: str) -> list[tuple[int, str, int | None, str]]:
    return [(e.version, e.outcome, e.until, e.explanation) for e in table.key_history({"k": key})]


def test_late_tied_and_deleted_rows_are_explained(store: Store) -> None:
    table = make(store)
    load(table, "a", 1, 10, "first")
    load(table, "a", 2, 5, "late")
    load(table, "a", 3, 10, "tie")
    load(table, "a", 4, 20, "newer")
    table.delete({"k": ["a"]})
    load(table, "a", 5, 15, "after")
    load(table, "b", 6, 1, "other")
    assert told(table, "a") == [
        (2, "replaced", 4, "replaced by version 4 (same sequence 10, later version)"),
        (3, "late", None, "late: sequence 5 is smaller than 10, which is stored since version 2"),
        (4, "replaced", 5, "replaced by version 5 (sequence 20)"),
        (5, "deleted", 6, "deleted by version 6 (same sequence 20, later version)"),
        (6, "tombstone", None, "deleted the key; nothing newer came since"),
        (7, "late", None, "late: sequence 15 is smaller than 20, which deleted the key since version 6"),
    ]
    event = table.key_history({"K": "a"})[1]
    assert (event.label, event.sequence, event.row) == ("late", 5, {"k": "a", "v": 2})
    assert table.key_history({"k": "zz"}) == []


def test_a_compaction_changes_nothing_of_it(store: Store) -> None:
    table = make(store)
    for number, sequence in enumerate((10, 5, 10, 20, 1)):
        load(table, "a", number, sequence, f"load-{number}")
    before = told(table, "a")
    table.optimize(full=True)
    table.upsert(pa.table({"k": ["c"], "v": [1], "__SEQUENCE_COL__": [1]}))
    assert told(table, "a") == before


def test_after_a_vacuum_what_counts_is_still_told(store: Store) -> None:
    table = make(store)
    for number, sequence in enumerate((10, 5, 20)):
        load(table, "a", number, sequence, f"load-{number}")
    table.optimize(full=True)
    table.vacuum(retention_seconds=0)
    assert told(table, "a") == [(4, "live", None, "counts")]
    assert table.key_history({"k": "a"})[0].label == "load-2"


def test_a_restore_ends_and_brings_back_rows(store: Store) -> None:
    table = make(store, sequence=False)
    table.upsert(pa.table({"k": ["a"], "v": [1]}))
    table.upsert(pa.table({"k": ["a"], "v": [2]}))
    table.restore(2)
    assert told(table, "a") == [
        (2, "live", None, "counts"),
        (3, "replaced", 4, "version 4 restored the row of version 2"),
    ]


def test_the_whole_key_is_needed(store: Store) -> None:
    with pytest.raises(InvalidInputError, match="key column 'k' is missing"):
        make(store).key_history({"v": 1})
