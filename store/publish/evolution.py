"""A change of a table's schema that becomes visible together with the rows that need it.

The rows of the write are checked and staged for a revision that is not stored yet. The commit point stores
it, makes a version without rows for it, and then the version with the rows: one transaction of the catalog,
all of it or nothing. Only changes that leave stored rows as they are can be made so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus, now_ms
from seqstore.store.catalog.version_record import CommitInfo
from seqstore.store.publish.publish import HeadMoved, TableWrite, check_revision, put_version
from seqstore.store.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

SCHEMA_EVOLUTION: Final = "SCHEMA EVOLUTION"


@dataclass(frozen=True)
class Evolution:
    """The next revision of a table; `ddl.evolution` makes it.

    Attributes:
        base: the revision that it changes.
        schema: the new revision.
        changes: in words, for later conflicts.
        check: called in the commit point; its error undoes everything.
    """

    base: TableSchema
    schema: TableSchema
    changes: tuple[str, ...]
    check: Callable[[CatalogTransaction], None]

    def placed(
        self, tx: CatalogTransaction, table: VersionedTable, transaction: TransactionRecord, write: TableWrite
    ) -> TableWrite:
        """Stores the revision and a version for it; returns the write on top of that.

        A write without rows needs no other schema.

        Raises:
            HeadMoved: the plan of the write is not for the newest version.
            ConflictError: the table has another revision than the one that evolved.
            InvalidInputError: a job changes the schema.
        """
        base = replace(write, revision=self.base.revision)
        if not (write.staged or write.hidden):
            return base
        head = check_revision(tx, transaction, base.table_id, base.name, base.revision, base.commit_info)
        if head != write.base:
            raise HeadMoved
        self.check(tx)
        info = CommitInfo(is_blind=True, changes=list(self.changes), features=[])
        step = TableWrite(table.id, table.name, self.schema.revision, head, commit_info=info)
        return replace(write, base=put_revision(tx, table, self.schema, step, SCHEMA_EVOLUTION))


def put_revision(
    tx: CatalogTransaction,
    table: VersionedTable,
    schema: TableSchema,
    write: TableWrite,
    operation: str,
) -> int:
    """Stores a schema as the revision that a write names, and a version without rows; returns the version."""
    key = records.schema_key(table.id, write.revision)
    tx.put("schemas", key, replace(schema, revision=write.revision).to_record())
    txn_id, now, status = tx.next_id("txn"), now_ms(), TransactionStatus.VISIBLE
    record = TransactionRecord(txn_id, table.database_id, table.name, "", status, operation, now, now)
    version = write.base + 1
    put_version(tx, record, write, version)
    return version
