"""The versions of a table: their states, their holders, their origin.

A handle keeps the newest state that it has seen and advances it at its next use. States of earlier versions
are loaded on demand, and a few are kept. Handles are cheap, safe to share between threads, and follow a table
across processes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.auto_increment import IdSource
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.horizon import version_at
from seqstore.store.catalog.kept_versions import KeptVersions, open_versions, whole_versions
from seqstore.store.catalog.leases import Lease, leases_of
from seqstore.store.catalog.version_record import (
    VersionMetrics,
    read_version_record,
    version_records,
    version_time_ms,
)
from seqstore.store.errors import VersionExpiredError
from seqstore.store.read.live_segment import Projection
from seqstore.store.read.scan_task import ScanTask, plan_scan
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.table_state import StateLoader, TableState
from seqstore.store.runtime.forks import new_rlock
from seqstore.store.runtime.html_table import html_table
from seqstore.store.runtime.internal import internal
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.settings import Settings

_OLD_STATES_KEPT: Final = 4


@dataclass(frozen=True)
class VersionInfo:
    """One line of a table's history.

    Attributes:
        version: 1 is the table's creation.
        timestamp: when it became visible, UTC.
        operation, label, txn_id: its origin.
        metrics: rows and bytes.
        commit_info: `catalog.version_record.CommitInfo` as stored: the basis of later conflict checks.
        has_data_change: False for a compaction, which only moves rows.
        revision: of its schema.
    """

    version: int
    timestamp: datetime
    operation: str
    label: str
    txn_id: int
    metrics: VersionMetrics
    commit_info: Mapping[str, Any] = field(default_factory=dict)
    has_data_change: bool = True
    revision: int = 1


_SHOWN: Final = (
    "rows_loaded",
    "rows_filtered",
    "rows_late",
    "rows_superseded",
    "rows_replaced",
    "rows_deleted",
)


class History(list[VersionInfo]):
    """The versions of a table, oldest first; a notebook shows them as a table, the newest first."""

    def _repr_html_(self) -> str:
        headings = [
            "version",
            "time (UTC)",
            "operation",
            *(name.removeprefix("rows_") for name in _SHOWN),
            "label",
        ]
        rows = (
            (
                str(each.version),
                f"{each.timestamp:%Y-%m-%d %H:%M:%S}",
                each.operation,
                *(getattr(each.metrics, name) for name in _SHOWN),
                each.label,
            )
            for each in reversed(self)
        )
        return html_table("versions", headings, rows)


class _Limits(NamedTuple):
    """The newest version of a table, its schema revision, and the version from which on all can be opened."""

    newest: int
    revision: int
    every: int


class VersionedTable:
    """The part of `store.table.Table` that manages versions; `name` is `database.table`."""

    @internal
    def __init__(
        self,
        name: str,
        table_id: int,
        database_id: int,
        loader: StateLoader,
        catalog: Catalog,
        settings: Settings,
    ) -> None:
        self.name = name
        self.id = table_id
        self.database_id = database_id
        self.loader = loader
        self.catalog = catalog
        self.settings = settings
        self._id_sources: dict[int, IdSource] = {}
        self._newest: TableState | None = None
        self._older: OrderedDict[int, TableState] = OrderedDict()
        self._lock = new_rlock()
        self._leases = leases_of(catalog.data_dir)

    @property
    def database(self) -> str:
        """Name of its database."""
        return self.name.partition(".")[0]

    @property
    def schema(self) -> TableSchema:
        """The newest schema revision."""
        newest = self._newest
        if newest is not None and newest.schema.revision == self._limits().revision:
            return newest.schema
        with self.catalog.read() as tx:
            _, revision = records.head(tx, self.id, self.name)
            return self.loader.schema(tx, revision)

    @property
    def version(self) -> int:
        """The newest version; 1 is the empty table."""
        return self._limits().newest

    def _limits(self) -> _Limits:
        return self.catalog.recall((_Limits, self.id), self._read_limits)

    def _read_limits(self, tx: CatalogTransaction) -> _Limits:
        return _Limits(*records.head(tx, self.id, self.name), open_versions(tx, self.id).every)

    @internal
    def state(self, version: int | None = None) -> TableState:
        """Returns the table at a version, the newest when None."""
        known = self._newest
        if version is None and known is not None and self._limits().newest == known.version:
            return known
        # The same order everywhere: a holder of the lock never waits for a transaction.
        with self.catalog.read() as tx, self._lock:
            if version is None:
                return self.advance(tx, self._newest)
            newest, _ = records.head(tx, self.id, self.name)
            self._check_readable(tx, version, newest)
            if self._newest is not None and version == self._newest.version:
                return self._newest
            known = self._older.get(version)
            if known is None:
                known = self._older[version] = self.loader.load(tx, version)
                if len(self._older) > _OLD_STATES_KEPT:
                    self._older.popitem(last=False)
            self._older.move_to_end(version)
            return known

    @internal
    def advance(self, tx: CatalogTransaction, state: TableState | None) -> TableState:
        """Returns the newest state within a transaction; keeps it, unless it may never be committed."""
        head, _ = records.head(tx, self.id, self.name)
        if self._newest is not None and (state is None or self._newest.version > state.version):
            state = self._newest
        if tx.states is not None:
            shared: TableState | None = tx.states.get(self.id)
            if shared is not None and (state is None or shared.version > state.version):
                state = shared
        if state is None:
            state = self.loader.load(tx, head)
        elif state.version < head:
            state = self.loader.advance(tx, state, head)
        if tx.states is not None:
            tx.states[self.id] = state
        elif state is not self._newest:
            self.remember(state)
        return state

    @internal
    def remember(self, state: TableState) -> None:
        """Keeps a state as the newest, unless a newer one is known."""
        with self._lock:
            if self._newest is None or self._newest.version < state.version:
                self._newest = state

    @internal
    def made(self, tx: CatalogTransaction, state: TableState) -> None:
        """Takes the state that a transaction makes, the newest once the transaction is committed."""
        tx.made[self.id] = state
        every = open_versions(tx, self.id).every
        tx.answers[_Limits, self.id] = _Limits(state.version, state.schema.revision, every)

    def _check_readable(self, tx: CatalogTransaction, version: int, newest: int, time: str = "") -> None:
        kept = open_versions(tx, self.id)
        is_held = self._leases.holds(self.id, version) and version in whole_versions(tx, self.id)
        if is_held or (version in kept and version <= newest):
            return
        asked = f"version {version}"
        if time:
            asked = f"{asked}, the newest at {time}," if version else f"the table as of {time}"
        has = f"the table has versions {kept.first} to {newest}"
        if kept.first <= version <= newest:
            near = [kept.preceding(version) or kept.first, kept.following(version)]
            told = [f"{each} of {_utc(tx, self.id, each):%Y-%m-%d %H:%M:%S} UTC" for each in near]
            has = f"it was thinned out; the nearest versions that are kept are {' and '.join(told)}"
        raise VersionExpiredError(
            f"{asked} cannot be read: {has}",
            kind="version_expired" if 1 <= version <= newest else "no_such_version",
            oldest=kept.first,
            latest=newest,
        )

    @internal
    def hold(self, version: int | None = None) -> tuple[TableState, Lease]:
        """Returns the table at a version, the newest when None, and the lease that protects it from vacuum.

        Raises:
            VersionExpiredError: the version cannot be read, or never could.
        """
        newest = self._newest
        if newest is not None and version in (None, newest.version):  # the usual case reads the catalog once
            lease = self._leases.acquire(self.id, newest.version)
            limits = self.catalog.recall((_Limits, self.id), self._read_limits)
            is_wanted = version is not None or limits.newest == newest.version
            if is_wanted and limits.every <= newest.version:
                return newest, lease
            lease.release()
        while True:
            state = self.state(version)
            lease = self.lease(state.version)
            with self.catalog.read() as tx:
                if state.version in whole_versions(tx, self.id):
                    return state, lease
            lease.release()  # a vacuum ran in between: the newest version is a later one now

    @internal
    def hold_of_moment(self, version: int) -> tuple[TableState, Lease]:
        """Returns the table at a version of a moment that is held (catalog.leases), and the version's lease.

        Raises:
            NotFoundError: the table was dropped since.
        """
        lease = self._leases.acquire(self.id, version)  # the version may be closed to all but its holders
        newest = self._newest
        if newest is None or newest.version != version:
            return self.state(version), lease
        self.catalog.recall((_Limits, self.id), self._read_limits)
        return newest, lease

    @internal
    def lease(self, version: int) -> Lease:
        """Holds a version that is known to be readable."""
        return self._leases.acquire(self.id, version)

    @property
    def oldest_version(self) -> int:
        """The first version that can be opened. A holder of an older version can continue to read it."""
        with self.catalog.read() as tx:
            return records.oldest_open(tx, self.id)

    @property
    @internal
    def kept_versions(self) -> KeptVersions:
        """The versions that can be opened."""
        with self.catalog.read() as tx:
            return open_versions(tx, self.id)

    def version_as_of(self, moment: datetime) -> int:
        """Returns the version that was the newest at a moment (without a zone: UTC).

        Raises:
            VersionExpiredError: the table did not exist yet, or that version cannot be read any more.
        """
        utc = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        with self.catalog.read() as tx:
            newest, _ = records.head(tx, self.id, self.name)
            version = version_at(tx, self.id, newest, int(utc.timestamp() * 1000))
            self._check_readable(tx, version, newest, moment.isoformat(sep=" "))
        return version

    @internal
    def only_moved(self, before: int, version: int) -> bool:
        """Returns whether no version after `before` up to `version` removed rows, other than by moving them
        (compaction).

        The result is False where the records are gone.
        """
        with self.catalog.read() as tx:
            for number in range(before + 1, version + 1):
                record = read_version_record(tx, self.id, number)
                if record is None or record.removes_rows:
                    return False
        return True

    def history(self) -> list[VersionInfo]:
        """Returns the origin of each version, oldest first; a notebook shows the list as a table."""
        with self.catalog.read() as tx:
            lines = list(version_records(tx, self.id))
        return History(
            VersionInfo(
                version,
                datetime.fromtimestamp(record.time_ms / 1000, UTC),
                record.operation,
                record.label,
                record.txn_id,
                record.metrics,
                record.commit_info.to_record() if record.commit_info is not None else {},
                record.has_data_change,
                record.revision,
            )
            for version, record in lines
        )

    @internal
    def scan_tasks(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        version: int | None = None,
        *,
        hidden: bool = False,
        deleted: bool = False,
        rows_per_task: int = 1_000_000,
    ) -> list[ScanTask]:
        """Cuts a scan into picklable pieces that other processes read; see `read.scan_task`.

        Args:
            rows_per_task: approximate number of stored rows of a piece.
        """
        state = self.state(version)
        projection = Projection.of(state.schema, columns, hidden=hidden)
        return plan_scan(
            state,
            self.loader.disk,
            self.loader.directory,
            projection,
            filter,
            deleted=deleted,
            rows_per_task=rows_per_task,
        )

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Opens a version for reading, the newest when None.

        Raises:
            VersionExpiredError: no such version.
        """
        return Snapshot(*self.hold(version))

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        version: int | None = None,
        *,
        hidden: bool = False,
        deleted: bool = False,
    ) -> pa.RecordBatchReader:
        """Returns the rows at a version, the newest when None; see `Snapshot.scan`."""
        return self.snapshot(version).scan(columns, filter, hidden=hidden, deleted=deleted)

    def get(
        self,
        keys: Any,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        *,
        hidden: bool = False,
        deleted: bool = False,
    ) -> pa.Table:
        """Returns the rows of some keys at a version, the newest when None; see `Snapshot.get`."""
        return self.snapshot(version).get(keys, columns, hidden=hidden, deleted=deleted)

    def count(self, version: int | None = None) -> int:
        """Counts the rows of a version."""
        return self.snapshot(version).count()

    @internal
    def published(self, schema: TableSchema, state: TableState | None = None) -> None:
        """Follows each version that this process publishes, before the publisher goes on.

        Args:
            state: that a load made, which is kept.
        """
        if state is not None:
            self.remember(state)

    @internal
    def needed_versions(self, retention_seconds: float) -> set[int]:
        """Returns the versions that others need beside readers of this store: the oldest one, or none."""
        return set()


def _utc(tx: CatalogTransaction, table: int, version: int) -> datetime:
    return datetime.fromtimestamp(version_time_ms(tx, table, version) / 1000, UTC)
