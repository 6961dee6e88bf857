"""Other stores that do the same work, set up in their favour; bench/README.md says how.

`KeyedDuckDB` keeps keys unique as we do. `AppendingDuckDB` does not: it shows what a durable append alone
costs. `DeltaTable` rewrites files; it is optional, like its package.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import copy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from bench.inputs.oracle import LoadedRows
from bench.inputs.orders import KEY, SCHEMA, SEQUENCE

_SQL_TYPES: Final = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
}
_VALUES: Final = [name for name in SCHEMA.names if name != KEY]
# ON CONFLICT accepts a key once per statement.
_UPSERT: Final = f"""
    INSERT INTO orders
    SELECT {", ".join(SCHEMA.names)} FROM (SELECT *, row_number() OVER () AS arrival FROM batch)
    QUALIFY row_number() OVER (PARTITION BY {KEY} ORDER BY {SEQUENCE} DESC, arrival DESC) = 1
    ON CONFLICT DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _VALUES)}
    WHERE excluded.{SEQUENCE} >= orders.{SEQUENCE}"""
FIRST_ROWS: Final = f"SELECT * FROM orders WHERE {KEY} >= {{}} ORDER BY {KEY} LIMIT 20"


def has_delta() -> bool:
    """Is the optional peer installed?"""
    return find_spec("deltalake") is not None


class AppendingDuckDB:
    """A DuckDB table without a key, in a file; every insert is durable when it returns."""

    key: str = ""

    def __init__(self, path: Path) -> None:
        self.connection = duckdb.connect(str(path))
        # By default DuckDB would move its log into the table every second batch. The larger log favours it.
        self.connection.execute("SET checkpoint_threshold = '1GB'")
        columns = ", ".join(
            f"{f.name} {_SQL_TYPES[str(f.type)]} {self.key if f.name == KEY else 'NOT NULL'}" for f in SCHEMA
        )
        self.connection.execute(f"CREATE TABLE orders ({columns})")
        self.loads: list[LoadedRows] = []

    def append(self, rows: pa.Table) -> None:
        self._run("INSERT INTO orders SELECT * FROM batch", rows)
        self.loads.append(LoadedRows(rows))

    def scan(self) -> Iterator[pa.RecordBatch]:
        """All rows."""
        found = self.connection.sql("SELECT * FROM orders")
        is_new = hasattr(duckdb.DuckDBPyRelation, "to_arrow_reader")  # since 1.5
        yield from (found.to_arrow_reader if is_new else found.fetch_record_batch)(65_536)

    def count(self) -> int:
        [row] = self.connection.execute("SELECT count(*) FROM orders").fetchall()
        return int(row[0])

    def findings(self) -> list[str]:
        """The state of a table that only appends: every row given is there."""
        expected = sum(len(load.rows) for load in self.loads)
        found = self.count()
        return [] if found == expected else [f"{found} rows, expected {expected}"]

    def close(self) -> None:
        self.connection.close()

    def _run(self, statement: str, batch: pa.Table) -> None:
        self.connection.register("batch", batch)
        self.connection.execute(statement)
        self.connection.unregister("batch")


class KeyedDuckDB(AppendingDuckDB):
    """The same with a primary key.

    Args:
        base: what it starts with.

    Attributes:
        load_seconds: how long loading the base took, until it was durable.
    """

    key = "PRIMARY KEY"

    def __init__(self, path: Path, base: pa.Table) -> None:
        super().__init__(path)
        started = time.perf_counter()
        self.append(base)
        self.load_seconds = time.perf_counter() - started
        self.connection.execute("CHECKPOINT")

    def beside(self) -> KeyedDuckDB:
        """The same table for one more thread."""
        other = copy(self)
        other.connection = self.connection.cursor()
        return other

    def upsert(self, rows: pa.Table) -> None:
        self._run(_UPSERT, rows)
        self.loads.append(LoadedRows(rows))

    def replace(self, rows: pa.Table) -> None:
        """Newer rows of known keys: deletes the old ones, then inserts; the quickest way for many."""
        self.delete(rows)
        self._run("INSERT INTO orders SELECT * FROM batch", rows)
        self.loads[-1] = LoadedRows(rows)

    def delete(self, rows: pa.Table) -> None:
        """Deletes by key."""
        self._run(f"DELETE FROM orders USING batch WHERE orders.{KEY} = batch.{KEY}", rows)
        self.loads.append(LoadedRows(rows, is_delete=True))

    def change(self, rows: pa.Table, column: str) -> None:
        """New values of one column, by key."""
        update = f"UPDATE orders SET {column} = batch.{column} FROM batch WHERE orders.{KEY} = batch.{KEY}"
        self._run(update, rows)

    def look_up(self, keys: pa.Table) -> pa.Table:
        self.connection.register("wanted", keys)
        return self.connection.sql(f"SELECT orders.* FROM orders JOIN wanted USING ({KEY})").to_arrow_table()

    def first_rows(self, start: int) -> pa.Table:
        return self.connection.sql(FIRST_ROWS.format(start)).to_arrow_table()

    def look_up_one(self, key: int) -> tuple[Any, ...] | None:
        # A result that is not fetched to its end would keep the connection from the next statement.
        found = self.connection.execute(f"SELECT * FROM orders WHERE {KEY} = ?", [key]).fetchall()
        return found[0] if found else None


class DeltaTable:
    """A Delta table kept unique with MERGE, from the package `deltalake`."""

    def __init__(self, path: Path, base: pa.Table) -> None:
        self._delta = import_module("deltalake")
        self._path = str(path)
        self._delta.write_deltalake(self._path, base)
        self.loads = [LoadedRows(base)]

    def upsert(self, rows: pa.Table) -> None:
        (
            self._delta.DeltaTable(self._path)
            .merge(_winners(rows), predicate=f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
            .when_matched_update_all(predicate=f"s.{SEQUENCE} >= t.{SEQUENCE}")
            .when_not_matched_insert_all()
            .execute()
        )
        self.loads.append(LoadedRows(rows))

    def change(self, rows: pa.Table, column: str) -> None:
        """New values of one column, by key."""
        (
            self._delta.DeltaTable(self._path)
            .merge(rows, predicate=f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
            .when_matched_update({column: f"s.{column}"})
            .execute()
        )

    def scan(self) -> Iterator[pa.RecordBatch]:
        """All rows."""
        reader = self._delta.DeltaTable(self._path)
        for fragment in reader.to_pyarrow_dataset().get_fragments():
            yield from fragment.to_batches()


def _winners(rows: pa.Table) -> pa.Table:
    """One row per key, for MERGE accepts no more: the largest sequence, then the last."""
    keys, sequence = np.asarray(rows.column(KEY)), np.asarray(rows.column(SEQUENCE))
    order = np.lexsort((sequence, keys))
    ordered = keys[order]
    return rows.take(pa.array(order[np.append(ordered[1:] != ordered[:-1], True)]))
