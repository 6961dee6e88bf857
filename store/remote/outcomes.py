"""The outcome of a load whose reply was lost together with its session: its label has it."""

from __future__ import annotations

from typing import Protocol

from seqstore.store.errors import ClosedError, StoreError, UnavailableError
from seqstore.store.load.load import LoadResult
from seqstore.store.remote.connection import LostReplyError


class Labelled(Protocol):
    """A table whose loads are known by their labels."""

    name: str

    def outcome(self, label: str) -> LoadResult | None:
        """Returns the outcome of a visible load."""


def met_by_label(table: Labelled, label: str, error: LostReplyError) -> LoadResult:
    """Returns the outcome of a load whose reply was lost.

    Raises:
        UnavailableError: it was not applied; load it again.
        CommitUnknownError: the server cannot be asked.
    """
    try:
        found = table.outcome(label)
    except (UnavailableError, ClosedError) as unreachable:
        raise LostReplyError(
            f"{error.message}; look up label {label!r}", kind=error.kind, label=label
        ) from unreachable
    except StoreError:
        raise
    if found is not None:
        return found
    raise UnavailableError(
        f"{table.name}: the connection broke before load {label!r} was applied; load it again",
        kind="connection_lost",
        label=label,
    ) from error
