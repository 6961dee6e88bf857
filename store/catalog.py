"""The catalog: every fact that is not in a segment file, in one LMDB environment.

One write transaction of LMDB is *the switch*: a version is visible when its record in `versions` is
committed, and what it consists of (segments, bitmaps, label, transaction, new head) is committed with it.
LMDB admits one writer at a time over all processes of the host; readers never wait. Keys are big-endian, so
a prefix lists in order. Databases inside:

    meta       name                               -> format, ids to give next
    databases  name                               -> {id}
    names      database id | table name           -> table id
    tables     table id                           -> {database, name, directory, created_ms}
    heads      table id                           -> [version, schema revision]
    schemas    table id | revision                -> schema record
    versions   table id | version                 -> what the version added, dropped and hid, and its figures
    segments   table id | segment id              -> {meta, created, dropped}; dropped 0 = still live
    inline     table id | segment id              -> bytes of a small segment
    bitmaps    table id | version                 -> delete bitmap record (store.delete_bitmap)
    labels     database id | label                -> transaction id
    txns       transaction id                     -> transaction record (store.transaction)
    users      user name                          -> password hashes and grants (store.accounts)

An environment is opened once per path and process, lazily, and never used across a fork. No read
transaction outlives a
method: a reader that lingers would keep LMDB from reusing pages.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import lmdb

from store import records
from store.errors import CommitUnknownError, FormatError, NotFoundError, UnavailableError
from store.settings import Settings

_DATABASES: Final = (
    "meta",
    "databases",
    "names",
    "tables",
    "heads",
    "schemas",
    "versions",
    "segments",
    "inline",
    "bitmaps",
    "labels",
    "txns",
    "users",
)
_READERS_MAX: Final = 1024
_environments: dict[tuple[str, int], _Environment] = {}
_environments_lock = threading.Lock()


def _u64(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}Q", *numbers)


class Transaction:
    """Typed access to the catalog within one LMDB transaction; made by `Catalog.read` and `Catalog.write`."""

    def __init__(self, txn: lmdb.Transaction, databases: dict[str, Any]) -> None:
        self._txn = txn
        self._db = databases

    def get(self, database: str, key: bytes) -> Any:
        """The record under a key, None when there is none."""
        data = self._txn.get(key, db=self._db[database])
        return None if data is None else records.unpack(data)

    def put(self, database: str, key: bytes, value: Any) -> None:
        self._txn.put(key, records.pack(value), db=self._db[database])

    def get_raw(self, database: str, key: bytes) -> bytes | None:
        data = self._txn.get(key, db=self._db[database])
        return None if data is None else bytes(data)

    def put_raw(self, database: str, key: bytes, data: bytes) -> None:
        self._txn.put(key, data, db=self._db[database])

    def delete(self, database: str, key: bytes) -> None:
        self._txn.delete(key, db=self._db[database])

    def items(self, database: str, prefix: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
        """Keys and raw records that start with a prefix, ascending."""
        with self._txn.cursor(db=self._db[database]) as cursor:
            found = cursor.set_range(prefix) if prefix else cursor.first()
            while found:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    return
                yield key, memoryview(cursor.value())
                found = cursor.next()

    def next_id(self, name: str) -> int:
        """Takes the next number of a counter, 1 first."""
        key = f"next_{name}".encode()
        value = int(self.get("meta", key) or 1)
        self.put("meta", key, value + 1)
        return value


class Catalog:
    """The catalog of one data directory.

    Args:
        path: the LMDB directory; made when absent.

    Raises:
        FormatError: the directory holds something else, or a newer program's catalog.
        UnavailableError: it cannot be opened or written.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self._settings = settings
        self._real_path = os.path.realpath(path)
        self._environment()

    def _environment(self) -> _Environment:
        key = (self._real_path, os.getpid())
        environment = _environments.get(key)
        if environment is None:
            with _environments_lock:
                environment = _environments.get(key)
                if environment is None:
                    environment = _Environment(self.path, self._settings)
                    _environments[key] = environment
        return environment

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A consistent view of the catalog, for a moment."""
        with self._environment().begin(write=False) as transaction:
            yield transaction

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """The only way to change the catalog. Commits durably at the end; any exception leaves everything
        as it was.

        Raises:
            UnavailableError: the catalog's map or the disk is full.
        """
        with self._environment().begin(write=True) as transaction:
            yield transaction

    def sweep_readers(self) -> int:
        """Frees reader slots of dead processes; they would pin pages."""
        return self._environment().env.reader_check()


class _Environment:
    """One open LMDB environment of this process."""

    def __init__(self, path: Path, settings: Settings) -> None:
        _refuse_foreign(path)
        path.mkdir(parents=True, exist_ok=True)
        try:
            self.env = lmdb.open(
                str(path),
                map_size=settings.catalog_bytes_max,
                max_dbs=len(_DATABASES) + 8,
                max_readers=_READERS_MAX,
            )
            self.databases = {name: self.env.open_db(name.encode()) for name in _DATABASES}
        except lmdb.InvalidError as error:
            raise FormatError(f"{path}: not a catalog of this program ({error})", path=str(path)) from error
        except (lmdb.Error, OSError) as error:
            raise UnavailableError(f"{path}: cannot be opened: {error}", kind="catalog") from error
        self._active = 0
        self._idle = threading.Condition()
        self.env.reader_check()
        self._check_format(path)

    def _check_format(self, path: Path) -> None:
        with self.begin(write=False) as tx:
            found = tx.get("meta", b"format")
        if found is None:
            with self.begin(write=True) as tx:
                found = tx.get("meta", b"format") or records.FORMAT
                tx.put("meta", b"format", found)
        if found != records.FORMAT:
            raise FormatError(
                f"{path}: the store has format {found}, this program reads {records.FORMAT}; upgrade it",
                found=found,
                expected=records.FORMAT,
            )

    @contextmanager
    def begin(self, *, write: bool) -> Iterator[Transaction]:
        txn = self._begin(write)
        try:
            yield Transaction(txn, self.databases)
            if write:
                _commit(txn)
        except lmdb.MapFullError as error:
            raise UnavailableError(
                f"the catalog has used its {self.env.info()['map_size']} bytes; raise [store] "
                "catalog_bytes_max and open the store again",
                kind="map_full",
            ) from error
        except lmdb.DiskError as error:
            raise UnavailableError(f"the catalog cannot be written: {error}", kind="disk") from error
        finally:
            txn.abort()  # of no effect after a commit
            with self._idle:
                self._active -= 1
                self._idle.notify_all()

    def _begin(self, write: bool) -> lmdb.Transaction:
        with self._idle:
            self._active += 1
        try:
            while True:
                try:
                    return self.env.begin(write=write, buffers=True)
                except lmdb.MapResizedError:
                    self._adopt_size()
        except BaseException:
            with self._idle:
                self._active -= 1
            raise

    def _adopt_size(self) -> None:
        """Another process has opened the catalog with a larger map: take its size, with no transaction of
        ours open."""
        with self._idle:
            self._active -= 1
            self._idle.wait_for(lambda: self._active == 0)
            self.env.set_mapsize(0)
            self._active += 1


def _commit(txn: lmdb.Transaction) -> None:
    """Commits; an error of the disk while the pages are written leaves the outcome open."""
    try:
        txn.commit()
    except lmdb.MapFullError:
        raise
    except lmdb.Error as error:
        raise CommitUnknownError(
            f"the catalog's disk failed in a commit ({error}); open the store again and look up the label"
        ) from error


def _refuse_foreign(path: Path) -> None:
    """A directory that holds files but no catalog is somebody else's."""
    parent = path.parent
    if path.is_dir() or not parent.exists():
        return
    if not parent.is_dir():
        raise FormatError(f"{parent}: expected a directory, found a file", path=str(parent))
    foreign = [entry.name for entry in parent.iterdir()]
    if foreign:
        raise FormatError(
            f"{parent}: not a store: it holds {foreign[0]!r} and no catalog; "
            "name an empty or a new directory",
            path=str(parent),
        )


