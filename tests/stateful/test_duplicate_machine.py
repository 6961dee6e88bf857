"""Duplicate tables against a list of rows per version, driven by random operations (T10, T12).

Rows are added by loads, interleaved loads, transactions and tasks, deleted by conditions, overwritten,
compacted and restored. After every operation the newest version and an older one are compared with the model
as multisets. At the end all versions are, and the change feed leads from the first to the last.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from seqstore import Load, Session, Settings, Store, TableSchema
from seqstore.store.maintenance.recovery import end_loads
from tests.weight import by_form

Row = tuple[int | None, str, int]
ROWS = st.lists(
    st.tuples(st.integers(0, 3) | st.none(), st.sampled_from("ab"), st.integers(0, 2)), max_size=12
)
SIZES = st.builds(
    Settings,
    catalog_bytes_max=st.just(2**28),
    auto_compaction=st.just(0),  # versions are counted
    inline_bytes_max=st.sampled_from([1, 300, 2**18]),
    segment_rows=st.sampled_from([3, 8, 1_000_000]),
    batch_rows_max=st.sampled_from([1, 4, 65_536]),
    clustered_rows_min=st.sampled_from([2, 6, 262_144]),
)
KEYS = st.sampled_from([(), ("a",), ("a", "b")])
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "a = 1": lambda row: row[0] == 1,
    "a IS NULL": lambda row: row[0] is None,
    "v > 0 AND b = 'a'": lambda row: row[2] > 0 and row[1] == "a",
    "b IN ('a', 'b')": lambda row: True,
    "v + 1 = 2": lambda row: row[2] == 1,
}


def arrow(rows: list[Row]) -> pa.Table:
    a, b, v = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {"a": pa.array(a, pa.int32()), "b": pa.array(b, pa.string()), "v": pa.array(v, pa.int64())}
    )


class DuplicateMachine(RuleBasedStateMachine):
    @initialize(sizes=SIZES, key=KEYS, cluster=st.booleans(), home=st.sampled_from(["arrow", "parquet"]))
    def make_table(self, sizes: Settings, key: tuple[str, ...], cluster: bool, home: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="seqstore-duplicates-"))
        self.sizes = sizes
        self.store = Store.open(self.path, settings=sizes)
        self.store.create_database("db")
        given = TableSchema.from_arrow(
            pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.int64())]), ["a", "b"]
        )
        properties = {"storage_format": home} | ({"cluster_by": "v,a"} if cluster else {})
        schema = TableSchema.create(
            [c.__class__(c.name, c.type) for c in given.columns], [], duplicate_key=key, properties=properties
        )
        self.table = self.store.create_table("db.t", schema)
        self.session = Session(self.store, "db")
        self.versions: dict[int, list[Row]] = {1: []}
        self.open_loads: list[tuple[Load, list[Row]]] = []

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self.replay_feed()
            assert self.table.check() == []
            for version in self.versions:
                self.compare(version)
        finally:
            self.store.close()
            shutil.rmtree(self.path, ignore_errors=True)

    @property
    def rows(self) -> list[Row]:
        return self.versions[max(self.versions)]

    def done(self, rows: list[Row]) -> None:
        """Notes the rows after an operation, which made a version or none."""
        newest = max(self.versions)
        if self.table.version != newest:
            self.versions[self.table.version] = rows
        assert Counter(rows) == Counter(self.rows)
        self.compare(self.table.version)
        self.compare(sorted(self.versions)[len(self.versions) // 2])

    def compare(self, version: int) -> None:
        found = self.table.snapshot(version).scan().read_all().to_pylist()
        assert Counter((r["a"], r["b"], r["v"]) for r in found) == Counter(self.versions[version]), version
        assert self.table.count(version) == len(self.versions[version])

    def replay_feed(self) -> None:
        found: Counter[Any] = Counter()
        for change in self.table.changes(2).read_all().to_pylist():
            row = (change["a"], change["b"], change["v"])
            assert change["_change_type"] in ("+I", "-D"), change
            found[row] += 1 if change["_change_type"] == "+I" else -1
        assert +found == Counter(self.rows)
        assert not -found

    @rule(rows=ROWS)
    def load(self, rows: list[Row]) -> None:
        result = self.table.upsert(arrow(rows))
        assert (result.rows_loaded, result.rows_replaced, result.rows_superseded) == (len(rows), 0, 0)
        self.done(self.rows + rows)

    @rule(parts=st.lists(ROWS, min_size=2, max_size=4))
    def load_of_several_writes(self, parts: list[list[Row]]) -> None:
        with self.table.begin_load() as load:
            for part in parts:
                load.write(arrow(part))
            assert load.commit().rows_loaded == sum(map(len, parts))
        self.done(self.rows + [row for part in parts for row in part])

    @precondition(lambda self: len(self.open_loads) < 3)
    @rule(rows=ROWS, own_handle=st.booleans())
    def begin(self, rows: list[Row], own_handle: bool) -> None:
        table = Store.open(self.path, settings=self.sizes).table("db.t") if own_handle else self.table
        load = table.begin_load()
        load.write(arrow(rows))
        self.open_loads.append((load, rows))

    @precondition(lambda self: self.open_loads)
    @rule(prepared=st.booleans(), rows=ROWS)
    def commit(self, prepared: bool, rows: list[Row]) -> None:
        load, given = self.open_loads.pop(0)
        if prepared:
            load.prepare()
            self.load(rows)
        load.commit()
        self.done(self.rows + given)

    @precondition(lambda self: self.open_loads)
    @rule()
    def abort(self) -> None:
        load, _ = self.open_loads.pop()
        load.abort("given up")
        self.done(self.rows)

    @rule(shares=st.lists(ROWS, min_size=1, max_size=3))
    def load_of_tasks(self, shares: list[list[Row]]) -> None:
        task = self.table.write_task()
        task.begin()
        staged = [task.run(arrow(share)) for share in shares]
        with self.table.begin_load() as load:
            for share in staged:
                load.adopt(share)
            result = load.commit()
        end_loads(self.table, [task.load])
        assert result.rows_loaded == result.rows_total == sum(map(len, shares))
        self.done(self.rows + [row for share in shares for row in share])

    @rule(condition=st.sampled_from(sorted(CONDITIONS)))
    def delete(self, condition: str) -> None:
        gone = [row for row in self.rows if CONDITIONS[condition](row)]
        (result,) = self.session.execute(f"DELETE FROM t WHERE {condition}")
        assert result.affected_rows == len(gone)
        self.done([row for row in self.rows if not CONDITIONS[condition](row)])

    @rule(number=st.integers(0, 3))
    def delete_where(self, number: int) -> None:
        self.table.delete_where(pc.field("a") == number)
        self.done([row for row in self.rows if row[0] != number])

    @rule(first=ROWS, second=ROWS)
    def transaction(self, first: list[Row], second: list[Row]) -> None:
        with self.store.transaction() as transaction:
            opened = transaction.table("db.t")
            opened.upsert(arrow(first))
            opened.delete_where(pc.field("v") > 0)
            opened.upsert(arrow(second))
            transaction.commit()
        self.done([row for row in self.rows + first if row[2] <= 0] + second)

    @rule(rows=ROWS)
    def overwrite(self, rows: list[Row]) -> None:
        with self.table.begin_load() as load:
            load.clear()
            load.write(arrow(rows))
            load.commit()
        self.done(rows)

    @rule(full=st.booleans())
    def optimize(self, full: bool) -> None:
        self.table.optimize(full=full)
        self.done(self.rows)

    @rule()
    def purge(self) -> None:
        self.table.purge()
        self.done(self.rows)

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.table.restore(version)
        self.done(list(self.versions[version]))

    @rule()
    def reopen(self) -> None:
        for load, _ in self.open_loads:
            load.abort("closed")
        self.open_loads = []
        self.store.close()
        self.store = Store.open(self.path, settings=self.sizes)
        self.table = self.store.table("db.t")
        self.session = Session(self.store, "db")
        self.done(self.rows)


def test_duplicate_tables_agree_with_a_list_of_rows_per_version() -> None:
    chosen = settings(
        max_examples=by_form(4, 75),
        stateful_step_count=20,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(DuplicateMachine, settings=chosen)
