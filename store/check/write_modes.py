"""The modes of a write, as its caller names them: which columns, which new keys, which rows delete."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from seqstore.store.errors import InvalidInputError


class UpdateMode(StrEnum):
    """The cells that the rows of a write bring."""

    UPSERT = "UPSERT"
    FIXED = "UPDATE_FIXED_COLUMNS"
    FLEXIBLE = "UPDATE_FLEXIBLE_COLUMNS"


class NewKeyBehavior(StrEnum):
    """The treatment of new keys in a partial update."""

    APPEND = "APPEND"
    ERROR = "ERROR"


class MergeType(StrEnum):
    """The rows of a write that delete: none, all, or those whose delete sign is 1."""

    APPEND = "APPEND"
    DELETE = "DELETE"
    MERGE = "MERGE"


def duplicate_error(table: str, reason: str) -> InvalidInputError:
    """Returns the error of a write that only tables with a unique key take (T12).

    Args:
        reason: the text of Doris.
    """
    return InvalidInputError(
        f"{reason} Table {table} is a duplicate table: it adds rows and deletes them by condition; create it "
        "with UNIQUE KEY to change rows",
        kind="duplicate_table",
        table=table,
    )


_Mode = TypeVar("_Mode", UpdateMode, NewKeyBehavior, MergeType)


def parse_mode(mode: str) -> UpdateMode:
    """Returns an update mode, read without regard to case.

    Raises:
        InvalidInputError: with the text of F6.
    """
    message = (
        f"Invalid unique_key_partial_mode {mode}, must be one of 'UPSERT', 'UPDATE_FIXED_COLUMNS' or "
        "'UPDATE_FLEXIBLE_COLUMNS'"
    )
    return _parsed(UpdateMode, mode, message, "bad_mode")


def parse_new_key_behavior(behavior: str) -> NewKeyBehavior:
    """Returns a treatment of new keys, read without regard to case.

    Raises:
        InvalidInputError: with the text of P12.
    """
    message = f"partial_update_new_key_behavior should be one of {{'APPEND', 'ERROR'}}, but found {behavior}"
    return _parsed(NewKeyBehavior, behavior, message, "bad_new_key_behavior")


def parse_merge_type(merge_type: str) -> MergeType:
    """Returns a merge type, read without regard to case.

    Raises:
        InvalidInputError: no such merge type.
    """
    return _parsed(MergeType, merge_type, f"Invalid merge type {merge_type}", "bad_merge_type")


def _parsed(modes: type[_Mode], name: str, message: str, kind: str) -> _Mode:
    try:
        return modes(name.upper())
    except ValueError:
        raise InvalidInputError(message, kind=kind) from None
