"""The upload of a call of Arrow Flight, whole or not at all, and in time.

gRPC ends the upload of a client that has left as it ends a complete one. So the rows that had arrived would
count as all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from seqstore.store import UnavailableError
from seqstore.store.runtime import cancellation


class WholeUpload:
    """A reader of the batches that a client sends.

    Args:
        reader: pyarrow's.
        has_all: returns whether the client has sent the end of its upload.
        waiting: entered while a batch is waited for.
    """

    def __init__(
        self, reader: Any, has_all: Callable[[], bool], waiting: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._reader = reader
        self._has_all = has_all
        self._waiting = waiting

    @property
    def schema(self) -> Any:
        """The columns of the upload."""
        return self._reader.schema

    def read_chunk(self) -> Any:
        """Returns the next batch, as pyarrow does.

        Raises:
            StopIteration: the client has sent all.
            UnavailableError: the statement was cancelled, or the client left before the end.
        """
        try:
            with self._waiting():
                found = self._reader.read_chunk()
        except StopIteration:
            cancellation.check()
            if not self._has_all():
                raise UnavailableError(
                    "the client has left before the end of its upload; nothing of it counts, send it again",
                    kind="interrupted",
                ) from None
            raise
        cancellation.check()
        return found
