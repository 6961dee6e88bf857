"""Transaction records and labels.

A record tells what became of one load: PREPARE (running), VISIBLE (published; here COMMITTED and VISIBLE
are one step) or ABORTED (with the reason). A label names at most one transaction that is not ABORTED within
its database (X16), until it is older than `label_keep_seconds` (X18). A PREPARE record names its owner, the
process that runs it; when that process is gone, whatever it staged is gone with it, so the record counts as
ABORTED.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from store import catalog
from store.errors import InvalidInputError, LabelExistsError

PREPARE: Final = "PREPARE"
VISIBLE: Final = "VISIBLE"
ABORTED: Final = "ABORTED"
_LABEL_LENGTH_MAX: Final = 128
_ENDED: Final = (b"Z", b"X", b"x")  # zombie, dead


@dataclass(frozen=True)
class TransactionRecord:
    """One transaction.

    Attributes:
        id: unique in the store.
        database: id of its database.
        table: `db.table` it writes.
        label: chosen by the caller or generated.
        status: PREPARE, VISIBLE or ABORTED.
        operation: what made it, such as LOAD, STREAM LOAD, INSERT.
        begun_ms, finished_ms: Unix time; 0 while not finished.
        version: table version it made, of the first table when it writes several; 0 if none.
        versions: table version it made, by `db.table`.
        reason: why it was aborted (X20).
        owner: process id and start time of the process that runs it.
    """

    id: int
    database: int
    table: str
    label: str
    status: str
    operation: str
    begun_ms: int
    finished_ms: int = 0
    version: int = 0
    reason: str = ""
    owner: tuple[int, int] = (0, 0)
    versions: Mapping[str, int] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> TransactionRecord:
        return cls(**{**record, "owner": tuple(record["owner"])})


def check_label(label: str) -> str:
    """A label is 1 to 128 letters, digits, `_`, `-`, `.`, `:`, `/`, or other printable characters without
    blanks.

    Raises:
        InvalidInputError: with what was found.
    """
    printable = bool(label) and all(c.isprintable() and not c.isspace() for c in label)
    if not printable or len(label.encode()) > _LABEL_LENGTH_MAX:
        raise InvalidInputError(
            f"label {label[:140]!r}: expected 1 to {_LABEL_LENGTH_MAX} bytes of printable text, no blanks",
            kind="bad_label",
        )
    return label


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def this_process() -> tuple[int, int]:
    """Identity of this process; a later process with the same id differs in its start time."""
    return _own_identity(os.getpid())


def identity_of(pid: int) -> tuple[int, int]:
    """Identity of another process of this host."""
    return pid, _start_time(pid)


@lru_cache(maxsize=1)
def _own_identity(pid: int) -> tuple[int, int]:
    return identity_of(pid)


def _start_time(pid: int) -> int:
    """Clock ticks from boot to the start of a process, 0 when there is none, or only what its parent has not
    waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    # The name in parentheses may hold anything; the state and, 19 fields on, the start time come after it.
    facts = stat.rpartition(b")")[2].split()
    return 0 if facts[0] in _ENDED else int(facts[19])


def is_alive(owner: tuple[int, int]) -> bool:
    """Whether the process that owns a record still runs."""
    return owner[1] != 0 and _start_time(owner[0]) == owner[1]


def read_transaction(tx: catalog.Transaction, txn_id: int) -> TransactionRecord | None:
    record = tx.get("txns", catalog.txn_key(txn_id))
    return None if record is None else TransactionRecord.from_record(record)


def find_label(tx: catalog.Transaction, database: int, label: str) -> TransactionRecord | None:
    """The transaction a label names, None when it never named one."""
    try:
        key = catalog.label_key(database, check_label(label))
    except InvalidInputError:
        return None
    txn_id = tx.get("labels", key)
    return None if txn_id is None else read_transaction(tx, txn_id)


def put_transaction(tx: catalog.Transaction, record: TransactionRecord) -> None:
    tx.put("txns", catalog.txn_key(record.id), record.to_record())


def begin(
    tx: catalog.Transaction, *, database: int, table: str, label: str, operation: str, keep_seconds: int
) -> TransactionRecord:
    """Starts a transaction and takes its label.

    Raises:
        LabelExistsError: the label names a running or finished transaction.
    """
    refuse_used_label(tx, database, label, keep_seconds)
    txn_id = tx.next_id("txn")
    record = TransactionRecord(
        txn_id, database, table, label, PREPARE, operation, now_ms(), owner=this_process()
    )
    put_transaction(tx, record)
    tx.put("labels", catalog.label_key(database, label), txn_id)
    return record


def refuse_used_label(
    tx: catalog.Transaction, database: int, label: str, keep_seconds: int, *, own: int = 0
) -> None:
    """Raises unless the label is free or belongs to transaction `own`.

    Raises:
        LabelExistsError: with the text of LS4 and the transaction's id and status.
    """
    txn_id = tx.get("labels", catalog.label_key(database, label))
    if txn_id is None or txn_id == own:
        return
    record = read_transaction(tx, txn_id)
    if record is None or record.status == ABORTED:
        return
    if record.status == PREPARE and not is_alive(record.owner):
        abandoned = replace(
            record, status=ABORTED, finished_ms=now_ms(), reason="the process that ran it ended"
        )
        put_transaction(tx, abandoned)
        return
    if record.status == VISIBLE and now_ms() - record.finished_ms > keep_seconds * 1000:
        return
    raise LabelExistsError(
        f"Label [{label}] has already been used, relate to txn [{record.id}], status [{record.status}].",
        kind="label_exists",
        label=label,
        txn_id=record.id,
        status=record.status,
        version=record.version,
    )
