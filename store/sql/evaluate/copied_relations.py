"""The copies of columns that one query reads, and what it reads without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeAlias

import pyarrow as pa

from seqstore.store.read.snapshot import Snapshot
from seqstore.store.sql.evaluate.column_copies import ColumnCopies, Copy, Read
from seqstore.store.sql.translate.relations import Relation

# Opens the rows of some columns of a version for a copy; returns them and the names of the columns in them.
OpenRows: TypeAlias = "Callable[[Snapshot, Sequence[str]], tuple[pa.Table, Sequence[str]] | None]"


class CopiedRelations:
    """Holds the copies that a query reads while it runs, and notes its other scans when it has ended.

    Args:
        copies: of the database that runs the query; None for one that has none.
        scanned: numbers of the relations that the query scans.

    Attributes:
        seconds: what the evaluation took; set by the query.
    """

    def __init__(
        self,
        copies: ColumnCopies | None,
        relations: Sequence[Relation],
        scanned: Sequence[int],
        open_rows: OpenRows,
    ) -> None:
        self.seconds = 0.0
        self._copies = copies
        self._relations = relations
        self._scanned = scanned
        self._open_rows = open_rows
        self._found: dict[int, Copy] = {}
        self._reads: list[Read] = []

    def get(self, number: int) -> Copy | None:
        """Returns the copy that a relation reads."""
        return self._found.get(number)

    def __enter__(self) -> CopiedRelations:
        if self._copies is None:
            return self
        try:
            for number in self._scanned:
                self._look(self._copies, number)
        except BaseException:
            self._release(self._copies)
            raise
        return self

    def _look(self, copies: ColumnCopies, number: int) -> None:
        relation = self._relations[number]
        snapshot, columns = relation.snapshot, tuple(relation.columns)
        if not isinstance(snapshot, Snapshot) or not snapshot.is_whole or not columns:
            return
        copy = copies.find(snapshot, columns)
        if copy is not None:
            self._found[number] = copy
        else:
            self._reads.append(Read(snapshot, columns, self._opener(snapshot)))

    def _release(self, copies: ColumnCopies) -> None:
        for copy in self._found.values():
            copies.release(copy, self.seconds)
        self._found = {}

    def _opener(self, snapshot: Snapshot) -> Callable[[Sequence[str]], tuple[pa.Table, Sequence[str]] | None]:
        return lambda columns: self._open_rows(snapshot, columns)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._copies is None:
            return
        self._release(self._copies)
        if error is None and self.seconds:
            self._copies.note(self._reads, self.seconds)
