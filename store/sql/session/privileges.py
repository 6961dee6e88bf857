"""The privilege that a statement needs, found by its first words, so that no new statement can lack one.

Queries check SELECT for each table that they open; other privileges are checked before the statement runs.
A name that a user may not see reads as one that does not exist: either the privilege is checked before the
name is looked up, or the error has the text of an unknown name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.catalog.access.grants import ALL_DATABASES
from seqstore.store.catalog.accounts import Accounts
from seqstore.store.errors import NotFoundError
from seqstore.store.sql.parse import load_jobs
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
                  "WITH", "(", "DO", "HELP", "LOCK", "UNLOCK", "SAVEPOINT", "RELEASE")  # fmt: skip
_NEEDED: Final[dict[str, str]] = {
    **dict.fromkeys(_PUBLIC, ""),
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE", "LOAD", "TRUNCATE", "CANCEL"), "LOAD"),
    **dict.fromkeys(("PAUSE", "RESUME", "STOP"), "LOAD"),
    **dict.fromkeys(("ALTER", "OPTIMIZE", "VACUUM", "RENAME", "REORG", "RESTORE"), "ALTER"),
    "CANCEL ALTER": "ALTER",
    "CREATE": "CREATE",
    "DROP": "DROP",
    **dict.fromkeys(("DESC", "DESCRIBE", "SHOW CREATE"), "SELECT"),
    **dict.fromkeys(("SHOW LOAD", "SHOW STREAM", "SHOW ROUTINE", "SHOW TRANSACTION"), "LOAD"),
    "KILL": "",  # processes of other users are checked when it runs
    "SET PASSWORD": "",  # of other users: checked when it runs
    **dict.fromkeys(("GRANT", "REVOKE"), ""),  # the privileges that are granted: checked when it runs
    "SET GLOBAL": "ADMIN",
    **dict.fromkeys(("SHOW ALTER", "CANCEL ALTER"), "ALTER"),  # messages name values
    **dict.fromkeys((f"{verb} {noun}" for verb in ("CREATE", "ALTER", "DROP")
                     for noun in ("USER", "ROLE", "WORKLOAD")), "ADMIN"),
    **dict.fromkeys(("SHOW ROLES", "SET PROPERTY"), "ADMIN"),
    # Doris asks for LOAD, and for ADMIN to make the repository. Here the statement names the place itself: a
    # path of the server, or what the server's credentials open.
    **dict.fromkeys(("BACKUP SNAPSHOT", "RESTORE SNAPSHOT", "SHOW SNAPSHOT"), "ADMIN"),
    "SHOW SHIPPING": "ADMIN",  # names places and hosts
    **dict.fromkeys(("SELECT INTO", "EXPORT TABLE", "CANCEL EXPORT"), "ADMIN"),
    "SHOW EXPORT": "SELECT",
    **dict.fromkeys(("SHOW BACKUP", "SHOW RESTORE", "SHOW BRIEF", "CANCEL BACKUP", "CANCEL RESTORE"), "LOAD"),
    "CREATE ROUTINE": "LOAD",
    "ALTER ROUTINE": "LOAD",
}  # fmt: skip
# LOAD on a table of the database is enough for these to begin: they leave out what belongs to other tables.
_BY_TABLE: Final = (
    load_jobs.ShowLoad,
    load_jobs.CancelLoad,
    load_jobs.AlterRoutineLoad,
    load_jobs.ControlRoutineLoad,
    load_jobs.ShowRoutineLoad,
)


@dataclass(frozen=True)
class _Need:
    """A privilege on a database or, with a name, on one of its tables; `within`: on any table is enough."""

    privilege: str
    database: str
    table: str = ""
    within: bool = False


def _needed(start: str, statement: object) -> str:
    """Returns the privilege for a statement, empty for none; unknown words need ADMIN."""
    if isinstance(statement, SetVariables) and any(a.scope == "global" for a in statement.assignments):
        return "ADMIN"
    first, _, rest = start.partition(" ")
    both = _NEEDED.get(f"{first} {rest.partition(' ')[0]}")
    return both if both is not None else _NEEDED.get(first, "ADMIN")


def check(accounts: Accounts, user: str, start: str, statement: object, current: str | None) -> None:
    """Checks the privileges for a statement on what it names, else on the current database.

    Args:
        start: the first words of the statement's kind.

    Raises:
        AccessDeniedError: the user does not hold one. The database may be one that does not exist.
        NotFoundError: the statement needs no privilege, and the user sees nothing of what it names.
    """
    privilege = _needed(start, statement)
    if privilege == "ADMIN":
        accounts.require(user, "ADMIN")
        return
    if not privilege:
        for database, table in _named(statement, current):
            require_visible(accounts, user, database, table)
        return
    if start == "SHOW CREATE VIEW" and _shows_view(accounts, user, statement, current):
        return
    for need in _needs(privilege, statement, current):
        if need.privilege != "SELECT" or need.database.lower() != SYSTEM_DATABASE:
            accounts.require(user, need.privilege, need.database, need.table, within=need.within)


def _shows_view(accounts: Accounts, user: str, statement: object, current: str | None) -> bool:
    account = accounts.find(user)
    named = _named(statement, current)
    return account is not None and all(account.may("SHOW_VIEW", *each) for each in named) and bool(named)


def _needs(privilege: str, statement: object, current: str | None) -> list[_Need]:
    """Returns the privileges that a statement needs, that for its source first."""
    found: list[_Need] = []
    source = getattr(statement, "source", None)
    if isinstance(source, TableName):  # CREATE TABLE .. LIKE source
        found.append(_Need("SELECT", source.database or current or ALL_DATABASES, source.name))
    named = _named(statement, current) or [(ALL_DATABASES, "")]
    database = named[0][0]
    if isinstance(statement, load_jobs.LoadLabel):
        tables = [each.table for each in statement.descriptions]
        needed = (privilege, *_evolving(statement))
        return [
            *(_Need(each, database, table) for table in tables for each in needed),
            *_creating(statement, database),
        ]
    if isinstance(statement, load_jobs.CreateRoutineLoad):
        needed = (privilege, *_evolving(statement))
        creates = _creating(statement, database)
        return [*(_Need(each, database, statement.table or "") for each in needed), *creates]
    by_table = isinstance(statement, _BY_TABLE) or getattr(statement, "is_listed_by_table", False)
    found.append(_Need(privilege, *named[0], within=by_table))
    # A table takes the name, or the place, of another one.
    found += [
        _Need(privilege, name.database or current or ALL_DATABASES, name.name)
        if isinstance(name, TableName)
        else _Need(privilege, database, name)
        for name in getattr(statement, "other_tables", ())
    ]
    found += [_Need(each, *named[0]) for each in getattr(statement, "more_privileges", ())]
    return found


def _evolving(statement: load_jobs.LoadLabel | load_jobs.CreateRoutineLoad) -> list[str]:
    """Returns the privilege of a load that may change its tables' schemas."""
    return ["ALTER"] if _is_set(statement, "schema_evolution") else []


