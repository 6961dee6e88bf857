"""Column groups with sequences of their own: declaring, loading, deleting (SM1-SM6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import Column, InvalidInputError, LoadResult, Store, Table, TableSchema
from seqstore.store.schema.column_groups import (
    group_properties,
    refuse_rename,
    refuse_type_change,
    with_added,
    without_column,
)
from tests.support.rows import column, rows_of

SEQUENCE, DELETE = "__SEQUENCE_COL__", "__DELETE_SIGN__"
UPSERT_TEST = ("a bigint", "b int", "c int", "d int", "e int", "s1 int", "s2 int")


def make(store: Store, *columns: str, groups: dict[str, str], key: str = "k", **properties: str) -> Table:
    mapped = {f"sequence_mapping.{name}": cells for name, cells in groups.items()}
    schema = TableSchema.create(
        [column(text) for text in columns], key.split(","), properties={**mapped, **properties}
    )
    return store.create_table(f"db.t{len(store.tables('db'))}", schema)


def two_groups(store: Store) -> Table:
    """k; c and d by s1; e by s2."""
    return make(
        store,
        *("k int NOT NULL", "c int", "d int", "e int", "s1 int", "s2 int"),
        groups={"s1": "c,d", "s2": "e"},
    )


def load(table: Table, columns: str, *rows: tuple[Any, ...], **options: Any) -> LoadResult:
    """A load of the named columns: whole rows, unless the options say otherwise."""
    names = columns.split(" ")
    types = {name: table.schema.column(name).type.arrow for name in names if not name.startswith("__")}
    cells = list(zip(*rows, strict=True))
    arrays = [pa.array(cells[i], types.get(name, pa.int8())) for i, name in enumerate(names)]
    return table.upsert(pa.table(arrays, names=names), **options)


def fixed(table: Table, columns: str, *rows: tuple[Any, ...], **options: Any) -> LoadResult:
    return load(table, columns, *rows, mode="UPDATE_FIXED_COLUMNS", **options)


def refused(store: Store, *columns: str, groups: dict[str, str], **properties: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        make(store, *columns, groups=groups, **properties)
    return caught.value.message


# declaring


def test_every_sequence_is_a_column_of_an_integer_or_date_type(store: Store) -> None:
    """SM1, SD4."""
    columns = ("k int", "c int", "s string")
    assert refused(store, *columns, groups={"s": "c"}) == "Unsupported data type in sequence column"
    message = "sequence column [t] in column_group does not exist in schema"
    assert refused(store, *columns, groups={"t": "c,s"}) == message
    message = "sequence column of column group should be specified"
    assert refused(store, *columns, groups={"": "c,s"}) == message
    made = make(store, "k int", "c int", "s DATETIME(3)", "t DATE", groups={"S": "c", "t": ""})
    assert [group.columns for group in made.schema.column_groups.values()] == [("s", "c"), ("t",)]


def test_groups_and_a_sequence_of_the_table_exclude_each_other(store: Store) -> None:
    """SM2."""
    columns = ("k int", "c int", "s int")
    message = "column group sequence and sequence column can't apply to both"
    for name, value in (("sequence_col", "s"), ("sequence_type", "int")):
        properties = {f"function_column.{name}": value}
        assert refused(store, *columns, groups={"s": "c"}, **properties) == message
    assert refused(store, *columns, groups={"s": "c"}, light_schema_change="false").startswith(
        "sequence mapping needs light_schema_change"
    )


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"s": "c,x"}, "value column [x] in column_group [s] does not exist in schema"),
        ({"s": "c,k"}, "value column [k] in column_group [s] can't be key column"),
        ({"k": "c,d"}, "sequence column [k] in column_group can't be key column"),
        ({"s": "c,d", "t": "d"}, "The columns are overlapping"),
        ({"s": "c,d,t", "t": ""}, "The columns are overlapping"),
        ({"s": "c,d"}, "The columns are not equal between the schema and prop"),
        ({"s,t": "c"}, "The columns are not equal between the schema and prop"),
    ],
)
def test_every_column_but_the_key_is_in_exactly_one_group(
    store: Store, groups: dict[str, str], message: str
) -> None:
    """SM3."""
    assert refused(store, "k int", "c int", "d int", "s int", "t int", groups=groups) == message


def test_a_group_survives_the_catalog(store: Store) -> None:
    table = make(
        store, "k int", "C int", "d int", "s int", "t int", groups={"T , s": " c ,d"}, compression="lz4"
    )
    again = TableSchema.from_record(table.schema.to_record())
    assert again == table.schema
    assert again.properties == {"compression": "lz4", "sequence_mapping.t,s": "C,d"}


# changing


def columns_of(*texts: str) -> list[Column]:
    return [column(text) for text in texts]


def test_new_columns_bring_their_group(store: Store) -> None:
    """SM7, SM3."""
    groups = two_groups(store).schema.groups
    old = ("k int", "c int", "d int", "e int", "s1 int", "s2 int")
    added = {"sequence_mapping.s3": "f"}
    grown = with_added(groups, columns_of(*old, "f int", "s3 bigint"), ["k"], added)
    assert group_properties(grown) == {
        "sequence_mapping.s1": "c,d",
        "sequence_mapping.s2": "e",
        "sequence_mapping.s3": "f",
    }
    broken: list[tuple[tuple[str, ...], dict[str, str], str]] = [
        (("f int",), {}, "The columns are not equal between the schema and prop"),
        (("f int", "s3 int", "g int"), added, "The columns are not equal between the schema and prop"),
        (("f int", "s3 int"), {"sequence_mapping.s3": "f,c"}, "The columns are overlapping"),
        (("f int", "s3 int"), {"sequence_mapping.s3": "f,s1"}, "The columns are overlapping"),
        (("f int",), {"sequence_mapping.s1": "f"}, "The columns are overlapping"),
        (("f int", "s3 string"), added, "Unsupported data type in sequence column"),
        (
            ("f int",),
            added,
            "sequence column [s3] in column_group does not exist in schema",
        ),
        (("f int", "s3 int"), {**added, "compression": "lz4"}, "property 'compression' does not go with ADD"),
    ]
    for new, properties, message in broken:
        with pytest.raises(InvalidInputError) as caught:
            with_added(groups, columns_of(*old, *new), ["k"], properties)
        assert caught.value.message.startswith(message)
    with pytest.raises(InvalidInputError, match="can only be added to a table that was created with one"):
        with_added((), columns_of("k int", "f int", "s3 int"), ["k"], added)


def test_cells_are_dropped_before_their_sequence(store: Store) -> None:
    """SM7: and the number of a group that is gone is not given again."""
    groups = two_groups(store).schema.groups
    with pytest.raises(InvalidInputError, match=r"Can not drop sequence mapping column\[s1\]"):
        without_column(groups, "s1")
    bare = without_column(groups, "e")
    assert group_properties(bare) == {"sequence_mapping.s1": "c,d", "sequence_mapping.s2": ""}
    gone = without_column(bare, "s2")
    assert group_properties(gone) == {"sequence_mapping.s1": "c,d"}
    added = with_added(
        gone,
        columns_of("k int", "c int", "d int", "s1 int", "f int", "s3 int"),
        ["k"],
        {"sequence_mapping.s3": "f"},
    )
    assert [group is None for group in added] == [False, True, False]


def test_columns_of_groups_keep_their_names_and_sequences_their_types(store: Store) -> None:
    """SM1, SM2."""
    groups = two_groups(store).schema.groups
    with pytest.raises(InvalidInputError, match="column 'c' cannot be renamed"):
        refuse_rename(groups, "c")
    with pytest.raises(InvalidInputError, match=r"sequence mapping column\[s1\] cannot be changed"):
        refuse_type_change(groups, "s1")
    refuse_type_change(groups, "c")
    refuse_rename((), "c")


# loading


def test_the_worked_example_of_multi_stream_update(store: Store) -> None:
    """SM5: each group follows its own sequence, an absent one stays."""
    table = make(store, *UPSERT_TEST, groups={"s1": "c,d", "s2": "e"}, key="a,b")
    load(table, "a b c d s1", (1, 1, 2, 2, 2))
    assert rows_of(table) == [(1, 1, 2, 2, None, 2, None)]
    assert load(table, "a b c d s1", (1, 1, 1, 1, 1)).rows_late == 1
    assert rows_of(table) == [(1, 1, 2, 2, None, 2, None)]
    load(table, "a b e s2", (1, 1, 2, 2))
    assert rows_of(table) == [(1, 1, 2, 2, 2, 2, 2)]
    load(table, "a b c d s1", (1, 1, 3, 3, 3))
    assert rows_of(table) == [(1, 1, 3, 3, 2, 3, 2)]
    load(table, "a b c d s1 e s2", (1, 1, 5, 5, 4, 5, 4))
    assert rows_of(table) == [(1, 1, 5, 5, 5, 4, 4)]
    assert table.check() == []


def test_rows_of_one_load_are_merged_the_same_way(store: Store) -> None:
    """SM6, for one group and for several at once."""
    table = two_groups(store)
    result = load(table, "k c d s1", (1, 1, 1, 1), (1, 3, 3, 3), (1, 2, 2, 2))
    assert rows_of(table) == [(1, 3, 3, None, 3, None)]
    assert (result.rows_loaded, result.rows_superseded, result.rows_late) == (3, 2, 0)
    load(table, "k c d s1 e s2", (1, 4, 4, 4, 40, 1), (1, 5, 5, 5, 10, 0), (1, 0, 0, 0, 50, 5))
    assert rows_of(table) == [(1, 5, 5, 50, 5, 5)]


def test_a_smaller_sequence_leaves_its_group_and_no_other(store: Store) -> None:
    """SM4."""
    table = two_groups(store)
    load(table, "k c d s1 e s2", (1, 1, 1, 5, 1, 5))
    load(table, "k c d s1 e s2", (1, 2, 2, 4, 2, 6))
    assert rows_of(table) == [(1, 1, 1, 2, 5, 6)]


def test_equal_sequences_are_decided_by_the_version_then_by_arrival(store: Store) -> None:
    """SM4, SO2, SO3."""
    table = two_groups(store)
    load(table, "k c d s1", (1, 1, 1, 5), (1, 2, 2, 5))
    assert rows_of(table) == [(1, 2, 2, None, 5, None)]
    load(table, "k c d s1", (1, 3, 3, 5))
    assert rows_of(table) == [(1, 3, 3, None, 5, None)]


def test_null_is_the_smallest_sequence(store: Store) -> None:
    """SM4, SM5, SO4."""
    table = two_groups(store)
    load(table, "k c d s1", (1, 1, 1, None))
    assert rows_of(table) == [(1, 1, 1, None, None, None)]
    load(table, "k c d s1", (1, 2, 2, None))
    assert rows_of(table) == [(1, 2, 2, None, None, None)]
    load(table, "k c d s1", (1, 3, 3, -(2**31)))
    load(table, "k c d s1", (1, 4, 4, None))
    assert rows_of(table) == [(1, 3, 3, None, -(2**31), None)]


def test_a_group_of_nothing_but_nulls_is_not_given(store: Store) -> None:
    """Wide rows of a stream that knows other columns."""
    table = two_groups(store)
    load(table, "k c d e s1 s2", (1, None, None, 7, None, None))
    load(table, "k c d e s1 s2", (1, 2, 2, None, 2, None))
    assert rows_of(table) == [(1, 2, 2, 7, 2, None)]
    fixed(table, "k e s2", (1, None, None))  # a partial update says what it knows (P6)
    assert rows_of(table) == [(1, 2, 2, None, 2, None)]


def test_whole_rows_take_defaults_for_the_rest_of_a_group(store: Store) -> None:
    """SM5, A1: of a group that is given; one that is not is left alone."""
    table = make(
        store,
        "k int",
        "c int",
        "d int DEFAULT 7",
        "e int DEFAULT 9",
        "s1 int DEFAULT 3",
        "s2 int DEFAULT 5",
        groups={"s1": "c,d", "s2": "e"},
    )
    load(table, "k c s1", (1, 1, 1))
    assert rows_of(table) == [(1, 1, 7, 9, 1, None)]
    load(table, "k c d", (1, 2, 2))
    assert rows_of(table) == [(1, 2, 2, 9, 3, None)]
    load(table, "k e s2", (1, 4, 4))
    load(table, "k c s1", (1, 5, 5))
    assert rows_of(table) == [(1, 5, 7, 4, 5, 4)]


def test_composite_sequences_compare_from_left_to_right(store: Store) -> None:
    """The two statements of the worked example of Paimon's sequence-group, NULL lowest in each place."""
    columns = ("k int", "a int", "b int", "g1 int", "c int", "d int", "g2 bigint", "g3 largeint")
    table = make(store, *columns, groups={"g1": "a,b", "g2,g3": "c,d"})
    load(table, "k a b g1 c d g2 g3", (1, 1, 1, 1, 1, 1, 1, 1))
    load(table, "k a b g1 c d g2 g3", (1, 2, 2, 2, 2, 2, 1, None))
    assert rows_of(table) == [(1, 2, 2, 2, 1, 1, 1, 1)]
    load(table, "k a b g1 c d g2 g3", (1, 3, 3, 1, 3, 3, 3, 1))
    assert rows_of(table) == [(1, 2, 2, 2, 3, 3, 3, 1)]
    load(table, "k c d g2 g3", (1, 4, 4, 3, 0), (1, 5, 5, 3, 2**100), (1, 6, 6, 2, 2**120))
    assert rows_of(table) == [(1, 2, 2, 2, 5, 5, 3, 2**100)]
    load(table, "k c d g2 g3", (1, 7, 7, None, 2**126))
    assert rows_of(table) == [(1, 2, 2, 2, 5, 5, 3, 2**100)]


