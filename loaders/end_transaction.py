"""The second phase of a two-phase stream load: commit or abort, by transaction id or label (PC2-PC7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from seqstore.store import InvalidInputError, NotFoundError, Store, StoreError
from seqstore.store.catalog.transaction_record import TransactionRecord

_MESSAGE_MAX: Final = 2_000  # it may quote what the client sent


def end_transaction(
    store: Store,
    database: str,
    headers: Mapping[str, str],
    may_end: Callable[[TransactionRecord], bool] = lambda _record: True,
) -> dict[str, str]:
    """Commits or aborts a transaction, as `txn_operation` has it.

    Args:
        may_end: whether the caller may end a transaction; else it is one that does not exist.
        headers: by lower-case name; `txn_id` or `label`, and `txn_operation`.

    Returns:
        `status` and `msg`, as Doris names them here (PC3). A second commit fails: by its message the
        transaction is visible already, which clients treat as success (PC7).
    """
    try:
        txn_id, label = _named(headers)
        operation = headers.get("txn_operation", "").strip().lower()
        found = store.find_transaction(database, label, txn_id=txn_id)
        if found is not None and not may_end(found):
            named = txn_id if txn_id is not None else label
            raise NotFoundError(f"transaction [{named}] not found", kind="txn_not_found")
        if operation == "commit":
            store.commit_transaction(database, txn_id=txn_id, label=label)
        elif operation == "abort":
            store.abort_transaction(database, txn_id=txn_id, label=label)
        else:
            raise InvalidInputError("transaction operation should be 'commit' or 'abort'", kind="bad_header")
    except StoreError as error:
        return {"status": "Fail", "msg": error.message[:_MESSAGE_MAX]}
    what = f"transaction [{txn_id}]" if txn_id is not None else f"label [{label}]"
    return {"status": "Success", "msg": f"{what} {operation} successfully."}


def _named(headers: Mapping[str, str]) -> tuple[int | None, str | None]:
    """Returns the transaction's id, or its label when there is no id."""
    text, label = headers.get("txn_id", "").strip(), headers.get("label", "").strip()
    if text:
        if not re.fullmatch(r"\d{1,18}", text):
            raise InvalidInputError(f"convert txn_id [{text[:100]}] failed", kind="bad_header")
        return int(text), None
    if not label:
        raise InvalidInputError("expected the header txn_id or label, found neither", kind="bad_header")
    return None, label
