"""UPDATE, DELETE and MERGE INTO in SQL: rules U, D13-D20, I3-I5; transactions by BEGIN: X7-X13."""

from __future__ import annotations

from typing import Any

import pytest

from seqstore import (
    ConcurrentDeleteReadException,
    InvalidInputError,
    LabelExistsError,
    Settings,
    Store,
    UnavailableError,
)
from seqstore.store.catalog.update_lock import lock_directory, update_lock
from seqstore.store.sql import Session
from tests.support.statements import run

TABLES = """
CREATE TABLE t (k INT NOT NULL, grp INT NULL, a INT NULL, b INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE s (k INT NOT NULL, a INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO t VALUES (1,0,10,0),(2,0,20,0),(3,1,30,0);
INSERT INTO s VALUES (1,100),(7,700);
"""  # noqa: E501


pytestmark = pytest.mark.sql(TABLES)


def rows(session: Session, table: str = "t") -> Any:
    return run(session, f"SELECT * FROM {table}")


def test_update_computes_from_the_row_as_it_was(session: Session) -> None:
    """U1"""
    done = run(session, "UPDATE t SET a = a + 1, b = a WHERE grp = 0")
    assert done.affected_rows == 2
    assert "'status':'VISIBLE'" in done.info
    assert rows(session) == [(1, 0, 11, 10), (2, 0, 21, 20), (3, 1, 30, 0)]


def test_update_without_where_changes_every_row(session: Session) -> None:
    """U10"""
    assert run(session, "UPDATE t SET b = 5").affected_rows == 3


def test_update_that_matches_nothing_makes_no_version(session: Session) -> None:
    """U17"""
    before = session.store.table("db.t").version
    assert run(session, "UPDATE t SET a = 1 WHERE k = 99").affected_rows == 0
    assert session.store.table("db.t").version == before


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE t SET k = 5", "Only value columns of unique table could be updated"),
        ("UPDATE t SET zz = 5", "unknown column in assignment list: zz"),
        ("UPDATE t SET other.a = 5", "column in assignment list is invalid, other.a"),
        ("UPDATE t AS x SET t.a = 5", "column in assignment list is invalid, t.a"),
        ("UPDATE t SET a = 1, a = 2", "column in assignment list is invalid, a is assigned twice"),
        ("DELETE FROM t", "delete all rows is forbidden temporary."),
        ("DELETE FROM t WHERE true", "delete all rows is forbidden temporary."),
        ("DELETE FROM t WHERE 1 = 1", "delete all rows is forbidden temporary."),
        ("DELETE FROM t WHERE NOT (1 > 2 OR false)", "delete all rows is forbidden temporary."),
        ("DELETE FROM t WHERE k IN ()", r"k IN \(\): expected values after IN, found none"),
        ("EXPLAIN DELETE FROM t WHERE (2, 'new') IN ", "expected values after IN, found none"),
    ],
)
def test_what_may_not_be_changed_is_named(session: Session, statement: str, message: str) -> None:
    """U7, U9, D17"""
    with pytest.raises(InvalidInputError, match=message):
        run(session, statement)


@pytest.mark.parametrize("variable", ["show_hidden_columns", "skip_delete_sign"])
def test_update_is_refused_while_hidden_columns_or_deleted_rows_are_shown(
    session: Session, variable: str
) -> None:
    """U18"""
    run(session, f"SET {variable} = true")
    with pytest.raises(InvalidInputError, match="since current session is in debug mode"):
        run(session, "UPDATE t SET a = 1")


DEFAULTS = """
CREATE TABLE d (k INT, n INT DEFAULT '7', s VARCHAR(9) DEFAULT '',
    at DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3), `day` DATE DEFAULT CURRENT_DATE, a INT, w INT NOT NULL)
    UNIQUE KEY(k);
INSERT INTO d VALUES (1, 0, 'x', '2020-01-01', '2020-01-01', 1, 1);
"""
ARE_DEFAULTS = "SELECT n, s, at > '2020-01-01', `day` > '2020-01-01', a FROM d"


