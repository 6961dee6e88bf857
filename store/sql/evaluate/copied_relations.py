"""The copies of columns that one query reads, and what it reads without one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final

from seqstore.store.read.snapshot import Snapshot
from seqstore.store.sql.evaluate.column_copies import ColumnCopies, Copy, OpenRows, Read, Use
from seqstore.store.sql.translate.relations import Relation

if TYPE_CHECKING:
    import duckdb

_log: Final = logging.getLogger("seqstore.copies")


def scan_of(relation: Relation) -> Read | None:
    """Returns the scan of a relation that a copy could serve, None for other ways to read it."""
    snapshot = relation.snapshot
    if not isinstance(snapshot, Snapshot) or not snapshot.is_published:
        return None
    if relation.reads_few or not relation.columns:
        return None
    return Read(snapshot, tuple(relation.columns))


class CopyChangedError(Exception):
    """A query has to run without copies: it began twice, and they changed in between."""


class CopiedRelations:
    """Holds the copies that a query reads while it runs, and notes its other scans when it has ended.

    Args:
        copies: of the database that runs the query; None for a query that reads none.

    Attributes:
        seconds: what the evaluation took; set by the query.
    """

    def __init__(
        self, copies: ColumnCopies | None, relations: Sequence[Relation], open_rows: OpenRows
    ) -> None:
        self.seconds = 0.0
        self._copies = copies
        self._relations = relations
        self._open_rows = open_rows
        self._found: dict[int, tuple[Use, Read]] = {}
        self._others: list[Read] = []
        self._has_begun = False

    def get(self, number: int) -> Copy | None:
        """Returns the copy that a relation reads."""
        found = self._found.get(number)
        return found[0].copy if found is not None else None

    def begin(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Begins the transaction of DuckDB that reads the copies as they are now.

        Each copy is a database, in which the transaction begins when a statement first reads it.

        Raises:
            CopyChangedError: a transaction has begun before, and the copies have followed their tables since.
        """
        if self._copies is None or not self._found:
            return
        if self._has_begun and not all(self._copies.start_again(use) for use, _ in self._found.values()):
            raise CopyChangedError
        self._has_begun = True
        cursor.begin()
        for table in dict.fromkeys(use.copy.table for use, _ in self._found.values()):
            cursor.execute(f"SELECT NULL FROM {table} LIMIT 0")
        for use, _ in self._found.values():
            self._copies.began(use)

    def keep_columns(self) -> None:
        """Lets the relations that read a copy read the columns again for which it was found."""
        for number, (_, read) in self._found.items():
            self._relations[number].columns = list(read.columns)

    def __enter__(self) -> CopiedRelations:
        if self._copies is None:
            return self
        try:
            for number, relation in enumerate(self._relations):
                self._look(self._copies, number, scan_of(relation))
        except BaseException:
            self._release(self._copies)
            raise
        return self

    def _look(self, copies: ColumnCopies, number: int, read: Read | None) -> None:
        if read is None:
            return
        use = copies.find(*read)
        if use is not None:
            self._found[number] = use, read
        else:
            self._others.append(read)

    def _release(self, copies: ColumnCopies) -> None:
        while self._found:
            _, (use, _) = self._found.popitem()
            use.seconds = self.seconds
            copies.release(use)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._copies is None:
            return
        self._release(self._copies)
        if error is None and self.seconds:
            try:
                self._copies.note(self._others, self.seconds, self._open_rows)
            except Exception as found:  # the query has its answer
                _log.debug("a scan was not noted: %s", found)
