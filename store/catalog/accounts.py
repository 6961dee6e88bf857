"""Users, their passwords and their privileges; one record for each user in the catalog.

A password is stored as two hashes, never as text: scrypt for clients that send the password (HTTP Basic), and
SHA1(SHA1(password)), with which MySQL's `mysql_native_password` checks a scramble. An empty password is
stored as no hash at all.

A privilege is granted on one database or on all (`*`). ADMIN includes every other privilege, and the right to
grant. `root` always exists: until its record exists, with an empty password and ADMIN on all databases.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.workload_groups import USER_PREFIX
from seqstore.store.errors import AccessDeniedError, AlreadyExistsError, InvalidInputError, NotFoundError
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.internal import internal

ROOT: Final = "root"
ALL_DATABASES: Final = "*"
PRIVILEGES: Final = ("ADMIN", "ALTER", "LOAD", "SELECT")
_NAME_BYTES_MAX: Final = 64
_PASSWORD_BYTES_MAX: Final = 1024
_SCRYPT: Final = {"n": 1 << 14, "r": 8, "p": 1, "dklen": 32}  # 16 MiB and some 40 ms per attempt
_SALT_BYTES: Final = 16
_KNOWN_MAX: Final = 1024


@dataclass(frozen=True)
class Account:
    """One user.

    Attributes:
        salt, slow_hash: scrypt of the password; empty for the empty password.
        mysql_hash: SHA1(SHA1(password)); empty for the empty password.
        grants: privileges by database, `*` for all.
    """

    name: str
    salt: bytes = b""
    slow_hash: bytes = b""
    mysql_hash: bytes = b""
    grants: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def has_password(self) -> bool:
        """Whether the user must send a password."""
        return bool(self.slow_hash)

    def may(self, privilege: str, database: str = ALL_DATABASES) -> bool:
        """Returns whether the user holds a privilege on a database; with `*`, on all of them."""
        held = {*self.grants.get(ALL_DATABASES, ()), *self.grants.get(database, ())}
        return privilege in held or "ADMIN" in held

    def sees(self, database: str) -> bool:
        """Returns whether the user holds any privilege on a database; others do not exist for the user."""
        return any(self.may(privilege, database) for privilege in PRIVILEGES)

    def to_record(self) -> dict[str, Any]:
        """Returns the catalog record; `from_record` reads it."""
        return {key: value for key, value in self.__dict__.items() if key != "name"}

    @classmethod
    def from_record(cls, name: str, record: dict[str, Any]) -> Account:
        """Reads a record of `to_record`."""
        grants = {database: tuple(held) for database, held in record["grants"].items()}
        return cls(name, **{**record, "grants": grants})


class Accounts:
    """The users of one store. Threads may share it; every result reflects the current catalog."""

    @internal
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._one_at_a_time = new_lock()  # scrypt uses much memory: many at once would exhaust it
        self._pepper = os.urandom(_SALT_BYTES)
        self._known: dict[str, tuple[bytes, bytes]] = {}

    def names(self) -> list[str]:
        """Returns all users, sorted."""
        with self._catalog.read() as tx:
            return sorted({ROOT, *(key.decode() for key, _ in tx.items("users"))})

    def find(self, name: str) -> Account | None:
        """Returns one user, None when there is none of that name."""
        with self._catalog.read() as tx:
            return _find(tx, name)

    def create(self, name: str, password: str = "", *, if_not_exists: bool = False) -> None:
        """Creates a user without privileges.

        Raises:
            AlreadyExistsError: the user exists, and `if_not_exists` is False.
            InvalidInputError: the name or the password is too long, or the name is empty.
        """
        printable = bool(name) and all(c.isprintable() and not c.isspace() for c in name)
        if not printable or ":" in name or len(name.encode()) > _NAME_BYTES_MAX:
            raise InvalidInputError(
                f"user name {name[:80]!r}: expected 1 to {_NAME_BYTES_MAX} bytes of printable text "
                "without blanks and ':'",
                kind="bad_user",
            )
        account = _with_password(Account(name), password)
        with self._catalog.write() as tx:
            if _find(tx, name) is None:
                _put(tx, account)
            elif not if_not_exists:
                raise AlreadyExistsError(f"User '{name}' already exists", kind="user_exists", user=name)

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
            _put(tx, replace(hashed, grants=_require(tx, name).grants))

    def grant(self, name: str, privileges: Iterable[str], database: str = ALL_DATABASES) -> None:
        """Grants privileges on a database, or on all.

        Raises:
            NotFoundError: no such user.
            InvalidInputError: a privilege is not one of `PRIVILEGES` (`LOAD_PRIV` and the like are accepted).
        """
        wanted = _check_privileges(privileges)
        with self._catalog.write() as tx:
            account = _require(tx, name)
            held = {*account.grants.get(database, ()), *wanted}
            _put(tx, replace(account, grants={**account.grants, database: tuple(sorted(held))}))

    def revoke(self, name: str, privileges: Iterable[str], database: str = ALL_DATABASES) -> None:
        """Revokes privileges that were granted on exactly this database, or on all.

        Raises:
            NotFoundError: no such user, or it does not hold them there.
            InvalidInputError: a privilege is unknown, or root would lose ADMIN on all.
        """
        wanted = _check_privileges(privileges)
        if name == ROOT and database == ALL_DATABASES and "ADMIN" in wanted:
            raise InvalidInputError("user 'root' keeps ADMIN on all databases", kind="bad_user")
        with self._catalog.write() as tx:
            account = _require(tx, name)
            held = account.grants.get(database, ())
            missing = [privilege for privilege in wanted if privilege not in held]
            if missing:
                raise NotFoundError(
                    f"user '{name}' holds no {', '.join(missing)} on {database}.*; see SHOW GRANTS",
                    kind="unknown_grant",
                )
            left = tuple(privilege for privilege in held if privilege not in wanted)
            grants = {**account.grants, database: left}
            _put(tx, replace(account, grants={scope: kept for scope, kept in grants.items() if kept}))

    # ------------------------------------------------------------------------------------------ checks

    def log_in(self, name: str, password: str) -> Account:
        """Returns the user of that name and password.

        Raises:
            AccessDeniedError: no such user, or another password; the message is the same for both.
        """
        account = self.find(name)
        if not self._matches(account, password):
            using = "YES" if password else "NO"
            raise AccessDeniedError(
                f"Access denied for user '{name[:_NAME_BYTES_MAX]}' (using password: {using})",
                kind="bad_password",
            )
        assert account is not None
        return account

    def known(self, name: str, password: str) -> Account | None:
        """Returns the user if the password needs no slow comparison, since it matched before; else None."""
        account = self.find(name)
        if account is None:
            return None
        if not account.has_password:
            return account if not password else None
        return account if self._is_known(account, _secret(password)) else None

    def require(self, name: str, privilege: str, database: str = ALL_DATABASES) -> None:
        """Checks a privilege as of now.

        Raises:
            AccessDeniedError: the user does not hold it, or was dropped.
        """
        account = self.find(name)
        if account is None or not account.may(privilege, database):
            where = "all databases" if database == ALL_DATABASES else f"database '{database}'"
            raise AccessDeniedError(
                f"Access denied; user '{name}' needs the {privilege} privilege on {where}: GRANT "
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
            return hashlib.scrypt(secret, salt=salt, **_SCRYPT)


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
    return hmac.compare_digest(hashlib.scrypt(password, salt=account.salt, **_SCRYPT), account.slow_hash)


def _with_password(account: Account, password: str) -> Account:
    secret, salt = password.encode(), os.urandom(_SALT_BYTES)
    if len(secret) > _PASSWORD_BYTES_MAX:
        raise InvalidInputError(f"a password has at most {_PASSWORD_BYTES_MAX} bytes", kind="bad_password")
    if not secret:
        return replace(account, salt=b"", slow_hash=b"", mysql_hash=b"")
    twice = hashlib.sha1(hashlib.sha1(secret).digest()).digest()
    slow_hash = hashlib.scrypt(secret, salt=salt, **_SCRYPT)
    return replace(account, salt=salt, slow_hash=slow_hash, mysql_hash=twice)


def _check_privileges(privileges: Iterable[str]) -> tuple[str, ...]:
    """Returns names as stored; `ALL` is every one but ADMIN."""
    wanted: set[str] = set()
    for given in privileges:
        name = given.strip().upper().removesuffix("_PRIV")
        if name == "ALL":
            wanted |= {privilege for privilege in PRIVILEGES if privilege != "ADMIN"}
        elif name in PRIVILEGES:
            wanted.add(name)
        else:
            raise InvalidInputError(
                f"unknown privilege {given!r}; expected {', '.join(f'{p}_PRIV' for p in PRIVILEGES)} or ALL",
                kind="bad_privilege",
            )
    return tuple(sorted(wanted))


def _find(tx: CatalogTransaction, name: str) -> Account | None:
    try:
        key = name.encode()
    except UnicodeEncodeError:
        return None
    record = tx.get("users", key) if 0 < len(key) <= _NAME_BYTES_MAX else None
    if record is not None:
        return Account.from_record(name, record)
    return Account(ROOT, grants={ALL_DATABASES: ("ADMIN",)}) if name == ROOT else None


def _require(tx: CatalogTransaction, name: str) -> Account:
    account = _find(tx, name)
    if account is None:
        raise NotFoundError(f"Unknown user '{name}'", kind="unknown_user", user=name)
    return account


def _put(tx: CatalogTransaction, account: Account) -> None:
    tx.put("users", account.name.encode(), account.to_record())
