"""Transaction records and labels.

A record holds the state of one load: PREPARE (running), PRECOMMITTED (durable, any process may commit or
abort it, publish.two_phase), VISIBLE (published; here COMMITTED and VISIBLE are one step) or ABORTED (with
the reason). A label names at most one transaction that is not ABORTED within
its database (X16), until it is older than `label_keep_seconds` (X18). A PREPARE record names its owner, the
process that runs it; when that process is gone, whatever it staged is gone with it, so the record counts as
ABORTED. A PRECOMMITTED one outlives its process. Neither outlives its term, where it has one (X13).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from seqstore.store.catalog import catalog
from seqstore.store.errors import InvalidInputError, LabelExistsError
from seqstore.store.runtime.process_identity import is_alive, this_process


class TransactionStatus(StrEnum):
    """The state of a transaction, by the name that Doris gives it."""

    PREPARE = "PREPARE"
    PRECOMMITTED = "PRECOMMITTED"
    VISIBLE = "VISIBLE"
    ABORTED = "ABORTED"


EXPIRED: Final = "timeout by txn manager"
OWNER_ENDED: Final = "the process that ran it ended"
_LABEL_LENGTH_MAX: Final = 128
_CLIENT_LABEL: Final = re.compile(r"[-_A-Za-z0-9:]{1,128}")
_TIMEOUT_SECONDS_MAX: Final = 1e9  # longer ones are for ever, and still fit a record


@dataclass(frozen=True)
class TransactionRecord:
    """One transaction.

    Attributes:
        id: unique in the store.
        database: its id.
        table: `db.table` it writes.
        operation: the kind of statement, such as LOAD, STREAM LOAD, INSERT.
        begun_ms, finished_ms: Unix time; 0 while not finished.
        version: table version it made, of the first table when it writes several; 0 if none.
        versions: table version it made, by `db.table`.
        reason: why it was aborted (X20).
        owner: process id and start time of the process that runs it.
        precommitted_ms: when it was pre-committed, 0 if never.
        expires_ms: when it is aborted unless it was ended, 0 if never.
    """

    id: int
    database: int
    table: str
    label: str
    status: TransactionStatus
    operation: str
    begun_ms: int
    finished_ms: int = 0
    version: int = 0
    reason: str = ""
    owner: tuple[int, int] = (0, 0)
    precommitted_ms: int = 0
    expires_ms: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """Returns the catalog record; `from_record` reads it."""
        return {**self.__dict__, "status": str(self.status)}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> TransactionRecord:
        """Reads a record of `to_record`."""
        status = TransactionStatus(record["status"])
        return cls(**{**record, "status": status, "owner": tuple(record["owner"])})


def check_label(label: str) -> str:
    """Returns a label if it is 1 to 128 bytes of printable text without blanks.

    Raises:
        InvalidInputError: the message shows the label.
    """
    printable = bool(label) and all(c.isprintable() and not c.isspace() for c in label)
    if not printable or len(label.encode()) > _LABEL_LENGTH_MAX:
        raise InvalidInputError(
            f"label {label[:140]!r}: expected 1 to {_LABEL_LENGTH_MAX} bytes of printable text, no blanks",
            kind="bad_label",
        )
    return label


def check_client_label(label: str) -> str:
    """Returns a label that a client may give: the same over HTTP and in SQL, as in Doris.

    Raises:
        InvalidInputError: the message shows the label.
    """
    if not _CLIENT_LABEL.fullmatch(label):
        raise InvalidInputError(
            f"Label format error. regex: ^{_CLIENT_LABEL.pattern}$, label: {label[:140]}", kind="bad_label"
        )
    return label


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def read_transaction(tx: catalog.CatalogTransaction, txn_id: int) -> TransactionRecord | None:
    record = tx.get("txns", catalog.txn_key(txn_id))
    return None if record is None else TransactionRecord.from_record(record)


def find_label(tx: catalog.CatalogTransaction, database: int, label: str) -> TransactionRecord | None:
    """Returns the transaction a label names, None when it never named one."""
    try:
        key = catalog.label_key(database, check_label(label))
    except InvalidInputError:
        return None
    txn_id = tx.get("labels", key)
    return None if txn_id is None else read_transaction(tx, txn_id)


def put_transaction(tx: catalog.CatalogTransaction, record: TransactionRecord) -> None:
    stored = record.to_record()
    tx.put("txns", catalog.txn_key(record.id), stored)


def begin(
    tx: catalog.CatalogTransaction,
    *,
    database: int,
    table: str,
    label: str,
    operation: str,
    keep_seconds: int,
    begun_ms: int = 0,
    timeout_seconds: float | None = None,
) -> TransactionRecord:
    """Starts a transaction and reserves its label.

    Args:
        keep_seconds: how long the label of a finished transaction stays taken.
        begun_ms: when it began, 0 for now.
        timeout_seconds: how long after that it is aborted, None for never.

    Raises:
        LabelExistsError: the label names a running or finished transaction.
    """
    refuse_used_label(tx, database, label, keep_seconds)
    begun_ms = begun_ms or now_ms()
    status = TransactionStatus.PREPARE
    record = TransactionRecord(tx.next_id("txn"), database, table, label, status, operation, begun_ms)
    expires_ms = 0
    if timeout_seconds is not None:
        expires_ms = begun_ms + round(min(timeout_seconds, _TIMEOUT_SECONDS_MAX) * 1000)
    record = replace(record, owner=this_process(), expires_ms=expires_ms)
    put_transaction(tx, record)
    tx.put("labels", catalog.label_key(database, label), record.id)
    return record


def move(
    tx: catalog.CatalogTransaction, record: TransactionRecord, *, database: int, table: str, keep_seconds: int
) -> TransactionRecord:
    """Takes a running transaction and its label to another database.

    Raises:
        LabelExistsError: the label names a transaction there.
        InvalidInputError: another process has aborted the transaction.
    """
    require_unchanged(tx, record)
    refuse_used_label(tx, database, record.label, keep_seconds)
    before = catalog.label_key(record.database, record.label)
    if tx.get("labels", before) == record.id:
        tx.delete("labels", before)
    moved = replace(record, database=database, table=table)
    put_transaction(tx, moved)
    tx.put("labels", catalog.label_key(database, record.label), record.id)
    return moved


def refuse_used_label(
    tx: catalog.CatalogTransaction, database: int, label: str, keep_seconds: int, *, own: int = 0
) -> None:
    """Raises unless the label is free or belongs to transaction `own`.

    Raises:
        LabelExistsError: with the text of LS4 and the transaction's id and status.
    """
    txn_id = tx.get("labels", catalog.label_key(database, label))
    if txn_id is None or txn_id == own:
        return
    record = read_transaction(tx, txn_id)
    if record is None or abort_abandoned(tx, record).status == TransactionStatus.ABORTED:
        return
    if record.status == TransactionStatus.VISIBLE and now_ms() - record.finished_ms > keep_seconds * 1000:
        return
    raise LabelExistsError(
        f"Label [{label}] has already been used, relate to txn [{record.id}], status [{record.status}].",
        kind="label_exists",
        label=label,
        txn_id=record.id,
        status=record.status,
        version=record.version,
    )


def precommitted(record: TransactionRecord, keep_seconds: int) -> TransactionRecord:
    """Returns the record of a transaction whose first phase is done."""
    now = now_ms()
    status = TransactionStatus.PRECOMMITTED
    return replace(record, status=status, precommitted_ms=now, expires_ms=now + keep_seconds * 1000)


def abort(tx: catalog.CatalogTransaction, record: TransactionRecord, reason: str) -> TransactionRecord:
    """Stores a transaction as aborted; its label is free then."""
    aborted = replace(record, status=TransactionStatus.ABORTED, finished_ms=now_ms(), reason=reason)
    put_transaction(tx, aborted)
    return aborted


def abandoned_reason(record: TransactionRecord) -> str:
    """Returns why a transaction counts as aborted before its record does; empty when it does not."""
    if record.status not in (TransactionStatus.PREPARE, TransactionStatus.PRECOMMITTED):
        return ""
    if record.status == TransactionStatus.PREPARE and not is_alive(record.owner):
        return OWNER_ENDED
    return EXPIRED if 0 < record.expires_ms < now_ms() else ""


def abort_abandoned(tx: catalog.CatalogTransaction, record: TransactionRecord) -> TransactionRecord:
    """Returns the record, aborted if its process has ended or its time is over."""
    reason = abandoned_reason(record)
    return abort(tx, record, reason) if reason else record


def require_unchanged(tx: catalog.CatalogTransaction, record: TransactionRecord) -> None:
    """Raises when another process has ended a transaction meanwhile.

    Raises:
        InvalidInputError: with the text of PC4.
    """
    stored = read_transaction(tx, record.id)
    if stored is not None and stored.status != record.status:
        raise not_precommitted(stored)


def not_precommitted(record: TransactionRecord) -> InvalidInputError:
    """Returns why a transaction cannot be committed (PC4)."""
    already = "already " if record.status == TransactionStatus.VISIBLE else ""
    return _wrong_status(record, f"is {already}{record.status.lower()}, not pre-committed.")


def not_abortable(record: TransactionRecord) -> InvalidInputError:
    """Returns why a transaction cannot be aborted (PC4)."""
    return _wrong_status(record, f"is already {record.status}, could not abort.")


def _wrong_status(record: TransactionRecord, text: str) -> InvalidInputError:
    if record.status == TransactionStatus.ABORTED:
        text = f"is already aborted. abort reason: {record.reason}"
    return InvalidInputError(
        f"transaction [{record.id}] {text}",
        kind="txn_status",
        txn_id=record.id,
        label=record.label,
        status=record.status,
        version=record.version,
    )
