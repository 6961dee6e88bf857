"""The engine of seqstore: unique-key tables with versions, sequences and snapshots, embedded in one process.

from seqstore import Store, TableSchema
"""

from typing import Any

from seqstore.store.catalog.accounts import Account, Accounts
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus
from seqstore.store.catalog.update_lock import ConcurrencyMode
from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.check.row_checker import RejectedRow
from seqstore.store.check.write_modes import MergeType, NewKeyBehavior, UpdateMode
from seqstore.store.errors import (
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
from seqstore.store.expressions.condition import Condition
from seqstore.store.history.key_history import KeyEvent
from seqstore.store.load.load import Load, LoadResult, WriteResult
from seqstore.store.load.write_options import WriteArguments, WriteOptions
from seqstore.store.maintenance.compaction import CompactionResult
from seqstore.store.maintenance.retention import VacuumResult
from seqstore.store.maintenance.scheduler import Maintainer
from seqstore.store.read.scan import ScanMetrics
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.store_snapshot import StoreSnapshot
from seqstore.store.read.versioned_table import VersionInfo
from seqstore.store.schema.column import Column, Default
from seqstore.store.schema.column_groups import ColumnGroup
from seqstore.store.schema.constraints import Constraint
from seqstore.store.schema.partitioning import Partition, Partitioning
from seqstore.store.schema.properties import IsolationLevel
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.settings import Settings
from seqstore.store.store import Store, use_connector
from seqstore.store.table import Table
from seqstore.store.transaction.merge_builder import MergeBuilder, MergeLanguage, use_language
from seqstore.store.transaction.transaction import Transaction, TransactionResult
from seqstore.store.transaction.transaction_options import (
    DmlArguments,
    DmlOptions,
    DmlResult,
    TransactionArguments,
    TransactionOptions,
)
from seqstore.store.transaction.transaction_table import TransactionTable
from seqstore.store.types.column_types import ColumnType, parse_type


def _sql_merge_language() -> MergeLanguage:
    from seqstore.store.sql.write.merge_language import SqlMergeLanguage  # only merges need SQL

    return SqlMergeLanguage()


def _connect(url: str, **arguments: Any) -> Store:
    from seqstore.store.remote.remote_store import connect  # loads gRPC

    return connect(url, **arguments)


use_language(_sql_merge_language)
use_connector(_connect)

__all__ = [
    "AccessDeniedError",
    "Account",
    "Accounts",
    "AlreadyExistsError",
    "ClosedError",
    "Column",
    "ColumnGroup",
    "ColumnType",
    "CommitUnknownError",
    "CompactionResult",
    "ConcurrencyMode",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "Condition",
    "ConflictError",
    "Constraint",
    "CorruptionError",
    "Default",
    "DmlArguments",
    "DmlOptions",
    "DmlResult",
    "FormatError",
    "InvalidInputError",
    "IsolationLevel",
    "KeyEvent",
    "LabelExistsError",
    "Load",
    "LoadRejectedError",
    "LoadResult",
    "Maintainer",
    "MergeBuilder",
    "MergeType",
    "MetadataChangedException",
    "NewKeyBehavior",
    "NotFoundError",
    "Partition",
    "Partitioning",
    "ProtocolChangedException",
    "RejectedRow",
    "ScanMetrics",
    "Settings",
    "Snapshot",
    "Store",
    "StoreError",
    "StoreSnapshot",
    "Table",
    "TableSchema",
    "Transaction",
    "TransactionArguments",
    "TransactionOptions",
    "TransactionRecord",
    "TransactionResult",
    "TransactionStatus",
    "TransactionTable",
    "UnavailableError",
    "UpdateMode",
    "VacuumResult",
    "VersionExpiredError",
    "VersionInfo",
    "VersionMetrics",
    "WriteArguments",
    "WriteOptions",
    "WriteResult",
    "parse_type",
]
