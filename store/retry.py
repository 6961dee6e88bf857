"""Running a statement again when it met a conflict: bounded, with pauses that grow and vary.

Statements on one table take turns instead of pausing (store.update_lock): who waits for a turn begins as soon
as the one before has committed, and those that run again do not fail each other.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, TypeVar

from store.errors import ConflictError, MetadataChangedException, ProtocolChangedException

T = TypeVar("T")
_PAUSE_SECONDS: Final = 0.002
_PAUSE_SECONDS_MAX: Final = 0.25
_log = logging.getLogger(__name__)


@contextmanager
def _pausing(seconds: float) -> Iterator[None]:
    time.sleep(seconds)
    yield


def retried(
    attempt: Callable[[], T],
    retries: int,
    wait: Callable[[float], AbstractContextManager[None]] = _pausing,
) -> T:
    """The value of the first attempt that meets no conflict.

    Args:
        retries: attempts after the first; each starts on a new snapshot.
        wait: is entered before each of these with a pause in seconds, and left behind it.

    Raises:
        ConflictError: of the last attempt; its message counts the attempts and names the versions met.
    """
    met: list[int] = []
    pause = 0.0
    for number in range(retries + 1):
        try:
            with wait(pause) if number else nullcontext():
                return attempt()
        except ConflictError as error:
            if isinstance(error, (MetadataChangedException, ProtocolChangedException)):
                raise  # what was written may not fit the new schema
            met.append(int(error.fields.get("winner_version", 0)))
            if number == retries:
                if not retries:
                    raise
                raise _exhausted(error, met) from error
            pause = min(_PAUSE_SECONDS * 2 ** min(number, 16), _PAUSE_SECONDS_MAX) * random.uniform(0.5, 1.5)
            _log.info(
                "conflict %d of at most %d, again in %.0f ms: %s",
                number + 1,
                retries + 1,
                pause * 1000,
                error,
            )
    raise AssertionError("unreachable")


def _exhausted(error: ConflictError, met: list[int]) -> ConflictError:
    fields = {**error.fields, "attempts": len(met), "winner_versions": tuple(met)}
    versions = ", ".join(map(str, met))
    message = f"{error.message}; {len(met)} attempts met versions {versions}"
    return type(error)(message, kind=error.kind, **fields)