def test_the_extremes_of_bigint_are_no_nulls(store: Store) -> None:
    table = make(store, "k int", "c int", "s bigint", "t bigint", groups={"s,t": "c"})
    load(table, "k c s t", (1, 1, None, 5))
    load(table, "k c s t", (1, 2, -(2**63), None))
    load(table, "k c s t", (1, 3, None, 2**63 - 1))
    load(table, "k c s t", (1, 4, -(2**63), -(2**63)))
    load(table, "k c s t", (1, 5, -(2**63), None))
    assert rows_of(table) == [(1, 4, -(2**63), -(2**63))]


def test_partial_updates_name_whole_groups(store: Store) -> None:
    table = two_groups(store)
    fixed(table, "k c d s1", (1, 1, 1, 1))
    fixed(table, "k e s2", (1, 2, 2), (2, 2, 2))
    assert rows_of(table) == [(1, 1, 1, 2, 1, 2), (2, None, None, 2, None, 2)]
    with pytest.raises(InvalidInputError, match="all columns of a column group, missing: d;"):
        fixed(table, "k c s1", (1, 9, 9))
    with pytest.raises(InvalidInputError, match="all columns of a column group, missing: s2;"):
        fixed(table, "k e", (1, 9))
    with pytest.raises(InvalidInputError, match="should include all key columns, missing: k"):
        fixed(table, "e s2", (9, 9))


