"""Two-phase commit of transactions over several tables (PC1, PC2, C18), and the check of what they read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import ConcurrentAppendException, ConflictError, InvalidInputError, Settings, Store, Table
from tests.support.forks.forked import run_forked
from tests.support.rows import rows_of

SETTINGS = Settings(catalog_bytes_max=2**28, auto_compaction=0)
TABLES = """
CREATE TABLE a (k INT NOT NULL, v INT NULL, w INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE b (k INT NOT NULL, v INT NULL, w INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO a VALUES (1, 10, 0), (2, 20, 0); INSERT INTO b VALUES (1, 100, 0), (2, 200, 0)
"""
CHILD = """
import sys
from seqstore import Settings, Store
with Store.open(sys.argv[1], settings=Settings(catalog_bytes_max=2**28, auto_compaction=0)) as store:
    print(store.commit_transaction("db", label=sys.argv[2]).status)
"""
K, V = pc.field("k"), pc.field("v")


pytestmark = [pytest.mark.settings(SETTINGS), pytest.mark.sql(TABLES)]


def values(table: Table) -> dict[int, int]:
    rows = table.scan(["k", "v"]).read_all()
    return dict(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))


def one(k: int, v: int) -> pa.Table:
    return pa.table({"k": pa.array([k], pa.int32()), "v": pa.array([v], pa.int32())})


def test_another_process_commits_all_tables_at_once_by_the_label(store: Store) -> None:
    a, b = store.table("db.a"), store.table("db.b")
    transaction = store.transaction(label="both")
    transaction.table("db.a").update({"v": V + 1}, K == 1)
    transaction.table("db.b").upsert(one(3, 300))
    done = transaction.precommit()
    assert (done.versions, done.rows_changed) == ({}, 2)
    assert (values(a)[1], 3 in values(b)) == (10, False)
    answer = run_forked("-c", CHILD, str(store.path), "both")
    assert answer.stdout == "VISIBLE\n", answer.stderr
    assert (values(a)[1], values(b)[3]) == (11, 300)


def test_aborting_leaves_nothing_and_frees_the_label(store: Store) -> None:
    for _ in range(2):
        transaction = store.transaction(label="again")
        transaction.table("db.a").upsert(one(9, 90))
        txn_id = transaction.precommit().txn_id
        store.abort_transaction("db", txn_id=txn_id)
    assert values(store.table("db.a")) == {1: 10, 2: 20}


def test_what_it_read_is_checked_when_it_is_committed(store: Store) -> None:
    transaction = store.transaction(label="reads")
    transaction.table("db.a").update({"v": V + 1}, K == 1)
    transaction.precommit()
    store.table("db.a").update({"v": pc.scalar(50)}, K == 1)
    with pytest.raises(ConflictError, match="committed version 3 and changed 1 row, first"):
        store.commit_transaction("db", label="reads")
    found = store.find_transaction("db", "reads")
    assert found is not None
    assert found.status == "PRECOMMITTED"
    assert values(store.table("db.a"))[1] == 50


def test_rows_it_did_not_read_may_change_meanwhile(store: Store) -> None:
    transaction = store.transaction(label="reads")
    transaction.table("db.a").update({"v": V + 1}, K == 1)
    transaction.precommit()
    store.table("db.a").update({"v": pc.scalar(50)}, K == 2)
    store.commit_transaction("db", label="reads")
    assert values(store.table("db.a")) == {1: 11, 2: 50}


@pytest.mark.parametrize("changed", [1, 2])
def test_keys_that_it_read_are_checked_when_it_is_committed(store: Store, changed: int) -> None:
    transaction = store.transaction(label="keys", isolation="Serializable")
    transaction.table("db.a").get({"k": [1]})
    transaction.table("db.b").upsert(one(3, 300))
    transaction.precommit()
    store.table("db.a").upsert(one(changed, 50))
    if changed == 2:
        assert store.commit_transaction("db", label="keys").status == "VISIBLE"
    else:
        with pytest.raises(ConflictError, match="committed version 3"):
            store.commit_transaction("db", label="keys")


def test_a_table_it_only_read_is_checked_too(store: Store) -> None:
    """Write skew over two tables, with hours between the two phases."""
    transaction = store.transaction(label="skew", isolation="Serializable")
    total = sum(transaction.table("db.a").scan(["v"]).read_all().column(0).to_pylist())
    transaction.table("db.b").upsert(one(3, total))
    transaction.precommit()
    store.table("db.a").upsert(one(3, 30))
    with pytest.raises(ConcurrentAppendException):
        store.commit_transaction("db", label="skew")


def test_a_partial_update_is_filled_from_the_row_of_the_commit(store: Store) -> None:
    """C18"""
    transaction = store.transaction(label="partial")
    transaction.table("db.a").upsert(one(1, 11), mode="UPDATE_FIXED_COLUMNS")
    transaction.precommit()
    store.table("db.a").update({"w": pc.scalar(7)}, K == 1)
    store.commit_transaction("db", label="partial")
    assert {"k": 1, "v": 11, "w": 7} in store.table("db.a").scan().read_all().to_pylist()


def test_several_partial_updates_are_filled_from_the_rows_of_the_commit(store: Store) -> None:
    """C18"""
    transaction = store.transaction(label="several")
    opened = transaction.table("db.a")
    opened.upsert(one(1, 11), mode="UPDATE_FIXED_COLUMNS")
    opened.upsert(pa.table({"k": pa.array([2], pa.int32()), "w": [5]}), mode="UPDATE_FIXED_COLUMNS")
    transaction.precommit()
    store.table("db.a").upsert(pa.table({"k": [1, 2], "v": [50, 60], "w": [7, 8]}))
    store.commit_transaction("db", label="several")
    assert rows_of(store.table("db.a")) == [(1, 11, 7), (2, 60, 5)]


def test_a_row_it_deletes_and_changes_keeps_its_cells(store: Store) -> None:
    """X7, through both phases."""
    store.table("db.a").update({"w": pc.scalar(7)}, K == 1)
    transaction = store.transaction(label="revived", reads_own_writes=False)
    opened = transaction.table("db.a")
    opened.delete_where(K == 1)
    opened.update({"v": V + 1}, K == 1)
    transaction.precommit()
    store.table("db.a").upsert(one(3, 30))
    store.commit_transaction("db", label="revived")
    assert {"k": 1, "v": 11, "w": 7} in store.table("db.a").scan().read_all().to_pylist()


def test_a_version_that_is_gone_cannot_be_checked_against(store: Store) -> None:
    transaction = store.transaction(label="old")
    transaction.table("db.a").update({"v": V + 1}, K == 1)
    transaction.precommit()
    del transaction
    table = store.table("db.a")
    table.update({"v": pc.scalar(50)}, K == 2)
    table.vacuum(retention_seconds=0)
    with pytest.raises(ConcurrentAppendException, match="not kept any more") as caught:
        store.commit_transaction("db", label="old")
    assert caught.value.reason == "HISTORY_EXPIRED"


def test_a_blind_transaction_needs_no_history(store: Store) -> None:
    transaction = store.transaction(label="blind")
    transaction.table("db.a").upsert(one(3, 30))
    transaction.precommit()
    table = store.table("db.a")
    table.update({"v": pc.scalar(50)}, K == 2)
    table.vacuum(retention_seconds=0)
    store.commit_transaction("db", label="blind")
    assert values(table) == {1: 10, 2: 50, 3: 30}


def test_an_overwriting_load_overwrites_what_is_there_at_the_second_phase(store: Store) -> None:
    table = store.table("db.a")
    with table.begin_load(label="over") as load:
        load.clear()
        load.write(one(5, 50))
        load.precommit()
    table.upsert(one(6, 60))
    store.commit_transaction("db", label="over")
    assert values(table) == {5: 50}


def test_an_overwrite_by_a_counted_column_is_refused_by_the_first_phase(store: Store) -> None:
    table = store.table("db.a")
    with table.begin_load(label="over") as load:
        load.clear(pc.field(0) == 1)
        load.write(one(1, 50))
        with pytest.raises(InvalidInputError, match="cannot be stored"):
            load.precommit()
    assert values(table) == {1: 10, 2: 20}


def test_a_transaction_without_a_table_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInputError, match="without a table"):
        store.transaction(label="none").precommit()


def test_an_update_lock_is_given_back_at_the_first_phase(store: Store) -> None:
    transaction = store.transaction()
    transaction.table("db.a").update({"v": V + 1}, K == 1)
    txn_id = transaction.precommit().txn_id
    store.table("db.a").update({"v": V + 5}, K == 2, lock_seconds=0)
    store.commit_transaction("db", txn_id=txn_id)
    assert values(store.table("db.a")) == {1: 11, 2: 25}
