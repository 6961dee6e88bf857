"""Users, their passwords and their privileges; one record for each user in the catalog.

A password is stored as two hashes, never as text: scrypt for clients that send the password (HTTP Basic), and
SHA1(SHA1(password)), with which MySQL's `mysql_native_password` checks a scramble. An empty password is
stored as no hash at all.

Privileges are granted to users and to their roles (`catalog.access`). A user at a host other than `%` is a
user of its own, whose name holds the host. `root` always exists: until its record exists, with an empty
password and ADMIN on all databases.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final

from seqstore.store.catalog.access.grants import (
    ALL_DATABASES,
    PRIVILEGES,
    Grants,
    check_privileges,
    holds,
    holds_within,
    merged,
    read_grants,
    with_grant,
    without_grant,
)
from seqstore.store.catalog.access.roles import Roles, grants_of_roles, require_role
from seqstore.store.catalog.access.user_hosts import (
    ANY_HOST,
    HOST_BYTES_MAX,
    check_host,
    name_at,
    plain_user,
    quoted_user,
    rank_of,
    user_and_host,
)
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.workload_groups import USER_PREFIX
from seqstore.store.errors import AccessDeniedError, AlreadyExistsError, InvalidInputError, NotFoundError
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.internal import internal

ROOT: Final = "root"
_LOOPBACK: Final = "127.0.0.1"
_NOT_STORED: Final = ("name", "inherited")  # the key, and what records of roles hold
_NAME_BYTES_MAX: Final = 64
_KEY_BYTES_MAX: Final = _NAME_BYTES_MAX + HOST_BYTES_MAX + 1
_PASSWORD_BYTES_MAX: Final = 1024
_SCRYPT: Final = {"n": 1 << 14, "r": 8, "p": 1, "dklen": 32}  # 16 MiB and some 40 ms per attempt
_SALT_BYTES: Final = 16
_KNOWN_MAX: Final = 1024


@dataclass(frozen=True)
class Account:
    """One user.

    Attributes:
        name: in the catalog: the user, and the host unless it is `%`.
        salt, slow_hash: scrypt of the password; empty for the empty password.
        mysql_hash: SHA1(SHA1(password)); empty for the empty password.
        grants: privileges by scope.
        roles: names of roles.
        inherited: the privileges of the roles, which their records hold.
    """

    name: str
    salt: bytes = b""
    slow_hash: bytes = b""
    mysql_hash: bytes = b""
    grants: Grants = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    inherited: Grants = field(default_factory=dict)

    @property
    def has_password(self) -> bool:
        """Whether the user must send a password."""
        return bool(self.slow_hash)

    @cached_property
    def effective(self) -> Grants:
        """The privileges of the user and of its roles."""
        return merged((self.grants, self.inherited)) if self.inherited else self.grants

    def may(self, privilege: str, database: str = ALL_DATABASES, table: str = "") -> bool:
        """Returns whether the user holds a privilege on a database or table; with `*`, on all databases."""
        return holds(self.effective, privilege, database, table)

    def may_within(self, privilege: str, database: str) -> bool:
        """Returns whether the user holds a privilege on a database or on any of its tables."""
        return holds_within(self.effective, privilege, database)

    def sees(self, database: str) -> bool:
        """Returns whether the user holds any privilege within a database; else it does not exist for it."""
        grants = self.effective
        return any(holds_within(grants, privilege, database) for privilege in PRIVILEGES)

    def sees_table(self, database: str, table: str) -> bool:
        """Returns whether the user holds any privilege on a table; others do not exist for the user."""
        grants = self.effective
        return any(holds(grants, privilege, database, table) for privilege in PRIVILEGES)

    def to_record(self) -> dict[str, Any]:
        """Returns the catalog record; `from_record` reads it."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_STORED}

    @classmethod
    def from_record(cls, name: str, record: dict[str, Any], inherited: Grants) -> Account:
        """Reads a record of `to_record`; those of earlier versions have no roles."""
        grants = read_grants(record["grants"], has_parts="roles" in record)
        roles = tuple(record.get("roles", ()))
        return cls(name, **{**record, "grants": grants, "roles": roles}, inherited=inherited)


