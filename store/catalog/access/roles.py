"""Roles: named sets of privileges. Users always hold the privileges of all their roles, as in Doris.

The role `admin` always exists, holds ADMIN on all databases, and does not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from seqstore.store.catalog.access.grants import (
    ALL_DATABASES,
    Grants,
    check_privileges,
    merged,
    read_grants,
    with_grant,
    without_grant,
)
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from seqstore.store.runtime.internal import internal

ADMIN_ROLE: Final = "admin"
_RESERVED: Final = (ADMIN_ROLE, "operator")  # Doris's own
_NAME_BYTES_MAX: Final = 64


@dataclass(frozen=True)
class Role:
    """One role; `grants` are privileges by scope."""

    name: str
    grants: Grants = field(default_factory=dict)
    comment: str = ""

    def to_record(self) -> dict[str, Any]:
        """Returns the catalog record; `from_record` reads it."""
        return {"grants": self.grants, "comment": self.comment}

    @classmethod
    def from_record(cls, name: str, record: dict[str, Any]) -> Role:
        """Reads a record of `to_record`."""
        return cls(name, read_grants(record["grants"], has_parts=True), record["comment"])


class Roles:
    """The roles of one store. Threads may share it; every result reflects the current catalog."""

    @internal
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def all(self) -> list[Role]:
        """Returns all roles by name."""
        with self._catalog.read() as tx:
            found = [Role.from_record(key.decode(), record) for key, record in tx.records("roles")]
        return sorted([_ADMIN, *found], key=lambda role: role.name)

    def find(self, name: str) -> Role | None:
        """Returns one role, None when there is none of that name."""
        with self._catalog.read() as tx:
            return find_role(tx, name)

    def create(self, name: str, comment: str = "", *, if_not_exists: bool = False) -> None:
        """Creates a role without privileges.

        Raises:
            AlreadyExistsError: the role exists, and `if_not_exists` is False.
            InvalidInputError: the name is empty, too long, reserved or not printable.
        """
        printable = bool(name) and all(c.isprintable() and not c.isspace() for c in name)
        if not printable or ":" in name or len(name.encode()) > _NAME_BYTES_MAX:
            raise InvalidInputError(
                f"role name {name[:80]!r}: expected 1 to {_NAME_BYTES_MAX} bytes of printable text "
                "without blanks and ':'",
                kind="bad_role",
            )
        with self._catalog.write() as tx:
            if find_role(tx, name) is None:
                _check_own(name)
                _put(tx, Role(name, comment=comment))
            elif not if_not_exists:
                raise AlreadyExistsError(f"Role '{name}' already exists", kind="role_exists", role=name)

    def set_comment(self, name: str, comment: str) -> None:
        """Replaces the comment of a role.

        Raises:
            NotFoundError: no such role.
            InvalidInputError: it is one that does not change.
        """
        with self._catalog.write() as tx:
            _put(tx, replace(_require_own(tx, name), comment=comment))

    def drop(self, name: str, *, if_exists: bool = False) -> None:
        """Removes a role, and takes it from all users that have it.

        Raises:
            NotFoundError: no such role, and `if_exists` is False.
            InvalidInputError: it is one that does not change.
        """
        with self._catalog.write() as tx:
            if if_exists and find_role(tx, name) is None:
                return
            tx.delete("roles", _require_own(tx, name).name.encode())
            for key, record in list(tx.records("users")):
                if name in record.get("roles", ()):
                    left = [each for each in record["roles"] if each != name]
                    tx.put("users", key, {**record, "roles": left})

    def grant(self, name: str, privileges: Iterable[str], scope: str = ALL_DATABASES) -> None:
        """Grants privileges to a role.

        Raises:
            NotFoundError: no such role.
            InvalidInputError: a privilege is unknown, or the role does not change.
        """
        wanted = check_privileges(privileges)
        with self._catalog.write() as tx:
            role = _require_own(tx, name)
            _put(tx, replace(role, grants=with_grant(role.grants, scope, wanted)))

    def revoke(self, name: str, privileges: Iterable[str], scope: str = ALL_DATABASES) -> None:
        """Revokes privileges that were granted to a role on exactly this scope.

        Raises:
            NotFoundError: no such role, or it does not hold them there.
            InvalidInputError: a privilege is unknown, or the role does not change.
        """
        unwanted = check_privileges(privileges)
        with self._catalog.write() as tx:
            role = _require_own(tx, name)
            left = without_grant(role.grants, scope, unwanted, f"role '{name}'")
            _put(tx, replace(role, grants=left))


_ADMIN: Final = Role(ADMIN_ROLE, {ALL_DATABASES: ("ADMIN",)}, "built-in, all privileges")


@internal
def find_role(tx: CatalogTransaction, name: str) -> Role | None:
    """Returns one role, None when there is none of that name."""
    if name == ADMIN_ROLE:
        return _ADMIN
    record = tx.get("roles", name.encode()) if 0 < len(name.encode()) <= _NAME_BYTES_MAX else None
    return None if record is None else Role.from_record(name, record)


@internal
def require_role(tx: CatalogTransaction, name: str) -> Role:
    """Returns one role.

    Raises:
        NotFoundError: there is none of that name.
    """
    role = find_role(tx, name)
    if role is None:
        raise NotFoundError(f"Unknown role '{name}'", kind="unknown_role", role=name)
    return role


@internal
def grants_of_roles(tx: CatalogTransaction, names: Iterable[str]) -> Grants:
    """Returns what several roles allow together."""
    roles = (find_role(tx, name) for name in names)
    return merged(role.grants for role in roles if role is not None)


def _require_own(tx: CatalogTransaction, name: str) -> Role:
    _check_own(name)
    return require_role(tx, name)


def _check_own(name: str) -> None:
    if name in _RESERVED:
        raise InvalidInputError(f"role '{name}' is built in; it cannot be changed", kind="bad_role")


def _put(tx: CatalogTransaction, role: Role) -> None:
    tx.put("roles", role.name.encode(), role.to_record())
