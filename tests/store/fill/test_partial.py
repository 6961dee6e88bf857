"""Partial updates: the vectors of the rules, through the public API (P, F, C, D)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Column, Default, InvalidInputError, Settings, Store, Table, TableSchema, parse_type
from seqstore.loaders.stream_load import stream_load
from seqstore.store.publish.winner_test import make_plan
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.segment import Segment
from seqstore.store.sql import Session

Row = dict[str, Any]


def make(
    store: Store,
    columns: str,
    *,
    sequence: str | None = None,
    sequence_type: str | None = None,
    **defaults: str,
) -> Table:
    """A table from "k int, v1 int, ..."; the first column is the key, value columns may be NULL."""
    declared = []
    for i, text in enumerate(columns.split(", ")):
        name, type_text = text.split(" ")
        default = Default("constant", defaults[name]) if name in defaults else None
        declared.append(Column(name, parse_type(type_text), nullable=i > 0, default=default))
    properties = {}
    if sequence:
        properties["function_column.sequence_col"] = sequence
    if sequence_type:
        properties["function_column.sequence_type"] = sequence_type
    schema = TableSchema.create(declared, [declared[0].name], properties=properties)
    return store.create_table(f"db.t{len(store.tables('db'))}", schema)


def load(table: Table, columns: str, *rows: tuple[Any, ...], **options: Any) -> Any:
    """A fixed partial update of the named columns."""
    names = columns.split(" ")
    data = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    return table.upsert(data, mode="UPDATE_FIXED_COLUMNS", **options)


def full(table: Table, *rows: tuple[Any, ...], **options: Any) -> Any:
    names = table.schema.names
    data = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=names)
    return table.upsert(data, **options)


def flexible(table: Table, *rows: Row) -> Any:
    """A flexible update from dictionaries: a missing name is a cell that is not supplied."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    data = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    masks = {name: np.array([name in row for row in rows]) for name in names}
    with table.begin_load(mode="UPDATE_FLEXIBLE_COLUMNS") as opened:
        opened.write(data, supplied=masks)
        return opened.commit()


def rows_of(table: Table, **options: Any) -> list[tuple[Any, ...]]:
    found = table.scan(**options).read_all()
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=str)


def hidden(table: Table) -> dict[Any, tuple[int, Any]]:
    """key -> (delete sign, sequence), tombstones included."""
    key = table.schema.key[0]
    found = table.scan([key, "__DELETE_SIGN__", "__SEQUENCE_COL__"], deleted=True).read_all()
    return {row[key]: (row["__DELETE_SIGN__"], row["__SEQUENCE_COL__"]) for row in found.to_pylist()}


def test_unlisted_columns_keep_history_and_explicit_null_replaces(store: Store) -> None:
    """P6."""
    table = make(store, "k int, a int, b int, c string")
    full(table, (1, 10, 11, "x"), (2, 20, 21, "y"))
    load(table, "k b", (1, None), (2, 99))
    assert rows_of(table) == [(1, 10, None, "x"), (2, 20, 99, "y")]


def test_listing_only_keys_touches_rows_and_changes_nothing(store: Store) -> None:
    """P5."""
    table = make(store, "k int, a int")
    full(table, (1, 10))
    result = load(table, "k", (1,), (2,))
    assert rows_of(table) == [(1, 10), (2, None)]
    assert result.rows_replaced == 1


def test_key_columns_must_be_listed(store: Store) -> None:
    """P3."""
    table = make(store, "k int, a int")
    with pytest.raises(
        InvalidInputError, match=r"^Partial update should include all key columns, missing: k$"
    ):
        load(table, "a", (1,))


def test_column_names_are_matched_without_case(store: Store) -> None:
    """P31."""
    table = make(store, "k int, Amount int, b int")
    full(table, (1, 10, 11))
    load(table, "K aMOUNT", (1, 5))
    assert rows_of(table) == [(1, 5, 11)]


