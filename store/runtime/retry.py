"""Running a statement again when it met a conflict: bounded, with pauses that grow and vary.

Statements on one table take turns instead of pausing (update_lock): who waits for a turn begins as soon
as the one before has committed, and those that run again do not fail each other. A process that has just met
conflicts on a table begins its next statement there with its turn.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Final, TypeVar

from seqstore.store.errors import ConflictError, MetadataChangedException, ProtocolChangedException

T = TypeVar("T")
_PAUSE_SECONDS: Final = 0.002
_PAUSE_SECONDS_MAX: Final = 0.25
_log = logging.getLogger(__name__)


def retried(
    attempt: Callable[[], T], retries: int, turn: Callable[[], AbstractContextManager[bool]] | None = None
) -> T:
    """The value of the first attempt that meets no conflict.

    Args:
        retries: attempts after the first; each starts on a new snapshot.
        turn: waits for the turn of a statement that runs again, and tells whether it came.

    Raises:
        ConflictError: of the last attempt; its message counts the attempts and names the versions met.
    """
    met: list[int] = []
    has_turn = False
    with ExitStack() as held:
        for number in range(retries + 1):
            try:
                return attempt()
            except ConflictError as error:
                if isinstance(error, (MetadataChangedException, ProtocolChangedException)):
                    raise  # what was written may not fit the new schema
                met.append(int(error.fields.get("winner_version", 0)))
                if number == retries:
                    if not retries:
                        raise
                    raise _exhausted(error, met) from error
                pause = min(_PAUSE_SECONDS * 2 ** min(number, 16), _PAUSE_SECONDS_MAX)
                _log.info("conflict %d of at most %d: %s", number + 1, retries + 1, error)
                if turn is not None and not number:
                    has_turn = held.enter_context(turn())
                elif not has_turn:
                    time.sleep(pause * random.uniform(0.5, 1.5))
    raise AssertionError("unreachable")


def _exhausted(error: ConflictError, met: list[int]) -> ConflictError:
    fields = {**error.fields, "attempts": len(met), "winner_versions": tuple(met)}
    versions = ", ".join(map(str, met))
    message = f"{error.message}; {len(met)} attempts met versions {versions}"
    return type(error)(message, kind=error.kind, **fields)
