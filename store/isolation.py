"""One transaction's claim on one table: what it read, at which level, and the check before it commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store import catalog
from store import properties as props
from store.conflict import (
    SERIALIZABLE,
    WRITE_SERIALIZABLE,
    Attempt,
    Conflict,
    ConflictKind,
    Written,
    find_conflicts,
)
from store.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConflictError,
    MetadataChangedException,
    ProtocolChangedException,
)
from store.reads import METADATA_CHANGE, NO_CODES, PROTOCOL_CHANGE, ReadLog
from store.schema import TableSchema
from store.table_state import TableState
from store.window import Window

if TYPE_CHECKING:
    from store.table import Table

_CLASSES: Final[Mapping[ConflictKind, type[ConflictError]]] = {
    ConflictKind.APPEND: ConcurrentAppendException,
    ConflictKind.DELETE_READ: ConcurrentDeleteReadException,
    ConflictKind.DELETE_DELETE: ConcurrentDeleteDeleteException,
}
_DID: Final = {
    ConflictKind.APPEND: "added {} its conditions cover",
    ConflictKind.DELETE_READ: "changed {} it read",
    ConflictKind.DELETE_DELETE: "changed {} it writes",
}


def parse_level(level: str) -> str:
    """An isolation level in its canonical spelling, without regard to case.

    Raises:
        InvalidInputError: not one of the two.
    """
    return props.parse_isolation_level(level)


def stricter(one: str, other: str) -> str:
    return SERIALIZABLE if SERIALIZABLE in (one, other) else WRITE_SERIALIZABLE


@dataclass
class Isolation:
    """The reads of one transaction on one table, and the check against what others committed since.

    Attributes:
        base: the state it reads.
        reads: what it read so far.
        level: the stricter of the table's and the transaction's.
        is_unchecked: nothing is checked: the later version wins, whatever was read.
        changes_metadata: rows were read to decide about a metadata change.
        tables: tables its transaction takes part in.
    """

    table: Table
    base: TableState
    level: str
    is_unchecked: bool = False
    changes_metadata: bool = False
    tables: int = 1
    reads: ReadLog = field(init=False)
    _window: Window | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.reads = ReadLog(self.base.schema)

    @property
    def has_read(self) -> bool:
        reads = self.reads
        return bool(reads.predicates or reads.keys or reads.whole_table or reads.fallback)

    def check(self, tx: catalog.Transaction, head: int, written: Sequence[Written], operation: str) -> None:
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
        winners = self._window.extend(tx, head)
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
        conflicts = find_conflicts(attempt, winners, reader_version)
        if conflicts:
            raise conflict_error(conflicts, self, operation)


def conflict_error(conflicts: Sequence[Conflict], isolation: Isolation, operation: str) -> ConflictError:
    """The exception for some conflicts, told by the first."""
    first = conflicts[0]
    table, read_version = isolation.table.name, isolation.base.version
    label = f" {first.label!r}" if first.label else ""
    did = _DID[first.kind].format(_counted(first))
    voided = f", seen by version {first.voided_by}" if first.voided_by else ""
    message = (
        f"{operation} on {table!r} read version {read_version}; {first.operation}{label} committed version "
        f"{first.version} and {did}{voided} [{isolation.level}, {first.reason}]; "
        "run it again on a new snapshot"
    )
    return _CLASSES[first.kind](
        message,
        kind=first.kind.value,
        table=table,
        operation=operation,
        read_version=read_version,
        winner_version=first.version,
        winner_operation=first.operation,
        winner_label=first.label,
        isolation=isolation.level,
        reason=first.reason,
        keys=first.keys,
        conflicts=tuple(conflicts),
    )


def _counted(conflict: Conflict) -> str:
    if not conflict.count:
        return "rows"
    rows = "1 row" if conflict.count == 1 else f"{conflict.count} rows"
    if not conflict.keys:
        return rows
    shown = ", ".join(f"{name}={value}" for name, value in conflict.keys[0].items())
    return f"{rows}, first ({shown}),"


def schema_error(
    tx: catalog.Transaction, table_id: int, *, name: str, operation: str, revision: int
) -> ConflictError:
    """Why a transaction prepared for a schema revision cannot commit: features or metadata changed."""
    version, current = catalog.head(tx, table_id, name)
    changes: list[str] = []
    features: list[str] = []
    winner: dict[str, Any] = {}
    while version > 0:
        record = tx.get("versions", catalog.version_key(table_id, version))
        if record is None or record["revision"] == revision:
            break
        facts = record.get("facts") or {}
        changes = [*facts.get("changes", ()), *changes]
        features = [*facts.get("features", ()), *features]
        winner = {"winner_version": version, "winner_operation": record["operation"]}
        version -= 1
    what = features or changes or ["the schema"]
    error = ProtocolChangedException if features else MetadataChangedException
    done = ""
    if winner:
        done = f": {winner['winner_operation']} committed version {winner['winner_version']} and changed "
        done += ", ".join(what)
    return error(
        f"{operation} on {name!r} was prepared for schema revision {revision}, but the table has {current}"
        f"{done}; run it again on the new schema",
        kind=error.__name__,
        table=name,
        operation=operation,
        read_version=version,
        winner_label="",
        reason=PROTOCOL_CHANGE if features else METADATA_CHANGE,
        changes=tuple(changes),
        features=tuple(features),
        conflicts=(),
        **winner,
    )


def recreated_error(name: str, operation: str) -> ProtocolChangedException:
    """The table was dropped and made again under a running transaction, or made twice at once."""
    return ProtocolChangedException(
        f"{operation} on {name!r}: another transaction created the table meanwhile; create it once, ahead of "
        "time, and run this again",
        kind="ProtocolChangedException",
        table=name,
        operation=operation,
        reason=PROTOCOL_CHANGE,
        features=(),
        conflicts=(),
    )


def level_of(schema: TableSchema, wanted: str | None) -> str:
    """The level a transaction has on a table: its own wish, never less than the table's.

    Raises:
        InvalidInputError: no such level.
    """
    own = schema.isolation_level
    if wanted is None:
        return own
    return stricter(own, parse_level(wanted))