def test_new_keys_take_defaults(store: Store) -> None:
    """P7."""
    table = make(store, "k int, a int, b int", b="7")
    load(table, "k", (1,))
    assert rows_of(table) == [(1, None, 7)]


def test_not_null_without_default_fails_only_when_a_new_key_is_met(store: Store) -> None:
    """P7, P8, P9."""
    columns = [Column("k", parse_type("int"), False), Column("a", parse_type("int"), False)]
    columns.append(Column("b", parse_type("int")))
    table = store.create_table("db.strict", TableSchema.create(columns, ["k"]))
    full(table, (1, 10, 11))
    load(table, "k b", (1, 5))
    with pytest.raises(
        InvalidInputError,
        match="the unmentioned column `a` should have default value or be nullable for newly inserted rows "
        "in non-strict mode partial update",
    ):
        load(table, "k b", (1, 6), (2, 5))
    load(table, "k __DORIS_DELETE_SIGN__", (3, 1))
    assert rows_of(table) == [(1, 10, 5)]


def test_error_policy_fails_the_whole_load(store: Store) -> None:
    """P10, P11."""
    table = make(store, "k int, a int")
    full(table, (1, 10))
    with pytest.raises(InvalidInputError) as caught:
        load(table, "k a", (1, 11), (2, 20), new_keys="error")
    assert str(caught.value) == (
        "[E-7003]Can't append new rows in partial update when partial_update_new_key_behavior is ERROR. "
        "Row with key=[2] is not in table."
    )
    assert rows_of(table) == [(1, 10)]
    load(table, "k a", (1, 11), new_keys="ERROR")
    assert rows_of(table) == [(1, 11)]


def test_last_row_of_a_key_wins_without_a_sequence(store: Store) -> None:
    """P19."""
    table = make(store, "k int, a int, b int")
    full(table, (1, 10, 11))
    result = load(table, "k a", (1, 1), (1, 2), (1, 3))
    assert rows_of(table) == [(1, 3, 11)]
    assert (result.rows_loaded, result.rows_superseded) == (3, 2)


def test_duplicates_with_sequence_take_the_largest_then_the_last(store: Store) -> None:
    """P20: rows at 2023-01-01; ids 1 unchanged, 2 -> 2600, 3 inserted with 1500 and defaults."""
    table = make(
        store,
        "id int, name string, score int, test int, dft int, update_time date",
        sequence="update_time",
        dft="4321",
    )
    full(table, (1, "doris", 1000, 123, 1, "2023-01-01"), (2, "doris2", 2000, 223, 1, "2023-01-01"))
    load(
        table,
        "id score update_time",
        (2, 2500, "2023-07-19"),
        (2, 2600, "2023-07-20"),
        (1, 1300, "2022-07-19"),
        (3, 1500, "2022-07-20"),
        (3, 2500, "2022-07-18"),
    )
    assert [row[:5] for row in rows_of(table)] == [
        (1, "doris", 1000, 123, 1),
        (2, "doris2", 2600, 223, 1),
        (3, None, 1500, None, 4321),
    ]


def test_unlisted_sequence_is_inherited(store: Store) -> None:
    """P21: the row keeps the stored sequence and wins by version; an older full row still loses."""
    table = make(store, "k int, a int, s int", sequence="s")
    full(table, (1, 10, 5))
    load(table, "k a", (1, 11))
    assert hidden(table) == {1: (0, 5)}
    full(table, (1, 99, 4))
    assert rows_of(table) == [(1, 11, 5)]


@pytest.mark.parametrize(("default", "expected"), [("999", 999), (None, None)])
def test_new_key_takes_the_mapped_columns_default_as_sequence(
    store: Store, default: str | None, expected: int | None
) -> None:
    """P22."""
    defaults = {"s": default} if default else {}
    table = make(store, "k int, a int, s int", sequence="s", **defaults)
    load(table, "k a", (1, 10))
    assert rows_of(table) == [(1, 10, expected)]
    assert hidden(table) == {1: (0, expected)}


