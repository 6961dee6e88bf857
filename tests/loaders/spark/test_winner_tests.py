"""Loads whose winners executors test end as those that the driver's host tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from seqstore import Column, InvalidInputError, Store, Table, TableSchema, parse_type
from seqstore.loaders.spark import Feed, StoreAt, foreach_batch_sink, winner_tests, write_frame
from seqstore.loaders.spark.winner_tests import ROWS_MIN_SETTING
from seqstore.store.publish import tested_write
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.publish.tested_write import HeldTest
from tests.seeds import new_seed
from tests.support.rows import rows_of
from tests.support.spark.spark_cluster import STANDALONE
from tests.weight import by_form

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]
QUERY_ID = "sql.streaming.queryId"
KEYS = 30_000  # shares too large for the catalog, so they are files
FRAME = "k long, s long, v string, __DELETE_SIGN__ byte"
Made = Callable[[Any], None]


def make_tables(store: Store, sequence: str = "s") -> tuple[Table, Table]:
    """Two tables of one shape; their maintenance does not run by itself."""
    kinds = {"k": "BIGINT", "s": "BIGINT", "v": "VARCHAR(20)"}
    columns = [Column(name, parse_type(kind), nullable=name != "k") for name, kind in kinds.items()]
    properties = {"disable_auto_compaction": "true"}
    if sequence:
        properties["function_column.sequence_col"] = sequence
    schema = TableSchema.create(columns, ["k"], properties=properties)
    return store.create_table("db.host", schema), store.create_table("db.executors", schema)


def drawn(random_of: random.Random, rows: int, keys: int = KEYS) -> pa.Table:
    """Rows with ties of the sequence, NULLs, repeated keys and deletes."""
    return pa.table(
        {
            "k": pa.array(random_of.choices(range(keys), k=rows), pa.int64()),
            "s": pa.array(random_of.choices([None, 1, 2, 3, 4], k=rows), pa.int64()),
            "v": pa.array([f"value {number}" for number in range(rows)]),
            "__DELETE_SIGN__": pa.array(random_of.choices([0, 0, 0, 1], k=rows), pa.int8()),
        }
    )


def framed(spark: SparkSession, rows: pa.Table, path: Path) -> DataFrame:
    """A frame of a few partitions, whose rows always lie in the same ones."""
    import pyarrow.parquet as pq

    path.mkdir()
    for number in range(3):
        third = -(-len(rows) // 3)
        pq.write_table(rows.slice(number * third, third), path / f"{number}.parquet")
    return spark.read.schema(FRAME).parquet(str(path)).coalesce(3)


def counts(done: Any) -> tuple[Any, ...]:
    names = ("total", "loaded", "superseded", "late", "replaced", "deleted")
    return tuple(getattr(done, f"rows_{name}") for name in names)


@pytest.mark.parametrize("sequence", ["s", ""], ids=["by sequence", "by arrival"])
def test_executors_and_the_host_choose_the_same_rows(
    spark: SparkSession, store: Store, tmp_path: Path, sequence: str
) -> None:
    for number in range(by_form(1, 6)):
        seed = new_seed()
        random_of = random.Random(seed)
        if number:
            for way in ("host", "executors"):
                store.drop_table(f"db.{way}")
        tables = make_tables(store, sequence)
        for size in (random_of.choice([10, KEYS]), 20, 5):  # small ones lie in the catalog
            rows = drawn(random_of, size)
            for table in tables:
                table.upsert(rows)
        frame = framed(spark, drawn(random_of, KEYS), tmp_path / f"frame{number}")
        data = tmp_path / "data"
        done = [write_frame(frame, data, f"db.{way}", winner_test=way) for way in ("host", "executors")]
        assert counts(done[0]) == counts(done[1]), f"seed {seed}"
        assert rows_of(tables[0]) == rows_of(tables[1]), f"seed {seed}"
        assert tables[1].check() == [], f"seed {seed}"


@pytest.fixture
def in_between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Runs a function once, after executors have tested a load and before it is committed."""

    def put(run: Callable[[], None]) -> None:
        def end_test(*arguments: Any) -> None:
            run()
            tested_write.end_test(*arguments)

        monkeypatch.setattr(winner_tests, "end_test", end_test)

    return put


@pytest.mark.parametrize("compacts", [False, True], ids=["a load", "a load and a compaction"])
def test_a_load_that_is_overtaken_after_the_test_counts_what_is_there_now(
    spark: SparkSession, store: Store, tmp_path: Path, in_between: Made, compacts: bool
) -> None:
    seed = new_seed()
    random_of = random.Random(seed)
    host, tested = make_tables(store)
    first, overtaking = drawn(random_of, KEYS), drawn(random_of, 500)
    for table in (host, tested):
        table.upsert(first)
    host.upsert(overtaking)

    def overtake() -> None:
        tested.upsert(overtaking)
        if compacts:
            tested.optimize()

    in_between(overtake)
    frame = framed(spark, drawn(random_of, KEYS), tmp_path / "frame")
    done = [
        write_frame(frame, tmp_path / "data", f"db.{way}", winner_test=way) for way in ("host", "executors")
    ]
    assert counts(done[0]) == counts(done[1]), f"seed {seed}"
    assert rows_of(host) == rows_of(tested), f"seed {seed}"


