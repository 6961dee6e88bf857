"""The pages of tables that a user sees, with the figures of each table of the page."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any, Final

from seqstore.store import NotFoundError, Store
from seqstore.store.catalog.accounts import Account
from seqstore.store.catalog.version_record import newest_version_records
from seqstore.store.table import Table

PAGE_MAX: Final = 200
_RECENT_MS: Final = 60_000
_RECENT_MAX: Final = 1_000


def visible_tables(store: Store, account: Account, database: str = "") -> list[tuple[str, str]]:
    """Returns database and name of each table that a user sees, sorted."""
    return [
        (each, table)
        for each in store.databases()
        if account.sees(each) and database in ("", each)
        for table in _tables(store, each)
        if account.sees_table(each, table)
    ]


def _tables(store: Store, database: str) -> list[str]:
    try:
        return store.tables(database)
    except NotFoundError:  # dropped meanwhile
        return []


def table_page(
    store: Store, account: Account, *, database: str, like: str, offset: int, limit: int
) -> dict[str, Any]:
    """Returns some of the tables whose names contain a text, and how many there are.

    Args:
        database: only of this one; empty for all.
        offset, limit: the tables of the page, by name.
    """
    wanted = like.lower()
    found = [
        pair
        for pair in visible_tables(store, account, database)
        if not wanted or wanted in f"{pair[0]}.{pair[1]}".lower()
    ]
    lines = [_line(store, account, *pair) for pair in found[offset : offset + limit]]
    return {"total": len(found), "offset": offset, "tables": [line for line in lines if line is not None]}


def _line(store: Store, account: Account, database: str, name: str) -> dict[str, Any] | None:
    privileges = [each for each in ("SELECT", "LOAD", "ALTER") if account.may(each, database, name)]
    line: dict[str, Any] = {"database": database, "name": name, "privileges": privileges}
    if "SELECT" not in privileges:
        return line
    try:
        return line | _figures(store.table(f"{database}.{name}"))
    except NotFoundError:  # dropped meanwhile
        return None


def _figures(table: Table) -> dict[str, Any]:
    state = table.state()
    segments = state.segments.values()
    recent, last_ms = _recent_loads(table)
    return {
        "rows": state.row_count,
        "bytes": sum(live.segment.meta.data_bytes + live.segment.meta.keys_bytes for live in segments),
        "segments": len(segments),
        "version": state.version,
        "oldest": table.oldest_version,
        "loads_a_minute": recent,
        "changed_ms": last_ms,
        "kind": "DUPLICATE KEY" if state.schema.is_duplicate else "UNIQUE KEY",
    }


def _recent_loads(table: Table) -> tuple[int, int]:
    """Returns the versions of the last minute that changed data, and the time of the newest version."""
    since = time.time_ns() // 1_000_000 - _RECENT_MS
    count, last_ms = 0, 0
    with table.catalog.read() as tx:
        for _, record in islice(newest_version_records(tx, table.id), _RECENT_MAX):
            last_ms = last_ms or record.time_ms
            if record.time_ms < since:
                break
            count += record.has_data_change
    return count, last_ms
