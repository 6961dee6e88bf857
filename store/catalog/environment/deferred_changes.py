"""Changes of the catalog that a process could not store, for its next transaction that can.

A load whose commit fails on a full disk must free its label, and that change fails as well. It is kept here
and runs first in the next write transaction of this process: a load that repeats the label finds it free.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.errors import StoreError

Change = Callable[[CatalogTransaction], None]
_LOG: Final = logging.getLogger(__name__)
_of_path: Final[dict[str, DeferredChanges]] = {}


class DeferredChanges:
    """The changes `waiting` for one catalog. A change may run twice, and must have the same effect then."""

    def __init__(self) -> None:
        self.waiting: deque[Change] = deque()

    def add(self, change: Change) -> None:
        """Keeps a change until a transaction has stored it."""
        self.waiting.append(change)

    def run(self, tx: CatalogTransaction) -> list[Change]:
        """Runs the changes that wait; returns them, for `restore` in case the transaction fails."""
        taken: list[Change] = []
        while self.waiting:
            change = self.waiting.popleft()
            try:
                change(tx)
            except StoreError as error:
                _LOG.warning("a change of the catalog that was deferred is given up: %s", error)
            else:
                taken.append(change)
        return taken

    def restore(self, taken: list[Change]) -> None:
        """Lets changes wait again."""
        self.waiting.extend(taken)


def deferred_changes(path: str) -> DeferredChanges:
    """Returns those of a catalog, by its real path."""
    return _of_path.setdefault(path, DeferredChanges())


os.register_at_fork(after_in_child=_of_path.clear)  # they are the parent's to make
