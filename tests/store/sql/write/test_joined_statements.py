"""UPDATE and DELETE of single rows by several sessions in one transaction (G14)."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pytest

from seqstore import Session, Store, StoreError
from seqstore.store.errors import ConflictError, UnavailableError
from seqstore.store.sql.result import Result
from seqstore.store.transaction import joined_statements
from seqstore.store.transaction.transaction_table import TransactionTable
from tests.seeds import new_seed
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython
from tests.support.statements import is_grouped, last_result, run
from tests.support.waiting import until
from tests.weight import by_form

TABLES = """
CREATE TABLE t (k INT NOT NULL, v BIGINT NULL, w VARCHAR(5) NULL) UNIQUE KEY(k);
CREATE TABLE grouped (k VARCHAR(9) NOT NULL, d DATE NOT NULL, v BIGINT NULL) UNIQUE KEY(k, d)
    PROPERTIES('group_commit_mode' = 'sync_mode');
CREATE TABLE s (k INT NOT NULL, v INT NULL, n INT NULL) UNIQUE KEY(k)
    PROPERTIES('function_column.sequence_col' = 'n', 'group_commit_mode' = 'sync_mode');
CREATE TABLE m (k DATETIME NOT NULL, v INT NULL) UNIQUE KEY(k);
INSERT INTO t VALUES (0, 0, 'a'), (1, 0, 'a'), (2, 0, 'a'), (3, 0, 'a'), (4, 0, 'a'), (5, 0, 'a');
INSERT INTO grouped VALUES ('x', '2026-01-01', 1), ('x', '2026-01-02', 2), ('y', '2026-01-01', 3);
INSERT INTO s VALUES (1, 0, 5), (2, 0, 5);
INSERT INTO m VALUES ('2026-01-01', 0);
"""
pytestmark = pytest.mark.sql(TABLES)
At = Callable[[str], "Future[Result]"]


class Runs:
    """The runs of groups. The first one waits until `go_on` is called.

    Attributes:
        sizes: of the runs.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._run = joined_statements._run
        self._going = threading.Event()

    def __call__(self, statements: Sequence[joined_statements._Statement]) -> None:
        self.sizes.append(len(statements))
        assert self._going.wait(60)
        self._run(statements)

    def go_on(self, waiting: int) -> None:
        """Lets the first run go on when so many statements wait behind it."""
        until(lambda: self.waiting() == waiting)
        self._going.set()

    def waiting(self) -> int:
        groups = [group for found in joined_statements._groups.values() for group in found.values()]
        return sum(group.waiting for group in groups)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()
    monkeypatch.setattr(joined_statements, "_run", found)
    return found


@pytest.fixture
def at(store: Store, runs: Runs) -> Iterator[At]:
    """Runs a statement in a session and a thread of its own, behind those that were begun before.

    The first one is in the first run when this returns, the next ones wait behind it.
    """
    with ThreadPoolExecutor(32) as pool:

        def begin(text: str) -> Future[Result]:
            def execute() -> Result:
                with Session(store, "db") as session:
                    return last_result(session, f"SET group_commit = sync_mode; {text}")

            wanted = runs.waiting() + 1 if runs.sizes else 0
            found = pool.submit(execute)
            until(lambda: found.done() or (bool(runs.sizes) and runs.waiting() >= wanted))
            return found

        yield begin


def values(store: Store) -> dict[int, int]:
    rows = store.table("db.t").scan(["k", "v"]).read_all()
    return dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


def test_statements_that_come_together_are_one_version(store: Store, at: At, runs: Runs) -> None:
    found = [at(f"UPDATE t SET v = v + {k} WHERE k = {k}") for k in range(5)]
    found.append(at("DELETE FROM t WHERE k = 5 AND v = 0"))
    runs.go_on(5)  # DELETE has a group of its own
    results = [each.result() for each in found]
    assert sorted(runs.sizes) == [1, 1, 4]
    assert all(map(is_grouped, results))
    assert [result.affected_rows for result in results] == [1] * 6
    assert len({result.info for result in results}) == 3
    assert values(store) == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}
    table = store.table("db.t")
    assert (table.version, table.check()) == (5, [])


def test_a_statement_tells_of_its_own_row(store: Store, at: At, runs: Runs) -> None:
    texts = ["k = 0", "k = 1 AND v = 7", "k = 77", "k = -3", "k = 3 AND w = 'a' AND v < 1"]
    found = [at(f"UPDATE t SET v = 9 WHERE {text}") for text in texts]
    runs.go_on(4)
    assert [each.result().affected_rows for each in found] == [1, 0, 0, 0, 1]
    assert values(store) == {0: 9, 1: 0, 2: 0, 3: 9, 4: 0, 5: 0}


