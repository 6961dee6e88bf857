"""Tables as of one moment: what a statement, a transaction or `Store.snapshot()` reads of several tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from seqstore import NotFoundError, Session, Store
from seqstore.store.catalog.leases import leases_of
from seqstore.store.read.store_snapshot import StoreSnapshot
from tests.support.statements import run

TABLES = """
CREATE TABLE a (k INT NOT NULL, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE b (k INT NOT NULL, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE target (k INT NOT NULL, v INT, w INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO a VALUES (1, 100); INSERT INTO b VALUES (1, 100); INSERT INTO target VALUES (0, 0, 0);
"""
pytestmark = pytest.mark.sql(TABLES)


def move(store: Store, amount: int) -> None:
    """Moves an amount from `a` to `b` in one transaction: the sum of both is 200 at any moment."""
    with Session(store, "db") as other:
        run(other, f"BEGIN; UPDATE a SET v = v - {amount}; UPDATE b SET v = v + {amount}; COMMIT")


class Overtaken(Session):
    """A session in which another transaction commits on all tables before each table but the first is
    opened."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "db")
        self.opened: list[str] = []

    def require(self, privilege: str, table: str) -> None:
        if privilege == "SELECT" and self.opened and table not in self.opened:
            move(self.store, 10)
        self.opened.append(table)
        super().require(privilege, table)


# Each ends with the pair of values that it read, or stored.
STATEMENTS = {
    "join": "SELECT a.v, b.v w FROM a JOIN b ON a.k = b.k",
    "comma": "SELECT a.v, b.v w FROM a, b",
    "subquery": "SELECT v, (SELECT max(v) FROM b) FROM a",
    "cte": "WITH x AS (SELECT v FROM a), y AS (SELECT v FROM b) SELECT x.v, y.v w FROM x, y",
    "exists": "SELECT v, 200 - v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.v = 200 - a.v)",
    "union": "SELECT max(p), max(q) FROM (SELECT v p, 0 q FROM a UNION ALL SELECT 0, v FROM b) u",
    "function": "SELECT a.v, c.v w FROM a, table_changes('db.b', 2) c ORDER BY _commit_version DESC LIMIT 1",
    "insert select": "INSERT INTO target SELECT 0, a.v, b.v FROM a, b; SELECT v, w FROM target",
    "insert values": "INSERT INTO target VALUES (0, (SELECT v FROM a), 1 + (SELECT v - 1 FROM b));"
    "SELECT v, w FROM target",
    "insert of itself": "INSERT INTO target SELECT t.k, a.v, b.v FROM target t, a, b;SELECT v, w FROM target",
    "create table as": "CREATE TABLE made UNIQUE KEY(k) AS SELECT a.k, a.v, b.v AS w FROM a, b;"
    "SELECT v, w FROM made",
    "update": "UPDATE target t SET v = a.v, w = b.v FROM a, b; SELECT v, w FROM target",
    "merge": "MERGE INTO target t USING (SELECT 0 k, a.v, b.v w FROM a, b) s ON t.k = s.k "
    "WHEN MATCHED THEN UPDATE SET v = s.v, w = s.w; SELECT v, w FROM target",
    "begin": "BEGIN; SELECT a.v, b.v w FROM a, b",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_one_statement_reads_all_its_tables_at_one_moment(store: Store, name: str) -> None:
    """A transaction that committed between two openings was seen by half: the sums were 190 and 210."""
    with Overtaken(store) as session:
        ((first, second),) = run(session, STATEMENTS[name])
        assert first + second == 200


def test_a_snapshot_without_a_name_reads_every_table_at_one_moment(store: Store) -> None:
    with store.snapshot() as moment:
        first = moment.table("db.a")
        move(store, 10)
        rows = [each.scan(["v"]).read_all() for each in (first, moment.table("db.b"))]
    assert [table.column(0).to_pylist() for table in rows] == [[100], [100]]
    assert store.snapshot().table("db.b").scan(["v"]).read_all().column(0).to_pylist() == [110]


def test_a_table_made_after_the_moment_is_absent(store: Store, session: Session) -> None:
    """A table made since, or made anew, was read at its head."""
    with store.snapshot() as moment:
        run(session, "DROP TABLE a; CREATE TABLE a (k INT) UNIQUE KEY(k); INSERT INTO a VALUES (7)")
        run(session, "CREATE TABLE late (k INT) UNIQUE KEY(k); INSERT INTO late VALUES (8)")
        for name in ("db.a", "db.late"):
            with pytest.raises(NotFoundError, match=f"Unknown table '{name}': it was created after"):
                moment.table(name)


READS: dict[str, Callable[[Session], Any]] = {
    "select": lambda session: run(session, "SELECT * FROM late"),
    "insert": lambda session: run(session, "INSERT INTO late VALUES (1)"),
    "update": lambda session: run(session, "UPDATE late SET v = 1"),
    "insert select": lambda session: run(session, "INSERT INTO b SELECT k, v FROM late"),
    "python": lambda session: session.transaction.table("db.late"),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("is_anew", [False, True], ids=["new", "anew"])
def test_a_table_made_after_begin_is_absent_in_the_transaction(
    store: Store, session: Session, how: str, is_anew: bool
) -> None:
    made = "CREATE TABLE late (k INT NOT NULL, v INT) UNIQUE KEY(k); INSERT INTO late VALUES (1, 1)"
    if is_anew:
        run(session, made)
    run(session, "BEGIN; INSERT INTO b VALUES (5, 5)")
    with Session(store, "db") as other:
        run(other, f"{'DROP TABLE late;' if is_anew else ''} {made}")
    with pytest.raises(NotFoundError, match=r"Unknown table 'db\.late': it was created after"):
        READS[how](session)
    run(session, "COMMIT")
    assert run(session, "SELECT k FROM b WHERE k = 5") == [(5,)]
    assert run(session, "SELECT v FROM late") == [(1,)]


@pytest.mark.parametrize("how", ["BEGIN", "python", "snapshot"])
def test_vacuum_takes_nothing_that_a_moment_may_still_read(store: Store, session: Session, how: str) -> None:
    """VACUUM RETAIN 0 removed the versions of tables that a transaction had not read yet."""
    held = store.snapshot() if how == "snapshot" else store.transaction() if how == "python" else None
    if held is None:
        run(session, "BEGIN")
    with Session(store, "db") as other:
        for name, _ in itertools.product("ab", range(3)):
            run(other, f"UPDATE {name} SET v = v + 1; OPTIMIZE {name}")
            run(other, f"VACUUM {name} RETAIN 0 HOURS")
    if held is None:
        found = [run(session, f"SELECT v FROM {name}") for name in "ab"]
    else:
        found = [
            [(v,) for v in held.table(f"db.{name}").scan(["v"]).read_all().column(0).to_pylist()]
            for name in "ab"
        ]
        held.close() if isinstance(held, StoreSnapshot) else held.rollback()
    assert found == [[(100,)], [(100,)]]
    run(session, "ROLLBACK")
    assert leases_of(store.catalog.data_dir).moments() == set()
    vacuum = store.table("db.a").vacuum(retention_seconds=0)
    assert vacuum.held == ()
    assert vacuum.oldest == store.table("db.a").version


def test_a_moment_of_an_empty_store_has_no_table(tmp_path: Any) -> None:
    with Store.open(tmp_path / "empty") as store, store.snapshot() as moment:
        store.create_database("db")
        run(Session(store, "db"), "CREATE TABLE t (k INT) UNIQUE KEY(k)")
        with pytest.raises(NotFoundError):
            moment.table("db.t")
        assert pa.table(store.table("db.t").scan().read_all()).num_rows == 0
