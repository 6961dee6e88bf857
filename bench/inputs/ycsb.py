"""YCSB's core workloads A, B, E and F: what clients request, and what may stand in the store at the end.

A record has ten fields of 100 letters. Keys are texts in an order that says nothing of their age. Requests
follow YCSB's Zipf distribution (0.99), spread over all keys.

    A   half reads, half updates of one field
    B   95 % reads, 5 % updates
    E   95 % scans of 1 to 100 records, 5 % inserts
    F   half reads, half read-modify-writes of one field

Clients write beside each other, so the end state is not one: of a field every client's last value may be the
one that stands, and no other. `Writes.differences` checks that for every field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Kind = Literal["read", "update", "scan", "insert", "modify"]
FIELDS: Final = tuple(f"field{number}" for number in range(10))
MIXES: Final[dict[str, dict[Kind, float]]] = {
    "a": {"read": 0.5, "update": 0.5},
    "b": {"read": 0.95, "update": 0.05},
    "e": {"scan": 0.95, "insert": 0.05},
    "f": {"read": 0.5, "modify": 0.5},
}
_FIELD_BYTES: Final = 100
_SCAN_MAX: Final = 100
_ZIPF: Final = 0.99
_DIGITS: Final = 12
_SPREAD: Final = 387_420_489_007  # shares no factor with a power of ten: keys stay apart
_PADDING: Final = "abcdefghijklmnopqrstuvwxyz" * 4
_BLOCK: Final = 1_024
Numbers = npt.NDArray[np.int64]


def key(number: int) -> str:
    """The key of a record by its number."""
    return f"user{number * _SPREAD % 10**_DIGITS:0{_DIGITS}d}"


def first_records(rows: int) -> pa.Table:
    """Records 0 to `rows` - 1."""
    columns = {name: [first_value(number, at) for number in range(rows)] for at, name in enumerate(FIELDS)}
    return pa.table({"k": [key(number) for number in range(rows)], **columns})


def first_value(number: int, at: int) -> str:
    """What a field holds before anybody writes it."""
    return _text(f"first-{number}-{at}-")


def _text(head: str) -> str:
    return (head + _PADDING)[:_FIELD_BYTES]


@dataclass(frozen=True)
class Request:
    """One request; a scan's `rows` is how many it wants, an insert's `number` is its serial."""

    kind: Kind
    number: int
    field: int
    rows: int


class Requests:
    """The requests of one client, without end.

    Args:
        mix: one of `MIXES`.
        records: there are at the beginning.
        client: its number; each has requests of its own.
    """

    def __init__(self, mix: str, records: int, client: int, seed: int) -> None:
        self._rng = np.random.default_rng((seed, client, ord(mix)))
        self._kinds: list[Kind] = list(MIXES[mix])
        self._shares = list(MIXES[mix].values())
        weights = 1.0 / np.arange(1, records + 1) ** _ZIPF
        self._cumulated = np.cumsum(weights / weights.sum())
        self._order = np.random.default_rng((seed, records)).permutation(records)

    def __iter__(self) -> Iterator[Request]:
        while True:
            kinds = self._rng.choice(len(self._kinds), _BLOCK, p=self._shares)
            ranks = np.searchsorted(self._cumulated, self._rng.random(_BLOCK))
            numbers = self._order[np.minimum(ranks, len(self._order) - 1)]
            fields = self._rng.integers(0, len(FIELDS), _BLOCK)
            rows = self._rng.integers(1, _SCAN_MAX + 1, _BLOCK)
            columns = (each.tolist() for each in (kinds, numbers, fields, rows))
            for kind, number, at, wanted in zip(*columns, strict=True):
                yield Request(self._kinds[kind], number, at, wanted)


@dataclass
class Writes:
    """What one client has written, and what it saw that cannot be.

    Attributes:
        last: its last value of a field, by record number and field.
        inserted: numbers of the records it added.
        wrong: findings on its reads.
    """

    client: int
    last: dict[tuple[int, int], str] = field(default_factory=dict)
    inserted: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    serial: int = 0

    def next_value(self) -> str:
        """A value that no other write has."""
        self.serial += 1
        return _text(f"{self.client}-{self.serial}-")


def differences(records: int, writes: Iterable[Writes], found: Iterable[tuple[Any, ...]]) -> list[str]:
    """What is wrong with an end state; empty means nothing.

    Args:
        records: there were at the beginning.
        found: key and fields of each record.
    """
    clients = list(writes)
    numbers = [*range(records), *(number for each in clients for number in each.inserted)]
    by_key = {key(number): number for number in numbers}
    allowed: dict[tuple[int, int], set[str]] = {}
    for each in clients:
        for place, value in each.last.items():
            allowed.setdefault(place, set()).add(value)
    seen: set[int] = set()
    strangers = other = 0
    for name, *values in found:
        number = by_key.get(name)
        if number is None or number in seen:
            strangers += 1
            continue
        seen.add(number)
        for at, value in enumerate(values):
            possible = allowed.get((number, at))
            other += value not in possible if possible else value != first_value(number, at)
    counts = {
        "records missing": len(by_key) - len(seen),
        "records that should not be there": strangers,
        "fields with a value that no client wrote last": other,
    }
    problems = [f"{count} {what}" for what, count in counts.items() if count]
    return problems + [finding for each in clients for finding in each.wrong[:3]]
