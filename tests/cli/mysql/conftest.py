"""A running MySQL server over a fresh store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from seqstore import Store
from seqstore.cli.mysql import MysqlServer
from seqstore.store.sql import Session

ROWS = [
    (1, "it's \\ ünï", 1.5, "2024-01-02", "2024-01-02 03:04:05", "12.30", True),
    (2, None, None, None, None, None, None),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data") as store:
        with Session(store) as session:
            list(
                session.execute(
                    "CREATE DATABASE db; CREATE TABLE db.t (k BIGINT NOT NULL,"
                    " v VARCHAR(300) NULL, d DOUBLE NULL, dd DATE NULL, ts DATETIME NULL,"
                    " n DECIMAL(10,2) NULL, b BOOLEAN NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;"
                    "INSERT INTO db.t VALUES (1, 'it''s \\\\ ünï', 1.5, '2024-01-02',"
                    " '2024-01-02 03:04:05', 12.30, true), (2, NULL, NULL, NULL, NULL, NULL, NULL)"
                )
            )
        yield store


@pytest.fixture
def server(store: Store) -> Iterator[MysqlServer]:
    with MysqlServer(store) as server:
        yield server


@pytest.fixture
def connect(server: MysqlServer) -> Iterator[Any]:
    """A function that opens PyMySQL connections; all are closed at the end."""
    opened = []

    def open_connection(**options: Any) -> Any:
        given = {"host": "127.0.0.1", "port": server.port, "user": "root", "database": "db", **options}
        opened.append(pymysql.connect(**given))
        return opened[-1]

    yield open_connection
    for connection in opened:
        if connection.open:
            connection.close()
