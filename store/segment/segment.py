"""Segments: the immutable pieces of a table's data, their files and their description.

A segment is a sequence of record batches, `batch_rows` rows each but the last, and the key index of its rows.
It has one of three homes:

- `arrow`: `<id>.arrow`, an Arrow IPC file (buffers plain, LZ4 or zstd), mapped;
- `parquet`: `<id>.parquet`, one row group per batch, for engines that read files natively; in open tables its
  columns have other names, and ids (schema.field_ids);
- `inline`: one batch in the catalog record itself, for small loads; readers compute its key index.

The file holds the visible columns under the names of the schema revision that wrote them, then those hidden
columns whose value differs between rows: `__DELETE_SIGN__` if there are tombstones, `__SEQUENCE_COL__` if it
is not simply the mapped column, `__VERSION_COL__` after a compaction. A process verifies the bytes of each
batch at its first read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import xxhash

from seqstore.store.errors import CorruptionError
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.field_ids import FIELD_ID, file_column, parquet_schema
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.description import DESCRIPTION, pack_description
from seqstore.store.segment.disk import Disk, NewFile, Range
from seqstore.store.segment.key_codes import encode_keys
from seqstore.store.segment.key_index import KeyIndex, places_in
from seqstore.store.segment.mapped_columns import MappedColumns, can_gather
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.winner import Rows
from seqstore.store.segment.zone_map import Pruner, ZoneMap, ZoneMapBuilder
from seqstore.store.types.column_types import is_wider

INLINE: Final = "inline"
HOMES: Final = (INLINE, "arrow", "parquet")  # the catalog, and the suffixes of data files
KeyRows: TypeAlias = "npt.NDArray[np.uint32] | bool | None"
# For rows that are about to be written. Arrow's own allocator requests huge pages. Their first access costs
# three times as much as that of these pages, and a load accesses most of its memory for the first time.
BULK_MEMORY: Final = pa.system_memory_pool()
# Rows that are ordered at a time, whatever the size of a batch.
_TAKEN_ROWS: Final = 2**18
_TAKEN_BYTES: Final = 32 * 2**20
_READ_BYTES: Final = 1 << 20
# From so many batches on, and with fewer rows of each, a gather over the file (segment.mapped_columns) takes
# less time: of 1,000 rows in 160 batches half of it, of 30,000 a tenth more.
_SCATTERED_BATCHES_MIN: Final = 8
_SCATTERED_ROWS: Final = 64


@dataclass(frozen=True)
class SegmentMeta:
    """The catalog's description of a segment.

    Attributes:
        id: unique name, also of its files.
        home: `arrow`, `parquet` or `inline`.
        compression: none, lz4 or zstd.
        revision: schema revision whose names the file has.
        rows, batch_rows: all rows; rows of every batch but the last.
        tombstones: rows whose delete sign is 1.
        hidden: hidden columns that are stored.
        data_bytes, keys_bytes: sizes of the two files (of the record when inline).
        ranges: offset, length and xxh3 of the bytes before the first batch, of each batch, and of the bytes
            after the last.
        keys_checksum: xxh3 of the `.keys` file.
        zones: see `segment.zone_map`.
        file: id of the segment that owns these files, empty for its own (maintenance.restore).
        written: the version that wrote the rows, if the rows do not store it and another version added the
            segment; else 0.
    """

    id: str
    home: str
    compression: str
    revision: int
    rows: int
    batch_rows: int
    tombstones: int
    hidden: tuple[str, ...]
    data_bytes: int
    keys_bytes: int = 0
    ranges: tuple[Range, ...] = ()
    keys_checksum: int = 0
    zones: ZoneMap = field(default_factory=dict)
    file: str = ""
    written: int = 0

    @property
    def file_id(self) -> str:
        return self.file or self.id

    def to_record(self) -> dict[str, Any]:
        return dict(self.__dict__)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> SegmentMeta:
        ranges = tuple([(r[0], r[1], r[2]) for r in record["ranges"]])
        return cls(**{**record, "hidden": tuple(record["hidden"]), "ranges": ranges})


@dataclass(frozen=True)
class Origin:
    """The writer's table and schema revision, which the key index file names too (segment.description)."""

    schema: TableSchema
    table: str = ""


