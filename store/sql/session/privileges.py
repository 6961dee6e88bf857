"""The privilege that a statement needs, found by its first words, so that no new statement can lack one.

Queries check SELECT for each table that they open; other privileges are checked before the statement runs.
A name that a user may not see reads as one that does not exist: either the privilege is checked before the
name is looked up, or the error has the text of an unknown name.
"""

from __future__ import annotations

from typing import Final

from seqstore.store.catalog.accounts import ALL_DATABASES, Accounts
from seqstore.store.errors import NotFoundError
from seqstore.store.sql.parse.statement_values import (
    CreateDatabase,
    DropDatabase,
    SetVariables,
    ShowCreateDatabase,
    TableName,
    UseDatabase,
)

SYSTEM_DATABASE: Final = "information_schema"
_PUBLIC: Final = ("USE", "SET", "SHOW", "EXPLAIN", "BEGIN", "START", "COMMIT", "ROLLBACK", "UNSET", "SELECT",
                  "WITH", "(", "HELP", "LOCK", "UNLOCK")  # fmt: skip
_NEEDED: Final[dict[str, str]] = {
    **dict.fromkeys(_PUBLIC, ""),
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE", "LOAD", "TRUNCATE", "CANCEL"), "LOAD"),
    **dict.fromkeys(("PAUSE", "RESUME", "STOP"), "LOAD"),
    **dict.fromkeys(("CREATE", "ALTER", "DROP", "OPTIMIZE", "VACUUM", "REORG", "RESTORE"), "ALTER"),
    **dict.fromkeys(("DESC", "DESCRIBE", "SHOW CREATE"), "SELECT"),
    **dict.fromkeys(("SHOW LOAD", "SHOW STREAM", "SHOW ROUTINE", "SHOW TRANSACTION"), "LOAD"),
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
        AccessDeniedError: the user does not hold it. The database may be one that does not exist.
        NotFoundError: the statement needs no privilege, and the user sees nothing of the database.
    """
    privilege, databases = _needed(start, statement), _named(statement, current)
    if not privilege:
        for database in databases:
            require_visible(accounts, user, database)
        return
    source = getattr(statement, "source", None)
    if isinstance(source, TableName):  # CREATE TABLE .. LIKE source
        accounts.require(user, "SELECT", source.database or current or ALL_DATABASES)
    database = ALL_DATABASES if privilege == "ADMIN" or not databases else databases[0]
    if privilege != "SELECT" or database.lower() != SYSTEM_DATABASE:
        accounts.require(user, privilege, database)


def _named(statement: object, current: str | None) -> list[str]:
    """Returns the databases of a statement; a name without one belongs to the current database."""
    found: list[str | None] = []
    if isinstance(statement, (CreateDatabase, DropDatabase, UseDatabase, ShowCreateDatabase)):
        found.append(statement.name)
    if hasattr(statement, "database"):
        found.append(statement.database)
    for field in ("table", "job"):
        name = getattr(statement, field, None)
        if isinstance(name, TableName):
            found.append(name.database)
    if not found:
        found.append(None)
    return [name for name in (each or current for each in found) if name is not None]


def require_visible(accounts: Accounts, user: str, database: str) -> None:
    """Checks that a user holds any privilege on a database.

    Raises:
        NotFoundError: it does not, with the text for a database that does not exist.
    """
    if database.lower() == SYSTEM_DATABASE:
        return
    account = accounts.find(user)
    if account is None or not account.sees(database):
        raise NotFoundError(f"Unknown database '{database}'", kind="unknown_database", database=database)