def test_listed_smaller_sequence_discards_the_row(store: Store) -> None:
    """P23."""
    table = make(store, "k int, a int, s int", sequence="s")
    full(table, (1, 10, 5))
    result = load(table, "k a s", (1, 99, 4))
    assert rows_of(table) == [(1, 10, 5)]
    assert (result.rows_loaded, result.rows_late) == (1, 1)


def test_sequence_type_table_stores_the_given_sequence(store: Store) -> None:
    """P24, SL11: given by name or by the hidden column, and not given at all."""
    table = make(store, "k int, a int, b int", sequence_type="int")
    load(table, "k a src", (1, 10, 7), sequence="src")
    load(table, "k b __DORIS_SEQUENCE_COL__", (1, 3, 8))
    load(table, "k b", (1, 4))
    load(table, "k b __SEQUENCE_COL__", (1, 5, 2))
    assert rows_of(table) == [(1, 10, 4)]
    assert hidden(table) == {1: (0, 8)}


def test_partial_update_of_a_deleted_key_starts_from_defaults(store: Store) -> None:
    """P25, D12, W2."""
    table = make(store, "k int, v1 int, v2 int")
    full(table, (1, 1, 1))
    load(table, "k __DORIS_DELETE_SIGN__", (1, 1))
    assert rows_of(table) == []
    load(table, "k v1", (1, 2))
    assert rows_of(table) == [(1, 2, None)]


def test_partial_update_of_a_deleted_key_keeps_the_hidden_sequence_only(store: Store) -> None:
    """P26: deleted at 1000, then (k, v4, v5): v1 (mapped) NULL, v3 9876, sequence 1000. D4: 999 stays out."""
    table = make(store, "k int, v1 int, v2 int, v3 int, v4 int, v5 int", sequence="v1", v3="9876")
    full(table, (1, 1000, 2, 3, 4, 5))
    table.delete(pa.table({"k": [1]}))
    assert hidden(table) == {1: (1, 1000)}
    load(table, "k v1 v2", (1, 999, 1))
    assert rows_of(table) == []
    load(table, "k v4 v5", (1, 777, 8888))
    assert rows_of(table) == [(1, None, None, 9876, 777, 8888)]
    assert hidden(table) == {1: (0, 1000)}


def test_partial_delete_carries_listed_columns_and_the_history_sequence(store: Store) -> None:
    """P28: DELETE with (id, score) keeps 2023-01-01; older deletes change nothing, newer ones replace."""
    table = make(store, "id int, score int, t date", sequence="t")
    full(table, (1, 10, "2023-01-01"), (2, 20, "2023-01-01"))
    load(table, "id score", (1, 1200), (2, 1900), merge_type="DELETE")
    assert rows_of(table) == []
    assert {k: (s, str(t)) for k, (s, t) in hidden(table).items()} == {
        1: (1, "2023-01-01"),
        2: (1, "2023-01-01"),
    }
    load(table, "id score t", (1, 1, "2022-07-20"), (2, 2, "2023-07-20"), merge_type="DELETE")
    assert {k: (s, str(t)) for k, (s, t) in hidden(table).items()} == {
        1: (1, "2023-01-01"),
        2: (1, "2023-07-20"),
    }


def test_delete_of_an_absent_key_is_accepted(store: Store) -> None:
    """D9."""
    table = make(store, "k int, a int")
    table.delete(pa.table({"k": [5]}))
    assert table.count() == 0


def test_null_means_keep_when_asked(store: Store) -> None:
    """`ignore_null`: what users ask for in place of P6."""
    table = make(store, "k int, a int, b int")
    full(table, (1, 10, 11))
    load(table, "k a b", (1, None, 5), (2, None, None), ignore_null=True)
    assert rows_of(table) == [(1, 10, 5), (2, None, None)]


