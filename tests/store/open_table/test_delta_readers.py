"""Readers of Delta that others wrote, against our own scan: delta-rs and Polars.

The package deltalake reads by its `QueryBuilder`; its way through pyarrow's data sets knows no deletion
vectors. Polars has readers of deletion vectors but none of column mapping, so it needs a table without.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Session, Store, Table
from tests.seeds import new_seed
from tests.store.open_table.test_delta import (
    COLUMNS,
    OPEN,
    assert_shown,
    root_of,
    rows,
    sorted_rows,
)
from tests.support.lake.delta_reader import commits, open_delta
from tests.support.rows import MakeTable
from tests.support.statements import last_result
from tests.weight import by_form

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")
MAPPING = "delta.columnMapping.mode"
LOADS = by_form(10, 60)


def by_delta_rs(root: Path, version: int | None = None) -> list[dict[str, Any]]:
    table = deltalake.DeltaTable(str(root), version=version)
    query = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t")
    return sorted_rows(pa.table(query.read_all()))


def by_polars(root: Path, version: int | None = None) -> list[dict[str, Any]]:
    import polars

    return sorted_rows(polars.scan_delta(str(root), version=version).collect().to_arrow())


def test_delta_rs_reads_three_versions_as_we_do(make_table: MakeTable, session: Session) -> None:
    table = make_table(*COLUMNS, **OPEN)
    table.upsert(rows(range(100)))
    table.upsert(rows(range(50, 150), "b"))
    table.delete(pa.table({"k": list(range(20))}))
    last_result(session, "UPDATE t SET w = 0 WHERE k < 40")
    last_result(session, "ALTER TABLE t RENAME COLUMN v text")
    last_result(session, "ALTER TABLE t ADD COLUMN v DATETIME(6)")
    last_result(session, "INSERT INTO t VALUES (1000, 'x', 1, '2024-02-29 12:34:56.789012')")
    last_result(session, "ALTER TABLE t DROP COLUMN w")
    root = root_of(table)
    for number in commits(root)[-3:]:
        shown = open_delta(root, number).shown
        assert by_delta_rs(root, number) == sorted_rows(table.scan(version=shown).read_all())


def test_polars_reads_three_versions_of_a_table_without_column_mapping(
    make_table: MakeTable, session: Session
) -> None:
    table = make_table(*COLUMNS, **OPEN, **{MAPPING: "none"})
    table.upsert(rows(range(100)))
    last_result(session, "ALTER TABLE t RENAME COLUMN v text")
    table.upsert(rows(range(50, 150)).rename_columns(["k", "text", "w"]))
    table.delete(pa.table({"k": list(range(20))}))
    root = root_of(table)
    assert any("deletionVector" in add for add in open_delta(root).files.values())
    for number in commits(root)[-3:]:
        shown = open_delta(root, number).shown
        expected = sorted_rows(table.scan(version=shown).read_all())
        assert by_delta_rs(root, number) == expected
        assert by_polars(root, number) == expected


def test_statistics_prune_no_row_that_is_there(make_table: MakeTable) -> None:
    """A filter of delta-rs finds the rows that the same filter of ours finds."""
    table = make_table("k BIGINT NOT NULL", "d DATE", "t DATETIME(6)", "x DOUBLE", "n DECIMAL(9,2)", **OPEN)
    for start in (0, 100, 200):
        keys = list(range(start, start + 100))
        found = pa.table({"k": keys}).append_column("d", pa.array(keys, pa.int32()).cast(pa.date32()))
        times = pa.array([key * 86_400_000_001 for key in keys], pa.int64()).cast(pa.timestamp("us"))
        found = found.append_column("t", times).append_column("x", pa.array([key / 3 for key in keys]))
        decimals = pa.array([f"{key}.25" for key in keys]).cast(pa.decimal128(9, 2))
        table.upsert(found.append_column("n", decimals))
    root = str(root_of(table))
    for condition in (
        "k = 199",
        "d = DATE '1970-07-19'",
        "t = TIMESTAMP '1970-07-19 00:00:00.000199'",
        "x > 66.3 AND x < 66.4",
        "n = 199.25",
    ):
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(root))
        found = pa.table(query.execute(f"SELECT k FROM t WHERE {condition}").read_all())
        assert found.column("k").to_pylist() == [199], condition


@pytest.mark.parametrize("mapping", ["id", "none"])
def test_writers_of_delta_rs_are_refused(make_table: MakeTable, mapping: str) -> None:
    table = make_table(*COLUMNS, **OPEN, **{MAPPING: mapping})
    table.upsert(rows(range(10)))
    table.upsert(rows(range(5), "b"))
    root = str(root_of(table))
    opened = deltalake.DeltaTable(root)
    writes: dict[str, Callable[[], object]] = {
        "append": lambda: deltalake.write_deltalake(root, rows(range(3)), mode="append"),
        "delete": lambda: opened.delete("k = 7"),
        "update": lambda: opened.update({"w": "1"}),
        "optimize": lambda: opened.optimize.compact(),
        "vacuum": lambda: opened.vacuum(0, dry_run=False, full=True, enforce_retention_duration=False),
    }
    for name, write in writes.items():
        with pytest.raises(Exception, match=r"seqstoreManaged|Column mapping is not supported"):
            write()
        assert table.check() == [], name
    opened.create_checkpoint()  # is no write of the table: it has the state that we have shown
    table.upsert(rows(range(3), "c"))
    assert by_delta_rs(root_of(table)) == sorted_rows(table.scan().read_all())


class Work:
    """Random loads and changes of one table, each of which may do nothing."""

    def __init__(self, store: Store, table: Table, seed: int) -> None:
        self.random = random.Random(seed)
        self.store, self.table = store, table
        self.session = Session(store, "db")
        self.added = 0

    def _keys(self) -> list[int]:
        start = self.random.randrange(60)
        return list(range(start, start + self.random.randrange(1, 40)))

    def _rows(self, keys: list[int]) -> pa.Table:
        columns = {}
        for column in self.table.schema.columns:
            if column.name == "k":
                columns["k"] = pa.array(keys, pa.int64())
            elif column.type.name == "STRING":
                columns[column.name] = pa.array([f"{column.name}{self.random.randrange(99)}" for _ in keys])
            else:
                columns[column.name] = pa.array([self.random.randrange(99) for _ in keys], pa.int64())
        return pa.table(columns)

    def load(self) -> None:
        self.table.upsert(self._rows(self._keys()))

    def late_load(self) -> None:
        rows = self._rows(self._keys())
        at = rows.schema.get_field_index("s")
        self.table.upsert(rows.set_column(at, "s", pa.array([0] * len(rows), pa.int64())))

    def repeated_load(self) -> None:
        rows = self._rows(self._keys())
        for _ in range(2):
            self.table.upsert(rows)

    def partial_update(self) -> None:
        rows = self._rows(self._keys()).select(["k", "w", "s"])
        self.table.upsert(rows, mode="UPDATE_FIXED_COLUMNS")

    def delete(self) -> None:
        last_result(self.session, f"DELETE FROM t WHERE k % 7 = {self.random.randrange(7)}")

    def update(self) -> None:
        last_result(self.session, f"UPDATE t SET w = w + 1 WHERE k % 5 = {self.random.randrange(5)}")

    def add(self) -> None:
        self.added += 1
        default = self.random.choice(["", " DEFAULT '5'"])
        last_result(self.session, f"ALTER TABLE t ADD COLUMN x{self.added % 3}_{self.added} BIGINT{default}")

    def rename(self) -> None:
        columns = [each.name for each in self.table.schema.columns if each.name.startswith(("v", "x"))]
        if columns:
            chosen = self.random.choice(columns)
            last_result(
                self.session,
                f"ALTER TABLE t RENAME COLUMN {chosen} {chosen[0]}{self.random.random():.9f}".replace(
                    "0.", "r"
                ),
            )

    def drop(self) -> None:
        columns = [each.name for each in self.table.schema.columns if each.name.startswith("x")]
        if columns:
            last_result(self.session, f"ALTER TABLE t DROP COLUMN {self.random.choice(columns)}")

    def compact(self) -> None:
        self.table.optimize(full=self.random.random() < 0.3)

    def restore(self) -> None:
        self.table.restore(self.random.randrange(self.table.oldest_version, self.table.version + 1))

    def truncate(self) -> None:
        if self.random.random() < 0.2:
            last_result(self.session, "TRUNCATE TABLE t")

    def step(self) -> str:
        kinds = ["load"] * 5 + ["late_load", "repeated_load", "partial_update", "delete", "update"]
        kind = self.random.choice([*kinds, "add", "rename", "drop", "compact", "restore", "truncate"])
        getattr(self, kind)()
        self.store.schema_changes.wait()
        return kind


@pytest.mark.parametrize("mapping", ["id", "none"])
def test_after_random_work_every_reader_sees_what_we_see(
    store: Store, make_table: MakeTable, mapping: str
) -> None:
    seed = new_seed()
    columns = (*COLUMNS, "s BIGINT")
    table = make_table(*columns, sequence_col="s", **OPEN, **{MAPPING: mapping})
    work, done = Work(store, table, seed), []
    for _ in range(LOADS):
        done.append(work.step())
        try:
            assert_shown(table)
            expected = sorted_rows(table.scan().read_all())
            assert by_delta_rs(root_of(table)) == expected
            if mapping == "none":
                assert by_polars(root_of(table)) == expected
            for number in commits(root_of(table))[-3:-1]:
                shown = open_delta(root_of(table), number).shown
                assert by_delta_rs(root_of(table), number) == sorted_rows(
                    table.scan(version=shown).read_all()
                )
        except BaseException:
            print(f"seed {seed}: {done}")
            raise
