"""Where a run works: its directory, its sizes, and states that several workloads share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.engine.yardsticks import KeyedDuckDB
from bench.inputs.oracle import Load, LoadedRows, Oracle
from bench.inputs.orders import (
    KEY,
    SCHEMA,
    Keys,
    base_batches,
    base_rows,
    key_count,
    rows_of_keys,
    table_schema,
    update_batches,
)
from bench.limits.floors import mapped_batches, write_arrow
from seqstore import LoadResult, Settings, Store

NAME: Final = "bench.orders"
_DELETED_SHARE: Final = 0.025
_REPLACED_SHARE: Final = 0.025
_READ_STATE_BATCH: Final = 1_000_000_000  # numbers its batch apart from those of the upsert workloads


@dataclass(frozen=True)
class Sizes:
    """How large and how often.

    Attributes:
        rows: stored rows.
        small_rows: rows of the table that growth is measured against.
        batch, small_batch: rows of the two upsert workloads.
        memory_batch: rows of the load whose memory is measured.
        lookups: keys of the look-up workload.
        writer_loads: loads of each of several writers in a round.
        rounds_max: no workload runs more often than this.
        client_seconds: how long clients work in a round, where a round has no end of its own.
        operations_rows: records of YCSB.
        scale: of TPC-H; below 0.01 its partsupp repeats keys.
        flights: of the demo's; None means all.
        growth: stored rows of the smaller tables of the growth workloads.
        growth_settings: of their stores, as keywords of `Settings`.
    """

    rows: int
    small_rows: int = 1_000_000
    batch: int = 100_000
    small_batch: int = 1_000
    memory_batch: int = 1_000_000
    lookups: int = 10_000
    writer_loads: int = 32
    rounds_max: int = 1_000
    client_seconds: float = 1.0
    operations_rows: int = 100_000
    scale: float = 1.0
    flights: int | None = None
    growth: Sequence[int] = (1_000_000, 10_000_000, 40_000_000)
    growth_settings: Mapping[str, Any] = field(default_factory=dict)

    def rounds(self, wanted: int) -> int:
        return max(1, min(wanted, self.rounds_max))


class OurTable:
    """A table of the engine under test, made if there is none at the path, and what was loaded into it."""

    def __init__(self, path: Path, settings: Settings | None = None) -> None:
        self.path = path
        self.settings = settings
        self.store = Store.open(path, settings=settings)
        self.store.create_database("bench", if_not_exists=True)
        self.table = self.store.create_table(NAME, table_schema(), if_not_exists=True)
        self.loads: list[Load] = []

    def upsert(self, rows: pa.Table) -> LoadResult:
        self.loads.append(LoadedRows(rows))
        return self.table.upsert(rows)

    def delete(self, rows: pa.Table) -> LoadResult:
        self.loads.append(LoadedRows(rows, is_delete=True))
        return self.table.upsert(rows, merge_type="DELETE")

    def close(self) -> None:
        self.store.close()


class FileRows:
    """Rows in Arrow files, a load to the oracle; they are mapped anew whenever they are asked for."""

    is_delete = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def rows(self) -> pa.Table:
        return pa.Table.from_batches(mapped_batches(self.directory), schema=SCHEMA)

    def forget(self) -> None:
        """Drops the files from the page cache; files that a reader has mapped stay."""
        for path in self.directory.iterdir():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class GrowingTable(OurTable):
    """A table whose base is as large as the disk allows: the rows to load are in mapped files.

    Attributes:
        base_size: rows of the base.
        is_loaded: the base is in the table.
    """

    def __init__(self, site: Site, base_size: int) -> None:
        super().__init__(site.new_path("growing"), Settings(**site.sizes.growth_settings))
        self.base_size = base_size
        self.is_loaded = False
        self._base = FileRows(site.new_path("base"))
        parts = (pa.Table.from_batches([part]) for part in base_batches(base_size, site.seed))
        write_arrow(self._base.directory, parts)

    def load_base(self) -> None:
        """Loads the base as a stream of record batches."""
        self.table.upsert(self._base.rows.to_reader())
        self.loads.append(self._base)
        self.is_loaded = True

    def forget_base(self) -> None:
        """Drops the files of the base from the system's memory, so that those of the store have room."""
        self._base.forget()

    @cached_property
    def oracle(self) -> Oracle:
        """The state after the loads."""
        return Oracle(key_count(self.base_size))

    def differences(self, keys: Keys | None = None) -> list[str]:
        """What is wrong with the rows of some keys; None means all keys."""
        for load in self.loads[self.oracle.load_count :]:
            self.oracle.apply(load)
        if keys is None:
            return self.oracle.differences(self.table.scan())
        expected, found = int(self.oracle.live.sum()), self.table.count()
        counts = [] if found == expected else [f"counted {found} rows, expected {expected}"]
        rows = self.table.get(pa.table({KEY: keys})).to_batches()
        return counts + self.oracle.differences(rows, among=keys)

    def reopen(self) -> None:
        """Opens the store as a process would that has just started, and reads a row."""
        self.store.close()
        self.store = Store.open(self.path, settings=self.settings)
        self.table = self.store.table(NAME)
        self.table.get(pa.table({KEY: [0]}))


