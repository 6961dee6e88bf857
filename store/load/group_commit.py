"""Group commit: many small loads of one table become one transaction (G6-G13).

1. A stream load, or an INSERT of values, reads, maps and checks its rows as ever, and decides on its own
   ratio; nothing is written.
2. Its rows join the group of its table, whose leader publishes the rows of all members that wait
   (runtime.led_groups). CSV bodies of one header set are read as one member (loaders.joined_bodies).
3. Every member receives the transaction's id and label. When the publish fails, all of its members fail.

Rows lie in the order in which their loads joined; sequence and delete sign decide as in any load (G11). Both
modes answer when the rows are durable and visible: for `async_mode` that is earlier than it promises (G7).
A load that turns out to be large leaves the group before it joins and is a transaction of its own.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.load.load import Load, LoadResult, WriteResult
from seqstore.store.load.loadable_table import LoadableTable
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.led_groups import LedGroup, Member
from seqstore.store.segment.checked_rows import CheckedRows

LABEL_PREFIX: Final = "group_commit_"
RATIO_ROWS_MAX: Final = 10_000  # G10
_MEMBER_BYTES_MAX: Final = 8 << 20
_GROUP_ROWS_MAX: Final = 500_000

_groups: weakref.WeakKeyDictionary[LoadableTable, LedGroup[_Member]] = weakref.WeakKeyDictionary()
_groups_lock = new_lock()


@dataclass
class GroupCounts:
    """The counts of this process's groups. `tell` is safe to call from any thread.

    Attributes:
        publishes: transactions made for groups.
        loads: how many loads waited for so many publishes before the one that brought their own rows.
    """

    publishes: int = 0
    loads: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=new_lock)

    def tell(self, waits: Sequence[int]) -> None:
        """Counts a publish that begins, and for each of its loads the publishes that it has waited for."""
        with self._lock:
            self.publishes += 1
            self.loads.update(waits)


counts: Final = GroupCounts()


class GroupedLoad:
    """A load that joins a group when it commits; used like `store.Load`.

    Attributes:
        is_grouped: False once the load has become a transaction of its own.
        txn_id: of the transaction it became part of; -1 before.
        label: of that transaction.
    """

    def __init__(self, table: LoadableTable, begin: Callable[[], Load]) -> None:
        self._table = table
        self._begin = begin
        self._load = begin()  # unlabelled: it checks rows, and is in no catalog until it commits
        self._rows: list[CheckedRows] = []
        self._bytes = 0
        self._filtered = 0
        self.is_grouped = True
        self.txn_id = -1
        self.label = self._load.label

    def write(
        self, data: pa.Table, *, supplied: Mapping[str, npt.NDArray[np.bool_]] | None = None
    ) -> WriteResult:
        """Checks rows, and keeps or writes them; see `store.Load.write`."""
        if not self.is_grouped:
            return self._load.write(data, supplied=supplied)
        checked, rejected = self._load.check(data)
        self._rows += checked
        self._filtered += len(rejected)
        self._bytes += sum(rows.visible.nbytes for rows in checked)
        if self._bytes > _MEMBER_BYTES_MAX:
            self.is_grouped = False
            self.txn_id = self._load.txn_id
            for rows in self._rows:
                self._load.write_checked(rows)
            self._rows = []
            self._load.note_filtered(self._filtered)
        return WriteResult(len(data), rejected)

    def note_filtered(self, count: int) -> None:
        """Counts rows that a loader rejected before it wrote the others, for the history."""
        if self.is_grouped:
            self._filtered += count
        else:
            self._load.note_filtered(count)

    def commit(self, loads: int = 1) -> LoadResult:
        """Joins the group, or commits alone.

        Args:
            loads: of clients, whose rows these are (loaders.joined_bodies).

        Returns:
            The result of the transaction. Its rows given, loaded and filtered are those of this load.

        Raises:
            StoreError: nothing of the load is visible.
        """
        if not self.is_grouped:
            return self._load.commit()
        member = _Member(self._rows, self._load.revision, self._begin, loads, self._filtered)
        _group_of(self._table).join(member)
        result = member.result
        assert result is not None
        self.txn_id, self.label = result.txn_id, result.label
        own = member.row_count
        return replace(
            result,
            rows_total=own + self._filtered,
            rows_loaded=own,
            rows_filtered=self._filtered,
            rejected=[],
        )

    def __enter__(self) -> GroupedLoad:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._load.abort(str(error) if error else "left without commit")


class _Member(Member):
    """One load in a group, or several that were read as one.

    Args:
        begin: begins the load that publishes the rows of a group, where this member leads it.
    """

    def __init__(
        self,
        rows: Sequence[CheckedRows],
        revision: int,
        begin: Callable[[], Load],
        loads: int = 1,
        filtered: int = 0,
    ) -> None:
        super().__init__()
        self.rows = rows
        self.filtered = filtered
        self.revision = revision
        self.begin = begin
        self.loads = loads
        self.result: LoadResult | None = None

    @property
    def row_count(self) -> int:
        return sum(map(len, self.rows))


def _fitting(members: Sequence[_Member]) -> int:
    """Returns how many members, the first ones, one transaction takes."""
    rows = 0
    for count, member in enumerate(members):
        rows += member.row_count
        if count and (rows > _GROUP_ROWS_MAX or member.revision != members[0].revision):
            return count
    return len(members)


def _group_of(table: LoadableTable) -> LedGroup[_Member]:
    with _groups_lock:
        return _groups.setdefault(table, LedGroup(_publish, _fitting))


def _publish(members: Sequence[_Member]) -> None:
    counts.tell([member.waits for member in members for _ in range(member.loads)])
    with members[0].begin() as load:
        load.require_revision(members[0].revision)
        for joined in _joined([rows for member in members for rows in member.rows]):
            load.write_checked(joined)
        load.note_filtered(sum(member.filtered for member in members))
        result = load.commit()
    for member in members:
        member.result = result


def _joined(rows: Sequence[CheckedRows]) -> list[CheckedRows]:
    """Joins neighbours of one shape and keeps the order: one segment is cheaper than many."""
    runs: list[list[CheckedRows]] = []
    for each in rows:
        if not len(each):
            continue
        if runs and (runs[-1][0].sequence is None) == (each.sequence is None):
            runs[-1].append(each)
        else:
            runs.append([each])
    return [run[0] if len(run) == 1 else _concatenated(run) for run in runs]


def _concatenated(run: Sequence[CheckedRows]) -> CheckedRows:
    signs = sequence = None
    if any(rows.signs is not None for rows in run):
        signs = pa.concat_arrays([_signs(rows) for rows in run])
    if run[0].sequence is not None:
        sequence = pa.concat_arrays([_plain(rows.sequence) for rows in run])
    row_ids = pa.concat_arrays([rows.row_ids for rows in run]) if run[0].row_ids is not None else None
    visible = pa.concat_tables([rows.visible for rows in run]).combine_chunks()
    return CheckedRows(visible, signs, sequence, row_ids=row_ids)


def _signs(rows: CheckedRows) -> pa.Array:
    return _plain(rows.signs) if rows.signs is not None else pa.array(np.zeros(len(rows), dtype=np.int8))


def _plain(column: pa.Array | pa.ChunkedArray | None) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
