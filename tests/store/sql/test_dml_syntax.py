"""UPDATE and DELETE: the clause that names partitions (D15), and what is no list of assignments."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError
from seqstore.store.sql import Session
from tests.support.statements import last_result

TABLES = """
CREATE TABLE t (k INT NOT NULL, v INT NULL, w INT NULL) UNIQUE KEY(k)
PARTITION BY RANGE(k) (PARTITION p1 VALUES LESS THAN ("10"), PARTITION p2 VALUES LESS THAN ("100"))
DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE s (k INT NOT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO t VALUES (1, 0, 0), (2, 0, 0), (20, 0, 0);
"""


pytestmark = pytest.mark.sql(TABLES)


@pytest.mark.parametrize("clause", ["PARTITION p1", "PARTITION (p1)", "PARTITIONS (p1)", "PARTITION p1 x"])
@pytest.mark.parametrize("statement", ["DELETE FROM t {} WHERE v = 0", "UPDATE t {} SET v = 1"])
def test_d15_only_rows_of_the_named_partition_change(session: Session, statement: str, clause: str) -> None:
    assert last_result(session, statement.format(clause)).affected_rows == 2


@pytest.mark.parametrize("clause", ["PARTITION p1", "PARTITIONS (p1)", "PARTITIONS (p1) x"])
def test_d15_only_rows_of_the_named_partition_are_read(session: Session, clause: str) -> None:
    found = last_result(session, f"SELECT k FROM t {clause}").rows
    assert found is not None
    assert sorted(found.column("k").to_pylist()) == [1, 2]


def test_d15_a_partition_clause_names_a_partition(session: Session) -> None:
    with pytest.raises(InvalidInputError, match=r"expected a partition name or \(, found 'WHERE'"):
        last_result(session, "DELETE FROM t PARTITION WHERE v = 0")


def test_d19_an_in_list_of_a_delete_may_be_long(session: Session) -> None:
    """Its limit is for deletes by predicate; those of merge-on-write tables write tombstones (D13)."""
    keys = ", ".join(map(str, range(2, 2000)))
    assert last_result(session, f"DELETE FROM t WHERE k IN ({keys})").affected_rows == 2


def test_d20_a_delete_needs_no_partition(session: Session) -> None:
    """As with D19: its setting is taken, and without it every partition is looked at."""
    last_result(session, "SET delete_without_partition = false")
    assert last_result(session, "DELETE FROM t WHERE v = 0").affected_rows == 3


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET v = 1, WHERE k = 1",
        "UPDATE t SET v = 1,",
        "UPDATE t SET v = 1, w = 2, FROM s WHERE t.k = s.k",
        "UPDATE t SET WHERE k = 1",
        "UPDATE t SET v = 1, , w = 2",
        "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 1,",
    ],
)
def test_a_comma_stands_between_assignments(session: Session, statement: str) -> None:
    with pytest.raises(InvalidInputError, match="expected an assignment"):
        last_result(session, statement)
