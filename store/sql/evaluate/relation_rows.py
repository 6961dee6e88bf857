"""The rows of one relation: by key look-up or by scan, for the scan-only plan and as a source of DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Set

import pyarrow as pa

from seqstore.store.read.marked_scan import LIVE, is_number
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.sql.evaluate import duck
from seqstore.store.sql.translate.relations import Relation


def open_rows(relation: Relation, *, deleted: bool) -> pa.RecordBatchReader:
    """Reads the rows that satisfy the relation's conditions, by key where these allow only a few keys.

    Args:
        deleted: tombstones count as rows (T8).
    """
    snapshot, columns, keys = relation.snapshot, relation.columns, relation.keys
    if keys is None and isinstance(snapshot, Snapshot) and not relation.partitions:
        return snapshot.scan(columns, relation.filter, conditions=relation.conditions, deleted=deleted)
    if keys is None:
        return snapshot.scan(columns, relation.filter, deleted=deleted)
    names = list(dict.fromkeys([*columns, *(condition.column for condition in relation.conditions)]))
    rows = snapshot.get(keys, names, deleted=deleted)
    if relation.partitions:
        return rows.filter(relation.filter).select(columns).to_reader()
    for condition in relation.conditions:  # a filter of Arrow's own wakes its threads, for a row or two
        rows = rows.filter(condition.holds(rows.column(condition.column)))
    return rows.select(columns).to_reader()


def duck_source(relation: Relation, grouped: Set[str], *, deleted: bool) -> tuple[duck.Source, bool]:
    """Returns the source that DuckDB reads for a relation, and whether it marks live rows.

    A source that does not mark live rows drops the others.

    Args:
        grouped: names, in lower case, of columns that the query groups by.
        deleted: tombstones count as rows (T8).
    """
    schema = relation.scanned_schema()
    if relation.partitions or not isinstance(relation.snapshot, Snapshot) or relation.keys is not None:
        return duck.Source(schema, lambda: _renamed(open_rows(relation, deleted=deleted), schema)), False
    conditions = [] if relation.is_unfiltered else relation.conditions
    groups = [name for name in relation.columns if name.lower() in grouped]
    marked = relation.snapshot.marked(
        relation.columns, conditions, relation.filter, deleted=deleted, grouped=groups
    )
    names = [*schema.names, LIVE] if marked.is_marked else schema.names
    named = pa.schema([field.with_name(name) for field, name in zip(marked.schema, names, strict=True)])
    return duck.Source(named, lambda: _renamed(marked.open(), named)), marked.is_marked


def is_cheap_to_hand_over(relation: Relation, grouped: Set[str]) -> bool:
    """Returns whether DuckDB decides the conditions sooner than a scan that yields only satisfying rows.

    DuckDB compares numbers in place, on its own threads. Texts it must first convert to its own form, unless
    they are dictionary-encoded.
    """
    snapshot = relation.snapshot
    if not isinstance(snapshot, Snapshot) or not relation.is_decided_once:
        return False
    if relation.partitions or relation.keys is not None:
        return False
    fields = zip(relation.columns, relation.scanned_schema(), strict=True)
    texts = [name for name, field in fields if not is_number(field.type)]
    return all(name.lower() in grouped and snapshot.is_worth_encoding(name) for name in texts)


def _renamed(reader: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        with reader:
            for batch in reader:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
