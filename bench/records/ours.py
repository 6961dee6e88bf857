"""This project: by its Python interface, and by SQL over the MySQL protocol of a server process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bench.inputs.ycsb import FIELDS
from bench.records.base import COLUMNS, SCAN, Client, Record, RecordStore, SqlClient
from seqstore import Column, Session, Store, TableSchema, __version__, parse_type
from seqstore.store.check.write_modes import UpdateMode

_NAME: Final = "ycsb.usertable"


def _make(path: Path) -> Store:
    store = Store.open(path)
    store.create_database("ycsb")
    columns = [Column("k", parse_type("VARCHAR(32)"), nullable=False)]
    columns += [Column(name, parse_type("VARCHAR(128)"), nullable=False) for name in FIELDS]
    store.create_table(_NAME, TableSchema.create(columns, ["k"]))
    with Session(store, "ycsb") as session:  # statements of several clients share a version
        list(session.execute("ALTER TABLE usertable SET ('group_commit_mode' = 'sync_mode')"))
    return store


def _tuples(rows: pa.Table) -> list[Record]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


class _PythonClient(Client):
    def __init__(self, store: Store) -> None:
        self._table = store.table(_NAME)
        self._session = Session(store, "ycsb")

    def read(self, key: str) -> Record | None:
        found = _tuples(self._table.get(pa.table({"k": [key]})))
        return found[0] if found else None

    def scan(self, key: str, rows: int) -> Sequence[Record]:
        statement = SCAN.replace("{mark}", f"'{key}'", 1).replace("{mark}", str(rows))
        found = next(iter(self._session.execute(statement))).rows
        return [] if found is None else _tuples(found)

    def update(self, key: str, field: int, value: str) -> None:
        self._table.upsert(pa.table({"k": [key], FIELDS[field]: [value]}), mode=UpdateMode.FIXED)

    def insert(self, key: str, values: Sequence[str]) -> None:
        columns = dict(zip(FIELDS, ([value] for value in values), strict=True))
        self._table.upsert(pa.table({"k": [key], **columns}))

    def close(self) -> None:
        self._session.close()


class SeqstoreInProcess(RecordStore):
    """Clients are threads."""

    name = "seqstore"
    setup = "in process: get, upsert of some columns, SELECT"
    module = package = "seqstore"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._store = _make(path)

    @classmethod
    def version(cls) -> str:
        return __version__

    def load(self, records: pa.Table) -> None:
        self._store.table(_NAME).upsert(records)

    def client(self) -> Client:
        return _PythonClient(self._store)

    def records(self) -> Iterator[Record]:
        for batch in self._store.table(_NAME).scan():
            yield from _tuples(pa.Table.from_batches([batch]).select(["k", *FIELDS]))

    def close(self) -> None:
        self._store.close()


class _MysqlClient(SqlClient):
    mark = "%s"

    def __init__(self, port: int) -> None:
        import pymysql

        self._connection = pymysql.connect(
            host="127.0.0.1", port=port, user="root", database="ycsb", autocommit=True
        )
        self._cursor = self._connection.cursor()

    def run(self, statement: str, parameters: Sequence[Any]) -> Sequence[Record]:
        self._cursor.execute(statement, parameters)
        return list(self._cursor.fetchall())

    def close(self) -> None:
        self._connection.close()


class SeqstoreMysql(RecordStore):
    """`seqstore serve` in a process of its own."""

    name = "seqstore-mysql"
    setup = "seqstore serve with one worker; group_commit_mode = sync_mode; pymysql, SQL texts"
    module = package = "pymysql"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        _make(path).close()
        self._process: subprocess.Popen[str] | None = None

    @classmethod
    def version(cls) -> str:
        return __version__

    def load(self, records: pa.Table) -> None:
        with Store.open(self.path) as store:
            store.table(_NAME).upsert(records)
        command = [sys.executable, "-m", "seqstore", "--data-dir", str(self.path), "serve"]
        self._process = subprocess.Popen(
            [*command, "--http-port", "0", "--mysql-port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "mysql://" in line:
                self._port = int(line.rpartition(":")[2].strip().rstrip("/"))
            if line == "ready\n":
                return
        raise RuntimeError("the server ended before it was ready")

    def client(self) -> Client:
        return _MysqlClient(self._port)

    def records(self) -> Iterator[Record]:
        client = _MysqlClient(self._port)
        yield from client.run(f"SELECT {COLUMNS} FROM usertable", ())
        client.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
