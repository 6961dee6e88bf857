"""Look-ups by a key of a text and a number, in a table of `Sizes.small_rows` rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import duckdb
import lmdb
import msgpack
import numpy as np
import pyarrow as pa

from bench.engine.site import Site
from bench.inputs.cdc import COMPOSITE, REGION, with_region
from bench.inputs.orders import KEY
from bench.trials.trial import Contender, Goal, Trial
from seqstore import Store, TableSchema

_KEY: Final = (REGION, KEY)
_MAP_BYTES: Final = 1 << 36


@contextmanager
def composite_look_ups(site: Site, slow: bool, *, keys: int, rounds: int, goal: Goal) -> Iterator[Trial]:
    """Offers the trial: ours, LMDB with packed rows, DuckDB with a primary key.

    Args:
        keys: of one call.
    """
    del slow
    rounds, warmups = site.sizes.rounds(rounds), min(5, site.sizes.rounds_max)
    base = with_region(site.small_base)
    rng = np.random.default_rng((site.seed, keys))
    chosen = rng.choice(len(base), (warmups + rounds, min(keys, len(base))))
    wanted = [base.select(list(_KEY)).take(pa.array(np.unique(each))) for each in chosen]
    with ExitStack() as closing:
        ours = closing.enter_context(Store.open(site.new_path("composite")))
        ours.create_database("bench")
        schema = TableSchema.from_arrow(COMPOSITE.schema, list(_KEY))
        table = ours.create_table("bench.composite", schema)
        table.upsert(base)
        ours.maintainer.wait()
        duck = duckdb.connect(str(site.new_path("composite.duckdb")))
        closing.callback(duck.close)
        duck.register("base", base)
        duck.execute("CREATE TABLE t AS SELECT * FROM base LIMIT 0")
        duck.execute(f"ALTER TABLE t ADD PRIMARY KEY ({', '.join(_KEY)})")
        duck.execute("INSERT INTO t SELECT * FROM base")
        rows = _PackedRows(closing, site, base)
        found: dict[str, Callable[[pa.Table], Any]] = {
            "seqstore": table.get,
            "LMDB, packed rows": rows.get,
            "DuckDB, primary key": lambda some: _from_duckdb(duck, some),
        }
        mine, *others = (
            Contender(name, _acting(read, wanted), check=_checking(read, wanted[0], base))
            for name, read in found.items()
        )
        yield Trial(mine, others, rounds=rounds, warmups=warmups, rows=keys, goals=[goal])


def _acting(read: Callable[[pa.Table], Any], wanted: list[pa.Table]) -> Callable[[int], None]:
    def act(number: int) -> None:
        read(wanted[number])

    return act


def _checking(read: Callable[[pa.Table], Any], wanted: pa.Table, base: pa.Table) -> Callable[[], list[str]]:
    def check() -> list[str]:
        found = read(wanted)
        rows = found.to_pylist() if isinstance(found, pa.Table) else found
        expected = base.join(wanted, list(_KEY), join_type="left semi").to_pylist()
        values = [
            sorted(tuple(row[name] for name in base.schema.names) for row in some)
            for some in (rows, expected)
        ]
        return [] if values[0] == values[1] else [f"{len(rows)} rows, not the {len(expected)} of these keys"]

    return check


def _from_duckdb(duck: duckdb.DuckDBPyConnection, wanted: pa.Table) -> pa.Table:
    if len(wanted) == 1:
        [key] = wanted.to_pylist()
        condition = " AND ".join(f"{name} = ?" for name in _KEY)
        return duck.sql(f"SELECT * FROM t WHERE {condition}", params=[*key.values()]).to_arrow_table()
    duck.register("wanted", wanted)
    return duck.sql(f"SELECT t.* FROM t JOIN wanted USING ({', '.join(_KEY)})").to_arrow_table()


class _PackedRows:
    """LMDB: a row packed by msgpack under the bytes of its key."""

    def __init__(self, closing: ExitStack, site: Site, base: pa.Table) -> None:
        path = site.new_path("composite.lmdb")
        self._environment = closing.enter_context(lmdb.open(str(path), map_size=_MAP_BYTES))
        self._names = base.schema.names
        with self._environment.begin(write=True) as transaction:
            for batch in base.to_batches():
                packed = ((self._key(row), msgpack.packb([*row.values()])) for row in batch.to_pylist())
                for key, value in sorted(packed):
                    transaction.put(key, value)

    def get(self, wanted: pa.Table) -> list[dict[str, Any]]:
        """The rows of some keys."""
        with self._environment.begin() as transaction:
            return [
                dict(zip(self._names, msgpack.unpackb(transaction.get(self._key(key))), strict=True))
                for key in wanted.to_pylist()
            ]

    def _key(self, row: dict[str, Any]) -> bytes:
        return str(row[REGION]).encode() + int(row[KEY]).to_bytes(8)
