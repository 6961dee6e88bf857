"""Conflicts of SQL statements: what their conditions let the store look at. Scenarios 25, 26, 28 and 33."""

from __future__ import annotations

import pytest

from seqstore import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConflictError,
    InvalidInputError,
)
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.sql import Session
from tests.support.statements import run

TABLES = """
CREATE TABLE t (k INT NOT NULL, grp INT NULL, a INT NULL, b INT NULL, st STRUCT<x:INT> NULL) UNIQUE KEY(k)
DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE s (k INT NOT NULL, grp INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO t (k, grp, a, b) VALUES (1,0,10,0), (2,0,20,0), (3,1,30,0);
INSERT INTO s VALUES (3, 1), (7, 1);
ADMIN SET FRONTEND CONFIG ("enable_concurrent_update" = "true");
"""


pytestmark = pytest.mark.sql(TABLES)


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


def test_24_updates_by_key_meet_without_row_level_checks(session: Session) -> None:
    """A condition that names a key is a look-up: only that key was compared."""
    run(session, "ALTER TABLE t SET ('delta.enableDeletionVectors' = 'false')")
    with pytest.raises(ConcurrentAppendException, match="ROW_LEVEL_OFF"):
        race(session, "UPDATE t SET a = 0 WHERE k = 1", "UPDATE t SET b = 0 WHERE k = 3")


@pytest.mark.parametrize(
    "second",
    [
        "DELETE FROM t WHERE __DORIS_VERSION_COL__ = 2",
        "DELETE FROM t WHERE k = 1 AND __DORIS_VERSION_COL__ = 2",
        "UPDATE t SET b = 1 WHERE __VERSION_COL__ + 0 = 2",
        "UPDATE t SET b = __VERSION_COL__ WHERE k = 1",
        "SELECT k FROM t WHERE __VERSION_COL__ = 2; DELETE FROM t WHERE k = 3",
        "SELECT k, __VERSION_COL__ FROM t WHERE k = 1; DELETE FROM t WHERE k = 3",
        "SET show_hidden_columns = true; SELECT * FROM t; SET show_hidden_columns = false; "
        "DELETE FROM t WHERE k = 3",
        "INSERT INTO t (k, b) SELECT 7, max(__VERSION_COL__) FROM t",
        "MERGE INTO t USING (SELECT 1 AS k) y ON t.k = y.k "
        "WHEN MATCHED AND t.__DORIS_VERSION_COL__ = 2 THEN UPDATE SET b = 1",
        "MERGE INTO t USING (SELECT 1 AS k) y ON t.k = y.k AND t.__VERSION_COL__ = 2 "
        "WHEN MATCHED THEN UPDATE SET b = 1",
    ],
)
def test_a_statement_that_reads_versions_meets_every_write_of_its_rows(session: Session, second: str) -> None:
    """A write of another column changes the version, too."""
    with pytest.raises(ConcurrentDeleteReadException):
        race(session, "UPDATE t SET a = 11 WHERE k = 1", second)


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


def test_updates_of_one_column_to_constants_meet_by_sql(session: Session) -> None:
    with pytest.raises(ConcurrentDeleteDeleteException):
        race(session, "UPDATE t SET a = 1 WHERE k = 1", "UPDATE t SET a = 2 WHERE k = 1")


@pytest.mark.parametrize("sequence", ["sequence_col' = 's'", "sequence_type' = 'int'"])
@pytest.mark.parametrize(
    "text",
    [
        "UPDATE w SET a = 7 WHERE k = 1",
        "MERGE INTO w USING (SELECT 1 AS k) y ON w.k = y.k WHEN MATCHED THEN UPDATE SET a = 7",
    ],
    ids=["UPDATE", "MERGE"],
)
def test_the_sequence_of_a_row_counts_as_read_by_sql(session: Session, text: str, sequence: str) -> None:
    """ISO17: a hidden sequence did not count, and MERGE counted none."""
    run(
        session,
        "CREATE TABLE w (k INT, a INT NULL, b INT NULL, s INT NULL) UNIQUE KEY(k) "
        f"PROPERTIES ('function_column.{sequence})",
    )
    name = "s" if "col" in sequence else "__DORIS_SEQUENCE_COL__"
    run(session, f"INSERT INTO w (k, a, b, {name}) VALUES (1, 1, 1, 5)")
    run(session, "BEGIN")
    with Session(session.store, "db") as other:
        run(other, f"BEGIN; {text}")
        run(session, f"UPDATE w SET b = 2, {name} = 9 WHERE k = 1; COMMIT")
        with pytest.raises(ConcurrentDeleteReadException):
            run(other, "COMMIT")


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


