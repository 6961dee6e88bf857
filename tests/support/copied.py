"""Queries that read copies of columns: each table is copied at once, before the first query that scans it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seqstore.store.sql.evaluate import column_copies, connections, copy_demand
from seqstore.store.sql.evaluate.column_copies import ColumnCopies, Read
from seqstore.store.sql.evaluate.copied_relations import CopiedRelations, scan_of

_SECONDS = 60.0


def copies() -> ColumnCopies:
    """The copies of queries without memory of their own."""
    connection = connections.connect()
    connection.close()
    assert connection.copies is not None
    return connection.copies


def settled() -> ColumnCopies:
    """The copies, as soon as none is being made."""
    found = copies()
    assert found.wait(_SECONDS), "a copy takes too long"
    return found


def databases() -> list[str]:
    """The databases of copies that are attached."""
    with connections.connect().cursor() as cursor:
        found = cursor.execute("SELECT database_name FROM duckdb_databases()").fetchall()
    return [name for (name,) in found if name.startswith(column_copies.DATABASE)]


@contextmanager
def copied_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yields how many scans of the block read a copy, and how many did not."""
    counts = [0, 0]
    enter = CopiedRelations.__enter__

    def copied_first(self: CopiedRelations) -> CopiedRelations:
        for relation in self._relations if self._copies is not None else ():
            read = scan_of(relation)
            if read is not None:
                counts[not _copy(self, read)] += 1
        return enter(self)

    def _copy(self: CopiedRelations, read: Read) -> bool:
        assert self._copies is not None
        for attempt in range(2):
            found = self._copies.find(*read)
            if found is not None:
                found.seconds = 1.0
                self._copies.release(found)
                return True
            if not attempt:
                self._copies.note([read], 1.0, self._open_rows)
                assert self._copies.wait(_SECONDS)
        return False

    copies()._paused_until = 0.0  # by a shortage of another test
    with monkeypatch.context() as patched:
        patched.setattr(copy_demand, "READS_MIN", 1)
        patched.setattr(copy_demand, "SHARE_MIN", 0.0)
        patched.setattr(CopiedRelations, "__enter__", copied_first)
        yield counts
