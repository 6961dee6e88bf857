"""The catalog: all metadata outside of segment files, in one LMDB environment.

One write transaction of LMDB is the commit point: a version is visible when its record in `versions` is
committed, and its parts (segments, bitmaps, label, transaction, new head) are committed with it. LMDB admits
one writer at a time over all processes of the host; readers never wait. Keys are big-endian, so a prefix
lists in order. Databases inside:

    meta       name                               -> format, next ids
    databases  name                               -> {id}
    names      database id | table name           -> table id
    views      database id | view name            -> {query, columns, comment, created_ms} (ddl.views)
    tables     table id                           -> {database, name, directory, created_ms}
    heads      table id                           -> [version, schema revision]
    schemas    table id | revision                -> schema record
    versions   table id | version                 -> segments that the version added and dropped, its metrics
    segments   table id | segment id              -> {meta, created, dropped}; dropped 0 = still live
    inline     table id | segment id              -> bytes of a small segment
    bitmaps    table id | version                 -> delete bitmap record (segment.delete_bitmap)
    labels     database id | label                -> transaction id
    txns       transaction id                     -> transaction record (catalog.transaction_record)
    jobs       job number                         -> {kind, job} (catalog.jobs)
    job_marks  job number | name                  -> {name, value}: values that a job keeps beside its record
    prepared   transaction id | table id          -> parts of a pre-committed transaction (prepared_records)
    counters   table id | column id               -> next value of an AUTO_INCREMENT column
    horizons   table id                           -> {oldest, floor}: first readable version and tombstone
                                                     watermark (maintenance.retention, publish.tombstones)
    trash      table id | segment id              -> dropped segment whose files are still to be deleted
    readers    table id                           -> newest version read by a commit elsewhere
    apps       table id | application id          -> {version, table_version, txn}: idempotent writes
    config     name                               -> value that ADMIN SET assigned
    users      user name, host                    -> password hashes, grants and roles (catalog.accounts)
    roles      role name                          -> grants (catalog.access.roles)
    outbox     commit number                      -> the changes of a commit that are to be shipped (ship_log)

A record is msgpack with a header: checksum of the rest (8 bytes, big endian) | format number (1 byte) |
msgpack. The checksum covers the name of the database and the key too, but in records of format 1.
Transactions are those of `catalog.environment`.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import lmdb
import msgpack
import xxhash

from seqstore.store.errors import CorruptionError, FormatError, NotFoundError

FORMAT: Final = 2  # of new records and stores
FORMATS: Final = (1, 2, 3)  # that this program reads
SHIPPED_FORMAT: Final = 3  # of stores whose commits must be shipped (catalog.ship_log)
TABLES: Final = "tables"
DATABASES: Final = (
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
    "prepared",
    "counters",
    "readers",
    "apps",
    "config",
    "users",
    "horizons",
    "trash",
    "jobs",
    "job_marks",
    "views",
    "roles",
    "outbox",
)
_APP_ID_BYTES_MAX: Final = 400
_HEADER: Final = 9
_PREFIX_END_BYTES: Final = 16  # longer than the numbers of a key
_SEEDS: Final = {name: xxhash.xxh3_64_intdigest(name.encode()) for name in DATABASES}


def pack(database: str, key: bytes, value: Any) -> bytes:
    """Packs a value as a record of a database under a key.

    The value consists of lists, dicts with string keys, strings, bytes, numbers, booleans and None.
    """
    body: bytes = bytes([FORMAT]) + msgpack.packb(value, use_bin_type=True)
    return xxhash.xxh3_64_digest(body, _seed(database, key)) + body


def _seed(database: str, key: bytes) -> int:
    """Returns the number through which the checksum of a record covers its place."""
    seed = _SEEDS.get(database)
    return xxhash.xxh3_64_intdigest(
        key, xxhash.xxh3_64_intdigest(database.encode()) if seed is None else seed
    )


def verify(database: str, key: bytes, data: bytes | memoryview) -> memoryview:
    """Verifies the checksum of a record; returns its packed value.

    Raises:
        CorruptionError: it does not match: the record was changed, or stands under another key.
        FormatError: a newer program wrote it.
    """
    view = memoryview(data)
    if len(view) > _HEADER:
        body, checksum = view[8:], bytes(view[:8])
        if view[8] == FORMAT and xxhash.xxh3_64_digest(body, _seed(database, key)) == checksum:
            return view[_HEADER:]
        if view[8] == 1 and xxhash.xxh3_64_digest(body) == checksum and database in _SEEDS:
            return view[_HEADER:]
        if view[8] > FORMAT and xxhash.xxh3_64_digest(body, _seed(database, key)) == checksum:
            raise FormatError(
                f"the catalog record {record_name(database, key)} has format {view[8]}, this program reads "
                f"{FORMAT}; upgrade it"
            )
    raise lost_record(database, key, "does not match its checksum")


def unpack(database: str, key: bytes, data: bytes | memoryview) -> Any:
    """Returns the value of a record; raises as `verify`."""
    return msgpack.unpackb(verify(database, key, data), strict_map_key=False)


def record_name(database: str, key: bytes) -> str:
    """Returns the name of a record for messages."""
    text = key.decode() if key.isascii() and key.decode().isprintable() else key.hex()
    return f"{database}/{text}"


def lost_record(database: str, key: bytes, fault: str) -> CorruptionError:
    """Returns the error of a record that is not as it was written."""
    name = record_name(database, key)
    return CorruptionError(
        f"the catalog record {name} {fault}; run repair, or restore the catalog from a copy",
        path=f"catalog/{name}",
    )


class Handles(dict[str, Any]):
    """LMDB's handles of the databases that a transaction has touched, by name; `every` has those of all."""

    every: Mapping[str, Any]

    def __missing__(self, name: str) -> Any:
        handle = self[name] = self.every[name]
        return handle


