"""Privileges and the scopes on which they are granted: names and rules are those of Doris.

| privilege | allows |
| --- | --- |
| ADMIN | everything, on all databases also users, roles and settings |
| GRANT | granting and revoking the privileges that the user holds itself |
| SELECT | reading tables and views |
| LOAD | writing rows |
| ALTER | changing tables and views |
| CREATE | creating databases, tables and views |
| DROP | dropping them |
| SHOW_VIEW | SHOW CREATE VIEW without SELECT |

A scope is `*` for all databases, `db` for one, or `db.table` for one table or view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from seqstore.store.errors import InvalidInputError, NotFoundError

ALL_DATABASES: Final = "*"
PRIVILEGES: Final = ("ADMIN", "ALTER", "CREATE", "DROP", "GRANT", "LOAD", "SELECT", "SHOW_VIEW")
_GROUPS: Final = {
    "ALL": ("ALTER", "CREATE", "DROP", "LOAD", "SELECT"),
    "READ_ONLY": ("SELECT",),
    "READ_WRITE": ("LOAD", "SELECT"),
}
_SAME: Final = {"INSERT": "LOAD", "UPDATE": "LOAD", "DELETE": "LOAD", "SHOW VIEW": "SHOW_VIEW"}
_MISSING: Final = {
    "NODE": "there are no nodes to add or drop; every administrator holds ADMIN",
    "USAGE": "privileges are not granted on resources or workload groups",
    "CLUSTER_USAGE": "compute groups, on which it is granted, do not exist",
    "STAGE_USAGE": "stages, on which it is granted, do not exist",
}
_INCLUDED_BEFORE: Final = ("CREATE", "DROP")  # in the ALTER of records without roles

Grants = dict[str, tuple[str, ...]]  # privileges by scope


def scope_of(database: str, table: str = "") -> str:
    """Returns the scope of a database or of one of its tables."""
    return f"{database}.{table}" if table else database


def shown_scope(scope: str) -> str:
    """Returns a scope as statements write it."""
    return "*.*" if scope == ALL_DATABASES else scope if "." in scope else f"{scope}.*"


def holds(grants: Mapping[str, tuple[str, ...]], privilege: str, database: str, table: str = "") -> bool:
    """Returns whether grants allow something on a database, or on one of its tables.

    GRANT is included in the ADMIN of all databases only: else the administrator of one could grant it.
    """
    everywhere = grants.get(ALL_DATABASES, ())
    held = {*everywhere, *grants.get(database, ())}
    if table:
        held.update(grants.get(scope_of(database, table), ()))
    return privilege in held or "ADMIN" in (everywhere if privilege == "GRANT" else held)


def holds_within(grants: Mapping[str, tuple[str, ...]], privilege: str, database: str) -> bool:
    """Returns whether grants allow something on a database or on any of its tables."""
    if holds(grants, privilege, database):
        return True
    start = f"{database}."
    tables = [held for scope, held in grants.items() if scope.startswith(start)]
    return any(privilege in held or ("ADMIN" in held and privilege != "GRANT") for held in tables)


def merged(several: Iterable[Mapping[str, tuple[str, ...]]]) -> Grants:
    """Returns what several grants allow together."""
    found: dict[str, set[str]] = {}
    for grants in several:
        for scope, held in grants.items():
            found.setdefault(scope, set()).update(held)
    return {scope: tuple(sorted(held)) for scope, held in found.items()}


def with_grant(grants: Grants, scope: str, wanted: Iterable[str]) -> Grants:
    """Returns grants with more privileges on a scope."""
    return {**grants, scope: tuple(sorted({*grants.get(scope, ()), *wanted}))}


def without_grant(grants: Grants, scope: str, unwanted: tuple[str, ...], owner: str) -> Grants:
    """Returns grants without some privileges, which must have been granted on exactly this scope.

    Raises:
        NotFoundError: the owner does not hold one there.
    """
    held = grants.get(scope, ())
    missing = [privilege for privilege in unwanted if privilege not in held]
    if missing:
        raise NotFoundError(
            f"{owner} holds no {', '.join(missing)} on {shown_scope(scope)}; see SHOW GRANTS",
            kind="unknown_grant",
        )
    left = {**grants, scope: tuple(privilege for privilege in held if privilege not in unwanted)}
    return {each: kept for each, kept in left.items() if kept}


def check_privileges(privileges: Iterable[str]) -> tuple[str, ...]:
    """Returns privileges as stored, of names such as `SELECT_PRIV`, `SELECT`, `INSERT` or `ALL`.

    Raises:
        InvalidInputError: an unknown name, or a privilege on things that do not exist here.
    """
    wanted: set[str] = set()
    for given in privileges:
        name = given.strip().upper().removesuffix("_PRIV")
        name = _SAME.get(name, name)
        if name in _GROUPS:
            wanted.update(_GROUPS[name])
        elif name in PRIVILEGES:
            wanted.add(name)
        else:
            reason = _MISSING.get(name)
            raise InvalidInputError(
                f"{'the' if reason else 'unknown'} privilege {given!r}"
                f"{f' cannot be granted: {reason}' if reason else ''}; expected "
                f"{', '.join(f'{p}_PRIV' for p in PRIVILEGES)} or ALL",
                kind="bad_privilege",
            )
    return tuple(sorted(wanted))


def read_grants(stored: Mapping[str, list[str]], *, has_parts: bool) -> Grants:
    """Returns stored grants.

    Args:
        has_parts: ALTER is stored apart from CREATE and DROP; earlier versions stored ALTER for all three.
    """
    if has_parts:
        return {scope: tuple(held) for scope, held in stored.items()}
    return {
        scope: tuple(sorted({*held, *_INCLUDED_BEFORE})) if "ALTER" in held else tuple(held)
        for scope, held in stored.items()
    }
