"""Table formats and files: delta-rs, Polars with one Parquet file, Lance, Iceberg by pyiceberg."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from bench.inputs.script import TableSpec, winners
from bench.limits.floors import sync
from bench.peers.base import KeyedPeer

_NOT_SYNCED: Final = "does not sync its files"


class DeltaRs(KeyedPeer):
    """A Delta table kept unique by MERGE."""

    name = "delta-rs"
    setup = f"MERGE, zstd; a batch's keys are made unique first; {_NOT_SYNCED}"
    is_durable = False
    module = "deltalake"
    package = "deltalake"

    def __init__(self, path: Path, spec: TableSpec) -> None:
        super().__init__(path, spec)
        self._delta: Any = import_module("deltalake")
        self._properties = self._delta.WriterProperties(compression="ZSTD", compression_level=1)

    def load(self, rows: pa.Table) -> None:
        self._delta.write_deltalake(str(self.path), rows, writer_properties=self._properties)

    def insert(self, rows: pa.Table) -> None:
        self._delta.write_deltalake(str(self.path), rows, mode="append", writer_properties=self._properties)

    def upsert(self, rows: pa.Table) -> None:
        newer = f"s.{self.spec.sequence} >= t.{self.spec.sequence}" if self.spec.sequence else None
        merge = self._merge(winners(self.spec, rows)).when_matched_update_all(predicate=newer)
        merge.when_not_matched_insert_all().execute()

    def update(self, rows: pa.Table) -> None:
        changed = [name for name in rows.column_names if name not in self.spec.key]
        self._merge(rows).when_matched_update({name: f"s.{name}" for name in changed}).execute()

    def delete(self, rows: pa.Table) -> None:
        self._merge(rows).when_matched_delete().execute()

    def _merge(self, rows: pa.Table) -> Any:
        table = self._delta.DeltaTable(str(self.path))
        return table.merge(
            rows,
            predicate=" AND ".join(f"t.{name} = s.{name}" for name in self.spec.key),
            source_alias="s",
            target_alias="t",
            writer_properties=self._properties,
        )

    def scan(self) -> Iterator[pa.RecordBatch]:
        for fragment in self._delta.DeltaTable(str(self.path)).to_pyarrow_dataset().get_fragments():
            yield from fragment.to_batches()


class PolarsRewrite(KeyedPeer):
    """One Parquet file, written anew by every call."""

    name = "polars-rewrite"
    setup = (
        "one Parquet file, zstd level 1, rewritten whole: replaced rows anti-joined, new ones behind; synced"
    )
    module = "polars"
    package = "polars"

    def __init__(self, path: Path, spec: TableSpec) -> None:
        super().__init__(path, spec)
        path.mkdir(parents=True)
        self._polars: Any = import_module("polars")
        self._file = path / "t.parquet"

    def load(self, rows: pa.Table) -> None:
        self._write(self._polars.from_arrow(rows))

    def insert(self, rows: pa.Table) -> None:
        self._write(self._polars.concat([self._read(), self._polars.from_arrow(rows)]))

    def upsert(self, rows: pa.Table) -> None:
        key, sequence = list(self.spec.key), self.spec.sequence
        stored, batch = self._read(), self._polars.from_arrow(winners(self.spec, rows))
        if sequence is not None:
            known = stored.select([*key, self._polars.col(sequence).alias("_stored")])
            batch = batch.join(known, on=key, how="left")
            column = self._polars.col
            batch = batch.filter(column("_stored").is_null() | (column(sequence) >= column("_stored")))
            batch = batch.drop("_stored")
        self._write(self._polars.concat([stored.join(batch, on=key, how="anti"), batch]))

    def update(self, rows: pa.Table) -> None:
        self._write(self._read().update(self._polars.from_arrow(rows), on=list(self.spec.key), how="left"))

    def delete(self, rows: pa.Table) -> None:
        gone = self._polars.from_arrow(rows)
        self._write(self._read().join(gone, on=list(self.spec.key), how="anti"))

    def scan(self) -> Iterator[pa.RecordBatch]:
        yield from self._read().to_arrow().to_batches()

    def _read(self) -> Any:
        return self._polars.read_parquet(self._file)

    def _write(self, frame: Any) -> None:
        new = self._file.with_suffix(".new")
        frame.write_parquet(new, compression="zstd", compression_level=1)
        sync(new)
        os.replace(new, self._file)
        sync(self._file.parent)


class Lance(KeyedPeer):
    """A Lance data set kept unique by merge_insert."""

    name = "lance"
    setup = f"merge_insert, no index on the key (with one, large batches fail); {_NOT_SYNCED}"
    is_durable = False
    module = "lance"
    package = "pylance"
    rows_max: ClassVar[int | None] = 5_000_000

    def __init__(self, path: Path, spec: TableSpec) -> None:
        super().__init__(path, spec)
        self._lance: Any = import_module("lance")

    def load(self, rows: pa.Table) -> None:
        self._set = self._lance.write_dataset(rows, str(self.path))

    def insert(self, rows: pa.Table) -> None:
        self._set = self._lance.write_dataset(rows, str(self.path), mode="append")

    def upsert(self, rows: pa.Table) -> None:
        newer = f"source.{self.spec.sequence} >= target.{self.spec.sequence}" if self.spec.sequence else None
        merge = self._set.merge_insert(list(self.spec.key)).when_matched_update_all(newer)
        merge.when_not_matched_insert_all().execute(winners(self.spec, rows))
        self._set = self._lance.dataset(str(self.path))

    def update(self, rows: pa.Table) -> None:
        self._set.merge_insert(list(self.spec.key)).when_matched_update_all().execute(rows)
        self._set = self._lance.dataset(str(self.path))

    def scan(self) -> Iterator[pa.RecordBatch]:
        yield from self._set.to_batches()

    kinds = KeyedPeer.kinds - {"delete"}


class PyIceberg(KeyedPeer):
    """An Iceberg table by pyiceberg's upsert; it has no condition, so late rows are taken out before."""

    name = "pyiceberg"
    setup = f"upsert of the rows that are not late, which are looked up first; {_NOT_SYNCED}"
    is_durable = False
    module = "pyiceberg"
    package = "pyiceberg"
    kinds = KeyedPeer.kinds - {"update", "delete"}
    rows_max: ClassVar[int | None] = 1_000_000
    step_rows_max: ClassVar[int | None] = 20_000

    def __init__(self, path: Path, spec: TableSpec) -> None:
        super().__init__(path, spec)
        path.mkdir(parents=True)
        catalogs: Any = import_module("pyiceberg.catalog")
        self._catalog = catalogs.load_catalog(
            "bench", type="sql", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}"
        )
        self._catalog.create_namespace("bench")
        self._table = self._catalog.create_table("bench.t", schema=spec.schema)

    @classmethod
    def is_installed(cls) -> bool:
        try:
            import_module("pyiceberg.catalog.sql")  # needs SQLAlchemy
        except ImportError:
            return False
        return True

    def load(self, rows: pa.Table) -> None:
        self._table.append(rows)

    def insert(self, rows: pa.Table) -> None:
        self._table.append(rows)

    def upsert(self, rows: pa.Table) -> None:
        batch = winners(self.spec, rows)
        if self.spec.sequence is not None:
            batch = self._not_late(batch, self.spec.sequence)
        self._table.upsert(batch, join_cols=list(self.spec.key))

    def _not_late(self, batch: pa.Table, sequence: str) -> pa.Table:
        key = list(self.spec.key)
        stored = self._table.scan(selected_fields=(*key, sequence)).to_arrow()
        stored = stored.rename_columns([*key, "_stored"]).select([*key, "_stored"])
        small = batch.select([*key, sequence]).append_column("_at", pa.array(range(len(batch))))
        joined = small.cast(_same_strings(small, stored)).join(stored, key, join_type="left outer")
        known = pc.is_valid(joined.column("_stored"))
        late = pc.and_(known, pc.less(joined.column(sequence), joined.column("_stored")))
        kept = joined.filter(pc.invert(pc.fill_null(late, False))).column("_at")
        return batch.take(kept.combine_chunks())

    def scan(self) -> Iterator[pa.RecordBatch]:
        yield from self._table.scan().to_arrow().to_batches()

    def close(self) -> None:
        self._catalog.engine.dispose()


def _same_strings(small: pa.Table, stored: pa.Table) -> pa.Schema:
    """Keys with the types that the stored ones came back with: a join wants both sides the same."""
    types = {field.name: field.type for field in stored.schema}
    return pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in small.schema])
