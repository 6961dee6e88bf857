"""One of several processes that update the same keys of three tables, and what they do.

It appends each load it committed to `DIRECTORY.<number>.log`, pickled: a `Committed`.
"""

from __future__ import annotations

import pickle
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seqstore import Settings, Store, TableSchema
from tests.support.groups.group_model import Group, GroupModel
from tests.support.partial_model import DELETE_SIGN, FIXED, FLEXIBLE, PartialModel
from tests.support.rows import column

PROCESSES = 8
KEYS = 1_000
OWN = [f"c{number}" for number in range(PROCESSES)]  # one for each process
GROUPS = [Group((f"s{number}",), (f"c{number}", f"d{number}")) for number in range(PROCESSES // 2)]
PLAIN, MAPPED, GROUPED = "db.plain", "db.mapped", "db.grouped"
Row = dict[str, Any]


@dataclass(frozen=True)
class Committed:
    """A load: the version it reported, and its rows in order."""

    table: str
    label: str
    version: int
    mode: str
    rows: Sequence[Row]


def make_tables(store: Store) -> None:
    store.create_database("db")
    skip = {"enable_unique_key_skip_bitmap_column": "true"}
    shared = [column(f"{name} int") for name in [*OWN, "both"]]
    key = column("k int NOT NULL")
    store.create_table(PLAIN, TableSchema.create([key, *shared], ["k"], properties=skip))
    mapped = skip | {"function_column.sequence_col": "s"}
    store.create_table(
        MAPPED, TableSchema.create([key, *shared, column("s bigint")], ["k"], properties=mapped)
    )
    columns = [column(f"{name} int") for group in GROUPS for name in (*group.sequence, *group.cells)]
    grouped = skip | {f"sequence_mapping.{g.sequence[0]}": ",".join(g.cells) for g in GROUPS}
    store.create_table(GROUPED, TableSchema.create([key, *columns], ["k"], properties=grouped))


def make_models() -> dict[str, PartialModel | GroupModel]:
    return {
        PLAIN: PartialModel(["k"], [*OWN, "both"]),
        MAPPED: PartialModel(["k"], [*OWN, "both", "s"], "s"),
        GROUPED: GroupModel(["k"], GROUPS),
    }


def settings() -> Settings:
    return Settings(inline_bytes_max=2_000, catalog_bytes_max=2**30)


def rows_for(table: str, number: int, choose: random.Random) -> tuple[str, list[Row]]:
    """The rows of a load and its mode: columns of one's own, shared ones, deletes, keys that come twice."""
    mode = choose.choice([FIXED, FIXED, FIXED, FLEXIBLE])
    deletes = choose.random() < 0.1
    names = [OWN[number], "both"] if choose.random() < 0.5 else [OWN[number]]
    group = GROUPS[number % len(GROUPS)]  # two processes share each
    rows: list[Row] = []
    for _ in range(choose.randint(1, 40)):
        row: Row = {"k": choose.randrange(KEYS)}
        if table == GROUPED:
            row |= dict.fromkeys(group.sequence, choose.randrange(2**20))
            row |= {name: choose.randrange(2**20) for name in group.cells}
        else:
            given = choose.sample(names, choose.randint(1, len(names))) if mode == FLEXIBLE else names
            row |= {name: choose.randrange(2**20) for name in given}
            if table == MAPPED and (mode == FIXED or choose.random() < 0.5):
                row["s"] = choose.randrange(2**20)
        if deletes:
            row[DELETE_SIGN] = 1
        rows.append(row)
    return mode, rows


def arrow_of(rows: Sequence[Row], schema: TableSchema) -> tuple[pa.Table, dict[str, np.ndarray]]:
    """Rows as a batch, and which of them supply a column that not all do."""
    names = [name for name in [*schema.names, DELETE_SIGN] if any(name in row for row in rows)]
    data = pa.table({name: [row.get(name) for row in rows] for name in names})
    masks = {name: np.array([name in row for row in rows]) for name in names if name in schema.names[1:]}
    return data, {name: mask for name, mask in masks.items() if not mask.all()}


def loads(store: Store, number: int, choose: random.Random, count: int) -> Iterator[Committed]:
    for serial in range(1, count + 1):
        name = choose.choice([PLAIN, MAPPED, GROUPED])
        table = store.table(name)
        mode, rows = rows_for(name, number, choose)
        label = f"{number}-{serial}"
        with table.begin_load(label=label, mode=mode) as load:
            data, supplied = arrow_of(rows, table.schema)
            load.write(data, supplied=supplied)
            phases = choose.random()
            if phases < 0.2:
                load.prepare()  # filled early: others commit before the commit point
                time.sleep(choose.random() / 100)
            if phases < 0.8:
                version = load.commit().version
            else:
                load.precommit()
                time.sleep(choose.random() / 20)
                version = store.commit_transaction("db", label=label).version
            yield Committed(name, label, version, mode, rows)


def main(directory: str, number: int, count: int, seed: int) -> None:
    """Waits for a line, then works."""
    choose = random.Random(seed * PROCESSES + number)
    with (
        Store.open(directory, settings=settings()) as store,
        Path(f"{directory}.{number}.log").open("wb") as log,
    ):
        print("ready", flush=True)
        sys.stdin.readline()
        for committed in loads(store, number, choose, count):
            pickle.dump(committed, log)
