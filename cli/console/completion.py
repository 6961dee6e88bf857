"""Names that complete a word of the SQL editor: of tables and columns that the user may read."""

from __future__ import annotations

from typing import Any, Final

from seqstore.cli.console.table_list import visible_tables
from seqstore.store import NotFoundError, Store
from seqstore.store.catalog.accounts import Account

_NAMES_MAX: Final = 50
_COLUMNS_OF_MAX: Final = 20


def completions(store: Store, account: Account, *, database: str, word: str, tables: str) -> dict[str, Any]:
    """Returns databases and tables that begin with a word, and columns of the named tables.

    Args:
        database: the current one; its tables need no database before their names.
        word: what was typed: `na`, or `db.na`.
        tables: names of tables in the statement, by commas.
    """
    first, dot, rest = word.lower().rpartition(".")
    found = [(name, "database") for name in store.databases() if account.sees(name) and not dot]
    within = next((name for name in store.databases() if name.lower() == first), "") if dot else database
    known = visible_tables(store, account, within) if within else []
    found += [(f"{within}.{name}" if dot else name, "table") for _, name in known]
    wanted = f"{first}.{rest}" if dot else rest
    chosen = [pair for pair in found if pair[0].lower().startswith(wanted)]
    for name in [part.strip() for part in tables.split(",")[:_COLUMNS_OF_MAX] if part.strip()]:
        full = name if "." in name else f"{database}.{name}"
        columns = _columns(store, account, *full.split(".", 1))
        chosen += [(each, "column") for each in columns if each.lower().startswith(rest)]
    unique = list(dict.fromkeys(chosen))[:_NAMES_MAX]
    return {"names": [{"name": name, "kind": kind} for name, kind in unique]}


def _columns(store: Store, account: Account, database: str, table: str) -> list[str]:
    if not database or not account.may("SELECT", database, table):
        return []
    try:
        return list(store.table(f"{database}.{table}").schema.names)
    except NotFoundError:
        return []
