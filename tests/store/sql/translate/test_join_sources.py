"""The sources of a join are tables in place, whose numbers of rows DuckDB knows when it orders joins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import CorruptionError, Settings, Store
from seqstore.store.sql import Session
from seqstore.store.sql.evaluate import duck

_JOIN = (
    "SELECT d.name, count(*) c, sum(f.v) s FROM f JOIN d ON f.d = d.d WHERE f.k >= 100 AND d.name != 'n3' "
    "GROUP BY d.name ORDER BY 1"
)
pytestmark = [
    pytest.mark.settings(Settings(inline_bytes_max=1, auto_compaction=0)),
    pytest.mark.skipif(not duck._COUNTS_ROWS, reason="this DuckDB does not count the rows of tables"),
]


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    """A fact table of 40,000 rows, some of them replaced, and a dimension of ten."""
    with Session(store, "db") as opened:
        list(opened.execute("CREATE TABLE f (k INT, d INT, v DECIMAL(15,2), t LARGEINT) UNIQUE KEY(k)"))
        list(opened.execute("CREATE TABLE d (d INT, name VARCHAR(9)) UNIQUE KEY(d)"))
        keys = np.arange(40_000, dtype=np.int32)
        facts = pa.table({"k": keys, "d": keys % 10, "v": keys % 7, "t": keys})
        store.table("db.f").upsert(facts)
        store.table("db.f").upsert(facts.slice(500, 500))
        store.table("db.d").upsert(pa.table({"d": keys[:10], "name": [f"n{i}" for i in range(10)]}))
        yield opened


def _registered(session: Session, sql: str, monkeypatch: pytest.MonkeyPatch) -> tuple[pa.Table, list[Any]]:
    """Runs a query; returns its rows, and what DuckDB read."""
    seen: list[Any] = []
    original = duck._registered

    def noted(sources: dict[str, duck.Source], **given: bool) -> dict[str, Any]:
        found = original(sources, **given)
        seen.extend(found.values())
        return found

    with monkeypatch.context() as patched:
        patched.setattr(duck, "_registered", noted)
        rows = list(session.execute(sql))[-1].rows
    assert rows is not None
    return rows, seen


def test_sources_of_a_join_are_tables_in_place(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    list(session.execute(_JOIN))  # the first read verifies each batch
    monkeypatch.setattr(duck, "TABLES_BYTES_MAX", 10_000)
    rows, read = _registered(session, _JOIN, monkeypatch)
    assert [type(each) for each in read] == [pa.Table, pa.Table]
    assert max(len(each) for each in read) == 40_500, "the rows of all batches, replaced ones included"
    assert rows.column("c").to_pylist() == [3990] * 9


def test_a_join_that_would_copy_too_much_reads_streams(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = _JOIN.replace("f.k >= 100", "f.t >= 100")  # LARGEINT is converted for DuckDB
    expected, tables = _registered(session, sql, monkeypatch)
    monkeypatch.setattr(duck, "TABLES_BYTES_MAX", 10_000)
    rows, streams = _registered(session, sql, monkeypatch)
    assert all(isinstance(each, pa.Table) for each in tables)
    assert len(streams) == 2
    assert not any(isinstance(each, pa.Table) for each in streams)
    assert rows.equals(expected)


def test_one_source_is_a_stream(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    _, read = _registered(session, "SELECT d, sum(v) FROM f GROUP BY d", monkeypatch)
    assert not any(isinstance(each, pa.Table) for each in read)


@pytest.mark.parametrize("limit", [5_000, 5_001])
def test_the_first_rows_of_an_order_are_kept_without_sorting_all(
    session: Session, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """DuckDB keeps up to 5,000 rows whatever it knows; for more it must know that there are more."""
    sql = f"SELECT v, k FROM f ORDER BY v DESC, k LIMIT {limit}"
    rows, read = _registered(session, sql, monkeypatch)
    assert [isinstance(each, pa.Table) for each in read] == [limit > 5_000]
    assert rows.column("k").to_pylist() == [key for key in range(40_000) if key % 7 == 6][:limit]


def test_damage_below_a_join_is_told(session: Session, store: Store) -> None:
    list(session.execute("SELECT 1"))
    [path] = [*store.path.glob("tables/*/*.arrow")][:1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        list(session.execute(_JOIN))
