"""MERGE from Python: the clauses, what it reads, and its place in transactions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from seqstore import (
    Column,
    ConcurrentAppendException,
    InvalidInputError,
    Store,
    Table,
    TableSchema,
    parse_type,
)

GIVEN = pa.table({"k": [1, 2, 9], "a": [11, 20, 90], "b": ["p", "q", "r"]})


@pytest.fixture
def table(store: Store) -> Table:
    columns = [
        Column("k", parse_type("INT"), nullable=False),
        Column("a", parse_type("INT")),
        Column("b", parse_type("STRING")),
    ]
    made = store.create_table("db.t", TableSchema.create(columns, ["k"]))
    made.upsert(pa.table({"k": [1, 2, 3], "a": [10, 20, 30], "b": ["x", "y", "z"]}))
    return made


def stored(table: Table) -> dict[int, tuple[int | None, str | None]]:
    return {row["k"]: (row["a"], row["b"]) for row in table.scan().read_all().to_pylist()}


def test_a_row_goes_to_the_first_clause_that_takes_it(table: Table) -> None:
    done = (
        table.merge(GIVEN, ["k"])
        .when_matched_update({"a": "s.a + t.a", "b": "concat(t.b, s.b)"}, "s.a <> t.a")
        .when_matched_delete()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"b": "'gone'"})
        .execute()
    )
    assert (done.rows_matched, done.rows_changed, done.status) == (4, 4, "VISIBLE")
    assert stored(table) == {1: (21, "xp"), 3: (30, "gone"), 9: (90, "r")}
    assert table.history()[-1].operation == "MERGE"


def test_all_columns_some_columns_and_deletes(table: Table) -> None:
    merge = table.merge(GIVEN, "x.k = y.k", target_alias="x", source_alias="y")
    merge.when_matched_update_all("y.k = 1").when_not_matched_insert({"k": "y.k", "a": "7"}, "y.a > 0")
    merge.when_not_matched_by_source_delete().execute()
    assert stored(table) == {1: (11, "p"), 2: (20, "y"), 9: (7, None)}


def test_it_is_a_statement_of_a_transaction(store: Store, table: Table) -> None:
    with store.transaction() as tx:
        opened = tx.table("db.t")
        matched, _ = opened.merge(GIVEN, ["k"]).when_matched_delete().run()
        opened.upsert(pa.table({"k": [5], "a": [50], "b": ["n"]}))
        assert matched == 2
        assert set(stored(table)) == {1, 2, 3}
    assert set(stored(table)) == {3, 5}


def test_28_of_two_merges_that_insert_one_key_the_second_fails(store: Store, table: Table) -> None:
    one, two = (store.transaction(concurrency="optimistic") for _ in range(2))
    for tx in (one, two):
        merge = tx.table("db.t").merge(GIVEN, ["k"])
        merge.when_matched_update({"a": "t.a + 1"}).when_not_matched_insert_all().run()
    one.commit()
    with pytest.raises(ConcurrentAppendException) as caught:
        two.commit()
    assert {"k": 9} in [key for conflict in caught.value.conflicts for key in conflict.keys]
    merge = table.merge(GIVEN, ["k"])
    merge.when_matched_update({"a": "t.a + 1"}).when_not_matched_insert_all().execute(retries=1)
    assert stored(table) == {1: (12, "x"), 2: (22, "y"), 3: (30, "z"), 9: (91, "r")}


def test_what_cannot_be_merged_is_refused(store: Store, table: Table) -> None:
    with pytest.raises(InvalidInputError, match="needs a clause"):
        table.merge(GIVEN, ["k"]).execute()
    with pytest.raises(InvalidInputError, match="Only the last matched clause"):
        table.merge(GIVEN, ["k"]).when_matched_delete().when_matched_update_all().execute()
    with pytest.raises(InvalidInputError, match="write it in SQL"):
        table.merge(GIVEN, "t.k = (SELECT max(k) FROM u)").when_matched_delete().execute()
    with pytest.raises(InvalidInputError, match="columns to match by"):
        table.merge(GIVEN, [])
    with pytest.raises(InvalidInputError):
        table.merge(GIVEN, "t.k = = s.k")
    with pytest.raises(InvalidInputError, match="run\\(\\)"):
        store.transaction().table("db.t").merge(GIVEN, ["k"]).when_matched_delete().execute()
    assert table.version == 2


@pytest.mark.parametrize("names", [["k", "a", "a"], ["k", "K", "a"]], ids=str)
def test_a_source_names_each_column_once(table: Table, names: list[str]) -> None:
    rows = pa.table([pa.array([1])] * 3, names=names)
    with pytest.raises(InvalidInputError, match=rf"db\.t: .* has column '{names[1].lower()}' twice"):
        table.merge(rows, ["k"])
