"""ALTER TABLE's changes of partitions: ADD PARTITION and DROP PARTITION.

ADD PARTITION changes the schema alone. DROP PARTITION removes a declared partition and its rows in one
version:

1. The rows to hide are planned against the newest state (publish.replace_where), before the commit's
   transaction.
2. That transaction stores a schema revision without the partition and a version of it that hides those rows.
   If the head moved since, the plan is made anew; after a few attempts under the writer lock, so that it
   always succeeds.

Loads that began before find another schema and fail, so no row can enter the dropped partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.version_record import CommitInfo, VersionMetrics
from seqstore.store.ddl.alter import Altered, alter, put_revision, schema_change
from seqstore.store.errors import AlreadyExistsError, NotFoundError
from seqstore.store.publish.publish import TRIES_BEFORE_LOCK, HeadMoved, TableWrite
from seqstore.store.publish.replace_where import ReplaceWhere, plan_replace_where
from seqstore.store.publish.winner_test import Plan
from seqstore.store.publish.write_states import refuse_changes
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime import failpoint
from seqstore.store.schema.features import require_writable
from seqstore.store.schema.partitioning import Partition, check_bounds
from seqstore.store.schema.partitions import partition_filter, partitioned
from seqstore.store.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_DROP: Final = "DROP PARTITION"


def add_partitions(
    table: VersionedTable, partitions: Sequence[Partition], *, if_not_exists: bool = False
) -> None:
    """Declares partitions, all or none; partitions that other sessions declare meanwhile stay.

    Args:
        if_not_exists: skips partitions whose name is taken.

    Raises:
        InvalidInputError: the table is not partitioned, partitions overlap, or a bound does not fit.
        AlreadyExistsError: a name is taken, and `if_not_exists` is False.
    """
    if if_not_exists and not _missing(table.schema, table.name, partitions):
        return  # makes no version
    alter(table, [_add(table.name, partitions, if_not_exists)])


@schema_change
def _add(schema: TableSchema, name: str, partitions: Sequence[Partition], if_not_exists: bool) -> Altered:
    missing = _missing(schema, name, partitions)
    if len(missing) < len(partitions) and not if_not_exists:
        taken = next(partition.name for partition in partitions if partition not in missing)
        raise AlreadyExistsError(f"Duplicate partition name {taken}", kind="partition_exists")
    before = partitioned(schema, name)
    after = check_bounds(schema.column, replace(before, partitions=(*before.partitions, *missing)))
    changes = tuple(f"partition {partition.name} (added)" for partition in missing)
    return Altered(replace(schema, partitioning=after), changes)


def _missing(schema: TableSchema, name: str, partitions: Sequence[Partition]) -> list[Partition]:
    taken = {partition.name.lower() for partition in partitioned(schema, name).partitions}
    return [partition for partition in partitions if partition.name.lower() not in taken]


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
                version = _put_version_without(tx, table, partition, plan)
        except HeadMoved:
            continue
        table.published(state.schema)
        return version
    with table.catalog.write() as tx:
        state = table.advance(tx, None)
        version = _put_version_without(tx, table, partition, _plan(state, partition))
    table.published(state.schema)
    return version


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
    altered = _without(partition)(before)
    _, deleted, _ = plan.effects()
    refuse_changes(before, table.name, _DROP, deleted)
    write = TableWrite(
        table.id,
        table.name,
        revision + 1,
        plan.version,
        plan.positions(),
        metrics=VersionMetrics(rows_deleted=deleted),
        commit_info=CommitInfo(is_blind=False, read_version=version, changes=list(altered.changes)),
        is_cleared=True,
    )
    made = put_revision(tx, table, altered.schema, write, _DROP)
    failpoint.hit("publish.before_commit")
    return made


@schema_change
def _without(schema: TableSchema, partition: Partition) -> Altered:
    partitioning = schema.partitioning
    left = tuple(p for p in partitioning.partitions if p.name != partition.name) if partitioning else ()
    if partitioning is None or len(left) == len(partitioning.partitions):
        raise NotFoundError(f"partition {partition.name!r} was dropped meanwhile", kind="unknown_partition")
    after = check_bounds(schema.column, replace(partitioning, partitions=left))
    return Altered(replace(schema, partitioning=after), (f"partition {partition.name} (dropped)",))
