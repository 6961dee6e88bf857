"""The claim of one transaction on one table: its reads, its level, and the check before it commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from seqstore.store.catalog import catalog
from seqstore.store.catalog.leases import Lease
from seqstore.store.catalog.version_record import CommitInfo
from seqstore.store.conflict.conflict import Attempt, Conflict, ConflictKind, Written, find_conflicts
from seqstore.store.conflict.conflict_errors import (
    CurrentTransaction,
    committed_name,
    current_transaction,
    error_of,
    schema_conflicts,
)
from seqstore.store.conflict.read_set import METADATA_CHANGE, NO_CODES, PROTOCOL_CHANGE, ReadLog
from seqstore.store.conflict.window import Window
from seqstore.store.errors import ConflictError
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.properties import IsolationLevel, parse_isolation_level, stricter
from seqstore.store.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_COMMITTED_NAMED: Final = 5
_DID: Final = {
    ConflictKind.APPEND: "added {} its conditions cover",
    ConflictKind.DELETE_READ: "changed {} it read",
    ConflictKind.DELETE_DELETE: "changed {} it writes",
}


@dataclass
class Isolation:
    """The reads of one transaction on one table, and their check against later commits.

    Attributes:
        base: the state it reads.
        reads: its reads so far.
        level: the stricter of the table's and the transaction's.
        is_unchecked: nothing is checked: the later version wins, whatever was read.
        changes_metadata: rows were read to decide about a metadata change.
        tables: the number of tables in its transaction.
        lease: keeps vacuum away from `base`, None where another object does.
    """

    table: VersionedTable
    base: TableState
    level: IsolationLevel
    is_unchecked: bool = False
    changes_metadata: bool = False
    tables: int = 1
    lease: Lease | None = None
    reads: ReadLog = field(init=False)
    _window: Window | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.reads = ReadLog(self.base.schema)

    @property
    def has_read(self) -> bool:
        reads = self.reads
        return bool(reads.predicates or reads.keys or reads.whole_table or reads.fallback)

    def check(
        self, tx: catalog.CatalogTransaction, head: int, written: Sequence[Written], operation: str
    ) -> None:
        """Looks for conflicts up to a version; may be called again for a later one.

        Raises:
            ConflictError: one of three subclasses, with all conflicts found.
        """
        if self.is_unchecked or not self.has_read or head <= self.base.version:
            return
        schema = self.base.schema
        if self._window is None:
            codes = [part.codes for part in written]
            self._window = Window(
                self.table.loader,
                self.base,
                self.reads,
                np.concatenate(codes) if codes else NO_CODES,
                self.table.settings.conflict_check_seconds,
            )
        committed = self._window.extend(tx, head)
        attempt = Attempt(
            self.level,
            self.base.version,
            self.reads,
            written,
            row_level=schema.row_level,
            changes_metadata=self.changes_metadata,
            tables=self.tables,
            partition_columns=schema.partition_columns,
        )
        reader_version = int(tx.get("readers", catalog.table_key(self.table.id)) or 0)
        conflicts = find_conflicts(attempt, committed, reader_version)
        if conflicts:
            raise conflict_error(conflicts, self, operation)


def conflict_error(conflicts: Sequence[Conflict], isolation: Isolation, operation: str) -> ConflictError:
    """Returns the exception for some conflicts; its message is about the first."""
    first = conflicts[0]
    current = CurrentTransaction(isolation.table.name, operation, isolation.base.version, isolation.level)
    did = _DID[first.kind].format(_counted(first))
    voided = f", seen by version {first.voided_by}" if first.voided_by else ""
    message = (
        f"{current.opening}; {committed_name(first)} committed version {first.version} and {did}{voided} "
        f"{current.because(first.reason)}; run it again on a new snapshot"
    )
    return error_of(conflicts, current, message, kind=first.kind)


def _counted(conflict: Conflict) -> str:
    if not conflict.count:
        return "rows"
    rows = "1 row" if conflict.count == 1 else f"{conflict.count} rows"
    if not conflict.keys:
        return rows
    shown = ", ".join(f"{name}={value}" for name, value in conflict.keys[0].items())
    return f"{rows}, first ({shown}),"


def schema_error(
    tx: catalog.CatalogTransaction,
    table_id: int,
    *,
    name: str,
    operation: str,
    revision: int,
    commit_info: CommitInfo | None = None,
) -> ConflictError:
    """Returns why a transaction prepared for a schema revision cannot commit: features or metadata changed.

    Args:
        commit_info: of the version to be made.
    """
    head, newest = catalog.head(tx, table_id, name)
    conflicts, last = schema_conflicts(tx, table_id, head, revision)
    current = current_transaction(tx, table_id, name, operation, revision, commit_info)
    if not current.read_version:
        current = replace(current, read_version=last)
    done = ", ".join(
        f"{committed_name(other)} committed version {other.version} and changed {', '.join(other.changes)}"
        for other in conflicts[:_COMMITTED_NAMED]
    )
    more = f" and {len(conflicts) - _COMMITTED_NAMED} more" if len(conflicts) > _COMMITTED_NAMED else ""
    reason = conflicts[0].reason if conflicts else METADATA_CHANGE
    prepared = f"{current.opening} and was" if current.read_version else f"{current.opening} was"
    changes = [change for other in conflicts for change in other.changes]
    return error_of(
        conflicts,
        current,
        f"{prepared} prepared for schema revision {revision}, but the table has {newest}"
        f"{': ' if done else ''}{done}{more} {current.because(reason)}; run it again on the new schema",
        kind=ConflictKind.METADATA,
        changes=tuple(change for change in changes if not change.startswith(("+", "-"))),
        features=tuple(change for change in changes if change.startswith(("+", "-"))),
    )


def recreated_error(current: CurrentTransaction, committed: Sequence[Conflict]) -> ConflictError:
    """Returns the error of a table that was created anew under a running transaction, or twice at once.

    Args:
        committed: the version that created it, when it is known.
    """
    made = f": {committed_name(committed[0])} committed version {committed[0].version}" if committed else ""
    return error_of(
        committed,
        current,
        f"{current.opening}, but another transaction created the table meanwhile{made} "
        f"{current.because(PROTOCOL_CHANGE)}; create it once, ahead of time, and run this again",
        kind=ConflictKind.PROTOCOL,
        changes=(),
        features=(),
    )


def level_of(schema: TableSchema, wanted: str | None) -> IsolationLevel:
    """Returns the level a transaction has on a table: its own wish, never less than the table's.

    Raises:
        InvalidInputError: no such level.
    """
    own = schema.isolation_level
    if wanted is None:
        return own
    return stricter(own, parse_isolation_level(wanted))
