"""Queries that read copies of columns: each table is copied at once, before the first query that scans it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seqstore.store.read.snapshot import Snapshot
from seqstore.store.sql.evaluate import column_copies, connections
from seqstore.store.sql.evaluate.column_copies import ColumnCopies, Read
from seqstore.store.sql.evaluate.copied_relations import CopiedRelations

_SECONDS = 60.0


def copies() -> ColumnCopies:
    """The copies of queries without memory of their own."""
    connections.connect().close()
    [found] = [each for each in connections.column_copies() if each.bytes_max]
    return found


def settled() -> ColumnCopies:
    """The copies, as soon as none is being made."""
    found = copies()
    assert found.wait(_SECONDS), "a copy takes too long"
    return found


@contextmanager
def copied_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yields how many scans of the block read a copy, and how many did not."""
    counts = [0, 0]
    enter = CopiedRelations.__enter__

    def copied_first(self: CopiedRelations) -> CopiedRelations:
        for number in self._scanned if self._copies is not None else ():
            relation = self._relations[number]
            snapshot = relation.snapshot
            if isinstance(snapshot, Snapshot) and snapshot.is_whole and relation.columns:
                counts[not _copy(self, snapshot, relation.columns)] += 1
        return enter(self)

    def _copy(self: CopiedRelations, snapshot: Snapshot, columns: list[str]) -> bool:
        assert self._copies is not None
        for attempt in range(2):
            found = self._copies.find(snapshot, columns)
            if found is not None:
                self._copies.release(found, 1.0)
                return True
            if not attempt:
                self._copies.note([Read(snapshot, tuple(columns), self._opener(snapshot))], 1.0)
                assert self._copies.wait(_SECONDS)
        return False

    with monkeypatch.context() as patched:
        patched.setattr(column_copies, "_READS_MIN", 1)
        patched.setattr(column_copies._Asked, "share", 0.0)
        patched.setattr(column_copies, "_SHARE_MIN", 0.0)
        patched.setattr(CopiedRelations, "__enter__", copied_first)
        yield counts
