"""Repair of a store: a new catalog from what is left of the damaged one, a copy of it, and the segment files.

1. Refuse while a process has the store open: LMDB's lock file tells. It stays locked until the end.
2. A sound catalog stays as it is.
3. Read what is left of the data file (repair.salvage), then the copy for records that may be lost: another
   data file, or backups (repair.backed_up).
4. Store records that belong to no table, then each table (repair.table_repair), in a catalog in `repair/`.
5. Link the damaged data file into `damaged/`, then rename the new one into its place: the only step that
   changes the store. A repair that is killed before it begins again; one that is killed after it finds a
   sound catalog.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import TABLES, CatalogTransaction, unpack
from seqstore.store.catalog.environment import Catalog, is_open
from seqstore.store.catalog.environment.data_file import DATA_FILE, LOCK_FILE, fault_in, size_of
from seqstore.store.catalog.prepared_records import prepared_files
from seqstore.store.errors import NotFoundError, StoreError, UnavailableError
from seqstore.store.repair.backed_up import SINGLE, BackedUp, is_place_of_backups
from seqstore.store.repair.report import RepairReport, TableReport
from seqstore.store.repair.salvage import salvage
from seqstore.store.repair.segment_files import DiskWithTrash, describe, segment_ids
from seqstore.store.repair.table_records import TableRecords, add_copy, records_of_tables
from seqstore.store.repair.table_repair import TableRepair
from seqstore.store.runtime import failpoint
from seqstore.store.runtime.durable_directory import make_directory, sync_path
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.object_disk import ObjectDisk
from seqstore.store.settings import Settings

DAMAGED: Final = "damaged"
_NEW: Final = "repair"
_OF_THE_STORE: Final = ("users", "config", "jobs", "job_marks", "txns", "labels", "views", "prepared")
_RECOVERED: Final = "recovered"  # database of tables whose name is lost


def repair(
    path: Path, *, copy: Path | str | None = None, dry_run: bool = False, settings: Settings | None = None
) -> RepairReport:
    """Repairs the catalog of a data directory; see the module.

    Args:
        copy: a data directory, a catalog or a data file as they were before the damage; or the place of
            backups, a directory or a URI.
        dry_run: only report.

    Raises:
        NotFoundError: the directory is no store, or there is no such copy.
        UnavailableError: a process has the store open, or the disk fails.
        FormatError: a newer program wrote it.
    """
    if not (path / "catalog").is_dir() and not (path / TABLES).is_dir():
        raise NotFoundError(f"{path}: no store here; check the path", kind="no_store")
    source = str(copy) if copy is not None and is_place_of_backups(str(copy)) else None
    backup = None if copy is None or source else _data_file(Path(copy))
    try:
        with _alone(path / "catalog"):
            return _Repair(path, backup or source, settings or Settings(), dry_run=dry_run).run()
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be repaired: {error}", kind="disk") from error


def _data_file(copy: Path) -> Path:
    for found in (copy, copy / DATA_FILE, copy / "catalog" / DATA_FILE):
        if found.is_file():
            return found
    raise NotFoundError(
        f"{copy}: no copy of a catalog here; expected its {DATA_FILE}, or a place of backups", kind="no_store"
    )


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Locks LMDB's lock file as a process does that has an environment for itself."""
    if is_open(directory):
        raise _in_use(directory, "this process")
    if not directory.is_dir():
        yield
        return
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError as error:
            raise _in_use(directory, _holders(descriptor)) from error
        yield
    finally:
        os.close(descriptor)


def _in_use(directory: Path, holders: str) -> UnavailableError:
    return UnavailableError(
        f"{directory.parent}: {holders} has the store open; end it, then repair the store", kind="store_open"
    )


def _holders(descriptor: int) -> str:
    number = str(os.fstat(descriptor).st_ino)
    with suppress(OSError):
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        found = {line[4] for line in lines if len(line) > 5 and line[5].rpartition(":")[2] == number}
        if found:
            return f"process {', '.join(sorted(found))}"
    return "another process"


