"""Random histories of transactions on one small table, run on the real store and replayed on dictionaries.

A history has 2 to 5 transactions with overlapping windows over 4 keys. Each is of one of these kinds: blind
upserts of one or two keys, partial updates, deletes by key, conditional UPDATE and DELETE,
insert-if-absent, copies between keys, count-then-insert. Half of the tables have a sequence column. A few
histories follow each other on one table, each starting from whatever the last one left, tombstones included.

- Serializable: replaying what committed, in the order of commits, gives every snapshot.
- WriteSerializable: some order of what committed gives the last one.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seqstore import Column, ConflictError, Store, Table, TableSchema, TransactionTable, parse_type
from seqstore.store.schema.column import DELETE_SIGN, SEQUENCE_COL
from seqstore.store.transaction.transaction import Transaction

GROUP = 4  # histories on one table
KEYS = (1, 2, 3, 4)
COLUMNS = ("a", "b", "c")


@dataclass(frozen=True)
class Row:
    """One row of the model; `sequence` outlives the row in its tombstone."""

    values: Mapping[str, int | None]
    sequence: int | None = None
    live: bool = True


State = dict[int, Row]


@dataclass(frozen=True)
class Step:
    """One transaction: what it does to the store within a transaction, and to the model."""

    text: str
    run: Callable[[TransactionTable], None]
    replay: Callable[[State], None]


def _schema(has_sequence: bool, level: str) -> TableSchema:
    columns = [Column("k", parse_type("INT"), nullable=False)]
    columns += [Column(name, parse_type("INT")) for name in COLUMNS]
    properties = {"delta.isolationLevel": level, "disable_auto_compaction": "true"}
    if has_sequence:
        columns.append(Column("s", parse_type("INT")))
        properties["function_column.sequence_col"] = "s"
    return TableSchema.create(columns, ["k"], properties=properties)


def _upsert(state: State, key: int, values: Mapping[str, Any], sequence: int | None) -> None:
    stored = state.get(key)
    if stored is not None and _smaller(sequence, stored.sequence):
        return
    state[key] = Row({**dict.fromkeys(COLUMNS), **values}, sequence)


def _smaller(left: int | None, right: int | None) -> bool:
    return right is not None and (left is None or left < right)


def _partial(state: State, key: int, values: Mapping[str, Any]) -> None:
    stored = state.get(key)
    old = stored.values if stored is not None and stored.live else dict.fromkeys(COLUMNS)
    state[key] = Row({**old, **values}, stored.sequence if stored is not None else None)


def _delete(state: State, key: int) -> None:
    stored = state.get(key)
    state[key] = Row(dict.fromkeys(COLUMNS), stored.sequence if stored is not None else None, live=False)


def _live(state: State) -> dict[int, Row]:
    return {key: row for key, row in state.items() if row.live}


class Maker:
    """Draws the transactions of one history."""

    def __init__(self, rng: random.Random, has_sequence: bool) -> None:
        self.rng = rng
        self.has_sequence = has_sequence
        self.sequence_min = 0

    def step(self) -> Step:
        kinds = (
            self.upsert,
            self.upsert,
            self.partial,
            self.delete,
            self.update,
            self.update,
            self.delete_where,
            self.insert_if_absent,
            self.copy,
            self.count_then_insert,
        )
        return self.rng.choice(kinds)()

    def _row(self) -> dict[str, int]:
        return {name: self.rng.randrange(3) for name in COLUMNS}

    def _sequence(self) -> int | None:
        return self.sequence_min + self.rng.randrange(4) if self.has_sequence else None

    def _table(self, rows: Mapping[int, Mapping[str, int]], sequences: Mapping[int, int | None]) -> pa.Table:
        table: dict[str, list[Any]] = {"k": list(rows)}
        for name in COLUMNS:
            table[name] = [row[name] for row in rows.values()]
        if self.has_sequence:
            table["s"] = [sequences[key] for key in rows]
        return pa.table({name: pa.array(values, pa.int32()) for name, values in table.items()})

    def upsert(self) -> Step:
        rows = {key: self._row() for key in self.rng.sample(KEYS, self.rng.choice((1, 1, 2)))}
        sequences = {key: self._sequence() for key in rows}
        data = self._table(rows, sequences)

        def replay(state: State) -> None:
            for key, values in rows.items():
                _upsert(state, key, values, sequences[key])

        return Step(f"upsert {rows} {sequences}", lambda t: _written(t.upsert(data)), replay)

    def partial(self) -> Step:
        key, name, value = self.rng.choice(KEYS), self.rng.choice(COLUMNS), self.rng.randrange(3)
        data = pa.table({"k": pa.array([key], pa.int32()), name: pa.array([value], pa.int32())})

        def run(table: TransactionTable) -> None:
            table.upsert(data, mode="UPDATE_FIXED_COLUMNS")

        return Step(f"partial {key} {name}={value}", run, lambda state: _partial(state, key, {name: value}))

    def delete(self) -> Step:
        keys = self.rng.sample(KEYS, self.rng.choice((1, 2)))
        data = pa.table({"k": pa.array(keys, pa.int32())})

        def replay(state: State) -> None:
            for key in keys:
                _delete(state, key)

        return Step(f"delete {keys}", lambda t: _written(t.delete(data)), replay)

    def _condition(self) -> tuple[str, pc.Expression, Callable[[int, Mapping[str, Any]], bool]]:
        name, value, key = self.rng.choice(COLUMNS), self.rng.randrange(3), self.rng.choice(KEYS)
        form = self.rng.randrange(3)
        if form == 0:
            return f"k={key}", pc.field("k") == key, lambda k, row: k == key
        if form == 1:
            return f"{name}={value}", pc.field(name) == value, lambda k, row: row[name] == value
        return (
            f"{name}>{value}",
            pc.field(name) > value,
            lambda k, row: row[name] is not None and row[name] > value,
        )

    def update(self) -> Step:
        text, where, test = self._condition()
        target, source, value = self.rng.choice(COLUMNS), self.rng.choice(COLUMNS), self.rng.randrange(3)
        forms: list[tuple[str, Any, Callable[[Mapping[str, Any]], Any]]] = [
            (f"{value}", value, lambda row: value),
            (f"{source}", pc.field(source), lambda row: row[source]),
            (
                f"{source}+1",
                pc.field(source) + 1,
                lambda row: None if row[source] is None else row[source] + 1,
            ),
        ]
        shown, expression, compute = self.rng.choice(forms)

        def replay(state: State) -> None:
            for key, row in _live(state).items():
                if test(key, row.values):
                    _partial(state, key, {target: compute(row.values)})

        return Step(
            f"update {target}={shown} where {text}",
            lambda t: _written(t.update({target: expression}, where)),
            replay,
        )

    def delete_where(self) -> Step:
        text, where, test = self._condition()

        def replay(state: State) -> None:
            for key, row in _live(state).items():
                if test(key, row.values):
                    _delete(state, key)

        return Step(f"delete where {text}", lambda t: _written(t.delete_where(where)), replay)

    def insert_if_absent(self) -> Step:
        key, row, sequence = self.rng.choice(KEYS), self._row(), self._sequence()
        data, wanted = self._table({key: row}, {key: sequence}), _key_table(key)

        def run(table: TransactionTable) -> None:
            if not len(table.get(wanted, ["k"])):
                table.upsert(data)

        def replay(state: State) -> None:
            if key not in _live(state):
                _upsert(state, key, row, sequence)

        return Step(f"insert if absent {key} {row} {sequence}", run, replay)

    def copy(self) -> Step:
        source, target = self.rng.sample(KEYS, 2)
        name = self.rng.choice(COLUMNS)
        wanted = _key_table(source)

        def run(table: TransactionTable) -> None:
            found = table.get(wanted, [name])
            if len(found):
                data = pa.table({"k": pa.array([target], pa.int32()), name: found.column(name)})
                table.upsert(data, mode="UPDATE_FIXED_COLUMNS")

        def replay(state: State) -> None:
            row = _live(state).get(source)
            if row is not None:
                _partial(state, target, {name: row.values[name]})

        return Step(f"copy {name} of {source} to {target}", run, replay)

    def count_then_insert(self) -> Step:
        text, where, test = self._condition()
        key, row, sequence = self.rng.choice(KEYS), self._row(), self._sequence()

        def rows_of(count: int) -> dict[str, int]:
            return {**row, "a": count}

        def run(table: TransactionTable) -> None:
            table.upsert(self._table({key: rows_of(table.count(where))}, {key: sequence}))

        def replay(state: State) -> None:
            count = sum(test(k, found.values) for k, found in _live(state).items())
            _upsert(state, key, rows_of(count), sequence)

        return Step(f"count {text} into {key} {row} {sequence}", run, replay)


def _key_table(key: int) -> pa.Table:
    return pa.table({"k": pa.array([key], pa.int32())})


def _written(_result: object) -> None:
    return None


def memory_directory() -> str | None:
    """Where a commit costs no disk; the usual place where there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def run_group(store: Store, name: str, seed: int) -> tuple[str, int]:
    """Runs `GROUP` histories one after the other on one table and checks them.

    Returns:
        Empty when an order explains each of them, else what happened in the first that has none; and how many
        transactions they had.
    """
    rng = random.Random(seed)
    level = rng.choice(("Serializable", "WriteSerializable"))
    has_sequence = rng.random() < 0.5
    table = store.create_table(f"db.{name}", _schema(has_sequence, level))
    maker = Maker(rng, has_sequence)
    first = {key: maker._row() for key in rng.sample(KEYS, rng.randrange(1, 4))}
    table.upsert(maker._table(first, {key: maker._sequence() for key in first}))
    failure, transactions = "", 0
    for number in range(GROUP):
        maker.sequence_min = number // 2
        start = _stored(table)
        steps = [maker.step() for _ in range(maker.rng.randrange(2, 6))]
        transactions += len(steps)
        failure = _run_history(store, table, maker.rng, steps, level, start)
        if failure:
            failure = f"seed {seed}, history {number}, {level} sequence={has_sequence}, {start}\n{failure}"
            break
    store.drop_table(table.name)
    return failure, transactions


