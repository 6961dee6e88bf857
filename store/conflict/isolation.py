"""The claim of one transaction on one table: its reads, its level, and the check before it commits.

A pre-committed transaction keeps it as a catalog record. When any process commits it, its reads are checked
against everything published since the version that was read. No lease is held for that version. If it cannot
be opened any more, the changes since are unknown, and the commit is refused (HISTORY_EXPIRED).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seqstore.store.catalog.catalog import CatalogTransaction, table_key
from seqstore.store.catalog.leases import Lease
from seqstore.store.conflict.conflict import Attempt, Written
from seqstore.store.conflict.conflict_errors import CurrentTransaction, conflict_error, expired_error
from seqstore.store.conflict.read_set import ROW_LEVEL_OFF, Predicate, ReadLog, packed
from seqstore.store.conflict.window import Window
from seqstore.store.errors import VersionExpiredError
from seqstore.store.expressions.predicate import unpack
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.properties import IsolationLevel

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_KEYS_MAX: Final = 1_000_000  # 8 MB; a transaction that looked up more counts as one that read the table


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

    def check(self, tx: CatalogTransaction, head: int, written: Sequence[Written], operation: str) -> None:
        """Looks for conflicts up to a version; may be called again for a later one.

        Raises:
            ConflictError: one of three subclasses, with all conflicts found.
        """
        if self.is_unchecked or not self.has_read or head <= self.base.version:
            return
        table, reads, schema = self.table, self.reads, self.base.schema
        if self._window is None:
            seconds = table.settings.conflict_check_seconds
            self._window = Window(table.loader, self.base, reads, written, seconds)
        attempt = Attempt(
            self.level,
            reads,
            written,
            self._window.extend(tx, head),
            int(tx.get("readers", table_key(table.id)) or 0),
            reads.fallback or ("" if schema.row_level else ROW_LEVEL_OFF),
            self.changes_metadata,
            self.tables,
            schema.partition_columns,
        )
        if conflicts := attempt.conflicts():
            current = CurrentTransaction(table.name, operation, self.base.version, self.level)
            raise conflict_error(conflicts, current)

    def to_record(self) -> dict[str, Any]:
        """Returns the part of a prepared writer's record."""
        reads, codes = self.reads, self.reads.codes
        predicates = [[packed(each.expression), packed(each.partition)] for each in reads.predicates]
        is_opaque = any(expression is None for expression, _ in predicates)
        is_whole = reads.whole_table or len(codes) > _KEYS_MAX or is_opaque
        return {
            "version": self.base.version,
            "level": str(self.level),
            "unchecked": self.is_unchecked,
            "tables": self.tables,
            "has_read": self.has_read,
            "reads": {
                "whole": is_whole,
                "keys": b"" if is_whole else codes.astype("<u8").tobytes(),
                "predicates": [] if is_whole else predicates,
                "columns": sorted(reads.columns),
                "fallback": reads.fallback,
            },
        }

    @classmethod
    def from_record(cls, table: VersionedTable, operation: str, record: dict[str, Any]) -> Isolation | None:
        """Returns the isolation of a record; None where nothing was read and the version it read is gone.

        Raises:
            ConcurrentAppendException: rows were read, and the history cannot show any more whether they
                changed.
        """
        version, level = record["version"], IsolationLevel(record["level"])
        try:
            state, lease = table.hold(version)
        except VersionExpiredError as error:
            if not record["has_read"]:
                return None
            current = CurrentTransaction(table.name, operation, version, level)
            raise expired_error(current, table.version) from error
        isolation = cls(table, state, level, record["unchecked"], tables=record["tables"], lease=lease)
        stored, reads = record["reads"], isolation.reads
        reads.whole_table, reads.fallback = stored["whole"], stored["fallback"]
        reads.columns = set(stored["columns"])
        if stored["keys"]:
            reads.keys.append(np.frombuffer(stored["keys"], dtype="<u8").astype(np.uint64))
        for expression, partition in stored["predicates"]:
            part = unpack(partition) if partition is not None else None
            reads.predicates.append(Predicate(unpack(expression), partition=part))
        return isolation