def file_names(meta: SegmentMeta) -> list[str]:
    """Returns the names, without directory, of a segment's files."""
    return [] if meta.home == INLINE else [f"{meta.id}.{meta.home}", f"{meta.id}.keys"]


def data_name(directory: str, meta: SegmentMeta) -> str:
    return f"{directory}/{meta.file_id}.{meta.home}"


def keys_name(directory: str, meta: SegmentMeta) -> str:
    return f"{directory}/{meta.file_id}.keys"


@dataclass(frozen=True)
class NewRows:
    """The rows of a segment that is about to be written, in stored order.

    Attributes:
        schema: visible columns in table order, then the stored hidden columns.
        batches: of as many rows as the segment's description says.
        index: makes the key index; called after the last batch. Its positions refer to the stored order.
    """

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    index: Callable[[], KeyIndex]

    @classmethod
    def of(
        cls, rows: pa.Table | pa.RecordBatch, index: KeyIndex, order: Rows | None, batch_rows: int
    ) -> NewRows:
        """Returns rows in memory.

        Args:
            order: the stored rows, in stored order; None for all rows in their own order.
        """
        return cls(rows.schema, _ordered(rows, order, batch_rows), lambda: index)


def write_segment(
    disk: Disk, directory: str, meta: SegmentMeta, rows: NewRows, origin: Origin
) -> SegmentMeta:
    """Writes data and key index of one segment; returns its description with sizes, checksums and zones.

    Both files are durable afterwards; their names are durable after the directory was synced. After an error
    there is neither.
    """
    zones = ZoneMapBuilder(rows.schema, origin.schema.key)
    with disk.create(data_name(directory, meta)) as data:
        batches, stored = zones.seen(rows.batches), rows.schema
        if meta.home == "parquet" and origin.schema.open_formats:
            stored = parquet_schema(origin.schema, meta.hidden)
            batches = _named(batches, stored)
        _write_batches(data, batches, stored, meta)
    meta = replace(meta, data_bytes=data.size, ranges=tuple(data.ranges))
    try:
        entries = rows.index()
        with disk.create(keys_name(directory, meta)) as keys:
            described = pack_description(origin.table, origin.schema, meta.to_record())
            stored_entries = entries.to_arrow({DESCRIPTION: described})
            with ipc.new_file(keys, stored_entries.schema) as writer:
                writer.write_batch(stored_entries)
            keys.end_range()
    except BaseException:
        disk.discard(data_name(directory, meta))
        raise
    return replace(meta, keys_bytes=keys.size, keys_checksum=keys.ranges[0][2], zones=zones.zones)


