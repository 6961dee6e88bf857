"""How long a process keeps the catalogs of its stores open: for every handle, and a while without any."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import lmdb
import pyarrow as pa
import pytest

from seqstore import Store, Table
from seqstore.store.catalog.environment import is_open
from seqstore.store.catalog.environment.environment import Environment
from seqstore.store.errors import UnavailableError
from seqstore.store.locks.file_lock import Patience
from tests.seeds import new_seed
from tests.support.kafka import wait_until
from tests.support.rows import rows_of, schema_of

BYTES_MAX = 1 << 20  # of a map
OTHERS = 16  # environments that are opened before one without handles is closed


def new_store(path: Path) -> Store:
    store = Store.open(path)
    store.create_database("db", if_not_exists=True)
    return store


def environment_of(store: Store) -> Environment:
    return store.catalog._environment()


@pytest.fixture
def open_others(tmp_path: Path) -> Callable[[int], None]:
    """Opens and closes a number of new stores."""
    numbers = iter(range(1000))

    def open_and_close(count: int) -> None:
        for _ in range(count):
            new_store(tmp_path / f"other-{next(numbers)}").close()

    return open_and_close


def open_below(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if is_open(path / "catalog"))


def mapped_below(directory: Path) -> int:
    """How many data files of catalogs below the directory this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[-1] for line in lines if str(directory) in line and "data.mdb" in line})


def test_a_process_that_opens_many_stores_closes_the_oldest(tmp_path: Path) -> None:
    """Each environment stayed open until the process ended, with its map and its files."""
    for number in range(40):
        new_store(tmp_path / f"{number:02}").close()
    found = open_below(tmp_path)
    assert found == [f"{number:02}" for number in range(40 - len(found), 40)]
    assert len(found) in (OTHERS, OTHERS + 1)  # a thread of an earlier test may have used another store since
    if Path("/proc/self/maps").exists():
        assert mapped_below(tmp_path) == len(found)


def test_the_catalog_of_an_open_store_stays_open(tmp_path: Path, open_others: Callable[[int], None]) -> None:
    with new_store(tmp_path / "kept") as store:
        opened = environment_of(store)
        open_others(2 * OTHERS)
        assert environment_of(store) is opened
        with Store.open(tmp_path / "kept"):
            pass
        open_others(2 * OTHERS)
        assert environment_of(store) is opened


def test_a_store_that_is_opened_again_needs_no_new_environment(
    tmp_path: Path, open_others: Callable[[int], None]
) -> None:
    store = new_store(tmp_path / "again")
    opened = environment_of(store)
    few = OTHERS - 2  # a thread of an earlier test may use another store meanwhile
    for _ in range(3):
        open_others(few)
        store.close()
        open_others(few)
        store = Store.open(tmp_path / "again")
        assert environment_of(store) is opened
    store.close()


def test_a_store_that_was_dropped_without_close_counts_no_more(
    tmp_path: Path, open_others: Callable[[int], None]
) -> None:
    store = new_store(tmp_path / "dropped")
    del store
    gc.collect()
    open_others(OTHERS + 1)
    assert not is_open(tmp_path / "dropped" / "catalog")


def test_a_transaction_that_runs_keeps_its_environment_open(
    tmp_path: Path, open_others: Callable[[int], None]
) -> None:
    store = new_store(tmp_path / "read")
    with store.catalog.read() as tx:
        store.close()
        open_others(2 * OTHERS)
        assert tx.get("databases", b"db") == {"id": 1}
    open_others(1)
    assert not is_open(tmp_path / "read" / "catalog")


def test_a_table_of_a_closed_store_opens_its_catalog_again(
    tmp_path: Path, open_others: Callable[[int], None]
) -> None:
    store = new_store(tmp_path / "used")
    table = store.create_table("db.t", schema_of("k INT NOT NULL"))
    store.close()
    for number in range(3):
        open_others(OTHERS + 1)
        assert not is_open(tmp_path / "used" / "catalog")
        table.upsert(pa.table({"k": [number]}))
    assert sorted(rows_of(table)) == [(0,), (1,), (2,)]
    open_others(OTHERS + 1)
    assert not is_open(tmp_path / "used" / "catalog")


def test_threads_that_open_and_close_stores_lose_nothing(
    tmp_path: Path, open_others: Callable[[int], None]
) -> None:
    """Loads and reads meet environments that other threads close at that moment."""
    seed = new_seed()
    print(f"seed {seed}")
    threads, stores, rounds = 4, 50, 30
    tables: list[Table] = []
    for number in range(stores):
        with new_store(tmp_path / str(number)) as store:
            tables.append(store.create_table("db.t", schema_of("k INT NOT NULL")))

    def work(thread: int) -> list[tuple[int, int]]:
        chosen = random.Random(seed + thread)
        made = []
        for turn in range(rounds):
            number, key = chosen.randrange(stores), thread * rounds + turn
            if chosen.random() < 0.5:
                tables[number].upsert(pa.table({"k": [key]}))
            else:
                with Store.open(tmp_path / str(number)) as store:
                    store.table("db.t").upsert(pa.table({"k": [key]}))
            assert (key,) in rows_of(tables[number])
            made.append((number, key))
        return made

    with ThreadPoolExecutor(threads) as pool:
        made = [pair for pairs in pool.map(work, range(threads)) for pair in pairs]
    for number, table in enumerate(tables):
        assert sorted(rows_of(table)) == sorted((key,) for at, key in made if at == number)
    open_others(OTHERS + 1)
    assert not any(is_open(tmp_path / str(number) / "catalog") for number in range(stores))


class Resized:
    """An LMDB environment whose map another process has enlarged; adopting that is a call of `on_adopt`."""

    def __init__(self, inner: lmdb.Environment, on_adopt: Callable[[], None]) -> None:
        self._inner = inner
        self._on_adopt = on_adopt

    def begin(self, **_options: object) -> lmdb.Transaction:
        raise lmdb.MapResizedError("mdb_txn_begin")

    def set_mapsize(self, _size: int) -> None:
        self._on_adopt()

    def close(self) -> None:
        self._inner.close()


def test_a_map_that_cannot_be_adopted_leaves_the_environment_idle(tmp_path: Path) -> None:
    """The failed transaction was subtracted twice: a fork waited ten seconds for the catalog, and in vain."""

    def refuse() -> None:
        raise lmdb.InvalidError("not a catalog")

    opened = Environment(tmp_path / "catalog", BYTES_MAX, Patience(1))
    opened.env = cast(lmdb.Environment, Resized(opened.env, refuse))
    with pytest.raises(UnavailableError, match="no transaction could begin"):
        opened.begin()
    assert opened.close(0)


def test_an_environment_that_is_closed_before_it_adopts_a_map_begins_nothing(tmp_path: Path) -> None:
    """A fork closed it while it waited for other transactions."""
    opened = Environment(tmp_path / "catalog", BYTES_MAX, Patience(1))
    other = opened.begin()
    assert other is not None
    opened.env = cast(lmdb.Environment, Resized(opened.env, lambda: pytest.fail("it is closed")))
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(opened.begin)
        wait_until(lambda: opened._idle_waits == 1, "the wait for the other transaction")
        with opened.guard:
            opened.is_closed = True
            opened.end(other)
        assert begun.result() is None
    assert opened.close(0)
