"""Answers of the catalog that a process keeps: read once, and never older than the newest commit."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import NotFoundError, Session, Store
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.environment.answers import Answer, Answers
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython
from tests.support.rows import MakeTable
from tests.support.statements import last_result
from tests.weight import by_form

CHILD = """
import sys
from seqstore import Store
with Store.open(sys.argv[1]) as store:
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
"""


class Reads:
    """Counts the transactions that read the catalog."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        plain = Catalog.read

        def read(catalog: Catalog) -> object:
            self.count += 1
            return plain(catalog)

        monkeypatch.setattr(Catalog, "read", read)


class OtherProcess:
    """A process that has the store open too, and runs one line of Python at a time."""

    def __init__(self, started: ForkedPython) -> None:
        self._started = started

    def run(self, line: str) -> None:
        assert self._started.stdin is not None
        assert self._started.stdout is not None
        self._started.stdin.write(line + "\n")
        self._started.stdin.flush()
        assert self._started.stdout.readline() == "done\n", line


@contextmanager
def other_process(store: Store) -> Iterator[OtherProcess]:
    environment = {**os.environ, "PYTHONPATH": MODULES}
    started = ForkedPython(["-c", CHILD, str(store.path)], environment=environment, has_input=True)
    with started:
        yield OtherProcess(started)


def marked(store: Store) -> int | None:
    """The value of a record, by an answer that is kept."""
    found: int | None = store.catalog.recall("marked", lambda tx: tx.get("meta", b"marked"))
    return found


def mark(store: Store, value: int, database: str = "meta") -> None:
    with store.catalog.write() as tx:
        tx.put(database, b"marked", value)


@pytest.mark.parametrize("seed", range(by_form(40, 200)))
def test_an_answer_is_never_older_than_the_newest_commit(seed: int) -> None:
    """Random commits of this process and another, to a few databases, and questions in between."""
    random_ = random.Random(seed)
    answers, names = Answers(), ["a", "b", "c", "d"]
    content = dict.fromkeys(names, 0)  # database -> the commit that changed it last
    newest = kept = 0
    for _ in range(300):
        if random_.random() < 0.4:
            newest += 1
            touched = random_.sample(names, random_.randint(1, 2))
            content |= dict.fromkeys(touched, newest)
            if random_.random() < 0.8:
                answers.note_commit(newest, touched, {})
            continue
        read = tuple(sorted(random_.sample(names, random_.randint(1, 2))))
        value = {name: content[name] for name in read}
        found = answers.known.get(read)
        if found is None or not (found.commit == newest or answers.holds(found, newest)):
            answers.keep(read, Answer(value, newest, read))
        else:
            kept += found.commit < newest
            assert found.value == value, f"seed {seed}: {read} at commit {newest}"
    assert kept  # answers did outlive commits