def test_flexible_updates_give_groups_row_by_row(store: Store) -> None:
    """A row that supplies a group in part is left out, with the reason."""
    table = two_groups(store)
    load(table, "k c d s1 e s2", (1, 1, 1, 5, 1, 5), (2, 1, 1, 5, 1, 5))
    data = pa.table({"k": [1, 2, 3], "c": [2, 2, 2], "d": [2, 2, 2], "s1": [6, 6, 6], "e": [3] * 3})
    data = data.append_column("s2", pa.array([9, 9, 9]))
    first, second = np.array([True, False, True]), np.array([False, True, True])
    masks = {"c": first, "d": first, "s1": first, "e": second, "s2": np.array([False, True, False])}
    with table.begin_load(mode="UPDATE_FLEXIBLE_COLUMNS") as opened:
        written = opened.write(data, supplied=masks)
        assert [(row.row, row.column) for row in written.rejected] == [(2, "s2")]
        opened.commit()
    assert rows_of(table) == [(1, 2, 2, 1, 6, 5), (2, 1, 1, 3, 5, 9)]


def test_null_means_keep_is_decided_by_the_sequence(store: Store) -> None:
    table = make(
        store,
        "k int",
        "c int",
        "d int NOT NULL",
        "e int",
        "s1 int",
        "s2 int",
        groups={"s1": "c,d", "s2": "e"},
    )
    load(table, "k c d e s1 s2", (1, 1, 1, 1, 1, 1))
    names = "k c d e s1 s2"
    fixed(table, names, (1, 2, None, None, None, 2), ignore_null=True)
    assert rows_of(table) == [(1, 1, 1, None, 1, 2)]
    result = fixed(
        table,
        names,
        (1, None, 2, 2, 2, None),
        (1, 9, None, 9, 9, 9),
        ignore_null=True,
        max_filter_ratio=0.5,
    )
    assert [row.reason for row in result.rejected] == [
        "column(d) values is null while columns is not nullable"
    ]
    assert rows_of(table) == [(1, None, 2, None, 2, 2)]


