"""TPC-H with both refresh streams: the pairs alone, and the 22 queries after each pair.

Ours runs by its Python interface and SQL, DuckDB on tables with primary keys. The answers of the two are
compared after the last pair, and both tables that change with what must be in them.
"""

from __future__ import annotations

import datetime
import decimal
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import pyarrow as pa

from bench.engine.site import Site
from bench.engine.workload import Workload
from bench.inputs.script import differences
from bench.inputs.tpch_refresh import Refresh, after, refreshes
from bench.queries.tpch import QUERIES, generator, load, make_rows
from bench.trials.trial import Contender, Trial
from seqstore import Session, Store, __version__

_PAIRS: Final = 3
_GROUP: Final = "TPC-H with refreshes"


def workloads() -> list[Workload]:
    """The pairs, and the queries between them."""
    return [
        Workload("tpch_refresh", "TPC-H: a pair of refresh streams", _refreshing, _is_available, _GROUP),
        Workload("tpch_queries", "TPC-H: 22 queries after a refresh", _querying, _is_available, _GROUP),
    ]


def _is_available() -> bool:
    return generator() is not None


@contextmanager
def _refreshing(site: Site, slow: bool) -> Iterator[Trial]:
    del slow
    with _both(site) as (ours, duck, pairs):
        yield Trial(
            ours.contender(ours.refresh),
            [duck.contender(duck.refresh)],
            rounds=len(pairs),
            warmups=0,
            rows=len(pairs[0].orders) + len(pairs[0].lines),
            seconds_max=site.contender_seconds(2),
        )


@contextmanager
def _querying(site: Site, slow: bool) -> Iterator[Trial]:
    del slow
    with _both(site) as (ours, duck, pairs):
        yield Trial(
            ours.contender(ours.queries, before=ours.refresh),
            [duck.contender(duck.queries, before=duck.refresh)],
            rounds=len(pairs),
            warmups=0,
            seconds_max=site.contender_seconds(2),
        )


@contextmanager
def _both(site: Site) -> Iterator[tuple[_Ours, _Duck, list[Refresh]]]:
    place = site.new_path("tpch")
    make_rows(str(site.sizes.scale), place / "data")
    with (
        duckdb.connect(place / "own.duckdb") as own,
        Store.open(place / "store") as store,
        Session(store) as session,
    ):
        load(place / "data", own, store, session)
        own.execute("ALTER TABLE orders ADD PRIMARY KEY (o_orderkey)")
        own.execute("ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber)")
        orders = own.sql("SELECT * FROM orders").to_arrow_table()
        lines = own.sql("SELECT * FROM lineitem").to_arrow_table()
        pairs = refreshes(orders, lines, site.sizes.scale, site.sizes.rounds(_PAIRS), site.seed)
        duck = _Duck(orders, lines, pairs, own)
        yield _Ours(orders, lines, pairs, store, session, duck), duck, pairs
    site.remove(place)


class _Side(ABC):
    """What both have in common: which pairs are done, and what must be stored then."""

    name: str

    def __init__(self, orders: pa.Table, lines: pa.Table, pairs: list[Refresh]) -> None:
        self._orders, self._lines, self.pairs = orders, lines, pairs
        self._done = 0

    def contender(self, act: Any, before: Any = lambda _: None) -> Contender:
        return Contender(self.name, act, before=before, check=self.findings, facts=self.facts)

    def refresh(self, number: int) -> None:
        """Runs a pair of streams."""
        self.run_pair(self.pairs[number])
        self._done = number + 1

    def queries(self, _: int) -> None:
        """Runs the 22 queries."""
        self.answers()

    def findings(self) -> list[str]:
        done = self.pairs[: self._done]
        orders = after(self._orders, "o_orderkey", [p.orders for p in done], [p.gone_orders for p in done])
        lines = after(self._lines, "l_orderkey", [p.lines for p in done], [p.gone_lines for p in done])
        return [
            f"{name}: {finding}"
            for name, expected in (("orders", orders), ("lineitem", lines))
            for finding in differences(expected, self.rows(name))
        ]

    @abstractmethod
    def facts(self) -> dict[str, Any]: ...

    @abstractmethod
    def run_pair(self, pair: Refresh) -> None: ...

    @abstractmethod
    def answers(self) -> list[list[tuple[Any, ...]]]: ...

    @abstractmethod
    def rows(self, table: str) -> Iterator[pa.RecordBatch]: ...


