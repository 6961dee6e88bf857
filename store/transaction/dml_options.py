"""Options and outcome of one UPDATE, DELETE or MERGE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from seqstore.store.catalog.transaction_record import TransactionStatus


class DmlArguments(TypedDict, total=False):
    """The fields of `DmlOptions` that a caller chooses, as keyword arguments."""

    label: str | None
    isolation: str | None
    concurrency: str | None
    retries: int
    lock_seconds: float | None
    txn_app_id: str | None
    txn_version: int | None


@dataclass(frozen=True)
class DmlOptions:
    """How a statement runs.

    Attributes:
        operation: for history and messages.
        label: makes it idempotent.
        label_prefix: of the generated label, when none is given.
        txn_app_id, txn_version: of an idempotent statement, both or neither (catalog.app_ids).
        isolation: a level stricter than the table's.
        concurrency: serial, optimistic or unchecked; None means the setting.
        retries: how often it is run again after a conflict.
        lock_seconds: how long to wait for the lock, None for the setting; 0 fails at once (U4).
    """

    operation: str
    label: str | None = None
    isolation: str | None = None
    concurrency: str | None = None
    retries: int = 0
    lock_seconds: float | None = None
    label_prefix: str = "txn_"
    txn_app_id: str | None = None
    txn_version: int | None = None


@dataclass(frozen=True)
class DmlResult:
    """The outcome of an UPDATE, DELETE or MERGE.

    Attributes:
        rows_matched: rows its condition selected.
        rows_changed: rows that it changed in effect; fewer than matched when it lowered their sequence (U14).
        version: table version it made, the one it read when it changed nothing (U17).
        warnings: for the caller.
        status: VISIBLE, or DUPLICATE when it was committed before under its txnAppId and txnVersion.
    """

    txn_id: int
    label: str
    version: int
    rows_matched: int
    rows_changed: int
    warnings: tuple[str, ...] = ()
    status: str = TransactionStatus.VISIBLE
