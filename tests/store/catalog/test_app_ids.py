"""txnAppId and txnVersion (ISO13) on every kind of write; a skip is never silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    Column,
    ConcurrentTransactionException,
    DmlArguments,
    InvalidInputError,
    Store,
    Table,
    TableSchema,
    parse_type,
)
from seqstore.store.sql import Session
from tests.support.statements import last_result


def rows(**columns: list[int]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.int32()) for name, values in columns.items()})


def make(store: Store, name: str = "t") -> Table:
    columns = [Column("k", parse_type("INT"), nullable=False), Column("a", parse_type("INT"))]
    table = store.create_table(f"db.{name}", TableSchema.create(columns, ["k"]))
    table.upsert(rows(k=[1, 2], a=[10, 20]))
    return table


def stored(table: Table) -> dict[int, int]:
    return {row["k"]: row["a"] for row in table.scan().read_all().to_pylist()}


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    make(store)
    with Session(store, "db") as opened:
        yield opened


def test_deletes_by_key_and_partial_updates_are_idempotent(store: Store) -> None:
    table = make(store)
    gone = [table.delete(rows(k=[1]), txn_app_id="job", txn_version=n).status for n in (1, 1)]
    table.upsert(rows(k=[1], a=[1]))
    changed = [
        table.upsert(rows(k=[2], a=[n]), mode="UPDATE_FIXED_COLUMNS", txn_app_id="job", txn_version=n).status
        for n in (2, 1)
    ]
    assert gone == changed == ["VISIBLE", "DUPLICATE"]
    assert stored(table) == {1: 1, 2: 2}


def test_a_write_that_changes_nothing_stores_its_pair(store: Store) -> None:
    """What it would do at a repetition is another matter: the row it looks for has come meanwhile."""
    table = make(store)
    pair: DmlArguments = {"txn_app_id": "job", "txn_version": 1}
    assert table.update({"a": 0}, pc.field("k") == 7, **pair).status == "VISIBLE"
    table.upsert(rows(k=[7], a=[70]))
    again = table.update({"a": 0}, pc.field("k") == 7, **pair)
    assert (again.status, again.rows_matched) == ("DUPLICATE", 0)
    assert "txnVersion 1 is not larger" in again.warnings[0]
    assert stored(table)[7] == 70


def test_a_transaction_is_idempotent_on_every_table_it_writes(store: Store) -> None:
    """49: two tables in one batch, both exactly once, also when one was written alone before."""
    one, two = make(store, "one"), make(store, "two")
    two.upsert(rows(k=[9], a=[9]), txn_app_id="stream", txn_version=7)

    def batch() -> tuple[dict[str, int], dict[str, int], list[str]]:
        with store.transaction(txn_app_id="stream", txn_version=7) as tx:
            told = [tx.table(name).upsert(rows(k=[3], a=[30])).status for name in ("db.one", "db.two")]
            done = tx.commit()
        return dict(done.versions), dict(done.skipped), told

    assert batch() == ({"db.one": 3}, {"db.two": 3}, ["PREPARE", "DUPLICATE"])
    assert batch() == ({}, {"db.one": 3, "db.two": 3}, ["DUPLICATE", "DUPLICATE"])
    assert (stored(one), stored(two)) == ({1: 10, 2: 20, 3: 30}, {1: 10, 2: 20, 9: 9})


def test_two_transactions_with_one_pair_at_once(store: Store) -> None:
    """50: the second fails, run again it is a reported skip; other ids are not touched."""
    make(store)
    opened = [store.transaction(txn_app_id=name, txn_version=7) for name in ("query", "query", "other")]
    for number, transaction in enumerate(opened):
        transaction.table("db.t").upsert(rows(k=[20 + number], a=[0]))
    opened[0].commit()
    with pytest.raises(ConcurrentTransactionException, match="txnAppId 'query' version 7"):
        opened[1].commit()
    opened[2].commit()
    with store.transaction(txn_app_id="query", txn_version=7) as again:
        again.table("db.t").upsert(rows(k=[21], a=[0]))
        assert again.commit().skipped == {"db.t": 3}
    assert set(stored(store.table("db.t"))) == {1, 2, 20, 22}


def test_half_a_pair_is_refused_at_once(store: Store) -> None:
    with pytest.raises(InvalidInputError, match="txnVersion is missing"):
        store.transaction(txn_app_id="job")
    with pytest.raises(InvalidInputError, match="txnAppId is missing"):
        make(store).merge(rows(k=[1], a=[1]), ["k"]).when_matched_delete().execute(txn_version=1)


@pytest.mark.parametrize("version", [-1, 2**63, True, "1"])
def test_a_version_is_an_integer_from_0_to_63_bits(store: Store, version: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"expected a name and an integer from 0 to 2\^63 - 1"):
        store.transaction(txn_app_id="job", txn_version=version)
    store.transaction(txn_app_id="job", txn_version=2**63 - 1).rollback()


def test_the_session_s_pair_makes_statements_idempotent(session: Session) -> None:
    last_result(session, "SET txn_app_id = 'job', txn_version = 3")
    assert "'status':'VISIBLE'" in last_result(session, "UPDATE t SET a = a + 1 WHERE k = 1").info
    for text in (
        "UPDATE t SET a = a + 1 WHERE k = 1",
        "DELETE FROM t WHERE k = 1",
        "INSERT INTO t VALUES (9, 9)",
        "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k WHEN MATCHED THEN DELETE",
    ):
        done = last_result(session, text)
        assert done.affected_rows == 0
        assert "'status':'DUPLICATE'" in done.info
        assert "txnAppId 'job' has committed txnVersion 3 as table version 3" in done.warnings[0]
    assert len(session.warnings) == 1  # SHOW WARNINGS
    last_result(session, "SET txn_version = 4")
    assert last_result(session, "INSERT INTO t VALUES (9, 9)").affected_rows == 1
    assert stored(session.store.table("db.t")) == {1: 11, 2: 20, 9: 9}


def test_a_pair_good_for_one_statement_is_not_used_twice(session: Session) -> None:
    """Delta's autoReset: a second statement says so instead of being skipped."""
    last_result(session, "SET txn_version_auto_reset = true, txn_app_id = 'job', txn_version = 3")
    last_result(session, "INSERT INTO t VALUES (9, 9)")
    with pytest.raises(InvalidInputError, match="txnVersion is missing"):
        last_result(session, "INSERT INTO t VALUES (8, 8)")