def _creating(statement: load_jobs.LoadLabel | load_jobs.CreateRoutineLoad, database: str) -> list[_Need]:
    """Returns the privilege of a load that may make its tables."""
    return [_Need("CREATE", database)] if _is_set(statement, "auto_create") else []


def _is_set(statement: load_jobs.LoadLabel | load_jobs.CreateRoutineLoad, name: str) -> bool:
    """Returns whether a load, or one of its descriptions, has a property that is not off."""
    parts = [statement, *getattr(statement, "descriptions", ())]
    given = [each for part in parts for each in getattr(part, "properties", {}).items()]
    values = {value.strip().lower() for key, value in given if key.strip().lower() == name}
    return bool(values - {"", "off", "false"})


def _named(statement: object, current: str | None) -> list[tuple[str, str]]:
    """Returns databases and tables of a statement; the current database completes names."""
    found: list[tuple[str | None, str]] = []
    if isinstance(statement, (CreateDatabase, DropDatabase, UseDatabase, ShowCreateDatabase)):
        found.append((statement.name, ""))
    if hasattr(statement, "database"):
        found.append((statement.database, ""))
    table, job = getattr(statement, "table", None), getattr(statement, "job", None)
    if isinstance(table, TableName):
        found.append((table.database, table.name))
    if isinstance(job, TableName):
        found.append((job.database, ""))
    if not found:
        found.append((None, ""))
    return [(database or current or "", name) for database, name in found if database or current]


def require_visible(accounts: Accounts, user: str, database: str, table: str = "") -> None:
    """Checks that a user holds any privilege on a database, or on its table.

    Raises:
        NotFoundError: it does not, with the text for a database or a table that does not exist.
    """
    if database.lower() == SYSTEM_DATABASE:
        return
    account = accounts.find(user)
    if account is None or not account.sees(database):
        raise NotFoundError(f"Unknown database '{database}'", kind="unknown_database", database=database)
    if table and not account.sees_table(database, table):
        name = f"{database}.{table}"
        raise NotFoundError(f"Unknown table '{name}'", kind="unknown_table", table=name)
