"""The ids of the statement or load that a thread works for, which its log lines name."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol


class HasLogIds(Protocol):
    """A statement or load that goes on; its label may come to be known later."""

    def log_ids(self) -> Mapping[str, str]:
        """Returns what names it, without what is empty."""


_current: Final[ContextVar[HasLogIds | None]] = ContextVar("seqstore_log_ids", default=None)


@contextmanager
def logged_as(work: HasLogIds) -> Iterator[None]:
    """Gives log lines of this thread to a statement or load until the block ends.

    The block may end in another context than it began in, as that of a generator that gRPC runs.
    """
    before = _current.get()
    _current.set(work)
    try:
        yield
    finally:
        if _current.get() is work:
            _current.set(before)


class AddIds(logging.Filter):
    """Puts the ids into each record, as its attribute `ids`; drops none."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns True."""
        work = _current.get()
        record.ids = work.log_ids() if work is not None else {}
        return True