class Accounts:
    """The users of one store. Threads may share it; every result reflects the current catalog.

    Attributes:
        roles: of the same store.
    """

    @internal
    def __init__(self, catalog: Catalog) -> None:
        self.roles = Roles(catalog)
        self._catalog = catalog
        self._one_at_a_time = new_lock()  # scrypt uses much memory: many at once would exhaust it
        self._pepper = os.urandom(_SALT_BYTES)
        self._known: dict[str, tuple[bytes, bytes]] = {}

    def names(self) -> list[str]:
        """Returns the names of all users in the catalog, sorted."""
        with self._catalog.read() as tx:
            return sorted({ROOT, *(key.decode() for key, _ in tx.items("users"))})

    def find(self, name: str) -> Account | None:
        """Returns one user by its name in the catalog, None when there is none."""
        return self._catalog.recall((Account, name), lambda tx: _find(tx, name))

    def at(self, user: str, address: str) -> Account | None:
        """Returns the user that a client of an address logs in as: that of the most specific host."""
        try:
            key = user.encode()
        except UnicodeEncodeError:
            return None
        if ":" in user or not 0 < len(key) <= _NAME_BYTES_MAX:
            return None
        with self._catalog.read() as tx:
            found = [(rank, name) for name in _at_hosts(tx, key)
                     if (rank := rank_of(user_and_host(name)[1], address)) is not None]  # fmt: skip
            return _find(tx, max(found)[1] if found else user)

    def create(
        self,
        name: str,
        password: str = "",
        *,
        host: str = ANY_HOST,
        roles: Iterable[str] = (),
        if_not_exists: bool = False,
    ) -> None:
        """Creates a user without privileges, but for those of its roles.

        Raises:
            AlreadyExistsError: the user exists, and `if_not_exists` is False.
            NotFoundError: no such role.
            InvalidInputError: the name or the password is too long, the name is empty, or no host can be so.
        """
        printable = bool(name) and all(c.isprintable() and not c.isspace() for c in name)
        if not printable or ":" in name or len(name.encode()) > _NAME_BYTES_MAX:
            raise InvalidInputError(
                f"user name {name[:80]!r}: expected 1 to {_NAME_BYTES_MAX} bytes of printable text "
                "without blanks and ':'",
                kind="bad_user",
            )
        full = name_at(name, check_host(host))
        account = _with_password(Account(full, roles=tuple(dict.fromkeys(roles))), password)
        with self._catalog.write() as tx:
            if _find(tx, full) is None:
                for role in account.roles:
                    require_role(tx, role)
                _put(tx, account)
            elif not if_not_exists:
                raise AlreadyExistsError(f"User '{plain_user(full)}' already exists", kind="user_exists",
                                         user=full)  # fmt: skip

    def drop(self, name: str, *, if_exists: bool = False) -> None:
        """Removes a user; its open sessions continue until they need a privilege.

        Raises:
            NotFoundError: no such user, and `if_exists` is False.
            InvalidInputError: it is root.
        """
        if name == ROOT:
            raise InvalidInputError(
                "user 'root' cannot be dropped; set a password for it instead", kind="bad_user"
            )
        with self._catalog.write() as tx:
            if not if_exists or _find(tx, name) is not None:
                tx.delete("users", _require(tx, name).name.encode())
                tx.delete("config", USER_PREFIX + name.encode())

    def set_password(self, name: str, password: str) -> None:
        """Replaces the password of a user.

        Raises:
            NotFoundError: no such user.
        """
        hashed = _with_password(Account(name), password)
        with self._catalog.write() as tx:
            found = _require(tx, name)
            _put(tx, replace(hashed, grants=found.grants, roles=found.roles))

    def grant(self, name: str, privileges: Iterable[str], scope: str = ALL_DATABASES) -> None:
        """Grants privileges on all databases, on one, or on one table `db.table`.

        Raises:
            NotFoundError: no such user.
            InvalidInputError: a privilege is not one of `PRIVILEGES` (`LOAD_PRIV` and the like are accepted).
        """
        wanted = check_privileges(privileges)
        with self._catalog.write() as tx:
            account = _require(tx, name)
            _put(tx, replace(account, grants=with_grant(account.grants, scope, wanted)))

    def revoke(self, name: str, privileges: Iterable[str], scope: str = ALL_DATABASES) -> None:
        """Revokes privileges that were granted on exactly this scope.

        Raises:
            NotFoundError: no such user, or it does not hold them there.
            InvalidInputError: a privilege is unknown, or root would lose ADMIN on all.
        """
        unwanted = check_privileges(privileges)
        if name == ROOT and scope == ALL_DATABASES and "ADMIN" in unwanted:
            raise InvalidInputError("user 'root' keeps ADMIN on all databases", kind="bad_user")
        with self._catalog.write() as tx:
            account = _require(tx, name)
            left = without_grant(account.grants, scope, unwanted, f"user '{plain_user(name)}'")
            _put(tx, replace(account, grants=left))

    def grant_roles(self, name: str, roles: Iterable[str]) -> None:
        """Gives roles to a user.

        Raises:
            NotFoundError: no such user or role.
        """
        with self._catalog.write() as tx:
            account = _require(tx, name)
            given = [require_role(tx, role).name for role in roles]
            _put(tx, replace(account, roles=tuple(dict.fromkeys((*account.roles, *given)))))

    def revoke_roles(self, name: str, roles: Iterable[str]) -> None:
        """Takes roles from a user.

        Raises:
            NotFoundError: no such user or role, or the user does not have it.
        """
        with self._catalog.write() as tx:
            account, taken = _require(tx, name), [require_role(tx, role).name for role in roles]
            missing = [role for role in taken if role not in account.roles]
            if missing:
                raise NotFoundError(
                    f"user '{plain_user(name)}' has no role {', '.join(missing)}; see SHOW GRANTS",
                    kind="unknown_grant",
                )
            _put(tx, replace(account, roles=tuple(each for each in account.roles if each not in taken)))

    # ------------------------------------------------------------------------------------------ checks

    def log_in(self, name: str, password: str, address: str = _LOOPBACK) -> Account:
        """Returns the user of that name and password, for a client of an address.

        Raises:
            AccessDeniedError: no such user, or another password; the message is the same for both.
        """
        account = self.at(name, address)
        if not self._matches(account, password):
            using = "YES" if password else "NO"
            raise AccessDeniedError(
                f"Access denied for user '{name[:_NAME_BYTES_MAX]}' (using password: {using})",
                kind="bad_password",
            )
        assert account is not None
        return account

    def known(self, name: str, password: str, address: str = _LOOPBACK) -> Account | None:
        """Returns the user if the password needs no slow comparison, since it matched before; else None."""
        account = self.at(name, address)
        if account is None:
            return None
        if not account.has_password:
            return account if not password else None
        return account if self._is_known(account, _secret(password)) else None

    def require(
        self,
        name: str,
        privilege: str,
        database: str = ALL_DATABASES,
        table: str = "",
        *,
        within: bool = False,
    ) -> None:
        """Checks a privilege as of now.

        Args:
            within: the privilege on any table of the database is enough.

        Raises:
            AccessDeniedError: the user does not hold it, or was dropped. The text depends on nothing stored.
        """
        account = self.find(name)
        if account is not None and (
            account.may_within(privilege, database) if within else account.may(privilege, database, table)
        ):
            return
        where = "all databases" if database == ALL_DATABASES else f"database '{database}'"
        if table:
            where += f" or on its table '{table}'"
        elif within:
            where += " or on a table of it"
        raise AccessDeniedError(
            f"Access denied; user '{plain_user(name)}' needs the {privilege} privilege on {where}: GRANT "
            f"{privilege}_PRIV",
            kind="no_privilege",
            user=name,
        )

    def _matches(self, account: Account | None, password: str) -> bool:
        """Compares with scrypt once, and later with the passwords that this process saw match before."""
        if account is not None and not account.has_password:
            return not password
        secret = _secret(password)
        if len(secret) > _PASSWORD_BYTES_MAX:
            return False
        if account is None:
            self._slowly(secret, b"nobody")  # so that the response time does not reveal users
            return False
        if self._is_known(account, secret):
            return True
        if not hmac.compare_digest(self._slowly(secret, account.salt), account.slow_hash):
            return False
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[account.name] = account.slow_hash, hmac.digest(self._pepper, secret, "sha256")
        return True

    def _is_known(self, account: Account, secret: bytes) -> bool:
        known_hash, known_secret = self._known.get(account.name, (b"", b""))
        seen = hmac.digest(self._pepper, secret, "sha256")
        return known_hash == account.slow_hash and hmac.compare_digest(known_secret, seen)

    def _slowly(self, secret: bytes, salt: bytes) -> bytes:
        with self._one_at_a_time:
            return _slow_hash(secret, salt)


