"""The refusal of statements that are nested more deeply than they can be translated."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from seqstore.store.errors import InvalidInputError

_LOG: Final = logging.getLogger(__name__)
_PLACES: Final = 8  # of the code, that the log names
_LINES_MAX: Final = 100  # of the log: statements that are sent again and again must not fill the disk
_told: Final[set[str]] = set()


def too_deep() -> InvalidInputError:
    """Builds the error of expressions that are nested too deeply."""
    return InvalidInputError(
        "expected less deeply nested expressions, found more than 1,000 levels; write lists as IN (...)",
        kind="query",
    )


@contextmanager
def levels_checked() -> Iterator[None]:
    """Refuses what a block cannot walk through because of its depth, such as a UNION of a thousand queries.

    The log has the places of the code that called each other, for a statement that is not nested; the same
    places once in a process.

    Raises:
        InvalidInputError: instead of RecursionError.
    """
    try:
        yield
    except RecursionError as error:
        places = _places(error)
        if places not in _told and len(_told) < _LINES_MAX:
            _told.add(places)
            _LOG.warning("a statement ended at the limit of nested calls, in %s", places)
        raise InvalidInputError(
            "expected a less deeply nested statement: it has too many queries or expressions within each "
            "other, or in one UNION; split it",
            kind="query",
        ) from error


def _places(error: RecursionError) -> str:
    """Returns the innermost calls of an error, the last one first, each place once."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = dict.fromkeys(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames)
    return ", ".join([*places][:_PLACES])
