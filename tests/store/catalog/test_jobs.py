"""Jobs of the catalog: records that move with the rows of a load, or not at all."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, NotFoundError, Store
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.jobs import Jobs
from seqstore.store.catalog.transaction_record import TransactionRecord
from tests.support.rows import rows_of, schema_of

ROW: dict[str, Any] = {"k": [1], "v": [1]}


def test_a_record_moves_in_the_commit_point_that_publishes_the_rows(store: Store) -> None:
    """R11"""
    table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v INT"))
    jobs = Jobs(store.catalog, "routine")
    job_id = jobs.add({"offset": 0})

    def move(tx: CatalogTransaction, done: TransactionRecord) -> None:
        jobs.change_within(tx, job_id, lambda record: {"offset": record["offset"] + 1, "txn": done.id})
        jobs.mark_within(tx, job_id, "a.json", done.id)

    with table.begin_load(label="one") as load:
        load.write(pa.table(ROW))
        done = load.commit(also=move)
    assert jobs.get(job_id) == {"offset": 1, "txn": done.txn_id}
    assert jobs.marks(job_id) == {"a.json": done.txn_id}
    jobs.remove(job_id)
    assert (jobs.all(), jobs.marks(job_id)) == ({}, {})


def test_the_record_of_a_load_without_rows_moves_too(store: Store) -> None:
    """R15"""
    table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v INT"))
    jobs = Jobs(store.catalog, "routine")
    job_id = jobs.add({"offset": 0})
    with table.begin_load() as load:
        before = table.state().version
        load.commit(also=lambda tx, done: moved(jobs, tx, job_id))
    assert jobs.get(job_id) == {"offset": 1}
    assert table.state().version == before


def moved(jobs: Jobs, tx: CatalogTransaction, job_id: int) -> None:
    jobs.change_within(tx, job_id, lambda record: {"offset": record["offset"] + 1})


def test_what_refuses_to_move_takes_the_rows_back(store: Store) -> None:
    """R12"""
    table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v INT"))
    jobs = Jobs(store.catalog, "routine")
    job_id = jobs.add({"offset": 0})

    def refuse(tx: CatalogTransaction, done: TransactionRecord) -> None:
        moved(jobs, tx, job_id)
        raise InvalidInputError("not this one any more")

    with table.begin_load(label="one") as load:
        load.write(pa.table(ROW))
        with pytest.raises(InvalidInputError, match="not this one"):
            load.commit(also=refuse)
    assert jobs.get(job_id) == {"offset": 0}
    assert rows_of(table) == []
    with table.begin_load(label="one") as load:  # the label is free again
        load.write(pa.table(ROW))
        load.commit()
    assert rows_of(table) == [(1, 1)]


def test_the_jobs_above_a_number_are_those_that_came_since(store: Store) -> None:
    jobs, others = Jobs(store.catalog, "routine"), Jobs(store.catalog, "schema change")
    first, second = jobs.add({"n": 1}), jobs.add({"n": 2})
    assert jobs.again([first], first) == ({first: {"n": 1}, second: {"n": 2}}, second)
    other = others.add({"n": 3})
    jobs.remove(first)
    assert jobs.again([first, second], second) == ({second: {"n": 2}}, other)
    assert jobs.again([second], other) == ({second: {"n": 2}}, other)


def test_a_job_of_another_kind_or_none_is_not_found(store: Store) -> None:
    jobs = Jobs(store.catalog, "routine")
    other = Jobs(store.catalog, "schema change").add({})
    for number in (other, other + 1):
        with pytest.raises(NotFoundError, match=f"there is no routine job {number}"):
            jobs.get(number)
