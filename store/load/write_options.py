"""Options of a write: one value for a load, an upsert, a delete, and their shares in other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from seqstore.store.check.write_modes import MergeType, NewKeyBehavior, UpdateMode
from seqstore.store.publish.evolution import Evolution
from seqstore.store.runtime.internal import internal

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable
    from seqstore.store.schema.table_schema import TableSchema


class WriteArguments(TypedDict, total=False):
    """The fields of `WriteOptions` as keyword arguments of the calls that write."""

    label: str | None
    operation: str
    sequence: str | None
    merge_type: str
    max_filter_ratio: float
    now: datetime | None
    require_sequence: bool
    mode: str
    new_keys: str
    ignore_null: bool
    label_prefix: str
    txn_app_id: str | None
    txn_version: int | None
    partitions: Sequence[str]
    evolution: Evolution | None
    zone: str | None


@dataclass(frozen=True)
class WriteOptions:
    """Options of one load.

    Attributes:
        label: makes the load idempotent: a second one with the same label is refused.
        operation: the word in the history that names the kind of the load.
        sequence: the column of the data that holds the hidden sequence.
        merge_type: `APPEND` or `MERGE` (rows whose delete sign is 1 delete), `DELETE` (all rows do).
        max_filter_ratio: share of rejected rows the load may have; `Load.commit` has its own.
        now: the one moment of CURRENT_TIMESTAMP defaults (A3), without a zone; None means this second.
        require_sequence: False admits rows without a sequence (SL12).
        mode: `UPSERT` (whole rows), `UPDATE_FIXED_COLUMNS` (only the columns of the data; the others keep
            their values) or `UPDATE_FLEXIBLE_COLUMNS` (see `Load.write`).
        new_keys: in partial updates, `APPEND` inserts keys the table does not have, `ERROR` fails the load.
        ignore_null: in partial updates, a NULL value cell keeps the stored value.
        label_prefix: of the generated label, when `label` is None.
        txn_app_id, txn_version: of an idempotent write, both or neither: the load is skipped and reported as
            DUPLICATE, unless the version is larger than the last one committed under this id.
        partitions: rows of other partitions are rejected; empty means all.
        evolution: the schema that the rows need, which is stored with them (`ddl.evolution`).
        zone: the time zone into which values with an offset are converted (Y13), an IANA name or an offset
            such as `+08:00`; None means UTC, and in a statement of SQL the zone of its session.
    """

    label: str | None = None
    operation: str = "LOAD"
    sequence: str | None = None
    merge_type: str = MergeType.APPEND
    max_filter_ratio: float = 0.0
    now: datetime | None = None
    require_sequence: bool = True
    mode: str = UpdateMode.UPSERT
    new_keys: str = NewKeyBehavior.APPEND
    ignore_null: bool = False
    label_prefix: str = ""
    txn_app_id: str | None = None
    txn_version: int | None = None
    partitions: Sequence[str] = ()
    evolution: Evolution | None = None
    zone: str | None = None

    @internal
    def schema_of(self, table: VersionedTable) -> TableSchema:
        """Returns the schema that rows of a table are checked for."""
        return table.schema if self.evolution is None else self.evolution.schema
