"""This project, by its Python interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench.inputs.script import TableSpec
from bench.peers.base import KeyedPeer
from seqstore import Store, TableSchema, __version__
from seqstore.store.check.write_modes import UpdateMode

_NAME: Final = "bench.t"


class Seqstore(KeyedPeer):
    """A unique-key table with a sequence column; compaction beside the loads, as it is set by default."""

    name = "seqstore"
    setup = "defaults; compaction after loads is on"
    module = "seqstore"
    package = "seqstore"
    takes_many = True

    def __init__(self, path: Path, spec: TableSpec) -> None:
        super().__init__(path, spec)
        self._store = Store.open(path)
        self._store.create_database("bench")
        properties = {"function_column.sequence_col": spec.sequence} if spec.sequence else {}
        schema = TableSchema.from_arrow(spec.schema, list(spec.key), properties=properties)
        self.table = self._store.create_table(_NAME, schema)

    @classmethod
    def version(cls) -> str:
        return __version__

    def load(self, rows: pa.Table) -> None:
        self.table.upsert(rows)

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows)

    def update(self, rows: pa.Table) -> None:
        self.table.upsert(rows, mode=UpdateMode.FIXED)

    def delete(self, rows: pa.Table) -> None:
        self.table.upsert(rows, merge_type="DELETE")

    def settle(self) -> None:
        self._store.maintainer.wait()

    def scan(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.scan()

    def close(self) -> None:
        self._store.close()
