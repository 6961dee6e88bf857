"""Conflict errors: the current transaction and the committed ones it met, one form for every class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.version_record import CommitInfo, VersionRecord, read_version_record
from seqstore.store.conflict.conflict import Conflict, ConflictKind
from seqstore.store.conflict.read_set import HISTORY_EXPIRED, METADATA_CHANGE, PROTOCOL_CHANGE
from seqstore.store.errors import ConflictError
from seqstore.store.schema import properties as props
from seqstore.store.schema.properties import IsolationLevel

_CLASSES: Final = {error.__name__: error for error in ConflictError.__subclasses__()}
_REASONS: Final = {ConflictKind.METADATA: METADATA_CHANGE, ConflictKind.PROTOCOL: PROTOCOL_CHANGE}
_COMMITTED_NAMED: Final = 5
_DID: Final = {
    ConflictKind.APPEND: "added {} its conditions cover",
    ConflictKind.DELETE_READ: "changed {} it read",
    ConflictKind.DELETE_DELETE: "changed {} it writes",
}


@dataclass(frozen=True)
class CurrentTransaction:
    """The transaction that cannot commit.

    Attributes:
        read_version: 0 when it read none.
        level: its isolation level, empty where it was that of a dropped table.
    """

    table: str
    operation: str
    read_version: int = 0
    level: str = ""

    @property
    def opening(self) -> str:
        """The beginning of every message."""
        read = f" read version {self.read_version}" if self.read_version else ""
        return f"{self.operation} on {self.table!r}{read}"

    def because(self, reason: str) -> str:
        """Formats level and reason as messages have them."""
        return f"[{self.level}, {reason}]" if self.level else f"[{reason}]"


def current_transaction(
    tx: catalog.CatalogTransaction,
    table_id: int,
    name: str,
    operation: str,
    revision: int,
    commit_info: CommitInfo | None = None,
) -> CurrentTransaction:
    """Returns a transaction prepared for a schema revision.

    Args:
        commit_info: of the version to be made; without a level there the transaction has the table's.
    """
    level = commit_info.level if commit_info is not None else ""
    schema = tx.get("schemas", catalog.schema_key(table_id, revision))
    if not level and schema is not None:
        level = schema["properties"].get(props.ISOLATION_LEVEL, IsolationLevel.WRITE_SERIALIZABLE)
    return CurrentTransaction(
        name, operation, commit_info.read_version if commit_info is not None else 0, level
    )


def error_of(
    conflicts: Sequence[Conflict],
    current: CurrentTransaction,
    message: str,
    *,
    kind: ConflictKind,
    **more: Any,
) -> ConflictError:
    """Returns the exception for some conflicts, its fields those of the first.

    Args:
        kind: the exception where the committed transaction is not known any more.
        more: fields of one class alone.
    """
    first = conflicts[0] if conflicts else Conflict(kind, 0, "", "", _REASONS.get(kind, ""))
    return _CLASSES[first.kind.value](
        message,
        kind=first.kind.value,
        table=current.table,
        operation=current.operation,
        read_version=current.read_version,
        winner_version=first.version,
        winner_operation=first.operation,
        winner_label=first.label,
        isolation=current.level,
        reason=first.reason,
        keys=first.keys,
        conflicts=tuple(conflicts),
        **more,
    )


def committed_name(conflict: Conflict) -> str:
    """Returns operation and label of a committed transaction."""
    return f"{conflict.operation} {conflict.label!r}" if conflict.label else conflict.operation


def schema_conflicts(
    tx: catalog.CatalogTransaction, table_id: int, head: int, revision: int
) -> tuple[list[Conflict], int]:
    """Returns the versions up to a head that changed the schema since a revision, and the last version that
    had it, 0 when its record is gone."""
    since: list[tuple[int, VersionRecord]] = []
    version = head
    while (record := read_version_record(tx, table_id, version)) is not None and record.revision != revision:
        since.append((version, record))
        version -= 1
    before = revision if record is not None else None
    found = []
    for number, later in reversed(since):
        info = later.commit_info or CommitInfo(is_blind=True)
        changes = (*info.changes, *info.features)
        if changes or before not in (None, later.revision):
            found.append(_schema_conflict(number, later, changes, is_protocol=bool(info.features)))
        before = later.revision
    return found, version if record is not None else 0


def creation(tx: catalog.CatalogTransaction, table_id: int) -> list[Conflict]:
    """Returns the version that made a table."""
    record = read_version_record(tx, table_id, 1)
    return (
        [] if record is None else [_schema_conflict(1, record, ("the table (made anew)",), is_protocol=True)]
    )


def _schema_conflict(
    version: int, record: VersionRecord, changes: Sequence[str], *, is_protocol: bool
) -> Conflict:
    kind = ConflictKind.PROTOCOL if is_protocol else ConflictKind.METADATA
    changed = tuple(changes) or ("the schema",)
    return Conflict(kind, version, record.operation, record.label, _REASONS[kind], changes=changed)


def conflict_error(conflicts: Sequence[Conflict], current: CurrentTransaction) -> ConflictError:
    """Returns the exception for some conflicts; its message is about the first."""
    first = conflicts[0]
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


def expired_error(current: CurrentTransaction, newest: int) -> ConflictError:
    """Returns the error of a transaction that has read a version which is not kept any more."""
    return error_of(
        [Conflict(ConflictKind.APPEND, newest, "", "", HISTORY_EXPIRED)],
        current,
        f"{current.opening}, which is not kept any more, so its conflicts cannot be found "
        f"{current.because(HISTORY_EXPIRED)}; abort it and run it again",
        kind=ConflictKind.APPEND,
    )
