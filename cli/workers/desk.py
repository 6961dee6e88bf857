"""What is one for all workers, kept by the hub: numbers, seats, connections, failed logins, told values.

Each operation of a worker has a method of its name. One that returns `LATER` answers by `send` when it can.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from seqstore.cli.clients.admission import Admission, ConnectionLimits
from seqstore.cli.clients.login_guard import LoginGuard
from seqstore.cli.workers.seats import GRANTED, WAITING, Seats, Ticket
from seqstore.store.errors import StoreError

_log: Final = logging.getLogger("seqstore.workers")

LATER: Final = object()
NUMBERS: Final = 64  # that a worker gets at once
ROUND_SECONDS_MAX: Final = 2.0  # a worker that does not answer by then, such as a stopped one, is left out
_TOLD_MAX: Final = 10_000
_CHECK_SECONDS_MAX: Final = 30.0
_LEARN: Final = "learn"

Send = Callable[[int, list[Any]], None]
Workers = Callable[[], Iterable[tuple[int, int, bool]]]


@dataclass
class _Round:
    """A question to all other workers."""

    ticket: Ticket
    places: dict[int, int]
    waiting: set[int]
    end: float
    answers: list[tuple[int, Any]] = field(default_factory=list)


@dataclass
class _Checks:
    """Passwords of one address that workers compare, and those that wait because few failures are left."""

    begun: deque[tuple[float, int]] = field(default_factory=deque)  # since when, and the worker
    waiting: deque[tuple[Ticket, str]] = field(default_factory=deque)


class Desk:
    """The answers of the hub; one thread uses it.

    Args:
        limits: of MySQL connections.
        send: sends a frame to a worker that may have ended.
        workers: returns the workers that run: number, place, and whether it is ready.
    """

    def __init__(self, limits: ConnectionLimits, send: Send, workers: Workers) -> None:
        self.told: dict[str, OrderedDict[Any, Any]] = {}
        self._admission = Admission(limits)
        self._guard = LoginGuard()
        self._seats = Seats()
        self._send = send
        self._workers = workers
        self._next_number = 1
        self._connections: dict[int, set[int]] = {}
        self._checks: dict[str, _Checks] = {}
        self._rounds: dict[int, _Round] = {}
        self._last_round = 0

    def handle(self, worker: int, frame: list[Any]) -> None:
        """Answers a frame of a worker; a defect here is logged, and refuses this frame alone."""
        number, operation, *arguments = frame
        try:
            if operation == "did":
                self._answered(worker, number, arguments[0])
                return
            value = getattr(self, f"on_{operation}")((worker, number), *arguments)
        except StoreError as error:
            self._send(worker, [number, "refused", type(error).__name__, error.message, error.kind])
            return
        except Exception as error:  # it must not end the hub, and with it all workers
            _log.exception("the hub could not answer %r", operation)
            if number and operation != "did":
                text = f"internal error of the hub: {type(error).__name__}: {error}"
                self._send(worker, [number, "refused", StoreError.__name__, text, "internal"])
            return
        if value is not LATER and number:
            self._send(worker, [number, "reply", value])

    def forget(self, worker: int) -> None:
        """Frees what a worker held that has ended."""
        for number in self._connections.pop(worker, ()):
            self._admission.end(number)
        self._grant(self._seats.forget(worker))
        for address, checks in list(self._checks.items()):
            checks.begun = deque(each for each in checks.begun if each[1] != worker)
            checks.waiting = deque(each for each in checks.waiting if each[0][0] != worker)
            self._check_waiting(address)
        for number in list(self._rounds):
            self._answered(worker, number, None)

    def look(self) -> float | None:
        """Ends rounds that wait for too long; returns the seconds until the next look, None without any."""
        now = time.monotonic()
        for number, found in list(self._rounds.items()):
            if found.end <= now:
                self._finish(number)
        return max(min(each.end for each in self._rounds.values()) - now, 0) if self._rounds else None

    # ------------------------------------------------------------------------------------------ connections

    def on_numbers(self, _ticket: Ticket) -> int:
        """Returns the first of `NUMBERS` numbers that no other worker gets."""
        first = self._next_number
        self._next_number += NUMBERS
        return first

    def on_admit(self, ticket: Ticket, number: int, user: str, is_administrator: bool) -> None:
        """Gives a place to a connection; UnavailableError when all are taken."""
        self._admission.admit(number, user, is_administrator=is_administrator)
        self._connections.setdefault(ticket[0], set()).add(number)

    def on_end_connection(self, ticket: Ticket, number: int) -> None:
        """Frees the place of a connection."""
        self._connections.get(ticket[0], set()).discard(number)
        self._admission.end(number)

    # ------------------------------------------------------------------------------------------ seats

    def on_take(self, ticket: Ticket, name: str, limit: int, waiting_max: int) -> object:
        """Replies True with a seat, at once or later, and False when too many wait."""
        state = self._seats.take(ticket, name, limit, waiting_max)
        return LATER if state == WAITING else state == GRANTED

    def on_leave(self, ticket: Ticket, request: int) -> None:
        """Gives the seat of a request back, or its place in the queue."""
        self._grant(self._seats.leave((ticket[0], request)))

    def on_limit(self, _ticket: Ticket, name: str, limit: int) -> None:
        """Sets the number of seats of a name."""
        self._grant(self._seats.change(name, limit))

    def on_seats(self, _ticket: Ticket, name: str) -> tuple[int, int]:
        """Returns how many seats are taken, and how many requests wait."""
        return self._seats.counts(name)

    def _grant(self, tickets: Iterable[Ticket]) -> None:
        for worker, request in tickets:
            self._send(worker, [request, "reply", True])

    # ------------------------------------------------------------------------------------------ logins

    def on_check(self, ticket: Ticket, address: str, user: str) -> object:
        """Replies when a password of an address may be compared.

        No more are compared at a time than the address may have failures.

        Raises:
            AccessDeniedError: it has failed too often.
        """
        checks = self._checks.setdefault(address, _Checks())
        now = time.monotonic()
        while checks.begun and now - checks.begun[0][0] > _CHECK_SECONDS_MAX:  # its worker is stopped
            checks.begun.popleft()
        if checks.begun and len(checks.begun) + 1 > self._guard.left(address, user) >= 1:
            checks.waiting.append((ticket, user))
            return LATER
        self._guard.check(address, user)
        checks.begun.append((now, ticket[0]))
        return None

    def on_checked(self, ticket: Ticket, address: str, user: str, is_right: bool) -> None:
        """Counts the result of a comparison."""
        if is_right:
            self._guard.succeeded(address, user)
        else:
            self._guard.failed(address, user)
        begun = self._checks.get(address, _Checks()).begun
        ended = next((each for each in begun if each[1] == ticket[0]), None)
        if ended is not None:
            begun.remove(ended)
        self._check_waiting(address)

    def _check_waiting(self, address: str) -> None:
        """Asks anew for those that wait, when fewer passwords of an address are compared."""
        checks = self._checks.get(address)
        if checks is None:
            return
        waiting, checks.waiting = checks.waiting, deque()
        for ticket, name in waiting:
            self.handle(ticket[0], [ticket[1], "check", address, name])
        if not checks.begun and not checks.waiting:
            self._checks.pop(address, None)

    # ------------------------------------------------------------------------------------------ all workers

    def on_all(self, ticket: Ticket, operation: str, *arguments: Any) -> object:
        """Asks every other worker; replies a list of [place, answer], without those that have ended."""
        others = [each for each in self._workers() if each[0] != ticket[0]]
        ready = {worker: place for worker, place, is_ready in others if is_ready}
        self._last_round += 1
        number = self._last_round
        self._rounds[number] = _Round(ticket, ready, set(ready), time.monotonic() + ROUND_SECONDS_MAX)
        for worker, _, is_ready in others:
            if is_ready or operation == _LEARN:  # one that begins reads it before it serves
                self._send(worker, [number, "do", operation, *arguments])
        if not ready:
            self._finish(number)
        return LATER

    def on_tell(self, ticket: Ticket, kind: str, key: Any, value: Any) -> object:
        """Keeps a value for all workers, also for later ones, and replies when the others have it."""
        known = self.told.setdefault(kind, OrderedDict())
        known.pop(key, None)
        if value is not None:
            known[key] = value
            if len(known) > _TOLD_MAX:
                known.popitem(last=False)
        return self.on_all(ticket, _LEARN, kind, key, value)

    def _answered(self, worker: int, number: int, value: Any) -> None:
        found = self._rounds.get(number)
        if found is None or worker not in found.waiting:
            return
        found.waiting.discard(worker)
        if value is not None:
            found.answers.append((found.places[worker], value))
        if not found.waiting:
            self._finish(number)

    def _finish(self, number: int) -> None:
        found = self._rounds.pop(number)
        worker, request = found.ticket
        if request:
            self._send(worker, [request, "reply", sorted(found.answers, key=lambda each: each[0])])
