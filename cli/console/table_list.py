"""The pages of tables that a user sees, with the figures of each table of the page."""

from __future__ import annotations

from typing import Any, Final

from seqstore.cli.figures import table_figures
from seqstore.store import NotFoundError, Store
from seqstore.store.catalog.accounts import Account
from seqstore.store.table import Table

PAGE_MAX: Final = 200


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
    found = table_figures(table)
    return {
        "rows": found.rows,
        "bytes": found.data_bytes,
        "segments": found.segments,
        "version": found.version,
        "oldest": found.oldest_version,
        "loads_a_minute": found.recent.loads,
        "changed_ms": found.recent.changed_ms,
        "kind": "DUPLICATE KEY" if found.is_duplicate else "UNIQUE KEY",
    }