class _Repair:
    """One repair.

    Args:
        backup: a data file, or the place of backups.
    """

    def __init__(self, path: Path, backup: Path | str | None, settings: Settings, *, dry_run: bool) -> None:
        self._path = path
        self._file = path / "catalog" / DATA_FILE
        self._backup = backup
        self._backed_up: BackedUp | None = None
        self._settings = settings
        self._dry_run = dry_run
        self._report = RepairReport()
        self._files: list[str] = []
        self._copied: set[tuple[str, bytes]] = set()
        self._copies: dict[int, TableRecords] = {}

    def run(self) -> RepairReport:
        self._salvage = found = salvage(self._file)
        self._report.fault = fault_in(self._file) or self._fault_of_tables()
        if not self._report.fault:
            return self._report
        is_empty = found.is_empty
        self._disk = self._open_disk()
        self._add_backup()
        self._is_behind = found.lacks_newest or is_empty
        with self._new_directory() as directory:
            if isinstance(self._disk, DiskWithTrash):
                self._disk.restored = directory / "files"
            size = max(self._settings.catalog_bytes_max, 4 * size_of(self._file))
            new = Catalog(directory / "catalog", replace(self._settings, catalog_bytes_max=size))
            try:
                with new.write() as tx:
                    self._fill(tx)
                new.make_durable()
            finally:
                new.close()
            failpoint.hit("repair.built")
            if not self._dry_run:
                self._put_in_place(directory / "catalog" / DATA_FILE)
        return self._report

    def _add_backup(self) -> None:
        """Runs the second half of step 3."""
        if isinstance(self._backup, Path):
            copied = salvage(self._backup)
            self._copies = records_of_tables(copied)
            self._copied = add_copy(self._salvage, copied)
            if self._copied:
                self._report.findings.append(f"{len(self._copied)} records are from the copy {self._backup}")
        elif self._backup is not None:
            self._backed_up = backed_up = BackedUp(self._backup, self._salvage, self._disk)
            self._copies = backed_up.tables
            self._report.findings += backed_up.findings
            add_copy(self._salvage, backed_up.salvage, SINGLE)

    def _fault_of_tables(self) -> str:
        for number, table in records_of_tables(self._salvage).items():
            if table.info is not None and (table.remade or not table.has_all_whole):
                return f"records of table {number} do not add up"
        return "" if self._salvage.is_whole else "records are lost"

    def _open_disk(self) -> Disk:
        uri = self._value("meta", b"segments")
        mapped = self._settings.mapped_reads
        if uri is None:
            return DiskWithTrash(self._path, mapped_reads=mapped)
        return ObjectDisk(uri, self._path, self._settings.cache_bytes_max, mapped_reads=mapped)

    def _value(self, database: str, key: bytes) -> str | None:
        data = self._salvage.records[database].get(key)
        return None if data is None else unpack(database, key, data)

    @contextmanager
    def _new_directory(self) -> Iterator[Path]:
        """Yields a directory for the new catalog, removed at the end. One of a killed repair is removed."""
        if self._dry_run:
            with tempfile.TemporaryDirectory(prefix="seqstore-repair-") as temporary:
                yield Path(temporary)
            return
        directory = self._path / _NEW
        shutil.rmtree(directory, ignore_errors=True)
        try:
            make_directory(directory)
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _fill(self, tx: CatalogTransaction) -> None:
        """Runs step 4."""
        records = self._salvage.records
        for database in _OF_THE_STORE:
            for key, data in records[database].items():
                if database != "labels" or catalog.txn_key(unpack(database, key, data)) in records["txns"]:
                    tx.copy(database, key, data)
            known = self._salvage.entries.get(database, 0)
            if self._salvage.lost.get(database) and known > len(records[database]):
                self._report.findings.append(
                    f"{database}: {len(records[database])} records of {known} were kept"
                )
        if self._salvage.is_empty:
            self._report.findings.append(
                "users, jobs, labels, transactions, views and rows of small loads were in the catalog, "
                "and are lost"
            )
        elif self._backed_up is not None and not records["meta"]:
            self._report.findings.append("users, jobs and labels are in no backup, and are lost")
        databases = self._databases(tx)
        for table_id, table in sorted(self._tables().items()):
            database_id, name = self._name(tx, databases, table)
            kept, behind = prepared_files(tx, table_id), self._is_behind or self._is_copied(table)
            better = self._better(table)
            behind |= bool(better.backed_up_at) and (table.may_lack_newest or table.head < better.head)
            work = TableRepair(tx, self._disk, better, name, database_id, kept, behind)
            self._report.tables.append(self._repaired(work))
            self._files += work.files
        self._put_counters(tx, databases)

    def _put_back(self, work: TableRepair) -> list[str]:
        """Puts lost files of a table back from its backup; returns what the report says of the backup."""
        if self._backed_up is None or not isinstance(self._disk, DiskWithTrash):
            return []
        told = []
        if work.records.backed_up_at:
            told.append(f"its records are from the backup {self._backed_up.shown(work.id)}")
        return told + self._backed_up.put_back(
            work.records, work.directory, self._disk, is_behind=work.is_behind
        )

    def _repaired(self, work: TableRepair) -> TableReport:
        work.report.findings += self._put_back(work)
        try:
            return work.run()
        except StoreError as error:
            work.forget()
            return TableReport(work.name, "left out", findings=[*work.report.findings, error.message])

    def _better(self, table: TableRecords) -> TableRecords:
        """Returns the records of the copy if they have the newest version whole, and the others have not."""
        copied = self._copies.get(table.id)
        if copied is None or copied.head < table.head or not copied.first_whole():
            return table
        is_better = copied.head > table.head or copied.first_whole() < (table.first_whole() or table.head + 1)
        return copied if is_better else table

    def _is_copied(self, table: TableRecords) -> bool:
        return any(
            database in ("heads", "versions") and key[:8] == table.prefix for database, key in self._copied
        )

    def _tables(self) -> dict[int, TableRecords]:
        """Returns the tables that have a record, or had one that may be lost, with any others or files."""
        found = records_of_tables(self._salvage)
        for number in (name for name in self._disk.list(TABLES) if name.isdecimal()):
            found.setdefault(int(number), TableRecords(int(number), self._salvage))
        for table_id in self._backed_up.tables if self._backed_up is not None else ():
            found.setdefault(table_id, TableRecords(table_id, self._salvage))
        return {
            number: table
            for number, table in found.items()
            if table.info is not None
            or (self._salvage.may_lack("tables", table.prefix) and self._is_known(table))
        }

    def _is_known(self, table: TableRecords) -> bool:
        is_backed_up = self._backed_up is not None and table.id in self._backed_up.tables
        return bool(is_backed_up or table.head or segment_ids(self._disk, f"{TABLES}/{table.id}"))

    def _databases(self, tx: CatalogTransaction) -> dict[str, int]:
        """Stores the databases; those whose record is lost get their id from the names of their tables."""
        found = {}
        for key, data in self._salvage.records["databases"].items():
            tx.copy("databases", key, data)
            found[key.decode()] = int(unpack("databases", key, data)["id"])
        return found

    def _name(
        self, tx: CatalogTransaction, databases: dict[str, int], table: TableRecords
    ) -> tuple[int, str]:
        """Returns the database and the name of a table, from its record, its key in `names`, or its files."""
        names = {unpack("names", key, data): key for key, data in self._salvage.records["names"].items()}
        key = names.get(table.id)
        info = table.info or (self._copies[table.id].info if table.id in self._copies else None)
        if info is not None:
            database, name = info["database"], info["name"]
        else:
            database, _, name = self._stated_name(table).partition(".")
        if key is not None:
            by_id = {number: name for name, number in databases.items()}
            database, name = by_id.get(int.from_bytes(key[:8]), database), key[8:].decode()
        if database not in databases:
            known = int.from_bytes(key[:8]) if key is not None else 0
            databases[database] = known or max(databases.values(), default=0) + 1
            tx.put("databases", database.encode(), {"id": databases[database]})
        if tx.get("names", catalog.name_key(databases[database], name)) is not None:
            name = f"{name}_{table.id}"
        return databases[database], f"{database}.{name}"

    def _stated_name(self, table: TableRecords) -> str:
        directory = f"{TABLES}/{table.id}"
        for name in reversed(segment_ids(self._disk, directory)):
            with suppress(StoreError):
                if stated := describe(self._disk, directory, name).table:
                    return stated
        return f"{_RECOVERED}.table_{table.id}"

    def _put_counters(self, tx: CatalogTransaction, databases: dict[str, int]) -> None:
        """Stores counters behind every number that was used."""
        used = {
            "database": max(databases.values(), default=0),
            "table": max(self._tables(), default=0),
            "txn": max((int.from_bytes(key) for key in self._salvage.records["txns"]), default=0),
            "job": max((int.from_bytes(key) for key in self._salvage.records["jobs"]), default=0),
        }
        for name, number in used.items():
            key = f"next_{name}".encode()
            tx.put("meta", key, max(int(self._value("meta", key) or 1), number + 1))
        if (uri := self._value("meta", b"segments")) is not None:
            tx.put("meta", b"segments", uri)

    def _put_in_place(self, new: Path) -> None:
        """Runs step 5."""
        if isinstance(self._disk, DiskWithTrash):
            for name in self._files:
                self._disk.take_back(name)
            for directory in {name.rpartition("/")[0] for name in self._files}:
                self._disk.sync_directory(directory)
        if size_of(self._file):
            moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
            aside = self._path / DAMAGED / moment / DATA_FILE
            make_directory(aside.parent)
            os.link(self._file, aside)
            sync_path(aside.parent)
            self._report.aside = aside
        failpoint.hit("repair.kept_aside")
        make_directory(self._file.parent)
        new.replace(self._file)
        sync_path(self._file.parent)
        self._report.is_done = True
        failpoint.hit("repair.in_place")
