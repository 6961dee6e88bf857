"""What concurrency tests let threads and processes do, and how the outcome is compared.

Every writer has a list of operations that follow from a seed; each reports the version it made. Replaying all
of them in the order of versions in a `Model` must give every version of the table. This module is imported by
spawned processes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from seqstore import (
    AlreadyExistsError,
    LabelExistsError,
    ProtocolChangedException,
    Settings,
    Store,
    StoreError,
    Table,
    TableSchema,
)
from tests.support.compare import assert_version
from tests.support.model import Model, ModelRow
from tests.support.rows import schema_of

KEYS: Final = 60
SEQUENCES: Final = [None, *range(8)]
ROWS_MAX: Final = 25
FIGURES: Final = ("rows_loaded", "rows_superseded", "rows_late", "rows_replaced", "rows_deleted")
# Files and catalog records, several segments a load, several batches a segment; compactions come in between.
SMALL_FILES: Final = Settings(inline_bytes_max=1, segment_rows=8, batch_rows_max=4, catalog_bytes_max=2**28)
INLINE: Final = Settings(catalog_bytes_max=2**28)
UNCOMPACTED: Final = replace(SMALL_FILES, auto_compaction=0)
Shown = dict[int, tuple[int | None, str]]


def contended_schema() -> TableSchema:
    return schema_of("k INT NOT NULL", "s BIGINT", "v STRING", sequence_col="s")


@dataclass(frozen=True)
class Operation:
    """One load of rows (key, sequence, sign), or a delete of keys when there are no rows."""

    name: str
    rows: tuple[tuple[int, int | None, int], ...]
    keys: tuple[int, ...]

    @classmethod
    def of(cls, seed: int, writer: int, number: int) -> Operation:
        chosen = random.Random(f"{seed}/{writer}/{number}")
        name = f"w{writer}-{number}"
        if chosen.random() < 0.2:
            return cls(name, (), tuple(chosen.sample(range(KEYS), chosen.randint(1, 6))))
        rows = [
            (chosen.randrange(KEYS), chosen.choice(SEQUENCES), int(chosen.random() < 0.15))
            for _ in range(chosen.randint(1, ROWS_MAX))
        ]
        return cls(name, tuple(rows), ())

    def run(self, table: Table) -> Done:
        if not self.rows:
            return Done(self, table.delete(pa.table({"k": list(self.keys)}), label=self.name).version)
        keys, sequences, signs = zip(*self.rows, strict=True)
        data = {
            "k": pa.array(keys, pa.int32()),
            "s": pa.array(sequences, pa.int64()),
            "v": [f"{self.name}.{i}" for i in range(len(keys))],
            "__DELETE_SIGN__": pa.array(signs, pa.int8()),
        }
        result = table.upsert(pa.table(data), label=self.name, merge_type="MERGE")
        return Done(self, result.version, {name: getattr(result, name) for name in FIGURES})

    def replay(self, model: Model) -> dict[str, int]:
        """Applies it to the model; the figures a load must have told."""
        if not self.rows:
            model.delete([(key,) for key in self.keys])
            return {}
        result = model.load(
            ModelRow({"k": key, "s": sequence, "v": f"{self.name}.{i}"}, sequence, sign)
            for i, (key, sequence, sign) in enumerate(self.rows)
        )
        return {name: getattr(result, name) for name in FIGURES}


@dataclass(frozen=True)
class Done:
    """An operation, the version it made and the figures it told."""

    operation: Operation
    version: int
    figures: dict[str, int] = field(default_factory=dict)


def write_all(table: Table, seed: int, writer: int, loads: int) -> list[Done]:
    """One writer's work; versions it is told ascend."""
    done = [Operation.of(seed, writer, number).run(table) for number in range(loads)]
    versions = [each.version for each in done]
    assert versions == sorted(set(versions))
    return done


def read_until(table: Table, loads: int) -> dict[int, Shown]:
    """One reader's work: what each version it met showed, until it has met that many loads.

    Of every snapshot: versions ascend, no key twice, a second look, look-ups and the count agree.
    """
    seen: dict[int, Shown] = {}
    version = 0
    wanted = pa.table({"k": pa.array(range(KEYS), pa.int32())})
    while sum(1 for info in table.history() if info.label) < loads or version < table.version:
        with table.snapshot() as snapshot:
            assert snapshot.version >= version
            version = snapshot.version
            shown = shown_by(snapshot.scan().read_all())
            assert snapshot.count() == len(shown)
            assert shown_by(snapshot.get(wanted)) == shown
            assert shown_by(snapshot.scan().read_all()) == shown
            assert table.version >= version
            assert seen.setdefault(version, shown) == shown
    return seen


