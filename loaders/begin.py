"""Begins a load with the options of a stream or routine load."""

from __future__ import annotations

from datetime import datetime

from seqstore.loaders.headers import StreamLoadOptions
from seqstore.store.load.load import Load
from seqstore.store.publish.evolution import Evolution
from seqstore.store.table import Table
from seqstore.store.transaction.transaction_table import TransactionTable


def begin(
    table: Table | TransactionTable,
    options: StreamLoadOptions,
    now: datetime,
    *,
    operation: str,
    label: str | None,
    label_prefix: str = "",
    evolution: Evolution | None = None,
) -> Load:
    """Returns a load into a table, or a statement of a transaction.

    Args:
        now: the value of CURRENT_TIMESTAMP for the load.
        operation: for the history.
        label: None for one of its own, which begins with `label_prefix`.
        evolution: the schema that the rows need.

    Raises:
        StoreError: as `Table.begin_load`.
    """
    return table.begin_load(
        label=label,
        operation=operation,
        merge_type="DELETE" if options.merge_type == "DELETE" else "APPEND",
        now=now,
        mode=options.update_mode,
        new_keys=options.new_key_behavior,
        ignore_null=options.ignore_null,
        partitions=options.partitions if table.schema.partitioning is not None else (),
        label_prefix=label_prefix,
        txn_app_id=options.txn_app_id,
        txn_version=options.txn_version,
        evolution=evolution,
    )