def test_the_pair_of_begin_is_the_transaction_s(session: Session) -> None:
    for warned in (False, True):
        last_result(session, "SET txn_app_id = 'job', txn_version = 3; BEGIN")
        last_result(session, "SET txn_app_id = '', txn_version = ''")
        last_result(session, "INSERT INTO t VALUES (9, 9)")
        updated = last_result(session, "UPDATE t SET a = a + 1 WHERE k = 1")
        done = last_result(session, "COMMIT")
        assert bool(updated.warnings) == bool(done.warnings) == warned
        assert ("'status':'DUPLICATE'" in done.info) == warned
    assert stored(session.store.table("db.t")) == {1: 11, 2: 20, 9: 9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SET txn_version = '-1'", "a whole number from 0 on"),
        ("SET txn_version = 'x'", "a whole number from 0 on"),
        ("SET GLOBAL txn_app_id = 'job'", "belongs to one session"),
    ],
)
def test_what_a_session_s_pair_cannot_be(session: Session, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        last_result(session, text)


def test_a_truncate_is_idempotent_by_the_session_s_pair(session: Session) -> None:
    """What was loaded since its first run stays."""
    last_result(session, "SET txn_app_id = 'job', txn_version = 3; TRUNCATE TABLE t")
    session.store.table("db.t").upsert(rows(k=[9], a=[9]))
    again = last_result(session, "TRUNCATE TABLE t")
    assert "'status':'DUPLICATE'" in again.info
    assert "txnAppId 'job' has committed txnVersion 3" in again.warnings[0]
    assert stored(session.store.table("db.t")) == {9: 9}


def test_a_truncate_records_the_session_s_pair(session: Session) -> None:
    last_result(session, "SET txn_app_id = 'job', txn_version = 3; TRUNCATE TABLE t")
    assert "'status':'DUPLICATE'" in last_result(session, "INSERT INTO t VALUES (9, 9)").info


@pytest.mark.parametrize(
    ("quoted", "name", "value"),
    [
        ("spark.databricks.delta.write.txnAppId", "txn_app_id", "job"),
        ("spark.databricks.delta.write.txnVersion", "txn_version", "7"),
        ("spark.databricks.delta.write.txnVersion.autoReset.enabled", "txn_version_auto_reset", "true"),
    ],
)
def test_delta_s_names_of_the_pair_set_it(session: Session, quoted: str, name: str, value: str) -> None:
    last_result(session, f"SET `{quoted}` = '{value}'")
    assert session.variables.get(name) == value


def test_a_pair_by_delta_s_names_makes_statements_idempotent(session: Session) -> None:
    delta = "spark.databricks.delta.write"
    last_result(
        session, f"SET `{delta}.txnAppId` = 'job', `{delta}.txnVersion` = 3; INSERT INTO t VALUES (8, 8)"
    )
    assert "'status':'DUPLICATE'" in last_result(session, "INSERT INTO t VALUES (9, 9)").info