def _ordered(
    rows: pa.Table | pa.RecordBatch, order: Rows | None, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows in stored order, batch by batch.

    Only a few batches at a time are in memory. Arrow takes them together, because it then stays longer with
    each column, and by the shortest integers, because it reads those most.
    """
    if isinstance(rows, pa.Table):
        rows = rows.combine_chunks().to_batches(max_chunksize=max(len(rows), 1))[0]
    if order is None:
        yield from _cut(rows, batch_rows)
        return
    row_bytes = max(rows.nbytes // max(rows.num_rows, 1), 1)
    together = max(min(_TAKEN_ROWS, _TAKEN_BYTES // row_bytes) // batch_rows, 1) * batch_rows
    positions = order.astype(np.uint32) if rows.num_rows < 2**32 else order
    for start in range(0, len(order), together):
        indices = pa.array(positions[start : start + together])
        yield from _cut(pc.take(rows, indices, memory_pool=BULK_MEMORY), batch_rows)


def _cut(rows: pa.RecordBatch, batch_rows: int) -> Iterator[pa.RecordBatch]:
    return (rows.slice(start, batch_rows) for start in range(0, rows.num_rows, batch_rows))


def _named(batches: Iterable[pa.RecordBatch], stored: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the batches under the names and ids of the files of open tables."""
    for batch in batches:
        columns = [
            column.cast(field.type) if pa.types.is_nested(field.type) else column
            for column, field in zip(batch.columns, stored, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=stored)


def _write_batches(
    file: NewFile, batches: Iterable[pa.RecordBatch], schema: pa.Schema, meta: SegmentMeta
) -> None:
    """Writes the data file; its ranges are the bytes before the first batch, each batch, and the rest."""
    writer: Any
    if meta.home == "arrow":
        compression = None if meta.compression == "none" else meta.compression
        writer = ipc.new_file(file, schema, options=ipc.IpcWriteOptions(compression=compression))
    else:
        strings = [f.name for f in schema if pa.types.is_string(f.type)]
        writer = pq.ParquetWriter(
            file,
            schema,
            compression=meta.compression,
            use_dictionary=strings,
            store_decimal_as_integer=_has_ids(schema),  # Iceberg's readers expect that
        )
    with writer:
        for batch in batches:
            file.end_range()
            if meta.home == "arrow":
                writer.write_batch(batch)
            else:  # a row group per batch
                writer.write_batch(batch, row_group_size=max(batch.num_rows, 1))
        file.end_range()
    file.end_range()


def _has_ids(schema: pa.Schema) -> bool:
    return any(FIELD_ID in (field.metadata or {}) for field in schema)


class Segment:
    """A segment opened for reading. Threads may share it; every part is read at its first use.

    Args:
        schema: the revision that wrote the segment.
        payload: the record's bytes of an inline segment.

    Attributes:
        rows: all rows, hidden ones included.
        batches: the number of record batches.
        key_orders: by schema revision and batch, the rows in the order of their keys, as far as computed
            (read.first_rows): None where they are stored in it, False where it is not kept.
    """

    def __init__(
        self, disk: Disk, directory: str, meta: SegmentMeta, schema: TableSchema, payload: bytes | None = None
    ) -> None:
        self.meta = meta
        self.rows = meta.rows
        self.batches = -(-meta.rows // meta.batch_rows) if meta.rows else 0
        self.schema = schema
        self._disk = disk
        self._directory = directory
        self.payload = payload
        self._verified: set[int] = set()
        self._batches: dict[int, pa.RecordBatch] = {}
        self._pruners: dict[int, tuple[TableSchema, Pruner]] = {}
        self.key_orders: dict[tuple[int, int], KeyRows] = {}

    def described_by(self, meta: SegmentMeta) -> Segment:
        """Returns the same bytes under another description."""
        return Segment(self._disk, self._directory, meta, self.schema, self.payload)

    @property
    def place(self) -> tuple[Path, str]:
        """The directory of its table, which tells tables of several stores apart."""
        return self._disk.root, self._directory

    @property
    def stored_schema(self) -> pa.Schema:
        """Columns as they are stored, hidden ones last."""
        return self.schema.stored_arrow(self.meta.hidden)

    @cached_property
    def index(self) -> KeyIndex:
        """The key index, mapped and verified (computed when inline)."""
        return self._computed_index() if self.meta.home == INLINE else self.read_index()

    @property
    def index_in_memory(self) -> KeyIndex | None:
        """The key index if it was read or made before, None otherwise."""
        return self.__dict__.get("index")

    def forget_index(self) -> None:
        """Drops a key index from memory if its file has it too."""
        if self.meta.home != INLINE:
            self.__dict__.pop("index", None)

    def with_index(self, index: KeyIndex) -> Segment:
        """Returns the segment with some entries of its key index alone; both share what was read."""
        part = copy.copy(self)
        part.__dict__["index"] = index
        return part

    def read_index(self, *, is_verified: bool = False) -> KeyIndex:
        """Reads the key index from its file.

        Args:
            is_verified: another reader of the file compares it with its checksum; only its length counts.

        Raises:
            CorruptionError: the file is missing or differs from the written bytes.
        """
        name = keys_name(self._directory, self.meta)
        buffer = self._disk.map(name)
        if is_verified:
            is_whole = buffer.size == self.meta.keys_bytes
        else:
            is_whole = _digest(buffer, self._disk.path(name)) == self.meta.keys_checksum
        if not is_whole:
            raise CorruptionError(f"{name}: key index does not match its checksum", path=name)
        return KeyIndex.read(buffer)

    def _computed_index(self) -> KeyIndex:
        batch = self.batch(0)
        keys = [batch.column(name) for name in self.schema.key]
        codes = encode_keys(keys, exact=self.schema.has_exact_key)
        sequence = SequenceVector.of_rows(batch, self.schema)
        if (codes[1:] > codes[:-1]).all():  # the usual order of rows
            return KeyIndex(codes, None, sequence)
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        repeats = bool((codes[1:] == codes[:-1]).any())
        sequence = sequence.take(order) if sequence is not None else None
        return KeyIndex(codes, order.astype(np.uint32), sequence, repeats)

    def batch(self, i: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Returns record batch i, all stored columns or the named ones in that order, verified.

        Raises:
            CorruptionError: the file is missing, cut, or differs from the written bytes.
        """
        if self.meta.home == "parquet" or self.meta.compression != "none":
            return self._decoded_batch(i, columns)
        whole = self._batches.get(i)
        if whole is None:
            whole = self._plain_batch(i)
            self._batches[i] = whole
        return whole if columns is None else whole.select(list(columns))

    def will_read(self, bytes_max: int) -> None:
        """Has the system read a file of at most `bytes_max` ahead, if nothing of it was read yet."""
        is_file = self.meta.home != INLINE and self.meta.data_bytes <= bytes_max
        if is_file and "_data" not in self.__dict__:
            self._disk.will_read(data_name(self._directory, self.meta))

    def is_at_hand(self, i: int) -> bool:
        """Returns whether batch i is already verified and in memory, so that another read costs nothing."""
        return self.meta.home == INLINE or i in self._batches

    def _plain_batch(self, i: int) -> pa.RecordBatch:
        if self.meta.home == INLINE:
            assert self.payload is not None
            return ipc.read_record_batch(pa.py_buffer(self.payload), self.stored_schema)
        self._verify(i)
        return self._reader.get_batch(i)

    def _decoded_batch(self, i: int, columns: Sequence[str] | None) -> pa.RecordBatch:
        self._verify(i)
        names = self.stored_schema.names if columns is None else list(columns)
        if self.meta.home == "parquet":
            stored = [self.file_columns.get(name, name) for name in names]
            table = pq.ParquetFile(pa.BufferReader(self._data)).read_row_group(i, columns=stored)
            table = table.select(stored).rename_columns(names)
            table = table.cast(pa.schema([self.stored_schema.field(n) for n in names]))
            batches = table.combine_chunks().to_batches()
            return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
        fields = [self.stored_schema.get_field_index(name) for name in names]
        options = ipc.IpcReadOptions(included_fields=sorted(fields))
        return ipc.open_file(pa.BufferReader(self._data), options=options).get_batch(i).select(names)

    @cached_property
    def file_columns(self) -> dict[str, str]:
        """The names of visible columns in a file that has names of its own; empty for other segments."""
        if self.meta.home != "parquet" or not self.schema.maps_columns:
            return {}
        return {column.name: file_column(self.schema, column) for column in self.schema.columns}

    @cached_property
    def _data(self) -> pa.Buffer:
        name = data_name(self._directory, self.meta)
        buffer = self._disk.map(name)
        if buffer.size != self.meta.data_bytes:
            raise CorruptionError(
                f"{name}: expected {self.meta.data_bytes} bytes, found {buffer.size}", path=name
            )
        for i in (0, len(self.meta.ranges) - 1):
            self._verify_range(buffer, i, "head" if i == 0 else "tail")
        return buffer

    @cached_property
    def _reader(self) -> ipc.RecordBatchFileReader:
        return ipc.open_file(pa.BufferReader(self._data))

    def _verify(self, i: int) -> None:
        if i not in self._verified:
            self._verify_range(self._data, i + 1, f"batch {i}")
            self._verified.add(i)

    def _verify_range(self, buffer: pa.Buffer, i: int, what: str) -> None:
        start, length, expected = self.meta.ranges[i]
        if xxhash.xxh3_64_intdigest(memoryview(buffer)[start : start + length]) != expected:
            name = data_name(self._directory, self.meta)
            raise CorruptionError(f"{name}: {what} does not match its checksum", path=name)

    def take(self, positions: npt.NDArray[np.uint32], columns: Sequence[str]) -> pa.Table:
        """Returns rows at some positions, in the given order.

        Reads only the batches that hold them.
        """
        if not len(positions):
            return pa.schema([self.stored_schema.field(name) for name in columns]).empty_table()
        batch_of = positions // np.uint32(self.meta.batch_rows)
        if len(positions) == 1 or not (batch_of != batch_of[0]).any():
            local = pa.array(positions - batch_of[0] * np.uint32(self.meta.batch_rows))
            return pa.Table.from_batches([self.batch(int(batch_of[0]), columns).take(local)])
        if self._is_scattered(batch_of) and (gathered := self._gathered(positions, columns)) is not None:
            return gathered
        order = np.argsort(positions, kind="stable")
        ordered = batch_of[order]
        starts = [0, *((ordered[1:] != ordered[:-1]).nonzero()[0] + 1).tolist()]
        local = pa.array(positions[order] - ordered * np.uint32(self.meta.batch_rows))
        ends = [*starts[1:], len(order)]
        parts = [
            self.batch(number, columns).take(local.slice(start, end - start))
            for number, start, end in zip(ordered[starts].tolist(), starts, ends, strict=True)
        ]
        taken = pa.Table.from_batches(parts).combine_chunks()
        if bool((order[1:] > order[:-1]).all()):
            return taken
        return taken.take(pa.array(places_in(order)))

    def _is_scattered(self, batch_of: npt.NDArray[np.uint32]) -> bool:
        """Returns whether rows are in so many batches that a gather over the file takes less time.

        Args:
            batch_of: their batches.
        """
        if self.meta.home != "arrow" or self.meta.compression != "none":
            return False
        pieces = np.count_nonzero(batch_of[1:] != batch_of[:-1]) + 1
        return bool(pieces >= _SCATTERED_BATCHES_MIN and len(batch_of) < pieces * _SCATTERED_ROWS)

    def _gathered(self, positions: npt.NDArray[np.uint32], columns: Sequence[str]) -> pa.Table | None:
        """Returns what `take` returns, by a gather over the file; None where that cannot be."""
        chosen = pa.schema([self.stored_schema.field(name) for name in columns])
        if not all(map(can_gather, chosen.types)):
            return None
        batch_of, places = np.divmod(positions.astype(np.int64), self.meta.batch_rows)
        mapped = self._mapped_columns
        for number in mapped.unknown(batch_of):
            mapped.note(number, self.batch(number))
        if not mapped.is_in_place:
            return None
        arrays = [
            mapped.take(self.stored_schema.get_field_index(name), kind, batch_of, places)
            for name, kind in zip(columns, chosen.types, strict=True)
        ]
        if any(array is None for array in arrays):
            return None
        return pa.Table.from_arrays(arrays, schema=chosen)

    @cached_property
    def _mapped_columns(self) -> MappedColumns:
        return MappedColumns(self._data, len(self.stored_schema), self.batches)

    def matching(self, predicate: pc.Expression | None, schema: TableSchema) -> Sequence[int]:
        """Returns the batches that may hold a row that satisfies a predicate over a revision's columns."""
        if predicate is None or not self.meta.zones:
            return range(self.batches)
        return self.pruner(schema).matching(predicate)

    def pruner(self, schema: TableSchema) -> Pruner:
        """Returns the zone maps of the batches, for a reader of a schema revision."""
        of, known = self._pruners.get(schema.revision, (schema, None))
        if known is None or (
            of is not schema and of.columns != schema.columns
        ):  # a revision that was never stored
            by_id = {column.id: column for column in schema.columns}
            names = {
                c.name: by_id[c.id].name
                for c in self.schema.columns
                if c.id in by_id and is_wider(c.type, by_id[c.id].type)
            }
            fields = pa.schema([*schema.arrow, *schema.hidden_fields()])
            made = Pruner(self.meta.zones, names, fields, self.batches)
            self._pruners[schema.revision] = schema, made
            known = made
        return known

    def delete_files(self) -> None:
        """Removes the files of a segment that no catalog names: its load was aborted."""
        if self.meta.home != INLINE:
            self._disk.discard(data_name(self._directory, self.meta))
            self._disk.discard(keys_name(self._directory, self.meta))

    def leave_files(self) -> None:
        """Leaves the files to the next sweep, which removes them unless the catalog names the segment."""
        if self.meta.home != INLINE:
            self._disk.leave(data_name(self._directory, self.meta))
            self._disk.leave(keys_name(self._directory, self.meta))


def _digest(buffer: pa.Buffer, path: Path) -> int:
    """Returns the checksum of a mapped file.

    A large file is read instead: pages accessed in the map would count as memory of the process.
    """
    if buffer.size <= _READ_BYTES:
        return int(xxhash.xxh3_64_intdigest(buffer))
    digest = xxhash.xxh3_64()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.intdigest()
