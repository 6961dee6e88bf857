"""ADD PARTITION: declares more partitions in one change of the schema. Rows are unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from seqstore.store.ddl.alter import Altered, Change, alter
from seqstore.store.errors import AlreadyExistsError
from seqstore.store.schema.partitioning import Partition
from seqstore.store.schema.partitions import checked as check_partitioning
from seqstore.store.schema.partitions import partitioned
from seqstore.store.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable


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
    alter(table, [_with_added(table.name, partitions, if_not_exists)])


def _with_added(name: str, partitions: Sequence[Partition], if_not_exists: bool) -> Change:
    def change(schema: TableSchema) -> Altered:
        missing = _missing(schema, name, partitions)
        if len(missing) < len(partitions) and not if_not_exists:
            taken = next(partition.name for partition in partitions if partition not in missing)
            raise AlreadyExistsError(f"Duplicate partition name {taken}", kind="partition_exists")
        before = partitioned(schema, name)
        after = check_partitioning(schema, replace(before, partitions=(*before.partitions, *missing)))
        changes = tuple(f"partition {partition.name} (added)" for partition in missing)
        return Altered(replace(schema, partitioning=after), changes)

    return change


def _missing(schema: TableSchema, name: str, partitions: Sequence[Partition]) -> list[Partition]:
    taken = {partition.name.lower() for partition in partitioned(schema, name).partitions}
    return [partition for partition in partitions if partition.name.lower() not in taken]