def test_a_flexible_row_that_supplies_a_group_in_part_is_rejected_where_null_means_keep(store: Store) -> None:
    """Its other columns are in no row of the data at all."""
    table = two_groups(store)
    load(table, "k c d e s1 s2", (1, 1, 1, 1, 1, 1))
    result = load(
        table,
        "k d e s1 s2",
        (1, 2, 2, 2, 2),
        (1, 3, 3, None, 3),
        mode="UPDATE_FLEXIBLE_COLUMNS",
        ignore_null=True,
        max_filter_ratio=0.5,
    )
    assert [(row.row, row.column) for row in result.rejected] == [(0, "c")]
    assert rows_of(table) == [(1, 1, 1, 3, 1, 3)]


def test_new_keys_can_be_refused(store: Store) -> None:
    """P10."""
    table = two_groups(store)
    fixed(table, "k e s2", (1, 1, 1))
    fixed(table, "k c d s1", (1, 1, 1, 1), new_keys="ERROR")
    with pytest.raises(InvalidInputError, match=r"Row with key=\[2\] is not in table"):
        fixed(table, "k c d s1", (1, 2, 2, 2), (2, 1, 1, 1), new_keys="ERROR")
    assert rows_of(table) == [(1, 1, 1, 1, 1, 1)]


def test_a_new_key_needs_its_not_null_columns(store: Store) -> None:
    """P7, P8."""
    table = make(store, "k int", "c int NOT NULL", "e int", "s1 int", "s2 int", groups={"s1": "c", "s2": "e"})
    with pytest.raises(InvalidInputError, match="the unmentioned column `c` should have default value"):
        load(table, "k e s2", (1, 1, 1))
    load(table, "k c s1", (1, 1, 1))
    load(table, "k e s2", (1, 1, 1))
    assert rows_of(table) == [(1, 1, 1, 1, 1)]


