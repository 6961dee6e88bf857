"""A prepared `TableWriter` as a record of the catalog, and the writer that any process makes of it later.

The record holds everything, with files for what is large. The writer that is made of it is aligned with the
versions since when it is prepared.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from seqstore.store.catalog.app_ids import AppWrite
from seqstore.store.catalog.transaction_record import TransactionRecord
from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.conflict.isolation import Isolation
from seqstore.store.expressions.predicate import pack, unpack
from seqstore.store.fill.delta_file import DeltaFile, read_delta
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.publish.publish import check_revision
from seqstore.store.publish.replace_where import ReplaceWhere
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.publish.write_states import (
    DeltaPart,
    FilledWrite,
    Part,
    PendingWrite,
    RowPart,
    StoredWrite,
    WriteTarget,
)
from seqstore.store.segment.segment import Segment, SegmentMeta

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable


def writer_to_record(writer: TableWriter) -> dict[str, Any]:
    """Returns everything that a prepared writer holds; its files are durable."""
    target, prepared = writer.target, writer.prepared
    filled, pending = prepared.filled, prepared.filled.pending
    files = writer.write_delta_files()
    held = {segment.meta.id: segment for segment in writer.segments}
    where = pending.replace_where
    return {
        "revision": target.schema.revision,
        "app": target.app.to_record() if target.app is not None else None,
        "snapshot": prepared.state.version,
        "segments": {
            name: {"meta": segment.meta.to_record(), "payload": segment.payload}
            for name, segment in held.items()
        },
        "deltas": [file.to_record() for file in files],
        "parts": _parts_to_record(pending.parts),
        "filled": [segment.meta.id for segment in filled.filled],
        "published": [segment.meta.id for segment in filled.published],
        "figures": pending.metrics.__dict__,
        "late": filled.rows_late,
        "lost": filled.rows_superseded,
        "blind": target.is_blind,
        "isolation": target.isolation.to_record() if target.isolation is not None else None,
        "clearing": [None if where.filter is None else pack(where.filter)] if where is not None else None,
    }


def _parts_to_record(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    deltas = itertools.count()
    for part in parts:
        if isinstance(part, RowPart):
            records.append({"segments": [segment.meta.id for segment in part.segments]})
            continue
        how = part.options
        options = {"flexible": how.flexible, "now": how.now.isoformat(), "is_change": how.is_change}
        records.append({"delta": next(deltas), "options": options})
    return records


def writer_from_record(
    table: VersionedTable, transaction: TransactionRecord, record: dict[str, Any]
) -> TableWriter:
    """Returns the writer that `writer_to_record` stored.

    Raises:
        ConflictError: the table's schema changed since, or the version that was read is not kept any more.
        NotFoundError: the table was dropped.
        CorruptionError: a file of the writer is missing or was changed.
    """
    target = _target_from_record(table, transaction, record)
    disk, directory = target.stager.disk, target.stager.directory
    held = {
        name: Segment(disk, directory, SegmentMeta.from_record(item["meta"]), target.schema, item["payload"])
        for name, item in record["segments"].items()
    }
    pending = PendingWrite(
        tuple(_part_from_record(target, part, held, record["deltas"]) for part in record["parts"]),
        VersionMetrics(**record["figures"]),
        kept=frozenset(held),
    )
    if record.get("clearing") is not None:
        stored = record["clearing"][0]
        where = ReplaceWhere(None if stored is None else unpack(stored))
        pending = replace(pending, replace_where=where)
    filled = FilledWrite(
        pending,
        tuple(held[name] for name in record["filled"]),
        tuple(held[name] for name in record["published"]),
        rows_late=record["late"],
        rows_superseded=record["lost"],
    )
    return TableWriter(target, StoredWrite(filled, record["snapshot"]))


def _target_from_record(
    table: VersionedTable, transaction: TransactionRecord, record: dict[str, Any]
) -> WriteTarget:
    with table.catalog.read() as tx:
        check_revision(tx, transaction, table.id, table.name, record["revision"])
        schema = table.loader.schema(tx, record["revision"])
    app = AppWrite(**record["app"]) if record.get("app") else None
    isolation = None
    if record.get("isolation") is not None:
        isolation = Isolation.from_record(table, transaction.operation, record["isolation"])
    target = WriteTarget.of(table, schema, transaction.operation, isolation, app)
    return replace(target, is_blind=record.get("blind", True))


def _part_from_record(
    target: WriteTarget, part: dict[str, Any], held: dict[str, Segment], deltas: list[dict[str, Any]]
) -> Part:
    if "segments" in part:
        return RowPart(tuple(held[name] for name in part["segments"]))
    stored = part["options"]
    options = FillOptions(  # new keys were checked when the load was prepared (C13)
        flexible=stored["flexible"],
        now=datetime.fromisoformat(stored["now"]),
        is_change=stored.get("is_change", False),
    )
    delta = read_delta(target.stager.disk, target.stager.directory, DeltaFile(**deltas[part["delta"]]))
    return DeltaPart((delta,), options, target.schema)


def delete_delta_files(table: VersionedTable, record: dict[str, Any]) -> None:
    """Removes the delta files of a stored writer, which nothing needs after the commit."""
    for item in record["deltas"]:
        DeltaFile(**item).delete(table.loader.disk, table.loader.directory)


def leave_delta_files(table: VersionedTable, record: dict[str, Any]) -> None:
    """Leaves the rows of partial updates to the next sweep, which keeps them if the catalog names them."""
    for item in record["deltas"]:
        if item["name"]:
            table.loader.disk.leave(f"{table.loader.directory}/{item['name']}")