def test_an_epoch_of_two_tables_is_tested_by_executors(
    spark: SparkSession, store: Store, tmp_path: Path, in_between: Made
) -> None:
    tested: list[int] = []
    in_between(lambda: tested.append(1))
    tables = make_tables(store)
    for table in tables:
        table.upsert(drawn(random.Random(1), 50, 50))
    feeds = {table.name: Feed(lambda df: df) for table in tables}
    sink = foreach_batch_sink(tmp_path / "data", feeds, winner_test="executors")
    frame = spark.createDataFrame([(key, 9, "new", 0) for key in range(40)], FRAME)
    spark.sparkContext.setLocalProperty(QUERY_ID, "q")
    try:
        report = sink(frame, 0)
    finally:
        spark.sparkContext.setLocalProperty(QUERY_ID, None)
    assert report.metrics is not None
    assert report.metrics.rows_loaded == 80
    for table in tables:
        assert [row[2] for row in rows_of(table) if row[0] < 40] == ["new"] * 40
    assert len(tested) == 2


@pytest.mark.executors
@pytest.mark.parametrize("fault", ["fails", "executor dies"])
def test_a_range_that_is_tested_again_counts_once(
    spark: SparkSession, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Its task failed, or its executor was killed, after the test."""
    check_with_fault(spark, store, tmp_path, monkeypatch, fault)


@pytest.mark.executors(STANDALONE)  # Spark speculates on another host only
def test_of_two_attempts_at_a_range_one_counts(
    spark: SparkSession, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_with_fault(spark, store, tmp_path, monkeypatch, "has a twin")


def check_with_fault(
    spark: SparkSession, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A load that executors test, where range 1 has a fault, ends as one that the host tests."""
    from tests.support.faults.spark_faults import FaultyTest

    def begin_test(writer: TableWriter, ranges: int) -> HeldTest | None:
        held = tested_write.begin_test(writer, ranges)
        assert held is not None
        faulty = FaultyTest(**held.test.__dict__, fault=fault, marker=str(tmp_path / "marker"))
        return replace(held, test=faulty)

    seed = new_seed()
    random_of = random.Random(seed)
    host, tested = make_tables(store)
    first = drawn(random_of, KEYS)
    for table in (host, tested):
        table.upsert(first)
    frame = framed(spark, drawn(random_of, KEYS), tmp_path / "frame")
    expected = write_frame(frame, tmp_path / "data", "db.host", winner_test="host")
    monkeypatch.setattr(winner_tests, "begin_test", begin_test)
    done = write_frame(frame, tmp_path / "data", "db.executors", winner_test="executors")
    assert (tmp_path / "marker").exists(), "nothing went wrong"
    assert counts(done) == counts(expected), f"seed {seed}"
    assert rows_of(host) == rows_of(tested), f"seed {seed}"


@pytest.mark.parametrize(("least", "tests"), [("41", 0), ("40", 1)])
def test_auto_lets_executors_test_large_loads(
    spark: SparkSession, store: Store, tmp_path: Path, in_between: Made, least: str, tests: int
) -> None:
    tested: list[int] = []
    in_between(lambda: tested.append(1))
    make_tables(store)
    frame = spark.createDataFrame([(key, 9, "new", 0) for key in range(40)], FRAME)
    spark.conf.set(ROWS_MIN_SETTING, least)
    try:
        write_frame(frame, tmp_path / "data", "db.host")
    finally:
        spark.conf.unset(ROWS_MIN_SETTING)
    assert len(tested) == tests


def test_a_partial_update_is_prepared_on_the_host(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    host, _ = make_tables(store)
    host.upsert(pa.table({"k": [1], "s": [1], "v": ["old"]}))
    frame = spark.createDataFrame([(1, 2)], "k long, s long")
    write_frame(frame, tmp_path / "data", "db.host", winner_test="executors", partial_columns=True)
    assert rows_of(host) == [(1, 2, "old")]


def test_no_other_choice_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="expected one of auto, executors, host, found 'driver'"):
        foreach_batch_sink(tmp_path, "db.t", winner_test="driver")


def test_executors_cannot_test_winners_of_a_store_elsewhere(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match="the store is behind a server"):
        foreach_batch_sink(StoreAt("seqstore://127.0.0.1:1"), "db.t", winner_test="executors")


def test_a_sink_that_may_change_tables_tests_winners_on_the_host(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not go with auto_create"):
        foreach_batch_sink(tmp_path, "db.t", winner_test="executors", schema_evolution="add")


def test_a_write_of_the_data_source_names_the_function_to_use(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    from seqstore.loaders.spark.options import SourceOptions

    given = {"path": str(tmp_path / "data"), "table": "db.host", "winner_test": "executors"}
    with pytest.raises(InvalidInputError, match="use write_frame"):
        SourceOptions.parse(given)
