"""Publishing: the one step that makes a transaction visible, on every table it writes.

Within one write transaction of the catalog, given for each table a plan made against the version that is
still its newest:

1. Refuse when a table's schema has another revision, the label was taken meanwhile, or another run with the
   same application id committed.
2. For each table the new version is head + 1. Store its segments, the bitmaps of the rows it hides, the
   version record (catalog.version_record), and the new head; once the transaction as VISIBLE.

LMDB commits all of it or nothing. If the head of one table moved since its plan was made, nothing is stored
and `HeadMoved` is raised. Then plans are brought up to date (publish.commit) and publishing is tried again;
after a few tries under the writer lock, so that a load always succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.app_ids import AppWrite
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.prepared_records import forget_prepared
from seqstore.store.catalog.transaction_record import (
    TransactionRecord,
    TransactionStatus,
    now_ms,
    put_transaction,
    read_transaction,
    refuse_used_label,
    require_unchanged,
)
from seqstore.store.catalog.version_record import (
    CommitInfo,
    VersionMetrics,
    VersionRecord,
    put_version_record,
)
from seqstore.store.conflict.conflict import Conflict, ConflictKind
from seqstore.store.conflict.conflict_errors import (
    committed_name,
    creation,
    current_transaction,
    error_of,
    recreated_error,
    schema_error,
)
from seqstore.store.conflict.read_set import APP_ID
from seqstore.store.errors import NotFoundError
from seqstore.store.runtime import failpoint
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.segment import INLINE, Segment

TRIES_BEFORE_LOCK: Final = 2


class HeadMoved(Exception):
    """Another version was published since the plan was made. Never leaves the engine."""


@dataclass(frozen=True)
class TableWrite:
    """The share of one table in the commit point of a transaction.

    Attributes:
        table_id: of the table.
        name: `db.table`, for messages and the transaction's record.
        revision: the schema revision it was prepared for.
        base: the version it was prepared against.
        hidden: the rows it hides, by segment.
        staged: segments it adds, in order.
        dropped: ids of segments it drops (compaction).
        metrics: for the history.
        commit_info: later transactions are checked against it.
        has_data_change, is_cleared, restored: see `VersionRecord`.
        must_be_newest: even if nothing is written, the reads must have been checked up to the head.
        read_mark: version that was read by a transaction which writes other tables only, 0 for none.
        app: the pair of an idempotent write.
    """

    table_id: int
    name: str
    revision: int
    base: int
    hidden: Mapping[str, Positions] = field(default_factory=dict)
    staged: Sequence[Segment] = ()
    dropped: Sequence[str] = ()
    metrics: VersionMetrics = field(default_factory=VersionMetrics)
    commit_info: CommitInfo | None = None
    must_be_newest: bool = False
    read_mark: int = 0
    app: AppWrite | None = None
    has_data_change: bool = True
    is_cleared: bool = False
    restored: int | None = None


def publish(
    tx: CatalogTransaction,
    transaction: TransactionRecord,
    writes: Sequence[TableWrite],
    *,
    label_keep_seconds: int,
) -> TransactionRecord:
    """Stores one version on each table that is written; see the module.

    Returns:
        The transaction as it was stored; `versions` has the version of each table, which is the one before
        where nothing was written, `version` that of the first.

    Raises:
        HeadMoved: a plan is not for the newest version.
        ConflictError: a schema changed since the transaction began.
        LabelExistsError: another load with this label was faster.
        InvalidInputError: another process has committed or aborted the transaction.
    """
    if transaction.id:  # else its label is generated
        require_unchanged(tx, transaction)
    made = [bool(write.staged or write.dropped or write.hidden) for write in writes]
    heads = [check_revision(tx, transaction, w.table_id, w.name, w.revision, w.commit_info) for w in writes]
    for write in writes:
        if write.app is not None:
            _refuse_raced_app(tx, write, write.app, transaction.operation)
    if transaction.id:
        refuse_used_label(tx, transaction.database, transaction.label, label_keep_seconds, own=transaction.id)
    for head, write, is_made in zip(heads, writes, made, strict=True):
        if head != write.base and (is_made or write.must_be_newest):
            raise HeadMoved
    ended = replace(transaction, id=transaction.id or tx.next_id("txn"), finished_ms=now_ms())
    versions: dict[str, int] = {}
    for head, write, is_made in zip(heads, writes, made, strict=True):
        version = versions[write.name] = head + is_made
        if is_made:
            put_version(tx, ended, write, version)
        if write.read_mark or write.app is not None:
            _put_marks(tx, ended, write, version)
    first, status = next(iter(versions.values()), 0), TransactionStatus.VISIBLE
    done = replace(ended, status=status, version=first, versions=versions)
    put_transaction(tx, done)
    tx.put("labels", catalog.label_key(done.database, done.label), done.id)
    if transaction.status == TransactionStatus.PRECOMMITTED:
        forget_prepared(tx, done.id)
    if any(made):
        failpoint.hit("publish.before_commit")
    return done


def check_revision(
    tx: CatalogTransaction,
    transaction: TransactionRecord,
    table_id: int,
    name: str,
    revision: int,
    commit_info: CommitInfo | None = None,
) -> int:
    """Returns the newest version of a table that still has the schema a transaction was prepared for.

    Args:
        commit_info: of the version to be made, with its isolation level and the version it read.

    Raises:
        ConflictError: schema, properties or features changed since, or the table was made anew.
        NotFoundError: it was dropped.
    """
    try:
        head, newest = catalog.head(tx, table_id, name)
    except NotFoundError as error:
        made = catalog.find_table(tx, transaction.database, name.partition(".")[2])
        if made is None:
            raise
        current = current_transaction(tx, table_id, name, transaction.operation, revision, commit_info)
        raise recreated_error(current, creation(tx, made)) from error
    if newest != revision:
        raise schema_error(
            tx,
            table_id,
            name=name,
            operation=transaction.operation,
            revision=revision,
            commit_info=commit_info,
        )
    return head


def _refuse_raced_app(tx: CatalogTransaction, write: TableWrite, app: AppWrite, operation: str) -> None:
    stored = tx.get("apps", catalog.app_key(write.table_id, app.app_id))
    if stored is None or int(stored["txn"]) == app.seen_txn:
        return
    current = current_transaction(
        tx, write.table_id, write.name, operation, write.revision, write.commit_info
    )
    if not current.read_version:
        current = replace(current, read_version=app.seen_version)
    other = read_transaction(tx, int(stored["txn"]))
    named = (other.operation, other.label) if other is not None else ("", "")
    conflict = Conflict(ConflictKind.TRANSACTION, int(stored["table_version"]), *named, APP_ID)
    raise error_of(
        [conflict],
        current,
        f"{current.opening} and carries txnAppId {app.app_id!r} version {app.version}, but another run with "
        f"this id, {committed_name(conflict)}, committed version {stored['version']} as table version "
        f"{conflict.version} meanwhile {current.because(APP_ID)}; run it again, or give each run its own "
        "txnAppId",
        kind=conflict.kind,
        app_id=app.app_id,
        app_version=int(stored["version"]),
        own_app_version=app.version,
    )


def _put_marks(
    tx: CatalogTransaction, transaction: TransactionRecord, write: TableWrite, version: int
) -> None:
    """Stores the marks that a transaction leaves on a table beside a version."""
    if write.read_mark:
        key = catalog.table_key(write.table_id)
        tx.put("readers", key, max(int(tx.get("readers", key) or 0), write.read_mark))
    if write.app is not None:
        stored = {"version": write.app.version, "table_version": version, "txn": transaction.id}
        tx.put("apps", catalog.app_key(write.table_id, write.app.app_id), stored)


def put_version(
    tx: CatalogTransaction, transaction: TransactionRecord, write: TableWrite, version: int
) -> None:
    """Stores one version of one table, as of the end of its transaction, and makes it the head."""
    table_id = write.table_id
    added = []
    for segment in write.staged:
        meta, record = segment.meta, segment.meta.to_record()
        key = catalog.segment_key(table_id, meta.id)
        tx.put_new("segments", key, {"meta": record, "created": version, "dropped": 0})
        if meta.home == INLINE:
            tx.put("inline", key, segment.payload)
        added.append(meta.id)
    for segment_id in write.dropped:
        key = catalog.segment_key(table_id, segment_id)
        tx.put("segments", key, {**tx.require("segments", key), "dropped": version})
    made = VersionRecord(
        write.revision,
        transaction.id,
        transaction.label,
        transaction.operation,
        transaction.finished_ms,
        added,
        write.dropped,
        write.metrics,
        write.commit_info,
        write.has_data_change,
        write.is_cleared,
        write.restored,
    )
    put_version_record(tx, table_id, version, made, write.hidden)
    tx.put("heads", catalog.table_key(table_id), [version, write.revision])