class Between:
    """Runs a statement of another session once, between what the next statement reads and its publishing."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        prepare = TableWriter.prepare
        waiting = [text]

        def first(writer: TableWriter) -> None:
            while waiting:
                with Session(session.store, "db") as other:
                    run(other, waiting.pop())
            prepare(writer)

        monkeypatch.setattr(TableWriter, "prepare", first)


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
@pytest.mark.parametrize(
    ("insert", "change"),
    [
        ("INSERT INTO t (k, grp, a) SELECT k, grp, a + 1 FROM t", "UPDATE t SET a = 1000 WHERE k = 1"),
        (
            "INSERT INTO t (k, a) VALUES (9, (SELECT count(*) FROM t WHERE grp = 0))",
            "DELETE FROM t WHERE k = 2",
        ),
        (
            "INSERT INTO t (k, a) WITH x AS (SELECT a FROM t WHERE k = 1) SELECT 9, a FROM x",
            "DELETE FROM t WHERE k = 1",
        ),
        (
            "INSERT OVERWRITE TABLE t (k, grp, a) SELECT k, grp, a FROM t WHERE k < 3",
            "UPDATE t SET a = 7 WHERE k = 2",
        ),
    ],
    ids=["select", "value", "cte", "overwrite"],
)
def test_an_insert_that_reads_its_own_table_undoes_no_write_of_others(
    session: Session, monkeypatch: pytest.MonkeyPatch, level: str, insert: str, change: str
) -> None:
    """SEL of 2.1: it has the concurrency of MERGE, outside BEGIN too."""
    run(session, f"ALTER TABLE t SET TBLPROPERTIES ('delta.isolationLevel' = '{level}')")
    Between(session, monkeypatch, change)
    with pytest.raises(ConflictError):
        run(session, insert)
    assert (9,) not in run(session, "SELECT k FROM t")
    run(session, insert)


def test_an_insert_that_reads_its_own_table_runs_again_when_asked_to(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(session, "SET conflict_retries = 1")
    Between(session, monkeypatch, "UPDATE t SET a = 1000 WHERE k = 1")
    run(session, "INSERT INTO t (k, grp, a) SELECT k, grp, a + 1 FROM t")
    assert run(session, "SELECT k, a FROM t") == [(1, 1001), (2, 21), (3, 31)]


def test_a_blind_insert_passes_between_read_and_publish(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blind appends conflict with nobody under WriteSerializable, not even with one that reads all."""
    Between(session, monkeypatch, "INSERT INTO t (k, a) VALUES (50, 1)")
    run(session, "INSERT INTO t (k, a) SELECT k + 100, a FROM t")
    assert run(session, "SELECT k FROM t") == [(1,), (2,), (3,), (50,), (101,), (102,), (103,)]


def test_an_overwrite_of_itself_leaves_what_it_wrote_and_keeps_its_label(session: Session) -> None:
    info = next(
        session.execute(
            "INSERT OVERWRITE TABLE t WITH LABEL ow (k, grp, a) SELECT k, grp, a FROM t WHERE k < 3"
        )
    ).info
    assert "'label':'ow', 'status':'VISIBLE'" in info
    assert run(session, "SELECT k FROM t") == [(1,), (2,)]
    run(session, "INSERT OVERWRITE TABLE t SELECT * FROM t WHERE k > 100")
    assert run(session, "SELECT k FROM t") == []


def test_a_merge_that_fails_leaves_later_reads_of_its_transaction_remembered(session: Session) -> None:
    """X11: the transaction goes on, so what it reads after the failure counts."""
    run(session, "BEGIN")
    with pytest.raises(InvalidInputError):
        run(session, "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET a = assert_nothing(1)")
    run(session, "SELECT count(*) FROM t WHERE grp = 0; INSERT INTO t (k, a) VALUES (50, 2)")
    with Session(session.store, "db") as other:
        run(other, "UPDATE t SET grp = 0 WHERE k = 3")
    with pytest.raises(ConflictError):
        run(session, "COMMIT")


@pytest.mark.parametrize("clause", ["", " WHEN NOT MATCHED BY SOURCE AND a > 1000 THEN DELETE"])
def test_what_the_source_of_a_merge_reads_of_the_target_counts(
    session: Session, monkeypatch: pytest.MonkeyPatch, clause: str
) -> None:
    run(session, "ALTER TABLE t SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')")
    Between(session, monkeypatch, "INSERT INTO t (k, grp, a) VALUES (3, 0, 30)")
    with pytest.raises(ConflictError):
        run(
            session,
            "MERGE INTO t USING (SELECT 100 AS k, count(*) AS c FROM t WHERE grp = 0) x ON t.k = x.k "
            f"WHEN NOT MATCHED THEN INSERT (k, a) VALUES (x.k, x.c){clause}",
        )


@pytest.mark.parametrize(
    ("source", "on"),
    [
        ("(SELECT 99999999999 AS k UNION ALL SELECT 3)", "t.k = x.k"),
        ("(SELECT 'zz' AS k UNION ALL SELECT '3')", "t.k = x.k"),
        ("(SELECT 3 AS k)", "t.k = x.k AND t.b = grp"),
        ("(SELECT 3 AS y)", "t.k = grp + 2"),
    ],
    ids=["too large", "text", "unqualified", "computed of the target"],
)
def test_a_merge_takes_source_keys_that_are_none_of_the_target(
    session: Session, source: str, on: str
) -> None:
    run(session, "UPDATE t SET b = grp WHERE k > 0")
    run(session, f"MERGE INTO t USING {source} x ON {on} WHEN MATCHED THEN UPDATE SET a = -1")
    assert (3,) in run(session, "SELECT k FROM t WHERE a = -1")
