"""Histories of real client processes over two tables, and the search for cycles in them.

A cell is one key of one table. It holds a list of numbers, to which transactions append, each a number of its
own. The lists tell the order of all writes of a cell, so every read has its place in it. `faults` looks for
numbers that were lost, that an aborted transaction wrote, or that stand twice; for reads that are not the
beginning of the list; and for cycles of transactions: `a` is before `b` where `b` read or overwrote a value
of `a`, or wrote the value after the one that `a` read.

Started as a program: directory, client, transactions, concurrency. It prints a line of JSON before each
commit, and one after it; a killed client leaves an open end.
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from seqstore import ConflictError, Session, Settings, Store
from tests.support.rows import schema_of

TABLES: Final = ("a", "b")
KEYS: Final = (1, 2, 3)
SETTINGS: Final = Settings(catalog_bytes_max=2**26, auto_compaction=0)
OK, ABORTED, OPEN = "ok", "aborted", "open"
Cell = str


@dataclass
class Transaction:
    """What a client knows of a transaction.

    Attributes:
        reads: the list of each cell that it read.
        appends: the number that it appended, by cell.
    """

    name: str
    reads: dict[Cell, list[int]] = field(default_factory=dict)
    appends: dict[Cell, int] = field(default_factory=dict)
    status: str = OPEN


def make_store(path: Path) -> None:
    with Store.open(path, settings=SETTINGS) as store:
        store.create_database("db")
        for name in TABLES:
            store.create_table(f"db.{name}", schema_of("k INT NOT NULL", "v STRING"))


# the clients


def work(path: Path, client: int, count: int, concurrency: str) -> None:
    """Runs transactions and prints what they saw."""
    chosen = random.Random(client)
    with Store.open(path, settings=SETTINGS) as store, Session(store, "db") as session:
        for number in range(count):
            done = Transaction(f"{client}-{number}")
            if chosen.random() < 0.3:
                done.reads = read_all(session)
                done.status = OK
            else:
                _change(store, done, client * 10**6 + number, chosen, concurrency)
            _tell(done)


def read_all(session: Session) -> dict[Cell, list[int]]:
    """Reads all cells of both tables in one statement."""
    text = " UNION ALL ".join(f"SELECT '{name}' AS t, k, v FROM {name}" for name in TABLES)
    (result,) = session.execute(text)
    assert result.rows is not None
    found = {f"{name}{key}": list[int]() for name in TABLES for key in KEYS}
    return found | {f"{row['t']}{row['k']}": _numbers(row["v"]) for row in result.rows.to_pylist()}


def _change(store: Store, done: Transaction, number: int, chosen: random.Random, concurrency: str) -> None:
    cells = chosen.sample([(name, key) for name in TABLES for key in KEYS], chosen.choice((1, 2, 2)))
    written = cells[: chosen.choice((1, len(cells)))]
    options: dict[str, Any] = {"concurrency": concurrency, "isolation": "Serializable"}
    with store.transaction(**options) as transaction:
        for name, key in cells:
            rows = transaction.table(f"db.{name}").get(pa.table({"k": pa.array([key], pa.int32())}), ["v"])
            done.reads[f"{name}{key}"] = _numbers(rows.column("v").to_pylist()[0]) if len(rows) else []
        for name, key in written:
            done.appends[f"{name}{key}"] = number
            value = ",".join(map(str, [*done.reads[f"{name}{key}"], number]))
            data = pa.table({"k": pa.array([key], pa.int32()), "v": [value]})
            transaction.table(f"db.{name}").upsert(data)
        _tell(done)
        try:
            transaction.commit()
            done.status = OK
        except ConflictError:
            done.status = ABORTED


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def _tell(done: Transaction) -> None:
    print(json.dumps(done.__dict__), flush=True)


def told(lines: Iterable[str]) -> list[Transaction]:
    """Reads what a client printed; the last word about a transaction counts."""
    found = {}
    for line in lines:
        if line.endswith("\n"):
            transaction = Transaction(**json.loads(line))
            found[transaction.name] = transaction
    return list(found.values())


# the checker


def faults(history: list[Transaction], last: dict[Cell, list[int]]) -> list[str]:
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
        for cell, number in each.appends.items():
            if each.status == OK and number not in last.get(cell, []):
                found.append(f"{cell} has lost {number} of {each.name}")
        for cell, numbers in each.reads.items():
            if each.status == OK and numbers != last.get(cell, [])[: len(numbers)]:
                found.append(f"{each.name} has read {numbers} of {cell}, which became {last.get(cell)}")
    return found or _cycle(_edges(history, last, writers))


def _edges(
    history: list[Transaction], last: dict[Cell, list[int]], writers: dict[tuple[Cell, int], Transaction]
) -> dict[str, set[str]]:
    """Returns for each transaction those that must come after it."""
    after: dict[str, set[str]] = defaultdict(set)

    def order(first: str, second: str) -> None:
        if first != second:
            after[first].add(second)

    for cell, numbers in last.items():
        names = [writers[cell, number].name for number in numbers]
        for one, other in pairwise(names):
            order(one, other)
        for each in history:
            if each.status == ABORTED or cell not in each.reads:
                continue
            if each.status == OPEN and not any(
                number in last[where] for where, number in each.appends.items()
            ):
                continue
            place = len(each.reads[cell])
            if place:
                order(names[place - 1], each.name)
            if place < len(names):
                order(each.name, names[place])
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


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
