"""DROP PARTITION: removes a declared partition and its rows in one version.

1. The rows to hide are planned against the newest state (publish.replace_where), before the commit's
   transaction.
2. That transaction stores a schema revision without the partition and a version of it that hides those rows.
   If the head moved since, the plan is made anew; after a few attempts under the writer lock, so that it
   always succeeds.

Loads that began before find another schema and fail, so no row can enter the dropped partition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus, now_ms
from seqstore.store.catalog.version_record import CommitInfo, VersionMetrics
from seqstore.store.errors import NotFoundError
from seqstore.store.publish.publish import TRIES_BEFORE_LOCK, HeadMoved, TableWrite, put_version
from seqstore.store.publish.replace_where import ReplaceWhere, plan_replace_where
from seqstore.store.publish.winner_test import Plan
from seqstore.store.publish.write_states import refuse_changes
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime import failpoint
from seqstore.store.schema.features import require_writable
from seqstore.store.schema.partitioning import Partition
from seqstore.store.schema.partitions import checked as check_partitioning
from seqstore.store.schema.partitions import partition_filter
from seqstore.store.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_OPERATION: Final = "DROP PARTITION"


def drop_partition(table: VersionedTable, partition: Partition) -> int:
    """Removes a declared partition and its rows; returns the version that lacks them.

    Raises:
        NotFoundError: it was dropped meanwhile.
        InvalidInputError: it has rows and the table is append-only.
    """
    for _ in range(TRIES_BEFORE_LOCK):
        state, lease = table.hold()
        plan = _plan(state, partition)
        lease.release()
        try:
            with table.catalog.write() as tx:
                return _put_version_without(tx, table, partition, plan)
        except HeadMoved:
            continue
    with table.catalog.write() as tx:
        return _put_version_without(tx, table, partition, _plan(table.advance(tx, None), partition))


def _plan(state: TableState, partition: Partition) -> Plan:
    return plan_replace_where(state, [], ReplaceWhere(partition_filter(state.schema, partition)))


def _put_version_without(
    tx: records.CatalogTransaction, table: VersionedTable, partition: Partition, plan: Plan
) -> int:
    version, revision = records.head(tx, table.id, table.name)
    if version != plan.version:
        raise HeadMoved
    before = table.loader.schema(tx, revision)
    require_writable(before.features)
    after = _without(before, partition)
    tx.put("schemas", records.schema_key(table.id, after.revision), after.to_record())
    record = TransactionRecord(
        tx.next_id("txn"), table.database_id, table.name, "", TransactionStatus.VISIBLE, _OPERATION, now_ms()
    )
    _, deleted, _ = plan.effects()
    refuse_changes(before, table.name, _OPERATION, deleted)
    commit_info = CommitInfo(
        is_blind=False, read_version=version, changes=[f"partition {partition.name} (dropped)"]
    )
    write = TableWrite(
        table.id,
        table.name,
        after.revision,
        plan,
        metrics=VersionMetrics(rows_deleted=deleted),
        commit_info=commit_info,
        is_cleared=True,
    )
    put_version(tx, record, write, version + 1)
    failpoint.hit("publish.before_switch")
    return version + 1


def _without(schema: TableSchema, partition: Partition) -> TableSchema:
    partitioning = schema.partitioning
    left = tuple(p for p in partitioning.partitions if p.name != partition.name) if partitioning else ()
    if partitioning is None or len(left) == len(partitioning.partitions):
        raise NotFoundError(f"partition {partition.name!r} was dropped meanwhile", kind="unknown_partition")
    checked = check_partitioning(schema, replace(partitioning, partitions=left))
    return replace(schema, revision=schema.revision + 1, partitioning=checked)
