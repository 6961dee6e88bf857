"""The end of a transaction that made no version: its record becomes ABORTED, and its label is free."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from seqstore.store.catalog import transaction_record as transactions
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus
from seqstore.store.errors import CommitUnknownError, UnavailableError

_LOG: Final = logging.getLogger(__name__)


@contextmanager
def beginning(store_catalog: Catalog, begun: Callable[[], TransactionRecord | None]) -> Iterator[None]:
    """Frees the label of a transaction whose begin was stored and could not be synced.

    Args:
        begun: returns the record that the block stores.

    Raises:
        UnavailableError: the transaction has not begun.
    """
    try:
        yield
    except CommitUnknownError as error:
        record = begun()
        assert record is not None
        abort_failed(store_catalog, record, "its begin could not be synced")
        raise UnavailableError(
            f"{record.label}: the load has not begun, nothing was stored: {error.message}", kind="disk"
        ) from error


def abort_failed(store_catalog: Catalog, record: TransactionRecord, reason: str) -> None:
    """Stores a running transaction as aborted, unless another process has ended it.

    Where the catalog cannot be written, as on a full disk, the next write transaction of this process does
    so first. A load that repeats the label is such a transaction.
    """

    def change(tx: CatalogTransaction) -> None:
        stored = transactions.read_transaction(tx, record.id)
        if stored is None or stored.status == TransactionStatus.PREPARE:
            transactions.abort(tx, stored or record, reason)

    try:
        with store_catalog.write() as tx:
            change(tx)
    except (UnavailableError, CommitUnknownError) as error:
        _LOG.warning("label %s is freed by the next write of this process: %s", record.label, error)
        store_catalog.defer(change)