def test_update_assigns_defaults(session: Session) -> None:
    """The word DEFAULT was looked for as a column."""
    run(session, DEFAULTS)
    run(session, "UPDATE d SET n = DEFAULT, s = default, at = DEFAULT, `day` = DEFAULT, a = DEFAULT")
    assert run(session, ARE_DEFAULTS) == [(7, "", True, True, None)]


def test_on_duplicate_key_update_assigns_defaults(session: Session) -> None:
    run(session, DEFAULTS)
    run(session, "INSERT INTO d (k, n, w) VALUES (1, 5, 5) ON DUPLICATE KEY UPDATE n = DEFAULT, s = DEFAULT")
    assert run(session, "SELECT n, s, w FROM d") == [(7, "", 1)]


def test_merge_assigns_and_inserts_defaults(session: Session) -> None:
    run(session, DEFAULTS)
    run(
        session,
        "MERGE INTO d USING (SELECT 1 i UNION ALL SELECT 2) q ON d.k = q.i WHEN MATCHED THEN UPDATE SET n = "
        "DEFAULT WHEN NOT MATCHED THEN INSERT (k, s, n, w) VALUES (q.i, DEFAULT, DEFAULT, 3)",
    )
    assert run(session, "SELECT k, n, s, w FROM d ORDER BY k") == [(1, 7, "x", 1), (2, 7, "", 3)]


def test_a_column_without_a_default_refuses_the_word(session: Session) -> None:
    run(session, DEFAULTS)
    with pytest.raises(InvalidInputError, match="column 'w' has no default; give a value"):
        run(session, "UPDATE d SET w = DEFAULT")


def test_update_from_joins_other_tables(session: Session) -> None:
    """U5"""
    run(session, "UPDATE t x SET a = s.a + x.a FROM s WHERE x.k = s.k")
    assert rows(session)[0] == (1, 0, 110, 0)


def test_update_from_several_matches_takes_the_largest_and_says_so(session: Session) -> None:
    run(session, "INSERT INTO s VALUES (11, 100), (12, 300), (13, 200)")
    done = run(session, "UPDATE t SET a = s.a FROM s WHERE s.k > 10 AND t.k = 1")
    assert done.affected_rows == 1
    assert done.warnings == (
        "1 row was matched by several rows that assign different values; the largest of those was assigned",
    )
    assert rows(session)[0] == (1, 0, 300, 0)


def test_update_from_several_matches_that_agree_is_no_matter(session: Session) -> None:
    run(session, "INSERT INTO s VALUES (11, 100), (12, 100)")
    done = run(session, "UPDATE t SET a = s.a FROM s WHERE s.k > 10 AND t.k = 1")
    assert (done.affected_rows, done.warnings) == (1, ())


@pytest.mark.parametrize(
    "update",
    [
        "UPDATE t JOIN s ON s.k > 10 AND t.k = 1 SET t.a = s.a",
        "UPDATE t, s SET t.a = s.a WHERE s.k > 10 AND t.k = 1",
    ],
)
@pytest.mark.parametrize("begin", ["", "BEGIN; "])
def test_update_with_mysqls_joins_takes_the_largest_and_says_so(
    session: Session, update: str, begin: str
) -> None:
    """The joins hang at the target, where they were overlooked: any of the values stayed, and the warning
    named a sequence that the table does not have."""
    run(session, "INSERT INTO s VALUES (11, 100), (12, 300), (13, 200)")
    done = run(session, f"{begin}{update}")
    assert done.affected_rows == 1
    assert "the largest of those was assigned" in done.warnings[0]
    assert rows(session)[0] == (1, 0, 300, 0)