# Keys and lookups, one function per fact.


def segment_key(table: int, segment: str) -> bytes:
    return _u64(table) + segment.encode()


def version_key(table: int, version: int) -> bytes:
    return _u64(table, version)


def table_key(table: int) -> bytes:
    return _u64(table)


def schema_key(table: int, revision: int) -> bytes:
    return _u64(table, revision)


def txn_key(txn_id: int) -> bytes:
    return _u64(txn_id)


def label_key(database: int, label: str) -> bytes:
    return _u64(database) + label.encode()


def name_key(database: int, table: str) -> bytes:
    return _u64(database) + table.encode()


def find_database(tx: Transaction, name: str) -> int | None:
    record = tx.get("databases", name.encode())
    return None if record is None else int(record["id"])


def require_database(tx: Transaction, name: str) -> int:
    found = find_database(tx, name)
    if found is None:
        raise NotFoundError(f"Unknown database '{name}'", kind="unknown_database", database=name)
    return found


def find_table(tx: Transaction, database: int, name: str) -> int | None:
    record = tx.get("names", name_key(database, name))
    return None if record is None else int(record)


def head(tx: Transaction, table: int) -> tuple[int, int]:
    """Newest version and schema revision of a table.

    Raises:
        NotFoundError: the table was dropped.
    """
    record = tx.get("heads", table_key(table))
    if record is None:
        raise NotFoundError("the table was dropped", kind="unknown_table", table=table)
    return int(record[0]), int(record[1])
