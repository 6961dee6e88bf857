"""Several threads and one store, through one handle and through several (C1, X3)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seqstore import Store
from tests.seeds import new_seed
from tests.support import contention
from tests.support.rows import batch, rows_of, schema_of
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


@pytest.mark.family(1)
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


def test_partial_updates_that_share_commits_keep_the_cells_of_each_other(store: Store) -> None:
    """A follower of a group commit is aligned with versions that are not committed yet (P6, C7)."""
    loads = 25
    schema = schema_of("k INT NOT NULL", *(f"v{writer} INT" for writer in range(WRITERS)))
    table = store.create_table("db.cells", schema)
    table.upsert(batch({"k": [0, 1], **{f"v{writer}": [0, 0] for writer in range(WRITERS)}}))

    def update(writer: int) -> None:
        for number in range(1, loads + 1):
            rows = batch({"k": [0, 1], f"v{writer}": [number, -number]})
            table.upsert(rows, mode="UPDATE_FIXED_COLUMNS")

    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(update, writer) for writer in range(WRITERS)]:
            done.result()
    assert table.version == 2 + WRITERS * loads
    assert rows_of(table) == [(0, *[loads] * WRITERS), (1, *[-loads] * WRITERS)]
    assert table.check() == []