@pytest.mark.parametrize(("side", "last"), [("RIGHT", 0), ("FULL OUTER", 5)])
def test_update_of_an_outer_join_adds_no_row(session: Session, side: str, last: int) -> None:
    """A row without a match had NULL for the key of the target, and was inserted under it."""
    run(session, "CREATE TABLE n (k INT NULL, a INT NULL) UNIQUE KEY(k); INSERT INTO n VALUES (1, 0), (2, 0)")
    run(session, f"UPDATE n {side} JOIN s ON n.k = s.k SET n.a = 5")
    assert run(session, "SELECT * FROM n ORDER BY k") == [(1, 5), (2, last)]


def test_delete_joins_other_tables(session: Session) -> None:
    run(session, "INSERT INTO s VALUES (11, 100), (12, 300)")
    done = run(session, "BEGIN; DELETE FROM t JOIN s ON s.k > 10 WHERE t.k = 1")
    assert done.affected_rows == 1
    assert [key for key, *_ in rows(session)] == [2, 3]


def test_delete_of_a_merge_on_read_table_regards_its_joins(session: Session) -> None:
    """The condition on the key alone decided, so that rows without a match were deleted too."""
    run(
        session,
        'CREATE TABLE m (k INT) UNIQUE KEY(k) PROPERTIES ("enable_unique_key_merge_on_write" = "false")',
    )
    run(session, "INSERT INTO m VALUES (1), (2)")
    assert run(session, "DELETE FROM m JOIN s ON m.k = s.k WHERE m.k IN (1, 2)").affected_rows == 1
    assert run(session, "SELECT k FROM m") == [(2,)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t JOIN s ON t.k = s.k SET t.a = 5 LIMIT 1",
        "DELETE FROM t JOIN s ON t.k = s.k ORDER BY t.k LIMIT 1",
    ],
)
def test_limits_of_changes_are_for_one_table(session: Session, statement: str) -> None:
    with pytest.raises(InvalidInputError, match="on one table also ORDER BY and LIMIT"):
        run(session, statement)


def test_update_takes_subqueries(session: Session) -> None:
    run(session, "UPDATE t SET b = (SELECT max(a) FROM s) WHERE k IN (SELECT k FROM s)")
    assert rows(session) == [(1, 0, 10, 700), (2, 0, 20, 0), (3, 1, 30, 0)]


def test_delete_by_condition_and_by_join(session: Session) -> None:
    """D13, D15, D16"""
    assert run(session, "DELETE FROM t WHERE k > 1 AND k != 3").affected_rows == 1
    assert run(session, "DELETE FROM t USING s WHERE t.k = s.k").affected_rows == 1
    assert run(session, "DELETE FROM t WHERE 1 = 0").affected_rows == 0
    assert rows(session) == [(3, 1, 30, 0)]


def test_delete_keeps_the_sequence_of_the_row(session: Session) -> None:
    """D13: a row with a smaller sequence does not come back."""
    run(
        session,
        "CREATE TABLE q (k INT NOT NULL, v INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 "
        'PROPERTIES ("function_column.sequence_col" = "v"); INSERT INTO q VALUES (1, 5)',
    )
    run(session, "DELETE FROM q WHERE k = 1; INSERT INTO q VALUES (1, 4)")
    assert rows(session, "q") == []


def test_lowering_the_sequence_changes_nothing_and_says_so(session: Session) -> None:
    """U13, U14"""
    run(
        session,
        "CREATE TABLE q (k INT NOT NULL, v INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 "
        'PROPERTIES ("function_column.sequence_col" = "v"); INSERT INTO q VALUES (1, 5)',
    )
    done = run(session, "UPDATE q SET v = 4")
    assert done.affected_rows == 0
    assert "the assigned sequence is smaller than the stored one" in done.warnings[0]
    assert rows(session, "q") == [(1, 5)]
    done = run(session, "UPDATE q SET v = 6")
    assert (done.affected_rows, done.warnings) == (1, ())
    run(session, "INSERT INTO q VALUES (1, 5)")
    assert rows(session, "q") == [(1, 6)]


MERGE = """
MERGE INTO t USING s ON t.k = s.k
WHEN MATCHED AND s.a < 50 THEN DELETE
WHEN MATCHED THEN UPDATE SET a = s.a, b = t.a
WHEN NOT MATCHED AND s.a > 1000 THEN INSERT (k) VALUES (s.k)
WHEN NOT MATCHED THEN INSERT VALUES (s.k, 9, s.a, 1)
"""