def test_flexible_documentation_vector(store: Store) -> None:
    """F10."""
    table = make(store, "k int, v1 int, v2 int, v3 int, v4 int, v5 int", v2="9876", v4="1234")
    full(table, *[(i, i, i, i, i, i) for i in range(6)])
    flexible(
        table,
        {"k": 0, "__DORIS_DELETE_SIGN__": 1},
        {"k": 1, "v1": 10},
        {"k": 2, "v2": 20, "v5": 25},
        {"k": 3, "v3": 30},
        {"k": 4, "v4": 20, "v1": 43, "v3": 99},
        {"k": 5, "v5": None},
        {"k": 6, "v1": 999, "v3": 777},
        {"k": 2, "v4": 222},
        {"k": 1, "v2": 111, "v3": 111},
    )
    assert rows_of(table) == [
        (1, 10, 111, 111, 1, 1),
        (2, 2, 20, 2, 222, 25),
        (3, 3, 3, 30, 3, 3),
        (4, 43, 4, 99, 20, 4),
        (5, 5, 5, 5, 5, None),
        (6, 999, 9876, 777, 1234, None),
    ]


def test_flexible_insert_after_delete_starts_from_defaults(store: Store) -> None:
    """F12, F13, W8; the sequence is still read from history."""
    table = make(store, "k int, a int, b int, s int", sequence="s", b="5")
    full(table, (1, 10, 11, 100))
    flexible(table, {"k": 1, "a": 1}, {"k": 1, "__DELETE_SIGN__": 1}, {"k": 1, "a": 2})
    assert rows_of(table) == [(1, 2, 5, 100)]
    assert hidden(table) == {1: (0, 100)}


@pytest.mark.parametrize(
    ("stored", "rows", "expected", "sequence"),
    [
        (
            10,
            [{"v1": 999}, {"v1": 888, "s": 15}, {"v2": 999}, {"v2": 888, "s": 20}, {"v3": 888, "s": 12}],
            (1, 888, 888, 0, 0, 0),
            20,
        ),
        (
            20,
            [{"v3": 777}, {"v3": 666, "s": 14}, {"v5": 777}, {"v4": 666, "s": 15}, {"v4": 777}],
            (1, 0, 0, 777, 777, 777),
            20,
        ),
    ],
)
def test_flexible_rows_with_smaller_sequences_are_dropped_alone(
    store: Store, stored: int, rows: list[Row], expected: tuple[int, ...], sequence: int
) -> None:
    """F15-F17."""
    table = make(store, "k int, v1 int, v2 int, v3 int, v4 int, v5 int", sequence_type="int")
    full_row = pa.table({"k": [1], **{f"v{i}": [0] for i in range(1, 6)}, "__SEQUENCE_COL__": [stored]})
    table.upsert(full_row)
    flexible(
        table,
        *({"k": 1, **{"__SEQUENCE_COL__" if n == "s" else n: v for n, v in row.items()}} for row in rows),
    )
    assert rows_of(table) == [expected]
    assert hidden(table) == {1: (0, sequence)}


def test_flexible_first_row_dropped_second_applied(store: Store) -> None:
    """F18."""
    table = make(store, "k int, c1 int, c2 int, c3 int", sequence="c1")
    full(table, (1, 256, 2, 3))
    flexible(table, {"k": 1, "c1": 255, "c3": -1}, {"k": 1, "c2": 9999})
    assert rows_of(table) == [(1, 256, 9999, 3)]


@pytest.mark.parametrize(("default", "expected"), [("60", (8, 60, 2, None)), (None, (8, 30, 2, 9))])
def test_new_keys_running_sequence_starts_at_the_default(
    store: Store, default: str | None, expected: tuple[Any, ...]
) -> None:
    """F19: the default 60 beats a later row with 30; without a default NULL does not."""
    defaults = {"s": default} if default else {}
    table = make(store, "k int, s int, a int, b int", sequence="s", **defaults)
    flexible(table, {"k": 8, "a": 2}, {"k": 8, "s": 30, "b": 9})
    assert rows_of(table) == [expected]


def test_explicit_null_sequence_loses_against_a_stored_one(store: Store) -> None:
    """F21."""
    table = make(store, "k int, a int, v5 int", sequence="v5")
    full(table, (5, 5, 5))
    flexible(table, {"k": 5, "a": 1, "v5": None})
    assert rows_of(table) == [(5, 5, 5)]