def test_two_statements_of_one_key_see_each_other(store: Store, at: At, runs: Runs) -> None:
    found = [at(f"UPDATE t SET v = v * 2 + 1 WHERE k = {key}") for key in ("0", "1", "'1'", "01", "2")]
    runs.go_on(4)
    assert [each.result().affected_rows for each in found] == [1] * 5
    assert runs.sizes[0] == 1
    assert sum(runs.sizes) == 5
    assert max(runs.sizes) == 2
    assert values(store) == {0: 1, 1: 7, 2: 1, 3: 0, 4: 0, 5: 0}


def test_a_statement_that_fails_fails_alone(store: Store, at: At, runs: Runs) -> None:
    texts = [
        "v = 1 WHERE k = 0",
        "w = 'too long' WHERE k = 1",
        "v = 3 WHERE k = 2",
        "nothing = 1 WHERE k = 3",
    ]
    found = [at(f"UPDATE t SET {text}") for text in texts]
    runs.go_on(3)
    assert [each.exception() is None for each in found] == [True, False, True, False]
    assert "too long" in str(found[1].exception()) or "length" in str(found[1].exception())
    assert "nothing" in str(found[3].exception())
    assert values(store) == {0: 1, 1: 0, 2: 3, 3: 0, 4: 0, 5: 0}


def test_a_row_that_a_check_refuses_fails_its_own_statement(store: Store, at: At, runs: Runs) -> None:
    """The row is whole, and so can be tested, when the group is committed."""
    with Session(store, "db") as session:
        run(session, "ALTER TABLE t ADD CONSTRAINT short CHECK (v < 10 OR w = 'b')")
    found = [at(f"UPDATE t SET v = {value} WHERE k = {k}") for k, value in enumerate((1, 2, 77, 3))]
    runs.go_on(3)
    assert [each.exception() is None for each in found] == [True, True, False, True]
    assert "short" in str(found[2].exception())
    assert values(store) == {0: 1, 1: 2, 2: 0, 3: 3, 4: 0, 5: 0}


def test_a_group_whose_statements_all_fail_leaves_no_trace(store: Store, at: At, runs: Runs) -> None:
    def labels() -> list[bytes]:
        with store.catalog.read() as tx:
            return [key for key, _ in tx.items("labels")]

    before = labels()
    assert before
    found = at("UPDATE t SET nothing = 1 WHERE k = 0")
    runs.go_on(0)
    assert isinstance(found.exception(), StoreError)
    assert store.table("db.t").version == 2
    assert labels() == before


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE t SET v = 1 WHERE k < 1",
        "UPDATE t SET v = 1 WHERE 0 = k",
        "UPDATE t SET v = 1 WHERE k = 0 OR k = 0",
        "UPDATE t SET v = 1 WHERE k = 1 - 1",
        "UPDATE t SET v = 1 WHERE k IN (0)",
        "UPDATE t SET v = 1 WHERE k = 0 LIMIT 1",
        "UPDATE t SET v = (SELECT 1) WHERE k = 0",
        "UPDATE t SET v = 1 WHERE k = 0 AND v IN (SELECT 0)",
        "UPDATE t JOIN s ON s.k = t.k SET t.v = 1 WHERE t.k = 1",
        "DELETE FROM t USING s WHERE t.k = 1 AND s.k = t.k",
        "UPDATE grouped SET v = 1 WHERE k = 'y'",
        "UPDATE grouped SET v = 1 WHERE k = 'y' AND d = '20260101'",
        "UPDATE s SET n = 4 WHERE k = 1",
        "UPDATE m SET v = 1 WHERE k = '2026-01-01'",
        "SET group_commit = off_mode; UPDATE grouped SET v = 1 WHERE k = 'y' AND d = '2026-01-01'",
        "SET txn_app_id = 'job', txn_version = 1; UPDATE t SET v = 1 WHERE k = 0",
        "MERGE INTO t USING (SELECT 1 k) x ON t.k = x.k WHEN MATCHED THEN UPDATE SET v = 1",
    ],
)
def test_what_may_read_other_rows_runs_alone(session: Session, text: str) -> None:
    result = last_result(session, f"SET group_commit = sync_mode; {text}")
    assert not is_grouped(result)


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE grouped SET v = v + 1 WHERE k = 'y' AND d = '2026-01-01'",
        "DELETE FROM grouped WHERE d = '2026-01-01' AND k = 'y'",
        "UPDATE s SET v = 1 WHERE k = 1",
    ],
)
def test_the_property_of_the_table_joins_too(session: Session, text: str) -> None:
    result = last_result(session, text)
    assert is_grouped(result)
    assert result.affected_rows == 1


def test_a_transaction_keeps_its_statements(session: Session) -> None:
    last_result(session, "SET group_commit = sync_mode; BEGIN; UPDATE t SET v = 1 WHERE k = 0")
    assert values(session.store)[0] == 0
    last_result(session, "ROLLBACK")
    assert values(session.store)[0] == 0


