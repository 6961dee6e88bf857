"""The places of MySQL connections: a few for logins in progress, the others for users that have logged in.

A connection holds no place of a user before its password was checked. Logins have a bounded number and a
bounded time: a new one beyond the number ends the oldest. So clients that never log in keep no user out.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from seqstore.store.catalog.access.user_hosts import plain_user
from seqstore.store.errors import UnavailableError

_ADMINISTRATORS: Final = 4  # places beside `connections_max`


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits of one server.

    Attributes:
        connections_max: users at a time; administrators have a few places more.
        user_connections_max: of one user that is no administrator.
        login_seconds_max: for the whole login.
        idle_seconds_max: the server closes a connection that is silent for longer.
        packet_bytes_max: the first value of `max_allowed_packet`.
        body_idle_seconds: the server closes a connection that sends nothing for so long within a packet.
        body_bytes_per_second_min: and one that is slower within a packet, after `body_idle_seconds`.
    """

    connections_max: int = 256
    user_connections_max: int = 200
    login_seconds_max: float = 10
    idle_seconds_max: float = 28_800
    packet_bytes_max: int = 64 << 20
    body_idle_seconds: float = 60
    body_bytes_per_second_min: float = 1024

    @property
    def logins_max(self) -> int:
        """Logins in progress at a time."""
        return max(self.connections_max // 2, 8)


class Admission:
    """Safe to share between threads; connections are known by their number."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._logins: dict[int, float] = {}  # the end of the time of each, the oldest first
        self._users: dict[int, str] = {}

    def begin(self, number: int) -> int | None:
        """Registers a login; returns the connection that must end for it, None when there is room."""
        with self._lock:
            oldest = next(iter(self._logins)) if len(self._logins) >= self._limits.logins_max else None
            if oldest is not None:
                del self._logins[oldest]
            self._logins[number] = time.monotonic() + self._limits.login_seconds_max
            return oldest

    def late(self) -> list[int]:
        """Returns the connections whose time for the login is over, once each."""
        with self._lock:
            now = time.monotonic()
            found = [number for number, end in self._logins.items() if end < now]
            for number in found:
                del self._logins[number]
            return found

    def forget_login(self, number: int) -> None:
        """Ends a login, which succeeded or will be refused."""
        with self._lock:
            self._logins.pop(number, None)

    def admit(self, number: int, user: str, *, is_administrator: bool) -> None:
        """Gives a place to a user that has logged in, in exchange for that of the login.

        Raises:
            UnavailableError: all places are taken.
        """
        limits = self._limits
        with self._lock:
            self._logins.pop(number, None)
            others = [name for other, name in self._users.items() if other != number]
            if len(others) >= limits.connections_max + (_ADMINISTRATORS if is_administrator else 0):
                raise UnavailableError("Too many connections", kind="too_many_connections")
            if not is_administrator and others.count(user) >= limits.user_connections_max:
                raise UnavailableError(
                    f"User {plain_user(user)} already has more than 'max_user_connections' active "
                    f"connections: {limits.user_connections_max}, the setting mysql_user_connections_max",
                    kind="too_many_user_connections",
                )
            self._users[number] = user

    def end(self, number: int) -> None:
        """Frees the place of a connection."""
        with self._lock:
            self._logins.pop(number, None)
            self._users.pop(number, None)
