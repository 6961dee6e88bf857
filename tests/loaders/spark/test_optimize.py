"""OPTIMIZE in executors: the table that OPTIMIZE on the host makes, by Python, SQL and the command line."""

from __future__ import annotations

import select
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from seqstore import InvalidInputError, Settings, Store, Table, UnavailableError
from seqstore.cli.main import app
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.spark import StoreAt, optimize
from seqstore.loaders.spark.optimize import merging_on
from seqstore.store.errors import StoreError
from seqstore.store.maintenance import compaction
from seqstore.store.maintenance.range_merge import RangeMerge
from seqstore.store.runtime.cancellation import Cancellation, watched
from seqstore.store.sql import ServerContext, Session
from tests.support.object_store import WEED, object_store
from tests.support.rows import rows_of, schema_of
from tests.support.statements import dicts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.settings(Settings(segment_rows=2_000, inline_bytes_max=1))]
KEYS = 6_000


def made(store: Store, name: str) -> Table:
    """A table of three loads and a delete, each in segments of its own."""
    schema = schema_of(
        "k BIGINT NOT NULL", "s INT", "v VARCHAR(20)", sequence_col="s", disable_auto_compaction="true"
    )
    table = store.create_table(name, schema)
    for load in range(3):
        table.upsert(rows(range(load * 1_000, load * 1_000 + KEYS, load + 1), load))
    table.delete({"k": list(range(300))})
    return table


def rows(keys: range, sequence: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "s": pa.array([sequence] * len(keys), pa.int32()),
            "v": [f"value {sequence} of {key}" for key in keys],
        }
    )


def files(table: Table) -> set[str]:
    return set(table.loader.disk.list(table.loader.directory))


def test_executors_make_the_table_that_the_host_makes(spark: SparkSession, store: Store) -> None:
    host, executors = made(store, "db.host"), made(store, "db.executors")
    before = {version: rows_of(host, version=version, hidden=True) for version in range(1, 6)}
    merging = merging_on(spark, "db.executors")
    results = [host.optimize(full=True), compaction.optimize(executors, full=True, elsewhere=merging)]
    for name in ("version", "segments_before", "segments_after", "rows", "rows_removed"):
        assert getattr(results[0], name) == getattr(results[1], name), name
    assert results[0].segments_after > 1
    for version, expected in before.items():
        assert rows_of(executors, version=version, hidden=True) == expected
    assert rows_of(executors, hidden=True) == rows_of(host, hidden=True)
    assert executors.check() == []
    assert [info.operation for info in executors.history()][-1] == "OPTIMIZE"
    assert not [name for name in files(executors) if name.endswith(".load")]


def test_executors_merge_what_a_filter_chooses_along_other_columns(spark: SparkSession, store: Store) -> None:
    table = made(store, "db.t")
    expected = rows_of(table)
    given = len(table.state().segments)
    chosen = optimize(spark, str(store.path), "db.t", where=pc.field("k") > 7_000, zorder_by=["v"])
    assert 0 < chosen.segments_before < given
    assert rows_of(table) == expected
    assert table.check() == []


def test_loads_go_on_meanwhile(spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(store, "db.t")
    loaded = rows(range(200, 2_200), 9)
    made_of = RangeMerge.of

    def overtaken(*given: Any) -> RangeMerge:
        table.upsert(loaded)  # the inputs are chosen, and no task has begun
        return made_of(*given)

    monkeypatch.setattr(RangeMerge, "of", overtaken)
    merging = merging_on(spark, "db.t")
    assert compaction.optimize(table, full=True, elsewhere=merging).version == table.version == 7
    assert table.get({"k": list(range(200, 2_200))}).sort_by("k").to_pylist() == loaded.to_pylist()
    assert table.count() == len(rows_of(table, version=6))
    assert table.check() == []


def test_a_damaged_file_ends_it_by_name_and_leaves_nothing(spark: SparkSession, store: Store) -> None:
    table = made(store, "db.t")
    live = next(iter(table.state().segments.values()))
    name = next(
        name for name in files(table) if name.startswith(live.segment.meta.id) and ".keys" not in name
    )
    path = Path(store.disk.path(f"{table.loader.directory}/{name}"))
    path.write_bytes(path.read_bytes()[:-64])
    kept = files(table)
    with pytest.raises(UnavailableError, match=name):
        optimize(spark, store.path, "db.t", full=True)
    assert files(table) == kept


def test_a_killed_statement_ends_its_tasks_and_leaves_nothing(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(store, "db.t")
    kept, tracker = files(table), spark.sparkContext.statusTracker()
    statement = Cancellation()
    killed = UnavailableError("KILL QUERY", kind="killed")
    made_of = RangeMerge.of

    def waiting(*given: Any) -> Any:
        """Range i takes i seconds: all of them longer than any test."""
        wait = partial(select.select, [], [], [])
        return SimpleNamespace(ranges=[(0, 1)] * 400, inputs=(), load=made_of(*given).load, run=wait)

    monkeypatch.setattr(RangeMerge, "of", waiting)

    def kill() -> None:
        while not tracker.getActiveJobsIds():
            time.sleep(0.01)
        statement.cancel(killed)

    killer = threading.Thread(target=kill)
    killer.start()
    with watched(statement), pytest.raises(StoreError) as caught:
        optimize(spark, store.path, "db.t", full=True)
    killer.join()
    assert caught.value.message == killed.message
    assert files(table) == kept
    while tracker.getActiveJobsIds():  # Spark tells of the end of a job a little later than it ends
        time.sleep(0.05)


def test_a_store_elsewhere_is_refused_with_the_statement_that_does_it(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match='PROPERTIES \\("engine" = "spark"\\)'):
        optimize(spark, StoreAt("seqstore://127.0.0.1:1"), "db.t")


def test_sql_names_the_engine(spark: SparkSession, store: Store) -> None:
    table = made(store, "db.t")
    expected = rows_of(table)
    with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as session:
        text = "OPTIMIZE t FULL WHERE k > 0 ZORDER BY (v) PROPERTIES ('engine' = 'spark')"
        (line,) = dicts(session, text)
    assert line["segments_before"] > line["segments_after"] > 1
    assert rows_of(table) == expected


def test_the_command_line_names_it_too(spark: SparkSession, store: Store) -> None:
    table = made(store, "db.t")
    words = ["optimize", "db.t", "--full", "--engine", "spark"]
    done = CliRunner().invoke(app, ["--data-dir", str(store.path), *words])
    assert done.exit_code == 0, done.output
    assert f"db.t: version 6, {len(table.state(5).segments)} segments to " in done.output


@pytest.mark.long
@pytest.mark.skipif(not WEED.exists(), reason="needs the object store of the extra test")
def test_segments_on_an_object_store_are_merged_by_executors(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    with (
        object_store(tmp_path) as uri,
        Store.open(tmp_path / "far", segments=uri.format("merge"), settings=settings) as store,
    ):
        store.create_database("db")
        table = made(store, "db.t")
        expected = rows_of(table)
        assert compaction.optimize(table, full=True, elsewhere=merging_on(spark, "db.t")).segments_after > 1
        assert rows_of(table) == expected
        assert table.check() == []