@dataclass(eq=False, slots=True)
class CatalogTransaction:
    """Access to records within one LMDB transaction; made by `Catalog.read` and `Catalog.write`.

    Attributes:
        databases: those that it has touched.
        states: table states that the followers of a leader share (environment.commit_group); None outside of
            a group. Another writer of the group may have written them, and their commit is still to come: no
            cache may keep them.
        made: table states that this writer made; its followers receive them after its part has succeeded.
        answers: what `Catalog.recall` will find once the transaction is committed without followers.
        journal: the records that it has stored, None for one that it has removed, by database and key; None
            unless the store ships its commits (ship_log.outbox).
    """

    _txn: lmdb.Transaction
    databases: Handles
    states: dict[int, Any] | None = None
    made: dict[int, Any] = field(default_factory=dict)
    answers: dict[Hashable, Any] = field(default_factory=dict)
    journal: dict[tuple[str, bytes], bytes | None] | None = None

    def within(self, txn: lmdb.Transaction) -> CatalogTransaction:
        """Returns the access of a follower, whose LMDB transaction is nested in this one's."""
        journal: dict[tuple[str, bytes], bytes | None] | None = None if self.journal is None else {}
        return CatalogTransaction(txn, self.databases, states=self.made, journal=journal)

    def adopt(self, follower: CatalogTransaction) -> None:
        """Takes over what a follower has made, once its part has succeeded."""
        self.made.update(follower.made)
        if self.journal is not None and follower.journal is not None:
            self.journal.update(follower.journal)

    @property
    def number(self) -> int:
        """The number of the newest commit that a transaction for reading sees."""
        return int(self._txn.id())

    @property
    def is_shared(self) -> bool:
        """Whether it runs within the transaction of another writer."""
        return self.states is not None

    def get(self, database: str, key: bytes) -> Any:
        """Returns the record under a key, None when there is none."""
        data = self._txn.get(key, db=self.databases[database])
        return None if data is None else unpack(database, key, data)

    def get_with_digest(self, database: str, key: bytes) -> tuple[Any, bytes | None]:
        """Returns the record under a key and its checksum, None for both when there is none."""
        data = self._txn.get(key, db=self.databases[database])
        return (None, None) if data is None else (unpack(database, key, data), bytes(data[:8]))

    def require(self, database: str, key: bytes) -> Any:
        """Returns the record under a key that another record refers to.

        Raises:
            CorruptionError: there is none.
        """
        data = self._txn.get(key, db=self.databases[database])
        if data is None:
            raise lost_record(database, key, "is missing")
        return unpack(database, key, data)

    def digest(self, database: str, key: bytes) -> bytes | None:
        """Returns the checksum of the record under a key, None when there is none."""
        data = self._txn.get(key, db=self.databases[database])
        return None if data is None else bytes(data[:8])

    def put(self, database: str, key: bytes, value: Any) -> bytes:
        """Stores a record; returns its checksum."""
        data = pack(database, key, value)
        self._store(database, key, data)
        return data[:8]

    def _store(self, database: str, key: bytes, data: bytes) -> None:
        self._txn.put(key, data, db=self.databases[database])
        if self.journal is not None:
            self.journal[database, key] = bytes(data)

    def put_new(self, database: str, key: bytes, value: Any) -> bytes:
        """Stores a record under a key that has none; returns its checksum.

        Raises:
            CorruptionError: it has one.
        """
        data = pack(database, key, value)
        if not self._txn.put(key, data, overwrite=False, db=self.databases[database]):
            raise lost_record(database, key, "exists already, though no newer version is known")
        if self.journal is not None:
            self.journal[database, key] = data
        return data[:8]

    def copy(self, database: str, key: bytes, data: bytes) -> None:
        """Stores a record as another catalog has it, checksum included.

        Raises:
            CorruptionError: it does not match its checksum.
        """
        verify(database, key, data)
        self._store(database, key, data)

    def count(self, database: str) -> int:
        """Returns the number of records of a database."""
        return int(self._txn.stat(self.databases[database])["entries"])

    def delete(self, database: str, key: bytes) -> None:
        """Removes a record, if it exists."""
        if self._txn.delete(key, db=self.databases[database]) and self.journal is not None:
            self.journal[database, key] = None

    def clear(self, database: str) -> None:
        """Removes all records of a database, unnoted: for catalogs that are filled anew."""
        self._txn.drop(self.databases[database], delete=False)

    def last_key(self, database: str) -> bytes | None:
        """Returns the largest key of a database, None when it is empty."""
        with self._txn.cursor(db=self.databases[database]) as cursor:
            return bytes(cursor.key()) if cursor.last() else None

    def items(
        self, database: str, prefix: bytes = b"", start: bytes = b""
    ) -> Iterator[tuple[bytes, memoryview]]:
        """Yields keys and raw records that start with a prefix, ascending.

        Args:
            start: no smaller keys; it starts with the prefix.
        """
        with self._txn.cursor(db=self.databases[database]) as cursor:
            found = cursor.set_range(start or prefix) if start or prefix else cursor.first()
            while found:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    return
                yield key, memoryview(cursor.value())
                found = cursor.next()

    def records(self, database: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, Any]]:
        """Yields keys that start with a prefix, ascending, and their records; see `items`."""
        for key, raw in self.items(database, prefix, start):
            yield key, unpack(database, key, raw)

    def records_before(
        self, database: str, prefix: bytes = b"", before: bytes | None = None
    ) -> Iterator[tuple[bytes, Any]]:
        """Yields keys that start with a prefix, descending, and their records.

        Args:
            before: only smaller keys, None for all; it starts with the prefix.
        """
        end = prefix + b"\xff" * _PREFIX_END_BYTES if before is None else before
        with self._txn.cursor(db=self.databases[database]) as cursor:
            found = cursor.prev() if cursor.set_range(end) else cursor.last()
            while found:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    return
                yield key, unpack(database, key, cursor.value())
                found = cursor.prev()

    def next_id(self, name: str) -> int:
        """Reserves the next number of a counter, 1 first."""
        key = f"next_{name}".encode()
        value = int(self.get("meta", key) or 1)
        self.put("meta", key, value + 1)
        return value


