"""The outcome of a write whose reply was lost together with its session: its label has it.

So the client gives every write a label, where the caller gives none.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from seqstore.store.errors import ClosedError, UnavailableError
from seqstore.store.load.load import LoadResult
from seqstore.store.remote.connection import LostReplyError
from seqstore.store.transaction.transaction_options import DmlResult


class Labelled(Protocol):
    """A table whose loads are known by their labels."""

    name: str

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Runs a call at the server."""

    def outcome(self, label: str) -> LoadResult | None:
        """Returns the outcome of a visible load."""


def new_label(prefix: str = "") -> str:
    """Returns a label that no other write has."""
    return f"{prefix}{uuid.uuid4()}"


def run_labelled(table: Labelled, name: str, arguments: Mapping[str, Any], *, prefix: str) -> DmlResult:
    """Runs an UPDATE, DELETE or MERGE under a label; of a lost reply its counts are those of the version.

    Raises:
        UnavailableError: the reply is lost, and the statement was not applied.
        CommitUnknownError: the reply is lost, and the server cannot be asked.
    """
    label = arguments.get("label") or new_label(prefix)
    try:
        done: DmlResult = table.call(name, {**arguments, "label": label})
    except LostReplyError as error:
        found = met_by_label(table, label, error)
        changed = found.rows_loaded - found.rows_superseded - found.rows_late
        return DmlResult(found.txn_id, label, found.version, found.rows_loaded, changed)
    return done


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
    if found is not None:
        return found
    raise UnavailableError(
        f"{table.name}: the connection broke before {label!r} was applied; run it again",
        kind="connection_lost",
        label=label,
    ) from error