def test_merge_updates_deletes_and_inserts(session: Session) -> None:
    """I4: a row goes to the first clause whose condition holds."""
    run(session, "INSERT INTO s VALUES (2, 1), (8, 2000)")
    assert run(session, MERGE).affected_rows == 4
    assert rows(session) == [(1, 0, 100, 10), (3, 1, 30, 0), (7, 9, 700, 1), (8, None, None, None)]


def test_merge_takes_the_rows_without_source(session: Session) -> None:
    run(session, "MERGE INTO t USING s ON t.k = s.k WHEN NOT MATCHED BY SOURCE AND t.grp = 0 THEN DELETE")
    assert [row[0] for row in rows(session)] == [1, 3]


def test_merge_reads_a_query_as_its_source(session: Session) -> None:
    run(
        session,
        "MERGE INTO t AS x USING (SELECT k, a * 2 AS twice FROM s) AS y ON x.k = y.k "
        "WHEN MATCHED THEN UPDATE SET a = y.twice",
    )
    assert rows(session)[0] == (1, 0, 200, 0)


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        (
            "WHEN MATCHED THEN DELETE WHEN MATCHED AND s.a = 1 THEN DELETE",
            "Only the last matched clause could without case predicate",
        ),
        (
            "WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k) WHEN NOT MATCHED THEN INSERT (k) VALUES (1)",
            "Only the last not matched clause could without case predicate",
        ),
        ("WHEN NOT MATCHED THEN INSERT (zz) VALUES (s.k)", "unknown column in target table: zz"),
        ("WHEN NOT MATCHED THEN INSERT (k) VALUES", "expected 1 values, found 0"),
        ("WHEN MATCHED THEN UPDATE SET k = 1", "Only value columns of unique table could be updated"),
    ],
)
def test_merge_refuses(session: Session, clauses: str, message: str) -> None:
    """I3, I4, U7"""
    with pytest.raises(InvalidInputError, match=message):
        run(session, f"MERGE INTO t USING s ON t.k = s.k {clauses}")


@pytest.mark.parametrize(
    "clauses",
    [
        "WHEN MATCHED THEN UPDATE SET a = s.a",
        "WHEN MATCHED AND s.a = 100 THEN DELETE WHEN MATCHED THEN UPDATE SET b = 0",
        "WHEN MATCHED AND s.a = 100 THEN UPDATE SET a = 0 WHEN MATCHED THEN UPDATE SET b = 0",
    ],
)
def test_merge_refuses_source_rows_that_contradict_each_other(session: Session, clauses: str) -> None:
    """Delta refuses them too: no rule prefers one of them."""
    run(session, "INSERT INTO s VALUES (11, 200)")
    before = rows(session)
    with pytest.raises(InvalidInputError, match="1 target row is matched by several source rows"):
        run(session, f"MERGE INTO t USING s ON t.k % 10 = s.k % 10 AND t.k = 1 {clauses}")
    assert rows(session) == before


def test_merge_deletes_a_row_that_several_source_rows_match(session: Session) -> None:
    run(session, "INSERT INTO s VALUES (11, 200)")
    done = run(session, "MERGE INTO t USING s ON t.k % 10 = s.k % 10 WHEN MATCHED THEN DELETE")
    assert (done.affected_rows, rows(session)) == (1, [(2, 0, 20, 0), (3, 1, 30, 0)])


