"""Tombstones: how long a deleted key is remembered, and by which record afterwards (K3, K4, D4).

A tombstone guards its key: a later row with a smaller sequence must not bring the key back. A compaction
treats a tombstone by these rules:

1. It was written less than `tombstone_retention_seconds` ago: it stays as it is.
2. Its table has no sequence, or its sequence is NULL: no later row is smaller, so it is removed.
3. The sequence is of a time type: it is removed once that time is old enough too. The table remembers the
   largest sequence removed, its *tombstone watermark*: a later row below it whose key is not stored is too
   late.
4. The sequence is an integer, and no age follows from it: the tombstone stays as a *guard*, key and sequence
   without values, in a compressed segment of guards (maintenance.segment_merge).

In tables with column groups a tombstone remembers a sequence per group. Rule 2 removes it when all of them
are NULL; otherwise it stays as a guard, whatever their types. A watermark would be needed per group, and a
key of which one group is written again would forget that the others were deleted.

The watermark only rises, and it is published with the version that removes tombstones: a load planned before
is planned again. So no row can bring back a key that was deleted with a larger sequence, ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.horizon import version_at
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.catalog.version_record import read_version_record
from seqstore.store.schema.properties import TOMBSTONE_RETENTION
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.winner import loses
from seqstore.store.settings import Settings

Mask = npt.NDArray[np.bool_]
_TIME_TYPES: Final = ("DATE", "DATETIME")
_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_MS: Final = (datetime.min - _EPOCH) // timedelta(milliseconds=1)  # no sequence is earlier
_DAY: Final = timedelta(days=1)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass
class Purge:
    """The tombstones that one compaction may remove, and the watermark that this leaves.

    Attributes:
        schema: of the table.
        version: tombstones of this version and earlier ones are old enough.
        horizon: sequences of a time type below it are old enough, without a zone.
        gone: tombstones removed so far.
        watermark: their largest sequence as a `SequenceVector` holds it, None when there is none.
    """

    schema: TableSchema
    version: int
    horizon: datetime
    gone: int = 0
    watermark: int | None = None

    def decide(
        self,
        signs: Mask,
        versions: npt.NDArray[np.int64],
        sequence: SequenceVector | None,
        rows: pa.Table,
    ) -> tuple[Mask, Mask]:
        """Decides which rows are removed, and which stay as guards.

        Args:
            signs: which rows are tombstones.
            versions, sequence: of every row.
            rows: with the sequences of column groups, where the table has groups.
        """
        old = signs & (versions <= self.version)
        if self.schema.groups:
            remembers = _has_group_sequence(rows, self.schema)
            self.gone += int(np.count_nonzero(old & ~remembers))
            return old & ~remembers, old & remembers
        sequence_type = self.schema.sequence_type
        if sequence_type is None or sequence is None:
            self.gone += int(np.count_nonzero(old))
            return old, np.zeros_like(old)
        leaves = old & ~loses(SequenceVector.nulls(len(old)), sequence)
        guards = old & ~leaves
        if sequence_type.name in _TIME_TYPES:
            times = sequence.columns[0]
            past = guards & (times < self._horizon(sequence_type.name))
            if past.any():
                highest = int(times[past].max())
                self.watermark = highest if self.watermark is None else max(self.watermark, highest)
            leaves, guards = leaves | past, np.zeros_like(old)
        self.gone += int(np.count_nonzero(leaves))
        return leaves, guards

    def _horizon(self, type_name: str) -> int:
        return (self.horizon - _EPOCH) // (_DAY if type_name == "DATE" else _MICROSECOND)


def group_sequences(schema: TableSchema) -> list[str]:
    """Returns the names of the columns that order the column groups of a table."""
    return [name for group in schema.column_groups.values() for name in group.sequence]


def _has_group_sequence(rows: pa.Table, schema: TableSchema) -> Mask:
    """Returns which rows have a sequence of any group."""
    found = np.zeros(len(rows), dtype=np.bool_)
    for name in group_sequences(schema):
        found |= np.asarray(rows.column(name).is_valid())
    return found


def is_below(sequence: SequenceVector, watermark: int) -> Mask:
    """Returns which rows have a sequence below a watermark, NULL included."""
    return np.asarray(sequence.columns[0] < np.int64(watermark))


def retention_seconds(schema: TableSchema, settings: Settings) -> int:
    """Returns how long a table remembers a deleted key at least."""
    return int(schema.properties.get(TOMBSTONE_RETENTION, settings.tombstone_retention_seconds))


def may_lack_tombstones(
    tx: CatalogTransaction, table: int, newest: int, schema: TableSchema, settings: Settings, after: int
) -> bool:
    """Returns whether a compaction may have removed a tombstone that was written after a version."""
    if after >= newest:
        return False
    following = read_version_record(tx, table, after + 1)
    before_ms = now_ms() - retention_seconds(schema, settings) * 1000
    return following is None or following.time_ms <= before_ms


def old_enough(
    tx: CatalogTransaction, table: int, newest: int, schema: TableSchema, settings: Settings
) -> Purge:
    """Returns the rule for a compaction that begins now."""
    before_ms = max(now_ms() - retention_seconds(schema, settings) * 1000, _FIRST_MS)
    horizon = _EPOCH + timedelta(milliseconds=before_ms)
    return Purge(schema, version_at(tx, table, newest, before_ms), horizon)