def test_keys_alone_make_rows_without_overwriting_any(store: Store) -> None:
    """P5."""
    table = two_groups(store)
    fixed(table, "k", (1,))
    assert rows_of(table) == [(1, None, None, None, None, None)]
    load(table, "k c d s1", (1, 1, 1, 1))
    load(table, "k", (1,), (2,))
    assert rows_of(table) == [(1, 1, 1, None, 1, None), (2, None, None, None, None, None)]


def test_a_hidden_sequence_is_refused(store: Store) -> None:
    """SL13."""
    table = two_groups(store)
    with pytest.raises(InvalidInputError, match="There is no sequence column in the table t0"):
        load(table, f"k c d s1 {SEQUENCE}", (1, 1, 1, 1, 1))
    with pytest.raises(InvalidInputError, match="There is no sequence column"):
        load(table, "k c d s1", (1, 1, 1, 1), sequence="s1")


# deleting


def test_a_delete_takes_away_the_groups_whose_sequences_it_brings(store: Store) -> None:
    """D1, D2: the key goes with its last group."""
    table = two_groups(store)
    load(table, "k c d s1 e s2", (1, 1, 1, 5, 1, 5))
    assert fixed(table, "k s1", (1, 4), merge_type="DELETE").rows_late == 1
    assert rows_of(table) == [(1, 1, 1, 1, 5, 5)]
    assert fixed(table, "k s1", (1, 6), merge_type="DELETE").rows_replaced == 1
    assert rows_of(table) == [(1, None, None, 1, 6, 5)]
    assert fixed(table, "k s2", (1, 5), merge_type="DELETE").rows_deleted == 1
    assert rows_of(table) == []
    assert table.check() == []


