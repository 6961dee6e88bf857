"""Several threads and one store, through one handle and through several (C1, X3)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seqstore import Store
from tests.seeds import new_seed
from tests.support import contention
from tests.weight import torture_minutes

WRITERS = 4
READERS = 2


def write_and_read(path: Path, seed: int, loads: int, *, handles: int) -> None:
    print("seed", seed)
    stores = [
        Store.open(path, settings=contention.INLINE if number % 2 else contention.SMALL_FILES)
        for number in range(handles)
    ]
    stores[0].create_database("db")
    table = stores[0].create_table("db.t", contention.contended_schema())
    tables = [stores[number % handles].table("db.t") for number in range(WRITERS + READERS)]
    with ThreadPoolExecutor(WRITERS + READERS) as pool:
        reading = [
            pool.submit(contention.read_until, tables[WRITERS + reader], WRITERS * loads)
            for reader in range(READERS)
        ]
        writing = [
            pool.submit(contention.write_all, tables[writer], seed, writer, loads)
            for writer in range(WRITERS)
        ]
        done = [each for future in writing for each in future.result()]
        contention.assert_replayed(table, done, [future.result() for future in reading])


@pytest.mark.parametrize("handles", [1, 3])
def test_writers_of_the_same_keys_agree_with_a_replay(tmp_path: Path, handles: int) -> None:
    write_and_read(tmp_path / "data", new_seed(), 10, handles=handles)


@pytest.mark.torture
def test_threads_agree_with_a_replay_at_length(tmp_path: Path) -> None:
    until = time.monotonic() + 60 * torture_minutes() / 8
    number = 0
    while time.monotonic() < until:
        number += 1
        seed = new_seed()
        write_and_read(tmp_path / f"data-{number}", seed, 60, handles=1 + number % 3)
