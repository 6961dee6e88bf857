"""Copies of the columns that queries read often, as tables of DuckDB.

DuckDB reads its own tables faster than Arrow batches: they are compressed, small decimals have 8 bytes
instead of 16, and it knows bounds and distinct counts of their columns, by which it orders joins and
chooses algorithms. The copies of a DuckDB database are made like this:

1. Each query notes which columns of which version of a table it scanned, and for how long.
2. When that is worth a copy (`copy_demand`), the columns noted so far are copied.
3. One thread makes the copies, and holds the version while it reads. Each copy is a database of its own in
   memory, compressed after each `_BYTES_A_STEP`. Where queries read newer versions by then, it follows.
4. A query that reads only copied columns of that version reads the copy instead.
5. A copy follows its table: when queries of a newer version took a share of the time that this will take, the
   rows that came since are put in and those that went are removed, in one transaction of DuckDB
   (`copy_changes`). Queries whose transaction has begun go on with the rows of their version. Where too much
   changed, or queries read other columns, the copy ends, and another one is made as the first.
6. A copy that was not used for `_IDLE_SECONDS` ends when others need its memory, one that was not used for
   `_UNUSED_SECONDS` in any case, and all of them end in a shortage of memory. Queries that read a copy keep
   it until they end.

Only rows that count are copied, so a copy needs no marks.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from seqstore.store.read.numbered_scan import HeldRows
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.table_state import StateIdentity
from seqstore.store.runtime import memory_limit
from seqstore.store.runtime.forks import new_lock
from seqstore.store.sql.evaluate.copy_changes import (
    CHANGED_SHARE,
    RowsToCopy,
    change_rows,
    compress,
    used_bytes,
)
from seqstore.store.sql.evaluate.copy_demand import Demand

if TYPE_CHECKING:
    import duckdb

_log: Final = logging.getLogger("seqstore.copies")

TABLE: Final = "__copy__"
DATABASE: Final = "__copy_"
_BYTES_A_STEP: Final = 96 << 20  # uncompressed at a time
_COPIES_MAX: Final = 64
_TABLES_MAX: Final = 1_000  # of which reads are remembered
_PAUSE_SECONDS: Final = 60.0  # without new copies after a shortage
_IDLE_SECONDS: Final = 30.0  # a copy that was used since does not end for another one
_UNUSED_SECONDS: Final = 600.0  # a copy that was not used since ends
_RETRY_SECONDS: Final = 1.0  # for databases that cannot end yet
_END_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.2  # after which the thread looks for queries that released a copy
_LOOSE_SHARE: Final = 0.02  # of the rows of a copy, changed since it was compressed
_START_SECONDS: Final = 10.0  # within which queries begin to read a copy that they found
_numbers: Final = itertools.count(1)


OpenRows: TypeAlias = "Callable[[Snapshot, Sequence[str], HeldRows], RowsToCopy]"


class Read(NamedTuple):
    """A scan of a version by a query; `columns` have their names in the table."""

    snapshot: Snapshot
    columns: Sequence[str]


@dataclass(eq=False)
class Copy:
    """Columns of one version of a table, in a database of their own.

    Attributes:
        database: its name in DuckDB; its table is `TABLE`.
        identity: of the version whose rows it has.
        names: of its columns in the table.
        held: its rows.
        used_at: the moment of its last use.
        seconds: what making it took, or its last changes.
        read_seconds: what the queries took that have read it since.
        changed: rows that came or went since it was compressed.
        uses: of queries that read it.
        starting: those whose transaction of DuckDB has not begun: they would meet rows of a later version.
        is_changing: it becomes another version, and no query may begin to read it.
    """

    database: str
    identity: StateIdentity
    names: tuple[str, ...]
    held: HeldRows = field(default_factory=HeldRows)
    used_at: float = 0.0
    seconds: float = 0.0
    read_seconds: float = 0.0
    changed: int = 0
    uses: set[Use] = field(default_factory=set)
    starting: set[Use] = field(default_factory=set)
    is_changing: bool = False
    is_dropped: bool = False

    def __post_init__(self) -> None:
        self._columns = frozenset(self.names)

    @property
    def table(self) -> str:
        """Its name in DuckDB."""
        return f"{self.database}.main.{TABLE}"

    def serves(self, snapshot: Snapshot, columns: Iterable[str]) -> bool:
        """Returns whether it has some columns of a version."""
        is_same = self.identity == snapshot.identity and not self.is_changing
        return is_same and self._columns.issuperset(columns)

    def may_follow(self, identity: StateIdentity, columns: Iterable[str]) -> bool:
        """Returns whether its rows may become those of another version: one of the same schema."""
        return self.identity.rows[1] == identity.rows[1] and self._columns.issuperset(columns)


@dataclass(eq=False)
class Use:
    """The use of a copy by a query.

    Attributes:
        identity: of the version that the query reads.
        seconds: what the query took, once it has ended.
    """

    copy: Copy
    identity: StateIdentity
    seconds: float = 0.0


class _Order(NamedTuple):
    table: object
    demand: Demand
    columns: tuple[str, ...]
    snapshot: Snapshot
    open_rows: OpenRows
    follower: Copy | None


class ColumnCopies:
    """The copies of one DuckDB database.

    `_settle`, `_drop`, `_demand_of`, `_is_ordered` and `_wait_for_begin` run under the lock. Queries release
    copies without waiting for it, as the garbage collector may end one in a thread that holds it.

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
        self._demands: OrderedDict[object, Demand] = OrderedDict()
        self._copies: OrderedDict[object, Copy] = OrderedDict()  # by table, the last used one last
        self._released: deque[Use] = deque()
        self._held = 0  # dropped copies that queries still read
        self._ending: list[str] = []  # databases that no query reads any more
        self._orders: deque[_Order] = deque()
        self._thread: threading.Thread | None = None
        self._working: duckdb.DuckDBPyConnection | None = None
        self._is_at_work = False
        self._table: object = None  # whose copy is being made or changed
        self._paused_until = 0.0
        self._is_closed = False
        memory_limit.on_shortage(self.relieve)

    def find(self, snapshot: Snapshot, columns: Iterable[str]) -> Use | None:
        """Returns the use of a copy that has some columns of a version, None without one.

        `began` must follow when DuckDB has begun to read it, and `release` in any case.
        """
        if not self._copies:
            return None
        table = snapshot.identity.table
        with self._lock:
            self._settle()
            found = self._copies.get(table)
            if found is None or not found.serves(snapshot, columns):
                return None
            self._copies.move_to_end(table)
            use = Use(found, found.identity)
            found.uses.add(use)
            found.starting.add(use)
            found.used_at = time.monotonic()
            return use

    def began(self, use: Use) -> None:
        """Notes that the transaction of DuckDB has begun in which a query reads a copy."""
        with self._lock:
            use.copy.starting.discard(use)
            self._changed.notify_all()

    def start_again(self, use: Use) -> bool:
        """Prepares another transaction of a query that has begun; returns whether the copy is as it was."""
        with self._lock:
            if use.copy.is_changing or use.copy.identity != use.identity:
                return False
            use.copy.starting.add(use)
            return True

    def has(self, snapshot: Snapshot, columns: Iterable[str]) -> bool:
        """Returns whether a query of these columns would read a copy."""
        found = self._copies.get(snapshot.identity.table)
        return found is not None and found.serves(snapshot, columns)

    def release(self, use: Use) -> None:
        """Ends the use of a copy. Never waits."""
        self._released.append(use)
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        while self._released:
            use = self._released.popleft()
            copy = use.copy
            if use not in copy.uses:
                continue
            copy.uses.discard(use)
            copy.read_seconds += use.seconds
            if use in copy.starting:
                copy.starting.discard(use)
                self._changed.notify_all()
            if copy.is_dropped and not copy.uses:
                self._held -= 1
                self._ending.append(copy.database)
                self._changed.notify_all()

    def _drop(self, tables: Iterable[object]) -> None:
        """Hands out the copies of some tables no more; their databases end when no query reads them."""
        for table in tables:
            copy = self._copies.pop(table)
            copy.is_dropped = True
            if copy.uses:
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
            demand = self._demand_of(read.snapshot)
            if demand is None:
                return
            demand.columns.update(dict.fromkeys(read.columns))
            demand.reads += 1
            demand.seconds += seconds
            table, columns = read.snapshot.identity.table, tuple(demand.columns)
            copy = self._copies.get(table)
            if copy is not None and not copy.may_follow(demand.identity, columns):
                copy = None
            is_due = demand.is_due(follows=copy is not None)
            if not is_due or self._is_ordered(table) or not self._may_begin():
                return
            self._orders.append(_Order(table, demand, columns, read.snapshot.held(), open_rows, copy))
            self._changed.notify_all()
            if self._thread is not None:  # it takes this one, too
                return
            thread = self._thread = threading.Thread(target=self._run, name="column copies", daemon=True)
        self._start(thread)

    def _may_begin(self) -> bool:
        return not self._is_closed and time.monotonic() >= self._paused_until

    def _is_ordered(self, table: object) -> bool:
        """Returns whether the copy of a table is being made or changed, or will be."""
        return table == self._table or any(order.table == table for order in self._orders)

    def _demand_of(self, snapshot: Snapshot) -> Demand | None:
        """Returns the notes on a version, None if there are some on a newer one."""
        table = snapshot.identity.table
        found = self._demands.get(table)
        if found is None:
            made = Demand(snapshot.version, snapshot.identity)
        elif found.identity == snapshot.identity:
            made = found
        elif snapshot.version < found.version:
            return None
        else:
            copy = self._copies.get(table)
            made = found.at(snapshot, was_used=copy.read_seconds >= copy.seconds if copy else None)
        self._demands[table] = made
        self._demands.move_to_end(table)
        while len(self._demands) > _TABLES_MAX:
            self._demands.popitem(last=False)
        return made

    def relieve(self) -> None:
        """Drops all copies, and makes none for a while: memory is short."""
        if self._pid != os.getpid():  # a connection to DuckDB must not cross a fork
            return
        with self._lock:
            self._settle()
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            self._orders.clear()
            self._demands.clear()
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
            return used_bytes(cursor)

    def end(self) -> None:
        """Forgets all copies: their database ends, or has ended."""
        with self._lock:
            self._is_closed = True
            self._orders.clear()
            self._demands.clear()
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
                    order.demand.rest()
                self._orders.clear()

    def _run(self) -> None:
        """Makes copies, and ends those that are not used; ends itself when there are none."""
        try:
            while self._step():
                pass
        finally:
            with self._lock:
                if self._thread is threading.current_thread():  # an error ended it
                    self._thread, self._is_at_work, self._table = None, False, None
                self._changed.notify_all()
            memory_limit.end_thread()

    def _step(self) -> bool:
        """Makes a copy, ends others, or waits; returns whether there will be more to do."""
        with self._changed:
            self._settle()
            now = time.monotonic()
            self._drop([t for t, copy in self._copies.items() if copy.used_at + _UNUSED_SECONDS <= now])
            order = self._orders.popleft() if self._orders else None
            self._table = order.table if order is not None else None
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
        """Changes the copy that follows, or makes one, and shows it to queries; what fails leaves nothing."""
        if order.follower is not None:
            if not order.follower.is_dropped:  # a new one would be worth more reads
                self._follow(order.follower, order)
            return
        self._drop_of(order.table)
        started = time.monotonic()
        copy = Copy(f"{DATABASE}{next(_numbers)}", order.demand.identity, order.columns)
        is_made = self._worked(copy, order, self._filled)
        copy.used_at = time.monotonic()
        copy.seconds = copy.used_at - started
        with self._lock:
            if is_made and self._may_begin():
                self._copies[order.table] = copy
                order.demand.begin_again()
            else:
                self._demands.get(order.table, order.demand).rest()
                self._ending.append(copy.database)

    def _follow(self, copy: Copy, order: _Order) -> None:
        """Changes the rows of a copy to those of a newer version; drops a copy that cannot follow."""
        started = time.monotonic()
        has_followed = self._worked(copy, order, self._changed_to)
        with self._lock:
            self._settle()
            order.demand.begin_again()
            if not has_followed and self._copies.get(order.table) is copy:
                self._drop([order.table])
            copy.is_changing = False
            copy.used_at = time.monotonic()
            copy.seconds, copy.read_seconds = copy.used_at - started, 0.0
            self._changed.notify_all()
        if not has_followed:
            self._end_databases()

    def _drop_of(self, table: object) -> None:
        """Drops the copy of a table, if there is one, and ends it unless a query reads it."""
        with self._lock:
            self._settle()
            self._drop([table] if table in self._copies else [])
        self._end_databases()

    def _worked(
        self, copy: Copy, order: _Order, work: Callable[[Copy, _Order, duckdb.DuckDBPyConnection], bool]
    ) -> bool:
        """Does the work of this thread in DuckDB; returns whether it succeeded."""
        try:
            with self._connection.cursor() as cursor:
                with self._lock:
                    if not self._may_begin():
                        return False
                    self._working = cursor
                try:
                    return work(copy, order, cursor)
                finally:
                    with self._lock:
                        self._working = None
        except Exception as error:  # of the rows or of DuckDB; queries go on without the copy
            _log.debug("no copy of columns was made: %s", error)
            return False

    def _filled(self, copy: Copy, order: _Order, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Copies rows step by step; returns whether they had room."""
        rows = order.open_rows(order.snapshot, copy.names, copy.held)
        cursor.execute(f"ATTACH ':memory:' AS {copy.database} (COMPRESS)")
        for _ in change_rows(cursor, copy.table, rows, min(_BYTES_A_STEP, self.bytes_max), is_new=True):
            compress(cursor, copy.database)
            if not self._has_room(order.table):
                return False
        copy.held = rows.changes.held
        return True

    def _changed_to(self, copy: Copy, order: _Order, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Changes rows in one transaction; returns whether they were few and had room.

        A query that has found the copy begins to read before the transaction ends, and none finds it while it
        ends.
        """
        rows = order.open_rows(order.snapshot, copy.names, copy.held)
        if rows.changes.rows > CHANGED_SHARE * order.demand.identity.live_rows:
            _log.debug("copy %s does not follow %d changed rows", copy.database, rows.changes.rows)
            return False
        cursor.execute("BEGIN")
        for _ in change_rows(cursor, copy.table, rows, min(_BYTES_A_STEP, self.bytes_max)):
            pass
        with self._changed:
            if not self._wait_for_begin(copy):
                _log.debug("copy %s does not follow: a query does not begin to read it", copy.database)
                return False  # the cursor rolls back
            copy.is_changing = True
        cursor.execute("COMMIT")
        with self._lock:
            copy.identity, copy.held = order.demand.identity, rows.changes.held
            copy.changed += rows.changes.rows
            # DuckDB 1 waits for all readers before it compresses.
            is_loose = copy.changed > _LOOSE_SHARE * order.demand.identity.live_rows and not copy.uses
        if is_loose:
            try:
                compress(cursor, copy.database)
                copy.changed = 0
            except Exception as error:  # tried again with the next changes
                _log.debug("copy %s is not compressed: %s", copy.database, error)
        return self._has_room(order.table)

    def _wait_for_begin(self, copy: Copy) -> bool:
        """Waits until all queries that have found a copy have begun; returns whether that came in time."""
        end = time.monotonic() + _START_SECONDS
        while True:
            self._settle()  # a query may have released the copy while the lock was held
            if copy.is_dropped or not self._may_begin():
                return False
            left = end - time.monotonic()
            if not copy.starting or left <= 0:
                return not copy.starting
            self._changed.wait(min(left, _LOOK_SECONDS))

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
