"""Publishing: the one step that makes a load visible.

Within one write transaction of the catalog, given a plan made against the version that is still the newest:

1. Refuse when the table's schema has another revision, or the label was taken meanwhile.
2. The new version is head + 1. Store its segments, the bitmaps of the rows it hides, the version record,
   the transaction as VISIBLE and the new head.

LMDB commits all of it or nothing. If the head moved since the plan was made, nothing is stored and
`HeadMoved` says so: the plan is brought up to date (store.load) and publishing is tried again; after a few
tries under the writer lock, so that a load always gets through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from store import catalog, delete_bitmap, failpoint
from store.catalog import Transaction
from store.delete_bitmap import bitmap_of
from store.errors import ConflictError
from store.resolve import Plan
from store.segment import INLINE, Segment
from store.table_state import read_hidden
from store.transaction import VISIBLE, TransactionRecord, now_ms, put_transaction, refuse_used_label

TRIES_BEFORE_LOCK: Final = 2


class HeadMoved(Exception):
    """Another version was published since the plan was made. Never leaves the engine."""


@dataclass(frozen=True)
class Figures:
    """What history shows of a version, beside what its segments tell."""

    rows_total: int = 0
    rows_loaded: int = 0
    rows_filtered: int = 0
    rows_superseded: int = 0
    rows_late: int = 0
    rows_replaced: int = 0
    rows_deleted: int = 0
    bytes_written: int = 0
    milliseconds: int = 0


def publish(
    tx: Transaction,
    table_id: int,
    transaction: TransactionRecord,
    staged: Sequence[Segment],
    plan: Plan,
    figures: Figures,
    *,
    revision: int,
    label_keep_seconds: int,
) -> TransactionRecord:
    """Stores a version; see the module. Returns the transaction as it was stored.

    Raises:
        HeadMoved: the plan is not for the newest version.
        ConflictError: the schema changed since the load began.
        LabelExistsError: another load with this label was faster.
    """
    head, current_revision = catalog.head(tx, table_id)
    if current_revision != revision:
        raise ConflictError(
            f"{transaction.operation} {transaction.label!r} on {transaction.table} was prepared for schema "
            f"revision {revision}, but the table has {current_revision}; run it again",
            kind="metadata_changed",
            table=transaction.table,
        )
    refuse_used_label(tx, transaction.database, transaction.label, label_keep_seconds, own=transaction.id)
    if not transaction.id:
        transaction = replace(transaction, id=tx.next_id("txn"))
    if not staged:
        return _finish(tx, transaction, version=head)
    if head != plan.version:
        raise HeadMoved
    version = head + 1
    for segment in staged:
        key = catalog.segment_key(table_id, segment.meta.id)
        tx.put("segments", key, {"meta": segment.meta.to_record(), "created": version, "dropped": 0})
        if segment.meta.home == INLINE:
            tx.put("inline", key, segment.payload)
    hidden = {name: bitmap_of(positions) for name, positions in plan.positions().items()}
    covered = [hidden, *(read_hidden(tx, table_id, earlier) for earlier in delete_bitmap.children(version))]
    union = delete_bitmap.unite(covered)
    if union:
        tx.put_raw("bitmaps", catalog.version_key(table_id, version), delete_bitmap.encode(union))
    record: dict[str, Any] = {
        "revision": revision,
        "txn": transaction.id,
        "label": transaction.label,
        "operation": transaction.operation,
        "time_ms": now_ms(),
        "added": [segment.meta.id for segment in staged],
        "dropped": [],
        "figures": figures.__dict__,
    }
    tx.put("versions", catalog.version_key(table_id, version), record)
    tx.put("heads", catalog.table_key(table_id), [version, revision])
    done = _finish(tx, transaction, version=version)
    failpoint.hit("publish.before_switch")
    return done


def _finish(tx: Transaction, transaction: TransactionRecord, *, version: int) -> TransactionRecord:
    done = replace(transaction, status=VISIBLE, finished_ms=now_ms(), version=version)
    put_transaction(tx, done)
    tx.put("labels", catalog.label_key(done.database, done.label), done.id)
    return done
