"""The privilege that a statement needs, found by its first words, so that no new statement can lack one.

Queries check SELECT for each table that they open; other privileges are checked before the statement runs.
"""

from __future__ import annotations

from typing import Final

from seqstore.store.catalog.accounts import ALL_DATABASES, Accounts
from seqstore.store.sql.parse.load_jobs import CancelLoad, LoadLabel
from seqstore.store.sql.parse.statement_values import CreateDatabase, DropDatabase, SetVariables, TableName

_PUBLIC: Final = ("USE", "SET", "SHOW", "EXPLAIN", "BEGIN", "START", "COMMIT", "ROLLBACK", "UNSET", "SELECT",
                  "WITH", "(", "HELP")  # fmt: skip
_NEEDED: Final[dict[str, str]] = {
    **dict.fromkeys(_PUBLIC, ""),
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE", "LOAD", "TRUNCATE", "CANCEL"), "LOAD"),
    **dict.fromkeys(("PAUSE", "RESUME", "STOP"), "LOAD"),
    **dict.fromkeys(("CREATE", "ALTER", "DROP", "OPTIMIZE", "VACUUM", "REORG", "RESTORE"), "ALTER"),
    **dict.fromkeys(("DESC", "DESCRIBE", "SHOW CREATE"), "SELECT"),
    "KILL": "",  # processes of other users are checked when it runs
    "SET PASSWORD": "",  # of other users: checked when it runs
    "SET GLOBAL": "ADMIN",
    "CREATE USER": "ADMIN",
    "ALTER USER": "ADMIN",
    "DROP USER": "ADMIN",
    "CREATE ROUTINE": "LOAD",
    "ALTER ROUTINE": "LOAD",
}


def _needed(start: str, statement: object) -> str:
    """Returns the privilege for a statement, empty for none; unknown words need ADMIN."""
    if isinstance(statement, SetVariables) and any(a.scope == "global" for a in statement.assignments):
        return "ADMIN"
    first, _, rest = start.partition(" ")
    both = _NEEDED.get(f"{first} {rest.partition(' ')[0]}")
    return both if both is not None else _NEEDED.get(first, "ADMIN")


def check(accounts: Accounts, user: str, start: str, statement: object, current: str | None) -> None:
    """Checks the privilege for a statement on the database that it names, else on the current one.

    Args:
        start: the first words of the statement's kind.

    Raises:
        AccessDeniedError: the user does not hold it.
    """
    privilege = _needed(start, statement)
    if not privilege:
        return
    named = (getattr(statement, "table", None), getattr(statement, "job", None))
    databases = [name.database for name in named if isinstance(name, TableName)]
    if isinstance(statement, (CreateDatabase, DropDatabase)):
        databases.append(statement.name)
    if isinstance(statement, (LoadLabel, CancelLoad)):
        databases.append(statement.database)
    database = next(filter(None, databases), current)
    accounts.require(user, privilege, ALL_DATABASES if privilege == "ADMIN" or database is None else database)
