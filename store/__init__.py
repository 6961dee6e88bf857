"""The engine of seqstore: unique-key tables with versions, sequences and snapshots, embedded in one process.

from store import Store, TableSchema
"""

from store.accounts import Account, Accounts
from store.check_rows import RejectedRow
from store.column import Column, Default
from store.compaction import CompactionResult
from store.dml import DmlResult
from store.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ClosedError,
    CommitUnknownError,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConflictError,
    CorruptionError,
    FormatError,
    InvalidInputError,
    LabelExistsError,
    LoadRejectedError,
    MetadataChangedException,
    NotFoundError,
    ProtocolChangedException,
    StoreError,
    UnavailableError,
    VersionExpiredError,
)
from store.key_history import KeyEvent
from store.load import Load, LoadResult, WriteResult
from store.multi_transaction import MultiTransaction, TransactionResult
from store.retention import VacuumResult
from store.schema import TableSchema
from store.settings import Settings
from store.snapshot import Snapshot
from store.store import Store
from store.table import Table
from store.table_versions import VersionInfo
from store.transaction_table import TransactionTable
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
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConflictError",
    "CorruptionError",
    "Default",
    "DmlResult",
    "FormatError",
    "InvalidInputError",
    "KeyEvent",
    "LabelExistsError",
    "Load",
    "LoadRejectedError",
    "LoadResult",
    "MetadataChangedException",
    "MultiTransaction",
    "NotFoundError",
    "ProtocolChangedException",
    "RejectedRow",
    "Settings",
    "Snapshot",
    "Store",
    "StoreError",
    "Table",
    "TableSchema",
    "TransactionResult",
    "TransactionTable",
    "UnavailableError",
    "VacuumResult",
    "VersionExpiredError",
    "VersionInfo",
    "WriteResult",
    "parse_type",
]
