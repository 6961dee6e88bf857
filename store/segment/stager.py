"""Staging: checked rows of a load become segments.

All steps are a pure function of rows, schema and settings. They read neither the table nor the catalog, so
the caller's thread, a thread pool or a Spark executor can run them:

1. Code the keys. Many rows are split by ranges of codes into parts of about `segment_rows` rows, built side
   by side. Rows arrive in pieces, and a part's rows are collected from all pieces only when it is built: the
   first access to memory costs more than the work in it, so a load should use little.
2. Keep one row per key (segment.dedupe); the others are superseded.
3. Order the winners as they are stored: by key code, which is already their order, or by key where the
   segment is large enough for zone maps to pay.
4. Write data and key index; the rows are ordered batch by batch during the write. Small loads are serialised
   for the catalog instead.

Rows that will lose to stored rows are written as well; the plan hides them (winner_test).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import StoreError
from seqstore.store.runtime.arrow_versions import sorted_nulls_first
from seqstore.store.runtime.workers import pool
from seqstore.store.schema.column import DELETE_SIGN
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.checked_rows import CheckedRows, refuse_violations
from seqstore.store.segment.dedupe import choose_winners
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.key_codes import (
    Codes,
    are_ordered_as_int64,
    encode_keys,
    fixed_values,
    prove_keys,
)
from seqstore.store.segment.key_index import KeyIndex, Positions, places_in
from seqstore.store.segment.load_marker import Attempt, StagingId, new_segment_id
from seqstore.store.segment.segment import (
    BULK_MEMORY,
    INLINE,
    NewRows,
    Origin,
    Segment,
    SegmentMeta,
    write_segment,
)
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.winner import Rows
from seqstore.store.settings import Settings

# Arrow's strings have 32-bit offsets: a part must stay well below 2 GiB, however many rows it has.
_PART_BYTES_MAX: Final = 2**30
_PARTS_MAX: Final = 2**16


@dataclass(frozen=True)
class Staged:
    """Segments of a load, in the order of their input; `superseded` rows lost to another row of the same
    batch.
    """

    segments: tuple[Segment, ...]
    superseded: int


@dataclass(frozen=True)
class Stager:
    """Builds segments for one table, under a schema revision; `staging` is the attempt that owns the files,
    None for this process. `table` is the table's name, which the files state. `compression` is the codec of
    the data, None for the table's.
    """

    schema: TableSchema
    disk: Disk
    directory: str
    settings: Settings
    staging: Attempt | None = None
    table: str = ""
    compression: str | None = None

    def stage(self, *pieces: CheckedRows) -> Staged:
        """Builds the segments of some rows, given as one piece or several in input order.

        Their files are durable; their names are durable after `sync`.

        Raises:
            InvalidInputError: a row breaks a CHECK constraint.
            UnavailableError: a file cannot be written; none is left.
        """
        if self.schema.constraints:
            refuse_violations(self.schema, pieces)
        given = [piece.stored() for piece in pieces if piece.visible.num_rows]
        rows = sum([batch.num_rows for batch in given])
        if not rows:
            return Staged((), 0)
        parts = self._parts(rows, sum([batch.nbytes for batch in given]))

        def code(batch: pa.RecordBatch) -> _Coded:
            keys = [batch.column(name) for name in self.schema.key]
            codes = encode_keys(keys, exact=self.schema.has_exact_key)
            return _Coded(batch, codes, _code_ranges(codes, parts) if parts > 1 else None)

        def build(part: int) -> Segment | None:
            return self._build(*_part_rows(coded, part))

        if parts > 1:
            coded = list(pool().map(code, given))
            built = _build_all(build, parts)
        else:
            coded = [code(batch) for batch in given]
            built = [build(0)]
        segments, left = tuple(filter(None, built)), rows
        for segment in segments:
            left -= segment.rows
        return Staged(segments, left)

    @contextmanager
    def attempt_of(self, load: StagingId) -> Iterator[Stager]:
        """Yields a stager for one run of a task of a load that several processes stage. After an error the
        files of the run are removed.

        Raises:
            ClosedError: the load has not begun, or has ended; while a file is written, too.
        """
        disk, directory, attempt = self.disk, self.directory, load.attempt()
        load.refuse_ended(disk, directory)
        guarded = disk.guarded(lambda: load.refuse_ended(disk, directory))
        try:
            yield replace(self, disk=guarded, staging=attempt)
        except BaseException:
            with suppress(StoreError, OSError):  # the first error is raised; the end of the load sweeps too
                attempt.remove_files(disk, directory)
            raise

    def sync(self) -> None:
        """Makes the names of all staged files durable."""
        self.disk.sync_directory(self.directory)

    def _parts(self, rows: int, size: int) -> int:
        """Returns the number of segments to build from so many rows and bytes."""
        by_rows = round(rows / self.settings.segment_rows) if rows > 1.5 * self.settings.segment_rows else 1
        return min(max(by_rows, -(-size // _PART_BYTES_MAX)), _PARTS_MAX)

    def _build(self, batch: pa.RecordBatch, codes: Codes) -> Segment | None:
        """Builds one segment of some rows."""
        if not batch.num_rows:
            return None
        keys = [batch.column(name) for name in self.schema.key]
        sequence = SequenceVector.of_rows(batch, self.schema)
        exact = prove_keys(codes, self.schema.key_columns)
        chosen, repeats = choose_winners(codes, sequence, keys, exact=exact)
        origin: Rows | None
        positions: Positions | None
        origin, positions = chosen, None
        order = stored_order(batch, chosen, self.schema, self.settings)
        if order is not None:
            origin, positions = chosen[order], places_in(order)
        elif self.schema.is_duplicate:  # in input order, for no two rows have one key
            origin, positions = None, chosen.astype(np.uint32)
        index_sequence = sequence.take(chosen) if sequence is not None else None
        index = KeyIndex(codes[chosen], positions, index_sequence, repeats)
        segment = self.write(batch, index, origin, may_inline=True)
        segment.__dict__["index"] = index  # saves a read of the file
        return segment

    def write(
        self,
        rows: pa.RecordBatch | pa.Table,
        index: KeyIndex,
        order: Rows | None,
        *,
        compression: str | None = None,
        may_inline: bool = False,
    ) -> Segment:
        """Writes one segment.

        Args:
            rows: stored columns; a batch if the segment may be inline.
            index: of the stored rows.
            order: the stored rows, in stored order; None for all rows in their own order.
            compression: of the data; None for the stager's.
        """
        tombstones = 0
        if DELETE_SIGN in rows.schema.names:
            signs = rows.column(DELETE_SIGN)
            tombstones = pc.sum(signs if order is None else signs.take(pa.array(order)), min_count=0).as_py()
            if not tombstones:
                rows = rows.drop_columns([DELETE_SIGN])
        row_bytes = max(rows.nbytes // rows.num_rows, 1)
        count = len(index.codes)
        if may_inline and row_bytes * count <= self.settings.inline_bytes_max:
            taken = rows if order is None else rows.take(pa.array(order))
            return self._inline(taken, tombstones)
        batch_rows = self.batch_rows(row_bytes)
        return self.write_file(
            count, tombstones, NewRows.of(rows, index, order, batch_rows), batch_rows, compression
        )

    def batch_rows(self, row_bytes: int) -> int:
        """Returns the rows of each batch of a file; wide rows make shorter batches."""
        return max(min(self.settings.batch_rows_max, self.settings.batch_bytes_max // row_bytes), 1)

    def write_file(
        self, count: int, tombstones: int, rows: NewRows, batch_rows: int, compression: str | None = None
    ) -> Segment:
        """Writes one segment as files, while its batches are made.

        Args:
            count, tombstones: of the rows.
            batch_rows: of every batch but the last.
            compression: of the data; None for the stager's.
        """
        schema = self.schema
        codec = compression or self.compression or schema.compression
        segment_id, hidden = self._new_segment_id(), self._hidden(rows.schema)
        home, revision = schema.storage_format, schema.revision
        meta = SegmentMeta(
            segment_id, home, codec, revision, count, batch_rows, tombstones, hidden, data_bytes=0
        )
        meta = write_segment(self.disk, self.directory, meta, rows, Origin(schema, self.table))
        return Segment(self.disk, self.directory, meta, schema, None)

    def _inline(self, rows: pa.RecordBatch, tombstones: int) -> Segment:
        segment_id, hidden, count = self._new_segment_id(), self._hidden(rows.schema), rows.num_rows
        revision, payload = self.schema.revision, rows.serialize().to_pybytes()
        meta = SegmentMeta(
            segment_id, INLINE, "none", revision, count, count, tombstones, hidden, len(payload)
        )
        return Segment(self.disk, self.directory, meta, self.schema, payload)

    def _new_segment_id(self) -> str:
        return self.staging.new_segment_id() if self.staging else new_segment_id()

    def _hidden(self, rows: pa.Schema) -> tuple[str, ...]:
        return tuple(rows.names[len(self.schema.columns) :])


def _build_all(build: Callable[[int], Segment | None], parts: int) -> list[Segment | None]:
    """Builds all parts side by side; if one fails, the files of the others are removed."""
    tasks = [pool().submit(build, part) for part in range(parts)]
    try:
        return [task.result() for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        wait(tasks)
        for task in tasks:
            segment = None if task.cancelled() or task.exception() is not None else task.result()
            if segment is not None:
                segment.delete_files()
        raise


@dataclass(frozen=True)
class _Coded:
    """A piece of a load: stored columns, key codes, and the rows of each part when there are several."""

    batch: pa.RecordBatch
    codes: Codes
    parts: list[Rows] | None


def _part_rows(pieces: Sequence[_Coded], part: int) -> tuple[pa.RecordBatch, Codes]:
    """Collects the rows of a part from all pieces, in input order, and their codes."""
    if len(pieces) == 1 and pieces[0].parts is None:
        return pieces[0].batch, pieces[0].codes
    chosen = [None if piece.parts is None else pa.array(piece.parts[part]) for piece in pieces]

    def column(i: int) -> pa.Array:
        taken = [
            piece.batch.column(i)
            if rows is None
            else pc.take(piece.batch.column(i), rows, memory_pool=BULK_MEMORY)
            for piece, rows in zip(pieces, chosen, strict=True)
        ]
        return pa.concat_arrays(taken, BULK_MEMORY)

    codes = [piece.codes if piece.parts is None else piece.codes[piece.parts[part]] for piece in pieces]
    schema = pieces[0].batch.schema
    columns = [column(i) for i in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema), np.concatenate(codes)


def stored_order(
    rows: pa.RecordBatch | pa.Table, chosen: Rows | None, schema: TableSchema, settings: Settings
) -> Rows | None:
    """Returns the order in which rows are stored: by the columns of CLUSTER BY, or by key in a large segment.

    The key of a duplicate table is here that of its declaration.

    Args:
        chosen: the rows to order; None means all.

    Returns:
        None for the order of key codes.
    """
    count = len(chosen) if chosen is not None else rows.num_rows
    if not schema.cluster_columns and count < settings.clustered_rows_min:
        return None
    names = order_columns(schema)
    wanted = [rows.column(name) for name in names]
    columns = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in wanted]
    if chosen is not None:
        columns = [column.take(pa.array(chosen)) for column in columns]
    if tuple(names) == tuple(schema.key):
        return key_order(columns, schema)
    return np.asarray(sorted_nulls_first(pa.table(columns, names=list(names)), names)).astype(np.intp)


def order_columns(schema: TableSchema) -> Sequence[str]:
    """Returns the columns that order the rows of a large segment."""
    if schema.cluster_columns:
        return schema.cluster_columns
    return (schema.declared_key if schema.is_duplicate else ()) or schema.key


def key_order(keys: Sequence[pa.Array], schema: TableSchema) -> Rows:
    """Returns the row order by key, NULL first; no two rows of a unique key have the same key."""
    if are_ordered_as_int64(keys, schema.key_columns):
        return np.argsort(fixed_values(keys[0]))
    table = pa.table(list(keys), names=list(schema.key))
    return np.asarray(sorted_nulls_first(table, schema.key)).astype(np.intp)


def _code_ranges(codes: Codes, parts: int) -> list[Rows]:
    """Splits rows by equal ranges of their codes, in input order within each."""
    number = ((codes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.uint16)
    order = np.argsort(number, kind="stable")  # 16-bit keys: a radix sort
    bounds = np.cumsum(np.bincount(number, minlength=parts))
    return np.split(order, bounds[:-1])