class _Ours(_Side):
    name = "seqstore"

    def __init__(
        self,
        orders: pa.Table,
        lines: pa.Table,
        pairs: list[Refresh],
        store: Store,
        session: Session,
        duck: _Duck,
    ) -> None:
        super().__init__(orders, lines, pairs)
        self._session, self._duck = session, duck
        self._tables = {name: store.table(f"tpch.{name}") for name in ("orders", "lineitem")}

    def run_pair(self, pair: Refresh) -> None:
        self._tables["orders"].upsert(pair.orders)
        self._tables["lineitem"].upsert(pair.lines)
        self._tables["lineitem"].upsert(pair.gone_lines, merge_type="DELETE")
        self._tables["orders"].upsert(pair.gone_orders, merge_type="DELETE")

    def answers(self) -> list[list[tuple[Any, ...]]]:
        found = []
        for query in QUERIES:
            rows = next(iter(self._session.execute(query))).rows
            assert rows is not None
            found.append(list(zip(*(column.to_pylist() for column in rows.columns), strict=True)))
        return found

    def rows(self, table: str) -> Iterator[pa.RecordBatch]:
        yield from self._tables[table].scan()

    def findings(self) -> list[str]:
        pairs = zip(self.answers(), self._duck.answers(), strict=True)
        wrong = [
            f"Q{number}: another answer than DuckDB's"
            for number, (mine, theirs) in enumerate(pairs, 1)
            if not _same(mine, theirs)
        ]
        return super().findings() + wrong

    def facts(self) -> dict[str, Any]:
        return {"version": __version__, "setup": "upserts and deletions by key, SELECT", "is_durable": True}


class _Duck(_Side):
    name = "duckdb-pk"

    def __init__(
        self, orders: pa.Table, lines: pa.Table, pairs: list[Refresh], own: duckdb.DuckDBPyConnection
    ) -> None:
        super().__init__(orders, lines, pairs)
        self._own = own

    def run_pair(self, pair: Refresh) -> None:
        given = {
            "new_orders": pair.orders,
            "new_lines": pair.lines,
            "gone_orders": pair.gone_orders,
            "gone_lines": pair.gone_lines,
        }
        for name, rows in given.items():
            self._own.register(name, rows)
        self._own.execute("BEGIN")
        self._own.execute("INSERT INTO orders BY NAME SELECT * FROM new_orders")
        self._own.execute("INSERT INTO lineitem BY NAME SELECT * FROM new_lines")
        self._own.execute("COMMIT")
        self._own.execute("BEGIN")
        self._own.execute(
            "DELETE FROM lineitem USING gone_lines AS g WHERE lineitem.l_orderkey = g.l_orderkey "
            "AND lineitem.l_linenumber = g.l_linenumber"
        )
        self._own.execute("DELETE FROM orders USING gone_orders AS g WHERE orders.o_orderkey = g.o_orderkey")
        self._own.execute("COMMIT")

    def answers(self) -> list[list[tuple[Any, ...]]]:
        return [self._own.sql(query).fetchall() for query in QUERIES]

    def rows(self, table: str) -> Iterator[pa.RecordBatch]:
        yield from self._own.sql(f"SELECT * FROM {table}").to_arrow_table().to_batches()

    def facts(self) -> dict[str, Any]:
        setup = "primary keys on orders and lineitem, one transaction a stream"
        return {"version": duckdb.__version__, "setup": setup, "is_durable": True}


def _same(mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Rows in the same order. A quotient of decimals is a decimal of four more digits here."""
    return len(mine) == len(theirs) and all(
        len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(mine, theirs, strict=True)
    )


def _equal(mine: Any, theirs: Any) -> bool:
    numbers = (int, float, decimal.Decimal)
    if isinstance(mine, numbers) and isinstance(theirs, numbers):
        return math.isclose(float(mine), float(theirs), rel_tol=1e-9, abs_tol=1e-4)
    if isinstance(mine, datetime.datetime) and isinstance(theirs, datetime.date):
        return mine.date() == theirs or mine == theirs
    return bool(mine == theirs)
