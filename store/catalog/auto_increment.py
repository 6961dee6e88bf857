"""Values of AUTO_INCREMENT columns: unique over all processes and for ever, with gaps, in no order (A6).

1. The catalog holds the next value of a column (database `counters`). A process reserves a range of values in
   one durable step and assigns them from memory; a load that needs more reserves a range of its own size.
2. Reserved values that a process did not assign before its end are never used: a gap. So are the values of a
   failed load or of a row of an existing key.

A value belongs to its row: it lies in the segment or in the delta, so another fill at publish, or a commit
days later, uses the same one (A9).
"""

from __future__ import annotations

import os
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from seqstore.store.catalog import catalog
from seqstore.store.catalog.environment import Catalog
from seqstore.store.errors import UnavailableError
from seqstore.store.runtime.forks import new_lock
from seqstore.store.schema.column import Column

_VALUE_MAX: Final = 2**63 - 1


class Ids(Protocol):
    """A source of values."""

    def take(self, count: int) -> pa.Array:
        """Reserves `count` values and returns them, ascending."""


class AnyIds:
    """Values that need not be unique: for rows that are checked and not stored."""

    def take(self, count: int) -> pa.Array:
        return pa.array(np.arange(1, count + 1, dtype=np.int64))


class LoadIds:
    """The values that one load takes from a source.

    Attributes:
        first: the smallest of them, 0 before there is one.
    """

    def __init__(self, source: Ids) -> None:
        self.first = 0
        self._source = source

    def take(self, count: int) -> pa.Array:
        values = self._source.take(count)
        if count:
            self.first = min(values[0].as_py(), self.first or _VALUE_MAX)
        return values


class IdSource:
    """The values of one column, for all threads of a process.

    Args:
        values_reserved: how many values are reserved in the catalog at once.
    """

    def __init__(self, store_catalog: Catalog, table_id: int, column: Column, values_reserved: int) -> None:
        assert column.auto_increment is not None
        self.column = column
        self._catalog = store_catalog
        self._key = catalog.counter_key(table_id, column.id)
        self._start = column.auto_increment
        self._reserved = values_reserved
        self._lock = new_lock()
        self._next = self._end = 0
        self._process = os.getpid()

    def take(self, count: int) -> pa.Array:
        """Reserves `count` unique values and returns them, ascending.

        Raises:
            UnavailableError: the values of a BIGINT are used up.
        """
        with self._lock:
            if self._process != os.getpid():  # a forked process must not assign its parent's values
                self._process, self._next, self._end = os.getpid(), 0, 0
            if count > self._end - self._next:
                self._reserve(max(count, self._reserved))
            first, self._next = self._next, self._next + count
        return pa.array(np.arange(first, first + count, dtype=np.int64))

    def _reserve(self, count: int) -> None:
        with self._catalog.write() as tx:
            found = tx.get("counters", self._key)
            first = self._start if found is None else int(found)
            if first > _VALUE_MAX - count:
                raise UnavailableError(
                    f"column {self.column.name!r}: AUTO_INCREMENT has used all values of a BIGINT; "
                    "state the values in the rows",
                    kind="auto_increment_used_up",
                    column=self.column.name,
                )
            tx.put("counters", self._key, first + count)
        self._next, self._end = first, first + count
