"""What checks the rows of a load, and how they are filled, by what its caller asked for."""

from __future__ import annotations

from datetime import datetime

from store.auto_increment import IdSource
from store.check_groups import GroupChecker
from store.check_partial import FLEXIBLE, UPSERT, PartialChecker, parse_new_key_behavior
from store.check_rows import RowChecker
from store.errors import InvalidInputError
from store.load import MERGE_TYPES
from store.partial import FillOptions
from store.schema import TableSchema


def checker_for(
    schema: TableSchema,
    table: str,
    sequence: str | None,
    delete_all: bool,
    moment: datetime,
    mode: str,
    *,
    ids: IdSource | None,
    ignore_null: bool,
    require_sequence: bool = True,
) -> RowChecker:
    """What checks the rows of a load: whole rows, partial ones, or those of column groups.

    Args:
        table: its name, for messages.
        sequence: the column of the data that gives the hidden sequence.
        moment: of CURRENT_TIMESTAMP defaults (A3).
        mode: from `parse_mode`.
        ids: gives the values of the AUTO_INCREMENT column.
    """
    if schema.groups:
        return GroupChecker(
            schema,
            table,
            sequence,
            delete_all,
            moment,
            flexible=mode == FLEXIBLE,
            ignore_null=ignore_null and mode != UPSERT,
            whole_rows=mode == UPSERT,
        )
    if mode == UPSERT:
        return RowChecker(
            schema, table, sequence, delete_all, moment, require_sequence=require_sequence, ids=ids
        )
    return PartialChecker(
        schema,
        table,
        sequence,
        delete_all,
        moment,
        ids=ids,
        flexible=mode == FLEXIBLE,
        ignore_null=ignore_null,
    )


def filling_for(schema: TableSchema, mode: str, new_keys: str, moment: datetime) -> FillOptions | None:
    """How rows are filled from history, None for whole rows of tables without column groups."""
    refuse = parse_new_key_behavior(new_keys) == "ERROR" and mode != UPSERT  # no effect on whole rows (P13)
    if mode == UPSERT and not schema.groups:
        return None
    return FillOptions(mode == FLEXIBLE, refuse_new_keys=refuse, now=moment)


def deletes_all(merge_type: str) -> bool:
    """Whether every row is a delete.

    Raises:
        InvalidInputError: no such merge type.
    """
    if merge_type.upper() not in MERGE_TYPES:
        raise InvalidInputError(f"Invalid merge type {merge_type}", kind="bad_merge_type")
    return merge_type.upper() == "DELETE"
