"""`ORDER BY key LIMIT n` returns what DuckDB returns over a full scan, without a read of all batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Settings, Store, UnavailableError
from seqstore.store.read import first_rows
from seqstore.store.segment.segment import Segment
from seqstore.store.sql import Session
from seqstore.store.sql.evaluate import select
from tests.weight import by_form

_SIZES = Settings(
    inline_bytes_max=500, batch_rows_max=16, clustered_rows_min=32, segment_rows=100, auto_compaction=0
)
pytestmark = pytest.mark.settings(_SIZES)
_TABLES = {
    "bigint": ("a BIGINT, v INT, s VARCHAR(9)", "UNIQUE KEY(a)", ""),
    "smallint": ("a SMALLINT NOT NULL, v INT, s VARCHAR(9)", "UNIQUE KEY(a)", '"compression"="lz4"'),
    "text": ("a VARCHAR(90), v INT, s VARCHAR(9)", "UNIQUE KEY(a)", ""),
    "largeint": ("a LARGEINT, v INT, s VARCHAR(9)", "UNIQUE KEY(a)", ""),
    "datetime": ("a DATETIME(6), v INT, s VARCHAR(9)", "UNIQUE KEY(a)", ""),
    "boolean": ("a BOOLEAN, b DECIMAL(9,2), v INT, s VARCHAR(9)", "UNIQUE KEY(a, b)", ""),
    "texts": ("a VARCHAR(9), b VARCHAR(9), c DATE, v INT, s VARCHAR(9)", "UNIQUE KEY(a, b, c)", ""),
    "numbers": (
        "a INT, b INT NOT NULL, c BIGINT, v INT, s VARCHAR(9)",
        "UNIQUE KEY(a, b, c)",
        '"function_column.sequence_col"="v"',
    ),
    "parquet": ("a INT, b DATE, v INT, s VARCHAR(9)", "UNIQUE KEY(a, b)", '"storage_format"="parquet"'),
    "rows": ("a INT, b VARCHAR(9), v INT, s VARCHAR(9)", "DUPLICATE KEY(a, b)", ""),
    "clustered": ("a INT, b INT, v INT, s VARCHAR(9)", "UNIQUE KEY(a, b) CLUSTER BY(v)", ""),
}
_VALUES: dict[str, Callable[[int], str]] = {
    "BIGINT": str,
    "SMALLINT": str,
    "INT": lambda n: str(n % 40),
    "LARGEINT": lambda n: str((n - 200) * 10**35),
    "DATETIME": lambda n: f"'2024-01-{n % 28 + 1:02d} 00:00:{n % 60:02d}.{n:06d}'",
    "DATE": lambda n: f"'2024-01-{n % 28 + 1:02d}'",
    "BOOLEAN": lambda n: "true" if n % 2 else "false",
    "DECIMAL": lambda n: f"{n / 4:.2f}",
    "VARCHAR": lambda n: f"'{'ab' * (n % 4)}{n % 50:02d}'",
    "VARCHAR(90)": lambda n: f"'{'x' * 64 if n % 3 else ''}{n:05d}'",
}


class _Columns:
    """The columns of a table, with random values written as SQL."""

    def __init__(self, declared: str, random: np.random.Generator) -> None:
        parts = [each.split() for each in declared.replace("(9,2)", "").split(", ")]
        self.names = [part[0] for part in parts]
        self._types = {part[0]: part[1] for part in parts}
        self._nullable = {part[0]: len(part) == 2 for part in parts}
        self._random = random

    def value(self, name: str, *, null: float = 0.05) -> str:
        if self._nullable[name] and self._random.random() < null:
            return "NULL"
        kind = self._types[name]
        make = _VALUES.get(kind) or _VALUES[kind.partition("(")[0]]
        return make(int(self._random.integers(0, 400)))

    def row(self) -> str:
        return f"({', '.join(self.value(name) for name in self.names)})"


def _fill(session: Session, name: str, columns: _Columns, random: np.random.Generator) -> None:
    is_unique = "UNIQUE" in _TABLES[name][1]
    for _ in range(int(random.integers(2, 6))):
        rows = ", ".join(columns.row() for _ in range(int(random.integers(1, 250))))
        list(session.execute(f"INSERT INTO t VALUES {rows}"))
        if is_unique and random.random() < 0.5:
            low = columns.value("a", null=0)
            list(session.execute(f"DELETE FROM t WHERE a >= {low} AND v < 7"))
    if random.random() < 0.3:
        list(session.execute("OPTIMIZE TABLE t"))


def _any_query(columns: _Columns, random: np.random.Generator) -> tuple[str, list[str]]:
    """Returns a query, and the columns by which it orders."""
    key = [name for name in columns.names if name not in ("v", "s")]
    kinds = ("none", "none", "=", ">=", ">", "<=", "<", "between", "is null", "is not null")
    parts = []
    for name in key:
        kind = kinds[random.integers(0, len(kinds))]
        value, other = columns.value(name, null=0), columns.value(name, null=0)
        if kind == "between":
            parts.append(f"{name} BETWEEN {value} AND {other}")
        elif kind != "none":
            parts.append(f"{name} {kind}" if "null" in kind else f"{name} {kind} {value}")
    if random.random() < 0.3:
        parts.append(f"v >= {columns.value('v', null=0)}")
    if random.random() < 0.1:
        parts.append(f"s != {columns.value('s', null=0)}")
    first = int(random.integers(0, len(key))) if random.random() < 0.3 else 0
    ordered = key[first : first + int(random.integers(1, len(key) + 1))]
    descends = random.random() < 0.5
    text = ", ".join(f"{name}{' DESC' if descends ^ (random.random() < 0.05) else ''}" for name in ordered)
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    offset = f" OFFSET {random.integers(0, 30)}" if random.random() < 0.3 else ""
    limit = random.choice([0, 1, 3, 20, 100, 1000])
    items = random.choice(["*", f"{', '.join(reversed(columns.names))}"])
    return f"SELECT {items} FROM t{where} ORDER BY {text} LIMIT {limit}{offset}", ordered


@contextmanager
def _by_full_scan(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(select, "choose_first_rows", lambda *_: None)
        yield


def _rows(session: Session, sql: str) -> pa.Table:
    found = list(session.execute(sql))[-1].rows
    assert found is not None
    return found


def _check(session: Session, sql: str, ordered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = _rows(session, sql)
    with _by_full_scan(monkeypatch):
        wanted = _rows(session, sql)
        assert found.schema.equals(wanted.schema), sql
        assert found.select(ordered).to_pylist() == wanted.select(ordered).to_pylist(), sql
        if found.equals(wanted):
            return
        all_rows = _rows(session, sql.partition(" ORDER BY")[0])  # rows that the order does not distinguish
    left = [str(row) for row in all_rows.to_pylist()]
    for row in found.to_pylist():
        left.remove(str(row))  # each row is one of the table's, as often as the table has it


@pytest.mark.family(8)
@pytest.mark.parametrize("seed", range(by_form(2, 6)))
@pytest.mark.parametrize("name", _TABLES)
def test_first_rows_are_those_of_duckdb_over_a_full_scan(
    name: str, seed: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng([seed, len(name)])
    if seed % 2:  # batches of large segments that are not sorted
        monkeypatch.setattr(first_rows, "_KEPT_ROWS", 20)
        monkeypatch.setattr(first_rows, "_ALONE", 2)
    declared, key, properties = _TABLES[name]
    columns = _Columns(declared, random)
    with Session(store, "db") as session:
        behind = f" PROPERTIES ({properties})" if properties else ""
        list(session.execute(f"CREATE TABLE t ({declared}) {key}{behind}"))
        _fill(session, name, columns, random)
        for _ in range(by_form(4, 20)):
            sql, ordered = _any_query(columns, random)
            _check(session, sql, ordered, monkeypatch)


def _numbers(session: Session) -> None:
    """Makes a table of even keys in several sorted segments, with odd keys and deletions behind them."""
    list(session.execute("CREATE TABLE t (k BIGINT, v INT) UNIQUE KEY(k)"))
    table = session.store.table("db.t")
    keys = np.random.default_rng(1).permutation(np.arange(0, 4000, 2))
    table.upsert(pa.table({"k": keys, "v": pa.array(keys % 10, pa.int32())}))
    list(session.execute("INSERT INTO t VALUES (1001, 1), (1003, 3), (1000, 7)"))
    list(session.execute("DELETE FROM t WHERE k BETWEEN 1004 AND 1010"))


def _keys(session: Session, sql: str) -> list[int]:
    return [row["k"] for row in _rows(session, sql).to_pylist()]


def test_first_rows_of_a_bound_read_one_batch_of_each_sorted_segment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, int]] = []
    batch = Segment.batch

    def seen(self: Segment, i: int, columns: Any = None) -> pa.RecordBatch:
        if self.meta.home != "inline":
            read.append((self.meta.id, i))
        return batch(self, i, columns)

    with Session(store, "db") as session:
        _numbers(session)
        monkeypatch.setattr(Segment, "batch", seen)
        assert _keys(session, "SELECT k FROM t WHERE k >= 1000 ORDER BY k LIMIT 5") == [
            1000, 1001, 1002, 1003, 1012,
        ]  # fmt: skip
        state = store.table("db.t").state()
        large = [live for live in state.segments.values() if live.segment.batches > 1]
        assert len(large) > 10
        assert len(set(read)) <= 2 * len(large), "the batch of the bound, and the next where it holds too few"


@pytest.mark.parametrize(
    ("sql", "is_first"),
    [
        ("SELECT * FROM t ORDER BY k LIMIT 3", True),
        ("SELECT * FROM t ORDER BY 1 DESC LIMIT 3", False),  # a place in a list that `*` makes
        ("SELECT k, v FROM t ORDER BY 1 DESC LIMIT 3", True),
        ("SELECT k AS other FROM t x ORDER BY other LIMIT 3 OFFSET 4", True),
        ("SELECT k AS other FROM t x ORDER BY x.k LIMIT 3", True),
        ("SELECT k + v AS s FROM t WHERE v = 3 ORDER BY k LIMIT 3", True),
        ("SELECT v AS k FROM t ORDER BY k LIMIT 3", False),  # the alias counts
        ("SELECT k FROM t ORDER BY k NULLS LAST LIMIT 3", False),
        ("SELECT k FROM t ORDER BY k DESC NULLS LAST LIMIT 3", True),
        ("SELECT k FROM t WHERE k + 1 > 7 ORDER BY k LIMIT 3", False),
        ("SELECT k FROM t ORDER BY k", False),
        ("SELECT k FROM t ORDER BY k LIMIT 20000", False),
        ("SELECT count(*) FROM t ORDER BY 1 LIMIT 3", False),
        ("SELECT sum(v) OVER (ORDER BY k) AS k FROM t ORDER BY t.k LIMIT 3", False),
        ("SELECT DISTINCT k FROM t ORDER BY k LIMIT 3", False),
        ("SELECT k FROM t GROUP BY k ORDER BY k LIMIT 3", False),
        ("SELECT x.k FROM t x JOIN t y ON x.k = y.v ORDER BY x.k LIMIT 3", False),
        ("SELECT k FROM t WHERE k = 8 ORDER BY k LIMIT 3", False),  # a look-up
    ],
)
def test_which_queries_read_first_rows(
    store: Store, sql: str, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(store, "db") as session:
        _numbers(session)
        plan = str(_rows(session, f"EXPLAIN {sql}").to_pylist())
        assert ("first rows by key" in plan) == is_first
        found = _rows(session, sql)
        with _by_full_scan(monkeypatch):
            wanted = _rows(session, sql)
        if "ORDER BY" in sql and "20000" not in sql:
            assert found.to_pylist() == wanted.to_pylist()


def test_columns_with_one_value_may_stand_anywhere_in_the_order(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(store, "db") as session:
        list(session.execute("CREATE TABLE t (a INT, b INT, c INT, v INT) UNIQUE KEY(a, b, c)"))
        rows = ", ".join(f"({n % 3}, {n % 7}, {n % 11}, {n})" for n in range(231))
        list(session.execute(f"INSERT INTO t VALUES {rows}"))
        for sql, is_first in {
            "SELECT * FROM t WHERE a = 1 ORDER BY b LIMIT 9": True,
            "SELECT * FROM t WHERE a = 1 AND b > 2 ORDER BY b, c LIMIT 9": True,
            "SELECT * FROM t WHERE b = 4 ORDER BY a, b, c LIMIT 9": True,
            "SELECT * FROM t WHERE b = 4 ORDER BY a DESC, b, c DESC LIMIT 9": True,
            "SELECT * FROM t WHERE a = 1 AND b = 4 ORDER BY b, a LIMIT 9": True,
            "SELECT * FROM t ORDER BY a, c LIMIT 9": False,
            "SELECT * FROM t ORDER BY a, b DESC LIMIT 9": False,
            "SELECT * FROM t WHERE a = 1 ORDER BY c LIMIT 9": False,
        }.items():
            assert ("first rows" in str(_rows(session, f"EXPLAIN {sql}").to_pylist())) == is_first, sql
            ordered = [name for name in "abc" if name in sql.partition("ORDER BY")[2].partition("LIMIT")[0]]
            _check(session, sql, ordered, monkeypatch)


def test_first_rows_of_a_transaction_have_its_own_writes(store: Store) -> None:
    sql = "SELECT k FROM t WHERE k > 1990 ORDER BY k LIMIT 4"
    with Session(store, "db") as session, Session(store, "db") as other:
        _numbers(session)
        list(session.execute("SET transaction_reads_own_writes = true; BEGIN"))
        list(session.execute("INSERT INTO t VALUES (1993, 1); DELETE FROM t WHERE k = 1994"))
        assert _keys(session, sql) == [1992, 1993, 1996, 1998]
        assert _keys(other, sql) == [1992, 1994, 1996, 1998]
        list(session.execute("COMMIT"))
        assert _keys(other, sql) == [1992, 1993, 1996, 1998]


def test_first_rows_of_an_earlier_version(store: Store) -> None:
    with Session(store, "db") as session:
        _numbers(session)
        assert _keys(session, "SELECT k FROM t FOR VERSION AS OF 2 WHERE k > 1000 ORDER BY k LIMIT 3") == [
            1002, 1004, 1006,
        ]  # fmt: skip


def test_rows_that_a_reader_of_tombstones_sees_are_first_rows_too(store: Store) -> None:
    with Session(store, "db") as session:
        _numbers(session)
        list(session.execute("SET skip_delete_sign = true"))
        assert _keys(session, "SELECT k FROM t WHERE k >= 1003 ORDER BY k LIMIT 3") == [1003, 1004, 1006]


def test_a_cancelled_statement_ends_the_search_at_its_next_batch(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    batch = Segment.batch

    def cancelling(self: Segment, i: int, columns: Any = None) -> pa.RecordBatch:
        read.append(i)
        session.interrupt()
        return batch(self, i, columns)

    with Session(store, "db") as session:
        _numbers(session)
        list(session.execute("SELECT k FROM t WHERE v < 0 ORDER BY k LIMIT 3"))  # the order of small segments
        monkeypatch.setattr(Segment, "batch", cancelling)
        with pytest.raises(UnavailableError, match="interrupted"):
            list(session.execute("SELECT k FROM t WHERE v < 0 ORDER BY k LIMIT 3"))
    assert len(read) < 5
