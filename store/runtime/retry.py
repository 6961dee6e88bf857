"""Running a statement again when it met a conflict: bounded, with pauses that grow and vary."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from seqstore.store.errors import ConflictError, MetadataChangedException, ProtocolChangedException

T = TypeVar("T")
_PAUSE_SECONDS: Final = 0.002
_PAUSE_SECONDS_MAX: Final = 0.25
_log = logging.getLogger(__name__)


def pause(retry: int) -> None:
    """Sleeps before a retry, the first being 1: longer before each one, never equally long."""
    seconds = min(_PAUSE_SECONDS * 2 ** min(retry - 1, 16), _PAUSE_SECONDS_MAX)
    time.sleep(seconds * random.uniform(0.5, 1.5))


def retried(attempt: Callable[[], T], retries: int, wait: Callable[[int], None] = pause) -> T:
    """Returns the value of the first attempt that meets no conflict.

    Args:
        retries: attempts after the first; each starts on a new snapshot.
        wait: called with its number, 1 first, before each retry.

    Raises:
        ConflictError: of the last attempt; its message counts the attempts and names the versions met.
    """
    met: list[int] = []
    while True:
        try:
            return attempt()
        except (MetadataChangedException, ProtocolChangedException):
            raise  # the rows of the statement may not fit the new schema
        except ConflictError as error:
            met.append(int(error.fields.get("winner_version", 0)))
            if not retries:
                raise
            if len(met) > retries:
                fields = {**error.fields, "attempts": len(met), "winner_versions": tuple(met)}
                versions = ", ".join(map(str, met))
                message = f"{error.message}; {len(met)} attempts met versions {versions}"
                raise type(error)(message, kind=error.kind, **fields) from error
            _log.info("conflict %d of at most %d: %s", len(met), retries + 1, error)
        wait(len(met))
