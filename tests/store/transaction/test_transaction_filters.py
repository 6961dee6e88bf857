"""Filters of transactions that do not tell which columns they read: they count as reading all of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    Column,
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    InvalidInputError,
    Store,
    Table,
    TableSchema,
    parse_type,
)
from seqstore.store.ddl.alter import add_constraint
from seqstore.store.sql import Session
from tests.support.filter_text import needs_cut_text

# Arrow's text of such a value set is cut within a character and cannot be had.
LONG = ["a", "日" * 33, "ü" * 49 + "x"]
UNTOLD = pc.field("txt").isin(LONG)


@pytest.fixture
def table(store: Store) -> Table:
    columns = [Column("k", parse_type("INT"), nullable=False), Column("txt", parse_type("STRING"))]
    columns += [Column(name, parse_type("INT")) for name in ("a", "b")]
    made = store.create_table("db.t", TableSchema.create(columns, ["k"]))
    made.upsert(rows((1, "a", 10, 0), (2, "b", 20, 0)))
    return made


@pytest.fixture
def session(session: Session, table: Table) -> Session:
    """With the table."""
    return session


def rows(*values: tuple[int, str, int, int]) -> pa.Table:
    k, txt, a, b = zip(*values, strict=True)
    return pa.table({"k": ints(k), "txt": txt, "a": ints(a), "b": ints(b)})


def ints(values: tuple[int, ...]) -> pa.Array:
    return pa.array(values, pa.int32())


def stored(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().read_all().to_pylist())


def run(session: Session, text: str) -> Any:
    result = list(session.execute(text))[-1]
    return result.affected_rows if result.rows is None else result.rows.to_pylist()


@needs_cut_text
def test_the_text_of_the_filter_cannot_be_had() -> None:
    with pytest.raises(UnicodeDecodeError):
        str(UNTOLD)


def test_d13_delete_where_takes_long_texts(table: Table) -> None:
    assert table.delete_where(UNTOLD).rows_matched == 1
    assert stored(table) == [(2, "b", 20, 0)]


def test_u1_update_takes_long_texts(table: Table) -> None:
    table.update({"a": 5}, UNTOLD)
    assert stored(table) == [(1, "a", 5, 0), (2, "b", 20, 0)]


def test_u1_an_assigned_expression_takes_long_texts(table: Table) -> None:
    table.update({"a": pc.if_else(UNTOLD, 1, 2)})
    assert stored(table) == [(1, "a", 1, 0), (2, "b", 2, 0)]


@pytest.mark.parametrize("statement", ["UPDATE t SET a = 5 WHERE", "DELETE FROM t WHERE"])
def test_u1_d13_sql_takes_long_texts(session: Session, statement: str) -> None:
    assert run(session, f"{statement} txt IN {tuple(LONG)}") == 1


def test_x7_a_select_of_a_transaction_takes_long_texts(session: Session) -> None:
    found = run(session, f"BEGIN; SELECT k FROM t WHERE txt IN {tuple(LONG)}")
    assert found == [{"k": 1}]


def test_an_untold_filter_reads_every_column(store: Store, table: Table) -> None:
    transaction = store.transaction(concurrency="optimistic")
    transaction.table("db.t").update({"b": 1}, UNTOLD)
    table.update({"a": 11}, pc.field("k") == 1)
    with pytest.raises(ConcurrentDeleteReadException):
        transaction.commit()


@needs_cut_text
def test_a_check_of_long_texts_counts_every_column(table: Table) -> None:
    add_constraint(table, "known", "txt IN (..)", pc.field("txt").isin([*LONG, "b"]))
    assert table.schema.constraints[0].columns(table.schema.names) == table.schema.names


def test_a_check_of_long_texts_that_does_not_fit_says_so(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="does not fit"):
        add_constraint(table, "known", "a IN (..)", pc.field("a").isin(LONG))


def test_a_column_that_is_counted_counts_as_read(store: Store, table: Table) -> None:
    transaction = store.transaction(concurrency="optimistic")
    transaction.table("db.t").update({"b": 1}, pc.field(2) == 10)
    table.update({"a": 11}, pc.field("k") == 1)
    with pytest.raises(ConcurrentDeleteReadException):
        transaction.commit()


def test_a_filter_over_a_counted_column_is_committed(store: Store, table: Table) -> None:
    with store.transaction(concurrency="optimistic") as transaction:
        transaction.table("db.t").update({"b": 1}, pc.field(2) == 10)
    assert stored(table) == [(1, "a", 10, 1), (2, "b", 20, 0)]


def test_rows_that_a_counted_column_leaves_out_hurt_nobody(store: Store, table: Table) -> None:
    transaction = store.transaction(concurrency="optimistic")
    transaction.table("db.t").update({"b": 1}, pc.field(2) == 10)
    table.update({"b": 7}, pc.field("k") == 2)
    transaction.commit()
    assert stored(table) == [(1, "a", 10, 1), (2, "b", 20, 7)]


def test_an_assigned_expression_counts_the_columns_of_the_table(table: Table) -> None:
    table.update({"b": pc.field(2) + 1})
    assert stored(table) == [(1, "a", 10, 11), (2, "b", 20, 21)]


def test_20_who_read_by_a_counted_column_may_have_read_anything(store: Store, table: Table) -> None:
    """What it read cannot be told to others, so the insert it could see is no longer exempt."""
    counter = store.transaction(isolation="WriteSerializable", concurrency="optimistic")
    found = counter.table("db.t").count(pc.field("b") == 5)
    counter.table("db.t").upsert(rows((50, "count", found, 0)))
    table.upsert(rows((9, "z", 90, 5)))
    table.update({"txt": "seen"}, pc.field(2) == 10)
    with pytest.raises(ConcurrentAppendException):
        counter.commit()


def test_a_check_over_a_counted_column_is_refused(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="name its columns"):
        add_constraint(table, "low", "a < 100", pc.field(2) < 100)