def _secret(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")


def matches_scramble(account: Account, scramble: bytes, nonce: bytes) -> bool:
    """Runs MySQL's check: the scramble is SHA1(password) XOR SHA1(nonce + SHA1(SHA1(password)))."""
    if not account.has_password:
        return not scramble
    mask = hashlib.sha1(nonce + account.mysql_hash).digest()
    if len(scramble) != len(mask):
        return False
    once = bytes(a ^ b for a, b in zip(scramble, mask, strict=True))
    return hmac.compare_digest(hashlib.sha1(once).digest(), account.mysql_hash)


def matches_password(account: Account, password: bytes) -> bool:
    """Compares a password with that of a user, slowly."""
    if not account.has_password:
        return not password
    if len(password) > _PASSWORD_BYTES_MAX:
        return False
    return hmac.compare_digest(_slow_hash(password, account.salt), account.slow_hash)


def _with_password(account: Account, password: str) -> Account:
    secret, salt = password.encode(), _new_salt()
    if len(secret) > _PASSWORD_BYTES_MAX:
        raise InvalidInputError(f"a password has at most {_PASSWORD_BYTES_MAX} bytes", kind="bad_password")
    if not secret:
        return replace(account, salt=b"", slow_hash=b"", mysql_hash=b"")
    twice = hashlib.sha1(hashlib.sha1(secret).digest()).digest()
    return replace(account, salt=salt, slow_hash=_slow_hash(secret, salt), mysql_hash=twice)


def _new_salt() -> bytes:
    return os.urandom(_SALT_BYTES)


def _slow_hash(secret: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(secret, salt=salt, **_SCRYPT)


def _find(tx: CatalogTransaction, name: str) -> Account | None:
    try:
        key = name.encode()
    except UnicodeEncodeError:
        return None
    record = tx.get("users", key) if 0 < len(key) <= _KEY_BYTES_MAX else None
    if record is not None:
        return Account.from_record(name, record, grants_of_roles(tx, record.get("roles", ())))
    return Account(ROOT, grants={ALL_DATABASES: ("ADMIN",)}) if name == ROOT else None


def _at_hosts(tx: CatalogTransaction, user: bytes) -> list[str]:
    """Returns the names of a user at hosts other than `%`."""
    return [key.decode() for key, _ in tx.items("users", user + b":")]


def _require(tx: CatalogTransaction, name: str) -> Account:
    account = _find(tx, name)
    if account is None:
        shown = quoted_user(name) if ":" in name else f"'{name}'"
        raise NotFoundError(f"Unknown user {shown}", kind="unknown_user", user=name)
    return account


def _put(tx: CatalogTransaction, account: Account) -> None:
    tx.put("users", account.name.encode(), account.to_record())
