"""The checker of a load's rows, and how they are filled, by the options of the load."""

from __future__ import annotations

from dataclasses import replace

from seqstore.store.catalog.auto_increment import IdSource
from seqstore.store.check.group_checker import GroupChecker
from seqstore.store.check.partial_checker import PartialChecker
from seqstore.store.check.row_checker import RowChecker
from seqstore.store.check.write_modes import (
    MergeType,
    NewKeyBehavior,
    UpdateMode,
    parse_merge_type,
    parse_new_key_behavior,
)
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.load.write_options import WriteOptions
from seqstore.store.schema.table_schema import TableSchema


def checker_for(
    schema: TableSchema, table: str, options: WriteOptions, *, ids: IdSource | None
) -> RowChecker:
    """Returns the checker of a load's rows: whole rows, partial ones, or those of column groups.

    Args:
        table: its name, for messages.
        options: with a mode from `parse_mode`.
        ids: the source of the values of the AUTO_INCREMENT column.
    """
    is_delete = parse_merge_type(options.merge_type) == MergeType.DELETE
    shared = (schema, table, options.sequence, is_delete, options.moment)
    is_flexible, mode = options.mode == UpdateMode.FLEXIBLE, options.mode
    checker: RowChecker
    if schema.groups:
        checker = GroupChecker(
            *shared,
            flexible=is_flexible,
            ignore_null=options.ignore_null and mode != UpdateMode.UPSERT,
            whole_rows=mode == UpdateMode.UPSERT,
        )
    elif mode == UpdateMode.UPSERT:
        checker = RowChecker(*shared, require_sequence=options.require_sequence, ids=ids)
    else:
        checker = PartialChecker(*shared, ids=ids, flexible=is_flexible, ignore_null=options.ignore_null)
    return replace(checker, partitions=tuple(options.partitions)) if options.partitions else checker


def filling_for(schema: TableSchema, options: WriteOptions) -> FillOptions | None:
    """Returns how rows are filled from history, None for whole rows of tables without column groups."""
    mode = options.mode
    # The treatment of new keys has no effect on whole rows (P13).
    refuse = parse_new_key_behavior(options.new_keys) == NewKeyBehavior.ERROR and mode != UpdateMode.UPSERT
    if mode == UpdateMode.UPSERT and not schema.groups:
        return None
    return FillOptions(mode == UpdateMode.FLEXIBLE, refuse_new_keys=refuse, now=options.moment)
