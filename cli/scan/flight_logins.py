"""The logins of Arrow Flight SQL: a Basic header gets a token, which later calls carry."""

from __future__ import annotations

import base64
import binascii
import secrets
import threading
import time
from collections import OrderedDict
from typing import Any, Final

from pyarrow import flight

from seqstore.cli.clients.audit_log import Client
from seqstore.cli.clients.login_guard import check_reachable
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.flight_calls import in_call
from seqstore.cli.scan.flight_gate import Caller, FlightGate
from seqstore.cli.scan.flight_shares import HEADER
from seqstore.store import AccessDeniedError, StoreError
from seqstore.store.catalog.access.user_hosts import rank_of, user_and_host
from seqstore.store.catalog.accounts import Accounts

LOGIN: Final = "login"
_TOKEN_SECONDS: Final = 86_400.0
_TOKENS_MAX: Final = 10_000


class _Tokens:
    """The users that logged in, by token; a token ends with the password it was given for.

    Safe to share between threads.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._lock = threading.Lock()
        self._users: OrderedDict[str, tuple[str, bytes, float]] = OrderedDict()

    def add(self, user: str) -> str:
        token = secrets.token_urlsafe(32)
        account = self._accounts.find(user)
        password = account.slow_hash if account is not None else b""
        with self._lock:
            self._users[token] = user, password, time.monotonic() + _TOKEN_SECONDS
            if len(self._users) > _TOKENS_MAX:
                self._users.popitem(last=False)
        return token

    def user(self, token: str, address: str) -> str | None:
        """Returns the user of a token, None for one that is unknown or has ended.

        Raises:
            AccessDeniedError: an administrator whose password was emptied, from another machine; or a user of
                other hosts.
        """
        with self._lock:
            user, password, until = self._users.get(token, ("", b"", 0.0))
        if time.monotonic() >= until:
            return None
        account = self._accounts.find(user)
        if account is None or account.slow_hash != password:
            return None
        check_reachable(account, address)
        if rank_of(user_and_host(user)[1], address) is None:
            raise AccessDeniedError("the token is of a user at another host", kind="bad_password")
        self._renew(token)
        return user

    def _renew(self, token: str) -> None:
        """Lets a token that is used last, as jobs do that run for longer than a day."""
        with self._lock:
            found = self._users.get(token)
            if found is not None:
                self._users[token] = *found[:2], time.monotonic() + _TOKEN_SECONDS
                self._users.move_to_end(token)


class Login(flight.ServerMiddleware):  # type: ignore[misc]
    """The login of one call; a new token goes back in a header.

    Attributes:
        user: name in the catalog.
        caller: sender of the request.
        endpoints: that the client asks for, as the header says.
    """

    def __init__(self, user: str, token: str, caller: Caller, gate: FlightGate, endpoints: str = "") -> None:
        self.user = user
        self.caller = caller
        self.endpoints = endpoints
        self._gate = gate
        self._token = token

    @in_call
    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    @in_call
    def call_completed(self, exception: object) -> None:
        self._gate.end_call(self.caller)


class Logins(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads the header `authorization` of every call."""

    def __init__(self, sessions: ServerSessions, gate: FlightGate) -> None:
        self._sessions = sessions
        self._gate = gate
        self._tokens = _Tokens(sessions.store.accounts)

    @in_call
    def start_call(self, info: Any, headers: dict[str, list[str]]) -> Login:
        try:
            caller = self._gate.caller(headers)
        except StoreError as error:
            raise flight.FlightUnauthenticatedError(error.message) from None
        try:
            user, token = self._log_in(headers, caller.address)
            account = self._sessions.store.accounts.find(user)
            self._gate.admit(caller, user, is_administrator=account is not None and account.may("ADMIN"))
        except AccessDeniedError as error:
            self._gate.end_call(caller)
            raise flight.FlightUnauthenticatedError(error.message) from None
        except StoreError as error:
            self._gate.end_call(caller)
            raise flight.FlightUnavailableError(error.message) from None
        return Login(user, token, caller, self._gate, _value(headers, HEADER))

    def _log_in(self, headers: dict[str, list[str]], address: str) -> tuple[str, str]:
        """Returns the user of a call, and the token of a new login."""
        given = _value(headers, "authorization")
        scheme, _, value = given.partition(" ")
        if scheme.lower() == "bearer":
            user = self._tokens.user(value, address)
            if user is None:
                raise AccessDeniedError("the token is unknown or too old; log in again", kind="bad_password")
            return user, ""
        try:
            given = value.strip().rstrip("=")
            given += "=" * (-len(given) % 4)  # Arrow's client for Go, and so that of ADBC, leaves it out
            name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = colon = password = ""
        if scheme.lower() != "basic" or not colon:
            raise AccessDeniedError("no valid Basic authorization", kind="bad_password")
        user = self._sessions.log_in(Client("flight", address, name), password)
        return user, self._tokens.add(user)


def _value(headers: dict[str, list[str]], wanted: str) -> str:
    return next((values[0] for name, values in headers.items() if name.lower() == wanted and values), "")
