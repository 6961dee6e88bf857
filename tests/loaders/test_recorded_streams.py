"""Messages that Debezium made of a real PostgreSQL and MariaDB, and the rows that their tables ended with.

`tests.support.streams.record` recorded them: keys that change, rows that go and come back in one
transaction, a rollback, a new column, and in MariaDB three binlog files.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seqstore import Settings, Store
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.store.sql import ServerContext, Session
from tests.seeds import new_seed
from tests.support.statements import dicts

RECORDED = Path(__file__).parents[1] / "support/streams/recorded"
DATABASES = ("postgresql", "mariadb")
TABLES = {"things": "id, name, price, day, note, more", "pairs": "a, b, n"}
pytestmark = pytest.mark.settings(auto_compaction=0)


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "in").mkdir()
    return replace(settings, load_paths=(str(tmp_path / "in"),))


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as opened:
        yield opened


def messages(name: str) -> list[str]:
    return (RECORDED / f"{name}.json").read_text().splitlines(keepends=True)


def copied(
    store: Store, session: Session, folder: Path, lines: list[str], *, more: str = ""
) -> dict[str, object]:
    """Loads messages by a routine load that makes the tables; their rows as texts."""
    half = len(lines) // 2
    (folder / "in/1.json").write_text("".join(lines[:half]))
    (folder / "in/2.json").write_text("".join(lines[half:]))
    properties = "'format' = 'debezium_json', 'auto_create' = 'true', 'schema_evolution' = 'widen'"
    dicts(
        session,
        f"CREATE ROUTINE LOAD job PROPERTIES ({properties}{more}) FROM FILES ('path' = '{folder}/in/*.json')",
    )
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.error_rows, job.other_message) == (0, "")
    found: dict[str, object] = {}
    for table, columns in TABLES.items():
        texts = ", ".join(f"CAST({name} AS STRING) AS {name}" for name in columns.split(", "))
        rows = dicts(session, f"SELECT {texts} FROM {table}")
        found[table] = sorted((list(row.values()) for row in rows), key=str)
    return found


def wanted(name: str) -> dict[str, object]:
    rows = json.loads((RECORDED / f"{name}.rows.json").read_text())
    return {table: sorted(found, key=str) for table, found in rows.items()}


@pytest.mark.parametrize("name", DATABASES)
def test_the_copy_equals_the_source(store: Store, session: Session, tmp_path: Path, name: str) -> None:
    """CS2, CS3, EV10, EV11"""
    assert copied(store, session, tmp_path, messages(name)) == wanted(name)


@pytest.mark.family(1)
@pytest.mark.parametrize("name", DATABASES)
def test_messages_in_any_order_and_twice_make_the_same_copy(
    store: Store, session: Session, tmp_path: Path, name: str
) -> None:
    """CS4"""
    seed = new_seed(10**6)
    print(f"seed {seed}")
    lines = messages(name)
    lines += lines[:20]
    random.Random(seed).shuffle(lines)
    assert copied(store, session, tmp_path, lines) == wanted(name)


@pytest.mark.family(1)
@pytest.mark.parametrize("name", DATABASES)
def test_flexible_updates_make_the_same_copy(
    store: Store, session: Session, tmp_path: Path, name: str
) -> None:
    """CS2, F27: the mode that values need which the source did not log"""
    flexible = ", 'unique_key_update_mode' = 'UPDATE_FLEXIBLE_COLUMNS'"
    assert copied(store, session, tmp_path, messages(name), more=flexible) == wanted(name)


def test_positions_by_gtid_make_the_same_copy(store: Store, session: Session, tmp_path: Path) -> None:
    """CS3"""
    more = ", 'change_position' = 'gtid'"
    lines = messages("mariadb")
    random.Random(1).shuffle(lines)
    assert copied(store, session, tmp_path, lines, more=more) == wanted("mariadb")