@pytest.mark.parametrize("count", [1, 3])
def test_after_a_conflict_each_runs_alone(
    store: Store, at: At, runs: Runs, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A load changes a row between the reads and the commit of the group."""
    execute = joined_statements._Statement.run
    changed: list[int] = []

    def beside(statement: joined_statements._Statement, opened: TransactionTable) -> None:
        execute(statement, opened)
        if not changed:
            changed.append(store.table("db.t").upsert(pa.table({"k": [0], "v": [100], "w": ["b"]})).version)

    monkeypatch.setattr(joined_statements._Statement, "run", beside)
    found = [at(f"UPDATE t SET v = v + 1 WHERE k = {k}") for k in range(count)]
    runs.go_on(count - 1)
    if count == 1:  # `conflict_retries` is 0
        assert isinstance(found[0].exception(), ConflictError)
        assert values(store)[0] == 100
    else:
        assert [each.exception() for each in found[1:]] == [None, None]
        assert [values(store)[1], values(store)[2]] == [1, 1]


def test_a_group_that_meets_a_conflict_runs_again_one_by_one(
    store: Store, at: At, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = joined_statements._Statement.run
    changed: list[int] = []

    def beside(statement: joined_statements._Statement, opened: TransactionTable) -> None:
        execute(statement, opened)
        if len(runs.sizes) == 2 and not changed:
            changed.append(store.table("db.t").upsert(pa.table({"k": [1], "v": [100], "w": ["b"]})).version)

    monkeypatch.setattr(joined_statements._Statement, "run", beside)
    found = [at(f"UPDATE t SET v = v + 1 WHERE k = {k}") for k in range(4)]
    runs.go_on(3)
    results = [each.result() for each in found]
    assert runs.sizes == [1, 3]
    assert changed
    assert [is_grouped(result) for result in results] == [True, False, False, False]
    assert values(store) == {0: 1, 1: 101, 2: 1, 3: 1, 4: 0, 5: 0}


def test_a_statement_that_is_ended_leaves_the_group(store: Store, at: At, runs: Runs) -> None:
    first = at("UPDATE t SET v = 1 WHERE k = 0")
    with ThreadPoolExecutor(1) as pool, Session(store, "db") as session:
        text = "SET group_commit = sync_mode; UPDATE t SET v = 1 WHERE k = 1"
        second = pool.submit(last_result, session, text)
        until(lambda: runs.waiting() == 1)
        third = at("UPDATE t SET v = 1 WHERE k = 2")
        session.interrupt()
        assert isinstance(second.exception(60), UnavailableError)
        runs.go_on(1)
    assert (first.result().affected_rows, third.result().affected_rows) == (1, 1)
    assert values(store) == {0: 1, 1: 0, 2: 1, 3: 0, 4: 0, 5: 0}


@pytest.mark.parametrize("mode", ["serial", "concurrent"])
def test_no_increment_is_lost(store: Store, mode: str) -> None:
    seed = new_seed()
    is_concurrent = "true" if mode == "concurrent" else "false"
    with Session(store, "db") as session:
        run(session, f"ADMIN SET FRONTEND CONFIG ('enable_concurrent_update' = '{is_concurrent}')")

    def add(number: int) -> dict[int, int]:
        chosen, done = random.Random(seed + number), dict.fromkeys(range(6), 0)
        with Session(store, "db") as session:
            run(session, "SET group_commit = sync_mode; SET conflict_retries = 100")
            for _ in range(by_form(12, 100)):
                key = chosen.randrange(6)
                result = last_result(session, f"UPDATE t SET v = v + {key + 1} WHERE k = {key}")
                done[key] += (key + 1) * (result.affected_rows or 0)
        return done

    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(add, range(8)))
    assert values(store) == {key: sum(done[key] for done in added) for key in range(6)}, f"seed {seed}"
    assert store.table("db.t").check() == []


CHILD = """
import sys
from seqstore import Session, Store
from concurrent.futures import ThreadPoolExecutor

path, count = sys.argv[1], int(sys.argv[2])
with Store.open(path, create=False) as store:
    def add(key):
        with Session(store, "db") as session:
            list(session.execute("SET group_commit = sync_mode; SET conflict_retries = 100"))
            for number in range(count):
                text = f"UPDATE t SET v = v + 1 WHERE k = {(key + number) % 6}"
                assert list(session.execute(text))[0].affected_rows == 1
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
"""


def test_processes_lose_no_increment(store: Store) -> None:
    count = by_form(6, 60)
    arguments = ["-c", CHILD, str(store.path), str(count)]
    children = [
        ForkedPython(arguments, environment={"PYTHONPATH": MODULES}, stderr=subprocess.STDOUT)
        for _ in range(3)
    ]
    for child in children:
        told = child.communicate(timeout=300)
        assert child.returncode == 0, told
    assert values(store) == dict.fromkeys(range(6), 3 * 4 * count // 6)
