"""Copies of the columns that queries read often, as tables of DuckDB.

DuckDB reads its own tables faster than Arrow batches: they are compressed, small decimals have 8 bytes
instead of 16, and it knows bounds and distinct counts of their columns, by which it orders joins and
chooses algorithms. The copies of a DuckDB database are made like this:

1. Each query notes which columns of which version of a table it scanned, and for how long.
2. A version is worth a copy of the columns noted so far after `_READS_MIN` queries that together took a share
   of the time that the copy will take. The share grows for a table whose last copy was hardly used.
3. One thread makes the copies, from Arrow batches that stay mapped whatever becomes of the version. Each copy
   is a database of its own in memory, compressed after each `_BYTES_A_STEP`.
4. A query that reads only copied columns of that version reads the copy instead.
5. The first query of a newer version drops the copy. One that was not used for `_IDLE_SECONDS` ends when
   others need its memory, one that was not used for `_UNUSED_SECONDS` in any case, and all of them end in a
   shortage of memory. Queries that read a copy keep it until they end.

Only rows that count are copied, so a copy needs no marks.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from seqstore.store.read.marked_scan import LIVE
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.table_state import StateIdentity
from seqstore.store.runtime import memory_limit
from seqstore.store.runtime.forks import new_lock

if TYPE_CHECKING:
    import duckdb

_log: Final = logging.getLogger("seqstore.copies")

TABLE: Final = "__copy__"
DATABASE: Final = "__copy_"
_READS_MIN: Final = 3
_SHARE_MIN, _SHARE_MAX = 0.25, 16.0  # of the time of a copy
_SECONDS_MIN: Final = 0.01
_SECONDS_A_VALUE: Final = 40e-9
_BYTES_A_STEP: Final = 96 << 20  # uncompressed at a time
_RATIO_MAX: Final = 8  # rows that would have to be compressed further are not tried
_COPIES_MAX: Final = 64
_TABLES_MAX: Final = 1_000  # of which reads are remembered
_PAUSE_SECONDS: Final = 60.0  # without new copies after a shortage
_REST_SECONDS: Final = 600.0
_IDLE_SECONDS: Final = 30.0  # a copy that was used since does not end for another one
_UNUSED_SECONDS: Final = 600.0  # a copy that was not used since ends
_END_SECONDS: Final = 10.0
_USED: Final = (
    "SELECT coalesce(sum(memory_usage_bytes), 0) FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
)

_numbers: Final = itertools.count(1)


class Read(NamedTuple):
    """A scan of a version by a query.

    Attributes:
        columns: under their names in the table.
        rows: opens the rows of some columns, for a copy; None if they need too much memory.
    """

    snapshot: Snapshot
    columns: Sequence[str]
    rows: Callable[[Sequence[str]], tuple[pa.Table, Sequence[str]] | None]


@dataclass(eq=False)
class Copy:
    """Columns of one version of a table, in a database of their own.

    Attributes:
        database: its name in DuckDB; its table is `TABLE`.
        identity: of the version.
        used_at: the moment of its last use.
        seconds: what making it took.
        saved: about what queries saved by it, in seconds.
    """

    database: str
    identity: StateIdentity
    columns: frozenset[str]
    used_at: float = 0.0
    seconds: float = 0.0
    saved: float = 0.0
    readers: int = 0
    is_dropped: bool = False

    def serves(self, snapshot: Snapshot, columns: Iterable[str]) -> bool:
        """Returns whether it has some columns of a version."""
        return self.identity == snapshot.identity and self.columns.issuperset(columns)


@dataclass(eq=False)
class _Asked:
    """What queries read of the newest version of a table that they read.

    Attributes:
        share: of the time of a copy that queries must have taken.
        is_busy: a copy is being made.
        rests_until: no copy is made before this moment, as one failed or had no room.
    """

    version: int
    identity: StateIdentity
    share: float = _SHARE_MIN
    columns: dict[str, None] = field(default_factory=dict)
    reads: int = 0
    seconds: float = 0.0
    is_busy: bool = False
    rests_until: float = 0.0

    def is_due(self) -> bool:
        if self.is_busy or time.monotonic() < self.rests_until:
            return False
        wanted = (_SECONDS_MIN + self.identity.live_rows * len(self.columns) * _SECONDS_A_VALUE) * self.share
        return self.reads >= _READS_MIN and self.seconds >= wanted

    def rest(self) -> None:
        """Makes no copy for a while, and the next one dearer."""
        self.share = min(self.share * 2, _SHARE_MAX)
        self.reads, self.seconds, self.is_busy = 0, 0.0, False
        self.rests_until = time.monotonic() + _REST_SECONDS


class _Order(NamedTuple):
    table: object
    asked: _Asked
    columns: tuple[str, ...]
    stored: pa.Table
    names: Sequence[str]


class ColumnCopies:
    """The copies of one DuckDB database.

    Args:
        connection: to the database.
        bytes_max: of memory that all copies together may use.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, bytes_max: int) -> None:
        self._connection = connection
        self.bytes_max = bytes_max
        self._lock = new_lock()
        self._asked: OrderedDict[object, _Asked] = OrderedDict()
        self._copies: OrderedDict[object, Copy] = OrderedDict()  # by table, the last used one last
        self._ending: list[str] = []  # databases of dropped copies that are still attached
        self._orders: deque[_Order] = deque()
        self._thread: threading.Thread | None = None
        self._working: duckdb.DuckDBPyConnection | None = None
        self._is_making = False
        self._changed = threading.Condition(self._lock)
        self._paused_until = 0.0
        self._is_closed = False
        memory_limit.on_shortage(self.relieve)

    def find(self, snapshot: Snapshot, columns: Iterable[str]) -> Copy | None:
        """Returns a copy that has some columns of a version, None without one; `release` must follow."""
        if not self._copies:
            return None
        table = snapshot.identity.table
        with self._lock:
            found = self._copies.get(table)
            if found is None or not found.serves(snapshot, columns):
                return None
            self._copies.move_to_end(table)
            found.readers += 1
            found.used_at = time.monotonic()
            return found

    def has(self, snapshot: Snapshot, columns: Iterable[str]) -> bool:
        """Returns whether a query of these columns would read a copy."""
        found = self._copies.get(snapshot.identity.table)
        return found is not None and found.serves(snapshot, columns)

    def release(self, copy: Copy, seconds: float) -> None:
        """Ends the use of a copy by a query that took some seconds."""
        with self._lock:
            copy.readers -= 1
            copy.saved += seconds
            ends = copy.is_dropped and not copy.readers
        if ends:
            self._detach([copy])

    def note(self, reads: Sequence[Read], seconds: float) -> None:
        """Notes what a query scanned without a copy, and has copies made that are worth it.

        Args:
            seconds: what the query took.
        """
        weights = [read.snapshot.identity.live_rows * len(read.columns) for read in reads]
        for read, weight in zip(reads, weights, strict=True):
            if weight:
                self._note(read, seconds * weight / sum(weights))

    def _note(self, read: Read, seconds: float) -> None:
        table = read.snapshot.identity.table
        with self._lock:
            asked, dropped = self._asked_of(read.snapshot)
            if asked is not None:
                asked.columns.update(dict.fromkeys(read.columns))
                asked.reads += 1
                asked.seconds += seconds
            is_wanted = asked is not None and asked.is_due() and self._may_begin()
            if asked is not None and is_wanted:
                asked.is_busy = True
                columns = tuple(asked.columns)
        self._detach(dropped)
        if asked is None or not is_wanted:
            return
        opened = None
        try:
            opened = read.rows(columns)
        except Exception as error:  # the query has its answer
            _log.debug("the rows for a copy cannot be read: %s", error)
        if opened is None or opened[0].nbytes > self.bytes_max * _RATIO_MAX:
            self._rest([asked])
        else:
            self._begin(_Order(table, asked, columns, *opened))

    def _may_begin(self) -> bool:
        return not self._is_closed and time.monotonic() >= self._paused_until

    def _asked_of(self, snapshot: Snapshot) -> tuple[_Asked | None, list[Copy]]:
        """Returns the notes on a version, None if there are some on a newer one, and copies to detach."""
        identity, table = snapshot.identity, snapshot.identity.table
        asked = self._asked.get(table)
        if asked is not None and asked.identity == identity:
            self._asked.move_to_end(table)
            return asked, []
        if asked is not None and snapshot.version < asked.version:
            return None, []
        copy = self._copies.get(table)
        dropped = self._taken([table]) if copy is not None else []
        share = _share_after(asked, copy) if asked is not None else _SHARE_MIN
        made = self._asked[table] = _Asked(snapshot.version, identity, share)
        self._asked.move_to_end(table)
        while len(self._asked) > _TABLES_MAX:
            self._asked.popitem(last=False)
        return made, dropped

    def _taken(self, tables: Iterable[object]) -> list[Copy]:
        """Removes copies; returns those that no query reads, which must be detached."""
        found = [self._copies.pop(table) for table in tables]
        for copy in found:
            copy.is_dropped = True
        return [copy for copy in found if not copy.readers]

    def _detach(self, copies: Sequence[Copy]) -> None:
        """Ends the databases of copies. One that cannot end, for memory, does so with the next ones."""
        if not copies:
            return
        with self._lock:
            databases = [*self._ending, *[copy.database for copy in copies]]
            self._ending = []
        with self._connection.cursor() as cursor:
            for database in databases:
                try:
                    cursor.execute(f"DETACH DATABASE IF EXISTS {database}")
                except Exception as error:
                    _log.debug("copy %s does not end yet: %s", database, error)
                    with self._lock:
                        self._ending.append(database)

    def relieve(self) -> None:
        """Drops all copies, and makes none for a while: memory is short."""
        with self._lock:
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            self._orders.clear()
            self._asked.clear()
            dropped = self._taken(list(self._copies))
            if self._working is not None:
                self._working.interrupt()
        self._detach(dropped)

    def wait(self, seconds: float) -> bool:
        """Waits until no copy is being made; returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._orders and not self._is_making, seconds)

    def sizes(self) -> tuple[int, int]:
        """Returns the number of copies and the bytes of memory that they use."""
        with self._lock:
            count = len(self._copies)
        return count, self._used() if count else 0

    def _used(self) -> int:
        with self._connection.cursor() as cursor:
            return int(cursor.execute(_USED).fetchall()[0][0])

    def close(self) -> None:
        """Ends the making of copies; they end with their database."""
        with self._lock:
            self._is_closed = True
            self._orders.clear()
            if self._working is not None:
                self._working.interrupt()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None, _END_SECONDS)

    def _begin(self, order: _Order) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._orders.append(order)
            self._changed.notify_all()
            if self._thread is not None:  # it takes this one, too
                return
            thread = self._thread = threading.Thread(target=self._run, name="column copies", daemon=True)
        try:
            memory_limit.start_thread(thread)
        except RuntimeError:  # the system has no thread left: a later query tries again
            with self._lock:
                self._thread = None
                waiting = [each.asked for each in self._orders]
                self._orders.clear()
            self._rest(waiting)

    def _run(self) -> None:
        """Makes copies, and ends those that are not used; ends itself when there are none."""
        try:
            while self._step():
                pass
        finally:
            with self._lock:
                if self._thread is threading.current_thread():  # an error ended it
                    self._thread, self._is_making = None, False
                self._changed.notify_all()
            memory_limit.end_thread()

    def _step(self) -> bool:
        """Makes a copy, drops unused ones, or waits; returns whether there will be more to do."""
        with self._changed:
            now = time.monotonic()
            unused = [t for t, copy in self._copies.items() if copy.used_at + _UNUSED_SECONDS <= now]
            dropped = self._taken(unused)
            order = self._orders.popleft() if self._orders else None
            self._is_making = order is not None
            if order is None and not unused:
                self._changed.notify_all()
                if self._is_closed or not self._copies:
                    self._thread = None
                    return False
                first = min(copy.used_at for copy in self._copies.values())
                self._changed.wait(max(first + _UNUSED_SECONDS - now, 0.0))
        self._detach(dropped)
        if order is not None:
            self._make(order)
        return True

    def _make(self, order: _Order) -> None:
        """Makes a copy and shows it to queries; a copy that fails leaves nothing."""
        with self._lock:
            if self._asked.get(order.table) is not order.asked:
                return
        started = time.monotonic()
        copy = Copy(f"{DATABASE}{next(_numbers)}", order.asked.identity, frozenset(order.columns))
        is_made = False
        try:
            is_made = self._filled(copy, order)
        except Exception as error:  # of DuckDB, for memory or an end; queries go on without the copy
            _log.debug("no copy of columns was made: %s", error)
        copy.used_at = time.monotonic()
        copy.seconds = copy.used_at - started
        with self._lock:
            is_newest = self._asked.get(order.table) is order.asked
            is_shown = is_made and is_newest and self._may_begin()
            dropped = self._taken([order.table] if order.table in self._copies and is_shown else [])
            if is_shown:
                self._copies[order.table] = copy
                order.asked.reads, order.asked.seconds, order.asked.is_busy = 0, 0.0, False
        if not is_shown:
            self._rest([order.asked])
            dropped = [copy]
        self._detach(dropped)

    def _rest(self, unserved: Iterable[_Asked]) -> None:
        with self._lock:
            for asked in unserved:
                asked.rest()

    def _filled(self, copy: Copy, order: _Order) -> bool:
        """Copies rows step by step; returns whether they had room."""
        with self._connection.cursor() as cursor:
            with self._lock:
                if not self._may_begin():
                    return False
                self._working = cursor
            try:
                cursor.execute(f"ATTACH ':memory:' AS {copy.database} (COMPRESS)")
                columns = ", ".join('"' + name.replace('"', '""') + '"' for name in order.names)
                only = f" WHERE {LIVE}" if LIVE in order.stored.column_names else ""
                into = f"CREATE TABLE {copy.database}.main.{TABLE} AS"
                for part in _steps(order.stored):
                    cursor.register("__rows__", part)
                    cursor.execute(f"{into} SELECT {columns} FROM __rows__{only}")
                    cursor.unregister("__rows__")
                    cursor.execute(f"CHECKPOINT {copy.database}")
                    into = f"INSERT INTO {copy.database}.main.{TABLE}"
                    if not self._has_room(order.table):
                        return False
            finally:
                with self._lock:
                    self._working = None
        return True

    def _has_room(self, table: object) -> bool:
        """Drops other copies that are hardly used until all fit; returns whether they do."""
        while True:
            with self._lock:
                if not self._may_begin():
                    return False
                others = [each for each in self._copies if each != table]
            if len(others) < _COPIES_MAX and self._used() <= self.bytes_max:
                return True
            with self._lock:
                idle = time.monotonic() - _IDLE_SECONDS
                oldest = next((each for each in others if each in self._copies), None)
                if oldest is None or self._copies[oldest].used_at > idle:
                    return False
                dropped = self._taken([oldest])
            self._detach(dropped)


def _share_after(asked: _Asked, copy: Copy | None) -> float:
    """Returns the share for the next version of a table: more if this one's copy was not worth its time."""
    if copy is None:  # one that is not ready will not be used
        return min(asked.share * 2, _SHARE_MAX) if asked.is_busy else asked.share
    return min(asked.share * 2, _SHARE_MAX) if copy.saved < copy.seconds else _SHARE_MIN


def _steps(rows: pa.Table) -> Iterator[pa.Table]:
    """Cuts a table at its batches into parts of about `_BYTES_A_STEP`."""
    batches, held = [], 0
    for batch in rows.to_batches():
        batches.append(batch)
        held += batch.nbytes
        if held >= _BYTES_A_STEP:
            yield pa.Table.from_batches(batches)
            batches, held = [], 0
    if batches:
        yield pa.Table.from_batches(batches)
