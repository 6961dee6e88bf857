"""What the sessions of a process keep between statements, by user: variables, prepared statements, long data.

An idle session has no statement that could be cancelled, so the memory of all of them has a bound: all users
have `_SHARE` of the memory limit together, and one user half of that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.memory_limit import limit_bytes

_SHARE: Final = 1 / 8
_USER_SHARE: Final = _SHARE / 2
_SMALL_BYTES: Final = 1 << 20  # that each user may keep always


class _Users:
    """The bytes of each user."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._bytes: dict[str, int] = {}

    def add(self, user: str, size: int) -> None:
        """Adds to the bytes of a user; a negative size subtracts.

        Raises:
            UnavailableError: the user, or all together, would keep too much.
        """
        with self._lock:
            found = self._bytes.get(user, 0) + size
            if size > 0 and found > _SMALL_BYTES:
                self._check(found, size)
            self._bytes[user] = found
            if not found:
                del self._bytes[user]

    def _check(self, found: int, size: int) -> None:
        limit = limit_bytes()
        most, all_most = int(limit * _USER_SHARE), int(limit * _SHARE)
        whose, kept, bound = "this user", found - size, most
        if found <= most:
            whose, kept, bound = "all users", sum(self._bytes.values()), all_most
        if kept + size > bound:
            raise UnavailableError(
                f"Out of memory; the sessions of {whose} keep {kept >> 10} KiB of variables, prepared "
                f"statements and their long data, and {size >> 10} KiB more are beyond the {bound >> 10} KiB "
                "for that; close some statements or sessions, or raise the setting memory_bytes_max",
                kind="out_of_memory",
            )


_users: Final = _Users()


class HeldMemory:
    """What one session keeps, by the thing; one thread at a time uses it.

    Args:
        user: of the session; None counts nothing.
    """

    def __init__(self, user: str | None) -> None:
        self._user = user
        self._sizes: dict[Hashable, int] = {}

    def set(self, thing: Hashable, size: int) -> None:
        """States the bytes that the session keeps of a thing from now on; 0 when it keeps it no more.

        Raises:
            UnavailableError: the sessions of the user, or all together, would keep too much.
        """
        if self._user is None:
            return
        _users.add(self._user, size - self._sizes.get(thing, 0))
        self._sizes[thing] = size
        if not size:
            del self._sizes[thing]

    @contextmanager
    def changed(self, thing: Hashable, size: int) -> Iterator[None]:
        """Sets the bytes of a thing for a block that stores it; if the block fails, they are as before.

        Raises:
            UnavailableError: as `set`; the block does not run.
        """
        before = self._sizes.get(thing, 0)
        self.set(thing, size)
        try:
            yield
        except BaseException:
            if before <= size:
                self.set(thing, before)
            raise

    def close(self) -> None:
        """States that the session keeps nothing any more; what it keeps later is not counted."""
        user, self._user = self._user, None
        if user is not None:
            _users.add(user, -sum(self._sizes.values()))
            self._sizes.clear()
