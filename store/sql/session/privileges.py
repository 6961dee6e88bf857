"""Which privilege a statement needs, told by its first words, so that a new statement cannot forget it.

Reading tables is checked where a query opens them, database by database; everything else before it runs.
"""

from __future__ import annotations

from typing import Final

from seqstore.store.catalog.accounts import ALL_DATABASES, Accounts
from seqstore.store.sql.parse.load_jobs import LoadLabel
from seqstore.store.sql.parse.statement_values import CreateDatabase, DropDatabase, TableName

_ANYBODY: Final = ("USE", "SET", "SHOW", "EXPLAIN", "BEGIN", "START", "COMMIT", "ROLLBACK", "UNSET", "SELECT",
                   "WITH", "(", "HELP")  # fmt: skip
_NEEDED: Final[dict[str, str]] = {
    **dict.fromkeys(_ANYBODY, ""),
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE", "LOAD", "TRUNCATE", "CANCEL"), "LOAD"),
    **dict.fromkeys(("PAUSE", "RESUME", "STOP"), "LOAD"),
    **dict.fromkeys(("CREATE", "ALTER", "DROP", "OPTIMIZE", "VACUUM", "REORG", "RESTORE"), "ALTER"),
    **dict.fromkeys(("DESC", "DESCRIBE", "SHOW CREATE"), "SELECT"),
    "SET PASSWORD": "",  # of others: checked where the user is known
    "SET GLOBAL": "ADMIN",
    "CREATE USER": "ADMIN",
    "ALTER USER": "ADMIN",
    "DROP USER": "ADMIN",
    "CREATE ROUTINE": "LOAD",
    "ALTER ROUTINE": "LOAD",
}


def needed(first: str, second: str) -> str:
    """The privilege for a statement with these first words, empty when anybody may; ADMIN where unsure."""
    both = _NEEDED.get(f"{first} {second}")
    return both if both is not None else _NEEDED.get(first, "ADMIN")


def _database_of(statement: object, current: str | None) -> str | None:
    if isinstance(statement, (CreateDatabase, DropDatabase)):
        return statement.name
    if isinstance(statement, LoadLabel) and statement.database:
        return statement.database
    return current


def check(accounts: Accounts, user: str, privilege: str, statement: object, database: str | None) -> None:
    """Checks a privilege on the database a statement names, else on the current one.

    Raises:
        AccessDeniedError: the user does not hold it.
    """
    for named in (getattr(statement, "table", None), getattr(statement, "job", None)):
        if isinstance(named, TableName) and named.database:
            database = named.database
            break
    else:
        database = _database_of(statement, database)
    if privilege == "ADMIN" or database is None:
        database = ALL_DATABASES
    accounts.require(user, privilege, database)