class Site:
    """One run's directory; everything in it goes when the run ends.

    Args:
        parent: on the disk to be measured.
        sizes: rows and rounds.
        seed: of all rows.
        peers: names of those that take part in contests besides our engine; None means all.

    Attributes:
        workload_seconds: what a workload may take, to be shared by its contenders; None means no limit.
    """

    def __init__(
        self, parent: Path, sizes: Sizes, seed: int, *, peers: Collection[str] | None = None
    ) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        self.sizes = sizes
        self.seed = seed
        self.peers = peers
        self.workload_seconds: float | None = None
        self._path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
        self._serial = count()

    @property
    def keys(self) -> int:
        """Keys of tables over the base are 0 to this, exclusive."""
        return key_count(self.sizes.rows)

    @cached_property
    def base(self) -> pa.Table:
        """The stored rows before anything is changed."""
        return base_rows(self.sizes.rows, self.seed)

    @cached_property
    def small_base(self) -> pa.Table:
        return base_rows(self.sizes.small_rows, self.seed)

    def batches(self, rows: int, *, base: int | None = None) -> Iterator[pa.Table]:
        """Update batches, without end."""
        return update_batches(base or self.sizes.rows, rows, self.seed)

    def takes_part(self, peer: str) -> bool:
        """Was a peer chosen?"""
        return self.peers is None or peer in self.peers

    def contender_seconds(self, contenders: int) -> float | None:
        """The share of one contender in a workload's time."""
        return None if self.workload_seconds is None else self.workload_seconds / max(contenders, 1)

    def oracle(self, loads: Sequence[Load]) -> Oracle:
        """The state after some loads, the first of them a base."""
        return Oracle(key_count(len(loads[0].rows)), loads)

    def new_path(self, name: str) -> Path:
        """A path that does not exist and was not given before: an engine may remember those it has seen."""
        return self._path / f"{name}-{next(self._serial)}"

    def new_table(self, base: pa.Table | None = None) -> OurTable:
        """A table of ours, with the base in it if given."""
        table = OurTable(self.new_path("ours"))
        if base is not None:
            table.upsert(base)
        return table

    def remove(self, path: Path) -> None:
        """Removes a file or directory of this run."""
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    @cached_property
    def read_state(self) -> OurTable:
        """The base, of which then 2.5 % were deleted and 2.5 % replaced: 5 % of its rows are dead."""
        table = self.new_table(self.base)
        deleted, replaced = self._changes
        table.delete(deleted)
        table.upsert(replaced)
        return table

    @cached_property
    def read_state_oracle(self) -> Oracle:
        return self.oracle(self.read_state.loads)

    @cached_property
    def growing(self) -> list[GrowingTable]:
        """Tables of ours without rows yet, for bases of several sizes, the largest last."""
        smaller = [rows for rows in self.sizes.growth if rows < self.sizes.rows]
        return [GrowingTable(self, rows) for rows in (*smaller, self.sizes.rows)]

    @cached_property
    def keyed_duckdb(self) -> KeyedDuckDB:
        """DuckDB with a primary key, holding the base."""
        return KeyedDuckDB(self.new_path("keyed.duckdb"), self.base)

    @cached_property
    def duckdb_read_state(self) -> KeyedDuckDB:
        """`keyed_duckdb`, brought to the same rows as `read_state`."""
        deleted, replaced = self._changes
        self.keyed_duckdb.delete(deleted)
        self.keyed_duckdb.replace(replaced)
        return self.keyed_duckdb

    @cached_property
    def _changes(self) -> tuple[pa.Table, pa.Table]:
        rng = np.random.default_rng((self.seed, _READ_STATE_BATCH))
        rows = self.sizes.rows
        deleted, replaced = max(1, round(rows * _DELETED_SHARE)), max(1, round(rows * _REPLACED_SHARE))
        keys = rng.choice(rows, deleted + replaced, replace=False).astype(np.int64)
        return (
            rows_of_keys(keys[:deleted], _READ_STATE_BATCH, self.seed),
            rows_of_keys(keys[deleted:], _READ_STATE_BATCH + 1, self.seed),
        )

    def wanted_keys(self, number: int, many: int) -> Keys:
        """Keys to look up in a round; about one in twenty has no row."""
        rng = np.random.default_rng((self.seed, number, many))
        return rng.choice(self.keys, min(many, self.keys), replace=False).astype(np.int64)

    def wanted(self, number: int) -> pa.Table:
        """`wanted_keys` of the look-up workload as a table."""
        return pa.table({KEY: self.wanted_keys(number, self.sizes.lookups)})

    def close(self) -> None:
        state: dict[str, Any] = self.__dict__
        for each in (state.get("read_state"), state.get("keyed_duckdb"), *state.get("growing", ())):
            if each is not None:
                each.close()
        shutil.rmtree(self._path, ignore_errors=True)

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
