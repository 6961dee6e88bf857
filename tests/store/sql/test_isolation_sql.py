"""Conflicts of SQL statements: what their conditions let the store look at. Scenarios 25, 26, 28 and 33."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from store import ConcurrentAppendException, ConcurrentDeleteReadException, ConflictError, Store
from store.sql import Session

TABLES = """
CREATE TABLE t (k INT NOT NULL, grp INT NULL, a INT NULL, b INT NULL, st STRUCT<x:INT> NULL) UNIQUE KEY(k)
DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE s (k INT NOT NULL, grp INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO t (k, grp, a, b) VALUES (1,0,10,0), (2,0,20,0), (3,1,30,0);
INSERT INTO s VALUES (3, 1), (7, 1);
ADMIN SET FRONTEND CONFIG ("enable_concurrent_update" = "true");
"""


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    store.create_database("db")
    with Session(store, "db") as opened:
        run(opened, TABLES)
        yield opened


def run(session: Session, text: str) -> Any:
    result = list(session.execute(text))[-1]
    return None if result.rows is None else sorted(tuple(row.values()) for row in result.rows.to_pylist())


def race(session: Session, first: str, second: str) -> None:
    """Both begin at one version; the first commits, then the second."""
    run(session, "BEGIN")
    with Session(session.store, "db") as other:
        run(other, f"BEGIN; {second}")
        run(session, f"{first}; COMMIT")
        run(other, "COMMIT")


@pytest.mark.parametrize(
    ("clause", "reason"),
    [
        ("", ""),
        (" AND rand() < 2", "NON_DETERMINISTIC_EXPRESSION"),
        (" AND a >= (SELECT min(a) FROM t WHERE k = 1)", "SUBQUERY"),
        (" AND st.x IS NULL", "COMPLEX_TYPE_CONDITION"),
    ],
    ids=["plain", "rand", "subquery", "struct"],
)
def test_26_conditions_nobody_can_look_at_by_row(session: Session, clause: str, reason: str) -> None:
    change, delete = "UPDATE t SET a = 0 WHERE k = 3", f"DELETE FROM t WHERE k = 1{clause}"
    if not reason:
        race(session, change, delete)
        assert run(session, "SELECT k FROM t") == [(2,), (3,)]
        return
    with pytest.raises(ConflictError) as caught:
        race(session, change, delete)
    assert caught.value.reason == reason
    assert reason in str(caught.value)


def test_25_a_join_equality_prunes_nothing_and_a_literal_does(session: Session) -> None:
    run(
        session,
        "ALTER TABLE t SET ('delta.enableDeletionVectors' = 'false', 'partition_columns' = 'grp')",
    )
    join = "UPDATE t SET b = s.k FROM s WHERE t.grp = s.grp"
    race(session, "UPDATE t SET a = 0 WHERE grp = 0", f"{join} AND t.grp = 1")
    with pytest.raises(ConcurrentAppendException, match=r"\(grp=0\)"):
        race(session, "UPDATE t SET a = 0 WHERE grp = 0", join)


def test_28_two_merges_insert_one_new_key(session: Session) -> None:
    merge = (
        "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET b = b + 1 "
        "WHEN NOT MATCHED AND s.k = 7 THEN INSERT (k, b) VALUES (s.k, 0)"
    )
    run(session, "DELETE FROM s WHERE k = 3")
    with pytest.raises(ConcurrentAppendException):
        race(session, merge, merge)
    run(session, merge)
    assert run(session, "SELECT k, b FROM t WHERE k = 7") == [(7, 1)]


def test_merges_of_different_keys_pass_each_other(session: Session) -> None:
    merge = "MERGE INTO t USING (SELECT {} AS k) AS y ON t.k = y.k WHEN MATCHED THEN UPDATE SET b = 5"
    race(session, merge.format(1), merge.format(2))
    assert run(session, "SELECT k FROM t WHERE b = 5") == [(1,), (2,)]


def test_33_updates_of_different_columns_by_sql(session: Session) -> None:
    race(session, "UPDATE t SET a = 1 WHERE k = 1", "UPDATE t SET b = 2 WHERE k = 1")
    assert run(session, "SELECT a, b FROM t WHERE k = 1") == [(1, 2)]
    with pytest.raises(ConcurrentDeleteReadException):
        race(session, "UPDATE t SET a = 1 WHERE k = 1", "UPDATE t SET b = a WHERE k = 1")


def test_a_select_of_a_transaction_counts_as_read(session: Session) -> None:
    with pytest.raises(ConcurrentDeleteReadException):
        race(
            session,
            "UPDATE t SET a = 11 WHERE k = 1",
            "SELECT a FROM t WHERE k = 1; INSERT INTO t (k, a) VALUES (9, 10)",
        )
    race(
        session,
        "UPDATE t SET a = 12 WHERE k = 1",
        "SELECT a FROM t WHERE k = 2; INSERT INTO t (k) VALUES (9)",
    )
