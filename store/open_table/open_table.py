"""Shows the newest version of an open table to readers of other formats.

1. One thread of all processes shows a table at a time (a file lock, which the system frees after a crash).
2. Segments that other readers could not read as they are get replaced by a compaction: Arrow files, and files
   from before a change of a type or before a column whose older rows have a value.
3. Small loads are still rows in the catalog. Each gets a Parquet file of the same rows in the same order, and
   its record names that file from then on. No version is made, and no bitmap changes.
4. The files with live rows, and the hidden rows of each, make an `Appearance`, which each format's writer
   writes (delta_log, iceberg_table). The catalog is made durable before, so no reader sees a version that a
   crash undoes.

A crash leaves files that no version names, which the next opening removes, or a version that is not shown
yet, which the next opening shows.
"""

from __future__ import annotations

import fcntl
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc
from pyroaring import BitMap

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.version_record import VersionRecord, read_version_record
from seqstore.store.errors import CommitUnknownError, InvalidInputError, NotFoundError
from seqstore.store.maintenance.compaction import Compaction
from seqstore.store.maintenance.compaction_policy import MaintenancePolicy
from seqstore.store.open_table.appearance import Appearance, OpenFile
from seqstore.store.open_table.delta_files import LOG
from seqstore.store.open_table.delta_log import DeltaLog
from seqstore.store.open_table.iceberg_files import METADATA
from seqstore.store.open_table.iceberg_table import IcebergTable
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime import failpoint
from seqstore.store.runtime.forks import new_lock
from seqstore.store.schema.column import DELETE_SIGN, initial_values
from seqstore.store.schema.field_ids import file_column, require_open_types
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.deferred_disk import DeferredDisk
from seqstore.store.segment.delete_bitmap import bitmap_of
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.load_marker import new_segment_id
from seqstore.store.segment.object_disk import ObjectDisk
from seqstore.store.segment.segment import INLINE, NewRows, Origin, Segment, SegmentMeta, write_segment

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

OPERATION: Final = "OPEN"
LOGS: Final = {"delta": LOG, "iceberg": METADATA}  # the directory of each format
_WRITERS: Final[dict[str, type[DeltaLog] | type[IcebergTable]]] = {"delta": DeltaLog, "iceberg": IcebergTable}
_ROUNDS_MAX: Final = 5


def require_openable(schema: TableSchema, disk: Disk) -> None:
    """Checks that a table can be open, if its properties say so.

    Raises:
        InvalidInputError: names the column that the formats have no type for, or the place of the segments.
    """
    if not schema.open_formats:
        return
    name = schema.open_formats[0]
    if isinstance(disk, ObjectDisk):
        raise InvalidInputError(
            f"versions cannot appear as {name}: the segments are on an object store; expected a store whose "
            "segments are in its own directory",
            kind="not_supported",
        )
    require_open_types(schema)


