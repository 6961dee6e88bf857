"""The modes of a write, as its caller names them: which columns, which new keys, which rows delete."""

from __future__ import annotations

from enum import StrEnum

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


def parse_mode(mode: str) -> UpdateMode:
    """Returns an update mode, read without regard to case.

    Raises:
        InvalidInputError: with the text of F6.
    """
    try:
        return UpdateMode(mode.upper())
    except ValueError:
        raise InvalidInputError(
            f"Invalid unique_key_partial_mode {mode}, must be one of 'UPSERT', 'UPDATE_FIXED_COLUMNS' or "
            "'UPDATE_FLEXIBLE_COLUMNS'",
            kind="bad_mode",
        ) from None


def parse_new_key_behavior(behavior: str) -> NewKeyBehavior:
    """Returns a treatment of new keys, read without regard to case.

    Raises:
        InvalidInputError: with the text of P12.
    """
    try:
        return NewKeyBehavior(behavior.upper())
    except ValueError:
        raise InvalidInputError(
            f"partial_update_new_key_behavior should be one of {{'APPEND', 'ERROR'}}, but found {behavior}",
            kind="bad_new_key_behavior",
        ) from None


def parse_merge_type(merge_type: str) -> MergeType:
    """Returns a merge type, read without regard to case.

    Raises:
        InvalidInputError: no such merge type.
    """
    try:
        return MergeType(merge_type.upper())
    except ValueError:
        raise InvalidInputError(f"Invalid merge type {merge_type}", kind="bad_merge_type") from None
