"""Copies of the columns that queries read often, as tables of DuckDB.

DuckDB reads its own tables faster than Arrow batches: they are compressed, small decimals have 8 bytes
instead of 16, and it knows bounds and distinct counts of their columns, by which it orders joins and
chooses algorithms. The copies of a DuckDB database are made like this:

1. Each query notes which columns of which version of a table it scanned, and for how long.
2. A version is worth a copy of the columns noted so far after `_READS_MIN` queries that together took a share
   of the time that the copy will take. The share grows for a table whose last copy was hardly used.
3. One thread makes the copies, and holds the version while it reads. Each copy is a database of its own in
   memory, compressed after each `_BYTES_A_STEP`.
4. A query that reads only copied columns of that version reads the copy instead.
5. The first query of a newer version drops the copy. One that was not used for `_IDLE_SECONDS` ends when
   others need its memory, one that was not used for `_UNUSED_SECONDS` in any case, and all of them end in a
   shortage of memory. Queries that read a copy keep it until they end.

Only rows that count are copied, so a copy needs no marks.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa

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
_COPIES_MAX: Final = 64
_TABLES_MAX: Final = 1_000  # of which reads are remembered
_PAUSE_SECONDS: Final = 60.0  # without new copies after a shortage
_REST_SECONDS: Final = 600.0
_IDLE_SECONDS: Final = 30.0  # a copy that was used since does not end for another one
_UNUSED_SECONDS: Final = 600.0  # a copy that was not used since ends
_RETRY_SECONDS: Final = 1.0  # for databases that cannot end yet
_END_SECONDS: Final = 10.0
_USED: Final = (
    "SELECT coalesce(sum(memory_usage_bytes), 0) FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
)

_numbers: Final = itertools.count(1)


class RowsToCopy(NamedTuple):
    """Rows of a version.

    Attributes:
        columns: the names of the columns to copy.
        mark: the column that marks the rows that count; empty if all do.
    """

    batches: Iterator[pa.RecordBatch]
    columns: Sequence[str]
    mark: str


OpenRows: TypeAlias = "Callable[[Snapshot, Sequence[str]], RowsToCopy]"


class Read(NamedTuple):
    """A scan of a version by a query; `columns` have their names in the table."""

    snapshot: Snapshot
    columns: Sequence[str]


@dataclass(eq=False)
class Copy:
    """Columns of one version of a table, in a database of their own.

    Attributes:
        database: its name in DuckDB; its table is `TABLE`.
        identity: of the version.
        used_at: the moment of its last use.
        seconds: what making it took.
        read_seconds: what the queries that read it took.
        readers: queries that read it.
    """

    database: str
    identity: StateIdentity
    columns: frozenset[str]
    used_at: float = 0.0
    seconds: float = 0.0
    read_seconds: float = 0.0
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
    snapshot: Snapshot
    open_rows: OpenRows


class ColumnCopies:
    """The copies of one DuckDB database.

    `_settle` and `_drop` run under the lock. Queries release copies without waiting for it, as the garbage
    collector may end one in a thread that holds it.

    Args:
        connection: to the database.
        bytes_max: of memory that all copies together may use.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, bytes_max: int) -> None:
        self._connection = connection
        self.bytes_max = bytes_max
        self._pid = os.getpid()
        self._lock = new_lock()
        self._changed = threading.Condition(self._lock)
        self._asked: OrderedDict[object, _Asked] = OrderedDict()
        self._copies: OrderedDict[object, Copy] = OrderedDict()  # by table, the last used one last
        self._released: deque[tuple[Copy, float]] = deque()
        self._held = 0  # dropped copies that queries still read
        self._ending: list[str] = []  # databases that no query reads any more
        self._orders: deque[_Order] = deque()
        self._thread: threading.Thread | None = None
        self._working: duckdb.DuckDBPyConnection | None = None
        self._is_at_work = False
        self._paused_until = 0.0
        self._is_closed = False
        memory_limit.on_shortage(self.relieve)

    def find(self, snapshot: Snapshot, columns: Iterable[str]) -> Copy | None:
        """Returns a copy that has some columns of a version, None without one; `release` must follow."""
        if not self._copies:
            return None
        table = snapshot.identity.table
        with self._lock:
            self._settle()
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
        """Ends the use of a copy by a query that took some seconds. Never waits."""
        self._released.append((copy, seconds))
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        while self._released:
            copy, seconds = self._released.popleft()
            copy.readers -= 1
            copy.read_seconds += seconds
            if copy.is_dropped and not copy.readers:
                self._held -= 1
                self._ending.append(copy.database)
                self._changed.notify_all()

    def _drop(self, tables: Iterable[object]) -> None:
        """Hands out the copies of some tables no more; their databases end when no query reads them."""
        for table in tables:
            copy = self._copies.pop(table)
            copy.is_dropped = True
            if copy.readers:
                self._held += 1
            else:
                self._ending.append(copy.database)
            self._changed.notify_all()  # the thread looks more often while dropped copies are read

    def note(self, reads: Sequence[Read], seconds: float, open_rows: OpenRows) -> None:
        """Notes what a query scanned without a copy, and has copies made that are worth it.

        Args:
            seconds: what the query took.
        """
        weights = [read.snapshot.identity.live_rows * len(read.columns) for read in reads]
        for read, weight in zip(reads, weights, strict=True):
            if weight:
                self._note(read, seconds * weight / sum(weights), open_rows)

    def _note(self, read: Read, seconds: float, open_rows: OpenRows) -> None:
        with self._lock:
            self._settle()
            asked = self._asked_of(read.snapshot)
            if asked is None:
                return
            asked.columns.update(dict.fromkeys(read.columns))
            asked.reads += 1
            asked.seconds += seconds
            if not asked.is_due() or not self._may_begin():
                return
            table, columns = read.snapshot.identity.table, tuple(asked.columns)
            self._orders.append(_Order(table, asked, columns, read.snapshot.held(), open_rows))
            asked.is_busy = True
            self._changed.notify_all()
            if self._thread is not None:  # it takes this one, too
                return
            thread = self._thread = threading.Thread(target=self._run, name="column copies", daemon=True)
        self._start(thread)

    def _may_begin(self) -> bool:
        return not self._is_closed and time.monotonic() >= self._paused_until

    def _asked_of(self, snapshot: Snapshot) -> _Asked | None:
        """Returns the notes on a version, None if there are some on a newer one; drops older copies."""
        identity, table = snapshot.identity, snapshot.identity.table
        asked = self._asked.get(table)
        if asked is not None and asked.identity == identity:
            self._asked.move_to_end(table)
            return asked
        if asked is not None and snapshot.version < asked.version:
            return None
        copy = self._copies.get(table)
        if copy is not None:
            self._drop([table])
        share = _share_after(asked, copy) if asked is not None else _SHARE_MIN
        made = self._asked[table] = _Asked(snapshot.version, identity, share)
        self._asked.move_to_end(table)
        while len(self._asked) > _TABLES_MAX:
            self._asked.popitem(last=False)
        return made

    def relieve(self) -> None:
        """Drops all copies, and makes none for a while: memory is short."""
        if self._pid != os.getpid():  # a connection to DuckDB must not cross a fork
            return
        with self._lock:
            self._settle()
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            self._orders.clear()
            self._asked.clear()
            self._drop(list(self._copies))
            if self._working is not None:
                self._working.interrupt()
        self._end_databases()

    def wait(self, seconds: float) -> bool:
        """Waits until no copy is being made or ended; returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._orders and not self._is_at_work and not self._ending, seconds
            )

    def sizes(self) -> tuple[int, int]:
        """Returns the number of copies, and the bytes of memory of all that have not ended."""
        with self._lock:
            count, others = len(self._copies), self._held + len(self._ending)
        try:
            return count, self._used() if count or others else 0
        except Exception as error:
            _log.debug("the memory of copies is not known: %s", error)
            return count, 0

    def _used(self) -> int:
        with self._connection.cursor() as cursor:
            return int(cursor.execute(_USED).fetchall()[0][0])

    def end(self) -> None:
        """Forgets all copies: their database ends, or has ended."""
        with self._lock:
            self._is_closed = True
            self._orders.clear()
            self._asked.clear()
            self._copies.clear()
            self._ending.clear()
            if self._working is not None:
                self._working.interrupt()
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the making of copies, and waits for it."""
        self.end()
        with self._changed:
            self._changed.wait_for(lambda: self._thread is None, _END_SECONDS)

    def _start(self, thread: threading.Thread) -> None:
        try:
            memory_limit.start_thread(thread)
        except (RuntimeError, MemoryError):  # the system has none left: later queries try again
            with self._lock:
                self._thread = None
                for order in self._orders:
                    order.asked.rest()
                self._orders.clear()

    def _run(self) -> None:
        """Makes copies, and ends those that are not used; ends itself when there are none."""
        try:
            while self._step():
                pass
        finally:
            with self._lock:
                if self._thread is threading.current_thread():  # an error ended it
                    self._thread, self._is_at_work = None, False
                self._changed.notify_all()
            memory_limit.end_thread()

    def _step(self) -> bool:
        """Makes a copy, ends others, or waits; returns whether there will be more to do."""
        with self._changed:
            self._settle()
            now = time.monotonic()
            self._drop([t for t, copy in self._copies.items() if copy.used_at + _UNUSED_SECONDS <= now])
            order = self._orders.popleft() if self._orders else None
            self._is_at_work = not self._is_closed and (order is not None or bool(self._ending))
            if not self._is_at_work:
                self._changed.notify_all()
                if self._is_closed or not (self._copies or self._held):
                    self._thread = None
                    return False
                first = min((copy.used_at for copy in self._copies.values()), default=now)
                left = max(first + _UNUSED_SECONDS - now, 0.0)
                self._changed.wait(min(left, _RETRY_SECONDS) if self._held else left)
                return True
        has_ended = self._end_databases()
        if order is not None:
            self._make(order)
        elif not has_ended:
            with self._changed:
                self._changed.wait(_RETRY_SECONDS)
        return True

    def _end_databases(self) -> bool:
        """Ends the databases of dropped copies; returns whether all could. The others are tried again."""
        with self._lock:
            databases, self._ending = self._ending, []
        ended = 0
        try:
            with self._connection.cursor() as cursor:
                for database in databases:
                    cursor.execute(f"DETACH DATABASE IF EXISTS {database}")
                    ended += 1
        except Exception as error:  # for memory
            _log.debug("copy %s does not end yet: %s", databases[ended], error)
        with self._lock:
            self._ending += databases[ended:]
            self._changed.notify_all()
        return ended == len(databases)

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
        except Exception as error:  # of the rows or of DuckDB; queries go on without the copy
            _log.debug("no copy of columns was made: %s", error)
        copy.used_at = time.monotonic()
        copy.seconds = copy.used_at - started
        with self._lock:
            if is_made and self._may_begin() and self._asked.get(order.table) is order.asked:
                self._drop([order.table] if order.table in self._copies else [])
                self._copies[order.table] = copy
                order.asked.reads, order.asked.seconds, order.asked.is_busy = 0, 0.0, False
            else:
                order.asked.rest()
                self._ending.append(copy.database)

    def _filled(self, copy: Copy, order: _Order) -> bool:
        """Copies rows step by step; returns whether they had room."""
        rows = order.open_rows(order.snapshot, order.columns)
        columns = ", ".join(map(_quoted, rows.columns))
        only = f" WHERE {_quoted(rows.mark)}" if rows.mark else ""
        table = f"{copy.database}.main.{TABLE}"
        into = f"CREATE TABLE {table} AS"
        with self._connection.cursor() as cursor:
            with self._lock:
                if not self._may_begin():
                    return False
                self._working = cursor
            try:
                cursor.execute(f"ATTACH ':memory:' AS {copy.database} (COMPRESS)")
                for part in _steps(rows.batches, min(_BYTES_A_STEP, self.bytes_max)):
                    cursor.register("__rows__", part)
                    cursor.execute(f"{into} SELECT {columns} FROM __rows__{only}")
                    cursor.unregister("__rows__")
                    cursor.execute(f"CHECKPOINT {copy.database}")
                    into = f"INSERT INTO {table}"
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
                self._settle()
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
                self._drop([oldest])
            self._end_databases()


def _share_after(asked: _Asked, copy: Copy | None) -> float:
    """Returns the share for the next version of a table: more if this one's copy was not worth its time."""
    if copy is None:  # one that is not ready will not be used
        return min(asked.share * 2, _SHARE_MAX) if asked.is_busy else asked.share
    return min(asked.share * 2, _SHARE_MAX) if copy.read_seconds < copy.seconds else _SHARE_MIN


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _steps(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.Table]:
    """Joins batches to parts of about `bytes_max`."""
    joined, held = [], 0
    for batch in batches:
        joined.append(batch)
        held += batch.nbytes
        if held >= bytes_max:
            yield pa.Table.from_batches(joined)
            joined, held = [], 0
    if joined:
        yield pa.Table.from_batches(joined)