def test_flexible_rows_may_name_their_sequence_in_either_column(store: Store) -> None:
    """Each row by the mapped or the hidden column. Both columns have the winner's value."""
    table = make(store, "k int, s int, a int", sequence="s")
    full(table, (1, 5, 0), (2, 5, 0), (3, 5, 0), (4, 5, 0))
    flexible(
        table,
        {"k": 1, "s": 6, "a": 1},
        {"k": 2, "__SEQUENCE_COL__": 7, "a": 1},
        {"k": 3, "s": 4, "a": 1},
        {"k": 4, "a": 1},
        {"k": 5, "__SEQUENCE_COL__": 8, "a": 1},
    )
    assert rows_of(table) == [(1, 6, 1), (2, 7, 1), (3, 5, 0), (4, 5, 1), (5, 8, 1)]
    assert {key: sequence for key, (_, sequence) in hidden(table).items()} == {1: 6, 2: 7, 3: 5, 4: 5, 5: 8}


def test_flexible_update_of_a_deleted_key_keeps_the_mapped_column_too(store: Store) -> None:
    """F22, against P26."""
    table = make(store, "k int, v1 int, v2 int, v3 int, v4 int, v5 int", sequence="v1", v3="9876")
    full(table, (1, 1000, 2, 3, 4, 5))
    table.delete(pa.table({"k": [1]}))
    flexible(table, {"k": 1, "v4": 777, "v5": 8888})
    assert rows_of(table) == [(1, 1000, None, 9876, 777, 8888)]


def test_rows_without_a_key_are_rejected(store: Store) -> None:
    """F7."""
    table = make(store, "k int, a int")
    names = {"k": np.array([True, False]), "a": np.array([True, True])}
    with table.begin_load(mode="UPDATE_FLEXIBLE_COLUMNS") as opened:
        result = opened.write(pa.table({"k": [1, None], "a": [1, 2]}), supplied=names)
        opened.commit()
    assert [(row.row, row.column) for row in result.rejected] == [(1, "k")]
    assert rows_of(table) == [(1, 1)]


def test_rows_of_a_flexible_update_without_a_key_take_its_default(store: Store) -> None:
    table = make(store, "k int, a int", k="7")
    flexible(table, {"k": 1, "a": 1}, {"a": 2}, {"k": 3})
    assert rows_of(table) == [(1, 1), (3, None), (7, 2)]


def test_a_flexible_update_makes_the_auto_increment_keys_that_rows_lack(store: Store) -> None:
    """A6, A8: also of some rows only, and of those with an explicit NULL."""
    columns = [Column("k", parse_type("bigint"), False, auto_increment=100), Column("a", parse_type("int"))]
    table = store.create_table("db.t", TableSchema.create(columns, ["k"]))
    flexible(table, {"k": 1, "a": 1}, {"a": 2}, {"k": None, "a": 3})
    flexible(table, {"a": 4}, {"k": 1, "a": 5})
    flexible(table, {"a": 6}, {"a": 7})
    found = rows_of(table)
    assert (1, 5) in found
    made = [key for key, a in found if a != 5]
    assert (len(made), len(set(made)), min(made) >= 100) == (5, 5, True)
    assert sorted(a for _key, a in found) == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("text", ["d DATE NULL", "d DATE", "d DATE NOT NULL DEFAULT '2024-01-02'",
                                  "d DATE DEFAULT CURRENT_DATE"])  # fmt: skip