def test_a_deleted_group_stays_away_from_older_rows(store: Store) -> None:
    """D4, D5, D6: and comes back with an equal or larger sequence, alone."""
    table = two_groups(store)
    load(table, f"k c d s1 e s2 {DELETE}", (1, None, None, 5, None, 5, 1))
    assert rows_of(table) == []
    load(table, "k c d s1", (1, 4, 4, 4))
    assert rows_of(table) == []
    load(table, "k c d s1", (1, 5, 5, 5))
    assert rows_of(table) == [(1, 5, 5, None, 5, 5)]


def test_a_delete_without_sequences_takes_the_whole_key_and_keeps_them(store: Store) -> None:
    """D8, D9."""
    table = two_groups(store)
    load(table, "k c d s1 e s2", (1, 1, 1, 5, 1, 6))
    table.delete(pa.table({"k": [1, 2]}))
    assert rows_of(table) == []
    seen = table.scan(["k", DELETE, "s1", "s2", "__GROUPS_COL__"], deleted=True).read_all().to_pylist()
    found = sorted(tuple(row.values()) for row in seen)
    assert found == [(1, 1, 5, 6, 0), (2, 1, None, None, 0)]
    load(table, "k e s2", (1, 7, 5), (2, 8, -5))
    assert rows_of(table) == [(2, None, None, 8, None, -5)]


def test_a_delete_within_a_load_stands_where_it_arrives(store: Store) -> None:
    """SM6, F12: without sequences it takes what came before it, with them what is not newer."""
    table = two_groups(store)
    load(table, "k c d s1 e s2", (1, 1, 1, 5, 1, 5))
    names = ("k", "c", "d", "s1", DELETE)
    data = pa.table(
        [[1, 1, 1], [8, None, 7], [8, None, 7], [8, None, 8], pa.array([0, 1, 0], pa.int8())], names
    )
    masks = {name: np.array([True, False, True]) for name in ("c", "d", "s1")}
    with table.begin_load(mode="UPDATE_FLEXIBLE_COLUMNS") as opened:
        opened.write(data, supplied=masks)
        opened.commit()
    assert rows_of(table) == [(1, 7, 7, None, 8, 5)]


