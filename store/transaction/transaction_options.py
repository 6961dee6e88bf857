"""Options of a transaction over several tables, and options and outcome of one UPDATE, DELETE or MERGE."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from seqstore.store.catalog.transaction_record import TransactionStatus


class TransactionArguments(TypedDict, total=False):
    """The fields of `TransactionOptions` as keyword arguments of the calls that begin a transaction."""

    isolation: str | None
    label: str | None
    concurrency: str | None
    timeout_seconds: float | None
    operation: str
    txn_app_id: str | None
    txn_version: int | None
    database: str | None
    label_prefix: str
    reads_own_writes: bool


@dataclass(frozen=True)
class TransactionOptions:
    """Options of one transaction.

    Attributes:
        isolation: `Serializable` or `WriteSerializable`; a table's own level holds where it is stricter.
        label: makes the transaction idempotent: a second one with the same label is refused.
        concurrency: `serial`, `optimistic` or `unchecked`, see `catalog.update_lock`; None means the
            setting `enable_concurrent_update`.
        timeout_seconds: the time after which the transaction is rolled back, None for never (X13).
        operation: the word in the history that names the kind of the transaction.
        txn_app_id, txn_version: make the transaction idempotent on every table that it writes, both or
            neither: tables that an earlier run has written under this pair, or a larger version, are left
            alone, and `TransactionResult.skipped` names them.
        database: the database of the label where it is known beforehand: a used label is refused at once.
        label_prefix: of the generated label, when `label` is None.
        reads_own_writes: a statement sees the writes of earlier ones; False reads as in Doris (X7).
    """

    isolation: str | None = None
    label: str | None = None
    concurrency: str | None = None
    timeout_seconds: float | None = None
    operation: str = "TRANSACTION"
    txn_app_id: str | None = None
    txn_version: int | None = None
    database: str | None = None
    label_prefix: str = "txn_"
    reads_own_writes: bool = True

    @staticmethod
    def of(
        options: TransactionOptions | None, **arguments: Unpack[TransactionArguments]
    ) -> TransactionOptions:
        """Returns `options`, the defaults when None, with the fields that `arguments` name replaced."""
        options = options if options is not None else TransactionOptions()
        return replace(options, **arguments) if arguments else options


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
        operation, label, label_prefix, isolation, concurrency, txn_app_id, txn_version: see
            `TransactionOptions`.
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
