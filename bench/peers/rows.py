"""Row stores inside the process: LMDB with packed rows, SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import lmdb
import msgpack
import numpy as np
import pyarrow as pa

from bench.inputs.script import TableSpec, winners
from bench.peers.base import KeyedPeer, quoted

_SCAN_ROWS: Final = 65_536
_MAP_BYTES: Final = 1 << 38
_SIGN: Final = 1 << 63


def _plain(rows: pa.Table) -> pa.Table:
    """Times as whole numbers, which both stores keep."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_temporal(field.type):
            width = pa.int32() if pa.types.is_date32(field.type) else pa.int64()
            rows = rows.set_column(at, field.name, rows.column(at).cast(width))
    return rows


def _tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    yield from zip(*(column.to_pylist() for column in _plain(rows).columns), strict=True)


def _batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    held: list[tuple[Any, ...]] = []
    for row in rows:
        held.append(row)
        if len(held) == _SCAN_ROWS:
            yield _batch(held, schema)
            held = []
    if held:
        yield _batch(held, schema)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        _column(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array([None if value is None else bool(value) for value in values])
    return pa.array(values, kind)


class LmdbRows(KeyedPeer):
    """A B+tree of packed rows."""

    name = "lmdb"
    setup = "rows packed by msgpack, a batch sorted by key first, writemap, synced commits"
    module = "lmdb"
    package = "lmdb"

    def __init__(self, path: Path, spec: TableSpec) -> None:
        super().__init__(path, spec)
        self._environment = lmdb.open(str(path), map_size=_MAP_BYTES, writemap=True)
        self._names = spec.schema.names
        self._sequence = self._names.index(spec.sequence) if spec.sequence else None

    def load(self, rows: pa.Table) -> None:
        with self._environment.begin(write=True) as transaction:
            for key, value in self._packed(rows):
                transaction.put(key, value, append=True)

    def upsert(self, rows: pa.Table) -> None:
        at = self._sequence
        with self._environment.begin(write=True) as transaction:
            for key, value in self._packed(winners(self.spec, rows)):
                old = transaction.get(key) if at is not None else None
                if old is None or msgpack.unpackb(old)[at] <= msgpack.unpackb(value)[at]:
                    transaction.put(key, value)

    def update(self, rows: pa.Table) -> None:
        places = [self._names.index(name) for name in rows.column_names]
        with self._environment.begin(write=True) as transaction:
            for key, row in sorted(zip(self._keys(rows), _tuples(rows), strict=True)):
                stored = list(msgpack.unpackb(transaction.get(key)))
                for place, value in zip(places, row, strict=True):
                    stored[place] = value
                transaction.put(key, msgpack.packb(stored))

    def delete(self, rows: pa.Table) -> None:
        with self._environment.begin(write=True) as transaction:
            for key in sorted(self._keys(rows)):
                transaction.delete(key)

    def scan(self) -> Iterator[pa.RecordBatch]:
        with self._environment.begin() as transaction:
            rows = (tuple(msgpack.unpackb(value)) for _, value in transaction.cursor())
            yield from _batches(rows, self.spec.schema)

    def close(self) -> None:
        self._environment.close()

    def _packed(self, rows: pa.Table) -> list[tuple[bytes, bytes]]:
        values = map(msgpack.packb, _tuples(rows.select(self._names)))
        return sorted(zip(self._keys(rows), values, strict=True))

    def _keys(self, rows: pa.Table) -> list[bytes]:
        """Bytes in the order of the keys: numbers with the sign turned, texts with a zero behind."""
        plain = _plain(rows.select(list(self.spec.key)))
        parts = []
        for column in plain.columns:
            if pa.types.is_integer(column.type):
                words = np.asarray(column).astype(np.int64).view(np.uint64) ^ np.uint64(_SIGN)
                data = words.astype(">u8").tobytes()
                parts.append([data[at : at + 8] for at in range(0, len(data), 8)])
            else:
                parts.append([value.encode() + b"\0" for value in column.to_pylist()])
        return parts[0] if len(parts) == 1 else [b"".join(each) for each in zip(*parts, strict=True)]


class SqliteRows(KeyedPeer):
    """A table WITHOUT ROWID."""

    name = "sqlite"
    setup = "WITHOUT ROWID, write-ahead log, synchronous = FULL, 64 MB of cache, one transaction a call"
    module = "sqlite3"
    package = "sqlite3"

    def __init__(self, path: Path, spec: TableSpec) -> None:
        super().__init__(path, spec)
        path.mkdir(parents=True)
        self._connection = sqlite3.connect(path / "t.sqlite", isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
            self._connection.execute(f"PRAGMA {pragma}")
        columns = quoted(spec.schema.names)
        self._connection.execute(
            f"CREATE TABLE t ({columns}, PRIMARY KEY ({quoted(spec.key)})) WITHOUT ROWID"
        )

    @classmethod
    def version(cls) -> str:
        return sqlite3.sqlite_version

    def load(self, rows: pa.Table) -> None:
        self._many(
            f"INSERT INTO t VALUES ({self._marks()})", rows.sort_by([(k, "ascending") for k in self.spec.key])
        )

    def insert(self, rows: pa.Table) -> None:
        self._many(f"INSERT INTO t VALUES ({self._marks()})", rows)

    def upsert(self, rows: pa.Table) -> None:
        changes = ", ".join(f'"{name}" = excluded."{name}"' for name in self.spec.values)
        newer = (
            f'WHERE excluded."{self.spec.sequence}" >= t."{self.spec.sequence}"' if self.spec.sequence else ""
        )
        self._many(
            f"INSERT INTO t VALUES ({self._marks()}) ON CONFLICT ({quoted(self.spec.key)}) "
            f"DO UPDATE SET {changes} {newer}",
            rows,
        )

    def update(self, rows: pa.Table) -> None:
        changed = [name for name in rows.column_names if name not in self.spec.key]
        changes = ", ".join(f'"{name}" = ?' for name in changed)
        self._many(
            f"UPDATE t SET {changes} WHERE {self._same_key()}", rows.select([*changed, *self.spec.key])
        )

    def delete(self, rows: pa.Table) -> None:
        self._many(f"DELETE FROM t WHERE {self._same_key()}", rows.select(list(self.spec.key)))

    def scan(self) -> Iterator[pa.RecordBatch]:
        yield from _batches(self._connection.execute("SELECT * FROM t"), self.spec.schema)

    def close(self) -> None:
        self._connection.close()

    def _many(self, statement: str, rows: pa.Table) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany(statement, _tuples(rows))
        self._connection.execute("COMMIT")

    def _marks(self) -> str:
        return ", ".join("?" for _ in self.spec.schema.names)

    def _same_key(self) -> str:
        return " AND ".join(f'"{name}" = ?' for name in self.spec.key)
