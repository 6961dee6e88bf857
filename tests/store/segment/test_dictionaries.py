"""Texts as codes: the same rows, whatever became of the columns since, and no more memory than allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Store
from seqstore.store.read.marked_scan import LIVE
from seqstore.store.segment import dictionaries
from seqstore.store.sql import Session
from tests.seeds import new_seed

ROWS = 20_000


@pytest.fixture
def session(store: Store) -> Session:
    opened = Session(store, "db")
    columns = "k BIGINT, city VARCHAR(20) NULL, note STRING NULL, v BIGINT NULL"
    list(opened.execute(f"CREATE TABLE t ({columns}) UNIQUE KEY(k)"))
    keys = np.arange(ROWS)
    cities = [None if key % 11 == 0 else f"city {key % 7}" for key in range(ROWS)]
    notes = [f"note {key}" for key in range(ROWS)]
    store.table("db.t").upsert(pa.table({"k": keys, "city": cities, "note": notes, "v": keys}))
    store.table("db.t").upsert(pa.table({"k": keys[::13]}), merge_type="DELETE")
    return opened


def answer(session: Session, text: str) -> list[tuple[Any, ...]]:
    (result,) = session.execute(text)
    assert result.rows is not None
    return [tuple(row.values()) for row in result.rows.to_pylist()]


def live_keys() -> list[int]:
    return [key for key in range(ROWS) if key % 13]


def test_few_values_come_as_codes_and_many_as_texts(session: Session) -> None:
    scan = session.store.table("db.t").snapshot().marked(["city", "note"], grouped=["city", "note"])
    assert scan.schema.field("city").type == dictionaries.ENCODED
    assert scan.schema.field("note").type == pa.string()
    rows = scan.open().read_all()
    kept = rows.filter(rows.column(LIVE)).cast(
        pa.schema([("city", pa.string()), ("note", pa.string()), (LIVE, pa.bool_())])
    )
    expected = {(None if key % 11 == 0 else f"city {key % 7}", f"note {key}") for key in live_keys()}
    assert {(row["city"], row["note"]) for row in kept.to_pylist()} == expected


def test_groups_are_those_of_the_texts(session: Session) -> None:
    expected: dict[str | None, int] = {}
    for key in live_keys():
        if key >= 5_000:
            city = None if key % 11 == 0 else f"city {key % 7}"
            expected[city] = expected.get(city, 0) + 1
    for group in ("city", "1", "c"):
        found = answer(session, f"SELECT city c, count(*) FROM t WHERE v >= 5000 GROUP BY {group}")
        assert dict(found) == expected
    assert {row[0] for row in answer(session, "SELECT DISTINCT city FROM t WHERE v >= 5000")} == set(expected)
    upper = answer(
        session, "SELECT upper(city), max(city), count(city) FROM t WHERE v >= 5000 GROUP BY upper(city)"
    )
    assert {row[0] for row in upper} == {city.upper() if city else None for city in expected}
    joined = answer(
        session, "SELECT a.city, count(*) FROM t a JOIN t b ON a.k = b.k AND a.city = b.city GROUP BY a.city"
    )
    assert sum(int(str(row[1])) for row in joined) == sum(1 for key in live_keys() if key % 11)


def test_a_renamed_and_a_younger_column_are_grouped_too(session: Session) -> None:
    for text in (
        "ALTER TABLE t RENAME COLUMN city town",
        "ALTER TABLE t ADD COLUMN city VARCHAR(9) NOT NULL DEFAULT 'new'",
    ):
        list(session.execute(text))
    assert answer(session, "SELECT city, count(*) FROM t GROUP BY city") == [("new", len(live_keys()))]
    assert len(answer(session, "SELECT town, count(*) FROM t GROUP BY town")) == 8


def test_codes_used_longest_ago_go_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "_BYTES_MAX", 300_000)
    monkeypatch.setattr(dictionaries, "_known", type(dictionaries._known)())
    monkeypatch.setattr(dictionaries, "_bytes", [0])
    with Session(store, "db") as session:
        list(session.execute("CREATE TABLE many (k BIGINT, s VARCHAR(9)) UNIQUE KEY(k)"))
    table = store.table("db.many")
    seed = new_seed()
    print("seed", seed)
    texts = np.random.default_rng(seed).integers(0, 300, 200_000).astype(str)
    table.upsert(pa.table({"k": np.arange(200_000), "s": texts}))
    for _ in range(2):
        rows = table.snapshot().marked(["s"], grouped=["s"]).open().read_all()
        assert rows.column("s").cast(pa.string()).combine_chunks().value_counts().to_pylist()
        assert 0 < dictionaries._bytes[0] <= 300_000
        assert dictionaries._bytes[0] == sum(size for _, _, size in dictionaries._known.values())


def test_values_of_any_number_keep_their_codes() -> None:
    for values in (200, 5_000, 60_000, 70_000):
        texts = pa.array([f"v{number % values}" for number in range(80_000)])
        codes, texts_once, _ = dictionaries._made(texts)
        assert pa.DictionaryArray.from_arrays(codes, texts_once).cast(pa.string()).equals(texts)
        narrow = pa.DictionaryArray.from_arrays(codes, texts_once)
        assert dictionaries.widened(narrow).type == dictionaries.ENCODED
        assert dictionaries.widened(narrow).cast(pa.string()).equals(texts)
