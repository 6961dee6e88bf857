"""The schema that rows of a load need: new columns, and columns of a wider type.

Unlike those of ALTER TABLE, these changes never write rows anew, so that they are part of the load's own
commit (publish.evolution). A column becomes wider where each stored value, cast when it is read, is a value
of the new type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from seqstore.store.ddl.alter import Altered, schema_change
from seqstore.store.ddl.column_changes import add_column, modify_column
from seqstore.store.errors import InvalidInputError, StoreError
from seqstore.store.maintenance.schema_change_job import refuse_during_change
from seqstore.store.open_table.open_table import require_openable
from seqstore.store.publish.evolution import Evolution
from seqstore.store.schema.column import Column
from seqstore.store.schema.features import require_writable
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.column_types import ColumnType, is_wider, takes_values_of

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable


def evolve(
    table: VersionedTable, base: TableSchema, added: Sequence[Column], widened: Mapping[str, ColumnType]
) -> Evolution:
    """Returns the next revision of a table.

    Args:
        base: the newest revision.
        added: nullable columns that come at the end.
        widened: new types of columns, by name.

    Raises:
        InvalidInputError: a change that is not possible.
    """
    require_writable(base.features)
    changes = [*map(add_column, added), *(widen_column(name, kind) for name, kind in widened.items())]
    altered = reduce(Altered.then, changes, Altered(base, ()))
    require_openable(altered.schema, table.loader.disk)
    return Evolution(
        base,
        replace(altered.schema, revision=base.revision + 1),
        altered.changes,
        partial(refuse_during_change, table_id=table.id, name=table.name),
    )


@schema_change
def widen_column(schema: TableSchema, name: str, kind: ColumnType) -> Altered:
    """Changes a column's type to one that takes all of its values, and leaves the rows as they are.

    Raises:
        InvalidInputError: it does not, or more than the values depends on the type.
    """
    column = schema.column(name)
    if is_wider(column.type, kind):
        altered = modify_column(name, kind)(schema)
        if altered.rewrites:
            raise _not_wider(column, kind, "rows of its key would be written anew")
        return altered
    reason = _fixed_by(schema, column)
    if reason or not takes_values_of(kind, column.type):
        raise _not_wider(column, kind, reason or "it does not take all of its values")
    default = column.default
    if default is not None and default.is_current_time:
        raise _not_wider(column, kind, "its default is of the old type")
    changed = replace(column, type=kind)
    columns = tuple(changed if each.id == column.id else each for each in schema.columns)
    return Altered(replace(schema, columns=columns), (f"column {column.name} (now {kind})",))


def can_widen(schema: TableSchema, name: str, kind: ColumnType) -> bool:
    """Returns whether `widen_column` is possible."""
    try:
        widen_column(name, kind)(schema)
    except StoreError:
        return False
    return True


def _fixed_by(schema: TableSchema, column: Column) -> str:
    """Returns what depends on the exact type of a column, empty if nothing does."""
    partitioned = schema.partitioning.columns if schema.partitioning is not None else ()
    reasons = (
        (column.name in schema.declared_key, "it is a key column"),
        (column.name == schema.sequence_column, "it is the sequence"),
        (column.name in (*partitioned, *schema.partition_columns), "it is a partition column"),
        (column.name in schema.cluster_columns, "it is in CLUSTER BY"),
        (column.auto_increment is not None, "it is AUTO_INCREMENT"),
        (bool(schema.groups), "the table has column groups"),
        (bool(schema.open_formats), "rows would be written anew for the open table format"),
        (any(each.columns([column.name]) for each in schema.constraints), "a CHECK constraint names it"),
    )
    return next((reason for applies, reason in reasons if applies), "")


def _not_wider(column: Column, kind: ColumnType, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"column {column.name!r} cannot become {kind} from {column.type} with a load: {reason}; use ALTER "
        "TABLE ... MODIFY COLUMN",
        kind="bad_type",
    )
