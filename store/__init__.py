"""The engine of seqstore: unique-key tables with versions, sequences and snapshots, embedded in one process.

from store import Store, TableSchema
"""

from store.accounts import Account, Accounts
from store.check_rows import RejectedRow
from store.compaction import CompactionResult
from store.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ClosedError,
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FormatError,
    InvalidInputError,
    LabelExistsError,
    LoadRejectedError,
    NotFoundError,
    StoreError,
    UnavailableError,
    VersionExpiredError,
)
from store.load import Load, LoadResult, WriteResult
from store.schema import Column, Default, TableSchema
from store.settings import Settings
from store.snapshot import Snapshot
from store.store import Store
from store.table import Table, VersionInfo
from store.types import ColumnType, parse_type

__all__ = [
    "AccessDeniedError",
    "Account",
    "Accounts",
    "AlreadyExistsError",
    "ClosedError",
    "Column",
    "ColumnType",
    "CommitUnknownError",
    "CompactionResult",
    "ConflictError",
    "CorruptionError",
    "Default",
    "FormatError",
    "InvalidInputError",
    "LabelExistsError",
    "Load",
    "LoadRejectedError",
    "LoadResult",
    "NotFoundError",
    "RejectedRow",
    "Settings",
    "Snapshot",
    "Store",
    "StoreError",
    "Table",
    "TableSchema",
    "UnavailableError",
    "VersionExpiredError",
    "VersionInfo",
    "WriteResult",
    "parse_type",
]