def _run_history(
    store: Store, table: Table, rng: random.Random, steps: list[Step], level: str, start: State
) -> str:
    log: list[str] = []
    committed: list[Step] = []
    snapshots: list[dict[int, dict[str, Any]]] = []
    opened: dict[int, Transaction] = {}
    events = [*range(len(steps))] * 2
    rng.shuffle(events)
    for number in events:
        transaction = opened.get(number)
        if transaction is None:
            transaction = opened[number] = store.transaction(concurrency="optimistic")
            steps[number].run(transaction.table(table.name))
            log.append(f"begin {number}: {steps[number].text}")
            continue
        try:
            done = transaction.commit()
        except ConflictError as error:
            log.append(f"abort {number}: {error}")
            continue
        if not done.versions:  # it only read
            continue
        committed.append(steps[number])
        snapshots.append(_seen(table.scan(["k", *COLUMNS]).read_all()))
        log.append(f"commit {number}: {snapshots[-1]}")
    if not committed or _in_order(start, committed, snapshots):
        return ""
    orders = itertools.permutations(committed)
    if level == "WriteSerializable" and any(_final(start, order) == snapshots[-1] for order in orders):
        return ""
    return "\n".join(log)


def _stored(table: Table) -> State:
    """What the table holds, with sequences and tombstones."""
    rows = table.scan(hidden=True, deleted=True).read_all().to_pylist()
    return {
        row["k"]: Row(
            {name: row[name] for name in COLUMNS} if not row[DELETE_SIGN] else dict.fromkeys(COLUMNS),
            row.get(SEQUENCE_COL),
            live=not row[DELETE_SIGN],
        )
        for row in rows
    }


def _seen(rows: pa.Table) -> dict[int, dict[str, Any]]:
    return {row.pop("k"): row for row in rows.to_pylist()}


def _in_order(start: State, steps: list[Step], snapshots: list[dict[int, dict[str, Any]]]) -> bool:
    state = dict(start)
    for step, seen in zip(steps, snapshots, strict=True):
        step.replay(state)
        if _values(state) != seen:
            return False
    return True


def _final(start: State, steps: tuple[Step, ...]) -> dict[int, dict[str, Any]]:
    state = dict(start)
    for step in steps:
        step.replay(state)
    return _values(state)


def _values(state: State) -> dict[int, dict[str, Any]]:
    return {key: dict(row.values) for key, row in state.items() if row.live}
