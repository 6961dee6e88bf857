"""The sessions of clients: what they hold at the server, until they close it, or their term is over.

A client renews its session. One that is not heard of for the term of its lease has ended, as a process that
was killed: its loads and transactions are rolled back, its versions are released. A call that runs counts as
heard.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from seqstore.cli.remote.replies import Replies
from seqstore.cli.remote.stagings import Staging
from seqstore.cli.remote.uploads import Upload
from seqstore.store import Load, StoreError, Transaction, UnavailableError
from seqstore.store.errors import ClosedError, InvalidInputError, NotFoundError

UNREAD_SECONDS: Final = 10.0  # for which a call waits for rows of the session to be read
_LOG: Final = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 0.2
_OBJECTS_MAX: Final = 2_000
_USER_SESSIONS_MAX: Final = 500
_LOOKS: Final = 4  # for ended sessions, within a term


@dataclass
class Held:
    """An object of a client.

    Attributes:
        kind: of its calls, see `store.remote.surface`.
        value: a load, a transaction or one of its tables, a snapshot, a session, a staged load.
        table: `db.table` of its privileges, empty for objects of several tables.
        lock: one call at a time; the tables and loads of a transaction share its lock.
        opened: the tables that a transaction has opened.
        owner: the number of the transaction that it belongs to, 0 for none.
        is_read: a client reads the rows of a query of it, one after the other.
    """

    kind: str
    value: Any
    table: str = ""
    lock: Any = field(default_factory=threading.RLock)
    opened: dict[str, int] = field(default_factory=dict)
    owner: int = 0
    is_read: bool = False

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Lets one call at a time into the block.

        Raises:
            InvalidInputError: the rows of a query are not read to their end. The client may wait for this
                call in the thread that would read them.
        """
        began = time.monotonic()
        while not self.lock.acquire(timeout=_LOOK_SECONDS):
            if self.is_read and time.monotonic() - began > UNREAD_SECONDS:
                raise InvalidInputError(
                    "this session has a query whose rows are not all read: read them, or close their reader; "
                    "or use another session",
                    kind="unread_rows",
                )
        try:
            yield
        finally:
            self.lock.release()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Lets one call at a time into the block, in which a client reads rows."""
        with self.in_turn():
            self.is_read = True
            try:
                yield
            finally:
                self.is_read = False


class ClientSession:
    """What one client has at the server. Safe to share between threads.

    Attributes:
        token: a secret by which its client names it.
        replies: of its changes.
    """

    def __init__(self, user: str) -> None:
        self.user = user
        self.token = secrets.token_urlsafe(24)
        self.replies = Replies()
        self._numbers = itertools.count(secrets.randbits(48))  # those of another session are unknown here
        self._objects: dict[int, Held] = {}
        self._lock = threading.Lock()
        self._calls = 0
        self._heard = time.monotonic()
        self._has_ended = False

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Counts a call, while which the session does not end."""
        with self._lock:
            if self._has_ended:
                raise _ended()
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._heard = time.monotonic()

    def hear(self) -> None:
        """Begins another term."""
        with self._lock:
            self._heard = time.monotonic()

    def is_silent(self, seconds: float) -> bool:
        """Returns whether the client was not heard of for so long; the session has then ended."""
        with self._lock:
            if self._calls or time.monotonic() - self._heard < seconds:
                return False
            self._has_ended = True
            return True

    def add(self, held: Held) -> int:
        """Keeps an object and returns its number.

        Raises:
            UnavailableError: the client holds too many.
        """
        with self._lock:
            is_full = len(self._objects) >= _OBJECTS_MAX
            number = next(self._numbers)
            if not is_full and not self._has_ended:
                self._objects[number] = held
                return number
        close(held)
        if not is_full:
            raise _ended()
        raise UnavailableError(
            f"this client holds {_OBJECTS_MAX} snapshots, loads and transactions; close those that are done "
            "with",
            kind="too_many_snapshots",
        )

    def held(self, kind: str, number: Any) -> Held:
        """Returns an object.

        Raises:
            ClosedError: the client has released it.
        """
        with self._lock:
            found = self._objects.get(number) if isinstance(number, int) else None
        if found is None or found.kind != kind:
            raise ClosedError(f"this {kind} has ended; begin another")
        return found

    def release(self, numbers: Iterable[int]) -> None:
        """Closes objects that the client needs no longer, and what belongs to them.

        An object with a call that runs is closed behind it, and not waited for: the client that releases a
        session may be the one that reads its rows.
        """
        for number in numbers:
            taken = self._taken(number)
            if not taken:
                continue
            lock = taken[0].lock  # what belongs to an object has its lock
            if lock.acquire(blocking=False):
                try:
                    close_all(taken)
                finally:
                    lock.release()
            else:
                threading.Thread(target=close_all, args=(taken,), name="release", daemon=True).start()

    def end(self) -> None:
        """Closes everything, the newest first; calls that run are waited for, object by object."""
        with self._lock:
            self._has_ended = True
            numbers = sorted(self._objects, reverse=True)
        for number in numbers:
            close_all(self._taken(number))

    def _taken(self, number: int) -> list[Held]:
        """Takes out an object, and what belongs to it; the client can call them no longer."""
        with self._lock:
            found = self._objects.pop(number, None)
            own = [key for key, each in self._objects.items() if found and each.owner == number]
            others = [self._objects.pop(key) for key in own]
        return [] if found is None else [found, *others]


