"""A store with a table of several tablets, and one with a column of every type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import Session, Store
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.store.read import tablets

TYPES = """k INT, b BOOLEAN, t TINYINT, s SMALLINT, i BIGINT, l LARGEINT, f FLOAT, x DOUBLE, d DECIMAL(9,2),
w DECIMAL(50,1), da DATE, dt DATETIME, dt6 DATETIME(6), c CHAR(3), v VARCHAR(9), st STRING, j JSON,
a ARRAY<LARGEINT>, m MAP<STRING,DATETIME>, r STRUCT<p:INT,q:LARGEINT>"""
VALUES = """1, true, 2, 3, 4, 170141183460469231731687303715884105727, 1.5, 2.5, 1.25, 3.5, '1969-12-31',
'1960-01-01 10:00:00', '2300-05-06 07:08:09.123456', 'abc', 'vv', 'text', '{"a":1}', array(5, null),
map('x', cast('2024-01-01' as datetime)), named_struct('p', 1, 'q', 7)"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(tablets, "TABLET_ROWS", 150)
    with Store.open(tmp_path / "data") as opened, Session(opened) as session:
        list(
            session.execute(
                "CREATE DATABASE db; USE db;"
                "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k);"
                f"CREATE TABLE every ({TYPES}) UNIQUE KEY(k) DISTRIBUTED BY HASH(k);"
                f"INSERT INTO every VALUES ({VALUES}); INSERT INTO every (k) VALUES (2);"
                "CREATE VIEW seen AS SELECT k FROM t"
            )
        )
        for number in range(3):
            keys = list(range(number * 90, number * 90 + 100))
            opened.table("db.t").upsert(pa.table({"k": keys, "v": [number] * 100}))
        opened.accounts.create("reader", "a-word")
        opened.accounts.grant("reader", ["SELECT"], "db")
        opened.accounts.create("loader", "a-word")
        opened.accounts.grant("loader", ["LOAD"], "db")
        yield opened


@pytest.fixture
def server(store: Store) -> Iterator[FlightSqlServer]:
    """The Flight server of the store, in this process."""
    running = FlightSqlServer(ServerSessions(store), "127.0.0.1", 0)
    yield running
    running.stop()