def test_merge_of_several_events_of_a_key_takes_the_one_with_the_largest_sequence(session: Session) -> None:
    """I5"""
    run(
        session,
        "CREATE TABLE q (k INT, seq INT NULL, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 "
        "PROPERTIES ('function_column.sequence_col' = 'seq'); INSERT INTO q VALUES (1, 5, 50);"
        "CREATE TABLE e (id INT, k INT, seq INT NULL, v INT) UNIQUE KEY(id) "
        "DISTRIBUTED BY HASH(id) BUCKETS 1; "
        "INSERT INTO e VALUES (1, 1, 7, 70), (2, 1, 9, 90), (3, 1, 8, 80), (4, 1, NULL, 1)",
    )
    run(session, "MERGE INTO q USING e ON q.k = e.k WHEN MATCHED THEN UPDATE SET seq = e.seq, v = e.v")
    assert rows(session, "q") == [(1, 9, 90)]


def test_merge_of_a_new_key_given_twice_keeps_the_largest_sequence(session: Session) -> None:
    """I5"""
    run(
        session,
        "CREATE TABLE q (k INT NOT NULL, v INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 "
        'PROPERTIES ("function_column.sequence_col" = "v");'
        "MERGE INTO q USING (SELECT 1 AS k, 9 AS v UNION ALL SELECT 1, 4) AS y ON q.k = y.k "
        "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (y.k, y.v)",
    )
    assert rows(session, "q") == [(1, 9)]


DORIS_READS = "SET transaction_reads_own_writes = false"


def test_statements_of_a_transaction_do_not_see_each_other_where_that_is_asked_for(session: Session) -> None:
    """X7, X9"""
    run(session, DORIS_READS)
    begun = run(session, "BEGIN")
    assert begun.info.startswith("{'label':'txn_insert_")
    assert begun.info.endswith("'status':'PREPARE', 'txnId':''}")
    run(
        session,
        "INSERT INTO t VALUES (4, 0, 40, 0); UPDATE t SET a = 0 WHERE grp = 0; DELETE FROM t WHERE k = 3",
    )
    assert len(rows(session)) == 3
    done = run(session, "COMMIT")
    assert "'status':'VISIBLE'" in done.info
    assert rows(session) == [(1, 0, 0, 0), (2, 0, 0, 0), (4, 0, 40, 0)]


def test_x7_an_update_keeps_the_cells_of_a_row_deleted_before_it(session: Session) -> None:
    run(session, f"{DORIS_READS}; BEGIN; DELETE FROM t WHERE k = 1")
    run(session, "UPDATE t SET a = 99 WHERE k = 1; COMMIT")
    assert rows(session)[0] == (1, 0, 99, 0)


def test_x7_a_merge_keeps_the_cells_of_a_row_deleted_before_it(session: Session) -> None:
    merge = "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET a = s.a"
    run(session, f"{DORIS_READS}; BEGIN; DELETE FROM t WHERE k = 1; {merge}; COMMIT")
    assert rows(session)[0] == (1, 0, 100, 0)


def test_p25_a_partial_insert_over_a_deleted_row_starts_from_defaults(session: Session) -> None:
    run(session, "SET enable_unique_key_partial_update = true; SET enable_insert_strict = false")
    run(session, "BEGIN; DELETE FROM t WHERE k = 1; INSERT INTO t (k, a) VALUES (1, 99); COMMIT")
    assert rows(session)[0] == (1, None, 99, None)


def test_a_transaction_is_one_version_on_each_table(session: Session) -> None:
    before = [session.store.table(name).version for name in ("db.t", "db.s")]
    run(
        session,
        "BEGIN; INSERT INTO t VALUES (4,0,0,0); INSERT INTO s VALUES (9,9); UPDATE t SET a = 1; COMMIT",
    )
    assert [session.store.table(name).version for name in ("db.t", "db.s")] == [v + 1 for v in before]


def test_rollback_and_the_end_of_the_session_leave_nothing(session: Session) -> None:
    """X10"""
    run(session, "BEGIN; DELETE FROM t WHERE k = 1; ROLLBACK")
    with Session(session.store, "db") as other:
        run(other, "BEGIN WITH LABEL gone; BEGIN; DELETE FROM t WHERE k = 2")
    assert len(rows(session)) == 3
    run(session, "BEGIN WITH LABEL gone; DELETE FROM t WHERE k = 2; COMMIT")
    with pytest.raises(LabelExistsError, match=r"Label \[gone\] has already been used"):
        run(session, "BEGIN WITH LABEL gone; DELETE FROM t WHERE k = 1")


