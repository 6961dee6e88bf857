"""INSERT .. VALUES of several sessions in one version: group commit by session and by table (G12, G13)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from seqstore import InvalidInputError, LoadRejectedError, Session, Store
from seqstore.store.load import group_commit
from seqstore.store.sql.result import Result
from tests.seeds import new_seed
from tests.support.statements import is_grouped, last_result
from tests.weight import by_form

TABLES = """
CREATE TABLE t (k INT NOT NULL, v VARCHAR(5) NULL) UNIQUE KEY(k);
CREATE TABLE grouped (k INT NOT NULL, v VARCHAR(5) NULL) UNIQUE KEY(k)
    PROPERTIES('group_commit_mode' = 'async_mode');
CREATE TABLE s (k INT NOT NULL, v INT NULL, n INT NULL) UNIQUE KEY(k)
    PROPERTIES('function_column.sequence_col' = 'n', 'group_commit_mode' = 'sync_mode');
CREATE TABLE numbered (id BIGINT NOT NULL AUTO_INCREMENT, k INT) UNIQUE KEY(id)
    PROPERTIES('group_commit_mode' = 'sync_mode');
CREATE TABLE p (k INT NOT NULL) UNIQUE KEY(k) PARTITION BY RANGE(k) (PARTITION a VALUES LESS THAN (10))
    PROPERTIES('group_commit_mode' = 'sync_mode');
"""
pytestmark = pytest.mark.sql(TABLES)


def run_at_once(store: Store, statements: Sequence[str], *, mode: str = "") -> list[Result]:
    """Runs each statement in a session of its own."""

    def run(text: str) -> Result:
        with Session(store, "db") as session:
            return last_result(session, f"SET group_commit = '{mode}'; {text}")

    with ThreadPoolExecutor(len(statements)) as pool:
        return list(pool.map(run, statements))


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Holds the first publish until so many statements wait behind it; returns the sizes of groups."""

    def held(waiting: int) -> list[int]:
        sizes: list[int] = []
        publish = group_commit._publish

        def noted(members: Sequence[group_commit._Member]) -> None:
            sizes.append(len(members))
            while len(sizes) == 1 and sum(g.waiting for g in group_commit._groups.values()) < waiting:
                time.sleep(0.001)
            publish(members)

        monkeypatch.setattr(group_commit, "_publish", noted)
        return sizes

    return held


@pytest.mark.parametrize(("table", "mode"), [("t", "sync_mode"), ("t", "ASYNC_MODE"), ("grouped", "")])
def test_statements_that_come_together_are_one_version(
    store: Store, hold: Callable[[int], list[int]], table: str, mode: str
) -> None:
    sizes = hold(19)
    texts = [f"INSERT INTO {table} VALUES ({k}, 'a'), ({k + 100}, 'b')" for k in range(20)]
    results = run_at_once(store, texts, mode=mode)
    assert sizes == [1, 19]
    assert all(map(is_grouped, results))
    assert {result.affected_rows for result in results} == {2}
    assert len({result.info for result in results}) == 2
    found = store.table(f"db.{table}")
    assert found.version == 3
    assert sorted(found.scan(["k"]).read_all()["k"].to_pylist()) == sorted([*range(20), *range(100, 120)])
    assert found.check() == []


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t WITH LABEL own VALUES (1, 'a')",
        "INSERT INTO t SELECT 1, 'a'",
        "INSERT OVERWRITE TABLE t VALUES (1, 'a')",
        "INSERT IGNORE INTO t VALUES (1, 'a')",
        "INSERT INTO t VALUES (1, 'a') ON DUPLICATE KEY UPDATE v = 'b'",
        "INSERT INTO t VALUES ((SELECT coalesce(max(k), 0) + 1 FROM t), 'a')",
        "SET enable_unique_key_partial_update = true; INSERT INTO t (k, v) VALUES (1, 'a')",
        "SET txn_app_id = 'job', txn_version = 1; INSERT INTO t VALUES (1, 'a')",
        "INSERT INTO numbered (k) VALUES (1)",
        "INSERT INTO p PARTITION(a) VALUES (1)",
        "SET group_commit = off_mode; INSERT INTO grouped VALUES (1, 'a')",
    ],
)
def test_what_has_an_outcome_of_its_own_runs_alone(session: Session, text: str) -> None:
    result = last_result(session, f"SET group_commit = sync_mode; {text}")
    assert result.affected_rows == 1
    assert not is_grouped(result)


def test_a_transaction_keeps_its_statements(session: Session) -> None:
    last_result(session, "SET group_commit = sync_mode; BEGIN; INSERT INTO t VALUES (1, 'a')")
    assert session.store.table("db.t").count() == 0
    last_result(session, "COMMIT")
    assert session.store.table("db.t").count() == 1


def test_a_row_that_cannot_be_stored_fails_its_own_statement(
    store: Store, hold: Callable[[int], list[int]]
) -> None:
    hold(2)

    def run(text: str) -> str:
        try:
            return str(is_grouped(run_at_once(store, [text], mode="sync_mode")[0]))
        except LoadRejectedError as error:
            return error.message

    texts = [f"INSERT INTO t VALUES ({k}, 'a')" for k in (1, 2, 3)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(run, ["INSERT INTO t VALUES (4, 'too long')", *texts]))
    assert answers[0].startswith("Insert has filtered data in strict mode: 1 of 1 rows")
    assert answers[1:] == ["True"] * 3
    assert sorted(store.table("db.t").scan(["k"]).read_all()["k"].to_pylist()) == [1, 2, 3]


def test_the_sequence_decides_whatever_statements_share_a_version(store: Store) -> None:
    seed = new_seed()
    drawn = random.Random(seed)
    for _ in range(by_form(2, 20)):
        rows = [(drawn.randrange(6), number, number * 31 % 97) for number in range(40)]
        newest: dict[int, tuple[int, int]] = {}
        for key, value, sequence in rows:
            newest[key] = max(newest.get(key, (-1, 0)), (sequence, value))
        results = run_at_once(store, [f"INSERT INTO s VALUES {row}" for row in rows])
        assert {result.affected_rows for result in results} == {1}
        stored = store.table("db.s").scan().read_all().to_pylist()
        assert {row["k"]: (row["n"], row["v"]) for row in stored} == newest, f"seed {seed}"
        with Session(store, "db") as session:
            last_result(session, "TRUNCATE TABLE s")


def test_an_unknown_mode_is_refused(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="'group_commit' can't be set to the value of 'on'"):
        last_result(session, "SET group_commit = 'on'")
    with pytest.raises(InvalidInputError, match="'group_commit_mode': expected one of async_mode,"):
        last_result(session, "ALTER TABLE t SET ('group_commit_mode' = 'on')")


def test_the_table_shows_its_mode_unless_it_is_off(session: Session) -> None:
    def shown() -> bool:
        rows = last_result(session, "SHOW CREATE TABLE grouped").rows
        assert rows is not None
        return "group_commit_mode" in rows.to_pylist()[0]["Create Table"]

    assert shown()
    assert is_grouped(last_result(session, "INSERT INTO grouped VALUES (1, 'a')"))
    last_result(session, "ALTER TABLE grouped SET ('group_commit_mode' = 'off_mode')")
    assert not shown()
    assert not is_grouped(last_result(session, "INSERT INTO grouped VALUES (2, 'a')"))