class OpenTable:
    """An open table of this process: shows its versions. Threads may share it."""

    def __init__(self, table: VersionedTable) -> None:
        self._table = table
        self._lock = new_lock()
        self._tombstones: dict[str, BitMap] = {}
        self._hidden: dict[str, tuple[int, BitMap]] = {}
        self._writers: dict[str, DeltaLog | IcebergTable] = {}
        self._shows = threading.local()

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    @property
    def has_log(self) -> bool:
        """Whether versions of the table were shown."""
        return bool(self._shown_formats())

    def _shown_formats(self) -> list[str]:
        directory = self._table.loader.directory
        return [name for name, log in LOGS.items() if self._disk.path(f"{directory}/{log}").is_dir()]

    @property
    def _disk(self) -> Disk:
        return self._table.loader.disk

    def show(self, *, is_cancelled: Callable[[], bool] = lambda: False) -> int | None:
        """Shows the newest version, unless it is shown already; returns its number, None where nothing was
        written. A table that is not open any more loses its log.

        Args:
            is_cancelled: called now and then by a compaction, which stops with `MergeCancelled`.

        Raises:
            StoreError: the version is not shown; the next call tries again.
        """
        if getattr(self._shows, "now", False):  # the compaction of step 2 made a version
            return None
        self._shows.now = True
        try:
            with self._alone():
                return self._show(is_cancelled)
        finally:
            self._shows.now = False

    @contextmanager
    def _alone(self) -> Iterator[None]:
        directory = self._table.catalog.path.parent / "locks"
        directory.mkdir(exist_ok=True)
        with self._lock, (directory / f"open-{self._table.id}").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a child forked meanwhile would keep it

    def _show(self, is_cancelled: Callable[[], bool]) -> int | None:
        for _ in range(_ROUNDS_MAX):
            state, lease = self._table.hold()
            try:
                formats = state.schema.open_formats
                self._remove_logs([name for name in self._shown_formats() if name not in formats])
                late = [writer for writer in map(self._writer, formats) if self._is_late(writer, state)]
                if not late:
                    return None
                if not any(_is_unfit(live, state.schema) for live in state.segments.values()):
                    appearance = self._appearance(state)
                    for writer in late:
                        commits = self._commits(writer.shown, state.version)
                        writer.show(replace(appearance, commits=commits))
                    return state.version
            finally:
                lease.release()
            Compaction(self._table, OPERATION, _unfit, is_cancelled=is_cancelled).run()
        return None  # the schema changed again and again: the version of the last change is shown next time

    def _is_late(self, writer: DeltaLog | IcebergTable, state: TableState) -> bool:
        writer.refresh()
        return writer.shown != state.version

    def _writer(self, name: str) -> DeltaLog | IcebergTable:
        found = self._writers.get(name)
        if found is None:
            found = self._writers[name] = self._new_writer(name)
        return found

    def _new_writer(self, name: str) -> DeltaLog | IcebergTable:
        table = self._table
        with table.catalog.read() as tx:
            record = tx.get("tables", records.table_key(table.id))
        if record is None:
            raise NotFoundError("the table was dropped", kind="unknown_table", table=table.name)
        identity = uuid.uuid5(uuid.NAMESPACE_OID, f"seqstore/{table.id}/{record['created_ms']}")
        return _WRITERS[name](self._disk, table.loader.directory, str(identity))

    def _remove_logs(self, formats: Sequence[str]) -> None:
        for name in formats:
            self._writers.pop(name, None)
            remove_open_files(self._disk, self._table.loader.directory, name)

    def needed_versions(self, retention_seconds: float) -> set[int]:
        """Returns the oldest version that readers of each other format may still need, or none.

        A reader needs a version until another one has been shown for the retention.
        """
        writers = [self._new_writer(name) for name in self._shown_formats()]
        needed = {writer.needed_version(retention_seconds) for writer in writers}
        return {version for version in needed if version is not None}

    def settle(self) -> None:
        """Waits until no thread of this process shows a version."""
        with self._lock:
            pass

    def _appearance(self, state: TableState) -> Appearance:
        """Returns the appearance of a version, without its commits."""
        table = self._table
        live = [each for each in state.segments.values() if self._hidden_of(each)[1]]
        stored = self._written_out(state, [each for each in live if each.segment.meta.home == INLINE])
        files = [
            OpenFile(stored.get(each.segment.meta.id, each.segment), self._hidden_of(each)[0])
            for each in live
        ]
        table.catalog.make_durable()
        self._keep_only({each.segment.meta.id for each in state.segments.values()})
        policy = MaintenancePolicy.of(state.schema, table.settings)
        return Appearance(
            table.name,
            table.loader.directory,
            state.version,
            state.schema,
            files,
            (),
            policy.version_retention_seconds,
        )

    def _commits(self, shown: int, version: int) -> list[tuple[int, VersionRecord]]:
        if not shown:
            return []  # the first appearance stands for the whole history
        with self._table.catalog.read() as tx:
            found = [
                (number, read_version_record(tx, self._table.id, number))
                for number in range(shown + 1, version + 1)
            ]
        return [(number, record) for number, record in found if record is not None]

    def _hidden_of(self, live: LiveSegment) -> tuple[BitMap, bool]:
        """Returns the rows of a segment that readers must not see, and whether there are others."""
        name, count = live.segment.meta.id, live.deletes.hidden
        known = self._hidden.get(name)
        if known is None or known[0] != count:
            rows = bitmap_of(live.deletes.hidden_positions())
            if live.segment.meta.tombstones and count < live.segment.rows:
                rows |= self._tombstones_of(live.segment)
            known = self._hidden[name] = (count, rows)
        return known[1], len(known[1]) < live.segment.rows

    def _tombstones_of(self, segment: Segment) -> BitMap:
        known = self._tombstones.get(segment.meta.id)
        if known is None:
            known = BitMap()
            for number in range(segment.batches):
                signs = segment.batch(number, [DELETE_SIGN]).column(0)
                found = np.flatnonzero(pc.equal(signs, 1).to_numpy(zero_copy_only=False))
                known |= bitmap_of((found + number * segment.meta.batch_rows).astype(np.uint32))
            self._tombstones[segment.meta.id] = known
        return known

    def _keep_only(self, names: set[str]) -> None:
        for known in (self._hidden, self._tombstones):
            for name in known.keys() - names:
                del known[name]

    def _written_out(self, state: TableState, inline: Sequence[LiveSegment]) -> dict[str, Segment]:
        """Runs step 3; returns the segments with their files, by id."""
        if not inline:
            return {}
        table = self._table
        keys = {each.segment.meta.id: records.segment_key(table.id, each.segment.meta.id) for each in inline}
        with table.catalog.read() as tx:
            known = {name: tx.require("segments", key)["meta"] for name, key in keys.items()}
        fresh = [each for each in inline if known[each.segment.meta.id]["home"] == INLINE]
        written: list[Segment] = []
        unsynced = DeferredDisk(self._disk)
        try:
            for each in fresh:
                meta = self._write_out(unsynced, each.segment)
                written.append(each.segment.described_by(meta))
            if written:
                unsynced.settle()
                self._disk.sync_directory(table.loader.directory)
                failpoint.hit("open.written_out")
                self._adopt(written, keys)
        except CommitUnknownError:
            raise
        except BaseException:
            for segment in written:
                segment.delete_files()
            raise
        others = [each.segment for each in inline if known[each.segment.meta.id]["home"] != INLINE]
        adopted = [each.described_by(SegmentMeta.from_record(known[each.meta.id])) for each in others]
        return {segment.meta.id: segment for segment in (*written, *adopted)}

    def _adopt(self, written: Sequence[Segment], keys: Mapping[str, bytes]) -> None:
        """Stores the files in the records of their segments."""
        with self._table.catalog.write() as tx:
            for segment in written:
                key = keys[segment.meta.id]
                record = tx.get("segments", key)
                if record is not None:
                    tx.put("segments", key, {**record, "meta": segment.meta.to_record()})
                    tx.delete("inline", key)

    def _write_out(self, disk: Disk, segment: Segment) -> SegmentMeta:
        """Writes a file with the rows of an inline segment; returns the segment's description with it."""
        table, schema = self._table, segment.schema
        file_id = new_segment_id()
        home, codec = schema.storage_format, schema.compression
        meta = replace(segment.meta, id=file_id, file="", home=home, compression=codec)
        written = write_segment(
            disk,
            table.loader.directory,
            meta,
            NewRows.of(segment.batch(0), segment.index, None, meta.batch_rows),
            Origin(schema, table.name),
        )
        return replace(written, id=segment.meta.id, file=file_id)


