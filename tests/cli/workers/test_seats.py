"""Seats beside a plain model: requests, ends, other limits and deaths of workers, in any order."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from seqstore.cli.workers.seats import FULL, GRANTED, WAITING, Seats, Ticket
from tests.seeds import new_seed
from tests.weight import by_form

WORKERS = (1, 2, 3)
NAMES = ("group g", "group h", "loads ann")


class Model:
    """For each name, the requests that hold a seat and those that wait, in order."""

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}
        self.taken: dict[str, list[Ticket]] = defaultdict(list)
        self.waiting: dict[str, list[Ticket]] = defaultdict(list)

    def take(self, ticket: Ticket, name: str, limit: int, waiting_max: int) -> str:
        self.limits[name] = limit
        if not self.waiting[name] and len(self.taken[name]) < limit:
            self.taken[name].append(ticket)
            return GRANTED
        if len(self.waiting[name]) >= waiting_max:
            return FULL
        self.waiting[name].append(ticket)
        return WAITING

    def remove(self, gone: list[Ticket]) -> set[Ticket]:
        found: set[Ticket] = set()
        for name in NAMES:
            changes = set(gone) & {*self.taken[name], *self.waiting[name]}
            self.taken[name] = [each for each in self.taken[name] if each not in gone]
            self.waiting[name] = [each for each in self.waiting[name] if each not in gone]
            if changes:
                found |= self.fill(name)
        return found

    def change(self, name: str, limit: int) -> set[Ticket]:
        if not self.taken[name] and not self.waiting[name]:
            return set()
        self.limits[name] = limit
        return self.fill(name)

    def fill(self, name: str) -> set[Ticket]:
        free = max(self.limits[name] - len(self.taken[name]), 0)
        found, self.waiting[name] = self.waiting[name][:free], self.waiting[name][free:]
        self.taken[name] += found
        return set(found)

    def of(self, worker: int) -> list[Ticket]:
        held = [each for name in NAMES for each in (*self.taken[name], *self.waiting[name])]
        return [each for each in held if each[0] == worker]


@pytest.mark.parametrize("_", range(by_form(20, 200)))
def test_seats_agree_with_a_plain_model(_: int) -> None:
    """The death of a worker that held a seat and waited for another one of its name raised KeyError."""
    seed = new_seed()
    print("seed", seed)
    drawn = random.Random(seed)
    seats, model, request = Seats(), Model(), 0
    for _step in range(200):
        worker, name, limit = drawn.choice(WORKERS), drawn.choice(NAMES), drawn.randint(1, 3)
        deed = drawn.choice(("take", "take", "take", "leave", "limit", "die"))
        if deed == "take":
            request += 1
            asked = (worker, request), name, limit, drawn.randint(0, 4)
            assert seats.take(*asked) == model.take(*asked)
        elif deed == "leave":
            ticket = drawn.choice([*model.of(worker), (worker, 0)])
            assert set(seats.leave(ticket)) == model.remove([ticket])
        elif deed == "limit":
            assert set(seats.change(name, limit)) == model.change(name, limit)
        else:
            assert set(seats.forget(worker)) == model.remove(model.of(worker))
        for each in NAMES:
            assert seats.counts(each) == (len(model.taken[each]), len(model.waiting[each]))


def test_a_worker_that_dies_with_a_seat_and_a_request_for_another_leaves_nothing() -> None:
    """Its request left the queue first, and then the row, which `forget` looked for once more."""
    seats = Seats()
    seats.take((1, 1), "group g", 1, 9)
    seats.take((1, 2), "group g", 1, 9)
    assert seats.forget(1) == []
    assert seats.take((2, 1), "group g", 1, 9) == GRANTED
