"""The repair of one table, in the catalog that replaces the damaged one.

1. If the newest version is whole, all records of the versions from the first whole one on are kept as they
   are.
2. Else the table is rebuilt as one version: its segments are added in their order by the winner test, as one
   load adds them, so the larger sequence wins, and of equal ones the later commit. Rows that a known delete
   bitmap hides stay hidden. Segments whose record is lost are found as files.
3. Files that a copy of the catalog does not know yet are added to the table as one more version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.kept_versions import without_thinning
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus, now_ms
from seqstore.store.catalog.version_chain import chain_faults
from seqstore.store.catalog.version_record import VersionMetrics, VersionRecord, hidden_of, put_version_record
from seqstore.store.errors import CorruptionError, StoreError
from seqstore.store.publish.publish import TableWrite, put_version
from seqstore.store.publish.winner_test import make_plan
from seqstore.store.read.table_state import StateLoader
from seqstore.store.repair.report import TableReport
from seqstore.store.repair.segment_files import (
    FoundSegment,
    describe,
    described,
    missing_files,
    proved,
    segment_ids,
)
from seqstore.store.repair.table_records import OF_ONE_TABLE, TableRecords
from seqstore.store.schema.column import VERSION_COL
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.delete_bitmap import positions_of, unite
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.load_marker import made_at
from seqstore.store.segment.segment import INLINE, Segment, SegmentMeta, data_name, keys_name

OPERATION: Final = "REPAIR"
_CHECKSUM: Final = 8


@dataclass
class TableRepair:
    """The repair of one table.

    Attributes:
        tx: of the new catalog.
        records: what is known of the table.
        database: id of its database.
        prepared: names of files that pre-committed transactions need.
        is_behind: loads that were published last may be unknown; then unknown files are added.
        files: names of the files that the repaired table needs.
    """

    tx: CatalogTransaction
    disk: Disk
    records: TableRecords
    name: str
    database: int
    prepared: set[str]
    is_behind: bool
    files: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        info = self.records.info or {}
        self.id = self.records.id
        self.directory: str = info.get("directory", f"{catalog.TABLES}/{self.id}")
        self.is_behind = self.is_behind or self.records.may_lack_newest
        self.report = TableReport(self.name)
        self._loader = StateLoader(self.id, self.directory, self.disk)

    def run(self) -> TableReport:
        """Stores the records of the table in the new catalog."""
        first, records = self.records.first_whole(), self.records
        metas = [
            SegmentMeta.from_record(records.segments[name]["meta"]) for name in records.live(records.head)
        ]
        missing = missing_files(self.disk, self.directory, metas)
        if first and not (missing and self.is_behind) and self._keep(first):
            for name in missing:
                self.report.findings.append(f"the file {name} is missing or cut: put it back from a copy")
            if self.is_behind:
                self._add(records.head, self._found_files())
        else:
            self._rebuild()
        if self.is_behind and records.head:
            self.report.findings.append(
                f"rows may be lost: versions after {records.head} may be lost, but for those found as files"
            )
        if self.report.outcome != "left out":
            self._count()
        return self.report

    def _keep(self, first: int) -> bool:
        """Runs step 1; returns whether the result adds up."""
        records, horizon = self.records, without_thinning(self.records.horizon)
        packed = records.packed
        for database in ("tables", "schemas", "counters", "readers", "apps", "bitmaps", "trash"):
            self._copy(database, packed.get(database, {}))
        kept = records.history(first)
        self._copy("versions", {k: v for k, v in packed["versions"].items() if _number(k) in kept})
        live = {
            name
            for name, record in records.segments.items()
            if record["created"] <= records.head and (not record["dropped"] or record["dropped"] > first)
        }
        for database in ("segments", "inline"):
            items = packed.get(database, {}).items()
            self._copy(database, {key: data for key, data in items if key[8:].decode() in live})
        for name in live:  # an older record may have been found
            key = catalog.segment_key(self.id, name)
            if self.tx.get("segments", key) != records.segments[name]:
                self.tx.put("segments", key, records.segments[name])
        self.tx.put("heads", records.prefix, [records.head, records.versions[records.head]["revision"]])
        if first > records.oldest:
            self.report.findings.append(
                f"versions {records.oldest} to {first - 1} are lost, the rows of later ones are whole"
            )
        sums = {_number(key): data[:_CHECKSUM] for key, data in packed.get("bitmaps", {}).items()}
        known = [[number, digest] for number, digest in sorted(sums.items()) if number <= first]
        if "bitmaps" in horizon or first > records.oldest:
            horizon |= {"oldest": first, "open": max(first, horizon.get("open", 1)), "bitmaps": known}
        if horizon:
            self.tx.put("horizons", records.prefix, horizon)
        self._put_info()
        faults = list(self._faults())
        if faults:
            self.forget()
            self.report.findings = [*self.report.findings[:0], *faults]
            return False
        self._need(SegmentMeta.from_record(records.segments[name]["meta"]) for name in live)
        if made := len(live.intersection(records.remade)):
            self.report.findings.append(f"{made} lost records of segments were made again from their rows")
        return True

    def _faults(self) -> Iterable[str]:
        try:
            yield from chain_faults(self.tx, self.id)
            self._loader.load(self.tx, self.records.head)
        except StoreError as error:
            yield error.message

    def forget(self) -> None:
        """Removes all records of the table from the new catalog."""
        for database in OF_ONE_TABLE:
            for key, _ in list(self.tx.items(database, self.records.prefix)):
                self.tx.delete(database, key)

    def _copy(self, database: str, packed: dict[bytes, bytes]) -> None:
        for key, data in packed.items():
            self.tx.copy(database, key, data)

    def _put_info(self) -> None:
        info = self.records.info or {"directory": self.directory, "created_ms": now_ms()}
        database, _, name = self.name.partition(".")
        self.tx.put("tables", self.records.prefix, {**info, "database": database, "name": name})
        self.tx.put("names", catalog.name_key(self.database, name), self.id)

    def _rebuild(self) -> None:
        """Runs step 2."""
        records, self.report.outcome = self.records, "rebuilt"
        found = self._found_segments()
        schema = self._schema(found)
        if schema is None:
            self.report.outcome = "left out"
            self.report.findings.append("its schema is lost: no record and no file has it")
            return
        base = max([1, records.head, *(each.newest_row for each in found)])
        for database in ("schemas", "counters", "readers", "apps"):
            self._copy(database, records.packed.get(database, {}))
        self._put_schemas([schema, *(each.segment.schema for each in found)])
        self._put_info()
        made = VersionRecord(schema.revision, 0, "", OPERATION, now_ms())
        put_version_record(self.tx, self.id, base, made)
        self.tx.put("heads", records.prefix, [base, schema.revision])
        newest = base + 1 if found else base
        floor = {name: value for name, value in records.horizon.items() if name.startswith("floor")}
        self.tx.put("horizons", records.prefix, {**floor, "oldest": base, "open": base})
        self._add(base, found)  # to that version
        self.tx.put("horizons", records.prefix, {**floor, "oldest": newest, "open": newest})
        if found:
            self.tx.delete("versions", catalog.version_key(self.id, base))
        if records.head:
            self.report.findings.append(
                f"versions up to {records.head} are lost, their newest rows became one"
            )
        if records.may_lack_bitmaps:
            self.report.findings.append(
                "delete bitmaps are lost: rows that TRUNCATE, INSERT OVERWRITE or DROP PARTITION removed may "
                "be back"
            )

    def _found_segments(self) -> list[FoundSegment]:
        """Returns the segments of the newest version, all that may be if some of them are lost."""
        records, wanted, said = self.records, self._proved_live(), list(self.report.findings)
        if wanted is not None:
            found = [each for each in self._known_segments() if each.segment.meta.id in wanted]
            found += self._found_files(wanted)
            if {each.segment.meta.id for each in found} == wanted:
                return found
            self.report.findings = said
        found = self._known_segments()
        if self._is_exact():
            return found
        found += self._found_files(frozenset(records.added_by) if wanted is not None else None)
        if wanted is not None:
            lost = wanted - set(records.segments) - {each.segment.meta.id for each in found}
            if lost:
                self.report.findings.append(
                    f"rows are lost, and older or removed ones may be back: {len(lost)} of the {len(wanted)} "
                    f"segments of version {records.head} have no record"
                )
        elif self.is_behind or records.salvage.may_lack_below("segments", records.prefix):
            self.report.findings.append(
                "rows may be lost, and older or removed ones may be back: no record tells which segments the "
                "newest version had"
            )
        return found

    def _proved_live(self) -> frozenset[str] | None:
        """Returns the ids of the segments of the newest version, None where they are not sure."""
        return None if self.is_behind else self.records.proved_live

    def _is_exact(self) -> bool:
        """Returns whether the live segments are known and unknown files are those of failed loads."""
        head = self.records.head
        is_known = bool(head) and (
            head in self.records.versions
            or not self.records.salvage.may_lack_below("versions", self.records.prefix)
        )
        return is_known and self.records.has_all_segments(head) and not self.is_behind

    def _known_segments(self) -> list[FoundSegment]:
        """Returns the segments that have records and bytes."""
        records, is_exact = self.records, self._is_exact()
        live, found = set(records.live(records.head)), []
        for name, record in records.segments.items():
            if name not in live and (is_exact or self._is_replaced(record)):
                continue
            meta = SegmentMeta.from_record(record["meta"])
            schema, payload = records.schemas.get(meta.revision), records.payloads.get(name)
            try:
                if schema is None or (meta.home == INLINE and payload is None):
                    raise CorruptionError(f"segment {name}: its rows or its schema were in lost records")
                if VERSION_COL not in meta.hidden:
                    meta = replace(meta, written=meta.written or record["created"])
                segment = Segment(self.disk, self.directory, meta, schema, payload)
                found.append(proved(segment, record["created"]))
            except StoreError as error:
                if name in live:
                    self.report.findings.append(f"{meta.rows} rows are lost: {error.message}")
        return found

    def _is_replaced(self, record: dict[str, Any]) -> bool:
        """Returns whether the version that dropped a segment is known with everything that it added."""
        version = self.records.versions.get(record["dropped"])
        if version is None:
            return False
        metas = [self.records.segments.get(name, {}).get("meta") for name in version["added"]]
        known = [SegmentMeta.from_record(meta) for meta in metas if meta is not None]
        return len(known) == len(metas) and not missing_files(self.disk, self.directory, known)

    def _found_files(self, wanted: frozenset[str] | None = None) -> list[FoundSegment]:
        """Returns the segments that have files and no record, all or those with some ids."""
        known = {meta["meta"]["file"] or name for name, meta in self.records.segments.items()}
        known |= {key[8:].decode() for key in self.records.packed.get("trash", {})}
        found, dropped = [], 0
        for name in segment_ids(self.disk, self.directory):
            if name not in known and made_at(name) < self.records.backed_up_at:
                dropped += 1
                continue
            if (
                name in known
                or f"{name}.keys" in self.prepared
                or (wanted is not None and name not in wanted)
            ):
                continue
            try:
                description = describe(self.disk, self.directory, name)
                meta = described(self.disk, self.directory, description)
                segment = Segment(self.disk, self.directory, meta, description.schema)
                found.append(proved(segment, self.records.added_by.get(name, 0)))
            except StoreError as error:
                self.report.findings.append(f"a file is left out: {error.message}")
        if dropped:
            self.report.findings.append(
                f"{dropped} segments that were begun before the backup and are not in it are left out: rows "
                "of a load that ran meanwhile may be lost"
            )
        if found and wanted is None:
            rows = sum(each.segment.rows for each in found)
            self.report.findings.append(
                f"{len(found)} segments of {rows} rows were found as files, and no record tells whether "
                "their loads were committed"
            )
        return found

    def _schema(self, found: Sequence[FoundSegment]) -> TableSchema | None:
        known = self.records.newest_schema()
        schemas = [each.segment.schema for each in found] + ([known] if known is not None else [])
        return max(schemas, key=lambda schema: schema.revision, default=None)

    def _put_schemas(self, schemas: Iterable[TableSchema]) -> None:
        for schema in schemas:
            key = catalog.schema_key(self.id, schema.revision)
            if self.tx.digest("schemas", key) is None:
                self.tx.put("schemas", key, schema.to_record())

    def _add(self, base: int, found: Sequence[FoundSegment]) -> None:
        """Adds segments as the version after `base`."""
        if not found:
            return
        staged = [each.segment for each in _ordered(found)]
        self._put_schemas(segment.schema for segment in staged)
        state = replace(self._loader.load(self.tx, base), watermark=None)
        own = {segment.meta.id for segment in staged}
        union = unite(hidden_of(record) for record in self.records.hidden())
        stale = {
            name: _within(positions_of(rows), staged, name) for name, rows in union.items() if name in own
        }
        plan = make_plan(state, staged, stale)
        replaced, deleted, _ = plan.effects()
        now, visible = now_ms(), TransactionStatus.VISIBLE
        transaction = TransactionRecord(0, self.database, self.name, "", visible, OPERATION, now, now)
        rows = sum(segment.rows for segment in staged)
        metrics = VersionMetrics(rows, rows, rows_replaced=replaced, rows_deleted=deleted)
        write = TableWrite(
            self.id, self.name, state.schema.revision, base, plan.positions(), staged, metrics=metrics
        )
        put_version(self.tx, transaction, write, base + 1)
        self._need(segment.meta for segment in staged)

    def _need(self, metas: Iterable[SegmentMeta]) -> None:
        for meta in metas:
            if meta.home != INLINE:
                self.files += [data_name(self.directory, meta), keys_name(self.directory, meta)]

    def _count(self) -> None:
        """Reports the versions and rows that the table has now."""
        head, _ = catalog.head(self.tx, self.id, self.name)
        state = self._loader.load(self.tx, head)
        self.report.versions = (catalog.oldest_open(self.tx, self.id), head)
        try:
            self.report.rows = state.row_count
        except StoreError as error:
            self.report.findings.append(error.message)
        if not self.records.salvage.may_lack_below("counters", self.records.prefix):
            return
        for column in state.schema.columns:
            if column.auto_increment is not None:
                key = catalog.counter_key(self.id, column.id)
                known = int(self.tx.get("counters", key) or column.auto_increment)
                self.tx.put("counters", key, max(known, 1 + _largest(state.segments.values(), column.name)))
                self.report.findings.append(f"the next value of {column.name} follows its largest value")


def _number(key: bytes) -> int:
    return int.from_bytes(key[8:])


def _within(positions: Positions, staged: Sequence[Segment], name: str) -> Positions:
    rows = next(segment.rows for segment in staged if segment.meta.id == name)
    return positions[positions < rows].astype(np.uint32)


def _ordered(found: Sequence[FoundSegment]) -> list[FoundSegment]:
    """Orders segments by their version; one without is later than all that were begun before it."""
    begun = sorted((each.segment.meta.id, each.created) for each in found if each.created)

    def place(each: FoundSegment) -> tuple[int, int, str]:
        name = each.segment.meta.id
        if each.created:
            return each.created, 0, name
        return max((created for other, created in begun if other < name), default=0), 1, name

    return sorted(found, key=place)


def _largest(segments: Iterable[Any], column: str) -> int:
    """Returns the largest stored value of an AUTO_INCREMENT column."""
    values = [0]
    for live in segments:
        segment = live.segment
        if column in segment.stored_schema.names:
            batches = [segment.batch(number, [column]) for number in range(segment.batches)]
            values += [pc.max(batch.column(0)).as_py() or 0 for batch in batches]
    return max(values)
