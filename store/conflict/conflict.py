"""Conflicts: one transaction against those committed since it began to read. No I/O.

Given an `Attempt` and the window, its committed transactions in ascending order of versions:

1. A blind attempt has no data conflict. (Publishing checks schema, protocol and application ids.)
2. For each key that a committed transaction changed, applied rows only:
   ISO1 *seen*: the row before or after matches a predicate of the attempt, its key was looked up, or the
   whole table was read; and the row appeared, vanished, or one of its changed columns was looked at.
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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from seqstore.store.conflict.read_set import (
    NO_CODES,
    ROW_LEVEL_CHANGES,
    ROW_LEVEL_OFF,
    WHOLE_TABLE_REPLACE,
    Mask,
    Predicate,
    ReadLog,
    RecordedReads,
)
from seqstore.store.runtime.lazy import cached_property
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
class Attempt:
    """The reads and writes of the transaction that wants to commit, on one table.

    Attributes:
        level: the isolation level.
        read_version: of its snapshot.
        reads: None for a blind write.
        written: the keys it will write.
        row_level: False: keys count as their partitions.
        changes_metadata: a metadata change depends on its reads, so no write is exempt (not ISO3).
        tables: how many tables its transaction writes or reads.
    """

    level: IsolationLevel
    read_version: int
    reads: ReadLog | None
    written: Sequence[Written] = ()
    row_level: bool = True
    changes_metadata: bool = False
    tables: int = 1
    partition_columns: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why rows are not looked at, else the word for a conflict of rows."""
        if self.reads is not None and self.reads.fallback:
            return self.reads.fallback
        return ROW_LEVEL_CHANGES if self.row_level else ROW_LEVEL_OFF


@dataclass(frozen=True)
class Changes:
    """The keys that one committed transaction changed, one entry each, with the rows before and after.

    Attributes:
        codes: key codes.
        was_live, is_live: whether a reader saw a row before, sees one after.
        in_snapshot: whether the attempt's snapshot has a row.
        keys: key columns.
        rows: returns columns of the rows before (False) or after (True), and the entries of those rows.
    """

    codes: Codes
    was_live: Mask
    is_live: Mask
    in_snapshot: Mask
    keys: pa.Table
    rows: Callable[[bool], tuple[pa.Table, Any]]

    def matches(self, test: Callable[[pa.Table], Mask], *, after: bool) -> Mask:
        """Entries whose row before or after satisfies a test."""
        live = self.is_live if after else self.was_live
        result = np.zeros(len(self.codes), dtype=np.bool_)
        if live.any():
            table, entries = self.rows(after)
            result[entries] = test(table)
        return result & live


@dataclass(frozen=True)
class CommittedTransaction:
    """One version committed in the window.

    Attributes:
        columns: ids of the columns it wrote; None means whole rows.
        reads: None where the version record cannot hold them. Without meaning when blind.
        changes: None when it changed no data.
        all_codes: every key it changed; `changes` may have fewer.
        tables: how many tables its transaction wrote.
        replaces_table: all rows went at once (TRUNCATE, RESTORE).
        unresolved: why its rows could not be looked at: no time, or they are gone; empty when they could.
    """

    version: int
    operation: str
    label: str
    is_blind: bool
    read_version: int = 0
    columns: frozenset[int] | None = None
    reads: RecordedReads | None = None
    changes: Changes | None = None
    all_codes: Codes = field(default_factory=lambda: NO_CODES)
    tables: int = 1
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


def find_conflicts(
    attempt: Attempt, window: Sequence[CommittedTransaction], reader_version: int = 0
) -> list[Conflict]:
    """Returns every conflict, in order of versions; see the module.

    Args:
        reader_version: the newest version that a transaction which only read this table, and wrote others,
            had seen when it committed.
    """
    if attempt.reads is None:
        return []
    check = _Check(attempt, window, reader_version)
    return [conflict for other in window for conflict in check.against(other)]


