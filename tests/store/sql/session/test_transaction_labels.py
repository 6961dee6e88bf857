"""Labels of transactions over several statements: where they are taken (X16), and what keeps them (X10)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, LabelExistsError, NotFoundError, Store
from seqstore.store.catalog.transaction_record import TransactionStatus
from seqstore.store.sql import Session
from tests.support.statements import dicts, last_result

TABLES = """
CREATE TABLE t (k INT NOT NULL, a INT NULL) UNIQUE KEY(k);
CREATE DATABASE other;
CREATE TABLE other.u (k INT NOT NULL, a INT NULL) UNIQUE KEY(k);
INSERT INTO t VALUES (1, 10);
"""
USED = r"Label \[l\] has already been used"


pytestmark = pytest.mark.sql(TABLES)


def status_of(session: Session, database: str = "db") -> str:
    """Of the transaction that label `l` names; empty when it names none."""
    record = session.store.find_transaction(database, "l")
    return "" if record is None else record.status


def test_a_label_belongs_to_the_database_that_is_written(session: Session) -> None:
    """X16"""
    last_result(session, "BEGIN WITH LABEL l; SELECT * FROM t; INSERT INTO other.u VALUES (1, 1); COMMIT")
    assert status_of(session, "other") == TransactionStatus.VISIBLE


def test_a_label_is_not_taken_in_a_database_that_is_only_read(session: Session) -> None:
    """X16"""
    last_result(session, "BEGIN WITH LABEL l; SELECT * FROM t; INSERT INTO other.u VALUES (1, 1)")
    assert status_of(session) == ""


def test_a_label_is_not_taken_twice_in_the_database_that_is_written(session: Session) -> None:
    """X16"""
    last_result(session, "BEGIN WITH LABEL l; SELECT * FROM t; INSERT INTO other.u VALUES (1, 1); COMMIT")
    with pytest.raises(LabelExistsError, match=USED):
        last_result(session, "INSERT INTO other.u WITH LABEL l VALUES (2, 2)")


def test_a_label_used_in_the_database_that_is_written_is_refused(session: Session) -> None:
    """X16"""
    last_result(session, "INSERT INTO other.u WITH LABEL l VALUES (1, 1)")
    with pytest.raises(LabelExistsError, match=USED):
        last_result(session, "BEGIN WITH LABEL l; SELECT * FROM t; INSERT INTO other.u VALUES (2, 2)")


def test_a_transaction_that_others_aborted_takes_its_label_nowhere_else(session: Session) -> None:
    """X20"""
    last_result(session, "BEGIN WITH LABEL l; SELECT * FROM t")
    session.store.abort_transaction("db", label="l", reason="because of you")
    with pytest.raises(InvalidInputError, match="abort reason: because of you"):
        last_result(session, "INSERT INTO other.u VALUES (2, 2)")


def test_a_write_that_changes_nothing_ties_a_transaction_with_a_pair_to_its_database(
    session: Session,
) -> None:
    """X12: its pair is stored there (txnAppId), and a transaction writes one database."""
    last_result(session, "SET txn_app_id = 'job', txn_version = 1; BEGIN; UPDATE t SET a = 1 WHERE k = 99")
    with pytest.raises(InvalidInputError, match="Transaction insert must be in the same database"):
        last_result(session, "INSERT INTO other.u VALUES (1, 1)")


def test_a_commit_that_changed_nothing_is_visible(session: Session) -> None:
    """X16: as COMMIT answers, and as an empty load with a label is."""
    last_result(session, "BEGIN WITH LABEL l; UPDATE t SET a = 1 WHERE k = 99; COMMIT")
    assert status_of(session) == TransactionStatus.VISIBLE


def test_a_commit_that_changed_nothing_keeps_its_label(session: Session) -> None:
    """X16"""
    last_result(session, "BEGIN WITH LABEL l; UPDATE t SET a = 1 WHERE k = 99; COMMIT")
    with pytest.raises(LabelExistsError, match=USED):
        last_result(session, "INSERT INTO t WITH LABEL l VALUES (2, 2)")


@pytest.mark.parametrize("said", ["SELECT * FROM t;", ""])
def test_a_transaction_without_a_write_leaves_no_label(session: Session, said: str) -> None:
    """X16: reading needs no LOAD, so it must not take a label that a load wants."""
    last_result(session, f"BEGIN WITH LABEL l; {said} COMMIT; INSERT INTO t WITH LABEL l VALUES (2, 2)")
    assert status_of(session) == TransactionStatus.VISIBLE
    assert dicts(session, "SELECT count(*) AS n FROM t") == [{"n": 2}]


def test_a_read_takes_no_label_without_a_current_database(session: Session) -> None:
    """X16: the table that is read may be one that the user must not load."""
    with Session(session.store) as other:
        last_result(other, "BEGIN WITH LABEL l; SELECT * FROM db.t")
        assert status_of(session) == ""
        last_result(other, "INSERT INTO other.u VALUES (3, 3); COMMIT")
    assert (status_of(session), status_of(session, "other")) == ("", TransactionStatus.VISIBLE)


def test_a_commit_that_changed_nothing_makes_no_version(session: Session) -> None:
    """U17"""
    before = session.store.table("db.t").version
    last_result(session, "BEGIN WITH LABEL l; UPDATE t SET a = 1 WHERE k = 99; COMMIT")
    assert session.store.table("db.t").version == before


def test_a_commit_of_what_came_under_another_label_frees_its_own(session: Session) -> None:
    """X16: as a load that is skipped because of its txnAppId and txnVersion."""
    pair: Any = {"txn_app_id": "job", "txn_version": 1}
    rows = pa.table({"k": pa.array([5], pa.int32()), "a": pa.array([5], pa.int32())})
    session.store.table("db.t").upsert(rows, **pair)
    with session.store.transaction(label="l", **pair) as transaction:
        transaction.table("db.t").upsert(rows)
    assert status_of(session) == TransactionStatus.ABORTED


def test_begin_refuses_a_label_used_in_the_current_database(session: Session) -> None:
    """X10, X16"""
    last_result(session, "INSERT INTO t WITH LABEL l VALUES (2, 2)")
    with pytest.raises(LabelExistsError, match=USED):
        last_result(session, "BEGIN WITH LABEL l")
    assert not session.in_transaction


def test_begin_takes_a_label_that_an_aborted_transaction_had(session: Session) -> None:
    """X16"""
    last_result(session, "BEGIN WITH LABEL l; UPDATE t SET a = 1; ROLLBACK; BEGIN WITH LABEL l")
    assert session.in_transaction


def test_a_label_used_since_begin_is_refused_by_the_first_statement(session: Session) -> None:
    """X16"""
    last_result(session, "BEGIN WITH LABEL l")
    with Session(session.store, "db") as other:
        last_result(other, "INSERT INTO t WITH LABEL l VALUES (2, 2)")
    with pytest.raises(LabelExistsError, match=USED):
        last_result(session, "INSERT INTO t VALUES (3, 3)")


def test_a_label_is_refused_by_the_first_statement_without_a_current_database(session: Session) -> None:
    """X16"""
    last_result(session, "INSERT INTO t WITH LABEL l VALUES (2, 2)")
    with Session(session.store) as other:
        last_result(other, "BEGIN WITH LABEL l")
        with pytest.raises(LabelExistsError, match=USED):
            last_result(other, "INSERT INTO db.t VALUES (3, 3)")


def test_a_transaction_about_an_unknown_database_is_refused(store: Store) -> None:
    with pytest.raises(NotFoundError, match="Unknown database 'gone'"):
        store.transaction(label="l", database="gone")


def test_show_transaction_tells_when_a_commit_that_changed_nothing_was_visible(session: Session) -> None:
    """X15"""
    last_result(session, "BEGIN WITH LABEL l; UPDATE t SET a = 1 WHERE k = 99; COMMIT")
    shown = dicts(session, "SHOW TRANSACTION WHERE label = 'l'")[0]
    assert shown["PublishTime"] == shown["FinishTime"] != "\\N"
