"""Staging: checked rows of a load become segments.

Steps, all of them a pure function of rows, schema and settings; nothing is looked up in the table and the
catalog is not opened, so the caller's thread, a thread pool or a Spark executor can do it:

1. Code the keys. A large batch is split by ranges of codes into parts of about `segment_rows` rows, built
   side by side.
2. Keep one row per key (store.dedupe); the others are superseded.
3. Bring the winners into stored order: by key code, which is the order they come in, or by key where the
   segment is large enough for zone maps to pay.
4. Write data and key index, or serialise both for the catalog when the load is small.

Rows that will lose to stored rows are written as well; hiding them is the plan's business (store.resolve).
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store.dedupe import choose_winners
from store.disk import Disk
from store.key_index import KeyIndex
from store.keys import Codes, encode_keys, fixed_values, is_exact
from store.schema import DELETE_SIGN, GROUPS_COL, SEQUENCE_COL, TableSchema
from store.segment import Segment, inline_segment, write_segment
from store.sequence import SequenceVector
from store.settings import Settings
from store.transaction import this_process
from store.workers import map_all

_serial = itertools.count()


@dataclass(frozen=True)
class CheckedRows:
    """Rows that satisfy a table's rules, in input order.

    Attributes:
        visible: the table's visible columns, in order, with their exact types, one chunk each.
        signs: int8 delete signs, None when no row is a tombstone.
        sequence: the hidden sequence, None when the table has none or it is the mapped column itself.
        groups: which column groups each row has, None in tables without.
    """

    visible: pa.Table
    signs: pa.Array | None = None
    sequence: pa.Array | None = None
    groups: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.visible)


@dataclass(frozen=True)
class Staged:
    """Segments of a load, in the order of their input; `superseded` rows lost to another row of the same
    batch."""

    segments: tuple[Segment, ...]
    superseded: int


@dataclass(frozen=True)
class StagingId:
    """Names the files of a load that several processes, perhaps of several hosts, stage together.

    Attributes:
        owner: process id and start time of the process that will commit; while it lives the files are left
            alone.
        job: 16 hexadecimal digits, the load's own.
    """

    owner: tuple[int, int]
    job: str

    @classmethod
    def of(cls, owner: tuple[int, int]) -> StagingId:
        """A new one."""
        return cls(owner, secrets.token_hex(8))

    def new_segment_id(self) -> str:
        pid, started = self.owner
        return f"{time.time_ns():016x}-{pid:x}-{started:x}-{self.job}{secrets.token_hex(8)}"

    def owns(self, file_name: str) -> bool:
        """Whether a file was staged for this load."""
        return file_name.rpartition(".")[0].rpartition("-")[2].startswith(self.job)


@dataclass(frozen=True)
class Stager:
    """Builds segments for one table.

    Attributes:
        schema: the revision to write under.
        disk, directory: where segment files go.
        settings: sizes and threads.
        staging: whose files these are, when that is not this process.
    """

    schema: TableSchema
    disk: Disk
    directory: str
    settings: Settings
    staging: StagingId | None = None

    def stage(self, rows: CheckedRows) -> Staged:
        """Builds the segments of a batch; their files are durable, their names are when `sync` has been
        called."""
        if not len(rows):
            return Staged((), 0)
        key_columns = self.schema.key_columns
        keys = [rows.visible.column(c.name).chunk(0) for c in key_columns]
        codes = encode_keys(keys, key_columns)
        parts = _code_ranges(codes, self.settings.segment_rows)
        if parts is None:
            segment, kept = self._build(rows, keys, codes, None)
            return Staged((segment,), len(rows) - kept)
        built = map_all(lambda part: self._build(rows, keys, codes, part), parts, worth_it=True)
        return Staged(tuple(segment for segment, _ in built), len(rows) - sum(kept for _, kept in built))

    def sync(self) -> None:
        """Makes the names of all staged files durable."""
        self.disk.sync_directory(self.directory)

    def _build(
        self,
        rows: CheckedRows,
        keys: Sequence[pa.Array],
        codes: Codes,
        part: npt.NDArray[np.intp] | None,
    ) -> tuple[Segment, int]:
        """One segment of the rows of a part (None: of all); returns it and its row count."""
        sequence = self._sequence(rows)
        if part is not None:
            codes = codes[part]
            sequence = sequence.take(part) if sequence is not None else None
            keys = [key.take(pa.array(part)) for key in keys]
        winners = choose_winners(codes, sequence, keys, exact=is_exact(self.schema.key_columns))
        chosen = winners.rows
        ordered_codes = codes[chosen]
        ordered_sequence = sequence.take(chosen) if sequence is not None else None
        origin = chosen if part is None else part[chosen]
        positions = None
        if len(chosen) >= self.settings.clustered_rows_min:
            order = _key_order([key.take(pa.array(chosen)) for key in keys], self.schema)
            origin = origin[order]
            positions = np.empty(len(order), dtype=np.uint32)
            positions[order] = np.arange(len(order), dtype=np.uint32)
        stored, tombstones = self._stored_rows(rows, origin)
        index = KeyIndex(ordered_codes, positions, ordered_sequence, winners.has_equal_codes)
        return self._write(stored, index, tombstones), len(stored)

    def _sequence(self, rows: CheckedRows) -> SequenceVector | None:
        sequence_type = self.schema.sequence_type
        if sequence_type is None:
            return None
        array = rows.sequence
        if array is None:
            array = rows.visible.column(self.schema.sequence_column).chunk(0)
        return SequenceVector.encode(array, sequence_type)

    def _stored_rows(self, rows: CheckedRows, chosen: npt.NDArray[np.intp]) -> tuple[pa.Table, int]:
        """The chosen rows with the hidden columns that have to be stored, and how many are tombstones."""
        table = rows.visible
        if rows.signs is not None:
            table = table.append_column(pa.field(DELETE_SIGN, pa.int8(), False), rows.signs)
        if rows.sequence is not None:
            table = table.append_column(pa.field(SEQUENCE_COL, rows.sequence.type), rows.sequence)
        if rows.groups is not None:
            table = table.append_column(pa.field(GROUPS_COL, pa.int64(), False), rows.groups)
        stored = _take(table, chosen)
        tombstones = 0
        if rows.signs is not None:
            tombstones = pc.sum(stored.column(DELETE_SIGN), min_count=0).as_py()
            if not tombstones:
                stored = stored.drop_columns([DELETE_SIGN])
        return stored, tombstones

    def _write(self, stored: pa.Table, index: KeyIndex, tombstones: int) -> Segment:
        segment_id = self.staging.new_segment_id() if self.staging else new_segment_id()
        if stored.nbytes <= self.settings.inline_bytes_max:
            meta, payload = inline_segment(segment_id, stored, self.schema, tombstones=tombstones)
            segment = Segment(self.disk, self.directory, meta, self.schema, payload)
        else:
            meta = write_segment(
                self.disk,
                self.directory,
                segment_id,
                stored,
                index,
                self.schema,
                batch_rows=_batch_rows(stored, self.settings),
                tombstones=tombstones,
            )
            segment = Segment(self.disk, self.directory, meta, self.schema)
        segment.__dict__["index"] = index  # what was just built need not be read back
        return segment


def new_segment_id() -> str:
    """Unique without coordination, ascending in time, and it names its maker: time, process id, its start,
    serial."""
    pid, started = this_process()
    return f"{time.time_ns():016x}-{pid:x}-{started:x}-{next(_serial):x}"


def maker_of(segment_id: str) -> tuple[int, int]:
    """The process that made a segment, for `transaction.is_alive`."""
    _, pid, started, _ = segment_id.split("-")
    return int(pid, 16), int(started, 16)


def _take(table: pa.Table, rows: npt.NDArray[np.intp]) -> pa.Table:
    batch = table.combine_chunks().to_batches(max_chunksize=max(len(table), 1))[0]
    return pa.Table.from_batches([batch.take(pa.array(rows))])


def _batch_rows(stored: pa.Table, settings: Settings) -> int:
    bytes_per_row = max(stored.nbytes // max(len(stored), 1), 1)
    return max(1, min(settings.batch_rows_max, settings.batch_bytes_max // int(bytes_per_row)))


def _key_order(keys: Sequence[pa.Array], schema: TableSchema) -> npt.NDArray[np.intp]:
    """Row order by key, NULL first; no two rows have the same key."""
    if is_exact(schema.key_columns):
        return np.argsort(fixed_values(keys[0]))
    table = pa.table(list(keys), names=list(schema.key))
    sort_keys = [(name, "ascending", "at_start") for name in schema.key]
    return np.asarray(pc.sort_indices(table, sort_keys=sort_keys)).astype(np.intp)


def _code_ranges(codes: Codes, segment_rows: int) -> list[npt.NDArray[np.intp]] | None:
    """Splits rows by equal ranges of their codes, None when they fit one segment; input order within each
    part."""
    parts = round(len(codes) / segment_rows)
    if parts < 2 or len(codes) <= segment_rows * 1.5:
        return None
    parts = min(parts, 2**16)
    number = ((codes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.uint16)
    order = np.argsort(number, kind="stable")  # 16-bit keys: a radix sort
    bounds = np.concatenate(([0], np.cumsum(np.bincount(number, minlength=parts))))
    split = [order[low:high] for low, high in itertools.pairwise(bounds.tolist())]
    return [part for part in split if len(part)]
