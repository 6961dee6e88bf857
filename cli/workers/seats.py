"""Places that all workers share: the statements of a workload group, the loads of a user.

A request for a seat is granted at once, refused when too many wait, or granted later, in order.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

Ticket = tuple[int, int]  # of a worker, and the id of its request

GRANTED, WAITING, FULL = "granted", "waiting", "full"


@dataclass
class _Row:
    limit: int
    taken: set[Ticket] = field(default_factory=set)
    waiting: OrderedDict[Ticket, None] = field(default_factory=OrderedDict)


class Seats:
    """The seats of all names; one thread uses it."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._names: dict[Ticket, str] = {}

    def take(self, ticket: Ticket, name: str, limit: int, waiting_max: int) -> str:
        """Asks for one of `limit` seats; returns GRANTED, WAITING or FULL."""
        row = self._rows.setdefault(name, _Row(limit))
        row.limit = limit
        if row.waiting or len(row.taken) >= limit:
            if len(row.waiting) >= waiting_max:
                return FULL
            row.waiting[ticket] = None
            self._names[ticket] = name
            return WAITING
        row.taken.add(ticket)
        self._names[ticket] = name
        return GRANTED

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Gives a seat back, or a place in the queue; returns the requests that are granted by it."""
        name = self._names.pop(ticket, None)
        if name is None:
            return []
        row = self._rows[name]
        row.taken.discard(ticket)
        row.waiting.pop(ticket, None)
        found = self._granted(row)
        self._drop_if_empty(name, row)
        return found

    def change(self, name: str, limit: int) -> list[Ticket]:
        """Sets the number of seats; returns the requests that are granted by it."""
        row = self._rows.get(name)
        if row is None:
            return []
        row.limit = limit
        return self._granted(row)

    def forget(self, worker: int) -> list[Ticket]:
        """Frees what a worker held that has ended; returns the requests of others that are granted by it."""
        gone = [ticket for ticket in self._names if ticket[0] == worker]
        names = dict.fromkeys(self._names.pop(ticket) for ticket in gone)
        found: list[Ticket] = []
        for name in names:
            row = self._rows[name]
            row.taken.difference_update(gone)
            for ticket in gone:  # before seats are given: none of them may be granted
                row.waiting.pop(ticket, None)
            found += self._granted(row)
            self._drop_if_empty(name, row)
        return found

    def counts(self, name: str) -> tuple[int, int]:
        """Returns how many seats are taken, and how many requests wait."""
        row = self._rows.get(name)
        return (len(row.taken), len(row.waiting)) if row is not None else (0, 0)

    def _drop_if_empty(self, name: str, row: _Row) -> None:
        if not row.taken and not row.waiting:
            del self._rows[name]

    @staticmethod
    def _granted(row: _Row) -> list[Ticket]:
        found: list[Ticket] = []
        while row.waiting and len(row.taken) < row.limit:
            ticket, _ = row.waiting.popitem(last=False)
            row.taken.add(ticket)
            found.append(ticket)
        return found