def shown_by(rows: pa.Table) -> Shown:
    shown: Shown = {}
    for row in rows.to_pylist():
        assert row["k"] not in shown, f"key {row['k']} has two rows"
        shown[row["k"]] = (row["s"], row["v"])
    return shown


def assert_replayed(table: Table, done: Sequence[Done], seen: Sequence[dict[int, Shown]]) -> None:
    """The table is what a replay in the order of versions gives, at every version, and was so all along."""
    by_name = {each.operation.name: each for each in done}
    model = Model(["k"], has_sequence=True)
    for info in table.history()[1:]:
        if info.label:
            each = by_name.pop(info.label)
            assert each.figures == each.operation.replay(model), each.operation
            assert each.version == model.version == info.version
        else:  # a compaction changes nothing
            model.versions.append(model.at(model.version))
    assert by_name == {}, "what was acknowledged is there"
    for observed in seen:
        for version, shown in observed.items():
            expected = {
                key[0]: (row.values["s"], row.values["v"]) for key, row in model.live(version).items()
            }
            assert shown == expected, f"version {version}"
    pool = [(key,) for key in range(KEYS)]
    for version in sorted({1, 2, model.version, *range(1, model.version, 7)}):
        assert_version(table, model, version, pool)
    assert table.check() == []


# Work of spawned processes. The barrier lets all of them begin at once.

_barrier: Any = None


def use_barrier(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def meet() -> None:
    _barrier.wait(timeout=120)


def writing_process(path: str, seed: int, writer: int, loads: int) -> list[Done]:
    table = Store.open(path, settings=INLINE if writer % 2 else SMALL_FILES).table("db.t")
    meet()
    return write_all(table, seed, writer, loads)


def reading_process(path: str, loads: int) -> dict[int, Shown]:
    table = Store.open(path, settings=INLINE).table("db.t")
    meet()
    return read_until(table, loads)


def labelling_process(path: str, process: int, labels: int) -> list[tuple[str, int, str, int]]:
    """Loads under labels that all processes use: (won or lost, transaction, status, version) of each."""
    table = Store.open(path, settings=INLINE).table("db.t")
    told = []
    for number in range(labels):
        meet()
        try:
            data = pa.table({"k": [number], "v": [f"process {process}"]})
            if number % 2:
                result = table.upsert(data, label=f"label-{number}")
            else:  # the label is taken when the load begins, and held for a while
                with table.begin_load(label=f"label-{number}") as load:
                    load.write(data)
                    result = load.commit()
            told.append(("won", result.txn_id, "VISIBLE", result.version))
        except LabelExistsError as error:
            told.append(("lost", error.txn_id, error.status, error.version))
    return told


def opening_process(paths: Sequence[str], process: int) -> list[tuple[bool, bool]]:
    """Opens fresh directories together with others: whether it made the database, and the table."""
    made = []
    for path in paths:
        meet()
        store = Store.open(path, settings=INLINE)
        made.append(
            (
                _happens(partial(store.create_database, "db")),
                _happens(partial(store.create_table, "db.t", schema_of("k INT NOT NULL"))),
            )
        )
        store.create_database("db", if_not_exists=True)
        store.create_table("db.t", schema_of("k INT NOT NULL"), if_not_exists=True)
        store.upsert("db.t", pa.table({"k": [process]}))
    return made


def recreating_process(path: str, seed: int, process: int, rounds: int) -> Counter[str]:
    """Makes, fills, reads and drops one table that others do the same with; how often what happened."""
    chosen = random.Random(f"{seed}/{process}")
    store = Store.open(path, settings=INLINE if process % 2 else UNCOMPACTED)
    schema = schema_of("k INT NOT NULL", "v INT")
    counts: Counter[str] = Counter()
    meet()
    for number in range(rounds):
        kind = chosen.choice(["create", "drop", "load", "load", "load", "count"])
        outcome = "done"
        try:
            if kind == "create":
                store.create_table("db.t", schema)
            elif kind == "drop":
                store.drop_table("db.t")
            elif kind == "load":
                keys = [chosen.randrange(20) for _ in range(5)]
                store.upsert("db.t", pa.table({"k": keys, "v": [number] * 5}))
            else:
                store.table("db.t").count()
        except StoreError as error:
            outcome = type(error).__name__
        counts[f"{kind} {outcome}"] += 1
    return counts


def _happens(make: Callable[[], Any]) -> bool:
    try:
        make()
    except (AlreadyExistsError, ProtocolChangedException):  # the latter of two that were made at once
        return False
    return True
