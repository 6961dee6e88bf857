"""DuckDB in a file: with a primary key, and appending to a table whose newest rows a query picks."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import ClassVar, Final

import duckdb
import pyarrow as pa

from bench.inputs.script import Kind, TableSpec, winners
from bench.peers.base import KeyedPeer, quoted, sql_type

_TYPES: Final = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int16": "SMALLINT",
    "int8": "TINYINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
    "date32": "DATE",
    "timestamp": "TIMESTAMP",
    "decimal128(15, 2)": "DECIMAL(15,2)",
}
_MERGE_SHARE: Final = 20  # up to a twentieth of the table MERGE is the faster one
_SLICE_ROWS: Final = 100_000


class _DuckDB(KeyedPeer):
    module = "duckdb"
    package = "duckdb"

    def __init__(self, path: Path, spec: TableSpec) -> None:
        super().__init__(path, spec)
        path.mkdir(parents=True)
        self.connection = duckdb.connect(str(path / "t.duckdb"))
        # By default the log would be moved into the table every second batch.
        self.connection.execute("SET checkpoint_threshold = '1GB'")
        self._rows = 0
        columns = ", ".join(
            f'"{f.name}" {sql_type(f.type, _TYPES)}{"" if f.nullable else " NOT NULL"}' for f in spec.schema
        )
        self.connection.execute(f"CREATE TABLE t ({columns}{self._more_columns()})")

    def _more_columns(self) -> str:
        return ""

    def load(self, rows: pa.Table) -> None:
        self.insert(rows)

    def insert(self, rows: pa.Table) -> None:
        names = quoted(self.spec.schema.names)
        self._run(f"INSERT INTO t ({names}) SELECT {names} FROM batch", rows)
        self._rows += len(rows)

    def scan(self) -> Iterator[pa.RecordBatch]:
        found = self.connection.sql(f"SELECT {quoted(self.spec.schema.names)} FROM {self._source()}")
        is_new = hasattr(duckdb.DuckDBPyRelation, "to_arrow_reader")  # since 1.5
        yield from (found.to_arrow_reader if is_new else found.fetch_record_batch)(65_536)

    def _source(self) -> str:
        return "t"

    def close(self) -> None:
        self.connection.close()

    def _run(self, statement: str, batch: pa.Table) -> None:
        self.connection.register("batch", batch)
        self.connection.execute(statement)
        self.connection.unregister("batch")


class KeyedDuckDB(_DuckDB):
    """Every row once."""

    name = "duckdb-pk"
    setup = (
        "primary key; checkpoint_threshold 1 GB; MERGE INTO up to 1/20 of the table, else ON CONFLICT in "
        "slices of 100k rows in one transaction; a batch's keys are made unique first"
    )

    def _more_columns(self) -> str:
        return f", PRIMARY KEY ({quoted(self.spec.key)})"

    def upsert(self, rows: pa.Table) -> None:
        batch = winners(self.spec, rows)
        if len(batch) * _MERGE_SHARE <= self._rows:
            self._run(self._merge(), batch)
            return
        self.connection.execute("BEGIN")
        for start in range(0, len(batch), _SLICE_ROWS):
            self._run(self._on_conflict(), batch.slice(start, _SLICE_ROWS))
        self.connection.execute("COMMIT")

    def _merge(self) -> str:
        spec, names = self.spec, quoted(self.spec.schema.names)
        newer = f'AND batch."{spec.sequence}" >= t."{spec.sequence}"' if spec.sequence else ""
        changes = ", ".join(f'"{name}" = batch."{name}"' for name in spec.values)
        return (
            f"MERGE INTO t USING (SELECT {names} FROM batch) AS batch USING ({quoted(spec.key)}) "
            f"WHEN MATCHED {newer} THEN UPDATE SET {changes} "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({quoted(spec.schema.names, 'batch.')})"
        )

    def _on_conflict(self) -> str:
        spec, names = self.spec, quoted(self.spec.schema.names)
        newer = f'WHERE excluded."{spec.sequence}" >= t."{spec.sequence}"' if spec.sequence else ""
        changes = ", ".join(f'"{name}" = excluded."{name}"' for name in spec.values)
        insert = f"INSERT INTO t ({names}) SELECT {names} FROM batch"
        return f"{insert} ON CONFLICT DO UPDATE SET {changes} {newer}"

    def update(self, rows: pa.Table) -> None:
        changed = [name for name in rows.column_names if name not in self.spec.key]
        changes = ", ".join(f'"{name}" = batch."{name}"' for name in changed)
        self._run(f"UPDATE t SET {changes} FROM batch WHERE {self._same_key()}", rows)

    def delete(self, rows: pa.Table) -> None:
        self._run(f"DELETE FROM t USING batch WHERE {self._same_key()}", rows)

    def _same_key(self) -> str:
        return " AND ".join(f't."{name}" = batch."{name}"' for name in self.spec.key)


class AppendingDuckDB(_DuckDB):
    """Every row given; a reader picks the newest of each key, so that a scan pays for it."""

    name = "duckdb-append"
    setup = "no key; readers pick the newest row by QUALIFY row_number(); checkpoint_threshold 1 GB"
    kinds: ClassVar[frozenset[Kind]] = frozenset({"upsert", "insert"})

    def _more_columns(self) -> str:
        return ", arrival BIGINT"

    takes_many = True

    def another(self) -> KeyedPeer:
        other = copy(self)
        other.connection = self.connection.cursor()
        return other

    def upsert(self, rows: pa.Table) -> None:
        self.insert(rows)

    def insert(self, rows: pa.Table) -> None:
        names = quoted(self.spec.schema.names)
        statement = f"INSERT INTO t SELECT {names}, {self._rows} + row_number() OVER () FROM batch"
        self._run(statement, rows)
        self._rows += len(rows)

    def _source(self) -> str:
        order = f'"{self.spec.sequence}" DESC, ' if self.spec.sequence else ""
        return (
            f"(SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY {quoted(self.spec.key)} "
            f"ORDER BY {order}arrival DESC) = 1)"
        )
