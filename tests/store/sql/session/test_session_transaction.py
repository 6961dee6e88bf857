"""The transaction of a session: autocommit off, access mode, isolation level, and what ends it."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from seqstore import ConflictError, InvalidInputError, Session, Store
from seqstore.store.catalog.update_lock import lock_directory, update_lock
from tests.support.statements import run

TABLES = """
CREATE TABLE t (k INT NOT NULL, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE u (k INT NOT NULL, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO t VALUES (1, 10), (2, 20);
"""
pytestmark = pytest.mark.sql(TABLES)
OFF = "SET autocommit = 0"


def seen(store: Store) -> list[tuple[int, int]]:
    """The rows that another session sees."""
    with Session(store, "db") as other:
        found: list[tuple[int, int]] = run(other, "SELECT * FROM t")
        return found


WRITES = {
    "insert": "INSERT INTO t VALUES (3, 30)",
    "update": "UPDATE t SET v = 0",
    "delete": "DELETE FROM t WHERE k = 1",
    "merge": "MERGE INTO t USING (SELECT 3 k) s ON t.k = s.k "
    "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (3, 0)",
}


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK", "SET autocommit = 1", "the end of the session"])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_without_autocommit_begins_a_transaction(store: Store, name: str, ending: str) -> None:
    """It was published at once, and ROLLBACK answered OK while the rows stayed."""
    before = seen(store)
    with Session(store, "db") as session:
        run(session, OFF)
        run(session, WRITES[name])
        assert session.in_transaction
        assert seen(store) == before
        assert run(session, "SELECT * FROM t") != before
        if ending != "the end of the session":
            run(session, ending)
            assert not session.in_transaction
    assert (seen(store) != before) == (ending in ("COMMIT", "SET autocommit = 1"))


def test_a_query_without_autocommit_begins_a_transaction_and_its_snapshot(
    store: Store, session: Session
) -> None:
    run(session, OFF)
    first = run(session, "SELECT * FROM t")
    with Session(store, "db") as other:
        run(other, "UPDATE t SET v = 0")
    assert run(session, "SELECT * FROM t") == first
    run(session, "COMMIT")
    assert run(session, "SELECT * FROM t") == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT @@autocommit",
        "SELECT table_name FROM information_schema.tables",
        "SHOW TABLES",
        "USE db",
        "SET @x = 1",
        "DESC t",
        "COMMIT",
        "ROLLBACK",
    ],
)
def test_a_statement_that_reads_no_stored_table_begins_none(session: Session, text: str) -> None:
    run(session, f"{OFF}; {text}")
    assert not session.in_transaction


def test_a_transaction_that_only_read_leaves_no_trace(store: Store, session: Session) -> None:
    with store.catalog.read() as tx:
        before = len(list(tx.items("txns")))
    run(session, f"{OFF}; SELECT * FROM t; COMMIT; SELECT * FROM t; ROLLBACK")
    with store.catalog.read() as tx:
        assert len(list(tx.items("txns"))) == before


COMMITTING = {
    "create": "CREATE TABLE made (k INT) UNIQUE KEY(k)",
    "drop": "DROP TABLE u",
    "alter": "ALTER TABLE u ADD COLUMN w INT",
    "truncate": "TRUNCATE TABLE u",
    "database": "CREATE DATABASE more",
    "overwrite": "INSERT OVERWRITE TABLE u VALUES (1, 1)",
    "user": "CREATE USER someone",
    "begin": "BEGIN; ROLLBACK",
    "start transaction": "START TRANSACTION; ROLLBACK",
}


@pytest.mark.parametrize("name", COMMITTING)
def test_what_may_not_stand_in_a_transaction_commits_it_first(
    store: Store, session: Session, name: str
) -> None:
    run(session, f"{OFF}; INSERT INTO t VALUES (3, 30); {COMMITTING[name]}")
    assert (3, 30) in seen(store)
    assert not session.in_transaction
    run(session, "INSERT INTO t VALUES (4, 40); ROLLBACK")
    assert (4, 40) not in seen(store)


def test_a_table_of_its_own_making_is_there_for_the_next_transaction(session: Session) -> None:
    run(
        session,
        f"{OFF}; SELECT * FROM t; CREATE TABLE late (k INT) UNIQUE KEY(k); INSERT INTO late VALUES (1)",
    )
    assert run(session, "SELECT * FROM late") == [(1,)]


def test_begin_without_autocommit_ends_with_its_commit_and_the_next_statement_begins_another(
    store: Store, session: Session
) -> None:
    run(
        session, f"{OFF}; BEGIN; INSERT INTO t VALUES (3, 30); COMMIT; INSERT INTO t VALUES (4, 40); ROLLBACK"
    )
    assert seen(store) == [(1, 10), (2, 20), (3, 30)]


def test_autocommit_that_stays_on_does_not_commit(store: Store, session: Session) -> None:
    run(session, "BEGIN; INSERT INTO t VALUES (3, 30); SET autocommit = 1")
    assert session.in_transaction
    assert (3, 30) not in seen(store)


def test_a_conflict_leaves_the_session_without_a_transaction(store: Store, session: Session) -> None:
    run(session, f"{OFF}; SELECT v FROM t WHERE k = 1; UPDATE t SET v = 11 WHERE k = 1")
    store.table("db.t").upsert(pa.table({"k": [1], "v": [99]}))
    with pytest.raises(ConflictError):
        run(session, "SET autocommit = 1")
    assert not session.in_transaction
    assert run(session, "SELECT @@autocommit") == [(0,)]
    run(session, "UPDATE t SET v = v + 1 WHERE k = 1; COMMIT")
    assert seen(store)[0] == (1, 100)


def test_the_first_update_waits_before_it_takes_its_snapshot(store: Store, session: Session) -> None:
    """It read the table first and waited then, so every update that it had waited for was a conflict."""
    table = store.table("db.t")
    run(session, OFF)
    waiting = threading.Thread(target=lambda: run(session, "UPDATE t SET v = v + 1 WHERE k = 1"))
    with update_lock(lock_directory(table.catalog), table.id, 30):
        waiting.start()
        table.upsert(pa.table({"k": [1], "v": [99]}))
    waiting.join()
    run(session, "COMMIT")
    assert seen(store)[0] == (1, 100)


def test_chains(store: Store, session: Session) -> None:
    run(session, "BEGIN; INSERT INTO t VALUES (3, 30); COMMIT AND CHAIN; INSERT INTO t VALUES (4, 40)")
    run(session, "ROLLBACK WORK AND CHAIN; INSERT INTO t VALUES (5, 50); COMMIT AND NO CHAIN")
    assert [k for k, _ in seen(store)] == [1, 2, 3, 5]
    assert not session.in_transaction


@pytest.mark.parametrize(
    "text",
    ["SAVEPOINT a", "ROLLBACK TO a", "ROLLBACK TO SAVEPOINT a", "ROLLBACK WORK TO a", "RELEASE SAVEPOINT a"],
)
def test_savepoints_are_refused_by_name_after_a_write(session: Session, text: str) -> None:
    run(session, "BEGIN; INSERT INTO t VALUES (3, 30)")
    with pytest.raises(
        InvalidInputError, match=r"(SAVEPOINT|ROLLBACK TO SAVEPOINT|RELEASE SAVEPOINT) is not supported"
    ):
        run(session, text)
    assert session.in_transaction


@pytest.mark.parametrize("begin", ["BEGIN", "START TRANSACTION READ ONLY", f"{OFF}; SELECT * FROM t"])
def test_a_transaction_that_only_reads_has_savepoints(store: Store, session: Session, begin: str) -> None:
    """mysqldump --single-transaction ended at its first SAVEPOINT."""
    run(session, f"{begin}; SAVEPOINT sp; SELECT * FROM t; SAVEPOINT `inner`")
    store.table("db.t").upsert(pa.table({"k": [9], "v": [90]}))
    run(session, "ROLLBACK TO SAVEPOINT sp")
    assert [k for k, _ in run(session, "SELECT * FROM t")] == [1, 2]
    with pytest.raises(InvalidInputError, match="SAVEPOINT inner does not exist"):
        run(session, "ROLLBACK WORK TO `inner`")
    run(session, "SAVEPOINT b; SAVEPOINT SP; ROLLBACK TO b")
    for name in ("sp", "none"):
        with pytest.raises(InvalidInputError, match=f"SAVEPOINT {name} does not exist"):
            run(session, f"RELEASE SAVEPOINT {name}")
    run(session, "RELEASE SAVEPOINT b")
    assert session.in_transaction


def test_a_savepoint_before_a_write_is_released_and_not_returned_to(store: Store, session: Session) -> None:
    run(session, "BEGIN; SAVEPOINT a; UPDATE t SET v = 0 WHERE k = 99; SAVEPOINT b")  # nothing to undo
    run(session, "INSERT INTO t VALUES (3, 30)")
    for text in ("SAVEPOINT c", "ROLLBACK TO SAVEPOINT a"):
        with pytest.raises(InvalidInputError, match="SAVEPOINT is not supported after a write"):
            run(session, text)
    run(session, "RELEASE SAVEPOINT a; COMMIT")
    assert [k for k, _ in seen(store)] == [1, 2, 3]
    run(session, "BEGIN")
    with pytest.raises(InvalidInputError, match="SAVEPOINT b does not exist"):
        run(session, "ROLLBACK TO b")


READ_ONLY = {
    "start": "START TRANSACTION READ ONLY",
    "start with more": "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    "next": "SET TRANSACTION READ ONLY; BEGIN",
    "session": "SET SESSION TRANSACTION READ ONLY; BEGIN",
    "variable": "SET SESSION transaction_read_only = 1; BEGIN",
    "old name": "SET tx_read_only = ON",
    "implicit": f"{OFF}; SET TRANSACTION READ ONLY; SELECT * FROM t",
    "one statement": "SET TRANSACTION READ ONLY",
}


@pytest.mark.parametrize("how", READ_ONLY)
@pytest.mark.parametrize("name", WRITES)
def test_a_read_only_transaction_writes_nothing(store: Store, session: Session, how: str, name: str) -> None:
    before = seen(store)
    run(session, READ_ONLY[how])
    with pytest.raises(InvalidInputError, match="Cannot execute statement in a READ ONLY transaction"):
        run(session, WRITES[name])
    assert run(session, "SELECT * FROM t") == before
    run(session, "SET SESSION TRANSACTION READ WRITE; ROLLBACK; SET autocommit = 1")
    run(session, WRITES[name])
    assert seen(store) != before


SERIALIZABLE = {
    "session": "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "next": "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "with mode": "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE",
    "variable": "SET transaction_isolation = 'SERIALIZABLE'",
    "next variable": "SET @@transaction_isolation = 'SERIALIZABLE'",
    "old name": "SET tx_isolation = 'serializable'",
}
OTHERS = {
    "default": "SET @x = 1",
    "repeatable read": "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "ours": "SET SESSION TRANSACTION ISOLATION LEVEL WRITE SERIALIZABLE",
}


@pytest.mark.parametrize("begin", ["BEGIN", OFF], ids=["begin", "autocommit off"])
@pytest.mark.parametrize("how", [*SERIALIZABLE, *OTHERS])
def test_the_isolation_level_takes_effect(store: Store, session: Session, how: str, begin: str) -> None:
    """It was accepted and ignored. A blind insert under a reader tells the levels apart (scenario 1)."""
    run(session, (SERIALIZABLE | OTHERS)[how])
    run(session, f"{begin}; DELETE FROM t WHERE v > 15")
    with Session(store, "db") as other:
        run(other, "INSERT INTO t VALUES (3, 30)")
    if how in SERIALIZABLE:
        with pytest.raises(ConflictError):
            run(session, "COMMIT")
        assert [k for k, _ in seen(store)] == [1, 2, 3]
    else:
        run(session, "COMMIT")
        assert [k for k, _ in seen(store)] == [1, 3]


def test_the_level_of_the_next_transaction_is_that_of_no_later_one(store: Store, session: Session) -> None:
    run(
        session,
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN; COMMIT; BEGIN; DELETE FROM t WHERE v > 15",
    )
    store.table("db.t").upsert(pa.table({"k": [3], "v": [30]}))
    run(session, "COMMIT")
    assert [k for k, _ in seen(store)] == [1, 3]


def test_variables_tell_the_level(session: Session) -> None:
    ask = "SELECT @@transaction_isolation, @@session.tx_isolation AS o, @@transaction_read_only AS r"
    assert run(session, ask) == [("REPEATABLE-READ", "REPEATABLE-READ", 0)]
    run(session, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY")
    assert run(session, ask) == [("SERIALIZABLE", "SERIALIZABLE", 1)]
    shown = run(session, "SHOW VARIABLES LIKE '%isolation'")
    assert [row[:2] for row in shown] == [
        ("transaction_isolation", "SERIALIZABLE"),
        ("tx_isolation", "SERIALIZABLE"),
    ]


@pytest.mark.parametrize("scope", ["", "SESSION ", "GLOBAL "])
def test_a_level_that_no_server_has_is_refused(session: Session, scope: str) -> None:
    with pytest.raises(
        InvalidInputError,
        match="expected SERIALIZABLE, WRITE SERIALIZABLE, REPEATABLE READ, READ COMMITTED or",
    ):
        run(session, f"SET {scope}TRANSACTION ISOLATION LEVEL CHAOS")


@pytest.mark.parametrize("level", ["READ COMMITTED", "READ UNCOMMITTED"])
def test_a_weaker_level_reads_one_snapshot_too(store: Store, session: Session, level: str) -> None:
    """Spark's JDBC writer sets READ UNCOMMITTED, and the refusal of it ended every write."""
    run(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    assert run(session, "SELECT @@transaction_isolation") == [(level.replace(" ", "-"),)]
    run(session, "BEGIN")
    before = run(session, "SELECT v FROM t ORDER BY k")
    with Session(store, "db") as other:
        run(other, "UPDATE t SET v = -1")
    assert run(session, "SELECT v FROM t ORDER BY k") == before
    run(session, "COMMIT")
    assert run(session, "SELECT DISTINCT v FROM t") == [(-1,)]


def test_characteristics_of_an_open_transaction_do_not_change(session: Session) -> None:
    run(session, "BEGIN")
    with pytest.raises(InvalidInputError, match="can't be changed while a transaction is in progress"):
        run(session, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")


def test_own_writes_are_read_unless_the_session_says_otherwise(session: Session) -> None:
    """X7"""
    run(session, "BEGIN; UPDATE t SET v = 0; SET transaction_reads_own_writes = false")
    assert run(session, "SELECT v FROM t") == [(0,), (0,)]
    run(session, "ROLLBACK; BEGIN; UPDATE t SET v = 0")
    assert run(session, "SELECT v FROM t") == [(10,), (20,)]


def test_autocommit_off_begins_no_transaction_where_the_variable_says_so(store: Store) -> None:
    """Clients of Doris, such as dbt, turn autocommit off and never commit."""
    with Session(store, "db") as session:
        run(session, "SET autocommit_off_begins_transaction = false")
        run(session, OFF)
        run(session, WRITES["insert"])
        assert not session.in_transaction
    assert (3, 30) in seen(store)
