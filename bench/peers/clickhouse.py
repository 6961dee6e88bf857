"""ClickHouse inside the process, by chdb: a ReplacingMergeTree that is read with FINAL."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc as ipc

from bench.inputs.script import TableSpec, winners
from bench.peers.base import KeyedPeer, quoted, sql_type

_TYPES: Final = {
    "int64": "Int64",
    "int32": "Int32",
    "int16": "Int16",
    "int8": "Int8",
    "double": "Float64",
    "float": "Float32",
    "bool": "Bool",
    "string": "String",
    "date32": "Date32",
    "timestamp": "DateTime64(6, 'UTC')",
    "decimal128(15, 2)": "Decimal(15, 2)",
}
_SYNCED: Final = "fsync_after_insert = 1, fsync_part_directory = 1"
_ARROW: Final = "SETTINGS output_format_arrow_string_as_string = 1"


class ClickHouse(KeyedPeer):
    """The row with the largest version of a key; the version is the sequence, or the number of the call."""

    name = "clickhouse"
    setup = f"ReplacingMergeTree read with FINAL, {_SYNCED}; a batch's keys are made unique first"
    module = "chdb"
    package = "chdb"
    kinds = KeyedPeer.kinds - {"delete"}

    def __init__(self, path: Path, spec: TableSpec) -> None:
        super().__init__(path, spec)
        path.mkdir(parents=True)
        self._session: Any = import_module("chdb.session").Session(str(path / "data"))
        self._calls = 0
        columns = ", ".join(f'"{field.name}" {self._type(field)}' for field in spec.schema)
        self._ask(
            f"CREATE TABLE t ({columns}, _call UInt32) ENGINE = ReplacingMergeTree({self._version_column()}) "
            f"ORDER BY ({quoted(spec.key)}) SETTINGS {_SYNCED}, allow_nullable_key = 1"
        )

    @classmethod
    def version(cls) -> str:
        return f"chdb {version('chdb')}"

    def _type(self, field: pa.Field) -> str:
        kind = sql_type(field.type, _TYPES)
        return f"Nullable({kind})" if field.nullable else kind

    def _version_column(self) -> str:
        return f'"{self.spec.sequence}"' if self.spec.sequence else "_call"

    def load(self, rows: pa.Table) -> None:
        self._insert(rows)

    def upsert(self, rows: pa.Table) -> None:
        self._insert(winners(self.spec, rows))

    def insert(self, rows: pa.Table) -> None:
        self._insert(rows)

    def update(self, rows: pa.Table) -> None:
        """The touched rows are read back, and inserted whole."""
        file = self._file(rows)
        changed = [name for name in rows.column_names if name not in self.spec.key]
        same = quoted(self.spec.key)
        columns = ", ".join(
            f'given."{name}"' if name in changed else f'stored."{name}"' for name in self.spec.schema.names
        )
        self._calls += 1
        self._ask(
            f"INSERT INTO t SELECT {columns}, {self._calls} FROM "
            f"(SELECT * FROM t FINAL WHERE ({same}) IN (SELECT {same} FROM file('{file}', 'Arrow'))) "
            f"AS stored INNER JOIN (SELECT * FROM file('{file}', 'Arrow')) AS given USING ({same})"
        )
        file.unlink()

    def _insert(self, rows: pa.Table) -> None:
        file, names = self._file(rows), quoted(self.spec.schema.names)
        self._calls += 1
        self._ask(f"INSERT INTO t SELECT {names}, {self._calls} FROM file('{file}', 'Arrow')")
        file.unlink()

    def _file(self, rows: pa.Table) -> Path:
        file = self.path / "batch.arrow"
        with pa.OSFile(str(file), "wb") as sink, ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return file

    def scan(self) -> Iterator[pa.RecordBatch]:
        names = quoted(self.spec.schema.names)
        result = self._session.query(f"SELECT {names} FROM t FINAL {_ARROW}", "Arrow")
        with ipc.open_file(pa.py_buffer(result.bytes())) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def close(self) -> None:
        self._session.close()

    def _ask(self, statement: str) -> None:
        self._session.query(statement)
