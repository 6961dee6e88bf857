"""Labels and transactions that ended long ago are forgotten; those in use are not (X16, X18)."""

from __future__ import annotations

import os
from dataclasses import replace

import pyarrow as pa
import pytest

from seqstore import Column, LabelExistsError, Store, Table, TableSchema, parse_type
from seqstore.store.catalog.label_retention import forget_transactions
from seqstore.store.catalog.transaction_record import TransactionStatus, put_transaction, read_transaction

pytestmark = pytest.mark.settings(label_keep_seconds=3600)


@pytest.fixture
def table(store: Store) -> Table:
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    return store.create_table("db.t", TableSchema.create(columns, ["k"]))


def load(table: Table, number: int) -> int:
    return table.upsert(pa.table({"k": [number], "v": [number]}), label=f"load-{number}").txn_id


def age(store: Store, txn_id: int, seconds: int) -> None:
    """Makes a transaction older than it is."""
    with store.catalog.write() as tx:
        record = read_transaction(tx, txn_id)
        assert record is not None
        fields = record.to_record()
        fields["begun_ms"] -= seconds * 1000
        fields["finished_ms"] -= seconds * 1000 if record.finished_ms else 0
        put_transaction(tx, type(record).from_record(fields))


def labels(store: Store) -> int:
    with store.catalog.read() as tx:
        return len(list(tx.items("labels")))


def test_a_finished_label_is_forgotten_after_its_time_and_can_be_used_again(
    store: Store, table: Table
) -> None:
    """X18."""
    old, young = load(table, 1), load(table, 2)
    age(store, old, 3601)
    assert table.vacuum(dry_run=True).transactions == 1
    assert store.find_transaction("db", "load-1") is not None
    assert table.vacuum().transactions == 1
    assert store.find_transaction("db", txn_id=old) is None
    assert store.find_transaction("db", txn_id=young) is not None
    assert labels(store) == 1
    load(table, 1)
    with pytest.raises(LabelExistsError):
        load(table, 2)


def age_the_beginning(store: Store, txn_id: int, seconds: int) -> None:
    """Makes a transaction one that took that long."""
    with store.catalog.write() as tx:
        record = read_transaction(tx, txn_id)
        assert record is not None
        put_transaction(tx, replace(record, begun_ms=record.begun_ms - seconds * 1000))


@pytest.mark.parametrize(("seconds", "is_kept"), [(0, True), (3500, True), (3700, False)])
def test_the_time_of_a_label_begins_when_its_load_has_ended(
    store: Store, table: Table, seconds: int, is_kept: bool
) -> None:
    """X18: a load that took longer than labels are kept would free its label at its end."""
    loaded = load(table, 1)
    age(store, loaded, seconds)
    age_the_beginning(store, loaded, 10 * 3600)
    assert table.vacuum().transactions == (not is_kept)
    if is_kept:
        with pytest.raises(LabelExistsError, match=r"Label \[load-1\] has already been used"):
            load(table, 1)
    else:
        load(table, 1)


@pytest.mark.parametrize(("seconds", "is_kept"), [(0, True), (3500, True), (3700, False)])
def test_a_label_in_use_is_refused_before_a_vacuum_too(
    store: Store, table: Table, seconds: int, is_kept: bool
) -> None:
    """X16: the record of the transaction decides, not whether it was removed."""
    loaded = load(table, 1)
    age(store, loaded, seconds)
    age_the_beginning(store, loaded, 10 * 3600)
    if is_kept:
        with pytest.raises(LabelExistsError):
            load(table, 1)
    else:
        load(table, 1)
    assert table.version == (2 if is_kept else 3)


@pytest.mark.settings(precommitted_keep_seconds=3600)
@pytest.mark.parametrize(("seconds", "is_kept"), [(3500, True), (3700, False)])
def test_the_label_of_a_precommitted_load_is_kept_for_its_own_time(
    store: Store, table: Table, seconds: int, is_kept: bool
) -> None:
    """PC: it waits for its second phase, however long the first one took."""
    with table.begin_load(label="load-1") as first:
        first.write(pa.table({"k": [1], "v": [1]}))
        txn_id = first.precommit().txn_id
    with store.catalog.write() as tx:
        record = read_transaction(tx, txn_id)
        assert record is not None
        aged = replace(
            record, begun_ms=record.begun_ms - 36_000_000, expires_ms=record.expires_ms - seconds * 1000
        )
        put_transaction(tx, aged)
    forget_transactions(store.catalog, 3600)
    if is_kept:
        with pytest.raises(LabelExistsError):
            load(table, 1)
        store.commit_transaction("db", label="load-1")
    else:
        load(table, 1)
    assert table.count() == 1


def test_a_label_that_was_used_again_stays(store: Store, table: Table) -> None:
    """X16: the label of an aborted load is free at once, and names the later one then."""
    with table.begin_load(label="again") as first:
        first_id = first.txn_id
    second = table.upsert(pa.table({"k": [1], "v": [1]}), label="again").txn_id
    age(store, first_id, 3601)
    assert forget_transactions(store.catalog, 3600) == 1
    found = store.find_transaction("db", "again")
    assert found is not None
    assert (found.id, found.status) == (second, TransactionStatus.VISIBLE)


def test_a_load_that_runs_is_kept_however_long_it_takes(store: Store, table: Table) -> None:
    with table.begin_load(label="slow") as slow:
        age(store, slow.txn_id, 10 * 3600)
        assert table.vacuum().transactions == 0
        slow.write(pa.table({"k": [7], "v": [7]}))
        assert slow.commit().version == 2
    assert table.count() == 1


def test_an_abandoned_transaction_is_aborted_first_and_forgotten_later(store: Store, table: Table) -> None:
    child = os.fork()
    if not child:
        store.table("db.t").begin_load(label="left")
        os._exit(0)
    os.waitpid(child, 0)
    with store.catalog.read() as tx:
        txn_id = tx.get("labels", next(key for key, _ in tx.items("labels")))
    age(store, txn_id, 3601)
    assert forget_transactions(store.catalog, 3600) == 0
    with store.catalog.read() as tx:
        record = read_transaction(tx, txn_id)
    assert record is not None
    assert record.status == TransactionStatus.ABORTED
    age(store, txn_id, 3601)
    assert forget_transactions(store.catalog, 3600) == 1
    assert labels(store) == 0


def test_prepared_transactions_within_their_term_stay(store: Store, table: Table) -> None:
    load = table.begin_load(label="prepared")
    load.write(pa.table({"k": [1], "v": [1]}))
    load.precommit()
    age(store, load.txn_id, 10 * 3600)
    assert table.vacuum().transactions == 0
    assert store.commit_transaction("db", label="prepared").status == TransactionStatus.VISIBLE


def test_the_walk_ends_at_the_first_young_transaction(store: Store, table: Table) -> None:
    ids = [load(table, number) for number in range(10)]
    for txn_id in (*ids[:5], ids[8]):
        age(store, txn_id, 3601)
    assert forget_transactions(store.catalog, 3600) == 5
    assert labels(store) == 5


def test_labels_of_ended_loads_are_freed_by_name_or_all_together(store: Store, table: Table) -> None:
    """X18: a label is one name, not the begin of others, and that of a running load stays."""
    for number in (1, 10):
        load(table, number)
    with table.begin_load(label="runs"):
        assert store.clean_labels("db", "load-1") == 1
        load(table, 1)
        with pytest.raises(LabelExistsError):
            load(table, 10)
        assert store.clean_labels("db") == 2
        load(table, 10)
        with pytest.raises(LabelExistsError):
            table.begin_load(label="runs")