def test_a_statement_of_a_user_reads_the_catalog_once_until_it_changes(
    store: Store, make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Privileges, group, table and version: each was a transaction of its own, for every statement."""
    make_table("k INT NOT NULL", "v INT").upsert(pa.table({"k": [1], "v": [1]}))
    with Session(store, "db") as root:
        last_result(root, "CREATE USER u; GRANT SELECT_PRIV ON db.* TO u")
    with Session(store, "db", user="u") as session:
        last_result(session, "SELECT * FROM t WHERE k = 1")
        reads = Reads(monkeypatch)
        last_result(session, "SELECT * FROM t WHERE k = 1")
        assert reads.count == 0


def test_loads_do_not_end_what_is_known_of_users_and_names(
    store: Store, make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table("k INT NOT NULL", "v INT")
    store.accounts.create("u")
    store.accounts.find("u")
    table.upsert(pa.table({"k": [1], "v": [1]}))
    reads = Reads(monkeypatch)
    assert store.accounts.find("u") is not None
    assert store.table("db.t") is table
    assert reads.count == 1  # the name of the table, for the first time
    assert table.version == 2
    assert table.get(pa.table({"k": [1]})).to_pylist() == [{"k": 1, "v": 1}]
    assert reads.count == 1  # the load has told the head that it made
    table.optimize()
    assert table.version >= 2
    assert reads.count > 1


def test_loads_that_share_commits_tell_no_head_that_another_one_has_moved(
    store: Store, make_table: MakeTable
) -> None:
    table, loads = make_table("k INT NOT NULL", "v INT"), 48

    def load(number: int) -> int:
        made = table.upsert(pa.table({"k": [number], "v": [number]})).version
        assert table.version >= made
        assert table.get(pa.table({"k": [number]})).num_rows == 1
        return made

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(load, range(loads)))
    assert sorted(made) == list(range(2, loads + 2))
    assert table.version == loads + 1
    assert table.count() == loads


def test_commits_of_this_process_end_the_answers_of_what_they_touch(store: Store) -> None:
    assert marked(store) is None
    mark(store, 1)
    assert marked(store) == 1
    mark(store, 2, "config")
    assert marked(store) == 1
    with pytest.raises(ZeroDivisionError):
        mark(store, 1 // 0)
    assert marked(store) == 1


def test_a_commit_that_changes_nothing_is_none(store: Store) -> None:
    """LMDB gives its number to the next transaction, which may be that of another process."""
    assert marked(store) is None
    with store.catalog.write() as tx:
        tx.get("config", b"nothing")
    with other_process(store) as other:
        other.run("with store.catalog.write() as tx: tx.put('meta', b'marked', 1)")
        mark(store, 1, "config")
        assert marked(store) == 1


def test_followers_of_a_group_end_answers_too(store: Store) -> None:
    assert marked(store) is None
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: mark(store, number, "meta" if number == 13 else "config"), range(32)))
    assert marked(store) == 13


def test_what_another_process_commits_is_seen_at_once(store: Store, make_table: MakeTable) -> None:
    """A revoked privilege, a renamed table and a load, each between commits of this process."""
    table = make_table("k INT NOT NULL", "v INT")
    with Session(store, "db") as root:
        last_result(root, "CREATE USER u; GRANT SELECT_PRIV ON db.* TO u")
    with Session(store, "db", user="u") as session, other_process(store) as other:
        for number in range(3):
            table.upsert(pa.table({"k": [number], "v": [1]}))
            assert last_result(session, "SELECT count(*) FROM t").rows is not None
            assert store.table("db.t").version == 2 * number + 2
            other.run(
                f"import pyarrow as pa; store.upsert('db.t', pa.table({{'k': [{10 + number}], 'v': [2]}}))"
            )
            assert store.table("db.t").version == 2 * number + 3
            assert table.count() == 2 * number + 2
        other.run("store.accounts.revoke('u', ['SELECT'], 'db')")
        with pytest.raises(NotFoundError):  # the user sees nothing of the database any more
            last_result(session, "SELECT * FROM t")
        other.run("store.rename_table('db.t', 'u')")
        mark(store, 1)
        with pytest.raises(NotFoundError):
            store.table("db.t")
        assert store.table("db.u") is table


def test_a_forked_child_reads_the_catalog_itself(store: Store) -> None:
    mark(store, 1)
    assert marked(store) == 1
    pid = os.fork()
    if not pid:
        mark(store, 2)
        os._exit(0 if marked(store) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert marked(store) == 2


def test_answers_are_forgotten_when_there_are_many(store: Store) -> None:
    def read(tx: CatalogTransaction) -> None:
        tx.get("meta", b"marked")

    answers = store.catalog._environment().answers
    for number in range(5000):
        store.catalog.recall(number, read)
    assert len(answers.known) <= 4096


def test_a_table_of_another_directory_is_another_one(tmp_path: Path, store: Store) -> None:
    with Store.open(tmp_path / "other") as other:
        mark(store, 1)
        assert (marked(store), marked(other)) == (1, None)
