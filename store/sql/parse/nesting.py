"""The refusal of statements that are nested more deeply than they can be translated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seqstore.store.errors import InvalidInputError


def too_deep() -> InvalidInputError:
    """Builds the error of expressions that are nested too deeply."""
    return InvalidInputError(
        "expected less deeply nested expressions, found more than 1,000 levels; write lists as IN (...)",
        kind="query",
    )


@contextmanager
def levels_checked() -> Iterator[None]:
    """Refuses what a block cannot walk through because of its depth, such as a UNION of a thousand queries.

    Raises:
        InvalidInputError: instead of RecursionError.
    """
    try:
        yield
    except RecursionError as error:
        raise InvalidInputError(
            "expected a less deeply nested statement: it has too many queries or expressions within each "
            "other, or in one UNION; split it",
            kind="query",
        ) from error
