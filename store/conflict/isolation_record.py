"""The reads of a pre-committed transaction on a table, as a catalog record. When any process commits it, they
are checked against everything published since the version that was read.

No lease is held for that version. If it cannot be opened any more, the changes since are unknown, and the
commit is refused (HISTORY_EXPIRED).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc

from seqstore.store.conflict.conflict import Conflict, ConflictKind
from seqstore.store.conflict.conflict_errors import CurrentTransaction, error_of
from seqstore.store.conflict.isolation import Isolation
from seqstore.store.conflict.read_set import HISTORY_EXPIRED, Predicate, ReadLog
from seqstore.store.errors import ConflictError, InvalidInputError, VersionExpiredError
from seqstore.store.expressions.predicate import pack, unpack
from seqstore.store.schema.properties import IsolationLevel

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_KEYS_MAX: Final = 1_000_000  # 8 MB; a transaction that looked up more counts as one that read the table


def isolation_to_record(isolation: Isolation | None) -> dict[str, Any] | None:
    """Returns the part of a prepared writer's record; None for a blind writer."""
    if isolation is None:
        return None
    return {
        "version": isolation.base.version,
        "level": str(isolation.level),
        "unchecked": isolation.is_unchecked,
        "tables": isolation.tables,
        "has_read": isolation.has_read,
        "reads": _reads_to_record(isolation.reads),
    }


def _reads_to_record(reads: ReadLog) -> dict[str, Any]:
    codes = reads.codes
    packed = [_packed(predicate) for predicate in reads.predicates]
    is_whole = reads.whole_table or len(codes) > _KEYS_MAX or None in packed
    return {
        "whole": is_whole,
        "keys": b"" if is_whole else codes.astype("<u8").tobytes(),
        "predicates": [] if is_whole else packed,
        "columns": sorted(reads.columns),
        "fallback": reads.fallback,
    }


def _packed(predicate: Predicate) -> list[bytes | None] | None:
    """Packs a predicate for the record; returns None where only this process can evaluate it."""
    if predicate.expression is None:
        return None
    try:
        return [expression_to_bytes(predicate.expression), expression_to_bytes(predicate.partition)]
    except InvalidInputError:
        return None


def expression_to_bytes(expression: pc.Expression | None) -> bytes | None:
    """Returns an Arrow expression for the catalog; None stays None."""
    return None if expression is None else pack(expression)


def expression_from_bytes(data: bytes | None) -> pc.Expression | None:
    """Returns the expression that `expression_to_bytes` packed."""
    return None if data is None else unpack(data)


def isolation_from_record(table: VersionedTable, operation: str, record: dict[str, Any]) -> Isolation | None:
    """Returns the isolation of a record; None where nothing was read and the version it read is gone.

    Raises:
        ConcurrentAppendException: rows were read, and the history cannot show any more whether they changed.
    """
    try:
        state, lease = table.hold(record["version"])
    except VersionExpiredError as error:
        if not record["has_read"]:
            return None
        raise _history_expired(table, operation, record) from error
    isolation = Isolation(
        table,
        state,
        IsolationLevel(record["level"]),
        record["unchecked"],
        tables=record["tables"],
        lease=lease,
    )
    stored, reads = record["reads"], isolation.reads
    reads.whole_table, reads.fallback = stored["whole"], stored["fallback"]
    reads.columns = set(stored["columns"])
    if stored["keys"]:
        reads.keys.append(np.frombuffer(stored["keys"], dtype="<u8").astype(np.uint64))
    for expression, partition in stored["predicates"]:
        reads.predicates.append(
            Predicate(expression_from_bytes(expression), partition=expression_from_bytes(partition))
        )
    return isolation


def _history_expired(table: VersionedTable, operation: str, record: dict[str, Any]) -> ConflictError:
    current = CurrentTransaction(table.name, operation, record["version"], record["level"])
    return error_of(
        [Conflict(ConflictKind.APPEND, table.version, "", "", HISTORY_EXPIRED)],
        current,
        f"{current.opening}, which is not kept any more, so its conflicts cannot be found "
        f"{current.because(HISTORY_EXPIRED)}; abort it and run it again",
        kind=ConflictKind.APPEND,
    )