def test_a_failing_statement_undoes_only_itself(session: Session) -> None:
    """X11"""
    run(session, "BEGIN; INSERT INTO t VALUES (4, 0, 40, 0)")
    with pytest.raises(InvalidInputError):
        run(session, "INSERT INTO t VALUES (5, 'no number', 1, 1)")
    run(session, "COMMIT")
    assert [row[0] for row in rows(session)] == [1, 2, 3, 4]


def test_what_a_transaction_refuses(session: Session) -> None:
    """X12"""
    run(session, "CREATE DATABASE other; CREATE TABLE other.t (k INT NOT NULL) UNIQUE KEY(k)")
    run(session, "BEGIN; INSERT INTO t VALUES (4, 0, 0, 0)")
    with pytest.raises(InvalidInputError, match="Transaction insert must be in the same database"):
        run(session, "INSERT INTO other.t VALUES (1)")
    with pytest.raises(InvalidInputError, match="This is in a transaction, only insert, update, delete"):
        run(session, "DROP TABLE t")
    run(session, "COMMIT")
    assert len(rows(session)) == 4


def test_show_transaction_tells_what_became_of_it(session: Session) -> None:
    """X15"""
    run(session, "BEGIN WITH LABEL shown; DELETE FROM t WHERE k = 1; COMMIT")
    found = next(iter(session.execute("SHOW TRANSACTION WHERE label = 'shown'"))).rows
    assert found is not None
    assert found.schema.names[:4] == ["TransactionId", "Label", "Coordinator", "TransactionStatus"]
    assert found.column("TransactionStatus").to_pylist() == ["VISIBLE"]
    number = found.column("TransactionId")[0].as_py()
    assert run(session, f"SHOW TRANSACTION FROM db WHERE id = {number}") == [
        tuple(row.values()) for row in found.to_pylist()
    ]


def test_a_commit_that_meets_a_conflict_rolls_back(session: Session) -> None:
    run(session, "BEGIN; UPDATE t SET a = a + 1 WHERE k = 1")
    with Session(session.store, "db") as other:
        run(other, "INSERT INTO t VALUES (1, 0, 100, 0)")
    with pytest.raises(ConcurrentDeleteReadException, match="changed 1 row, first \\(k=1\\), it read"):
        run(session, "COMMIT")
    assert rows(session)[0] == (1, 0, 100, 0)
    assert not session.in_transaction


def test_a_busy_update_lock_fails_at_once_when_asked_to(session: Session) -> None:
    """U2, U4"""
    table = session.store.table("db.t")
    with update_lock(lock_directory(session.store.catalog), table.id, 0):
        run(session, "SET update_lock_seconds = 0")
        with pytest.raises(UnavailableError, match="There is an update operation in progress"):
            run(session, "UPDATE t SET a = 1")
        run(session, "INSERT INTO t VALUES (9, 9, 9, 9)")  # U6: loads do not wait
        run(session, 'ADMIN SET FRONTEND CONFIG ("enable_concurrent_update" = "true")')
        run(session, "UPDATE t SET a = 1")  # U3
    with pytest.raises(InvalidInputError, match="does not exist"):
        run(session, 'ADMIN SET FRONTEND CONFIG ("enable_everything" = "true")')


def test_a_busy_update_lock_fails_at_once_within_a_transaction_too(session: Session) -> None:
    """U4: as the session says, whatever the setting is; waiting as long would let the test time out."""
    with Store.open(session.store.catalog.data_dir, settings=Settings(update_lock_seconds=3600)) as store:
        table = store.table("db.t")
        with Session(store, "db") as other, update_lock(lock_directory(store.catalog), table.id, 0):
            run(other, "SET update_lock_seconds = 0; BEGIN")
            with pytest.raises(UnavailableError, match="There is an update operation in progress"):
                run(other, "UPDATE t SET a = 1")