class _Check:
    def __init__(self, attempt: Attempt, window: Sequence[CommittedTransaction], reader_version: int) -> None:
        assert attempt.reads is not None
        self.attempt = attempt
        self.reads: ReadLog = attempt.reads
        self.window = window
        self.reader_version = reader_version

    def against(self, other: CommittedTransaction) -> list[Conflict]:
        if other.unresolved:
            return [self._conflict(ConflictKind.APPEND, other, other.unresolved)]
        if other.replaces_table:
            return [self._conflict(ConflictKind.DELETE_READ, other, WHOLE_TABLE_REPLACE)]
        if other.changes is None or not len(other.changes.codes):
            return []
        if not self.attempt.row_level or self.reads.fallback:
            return self._by_partition(other, other.changes)
        return self._by_row(other, other.changes)

    def _by_row(self, other: CommittedTransaction, changes: Changes) -> list[Conflict]:
        came_or_went = changes.was_live != changes.is_live
        seen, matched_before = self._seen(changes)
        looked_at = other.columns is None or bool(other.columns & self.reads.columns)
        seen &= came_or_went | (looked_at & changes.was_live)
        overwritten = self._overwritten(other, changes, came_or_went)
        exempt = np.zeros(len(seen), dtype=np.bool_)
        voided_by = 0
        if self._may_exempt(other):
            exempt = seen & ~changes.in_snapshot & ~overwritten
            if exempt.any():
                voided_by = self._guard(other)
                exempt &= voided_by == 0
        left = (seen & ~exempt) | overwritten
        is_new = left & seen & (~changes.in_snapshot | (~matched_before & changes.is_live))
        is_read = left & ~is_new & seen
        kinds = {
            ConflictKind.APPEND: is_new,
            ConflictKind.DELETE_READ: is_read,
            ConflictKind.DELETE_DELETE: left & ~is_new & ~is_read,
        }
        return [
            self._conflict(kind, other, self.attempt.reason, changes, mask, voided_by)
            for kind, mask in kinds.items()
            if mask.any()
        ]

    def _seen(self, changes: Changes) -> tuple[Mask, Mask]:
        """Entries the attempt's reads cover, and those they covered before the change."""
        if self.reads.whole_table:
            return np.ones(len(changes.codes), dtype=np.bool_), changes.was_live
        before = np.isin(changes.codes, self.reads.codes)
        seen = before.copy()
        for predicate in self.reads.predicates:
            before |= changes.matches(predicate.matches, after=False)
            seen |= changes.matches(predicate.matches, after=True)
        return seen | before, before

    def _overwritten(self, other: CommittedTransaction, changes: Changes, came_or_went: Mask) -> Mask:
        """Returns which changed rows the attempt overwrites (ISO2).

        Both transactions write such a row. Without a common column, the row counts only if the other
        transaction inserted or deleted it.
        """
        result = np.zeros(len(changes.codes), dtype=np.bool_)
        for written in self.attempt.written:
            mine = np.isin(changes.codes, written.codes)
            meets = other.columns is None or written.columns is None or bool(other.columns & written.columns)
            result |= mine if meets else mine & came_or_went
        return result

    def _by_partition(self, other: CommittedTransaction, changes: Changes) -> list[Conflict]:
        """Finds conflicts without looking at rows.

        Partitions added to are tested first, then partitions removed from, whatever the columns.
        """
        read = self._reads_partition()
        added = changes.matches(read, after=True)
        removed = changes.matches(read, after=False)
        voided_by = 0
        only_adds = not changes.was_live.any() and not changes.in_snapshot.any()
        if added.any() and only_adds and self._may_exempt(other):
            voided_by = self._guard(other)
            if not voided_by:
                added = np.zeros_like(added)
        for kind, mask in ((ConflictKind.APPEND, added), (ConflictKind.DELETE_READ, removed)):
            if mask.any():
                return [self._conflict(kind, other, self.attempt.reason, changes, mask, voided_by)]
        came_or_went = changes.was_live != changes.is_live
        overwritten = self._overwritten(other, changes, came_or_went)
        if overwritten.any():
            kind = ConflictKind.DELETE_DELETE
            return [self._conflict(kind, other, self.attempt.reason, changes, overwritten)]
        return []

    def _reads_partition(self) -> Callable[[pa.Table], Mask]:
        """Returns whether a row lies in a partition that the attempt read."""
        predicates = self.reads.predicates
        everything = self.reads.whole_table or bool(len(self.reads.codes)) or not predicates
        if everything or not self.attempt.partition_columns:
            return lambda rows: np.ones(len(rows), dtype=np.bool_)

        def test(rows: pa.Table) -> Mask:
            result = np.zeros(len(rows), dtype=np.bool_)
            for predicate in predicates:
                result |= predicate.admits(rows)
            return result

        return test

    def _may_exempt(self, other: CommittedTransaction) -> bool:
        """Returns whether ISO3, without its guard, exempts the other transaction."""
        return (
            self.attempt.level == IsolationLevel.WRITE_SERIALIZABLE
            and other.is_blind
            and not self.attempt.changes_metadata
            and (self.attempt.tables == 1 or other.tables == 1)
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
            if other.is_blind:
                if _meet(other.all_codes, chain):
                    if other.tables > 1:
                        return other.version
                    chain = np.union1d(chain, other.all_codes)
            elif other.read_version >= first.version and self._touches(other, chain):
                return other.version
        return 0

    def _touches(self, other: CommittedTransaction, chain: Codes) -> bool:
        """Returns whether a non-blind transaction read or wrote a key of a chain."""
        reads = other.reads
        if reads is None or reads.whole_table:
            return True
        if _meet(other.all_codes, chain) or _meet(reads.keys, chain):
            return True
        return any(self._matched(predicate, other.read_version, chain) for predicate in reads.predicates)

    def _matched(self, predicate: Predicate, up_to: int, chain: Codes) -> bool:
        """Returns whether a predicate matches any row that a key of a chain had up to a version."""
        for other in self.window:
            if other.version > up_to or other.changes is None:
                continue
            changes = other.changes
            if len(changes.codes) < len(other.all_codes):
                return True  # not every row was looked at
            mine = np.isin(changes.codes, chain)
            if not mine.any():
                continue
            for after in (False, True):
                if (changes.matches(predicate.matches, after=after) & mine).any():
                    return True
        return False

    def _conflict(
        self,
        kind: ConflictKind,
        other: CommittedTransaction,
        reason: str,
        changes: Changes | None = None,
        mask: Mask | None = None,
        voided_by: int = 0,
    ) -> Conflict:
        keys: tuple[dict[str, Any], ...] = ()
        count = 0
        if changes is not None and mask is not None:
            places = np.flatnonzero(mask)
            count = len(places)
            keys = tuple(self._shown(changes, kind, places))
        return Conflict(kind, other.version, other.operation, other.label, reason, keys, count, voided_by)

    def _shown(self, changes: Changes, kind: ConflictKind, places: Any) -> Iterable[dict[str, Any]]:
        partition = self.attempt.partition_columns
        if self.attempt.reason == ROW_LEVEL_CHANGES or not partition:
            shown: list[dict[str, Any]] = changes.keys.take(pa.array(places[:_KEYS_SHOWN])).to_pylist()
            return shown
        table, entries = changes.rows(kind is ConflictKind.APPEND)
        wanted = table.select(list(partition)).filter(pa.array(np.isin(entries, places)))
        values: list[dict[str, Any]] = wanted.group_by(list(partition)).aggregate([]).to_pylist()
        return values[:_KEYS_SHOWN]


def _meet(left: Codes, right: Codes) -> bool:
    return bool(np.isin(left, right).any())


@dataclass(frozen=True)
class Lazy:
    """Columns of rows, read on first use."""

    take: Callable[[], tuple[pa.Table, Any]]

    @cached_property
    def taken(self) -> tuple[pa.Table, Any]:
        return self.take()