@pytest.mark.parametrize("way", ["insert", "partial", "csv", "partial csv", "upsert"])
def test_an_unlisted_key_column_is_filled(store: Store, session: Session, text: str, way: str) -> None:
    """By its default, else by NULL."""
    list(session.execute(f"CREATE TABLE t (k INT, {text}, a INT) UNIQUE KEY(k, d)"))
    if way in ("insert", "partial"):
        if way == "partial":
            list(session.execute("SET enable_unique_key_partial_update = true"))
        list(session.execute("INSERT INTO t (k, a) VALUES (1, 5)"))
    elif way == "upsert":
        store.table("db.t").upsert(pa.table({"k": [1], "a": [5]}))
    else:
        headers = {"columns": "k, a", "column_separator": ",", "partial_columns": str(way != "csv").lower()}
        reply = stream_load(store, "db", "t", io.BytesIO(b"1,5\n"), headers)
        assert reply["Status"] == "Success", reply
    ((key, day, a),) = rows_of(store.table("db.t"))
    assert (key, a) == (1, 5)
    assert (day is None) == ("DEFAULT" not in text)


class TestPublishAlignment:
    """Two loads prepared from one snapshot, committed one after the other (C1-C11)."""

    @pytest.fixture
    def table(self, store: Store) -> Table:
        table = make(store, "k int, c1 int, c2 int, c3 int, c4 int", sequence="c1")
        full(table, (1, 1, 1, 1, 1), (2, 2, 2, 2, 2), (3, 3, 3, 3, 3))
        return table

    def both(
        self, table: Table, first: tuple[str, list[Any]], second: tuple[str, list[Any]], **options: Any
    ) -> None:
        """Both loads are filled from the same snapshot before either is published."""
        loads = []
        for columns, rows in (first, second):
            opened = table.begin_load(mode="UPDATE_FIXED_COLUMNS", **options)
            names = columns.split(" ")
            opened.write(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]))
            opened.prepare()
            loads.append(opened)
        for opened in loads:
            opened.commit()

    def test_vectors_a_to_d(self, table: Table) -> None:
        """C8, C9, C10, C11 in a row, as the suite has them."""
        self.both(
            table,
            ("k c1 c2", [(1, 10, 99), (2, 10, 99), (3, 10, 99)]),
            ("k c1 c3", [(1, 20, 88), (2, 10, 88), (3, 5, 88)]),
        )
        assert rows_of(table) == [(1, 20, 99, 88, 1), (2, 10, 99, 88, 2), (3, 10, 99, 3, 3)]
        self.both(
            table,
            ("k c1 c2", [(1, 9, 77), (2, 10, 77), (3, 50, 77)]),
            ("k c4", [(1, 33), (2, 33), (3, 33)]),
        )
        assert rows_of(table) == [(1, 20, 99, 88, 33), (2, 10, 77, 88, 33), (3, 50, 77, 3, 33)]
        assert hidden(table)[3] == (0, 50)
        self.both(
            table,
            ("k c1 c2", [(1, 80, 66), (2, 100, 66), (3, 120, 66)]),
            ("k c1 __DORIS_DELETE_SIGN__", [(1, 100, 1), (2, 100, 1), (3, 100, 1)]),
        )
        assert [row[:3] for row in rows_of(table)] == [(3, 120, 66)]
        self.both(
            table,
            ("k c1 c2", [(1, 20, 5), (2, 100, 5), (3, 120, 5)]),
            ("k c4 __DORIS_DELETE_SIGN__", [(1, 100, 1), (2, 100, 1), (3, 100, 1)]),
        )
        assert rows_of(table) == []
        assert table.check() == []

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_different_columns_of_one_key_both_survive(self, store: Store, order: tuple[int, int]) -> None:
        """C3, C7."""
        table = make(store, "k int, a int, b int")
        full(table, (1, 0, 0))
        loads = [("k a", [(1, 7)]), ("k b", [(1, 8)])]
        self.both(table, loads[order[0]], loads[order[1]])
        assert rows_of(table) == [(1, 7, 8)]

    def test_same_column_without_sequence_goes_to_the_later_version(self, store: Store) -> None:
        """C4."""
        table = make(store, "k int, a int")
        full(table, (1, 0))
        self.both(table, ("k a", [(1, 7)]), ("k a", [(1, 8)]))
        assert rows_of(table) == [(1, 8)]

    def test_conflicting_tombstone_gives_defaults(self, store: Store) -> None:
        """C12: the first deletes, the second then inserts with defaults, never with the old cell."""
        table = make(store, "k int, a int, b int", b="4")
        full(table, (1, 1, 9))
        self.both(table, ("k __DELETE_SIGN__", [(1, 1)]), ("k a", [(1, 5)]))
        assert rows_of(table) == [(1, 5, 4)]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_filling_reads_only_the_batches_and_columns_it_needs(
    tmp_path: Path, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: cells come from the record batches that hold the keys, and not from columns that are supplied."""
    settings = Settings(catalog_bytes_max=2**28, inline_bytes_max=1, batch_rows_max=100, clustered_rows_min=1)
    with Store.open(tmp_path / "clustered", settings=settings) as store:
        store.create_database("db")
        columns = [Column("k", parse_type("bigint"), False), *(Column(n, parse_type("int")) for n in "abc")]
        schema = TableSchema.create(columns, ["k"], properties={"compression": compression})
        table = store.create_table("db.t", schema)
        table.upsert(pa.table({"k": np.arange(1_000), "a": np.arange(1_000), "b": np.arange(1_000)}))
        stored = next(iter(table.state().segments.values())).segment
        read: set[tuple[int, str]] = set()
        real = Segment.batch

        def noted(segment: Segment, i: int, names: Any = None) -> Any:
            if segment is stored:
                read.update((i, name) for name in names or ["everything"])
            return real(segment, i, names)

        monkeypatch.setattr(Segment, "batch", noted)
        table.upsert(pa.table({"k": [5, 7, 999], "b": [0, 0, 0]}), mode="UPDATE_FIXED_COLUMNS")
        assert read == {(0, "a"), (0, "c"), (9, "a"), (9, "c")}
        monkeypatch.undo()
        assert table.get(pa.table({"k": [7, 999]})).to_pylist() == [
            {"k": 7, "a": 7, "b": 0, "c": None},
            {"k": 999, "a": 999, "b": 0, "c": None},
        ]


def test_the_first_plan_of_an_update_tells_the_same_as_one_made_anew(store: Store) -> None:
    """C16: what filling looked up is not looked up again for the plan; hidden rows and figures agree."""
    table = make(store, "k int, s int, a int", sequence="s")
    full(table, *((k, 10, k) for k in range(50)))
    table.delete(pa.table({"k": [3, 4]}))
    with table.begin_load(mode="UPDATE_FIXED_COLUMNS") as opened:
        opened.write(pa.table({"k": [1, 2, 3, 60, 1], "s": [5, 20, 20, 1, 30], "a": [0, 0, 0, 0, 0]}))
        opened.prepare()
        writer = opened._writer
        told, anew = writer.prepared.plan, make_plan(table.state(), writer.segments)
        assert told.effects() == anew.effects() == (2, 0, 0)
        found = {name: sorted(rows.tolist()) for name, rows in told.positions().items()}
        assert found == {name: sorted(rows.tolist()) for name, rows in anew.positions().items()}
        opened.commit()
    assert table.check() == []


def test_large_updates_have_unread_segments_read_ahead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(store, "k int, v int, w int")
    rows = pa.table({name: np.arange(200_000, dtype=np.int32) for name in "kvw"})
    table.upsert(rows.slice(0, 100_000))
    table.upsert(rows.slice(100_000))
    first, second = [f"{live.segment.meta.file_id}.arrow" for live in table.state().segments.values()]
    asked: list[str] = []
    will_read = Disk.will_read

    def noted(self: Disk, name: str) -> None:
        asked.append(Path(name).name)
        will_read(self, name)

    monkeypatch.setattr(Disk, "will_read", noted)
    load(table, "k v", (5, 0))
    assert asked == [], "it needs a page of the first"
    change = rows.select(["k", "v"]).slice(90_000, 20_000)
    table.upsert(change, mode="UPDATE_FIXED_COLUMNS")
    assert asked == [second], "the first was read"
    table.upsert(change, mode="UPDATE_FIXED_COLUMNS")
    assert {first, second}.isdisjoint(asked[1:])
    assert table.count() == 200_000
