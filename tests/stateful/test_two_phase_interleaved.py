"""Loads committed at once and loads pre-committed and ended later, in any order, against dictionaries.

Every example is one table and a list of steps. The model applies a load when it is committed, to the rows of
that moment: filling from an older snapshot and aligning at commit must come to the same (C1-C12, C15-C18,
PC9).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqstore import Column, Default, Settings, Store, Table, TableSchema, parse_type
from tests.support.partial_model import DELETE_SIGN, FIXED, FLEXIBLE, ROWS, SEQUENCE_COL, PartialModel
from tests.weight import by_form, torture_minutes

Row = dict[str, Any]
VALUES = ("a", "b", "s")
SEQUENCES = {
    "none": (None, {}),
    "mapped": ("s", {"function_column.sequence_col": "s"}),
    "mapped with default": ("s", {"function_column.sequence_col": "s"}),
    "hidden": (SEQUENCE_COL, {"function_column.sequence_type": "int"}),
}

NUMBERS = st.one_of(st.none(), st.integers(0, 6))
RAW_ROWS = st.lists(
    st.tuples(
        st.integers(0, 5),  # key
        st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),  # cells of a, b, s and the hidden sequence
        st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),  # which of them are supplied
        st.sampled_from([0, 0, 0, 1]),  # delete sign
    ),
    min_size=1,
    max_size=7,
)
LOADS = st.tuples(st.sampled_from(["load", "precommit"]), st.sampled_from([ROWS, FIXED, FLEXIBLE]), RAW_ROWS)
ENDS = st.tuples(st.sampled_from(["commit", "commit", "abort", "reopen"]), st.integers(0, 9), st.none())
STEPS = st.lists(st.one_of(LOADS, LOADS, ENDS), min_size=3, max_size=18)


@dataclass
class Pending:
    """A pre-committed load."""

    txn_id: int
    rows: list[Row]
    mode: str


class Story:
    """One table, its model, and the loads that wait."""

    def __init__(self, path: Path, sequence: str, inline_bytes: int) -> None:
        self.path = path
        self.settings = Settings(catalog_bytes_max=2**26, inline_bytes_max=inline_bytes)
        self.sequence, properties = SEQUENCES[sequence]
        default = Default("constant", "3") if sequence == "mapped with default" else None
        columns = [Column("k", parse_type("int"), nullable=False)]
        columns += [Column(n, parse_type("int"), default=default if n == "s" else None) for n in VALUES]
        self.store = Store.open(path, settings=self.settings)
        self.store.create_database("db")
        self.store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))
        defaults = {"s": 3} if default else {}
        self.model = PartialModel(["k"], VALUES, self.sequence, defaults)
        self.pending: list[Pending] = []

    @property
    def table(self) -> Table:
        return self.store.table("db.t")

    def rows(self, mode: str, raw: list[Any]) -> list[Row]:
        """Rows with the cells they supply: all in whole rows, the first row's in fixed updates."""
        names = [*VALUES, *([SEQUENCE_COL] if self.sequence == SEQUENCE_COL else [])]
        made = []
        for key, cells, supplied, sign in raw:
            chosen = {ROWS: (True,) * 4, FIXED: raw[0][2], FLEXIBLE: supplied}[mode]
            row: Row = {"k": key, DELETE_SIGN: sign}
            row |= {n: cell for n, cell, is_given in zip(names, cells, chosen, strict=False) if is_given}
            made.append(row)
        return made

    def run(self, what: str, mode_or_number: Any, raw: Any) -> None:
        if what in ("load", "precommit"):
            self._load(what, mode_or_number, self.rows(mode_or_number, raw))
        elif what == "reopen":
            self.store.close()
            self.store = Store.open(self.path, create=False, settings=self.settings)
        elif self.pending:
            chosen = self.pending.pop(mode_or_number % len(self.pending))
            if what == "abort":
                self.store.abort_transaction("db", txn_id=chosen.txn_id)
                return
            self.store.commit_transaction("db", txn_id=chosen.txn_id)
            self.model.apply(chosen.rows, chosen.mode)

    def _load(self, what: str, mode: str, rows: list[Row]) -> None:
        names = list(dict.fromkeys(name for row in rows for name in row))
        data = pa.table({name: pa.array([row.get(name) for row in rows], pa.int32()) for name in names})
        masks = {name: np.array([name in row for row in rows]) for name in names if name != DELETE_SIGN}
        with self.table.begin_load(mode=mode) as load:
            load.write(data, supplied=masks if mode == FLEXIBLE else None)
            if what == "load":
                load.commit()
                self.model.apply(rows, mode)
            else:
                self.pending.append(Pending(load.precommit().txn_id, rows, mode))

    def agree(self) -> None:
        found = self.table.scan(["k", *VALUES], hidden=False).read_all().to_pylist()
        live = {(row["k"],): {name: row[name] for name in VALUES} for row in found}
        assert len(live) == len(found)
        assert live == self.model.live()
        if self.sequence is not None:
            names = ["k", DELETE_SIGN, SEQUENCE_COL]
            stored = self.table.scan(names, deleted=True).read_all().to_pylist()
            seen = {(row["k"],): (row[DELETE_SIGN], row[SEQUENCE_COL]) for row in stored}
            assert seen == self.model.hidden()

    def end(self) -> None:
        """Commits what waits, last first, and reads all back."""
        while self.pending:
            self.run("commit", -1, None)
            self.agree()
        assert self.table.check() == []
        self.store.close()


def tell(sequence: str, inline_bytes: int, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        story = Story(Path(directory) / "data", sequence, inline_bytes)
        for step in steps:
            story.run(*step)
            story.agree()
        story.end()


TABLES = st.sampled_from(sorted(SEQUENCES))
SIZES = st.sampled_from([1, 2**18])


@settings(max_examples=by_form(30, 180), suppress_health_check=list(HealthCheck))
@given(sequence=TABLES, inline_bytes=SIZES, steps=STEPS)
def test_any_order_of_two_phase_loads_is_the_order_of_their_commits(
    sequence: str, inline_bytes: int, steps: list[Any]
) -> None:
    """P, F, C and PC together."""
    tell(sequence, inline_bytes, steps)


@pytest.mark.torture
def test_any_order_of_two_phase_loads_is_the_order_of_their_commits_at_length() -> None:
    chosen = settings(
        max_examples=int(torture_minutes() * 300),
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    chosen(given(sequence=TABLES, inline_bytes=SIZES, steps=STEPS)(tell))()
