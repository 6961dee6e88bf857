"""Failed logins: how many an address may have, shared by all protocols of a server.

An address may fail ten times at once and then once a second; further logins of it are refused unread. A user
that has logged in from an address within the last hour has an account of its own there, so that the failures
of others on the same address do not lock it out.

A password that matched before needs no slow comparison. Only logins of a user from an address where its last
login succeeded may be answered by that alone: after one other password, each login waits for its turn and is
counted. Else a refused address would learn the right password from the one answer that is no refusal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from seqstore.store.errors import AccessDeniedError
from seqstore.store.runtime.addresses import is_loopback

if TYPE_CHECKING:
    from seqstore.store.catalog.accounts import Account, Accounts

FAILURES_AT_ONCE_MAX: Final = 10
_FAILURES_PER_SECOND: Final = 1.0
_TRUSTED_SECONDS: Final = 3600.0
_QUICK_SECONDS: Final = _TRUSTED_SECONDS / 2  # the login behind them comes while the user is trusted
_KEPT_MAX: Final = 10_000
_SLOW_AT_ONCE_MAX: Final = 64

_log: Final = logging.getLogger("seqstore.login")
_Key = tuple[str, str]  # an address, and a user or nothing
_Found = TypeVar("_Found")


@dataclass
class _Allowance:
    """Failures that are left, as of a moment."""

    left: float
    at: float


class LoginGuard:
    """Safe to share between threads.

    Args:
        clock: returns seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._slow: Final = tuple(threading.Lock() for _ in range(_SLOW_AT_ONCE_MAX))
        self._allowances: OrderedDict[_Key, _Allowance] = OrderedDict()
        self._trusted: OrderedDict[_Key, float] = OrderedDict()
        self._quick: OrderedDict[_Key, float] = OrderedDict()

    def check(self, address: str, user: str) -> None:
        """Refuses a login of an address that has failed too often.

        Raises:
            AccessDeniedError: nothing of the login may be looked at.
        """
        left = self.left(address, user)
        if left < 1:
            _log.warning("too many failed logins from %s; refused one of user %r", address, user[:64])
            raise AccessDeniedError(
                f"Host '{address}' is blocked because of many failed logins; try again in "
                f"{(1 - left) / _FAILURES_PER_SECOND:.0f} s or more",
                kind="login_blocked",
            )

    def left(self, address: str, user: str) -> float:
        """Returns the failures that are left for the login of a user from an address."""
        with self._lock:
            allowance = self._allowances.get(self._key(address, user))
            return FAILURES_AT_ONCE_MAX if allowance is None else self._left(allowance)

    def failed(self, address: str, user: str) -> None:
        """Counts a failure."""
        with self._lock:
            key = self._key(address, user)
            known = self._allowances.pop(key, None)
            left = FAILURES_AT_ONCE_MAX if known is None else self._left(known)
            self._allowances[key] = _Allowance(max(left - 1, 0.0), self._clock())
            _shorten(self._allowances)
        self.end_quick(address, user)

    def succeeded(self, address: str, user: str) -> None:
        """Remembers that the user may log in from the address."""
        with self._lock:
            self._trusted.pop((address, user), None)
            self._trusted[address, user] = self._clock()
            _shorten(self._trusted)
        self.begin_quick(address, user)

    def quick(self, address: str, user: str, find: Callable[[], _Found | None]) -> _Found | None:
        """Returns what a quick check finds for a login, None for a login that must be counted.

        Args:
            find: the check; None means that the password is not known to be right. Called only where the last
                login of the user from the address succeeded.
        """
        with self._lock:
            since = self._quick.get((address, user))
            if since is None or self._clock() - since >= _QUICK_SECONDS:
                return None
            found = find()
            if found is None:
                del self._quick[address, user]
            return found

    def begin_quick(self, address: str, user: str) -> None:
        """Allows quick checks after a login that succeeded."""
        with self._lock:
            self._quick.pop((address, user), None)
            self._quick[address, user] = self._clock()
            _shorten(self._quick)

    def end_quick(self, address: str, user: str) -> None:
        """Allows no quick checks after a login that failed."""
        with self._lock:
            self._quick.pop((address, user), None)

    def decide(self, address: str, user: str, matches: Callable[[], bool]) -> bool:
        """Runs a quick check of a password and counts its result; one at a time, so that none is uncounted.

        Raises:
            AccessDeniedError: as `check`.
        """
        with self._one_at_a_time:
            self.check(address, user)
            if matches():
                self.succeeded(address, user)
                return True
            self.failed(address, user)
            return False

    def slow_check(self, address: str) -> threading.Lock:
        """Returns the lock of an address for slow checks of passwords; some addresses share one.

        The next check knows the failures before it.
        """
        return self._slow[hash(address) % len(self._slow)]

    def _key(self, address: str, user: str) -> _Key:
        since = self._trusted.get((address, user))
        is_trusted = since is not None and self._clock() - since < _TRUSTED_SECONDS
        return address, user if is_trusted else ""

    def _left(self, allowance: _Allowance) -> float:
        gained = (self._clock() - allowance.at) * _FAILURES_PER_SECOND
        return min(allowance.left + gained, float(FAILURES_AT_ONCE_MAX))


def log_in(accounts: Accounts, guard: LoginGuard, name: str, password: str, address: str) -> str:
    """Returns the name in the catalog of the user that logs in from an address.

    Raises:
        AccessDeniedError: another password, no user of that host, or too many failures before.
    """
    account = guard.quick(address, name, lambda: accounts.known(name, password, address))
    if account is None:
        with guard.slow_check(address):
            guard.check(address, name)
            try:
                account = accounts.log_in(name, password, address)
            except AccessDeniedError:
                guard.failed(address, name)
                raise
            guard.succeeded(address, name)
    check_reachable(account, address)
    return account.name


def check_reachable(account: Account, address: str) -> None:
    """Refuses an administrator without a password from another machine, also if it was emptied later.

    Raises:
        AccessDeniedError: with the way out.
    """
    if account.may("ADMIN") and not account.has_password and not is_loopback(address):
        _log.warning("refused %s, which has no password, from %s", account.name, address)
        raise AccessDeniedError(
            f"Access denied for user '{account.name}'@'{address}': a user with ADMIN and an empty password "
            "logs in from the machine of the server only; set a password there",
            kind="bad_password",
        )


def _shorten(found: OrderedDict[_Key, _Allowance] | OrderedDict[_Key, float]) -> None:
    """Forgets the entry that was changed longest ago when there are too many."""
    if len(found) > _KEPT_MAX:
        found.popitem(last=False)