def remove_open_files(disk: Disk, directory: str, name: str | None = None) -> None:
    """Removes what a format shows of a table that is not open any more, of all formats when None.

    The deletion vectors of Delta are beside its log, and leave after it.
    """
    for each in LOGS if name is None else (name,):
        log = disk.path(f"{directory}/{LOGS[each]}")
        if not log.is_dir():
            continue
        shutil.rmtree(log, ignore_errors=True)
        for file in disk.list(directory) if each == "delta" else ():
            if file.startswith("deletion_vector_"):
                disk.delete(f"{directory}/{file}")


def _unfit(state: TableState) -> list[LiveSegment]:
    return [live for live in state.segments.values() if _is_unfit(live, state.schema)]


def _is_unfit(live: LiveSegment, schema: TableSchema) -> bool:
    """Returns whether other readers would not read the rows of a segment as this store does."""
    segment = live.segment
    if not live.deletes.live_count or segment.meta.tombstones == segment.rows:
        return False  # they do not read it
    if not segment.schema.open_formats or segment.meta.home == "arrow":
        return True
    if segment.meta.hidden and "iceberg" in set(schema.open_formats) - set(segment.schema.open_formats):
        return True  # an earlier program may have written hidden columns without ids
    if segment.schema.revision == schema.revision:
        return False
    written = {column.id: column for column in segment.schema.columns}
    names = {each.id: file_column(segment.schema, each).lower() for each in segment.schema.columns}
    for column in schema.columns:
        old, name = written.get(column.id), file_column(schema, column).lower()
        if old is None:  # a reader finds NULLs
            if name in names.values() or initial_values(column, 1).null_count == 0:
                return True
        elif old.type.arrow != column.type.arrow or names[column.id] != name:
            return True
    return False
