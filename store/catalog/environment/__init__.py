"""The catalog's LMDB environments: the file and its checks, transactions, commits in groups, answers."""

from __future__ import annotations

from seqstore.store.catalog.environment.access import Catalog
from seqstore.store.catalog.environment.open_environments import is_open

__all__ = ["Catalog", "is_open"]
