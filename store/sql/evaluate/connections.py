"""Connections to DuckDB databases without tables, which the queries of a process share.

DuckDB is imported when the first connection is opened. A database creates a macro when a statement first
calls it: all of them need longer than most statements.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog.workload_groups import WorkloadGroup
from seqstore.store.runtime import memory_limit
from seqstore.store.runtime.descriptors import require_for_duckdb
from seqstore.store.runtime.forks import new_lock
from seqstore.store.sql.evaluate.column_copies import ColumnCopies
from seqstore.store.sql.translate.macros.catalog import called_macros

if TYPE_CHECKING:
    import duckdb

COPIES_PERCENT: Final = 6  # of the memory of queries
MEMORY_BYTES_MIN: Final = 16 << 20  # less is too little for DuckDB's own blocks
_CONFIG: Final = {"enable_external_access": "false", "python_enable_replacements": "false",
                  "autoload_known_extensions": "false", "autoinstall_known_extensions": "false"}  # fmt: skip
_DIVISION_SETTING: Final = "error_on_division_by_zero"  # since 2.0; before, a division by zero is NULL
_lock: Final = new_lock()


@dataclass(frozen=True)
class MemoryShare:
    """The memory of the queries that share a database.

    Attributes:
        name: of the database; a share with another name has another one.
        memory_bytes: DuckDB writes to disk beyond it where it can, else the query fails; 0 for its own limit.
        is_private: one session has it, and its database ends with the session.
    """

    name: str = ""
    memory_bytes: int = 0
    is_private: bool = False

    @classmethod
    def of(cls, group: WorkloadGroup, exec_mem_limit: int, session: int) -> MemoryShare | None:
        """Returns the share of memory of a session's queries, None for the common one.

        Queries of a group with a limit share that memory. A session with a lower limit of its own has that.
        """
        available = memory_limit.limit_bytes()
        common = _databases.common.memory_bytes or available
        of_group = min(int(available * group.memory_limit / 100), common) if group.memory_limit else 0
        most = of_group or common
        if exec_mem_limit < most:
            return cls(f"session {session}", exec_mem_limit, is_private=True)
        return cls(f"group {group.name}", of_group) if of_group else None


@dataclass(eq=False)
class _Database:
    """A database, the copies of columns in it, if any, and the names of the macros that it has."""

    duckdb: duckdb.DuckDBPyConnection
    copies: ColumnCopies | None
    macros: set[str] = field(default_factory=set)

    def create_macros(self, sql: str) -> None:
        """Creates the macros that a statement calls, directly or through others."""
        missing = called_macros(sql, self.macros)
        if not missing:
            return
        with _lock:  # two transactions may not create one macro
            missing = {name: text for name, text in missing.items() if name not in self.macros}
            self.duckdb.cursor().execute(";".join(missing.values()))
            self.macros.update(missing)


@dataclass(eq=False)
class Connection:
    """A connection to a database; it sees only the sources that it registered."""

    _database: _Database
    _duckdb: duckdb.DuckDBPyConnection

    @property
    def copies(self) -> ColumnCopies | None:
        """The copies of columns that its queries may read."""
        return self._database.copies

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self._duckdb.cursor()

    def create_macros(self, sql: str) -> None:
        """Creates the macros that a statement calls and the database lacks."""
        self._database.create_macros(sql)

    def close(self) -> None:
        self._duckdb.close()


@dataclass
class _Databases:
    """The databases of each process by share, and how many an internal error has ended.

    Attributes:
        common: the share of queries without one of their own.
        spill_directory: for memory beyond the limit of a share; empty: DuckDB's own choice.
        copies_percent: of the memory of a share that copies of columns may use.
    """

    of_process: dict[tuple[int, MemoryShare], _Database] = field(default_factory=dict)
    ended: int = 0
    common: MemoryShare = MemoryShare()
    spill_directory: str = ""
    copies_percent: int = COPIES_PERCENT


_databases: Final = _Databases()


def configure(memory_bytes: int, spill_directory: str, copies_percent: int = COPIES_PERCENT) -> None:
    """Limits the memory of all queries without a limit of their own, before the first connection."""
    _databases.common = MemoryShare("", memory_bytes)
    _databases.spill_directory = spill_directory
    _databases.copies_percent = copies_percent


def column_copies() -> list[ColumnCopies]:
    """Returns the copies of columns of this process."""
    found = [each.copies for key, each in list(_databases.of_process.items()) if key[0] == os.getpid()]
    return [copies for copies in found if copies is not None]


def common_bytes() -> int:
    """Returns the memory that queries without a limit of their own share; 0 for DuckDB's own limit."""
    return _databases.common.memory_bytes


