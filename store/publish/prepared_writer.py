"""A `TableWriter` put down as a record of the catalog, and taken up again by any process, at a later version.

The record tells all it holds, with files for what is large. The writer that is made of it is aligned with the
versions since its snapshot when it is prepared.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from seqstore.store.catalog.app_ids import AppWrite
from seqstore.store.catalog.transaction_record import TransactionRecord
from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.conflict.isolation_record import (
    expression_from_bytes,
    expression_to_bytes,
    isolation_from_record,
    isolation_to_record,
)
from seqstore.store.fill.delta_file import DeltaFile, read_delta, write_delta
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.publish.publish import check_revision
from seqstore.store.publish.replace_where import ReplaceWhere
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.publish.write_parts import DeltaPart, RowPart
from seqstore.store.segment.segment import Segment, SegmentMeta

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable


def writer_to_record(writer: TableWriter) -> dict[str, Any]:
    """All that a writer holds, as a catalog record; its files are durable."""
    assert writer._state is not None
    held = {segment.meta.id: segment for segment in [*writer.segments, *writer._filled]}
    parts: list[dict[str, Any]] = []
    for part in writer._parts:
        if isinstance(part, RowPart):
            parts.append({"segments": [segment.meta.id for segment in part.segments]})
            continue
        stager = writer._stager
        limit = stager.settings.inline_bytes_max
        delta = write_delta(stager.disk, stager.directory, part.delta(writer.schema), limit)
        writer._deltas.append(delta)
        options = {
            "flexible": part.options.flexible,
            "now": part.options.now.isoformat(),
            "is_change": part.options.is_change,
        }
        parts.append({"delta": len(writer._deltas) - 1, "options": options})
    if any(delta.name for delta in writer._deltas):
        writer._stager.sync()
    return {
        "revision": writer.schema.revision,
        "app": writer.app.__dict__ if writer.app is not None else None,
        "snapshot": writer._state.version,
        "segments": {
            name: {"meta": segment.meta.to_record(), "payload": segment.payload}
            for name, segment in held.items()
        },
        "deltas": [delta.to_record() for delta in writer._deltas],
        "parts": parts,
        "filled": [segment.meta.id for segment in writer._filled],
        "published": [segment.meta.id for segment in writer._published],
        "figures": writer.metrics.__dict__,
        "late": writer._late,
        "lost": writer._lost_in_filling,
        "blind": writer.is_blind,
        "isolation": isolation_to_record(writer.isolation),
        "clearing": [expression_to_bytes(writer.replace_where.filter)]
        if writer.replace_where is not None
        else None,
    }


def writer_from_record(
    table: VersionedTable, transaction: TransactionRecord, record: dict[str, Any]
) -> TableWriter:
    """The writer that `put_down` told of.

    Raises:
        ConflictError: the table's schema changed since, or what was read is not kept any more.
        NotFoundError: the table was dropped.
        CorruptionError: a file of it is missing or not what was written.
    """
    with table.catalog.read() as tx:
        check_revision(tx, transaction, table.id, table.name, record["revision"])
        schema = table.loader.schema(tx, record["revision"])
    app = AppWrite(**record["app"]) if record.get("app") else None
    isolation = None
    if record.get("isolation") is not None:
        isolation = isolation_from_record(table, transaction.operation, record["isolation"])
    writer = TableWriter(table, schema, transaction.operation, isolation[0] if isolation else None, app)
    writer.is_blind = record.get("blind", True)
    writer._base_lease = isolation[1] if isolation else None
    if record.get("clearing") is not None:
        writer.replace_where = ReplaceWhere(expression_from_bytes(record["clearing"][0]))
    disk, directory = writer._stager.disk, writer._stager.directory
    held = {
        name: Segment(disk, directory, SegmentMeta.from_record(item["meta"]), schema, item["payload"])
        for name, item in record["segments"].items()
    }
    writer._deltas = [DeltaFile(**item) for item in record["deltas"]]
    for part in record["parts"]:
        if "segments" in part:
            writer._parts.append(RowPart([held[name] for name in part["segments"]]))
        else:
            # Whether keys were new was checked when the load was prepared (C13).
            told = part["options"]
            options = FillOptions(
                flexible=told["flexible"],
                now=datetime.fromisoformat(told["now"]),
                is_change=told.get("is_change", False),
            )
            delta = read_delta(disk, directory, writer._deltas[part["delta"]])
            writer._parts.append(DeltaPart([delta], options))
    writer.metrics = VersionMetrics(**record["figures"])
    writer._filled = [held[name] for name in record["filled"]]
    writer._published = [held[name] for name in record["published"]]
    writer._late, writer._lost_in_filling = record["late"], record["lost"]
    writer._snapshot, writer.kept = record["snapshot"], frozenset(held)
    return writer
