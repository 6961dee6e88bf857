"""The parts of SQL statements that broker loads and routine loads share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from seqstore.store.sql.parse.load_jobs import LoadClauses
from seqstore.store.store import Store

Line = tuple[str | None, ...]  # of a SHOW statement


class JobStatements:
    """Runs the statements of one store.

    Args:
        user: the owner of new jobs; `root` for sessions without privileges.
    """

    def __init__(self, store: Store, user: str = "root") -> None:
        self._store = store
        self._user = user

    def _may_load(self, database: str, tables: Iterable[str]) -> bool:
        """Returns whether the user may load into all of some tables; others' jobs do not exist for it."""
        account = self._store.accounts.find(self._user)
        return account is not None and all(account.may("LOAD", database, table) for table in tables)


def spec_fields(clauses: LoadClauses) -> dict[str, Any]:
    """Returns the clauses of a statement as the fields of a `RowsSpec`."""
    assigned = (f"`{name.strip('`')}` = {expression}" for name, expression in clauses.set_columns)
    return {
        "merge_type": clauses.merge_type,
        "partitions": clauses.partitions,
        "column_separator": clauses.column_separator or "",
        "line_delimiter": clauses.line_delimiter or "",
        "columns": tuple(text.strip("`") for text in clauses.columns if _is_name(text)),
        "assignments": (*(text for text in clauses.columns if not _is_name(text)), *assigned),
        "preceding_filter": clauses.preceding_filter or "",
        "where": clauses.where or "",
        "delete_on": clauses.delete_on or "",
        "order_by": (clauses.order_by or "").strip("`"),
    }


def format_time(unix_ms: int) -> str | None:
    """Returns a time as SHOW prints it, NULL for 0."""
    return datetime.fromtimestamp(unix_ms / 1000).strftime("%Y-%m-%d %H:%M:%S") if unix_ms else None


def _is_name(text: str) -> bool:
    return re.fullmatch(r"`[^`]+`|\w+", text.strip()) is not None
