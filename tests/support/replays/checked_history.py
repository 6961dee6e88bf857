"""What clients know of their transactions, and the search for an order that explains all of it.

A history has cells of two kinds. A cell of the tables `a` and `b` is one row with a list of numbers. A
transaction appends a number of its own, so the list tells the order of the writes. A cell of the tables `r`
and `s` is a set: a write without a read adds the row of its number.

`faults` looks for numbers that were lost, that stand twice, that an aborted transaction wrote, or of which a
transaction wrote only some; for reads that miss the own write, or that no later contents explain; and for
cycles of transactions. `a` is before `b` where

- `b` read or overwrote a value of `a`, or wrote the value after the one that `a` read,
- `a` was acknowledged before `b` began.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

LISTS: Final = ("a", "b")
SETS: Final = ("r", "s")
OK, ABORTED, OPEN = "ok", "aborted", "open"
Cell = str  # table and number, such as "a1"
Contents = dict[Cell, list[int]]


@dataclass
class Transaction:
    """What a client knows of a transaction.

    Attributes:
        reads: the numbers of each cell that it read before it wrote the cell.
        appends: the number that it wrote, by cell.
        own: the numbers of each cell that it read after it wrote the cell.
        status: `open` where the outcome is unknown.
        label: under which the store knows it, else empty.
        begun, ended: on the clock of the host; `ended` is infinite where the outcome is unknown.
    """

    name: str
    reads: Contents = field(default_factory=dict)
    appends: dict[Cell, int] = field(default_factory=dict)
    status: str = OPEN
    own: Contents = field(default_factory=dict)
    label: str = ""
    begun: float = 0.0
    ended: float = math.inf

    def seen(self) -> Contents:
        """Returns what it read of others."""
        others = {cell: [n for n in read if n != self.appends.get(cell)] for cell, read in self.own.items()}
        return others | self.reads

    def has_happened(self, last: Contents) -> bool:
        """Returns whether it committed; one with an unknown outcome did where a number of it is there."""
        if self.status != OPEN:
            return self.status == OK
        return any(number in last.get(cell, []) for cell, number in self.appends.items())


def told(lines: Iterable[str]) -> list[Transaction]:
    """Reads what a client printed; the last word about a transaction counts."""
    found = {}
    for line in lines:
        if line.endswith("\n"):
            transaction = Transaction(**json.loads(line))
            found[transaction.name] = transaction
    return list(found.values())


def faults(history: list[Transaction], last: Contents) -> list[str]:
    """Returns what no order of the transactions explains, in words; empty if one explains everything.

    Args:
        last: all cells when every client has ended.
    """
    writers = {(cell, number): each for each in history for cell, number in each.appends.items()}
    found = []
    for cell, numbers in last.items():
        if len(set(numbers)) != len(numbers):
            found.append(f"{cell} has a number twice: {numbers}")
        for number in numbers:
            writer = writers.get((cell, number))
            if writer is None or writer.status == ABORTED:
                found.append(f"{cell} has {number}, which was never committed")
    for each in history:
        found += [*_faults_of_writes(each, last), *_faults_of_reads(each, last)]
    return found or _cycle(_edges([each for each in history if each.has_happened(last)], last, writers))


def _faults_of_writes(each: Transaction, last: Contents) -> Iterator[str]:
    absent = [cell for cell, number in each.appends.items() if number not in last.get(cell, [])]
    if each.status == OK:
        for cell in absent:
            yield f"{cell} has lost {each.appends[cell]} of {each.name}"
    elif each.status == OPEN and 0 < len(absent) < len(each.appends):
        yield f"{each.name} is half there: {absent} of {sorted(each.appends)} are absent"


def _faults_of_reads(each: Transaction, last: Contents) -> Iterator[str]:
    for cell, numbers in each.own.items():
        if each.appends[cell] not in numbers:
            yield f"{each.name} has read {numbers} of {cell} after its own {each.appends[cell]}"
        others = [number for number in numbers if number != each.appends[cell]]
        if cell in each.reads and others != each.reads[cell]:
            yield f"{each.name} has read {each.reads[cell]} of {cell}, and then {others}"
    if each.status != OK:
        return
    for cell, numbers in each.seen().items():
        became = last.get(cell, [])
        if set(numbers) - set(became) if cell[0] in SETS else numbers != became[: len(numbers)]:
            yield f"{each.name} has read {numbers} of {cell}, which became {became}"


def _edges(
    happened: list[Transaction], last: Contents, writers: dict[tuple[Cell, int], Transaction]
) -> dict[str, set[str]]:
    """Returns for each transaction those that must come after it."""
    after: dict[str, set[str]] = defaultdict(set)

    def order(first: str, second: str) -> None:
        if first != second:
            after[first].add(second)

    for cell, numbers in last.items():
        names = [writers[cell, number].name for number in numbers]
        readers = [(each.name, each.seen()[cell]) for each in happened if cell in each.seen()]
        if cell[0] in SETS:
            for reader, read in readers:
                for name, number in zip(names, numbers, strict=True):
                    order(*((name, reader) if number in read else (reader, name)))
            continue
        for one, other in pairwise(names):
            order(one, other)
        for reader, read in readers:
            place = len(read)
            if place:
                order(names[place - 1], reader)
            if place < len(names):
                order(reader, names[place])
    for before in happened:
        for later in happened:
            if before.ended < later.begun:
                order(before.name, later.name)
    return after


def _cycle(after: dict[str, set[str]]) -> list[str]:
    """Returns a sentence about transactions of which each must come after another one of them."""
    left = {name: set(others) for name, others in after.items()}
    while ended := [name for name, others in left.items() if not others & left.keys()]:
        for name in ended:
            del left[name]
    if not left:
        return []
    path = [next(iter(left))]
    while path.count(path[-1]) < 2:
        path.append(next(iter(left[path[-1]] & left.keys())))
    return [f"a cycle: {' before '.join(path[path.index(path[-1]) :])}"]
