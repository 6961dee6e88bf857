"""ALTER TABLE's changes of columns: add, drop, rename, modify.

Each is a `Change` of a schema (ddl.alter). Most touch no file, because files refer to columns by their ids
(SC1). A type that is not just wider, and a change of the key, need every row to be written anew.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce

from seqstore.store.ddl.alter import Altered, schema_change
from seqstore.store.ddl.column_order import Place, move_column
from seqstore.store.errors import AlreadyExistsError, InvalidInputError
from seqstore.store.schema import properties as props
from seqstore.store.schema.column import Column, Default, default_scalar, hidden_name
from seqstore.store.schema.column_groups import (
    group_properties,
    refuse_rename,
    refuse_type_change,
    with_added,
    without_column,
)
from seqstore.store.schema.declaration import check_cluster_columns, check_default, check_name
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.column_types import ColumnType, is_wider
from seqstore.store.types.type_changes import refuse_change


@schema_change
def add_column(
    schema: TableSchema,
    column: Column,
    *,
    after: str | None = None,
    is_first: bool = False,
    is_key: bool = False,
) -> Altered:
    """Adds a column; existing rows have its default.

    A key column keeps keys unique: rows differ in the key that they had.

    Args:
        after: the column before it; None means at the end, of a key column at the end of the key.
        is_first: it stands before all others.
        is_key: it becomes a part of the key. The rows of a unique key are written anew.
    """
    if schema.groups and not is_key:  # a column alone is in no group
        with_added(schema.groups, [*schema.columns, column], schema.key, {})
    _refuse_addition(schema, column)
    default_scalar(column, datetime.now())
    initial = column.default
    if initial is not None and initial.is_current_time:  # evaluated once for the rows that are there
        now = datetime.now().replace(microsecond=0)
        initial = Default("constant", str(default_scalar(column, now).as_py()))
    added = replace(column, id=_next_id(schema), initial=initial)
    key_columns = len(schema.declared_key)
    end = key_columns if is_key else len(schema.columns)
    place = end if after is None else schema.columns.index(schema.column(after)) + 1
    place = 0 if is_first else place
    if is_key:
        _refuse_key(schema, added, place)
    elif place < key_columns:
        raise _bad_column(
            f"Invalid column order. value should be after key. column {column.name!r} is no key column: use "
            "AFTER, or KEY"
        )
    columns = (*schema.columns[:place], added, *schema.columns[place:])
    changed = replace(schema, columns=columns, next_column_id=added.id + 1)
    if not is_key:
        return Altered(changed, (f"column {column.name} (added)",))
    key = (*schema.declared_key[:place], added.name, *schema.declared_key[place:])
    declared = replace(changed, duplicate_key=key) if schema.is_duplicate else replace(changed, key=key)
    return Altered(declared, (f"key column {column.name} (added)",), rewrites=not schema.is_duplicate)


def _refuse_addition(schema: TableSchema, column: Column) -> None:
    """Checks a new column by itself."""
    check_name(column.name, "column")
    if hidden_name(column.name) or column.name.upper().startswith("__DORIS_"):
        raise InvalidInputError(f"column name {column.name!r} is reserved", kind="bad_name")
    if schema.find(column.name) is not None:
        raise AlreadyExistsError(f"Can not add column which already exists in base table: {column.name}")
    if column.auto_increment is not None:
        raise _bad_column(f"column {column.name!r}: AUTO_INCREMENT is declared when a table is made")
    if not column.nullable and column.default is None:
        raise InvalidInputError(
            f"column {column.name!r} is NOT NULL and has no default: rows that are there would lack it",
            kind="bad_default",
        )


def _refuse_key(schema: TableSchema, column: Column, place: int) -> None:
    """Checks that a new column can stand in the key at some place."""
    if not schema.declared_key:
        raise _bad_column(
            f"Duplicate table without keys do not support add key column! {column.name!r}: leave KEY out"
        )
    if not column.type.can_be_key:
        raise InvalidInputError(
            f"column {column.name!r}: {column.type} cannot be the type of a key column", kind="bad_type"
        )
    if place > len(schema.declared_key):
        raise _bad_column(f"Invalid column order. value should be after key. key column {column.name!r}")
    if column.on_update_current_timestamp:
        raise _bad_column(f"column {column.name!r}: ON UPDATE is for value columns")


@schema_change
def add_columns(
    schema: TableSchema,
    columns: Sequence[Column],
    properties: Mapping[str, str],
    *,
    keys: Collection[str] = (),
) -> Altered:
    """Adds columns at the end of the key or of the table, and the column groups that they form (SM7).

    Args:
        properties: `sequence_mapping.<column>` for each new group of a table that has groups.
        keys: names of the key columns among them.
    """
    changes = [add_column(column, is_key=column.name in keys) for column in columns]
    grown = reduce(Altered.then, changes, Altered(replace(schema, groups=()), ()))
    if not schema.groups and not properties:
        return grown
    groups = with_added(schema.groups, grown.schema.columns, grown.schema.key, properties)
    declared = {**schema.properties, **group_properties(groups)}
    return replace(grown, schema=replace(grown.schema, groups=groups, properties=declared))


@schema_change
def drop_column(schema: TableSchema, name: str) -> Altered:
    """Removes a value column; its id is not reused.

    As in Delta, a partition column stays: without it, conflicts could not be separated by partition.
    """
    column = schema.column(name)
    if column.name in schema.key:
        raise InvalidInputError(f"key column {column.name!r} cannot be dropped", kind="key_column")
    if not schema.value_columns or len(schema.columns) == 1:
        raise _bad_column(f"column {column.name!r} is the last one")
    _refuse_constrained(schema, column)
    if column.name in schema.partition_columns:
        raise InvalidInputError(
            f"column {column.name!r} is named by the property {props.PARTITION_COLUMNS} and cannot be "
            "dropped; set or unset that property first",
            kind="partition_column",
        )
    if column.name == schema.sequence_column:
        raise InvalidInputError(
            f"Can not drop sequence mapping column[{column.name}] in Unique data model table",
            kind="sequence_column",
        )
    if column.name in schema.cluster_columns:
        raise InvalidInputError(
            f"column {column.name!r} is in CLUSTER BY ({', '.join(schema.cluster_columns)}) and cannot be "
            "dropped",
            kind="cluster_column",
        )
    columns = tuple(c for c in schema.columns if c.id != column.id)
    groups = without_column(schema.groups, column.name)
    plain = {k: v for k, v in schema.properties.items() if k not in group_properties(schema.groups)}
    changed = replace(
        schema,
        columns=columns,
        next_column_id=_next_id(schema),
        groups=groups,
        properties={**plain, **group_properties(groups)},
        duplicate_key=_each(schema.duplicate_key, column.name, ()),
    )
    return Altered(changed, (f"column {column.name} (dropped)",))


def _each(names: tuple[str, ...] | None, name: str, others: tuple[str, ...]) -> tuple[str, ...] | None:
    """Returns names with others in the place of one; None for no names."""
    if names is None:
        return None
    return tuple(kept for each in names for kept in (others if each == name else (each,)))


@schema_change
def rename_column(schema: TableSchema, name: str, new_name: str) -> Altered:
    """Renames a column, and the references to it: a sequence that mirrors it (SD7), the property of partition
    columns.
    """
    column = schema.column(name)
    refuse_rename(schema.groups, column.name)
    _refuse_constrained(schema, column)
    check_name(new_name, "column")
    if schema.find(new_name) not in (None, column):
        raise AlreadyExistsError(f"column {new_name!r} exists")
    renamed = replace(column, name=new_name)
    columns = tuple(renamed if c.id == column.id else c for c in schema.columns)
    key = tuple(new_name if k == column.name else k for k in schema.key)
    properties = dict(schema.properties)
    sequence_column = schema.sequence_column
    if sequence_column == column.name:
        sequence_column = properties[props.SEQUENCE_COL] = new_name
    if schema.partitioning is not None and column.name in schema.partitioning.columns:
        raise InvalidInputError(
            f"column {column.name!r} partitions the table and keeps its name", kind="partition_column"
        )
    if column.name in schema.cluster_columns:
        clustered = (new_name if part == column.name else part for part in schema.cluster_columns)
        properties[props.CLUSTER_BY] = ",".join(clustered)
    if column.name in schema.partition_columns:
        named = (new_name if part == column.name else part for part in schema.partition_columns)
        properties[props.PARTITION_COLUMNS] = ",".join(named)
    quoted = re.compile(re.escape(f"`{column.name}`"), re.IGNORECASE)  # as the user wrote it
    distribution = quoted.sub(lambda _: f"`{new_name}`", schema.distribution)
    changed = replace(
        schema,
        columns=columns,
        key=key,
        duplicate_key=_each(schema.duplicate_key, column.name, (new_name,)),
        sequence_column=sequence_column,
        properties=properties,
        distribution=distribution,
    )
    return Altered(changed, (f"column {column.name} (renamed to {new_name})",))


@schema_change
def restate_column(
    schema: TableSchema,
    declared: Column,
    *,
    nullable: bool | None,
    is_key: bool = False,
    place: Place | None = None,
) -> Altered:
    """Implements MODIFY COLUMN of Doris: declares the column anew, of another type, nullable, with another
    comment or at another place.

    A default that is not repeated stays; another default is refused.

    Args:
        nullable: None when the statement does not state it: then a value column may be NULL.
        is_key: the statement declares a key column.
        place: None where it stays.
    """
    column = schema.column(declared.name)
    if is_key and column.name not in schema.declared_key:
        raise _bad_column(f"Can not change a value column to a key column: column {column.name}")
    _refuse_other_values(column, declared)
    may_be_null = nullable
    if nullable is None and column.name not in schema.declared_key and column.auto_increment is None:
        may_be_null = True
    comment = declared.comment or None
    changed = modify_column(declared.name, declared.type, nullable=may_be_null, comment=comment)(schema)
    return changed if place is None else changed.then(move_column(declared.name, place))


def _refuse_other_values(column: Column, declared: Column) -> None:
    """Refuses another default: as in Doris, the value of a column in rows without one cannot change."""
    known = column.default or Default("null")
    if declared.default is not None and declared.default != known:
        raise InvalidInputError(
            f"Can not change default value: column {column.name} has {known.sql}; leave DEFAULT out, or add "
            "another column",
            kind="bad_default",
        )
    if declared.auto_increment is not None and declared.auto_increment != column.auto_increment:
        raise _bad_column(f"Can not change AUTO_INCREMENT: column {column.name}")
    if declared.on_update_current_timestamp and not column.on_update_current_timestamp:
        raise _bad_column(f"Can not change ON UPDATE CURRENT_TIMESTAMP: column {column.name}")


@schema_change
def modify_column(
    schema: TableSchema,
    name: str,
    kind: ColumnType,
    *,
    nullable: bool | None = None,
    comment: str | None = None,
) -> Altered:
    """Changes a column's type, or makes it nullable; rows of a wider type are read through it.

    Args:
        nullable, comment: None leaves it unchanged.
    """
    column = schema.column(name)
    if kind != column.type:
        _refuse_type_change(schema, column, kind)
    may_be_null = column.nullable if nullable is None else nullable
    if column.nullable and not may_be_null:
        raise _bad_column(f"Can not change from nullable to non-nullable: column {column.name}")
    text = column.comment if comment is None else comment
    changed = replace(column, type=kind, nullable=may_be_null, comment=text)
    rewrites = not _is_light(schema, column, changed)
    if rewrites:
        _refuse_constrained(schema, column)
        changed = _with_castable_values(changed)
    columns = tuple(changed if c.id == column.id else c for c in schema.columns)
    check_cluster_columns(columns, dict(schema.properties))
    altered = replace(schema, columns=columns)
    return Altered(altered, (f"column {column.name} (now {kind})",), rewrites=rewrites)


def _is_light(schema: TableSchema, column: Column, changed: Column) -> bool:
    """Returns whether rows that are there can be read as the changed column; those of a key also need their
    codes."""
    if not is_wider(column.type, changed.type):
        return False
    if column.name not in schema.key:
        return True
    return column.type.name == changed.type.name and column.nullable == changed.nullable


def _refuse_type_change(schema: TableSchema, column: Column, kind: ColumnType) -> None:
    """Checks that nothing but the values depends on a column's type, and that Doris allows the new one."""
    if column.name == schema.sequence_column:
        raise InvalidInputError(f"Can not alter sequence column[{column.name}]", kind="sequence_column")
    refuse_type_change(schema.groups, column.name)
    if is_wider(column.type, kind) and (column.name not in schema.key or column.type.name == kind.name):
        return
    if schema.partitioning is not None and column.name in schema.partitioning.columns:
        raise InvalidInputError(f"Can not modify partition column[{column.name}]", kind="partition_column")
    if column.auto_increment is not None:
        raise _bad_column(f"Can not change AUTO_INCREMENT: column {column.name} stays {column.type}")
    if column.on_update_current_timestamp and kind.name != "DATETIME":
        raise _bad_column(f"Can not change ON UPDATE CURRENT_TIMESTAMP: column {column.name}")
    refuse_change(column.name, column.type, kind)
    if column.name in schema.declared_key and not kind.can_be_key:
        raise InvalidInputError(
            f"column {column.name!r}: {kind} cannot be the type of a key column", kind="bad_type"
        )


