"""Conflicts: one transaction against those committed since it began to read. No I/O.

Given an `Attempt` and the window, its committed transactions in ascending order of versions:

1. A blind attempt has no data conflict. (Publishing checks schema, protocol and application ids.)
2. For each key that a committed transaction changed, applied rows only:
   ISO1 *seen*: the row before or after matches a predicate of the attempt, its key was looked up, or the
   whole table was read; and the row appeared, vanished, or one of its changed columns was looked at, its
   version among them.
   ISO2 *overwritten*: the attempt writes the key, and the row appeared or vanished, a side writes whole rows,
   or both write one column.
   ISO3 *exemption*, WriteSerializable only: the committed transaction is blind, the key had no row in the
   attempt's snapshot, not ISO2, and the guard holds: then the attempt counts as if it ran before.
3. Guard (ISO4): K is its keys; every later blind transaction that touches K adds its keys. The exemption
   is void if a later non-blind transaction that could see the first (it read at or after its version) read
   or wrote a key of K, or has opaque reads; or if a member of the chain wrote other tables too.
4. Without row-level checks a key counts as its partition, the table when there are none, and columns as all.

The remaining keys are conflicts: ConcurrentAppend where a row is new to the attempt, ConcurrentDeleteRead
where a row that it read changed or vanished, ConcurrentDeleteDelete where only its write meets another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from seqstore.store.catalog.version_record import CommitInfo
from seqstore.store.conflict.read_set import (
    NO_CODES,
    ROW_LEVEL_CHANGES,
    WHOLE_TABLE_REPLACE,
    Mask,
    Predicate,
    ReadLog,
    RecordedReads,
)
from seqstore.store.schema.column import VERSION_ID
from seqstore.store.schema.properties import IsolationLevel
from seqstore.store.segment.key_codes import Codes

_KEYS_SHOWN: Final = 5


class ConflictKind(Enum):
    """The exception a conflict becomes."""

    APPEND = "ConcurrentAppendException"
    DELETE_READ = "ConcurrentDeleteReadException"
    DELETE_DELETE = "ConcurrentDeleteDeleteException"
    METADATA = "MetadataChangedException"
    PROTOCOL = "ProtocolChangedException"
    TRANSACTION = "ConcurrentTransactionException"


@dataclass(frozen=True)
class Written:
    """Keys that an attempt writes, and the ids of the columns it writes of them; None means whole rows."""

    codes: Codes
    columns: frozenset[int] | None


@dataclass(frozen=True)
class Changes:
    """The keys that one committed transaction changed, one entry each, with the rows before and after.

    Attributes:
        was_live, is_live: whether a reader saw a row before, sees one after.
        in_snapshot: whether the attempt's snapshot has a row.
        keys: key columns.
        rows: returns the visible columns of the rows after, one an entry, and behind them of those before;
            tombstones too.
        entries: the entry of each of these rows.
    """

    codes: Codes
    was_live: Mask
    is_live: Mask
    in_snapshot: Mask
    keys: pa.Table
    rows: Callable[[], pa.Table]
    entries: Any

    def matches(self, test: Callable[[pa.Table], Mask]) -> tuple[Mask, Mask]:
        """Returns the entries whose row before satisfies a test, and those whose row after does."""
        count = len(self.codes)
        alive = np.append(self.is_live, self.was_live[self.entries[count:]])
        found, before = np.zeros(len(alive), dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        found[alive] = test(self.rows().filter(pa.array(alive)))
        before[self.entries[count:]] = found[count:]
        return before, found[:count]


@dataclass(frozen=True)
class CommittedTransaction:
    """One version committed in the window.

    Attributes:
        info: its reads, and the columns it wrote.
        changes: None when it changed no data.
        all_codes: every key it changed; `changes` may have fewer.
        replaces_table: all rows went at once (TRUNCATE, RESTORE).
        unresolved: why its rows could not be looked at: no time, or they are gone; empty when they could.
    """

    version: int
    operation: str
    label: str
    info: CommitInfo
    changes: Changes | None = None
    all_codes: Codes = field(default_factory=lambda: NO_CODES)
    replaces_table: bool = False
    unresolved: str = ""


@dataclass(frozen=True)
class Conflict:
    """One committed transaction that the attempt cannot pass.

    Attributes:
        kind: the exception it becomes.
        version, operation, label: of the committed transaction.
        reason: word for programs, see `conflict.read_set`.
        keys: up to five of the keys, or the partitions where keys were not looked at.
        count: keys in conflict.
        voided_by: the version that voided an exemption, 0 if none.
        changes: the changes of schema and properties, and features added (`+name`) or dropped (`-name`).
    """

    kind: ConflictKind
    version: int
    operation: str
    label: str
    reason: str
    keys: tuple[dict[str, Any], ...] = ()
    count: int = 0
    voided_by: int = 0
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """The transaction that wants to commit, on one table, and the commits since it began to read.

    Attributes:
        written: the keys it will write.
        window: the committed transactions, in ascending order of versions.
        reader_version: the newest version that a transaction which only read this table, and wrote others,
            had seen when it committed.
        fallback: why keys count as their partitions, empty when rows are looked at.
        changes_metadata: a metadata change depends on its reads, so no write is exempt (not ISO3).
        tables: how many tables its transaction writes or reads.
    """

    level: IsolationLevel
    reads: ReadLog
    written: Sequence[Written]
    window: Sequence[CommittedTransaction]
    reader_version: int
    fallback: str = ""
    changes_metadata: bool = False
    tables: int = 1
    partition_columns: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why rows are not looked at, else the word for a conflict of rows."""
        return self.fallback or ROW_LEVEL_CHANGES

    def conflicts(self) -> list[Conflict]:
        """Returns every conflict, in order of versions; see the module."""
        return [conflict for other in self.window for conflict in self._against(other)]

    def _against(self, other: CommittedTransaction) -> list[Conflict]:
        named = other.version, other.operation, other.label
        if other.unresolved:
            return [Conflict(ConflictKind.APPEND, *named, other.unresolved)]
        if other.replaces_table:
            return [Conflict(ConflictKind.DELETE_READ, *named, WHOLE_TABLE_REPLACE)]
        if other.changes is None or not len(other.changes.codes):
            return []
        return (self._by_partition if self.fallback else self._by_row)(other, other.changes)

    def _by_row(self, other: CommittedTransaction, changes: Changes) -> list[Conflict]:
        came_or_went = changes.was_live != changes.is_live
        seen, matched_before = self._seen(changes)
        columns = other.info.columns
        looked_at = columns is None or not (columns | {VERSION_ID}).isdisjoint(self.reads.columns)
        seen &= came_or_went | (looked_at & changes.was_live)
        overwritten = self._overwritten(other, changes, came_or_went)
        left, voided_by = seen | overwritten, 0
        if self._may_exempt(other):
            exempt = seen & ~changes.in_snapshot & ~overwritten
            voided_by = self._guard(other) if exempt.any() else 0
            left = left if voided_by else left & ~exempt
        is_new = left & seen & (~changes.in_snapshot | (~matched_before & changes.is_live))
        is_read = left & ~is_new & seen
        kinds = {
            ConflictKind.APPEND: is_new,
            ConflictKind.DELETE_READ: is_read,
            ConflictKind.DELETE_DELETE: left & ~is_new & ~is_read,
        }
        return [
            self._conflict(kind, other, changes, mask, voided_by)
            for kind, mask in kinds.items()
            if mask.any()
        ]

    def _seen(self, changes: Changes) -> tuple[Mask, Mask]:
        """Entries the attempt's reads cover, and those they covered before the change."""
        if self.reads.whole_table:
            return np.ones(len(changes.codes), dtype=np.bool_), changes.was_live
        before = np.isin(changes.codes, np.concatenate([NO_CODES, *self.reads.keys]))
        seen = before.copy()
        for predicate in self.reads.predicates:
            matched = changes.matches(predicate.matches)
            before |= matched[0]
            seen |= matched[1]
        return seen | before, before

    def _overwritten(self, other: CommittedTransaction, changes: Changes, came_or_went: Mask) -> Mask:
        """Returns which changed rows the attempt overwrites (ISO2).

        Both transactions write such a row. Without a common column, the row counts only if the other
        transaction inserted or deleted it.
        """
        columns = other.info.columns
        result = np.zeros(len(changes.codes), dtype=np.bool_)
        for written in self.written:
            mine = np.isin(changes.codes, written.codes)
            meets = columns is None or written.columns is None or not columns.isdisjoint(written.columns)
            result |= mine if meets else mine & came_or_went
        return result

    def _by_partition(self, other: CommittedTransaction, changes: Changes) -> list[Conflict]:
        """Finds conflicts without looking at rows.

        Partitions added to are tested first, then partitions removed from, whatever the columns.
        """
        removed, added = self._partitions_read(changes)
        voided_by = 0
        only_adds = not changes.was_live.any() and not changes.in_snapshot.any()
        if added.any() and only_adds and self._may_exempt(other):
            voided_by = self._guard(other)
            if not voided_by:
                added = np.zeros_like(added)
        for kind, mask in ((ConflictKind.APPEND, added), (ConflictKind.DELETE_READ, removed)):
            if mask.any():
                return [self._conflict(kind, other, changes, mask, voided_by)]
        overwritten = self._overwritten(other, changes, changes.was_live != changes.is_live)
        if overwritten.any():
            return [self._conflict(ConflictKind.DELETE_DELETE, other, changes, overwritten)]
        return []

    def _partitions_read(self, changes: Changes) -> tuple[Mask, Mask]:
        """Returns the entries whose row before, and those whose row after, lies in a partition read."""
        predicates = self.reads.predicates
        everything = self.reads.whole_table or bool(len(self.reads.codes)) or not predicates
        if everything or not self.partition_columns:
            return changes.was_live, changes.is_live
        return changes.matches(lambda rows: np.logical_or.reduce([each.admits(rows) for each in predicates]))

    def _may_exempt(self, other: CommittedTransaction) -> bool:
        """Returns whether ISO3, without its guard, exempts the other transaction."""
        return (
            self.level == IsolationLevel.WRITE_SERIALIZABLE
            and other.info.is_blind
            and not self.changes_metadata
            and (self.tables == 1 or other.info.tables == 1)
        )

    def _guard(self, first: CommittedTransaction) -> int:
        """Returns the version that voids the exemption of a blind transaction, 0 for none."""
        if self.reader_version >= first.version:
            return self.reader_version
        chain = first.all_codes
        for other in self.window:
            if other.version < first.version or other.unresolved:
                continue
            if other.changes is None and not other.replaces_table:
                continue  # a compaction reads and writes no data
            if other.info.is_blind:
                if _meet(other.all_codes, chain):
                    if other.info.tables > 1:
                        return other.version
                    chain = np.union1d(chain, other.all_codes)
            elif other.info.read_version >= first.version and self._touches(other, chain):
                return other.version
        return 0

    def _touches(self, other: CommittedTransaction, chain: Codes) -> bool:
        """Returns whether a non-blind transaction read or wrote a key of a chain."""
        reads = RecordedReads.of(other.info.reads)
        if reads is None or reads.whole_table:
            return True
        if _meet(other.all_codes, chain) or _meet(reads.keys, chain):
            return True
        return any(self._matched(predicate, other.info.read_version, chain) for predicate in reads.predicates)

    def _matched(self, predicate: Predicate, up_to: int, chain: Codes) -> bool:
        """Returns whether a predicate matches any row that a key of a chain had up to a version."""
        for other in self.window:
            if other.version > up_to or other.changes is None:
                continue
            changes = other.changes
            if len(changes.codes) < len(other.all_codes):
                return True  # not every row was looked at
            mine = np.isin(changes.codes, chain)
            if mine.any() and (np.logical_or(*changes.matches(predicate.matches)) & mine).any():
                return True
        return False

    def _conflict(
        self,
        kind: ConflictKind,
        other: CommittedTransaction,
        changes: Changes,
        mask: Mask,
        voided_by: int = 0,
    ) -> Conflict:
        places = np.flatnonzero(mask)
        keys = self._shown(changes, kind, places)
        named = other.version, other.operation, other.label
        return Conflict(kind, *named, self.reason, keys, len(places), voided_by)

    def _shown(self, changes: Changes, kind: ConflictKind, places: Any) -> tuple[dict[str, Any], ...]:
        partition = list(self.partition_columns)
        if self.reason == ROW_LEVEL_CHANGES or not partition:
            shown = changes.keys.take(pa.array(places[:_KEYS_SHOWN]))
        else:
            chosen = np.isin(changes.entries, places)
            is_after = np.arange(len(chosen)) < len(changes.codes)
            chosen &= is_after == (kind is ConflictKind.APPEND)
            rows = changes.rows().select(partition).filter(pa.array(chosen))
            shown = rows.group_by(partition).aggregate([]).slice(0, _KEYS_SHOWN)
        return tuple(shown.to_pylist())


def _meet(left: Codes, right: Codes) -> bool:
    return bool(np.isin(left, right).any())
