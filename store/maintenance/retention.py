"""Retention: which versions can be read, and the only module that removes old ones.

The first version that may still be opened is the one that was the newest `version_retention_seconds` ago. The
horizon of a table, the first version that must stay whole, is that version, or the smallest that a live
process or a follower holds (catalog.leases, failover.follower). A holder of a moment holds the version that
was the newest ten minutes before it. Versions behind the horizon may be thinned out (maintenance.thinning).

Vacuum then:

1. In one transaction: closes other versions, except for processes that hold them. In the next: moves the
   horizon. Segments that no whole version has move from `segments` to `trash`. Bitmap records before the
   horizon that no later version's chain needs are deleted, and so are the entries of those segments in the
   kept records (K6); then those of thinned versions that no kept version's chain needs. Version records older
   than `history_retention_seconds` are deleted.
2. Deletes the files of segments in the trash, unless a held version has them or a segment restored from one
   uses the same files; then deletes the trash records.
3. Deletes files of processes that ended before they published them (maintenance.recovery), and removes
   transactions and labels that ended long ago (catalog.label_retention).

A crash between the first two leaves trash, which the next vacuum finds. One vacuum of a table runs at a time,
over all processes: an older plan would keep versions open that a newer one has given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.horizon import keep_bitmaps, version_at
from seqstore.store.catalog.kept_versions import (
    KeptVersions,
    open_versions,
    put_open,
    put_whole,
    whole_versions,
)
from seqstore.store.catalog.label_retention import forget_transactions
from seqstore.store.catalog.leases import leases_of
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.catalog.version_chain import needed_bitmaps, require_whole
from seqstore.store.catalog.version_record import hidden_record, read_hidden
from seqstore.store.errors import InvalidInputError, UnavailableError
from seqstore.store.locks.file_lock import FileLock, Patience
from seqstore.store.maintenance.compaction_policy import MaintenancePolicy
from seqstore.store.maintenance.recovery import file_ids, sweep_table
from seqstore.store.maintenance.thinning import Ages, Holders, open_after, prepared_versions, whole_after
from seqstore.store.runtime import cancellation, failpoint
from seqstore.store.runtime.disk_errors import disk_error
from seqstore.store.segment.delete_bitmap import chain
from seqstore.store.segment.segment import INLINE, SegmentMeta, data_name, keys_name

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_BATCH: Final = 2_000  # records per transaction
_COMMIT_MS: Final = 600_000  # no commit takes longer
_WAIT_SECONDS: Final = 600.0  # for the end of another vacuum of the table
_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True)
class VacuumResult:
    """The removals of a vacuum, or of a dry run.

    Attributes:
        oldest: the first version that can be opened afterwards.
        versions: how many can no longer be opened.
        segments: those that no openable or held version has.
        files, bytes: deleted, and their size.
        held: versions that live processes hold.
        orphans: files of dead processes that no version names, deleted.
        transactions: of the whole store, removed with their labels because they ended long ago.
    """

    oldest: int
    versions: int
    segments: int
    files: tuple[str, ...]
    bytes: int
    held: tuple[int, ...]
    orphans: tuple[str, ...] = ()
    transactions: int = 0


def vacuum(
    table: VersionedTable, *, retention_seconds: int | None = None, dry_run: bool = False
) -> VacuumResult:
    """Removes everything that no version within the retention needs; see the module.

    Nothing is removed from a table whose records do not add up. It waits for another vacuum of the table.

    Args:
        retention_seconds: instead of the table's own.
        dry_run: only report the removals.

    Raises:
        InvalidInputError: the retention is no whole number of seconds, or below 0.
        CorruptionError: a record of the table is missing.
        UnavailableError: another vacuum of the table does not end.
    """
    if retention_seconds is not None and not (isinstance(retention_seconds, int) and retention_seconds >= 0):
        raise InvalidInputError(
            f"retention_seconds must be a whole number of seconds, 0 or more, found {retention_seconds!r}",
            kind="bad_value",
        )
    if dry_run:
        return _vacuumed(table, retention_seconds, dry_run=True)
    with _alone(table, _WAIT_SECONDS) as is_alone:
        if not is_alone:
            raise UnavailableError(
                f"{table.name}: another vacuum of the table has not ended within {_WAIT_SECONDS:.0f} "
                "seconds; end it, or try again later",
                kind="vacuum_runs",
            )
        return _vacuumed(table, retention_seconds, dry_run=False)


def vacuum_unless_busy(table: VersionedTable) -> VacuumResult | None:
    """Runs a vacuum as `vacuum` does; None, at once, while another one of the table runs."""
    with _alone(table, 0) as is_alone:
        return _vacuumed(table, None, dry_run=False) if is_alone else None


@contextmanager
def _alone(table: VersionedTable, seconds: float) -> Iterator[bool]:
    """Keeps other vacuums of the table waiting during the block; yields False if one runs all the time."""
    path = table.catalog.data_dir / "locks" / f"vacuum-{table.id}"
    lock, ends = FileLock(path), time.monotonic() + seconds
    try:
        while not (is_held := lock.acquire(Patience(min(_LOOK_SECONDS, max(ends - time.monotonic(), 0))))):
            cancellation.check()
            if time.monotonic() >= ends:
                break
    except OSError as error:
        raise disk_error(path, error) from error
    try:
        yield is_held
    finally:
        if is_held:
            lock.release()


def _vacuumed(table: VersionedTable, retention_seconds: int | None, *, dry_run: bool) -> VacuumResult:
    far = frozenset(table.catalog.shipper.follower_moments(table.catalog))
    with table.catalog.read() as tx:
        require_whole(tx, table.id)
        plan = _Plan.of(tx, table, retention_seconds, far)
        doomed = _unneeded(tx, table.id, plan.whole)
        waiting = _trash(tx, table.id)
    if dry_run:
        files = _files(table, [*doomed.values(), *waiting.values()])
    else:
        if plan.open != plan.before:
            with table.catalog.write() as tx:
                put_open(tx, table.id, plan.open)
            failpoint.hit("vacuum.closed")
        _forget(table, plan, sorted(doomed))
        failpoint.hit("vacuum.forgotten")
        files = _empty_trash(table, leases_of(table.catalog.data_dir).held(table.id) | plan.needed)
    return VacuumResult(
        plan.open.first,
        plan.before.count(plan.newest) - plan.open.count(plan.newest),
        len(doomed),
        tuple(name for name, _ in files),
        sum(size for _, size in files),
        tuple(sorted(plan.holders.held | plan.holders.of_moments)),
        tuple(
            sweep_table(table.catalog, table.loader.disk, table.id, table.loader.directory, dry_run=dry_run)
        ),
        forget_transactions(table.catalog, table.settings.label_keep_seconds, dry_run=dry_run),
    )


@dataclass(frozen=True)
class _Plan:
    """The versions that a vacuum of a table is to leave.

    Attributes:
        newest: version.
        before, open: the versions that could be opened, and those that can be.
        whole: the versions that stay whole, unless more are held by then.
        holders: as of now.
        needed: versions that readers of other formats may need.
        far: moments that followers hold.
    """

    newest: int
    before: KeptVersions
    open: KeptVersions
    whole: KeptVersions
    holders: Holders
    needed: frozenset[int]
    far: frozenset[int]

    @classmethod
    def of(
        cls,
        tx: CatalogTransaction,
        table: VersionedTable,
        retention_seconds: int | None,
        far: frozenset[int],
    ) -> _Plan:
        newest, revision = catalog.head(tx, table.id, table.name)
        policy = MaintenancePolicy.of(table.loader.schema(tx, revision), table.settings)
        seconds = policy.version_retention_seconds if retention_seconds is None else retention_seconds
        needed = frozenset(table.needed_versions(seconds))
        holders = _holders(tx, table, newest, needed, far)
        before, ages = open_versions(tx, table.id), Ages(now_ms(), seconds, policy.thinning)
        after = open_after(tx, table.id, newest, before, ages, holders)
        whole = whole_after(whole_versions(tx, table.id), after, holders)
        return cls(newest, before, after, whole, holders, needed, far)


def _holders(
    tx: CatalogTransaction,
    table: VersionedTable,
    newest: int,
    needed: frozenset[int],
    far: frozenset[int],
) -> Holders:
    """Returns the holders of versions as of now: live processes, followers, readers of other formats.

    A version has the time at which its commit began, and the commit may have ended after a moment that is
    later than that time. So a moment holds the version that was the newest some time before it.
    """
    leases = leases_of(table.catalog.data_dir)
    of_moments = {version_at(tx, table.id, newest, moment - _COMMIT_MS) for moment in leases.moments() | far}
    return Holders(
        frozenset(leases.held(table.id)) | needed,
        frozenset(max(version, 1) for version in of_moments),
        prepared_versions(tx, table.id) | needed,
    )


def _unneeded(tx: CatalogTransaction, table: int, whole: KeptVersions) -> dict[bytes, dict[str, Any]]:
    """Returns segments that no whole version has, by catalog key."""
    records = tx.records("segments", catalog.table_key(table))
    return {key: record for key, record in records if _is_unneeded(record, whole)}


def _is_unneeded(segment: Mapping[str, Any], whole: KeptVersions) -> bool:
    dropped: int = segment["dropped"]
    return 0 < dropped <= whole.following(segment["created"])


def _trash(tx: CatalogTransaction, table: int) -> dict[bytes, dict[str, Any]]:
    return dict(tx.records("trash", catalog.table_key(table)))


def _forget(table: VersionedTable, plan: _Plan, doomed: list[bytes]) -> None:
    """Runs step 1, in transactions of bounded size.

    Where the horizon stays, nothing is written: an idle table costs no write. A process that acquired an
    older version since the slots were read keeps it: the slots are read again under the writer lock.
    """
    whole = plan.whole
    with table.catalog.read() as tx:
        has_moved = whole != whole_versions(tx, table.id)
    if has_moved:
        with table.catalog.write() as tx:
            holders = _holders(tx, table, plan.newest, plan.needed, plan.far)
            whole = whole_after(whole_versions(tx, table.id), plan.open, holders)
            _forget_bitmaps(tx, table.id, whole.first)
            put_whole(tx, table.id, whole)
        failpoint.hit("vacuum.thinned")

    def move_to_trash(tx: CatalogTransaction, key: bytes) -> None:
        segment = tx.get("segments", key)
        if segment is not None and _is_unneeded(segment, whole):
            tx.put("trash", key, segment)
            tx.delete("segments", key)
            tx.delete("inline", key)

    _in_batches(table, doomed, move_to_trash)
    _in_batches(table, _thinned_bitmaps(table, whole), lambda tx, key: tx.delete("bitmaps", key))
    _forget_versions(table, whole.first)


def _thinned_bitmaps(table: VersionedTable, whole: KeptVersions) -> list[bytes]:
    """Returns the keys of the bitmap records between the first whole version and the last thinned one that no
    whole version needs.
    """
    needed = needed_bitmaps(whole)
    gone = []
    with table.catalog.read() as tx:
        for key, _ in tx.items("bitmaps", catalog.table_key(table.id)):
            version = int.from_bytes(key[8:])
            if version >= whole.every:
                break
            if version > whole.first and version not in needed:
                gone.append(key)
    return gone


def _in_batches(
    table: VersionedTable, keys: Sequence[bytes], change: Callable[[CatalogTransaction, bytes], None]
) -> None:
    """Changes records in transactions of bounded size, so that loads wait briefly."""
    for start in range(0, len(keys), _BATCH):
        with table.catalog.write() as tx:
            for key in keys[start : start + _BATCH]:
                change(tx, key)


def _forget_bitmaps(tx: CatalogTransaction, table: int, oldest: int) -> None:
    """Keeps, of the records before the horizon, those in its chain: no later version's chain has another.

    A chain descends by decrements of the lowest non-zero octal digit of the version. Two chains meet at the
    first digit in which their versions differ. Below it, the smaller version's chain contains the records
    that the other needs.
    """
    needed, stored = set(chain(oldest)), []
    for key, _ in list(tx.items("bitmaps", catalog.table_key(table))):
        version = int.from_bytes(key[8:])
        if version > oldest:
            break
        if version not in needed:
            tx.delete("bitmaps", key)
            continue
        hidden = read_hidden(tx, table, version)
        kept = {}
        for name, rows in hidden.items():
            segment = tx.get("segments", catalog.segment_key(table, name))
            if segment is not None and not 0 < segment["dropped"] <= oldest:
                kept[name] = rows
        if not kept:
            tx.delete("bitmaps", key)
            continue
        stored.append([version, tx.put("bitmaps", key, hidden_record(kept))])
    keep_bitmaps(tx, table, stored)


def _forget_versions(table: VersionedTable, oldest: int) -> None:
    """Removes version records that neither readers nor the history need."""
    before_ms = now_ms() - table.settings.history_retention_seconds * 1000
    prefix = catalog.table_key(table.id)
    with table.catalog.read() as tx:
        gone = []
        for key, record in tx.records("versions", prefix):
            if int.from_bytes(key[8:]) >= oldest or record["time_ms"] >= before_ms:
                break
            gone.append(key)
    _in_batches(table, gone, lambda tx, key: tx.delete("versions", key))


def _empty_trash(table: VersionedTable, held: set[int]) -> list[tuple[str, int]]:
    """Runs step 2; returns the deleted files, with their sizes."""
    with table.catalog.read() as tx:
        waiting = _trash(tx, table.id)
        used = file_ids(tx, table.id, "segments")
    ready = {
        key: record
        for key, record in waiting.items()
        if not any(record["created"] <= version < record["dropped"] for version in held)
    }
    for key in waiting.keys() - ready.keys():
        used.add(SegmentMeta.from_record(waiting[key]["meta"]).file_id)
    unused = [r for r in ready.values() if SegmentMeta.from_record(r["meta"]).file_id not in used]
    files = _files(table, unused)
    if files:
        table.catalog.make_durable()
    for name, _ in files:
        table.loader.disk.delete(name)
        failpoint.hit("vacuum.deleted")
    _in_batches(table, sorted(ready), lambda tx, key: tx.delete("trash", key))
    return files


def _files(table: VersionedTable, records: Iterable[dict[str, Any]]) -> list[tuple[str, int]]:
    """Returns names and sizes of the files of some segments."""
    files: dict[str, int] = {}
    for record in records:
        meta = SegmentMeta.from_record(record["meta"])
        if meta.home != INLINE:
            files[data_name(table.loader.directory, meta)] = meta.data_bytes
            files[keys_name(table.loader.directory, meta)] = meta.keys_bytes
    return sorted(files.items())