def _with_castable_values(changed: Column) -> Column:
    """Returns a column whose default fits its new type; rows older than it have that default, too, where
    their own value does not.

    Raises:
        InvalidInputError: the default does not fit.
    """
    check_default(changed)
    try:
        default_scalar(replace(changed, default=changed.initial), datetime.now())
    except InvalidInputError:
        return replace(changed, initial=None)
    return changed


@schema_change
def comment_column(schema: TableSchema, name: str, comment: str) -> Altered:
    """Changes the comment of a column, and nothing else."""
    column = schema.column(name)
    changed = replace(column, comment=comment)
    columns = tuple(changed if c.id == column.id else c for c in schema.columns)
    return Altered(replace(schema, columns=columns), (f"column {column.name} (its comment)",))


def _bad_column(message: str) -> InvalidInputError:
    return InvalidInputError(message, kind="bad_column")


def _refuse_constrained(schema: TableSchema, column: Column) -> None:
    for constraint in schema.constraints:
        if constraint.columns([column.name]):
            raise InvalidInputError(
                f"column {column.name!r} is part of the CHECK constraint {constraint.name}; drop that first",
                kind="check_constraint",
            )


def _next_id(schema: TableSchema) -> int:
    return max(schema.next_column_id, *(column.id + 1 for column in schema.columns))
