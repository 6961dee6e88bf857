"""The outcome of a write whose reply was lost together with its session: its label has it.

So the client gives every write a label, where the caller gives none.

1. A server that was away may have kept the session, and may still run the write. So it is asked for the reply
   once more (`run_once`), as long again, before the label is looked up.
2. A label that has not ended tells nothing yet: its load may be published at any moment. It is looked up
   until it has ended.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus
from seqstore.store.errors import AccessDeniedError, ClosedError, UnavailableError
from seqstore.store.load.load import LoadResult
from seqstore.store.remote.connection import Connection, LostReplyError, NoAnswerError, Request, pauses
from seqstore.store.transaction.transaction_options import DmlResult

_T = TypeVar("_T")
_UNASKED: Final = (AccessDeniedError, ClosedError, UnavailableError)
_OPEN: Final = (TransactionStatus.PREPARE, TransactionStatus.PRECOMMITTED)


class Labelled(Protocol):
    """A table whose loads are known by their labels."""

    name: str
    connection: Connection

    def request(self, name: str, arguments: Mapping[str, Any] | None = None) -> Request:
        """Returns the request of a call."""

    def outcome(self, label: str) -> LoadResult | None:
        """Returns the outcome of a visible load."""


def new_label(prefix: str = "") -> str:
    """Returns a label that no other write has."""
    return f"{prefix}{uuid.uuid4()}"


def run_labelled(table: Labelled, name: str, arguments: Mapping[str, Any], *, prefix: str) -> DmlResult:
    """Runs an UPDATE, DELETE or MERGE under a label; of a lost reply its counts are those of the version.

    Raises:
        UnavailableError: the reply is lost, and the statement was not applied.
        CommitUnknownError: the reply is lost, and so is its outcome for now.
    """
    label = arguments.get("label") or new_label(prefix)

    def met(error: LostReplyError) -> DmlResult:
        found = met_by_label(table, label, error)
        changed = found.rows_loaded - found.rows_superseded - found.rows_late
        return DmlResult(found.txn_id, label, found.version, found.rows_loaded, changed)

    return run_once(table.connection, table.request(name, {**arguments, "label": label}), label, met)


def run_load(table: Labelled, request: Request, label: str) -> LoadResult:
    """Runs the request of a load that has a label.

    Raises:
        UnavailableError: the reply is lost, and the load was not applied.
        CommitUnknownError: the reply is lost, and so is its outcome for now.
    """
    return run_once(table.connection, request, label, lambda error: met_by_label(table, label, error))


def run_once(connection: Connection, request: Request, label: str, met: Callable[[LostReplyError], _T]) -> _T:
    """Runs a write that has a label.

    Args:
        met: returns the outcome by the label, where the reply is lost.

    Raises:
        CommitUnknownError: the server does not answer.
    """
    try:
        try:
            found: _T = connection.run(request)
        except NoAnswerError:
            found = connection.run(request)  # asks for the reply first
    except NoAnswerError as error:
        raise _unknown(error, label) from error
    except LostReplyError as error:
        return met(error)
    return found


def met_by_label(table: Labelled, label: str, error: LostReplyError) -> LoadResult:
    """Returns the outcome of a load whose reply was lost.

    Raises:
        UnavailableError: it was not applied; load it again.
        CommitUnknownError: the server cannot be asked, or the load has not ended.
    """
    if ended(table.connection, table.name.partition(".")[0], label, error) is not None:
        try:
            found = table.outcome(label)
        except _UNASKED as unreachable:
            raise _unknown(error, label) from unreachable
        if found is not None:
            return found
    raise UnavailableError(
        f"{table.name}: the connection broke before {label!r} was applied; run it again",
        kind="connection_lost",
        label=label,
    ) from error


def ended(
    connection: Connection, database: str, label: str, error: LostReplyError
) -> TransactionRecord | None:
    """Returns the visible transaction of a label, None where there is none; waits for one that runs.

    Args:
        error: of the reply that was lost.

    Raises:
        CommitUnknownError: the server cannot be asked, or the transaction does not end within the time for
            which the client tries a lost server again.
    """
    ends = time.monotonic() + connection.retry_seconds
    for pause in pauses():
        request = Request("Store", "find_transaction", None, {"database": database, "label": label})
        try:
            found: TransactionRecord | None = connection.run(request)
        except _UNASKED as unreachable:
            raise _unknown(error, label) from unreachable
        if found is None or found.status not in _OPEN:
            return found if found is not None and found.status == TransactionStatus.VISIBLE else None
        if time.monotonic() > ends:
            raise LostReplyError(
                f"{error.message}; label {label!r} has not ended, its status is {found.status}; look it up",
                kind=error.kind,
                label=label,
            ) from error
        time.sleep(pause)
    raise AssertionError("unreachable")


def _unknown(error: LostReplyError, label: str) -> LostReplyError:
    return LostReplyError(f"{error.message}; look up label {label!r}", kind=error.kind, label=label)