def connect(share: MemoryShare | None = None) -> Connection:
    """Opens a connection that can only evaluate queries; its configuration is locked.

    The connections of a process that have the same share of memory have one empty database. An internal error
    of DuckDB ends the database for all its connections; the next call opens another.
    """
    share = share if share is not None else _databases.common
    with _lock:
        key = os.getpid(), share  # its threads do not survive a fork
        database = _databases.of_process.get(key)
        if database is None:
            made = _new_database(share.memory_bytes)
            bytes_max = (share.memory_bytes or memory_limit.limit_bytes()) * _databases.copies_percent // 100
            copies = ColumnCopies(made, bytes_max) if bytes_max and not share.is_private else None
            database = _databases.of_process[key] = _Database(made, copies)
        return Connection(database, database.duckdb.cursor())


class QueryConnection:
    """A session's connection, opened by its first query and again when its database has ended.

    Args:
        share: returns the share of memory that the next query has.
    """

    def __init__(self, share: Callable[[], MemoryShare | None] = lambda: None) -> None:
        self._connection: Connection | None = None
        self._databases_ended = 0  # when the connection was opened
        self._wanted = share
        self._share: MemoryShare | None = None

    def get(self) -> Connection:
        share = self._wanted()
        if share != self._share:
            self.close()
            self._share = share
        if self._connection is None or self._databases_ended != _databases.ended:
            self._databases_ended = _databases.ended
            self._connection = connect(share)
        return self._connection

    @property
    def copies(self) -> ColumnCopies | None:
        """The copies that the next query may read, if the connection is open."""
        return self._connection.copies if self._connection is not None else None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._share is not None and self._share.is_private:
            with _lock:
                database = _databases.of_process.pop((os.getpid(), self._share), None)
            if database is not None:
                database.duckdb.close()


def forget_ended() -> None:
    """Drops the databases of this process that have ended."""
    import duckdb

    with _lock:
        for key, database in list(_databases.of_process.items()):
            if key[0] != os.getpid():
                continue
            try:
                database.duckdb.cursor().execute("SELECT 1")
            except duckdb.Error:
                del _databases.of_process[key]
                _databases.ended += 1
                if database.copies is not None:
                    database.copies.end()


@atexit.register
def _close_all() -> None:
    """Closes the databases of this process; its binding reports those that modules still hold as leaks."""
    for key in [key for key in _databases.of_process if key[0] == os.getpid()]:
        ended = _databases.of_process.pop(key)
        if ended.copies is not None:
            ended.copies.close()
        ended.duckdb.close()


def _new_database(memory_bytes: int = 0) -> duckdb.DuckDBPyConnection:
    import duckdb

    require_for_duckdb()
    config: dict[str, str | bool | int | float | list[str]] = {**_CONFIG}
    if memory_bytes:
        config["memory_limit"] = f"{max(memory_bytes, MEMORY_BYTES_MIN)}B"
    if _databases.spill_directory:  # it must be set before external access ends
        del config["enable_external_access"]
        config["temp_directory"] = _databases.spill_directory
    connection = duckdb.connect(":memory:", config=config)
    if memory_bytes:  # freed memory goes back to the system within a second
        connection.execute("SET allocator_background_threads = true")
    connection.execute("SET enable_external_access = false")
    with suppress(duckdb.CatalogException):  # a version without the setting; some have it and do not list it
        connection.execute(f"SET GLOBAL {_DIVISION_SETTING} = false")  # NULL instead of an error, as in Doris
    connection.execute("SET lock_configuration = true")
    return connection