# Keys and look-ups.


def _u64(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}Q", *numbers)


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


def counter_key(table: int, column: int) -> bytes:
    return _u64(table, column)


def prepared_key(txn_id: int, table: int) -> bytes:
    return _u64(txn_id, table)


def prepared_ids(key: bytes) -> tuple[int, int]:
    """Returns transaction id and table id of a `prepared_key`."""
    txn_id, table = struct.unpack(">2Q", key)
    return txn_id, table


def label_key(database: int, label: str) -> bytes:
    return _u64(database) + label.encode()


def app_key(table: int, app_id: str) -> bytes:
    """Returns the key of an application id; a long id is replaced by its digest: LMDB keys have at most 511
    bytes.
    """
    name = app_id.encode()
    return _u64(table) + (name if len(name) <= _APP_ID_BYTES_MAX else xxhash.xxh3_128_digest(name))


def name_key(database: int, table: str) -> bytes:
    return _u64(database) + table.encode()


def find_database(tx: CatalogTransaction, name: str) -> int | None:
    record = tx.get("databases", name.encode()) if name else None  # LMDB refuses empty keys
    return None if record is None else int(record["id"])


def require_database(tx: CatalogTransaction, name: str) -> int:
    found = find_database(tx, name)
    if found is None:
        raise NotFoundError(f"Unknown database '{name}'", kind="unknown_database", database=name)
    return found


def find_table(tx: CatalogTransaction, database: int, name: str) -> int | None:
    record = tx.get("names", name_key(database, name))
    return None if record is None else int(record)


def head(tx: CatalogTransaction, table: int, name: str) -> tuple[int, int]:
    """Returns the newest version and the schema revision of a table.

    Args:
        name: `database.table`, for the message.

    Raises:
        NotFoundError: the table was dropped.
    """
    record = tx.get("heads", table_key(table))
    if record is None:
        if tx.digest("tables", table_key(table)) is not None:
            raise lost_record("heads", table_key(table), "is missing")
        raise NotFoundError(f"Unknown table '{name}': it was dropped", kind="unknown_table", table=name)
    return int(record[0]), int(record[1])


def oldest_readable(tx: CatalogTransaction, table: int) -> int:
    """Returns the first version of a table that is still whole: its holders can read it."""
    return int((tx.get("horizons", table_key(table)) or {}).get("oldest", 1))


def oldest_open(tx: CatalogTransaction, table: int) -> int:
    """Returns the first version of a table that readers without a lease on it can open."""
    record = tx.get("horizons", table_key(table)) or {}
    return max(int(record.get("oldest", 1)), int(record.get("open", 1)))
