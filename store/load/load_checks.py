"""What checks the rows of a load, and how they are filled, by what its caller asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from seqstore.store.catalog.auto_increment import IdSource
from seqstore.store.check.group_checker import GroupChecker
from seqstore.store.check.partial_checker import FLEXIBLE, UPSERT, PartialChecker, parse_new_key_behavior
from seqstore.store.check.row_checker import RowChecker
from seqstore.store.errors import InvalidInputError
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.load.write_options import WriteOptions
from seqstore.store.schema.table_schema import TableSchema

MERGE_TYPES: Final = ("APPEND", "DELETE", "MERGE")


def checker_for(
    schema: TableSchema, table: str, options: WriteOptions, *, ids: IdSource | None
) -> RowChecker:
    """Returns the checker of a load's rows: whole rows, partial ones, or those of column groups.

    Args:
        table: its name, for messages.
        options: with a mode from `parse_mode`.
        ids: the source of the values of the AUTO_INCREMENT column.
    """
    shared = (schema, table, options.sequence, deletes_all(options.merge_type), options.moment)
    is_flexible, mode = options.mode == FLEXIBLE, options.mode
    checker: RowChecker
    if schema.groups:
        checker = GroupChecker(
            *shared,
            flexible=is_flexible,
            ignore_null=options.ignore_null and mode != UPSERT,
            whole_rows=mode == UPSERT,
        )
    elif mode == UPSERT:
        checker = RowChecker(*shared, require_sequence=options.require_sequence, ids=ids)
    else:
        checker = PartialChecker(*shared, ids=ids, flexible=is_flexible, ignore_null=options.ignore_null)
    return replace(checker, partitions=tuple(options.partitions)) if options.partitions else checker


def filling_for(schema: TableSchema, options: WriteOptions) -> FillOptions | None:
    """Returns how rows are filled from history, None for whole rows of tables without column groups."""
    mode = options.mode
    # The treatment of new keys has no effect on whole rows (P13).
    refuse = parse_new_key_behavior(options.new_keys) == "ERROR" and mode != UPSERT
    if mode == UPSERT and not schema.groups:
        return None
    return FillOptions(mode == FLEXIBLE, refuse_new_keys=refuse, now=options.moment)


def deletes_all(merge_type: str) -> bool:
    """Whether every row is a delete.

    Raises:
        InvalidInputError: no such merge type.
    """
    if merge_type.upper() not in MERGE_TYPES:
        raise InvalidInputError(f"Invalid merge type {merge_type}", kind="bad_merge_type")
    return merge_type.upper() == "DELETE"