def close_all(objects: Iterable[Held]) -> None:
    """Ends objects; see `close`."""
    for each in objects:
        close(each)


def close(held: Held) -> None:
    """Ends an object without effect: what it has published stays."""
    with held.lock:
        try:
            if isinstance(held.value, Load):
                held.value.abort("the client ended")
            elif isinstance(held.value, Transaction):
                held.value.rollback("the client ended")
            elif held.kind in ("Snapshot", "StoreSnapshot", "Session") and not held.owner:
                held.value.close()
            elif isinstance(held.value, Staging):
                held.value.leave()
            elif isinstance(held.value, Upload):
                held.value.close()
        except StoreError as error:
            _LOG.warning("a %s of a client that ended is left to the next sweep: %s", held.kind, error)


def _ended() -> ClosedError:
    return ClosedError("the session has ended", kind="session_ended")


class ClientSessions:
    """The sessions of one server; a thread ends those whose term is over.

    Args:
        lease_seconds: the term.
    """

    def __init__(self, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._sessions: dict[str, ClientSession] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="client sessions", daemon=True)
        self._thread.start()

    def open(self, user: str) -> ClientSession:
        """Begins a session.

        Raises:
            UnavailableError: the user has too many, or the server is stopping.
        """
        session = ClientSession(user)
        with self._lock:
            if self._stop.is_set():
                raise UnavailableError("the server is stopping", kind="stopping")
            if sum(each.user == user for each in self._sessions.values()) >= _USER_SESSIONS_MAX:
                raise UnavailableError(
                    f"user {user} has {_USER_SESSIONS_MAX} sessions of clients; close those that are done "
                    "with",
                    kind="too_many_user_connections",
                )
            self._sessions[session.token] = session
        return session

    def find(self, token: Any, user: str) -> ClientSession:
        """Returns a session of a user.

        Raises:
            NotFoundError: it has ended, or is of another user.
        """
        with self._lock:
            found = self._sessions.get(token) if isinstance(token, str) else None
        if found is None or found.user != user:
            raise NotFoundError("the session has ended", kind="unknown_session")
        found.hear()
        return found

    def end(self, session: ClientSession) -> None:
        """Ends a session."""
        with self._lock:
            self._sessions.pop(session.token, None)
        session.end()

    def end_silent(self) -> None:
        """Ends the sessions whose term is over."""
        with self._lock:
            silent = [each for each in self._sessions.values() if each.is_silent(self.lease_seconds)]
        for each in silent:
            _LOG.info("a client of user %s was silent for %g seconds", each.user, self.lease_seconds)
            self.end(each)

    def stop(self) -> None:
        """Ends all sessions."""
        self._stop.set()
        self._thread.join()
        with self._lock:
            left = list(self._sessions.values())
        for each in left:
            self.end(each)

    def _watch(self) -> None:
        while not self._stop.wait(self.lease_seconds / _LOOKS):
            self.end_silent()
