"""Stores inside the process: DuckDB with a primary key, SQLite, LMDB. Clients are threads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import lmdb
import msgpack
import pyarrow as pa

from bench.inputs.ycsb import FIELDS
from bench.records.base import COLUMNS, INSERT, Client, Record, RecordStore, SqlClient

_MAP_BYTES: Final = 1 << 38
_TABLE: Final = f"k VARCHAR PRIMARY KEY, {', '.join(f'{name} VARCHAR' for name in FIELDS)}"


def _tuples(records: pa.Table) -> Iterator[Record]:
    return zip(*(records.column(name).to_pylist() for name in ("k", *FIELDS)), strict=True)


class _DuckClient(SqlClient):
    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection.cursor()

    def run(self, statement: str, parameters: Sequence[Any]) -> Sequence[Record]:
        while True:
            try:
                return self._connection.execute(statement, parameters).fetchall()
            except duckdb.TransactionException:  # two clients wrote one record: the later one tries again
                self.retries += 1

    def close(self) -> None:
        self._connection.close()


class DuckRecords(RecordStore):
    """A table with a primary key."""

    name = "duckdb-pk"
    setup = "primary key, prepared statements; a client that meets another's write tries again"
    module = package = "duckdb"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        path.mkdir(parents=True)
        self._connection = duckdb.connect(str(path / "t.duckdb"))
        self._connection.execute(f"CREATE TABLE usertable ({_TABLE})")

    def load(self, records: pa.Table) -> None:
        self._connection.register("given", records)
        self._connection.execute(f"INSERT INTO usertable SELECT {COLUMNS} FROM given")

    def client(self) -> Client:
        return _DuckClient(self._connection)

    def records(self) -> Iterator[Record]:
        yield from self._connection.execute(f"SELECT {COLUMNS} FROM usertable").fetchall()

    def close(self) -> None:
        self._connection.close()


class _SqliteClient(SqlClient):
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
        self._connection.execute("PRAGMA synchronous = FULL")

    def run(self, statement: str, parameters: Sequence[Any]) -> Sequence[Record]:
        return self._connection.execute(statement, parameters).fetchall()

    def close(self) -> None:
        self._connection.close()


class SqliteRecords(RecordStore):
    """A table WITHOUT ROWID, a connection for each client."""

    name = "sqlite"
    setup = "WITHOUT ROWID, write-ahead log, synchronous = FULL"
    module = package = "sqlite3"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        path.mkdir(parents=True)
        self._file = path / "t.sqlite"
        self._connection = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"CREATE TABLE usertable ({_TABLE}) WITHOUT ROWID")

    @classmethod
    def version(cls) -> str:
        return sqlite3.sqlite_version

    def load(self, records: pa.Table) -> None:
        marks = ", ".join("?" * (len(FIELDS) + 1))
        self._connection.execute("BEGIN")
        self._connection.executemany(INSERT.format(marks=marks), _tuples(records))
        self._connection.execute("COMMIT")

    def client(self) -> Client:
        return _SqliteClient(self._file)

    def records(self) -> Iterator[Record]:
        yield from self._connection.execute(f"SELECT {COLUMNS} FROM usertable")

    def close(self) -> None:
        self._connection.close()


class _LmdbClient(Client):
    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment

    def read(self, key: str) -> Record | None:
        with self._environment.begin() as transaction:
            found = transaction.get(key.encode())
        return None if found is None else (key, *msgpack.unpackb(found))

    def scan(self, key: str, rows: int) -> Sequence[Record]:
        found: list[Record] = []
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(key.encode()):
                for name, value in cursor:
                    found.append((name.decode(), *msgpack.unpackb(value)))
                    if len(found) == rows:
                        break
        return found

    def update(self, key: str, field: int, value: str) -> None:
        with self._environment.begin(write=True) as transaction:
            values = msgpack.unpackb(transaction.get(key.encode()))
            values[field] = value
            transaction.put(key.encode(), msgpack.packb(values))

    def insert(self, key: str, values: Sequence[str]) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.put(key.encode(), msgpack.packb(list(values)))


class LmdbRecords(RecordStore):
    """A B+tree of packed records."""

    name = "lmdb"
    setup = "records packed by msgpack, synced commits"
    module = package = "lmdb"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._environment = lmdb.open(str(path), map_size=_MAP_BYTES, max_readers=512)

    def load(self, records: pa.Table) -> None:
        with self._environment.begin(write=True) as transaction:
            for name, *values in _tuples(records):
                transaction.put(name.encode(), msgpack.packb(values))

    def client(self) -> Client:
        return _LmdbClient(self._environment)

    def records(self) -> Iterator[Record]:
        with self._environment.begin() as transaction:
            for name, value in transaction.cursor():
                yield (name.decode(), *msgpack.unpackb(value))

    def close(self) -> None:
        self._environment.close()