def test_deletes_and_rows_with_sequences_come_in_any_order(store: Store) -> None:
    expected = [(1, None, None, 2, 9, 2)]
    events: list[tuple[str, tuple[Any, ...]]] = [
        (f"k s1 {DELETE}", (1, 9, 1)),
        (f"k c d s1 {DELETE}", (1, 8, 8, 8, 0)),
        (f"k e s2 {DELETE}", (1, 2, 2, 0)),
    ]
    for order in ([0, 1, 2], [1, 0, 2], [2, 0, 1], [2, 1, 0], [1, 2, 0], [0, 2, 1]):
        table = two_groups(store)
        for number in order:
            fixed(table, events[number][0], events[number][1])
        assert rows_of(table) == expected, order


# changing rows by condition


def test_an_update_writes_the_groups_of_its_columns(store: Store) -> None:
    """U12: the sequence stays, and the later version wins; other groups are not touched."""
    table = two_groups(store)
    load(table, "k c d s1 e s2", (1, 1, 1, 5, 1, 5), (2, 2, 2, 5, 2, 5))
    with table.begin_load(mode="UPDATE_FIXED_COLUMNS") as late:
        late.write(pa.table({"k": [1], "e": [9], "s2": [9]}))
        result = table.update({"c": pc.field("c") + 10}, pc.field("k") == 1)
        late.commit()
    assert (result.rows_matched, result.rows_changed) == (1, 1)
    assert rows_of(table) == [(1, 11, 1, 9, 5, 9), (2, 2, 2, 2, 5, 5)]


def test_an_update_that_lowers_the_sequence_of_a_group_changes_nothing(store: Store) -> None:
    """U14."""
    table = two_groups(store)
    load(table, "k c d s1", (1, 1, 1, 5))
    result = table.update({"c": 9, "s1": 4}, pc.field("k") == 1)
    assert (result.rows_matched, result.rows_changed) == (1, 0)
    assert table.update({"c": 9, "s1": 6}).rows_changed == 1
    assert rows_of(table) == [(1, 9, 1, None, 6, None)]


def test_a_null_can_be_set_where_nothing_else_was(store: Store) -> None:
    """P6: an update is no wide row of another stream."""
    table = two_groups(store)
    load(table, "k c d s1 e s2", (1, 1, None, None, 1, 1))
    table.update({"c": None})
    assert rows_of(table) == [(1, None, None, 1, None, 1)]


def test_a_delete_by_condition_takes_the_whole_row(store: Store) -> None:
    """D13."""
    table = two_groups(store)
    load(table, "k c d s1 e s2", (1, 1, 1, 5, 1, 5), (2, 2, 2, 5, 2, 5))
    table.delete_where(pc.field("e") == 2)
    assert rows_of(table) == [(1, 1, 1, 1, 5, 5)]


# concurrency


def test_a_load_planned_before_others_merges_with_what_they_brought(store: Store) -> None:
    """C1, C3: nothing of an earlier filling stands where it has lost since."""
    table = two_groups(store)
    load(table, "k c d s1 e s2", (1, 1, 1, 1, 1, 1), (2, 1, 1, 1, 1, 1), (3, 1, 1, 1, 1, 1))
    with table.begin_load() as slow:
        slow.write(pa.table({"k": [1, 2, 3], "c": [5] * 3, "d": [5] * 3, "s1": [5] * 3}))
        slow.prepare()
        load(table, "k c d s1", (1, 9, 9, 9))
        load(table, "k e s2", (2, 9, 9))
        slow.commit()
    assert rows_of(table) == [(1, 9, 9, 1, 9, 1), (2, 5, 5, 9, 5, 9), (3, 5, 5, 1, 5, 1)]
    assert table.check() == []


def test_a_load_that_lost_everywhere_succeeds_and_makes_no_version(store: Store) -> None:
    table = two_groups(store)
    version = load(table, "k c d s1", (1, 5, 5, 5)).version
    result = load(table, "k c d s1", (1, 4, 4, 4), (1, 3, 3, 3))
    assert (result.version, result.rows_loaded, result.rows_late) == (version, 2, 2)
