"""Random histories of loads and changes of types are those of a plain dict, at every version of the table.

The model converts values with Python alone. A change that one of its values, or two of its keys, do not admit
is cancelled in the store.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pytest

from seqstore import Settings, Store, Table
from seqstore.store.runtime import failpoint
from seqstore.store.sql import Session
from tests.seeds import new_seed
from tests.support.statements import run
from tests.weight import by_form

STEPS: Final = 30
TEXT: Final = "VARCHAR(60)"
NEXT: Final = {
    "INT": ("BIGINT", "LARGEINT", "DOUBLE", TEXT, "STRING"),
    "BIGINT": ("LARGEINT", "DOUBLE", TEXT),
    "LARGEINT": (TEXT,),
    "DOUBLE": (TEXT,),
    TEXT: ("INT", "BIGINT", "DOUBLE", "JSON", "STRING"),
    "STRING": ("JSON",),
    "JSON": (TEXT,),
}
NEXT_KEYS: Final = {"INT": ("BIGINT", TEXT), "BIGINT": (TEXT,), TEXT: ("INT", "BIGINT")}


class Misfit(Exception):
    """A value has no form in a type."""


def converted(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "JSON":
        try:
            json.loads(value)
        except ValueError as error:
            raise Misfit from error
        return value
    if kind in (TEXT, "STRING"):
        return f"{value:g}" if isinstance(value, float) else str(value)
    try:
        number = float(value)
    except ValueError as error:
        raise Misfit from error
    return number if kind == "DOUBLE" else int(number)


@dataclass
class Model:
    """The rows of one version, under its types."""

    key: str = "INT"
    value: str = "INT"
    rows: dict[Any, Any] = field(default_factory=dict)

    def changed(self, key: str, value: str) -> Model | None:
        """Returns the rows under other types, None where they do not fit."""
        rows: dict[Any, Any] = {}
        try:
            for k, v in self.rows.items():
                new = k if key == self.key else converted(k, key)
                rows[new] = v if value == self.value else converted(v, value)
        except Misfit:
            return None
        return Model(key, value, rows) if len(rows) == len(self.rows) else None

    def copy(self) -> Model:
        return Model(self.key, self.value, dict(self.rows))


class History:
    """One random history on one table."""

    def __init__(self, store: Store, chosen: random.Random) -> None:
        self.store = store
        self.chosen = chosen
        self.model = Model()
        self.past: dict[int, Model] = {}
        with Session(store, "db") as session:
            run(session, "CREATE TABLE t (k INT NOT NULL, v INT NULL, w INT NULL) UNIQUE KEY(k)")
        self.note()

    @property
    def table(self) -> Table:
        return self.store.table("db.t")

    def note(self) -> None:
        self.past[self.table.version] = self.model.copy()

    def key(self) -> Any:
        number = self.chosen.randrange(30)
        if self.model.key != TEXT:
            return number
        return self.chosen.choice([str(number)] * 12 + [f"0{number}", "x"])

    def value(self) -> Any:
        number = self.chosen.randrange(-1000, 1000)
        if self.chosen.random() < 0.2:
            return None
        if self.model.value == "DOUBLE":
            return number / 2
        if self.model.value in (TEXT, "STRING"):
            return self.chosen.choice([str(number)] * 30 + ["x", "", f"{number}.5"])
        return str(number) if self.model.value == "JSON" else number

    def load(self) -> None:
        rows = {self.key(): self.value() for _ in range(self.chosen.randrange(1, 12))}
        columns = {"k": list(rows), "v": list(rows.values())}
        if self.chosen.random() < 0.5:
            self.table.upsert(pa.table(columns), mode="UPDATE_FIXED_COLUMNS")
        else:
            self.table.upsert(pa.table({**columns, "w": [1] * len(rows)}))
        self.model.rows |= rows
        self.note()

    def delete(self) -> None:
        keys = {self.key() for _ in range(5)}
        self.table.delete(pa.table({"k": list(keys)}))
        for key in keys:
            self.model.rows.pop(key, None)
        self.note()

    def compact(self) -> None:
        self.table.optimize(full=True)
        self.note()

    def restore(self) -> None:
        version = self.chosen.choice(list(self.past))
        self.table.restore(version)
        self.model = self.past[version].copy()
        self.note()

    def change_type(self) -> None:
        """Changes the type of the key, of the value or of both; sometimes with loads in the middle."""
        key, value = self.model.key, self.model.value
        which = self.chosen.choice(["key", "value", "value", "both"])
        if which in ("key", "both"):
            key = self.chosen.choice(NEXT_KEYS[key])
        if which in ("value", "both"):
            value = self.chosen.choice(NEXT[value])
        changes = [f"MODIFY COLUMN k {key} KEY NOT NULL"] * (key != self.model.key)
        changes += [f"MODIFY COLUMN v {value} NULL"] * (value != self.model.value)
        before = self.model.copy()
        meanwhile = self.chosen.choice([self.load, self.delete, self.compact, None])
        with self.between(meanwhile), Session(self.store, "db") as session:
            run(session, f"ALTER TABLE t {', '.join(changes)}")
            self.store.schema_changes.wait()
        job = list(self.store.schema_changes.jobs("db").values())[-1]
        changed = self.model.changed(key, value)
        if job.state == "CANCELLED" and before.changed(key, value) is None:
            return  # the value may have gone meanwhile
        if changed is None:
            assert job.state == "CANCELLED", (key, value)
        else:
            assert (job.state, job.message) == ("FINISHED", ""), (key, value)
            self.model = changed
            self.note()

    @contextlib.contextmanager
    def between(self, work: Callable[[], None] | None) -> Iterator[None]:
        """Runs some work after the job has written its first rows."""
        waiting = [] if work is None else [work]
        before = failpoint.hit

        def hit(name: str) -> None:
            if name == "rewrite.merged" and waiting:
                waiting.pop()()

        failpoint.hit = hit
        try:
            yield
        finally:
            failpoint.hit = before

    def check(self, version: int) -> None:
        wanted = self.past[version]
        read = self.table.scan(["k", "v"], version=version).read_all()
        found = {row["k"]: row["v"] for row in read.to_pylist()}
        assert len(found) == read.num_rows
        assert found == wanted.rows, version

    def check_keys(self) -> None:
        """Looks up keys of the newest version."""
        keys = [self.key() for _ in range(10)]
        found = self.table.get(pa.table({"k": keys}), ["k", "v"]).to_pylist()
        assert [(row["k"], row["v"]) for row in found] == [
            (key, self.model.rows[key]) for key in keys if key in self.model.rows
        ]


@pytest.mark.parametrize("number", range(by_form(3, 20)))
def test_a_history_with_changes_of_types_is_that_of_a_dict(tmp_path: Any, number: int) -> None:
    seed = new_seed()
    print("seed", seed)
    chosen = random.Random(seed)
    sizes = Settings(
        auto_compaction=0,
        segment_rows=chosen.choice([5, 1_000]),
        inline_bytes_max=chosen.choice([0, 300, 100_000]),
        batch_rows_max=chosen.choice([3, 1_000]),
    )
    with Store.open(tmp_path / "data", settings=sizes) as store:
        store.create_database("db")
        history = History(store, chosen)
        steps = [history.load] * 4 + [history.delete, history.compact, history.restore]
        for _ in range(STEPS):
            chosen.choice([*steps, *[history.change_type] * 4])()
            history.check(history.table.version)
            history.check(chosen.choice(list(history.past)))
            history.check_keys()
        assert history.table.check() == []
