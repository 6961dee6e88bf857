"""Tables that a statement makes and fills: with its rows they stay, without they are gone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from seqstore import Session, Store, UnavailableError
from seqstore.store.ddl import filled_tables
from seqstore.store.ddl.filled_tables import filled_table
from seqstore.store.publish import commit
from tests.support.faults.dying_child import run_until_dead
from tests.support.rows import rows_of, schema_of
from tests.support.statements import run

pytestmark = pytest.mark.sql("CREATE TABLE t (k BIGINT NOT NULL) UNIQUE KEY(k); INSERT INTO t VALUES (1)")
COPY = "CREATE TABLE IF NOT EXISTS copy UNIQUE KEY(k) AS SELECT k FROM t"
KILLED = f"""
import sys
from seqstore import Session, Store
store = Store.open(sys.argv[1])
session = Session(store, "db")
print("ready", flush=True)
list(session.execute("{COPY}"))
"""


@pytest.mark.parametrize(("failpoint", "is_there"), [("load.staged", False), ("publish.after_commit", True)])
def test_a_process_that_is_killed_leaves_the_table_with_its_rows_or_none(
    store: Store, failpoint: str, is_there: bool
) -> None:
    """It left an empty table, and the same statement with IF NOT EXISTS then did nothing."""
    run_until_dead(KILLED, store.path, 0, failpoint=failpoint)
    with Store.open(store.path) as opened, Session(opened, "db") as session:
        assert ("copy" in opened.tables("db")) == is_there
        run(session, COPY)
        assert rows_of(opened.table("db.copy")) == [(1,)]


def test_a_table_that_could_not_be_dropped_is_dropped_before_the_next_try(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise UnavailableError("the disk fails", kind="disk")

    with monkeypatch.context() as broken:
        broken.setattr(commit, "_commit", fail)
        broken.setattr(filled_tables, "_drop_unfilled", fail)
        with pytest.raises(UnavailableError, match="the disk fails"):
            run(session, COPY)
    assert store.tables("db") == ["copy", "t"]
    run(session, COPY)
    assert rows_of(store.table("db.copy")) == [(1,)]


def test_a_table_with_rows_of_another_stays_when_its_block_fails(store: Store) -> None:
    def fill() -> None:
        with filled_table(store, "db.new", schema_of("k BIGINT NOT NULL")) as table:
            table.upsert(pa.table({"k": [5]}))
            raise UnavailableError("the disk fails", kind="disk")

    with pytest.raises(UnavailableError):
        fill()
    assert rows_of(store.table("db.new")) == [(5,)]


def test_a_table_that_another_process_fills_stays_when_a_block_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        with filled_table(store, "db.new", schema_of("k BIGINT NOT NULL"), if_not_exists=True):
            raise UnavailableError("the disk fails", kind="disk")

    with filled_table(store, "db.new", schema_of("k BIGINT NOT NULL")) as table:
        with monkeypatch.context() as other:
            other.setattr(filled_tables, "this_process", lambda: (1, 1))
            with pytest.raises(UnavailableError):
                fail()
        table.upsert(pa.table({"k": [5]}))
    assert rows_of(store.table("db.new")) == [(5,)]


def test_a_table_that_is_being_filled_stays(store: Store) -> None:
    with filled_table(store, "db.new", schema_of("k BIGINT NOT NULL")) as table:
        with Store.open(store.path) as other:
            assert other.tables("db") == ["new", "t"]
        table.upsert(pa.table({"k": [5]}))
    assert rows_of(store.table("db.new")) == [(5,)]


def test_a_table_without_rows_stays_when_its_statement_has_ended(store: Store) -> None:
    filled = KILLED.replace("FROM t", "FROM t WHERE k > 1")
    text = f"import signal\n{filled}\nprint('made', flush=True)\nsignal.pause()"
    assert run_until_dead(text, store.path, 0, kill_after=1) == ["made"]
    with Store.open(store.path) as opened:
        assert opened.tables("db") == ["copy", "t"]
