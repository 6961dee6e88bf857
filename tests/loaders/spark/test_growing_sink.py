"""`auto_create`, `schema_evolution` and `dead_letters` of the sink (EV1-EV11, DL1-DL5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from seqstore import (
    Column,
    InvalidInputError,
    LoadRejectedError,
    NotFoundError,
    Store,
    TableSchema,
    parse_type,
)
from seqstore.loaders.dead_letters.replay import replay
from seqstore.loaders.spark import EpochReport, Feed, foreach_batch_sink
from seqstore.loaders.spark.growing_epoch import GrowingPart
from seqstore.store.publish.evolution import Evolution
from seqstore.store.table import Table
from tests.support.changes.messages import envelope
from tests.support.spark.places import at, elsewhere

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_ID = "sql.streaming.queryId"
ON_DRIVER = 10**30
BY_EXECUTORS = 0
Sizes = pytest.mark.parametrize("size", [ON_DRIVER, BY_EXECUTORS], ids=["driver", "executors"])


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        columns = [
            Column("id", parse_type("INT"), nullable=False),
            Column("n", parse_type("INT")),
            Column("word", parse_type("VARCHAR(3)")),
        ]
        store.create_table("db.old", TableSchema.create(columns, ["id"]))
    return tmp_path / "data"


@pytest.fixture
def in_query(spark: SparkSession) -> Iterator[SparkSession]:
    spark.sparkContext.setLocalProperty(QUERY_ID, "q")
    yield spark
    spark.sparkContext.setLocalProperty(QUERY_ID, None)


def load(
    data_dir: Path, frame: DataFrame, table: Any, epoch: int = 0, size: int = ON_DRIVER, **options: Any
) -> EpochReport:
    return foreach_batch_sink(data_dir, table, driver_bytes_max=size, **options)(frame, epoch)


def rows(data_dir: Path, table: str) -> list[dict[str, Any]]:
    with Store.open(data_dir) as store:
        found: list[dict[str, Any]] = store.table(table).scan().read_all().to_pylist()
    return sorted(found, key=str)


def kinds(data_dir: Path, table: str) -> dict[str, tuple[str, bool]]:
    with Store.open(data_dir) as store:
        return {each.name: (each.type.sql, each.nullable) for each in store.table(table).schema.columns}


def tables(data_dir: Path) -> list[str]:
    with Store.open(data_dir) as store:
        return store.tables("db")


@Sizes
def test_a_table_has_the_columns_of_the_frame(in_query: SparkSession, data_dir: Path, size: int) -> None:
    """EV10: types and NOT NULL; key and sequence by options; again, the table is there."""
    frame = in_query.createDataFrame(
        [(1, Decimal("1.50"), date(2024, 1, 1), 5, ["a"]), (1, Decimal("2.50"), None, 4, None)],
        "id bigint not null, price decimal(9,2) not null, day date, at int, tags array<string>",
    )
    given: dict[str, Any] = {"auto_create": True, "auto_create_key": "id", "auto_create_sequence": "at"}
    report = load(data_dir, frame, "db.new", size=size, **given)
    assert (report.is_replay, list(report.versions)) == (False, ["db.new"])
    assert kinds(data_dir, "db.new") == {
        "id": ("BIGINT", False),
        "price": ("DECIMAL(9,2)", False),
        "day": ("DATE", True),
        "at": ("INT", True),
        "tags": ("ARRAY<STRING>", True),
    }
    assert [(row["price"], row["at"], row["tags"]) for row in rows(data_dir, "db.new")] == [
        (Decimal("1.50"), 5, ["a"])
    ]
    assert load(data_dir, frame, "db.new", size=size, **given).is_replay
    assert load(data_dir, frame.limit(0), "db.new", epoch=1, size=size, **given).versions == report.versions


@Sizes
def test_new_columns_and_wider_types_come_with_the_rows(
    in_query: SparkSession, data_dir: Path, size: int
) -> None:
    """EV1, EV2, EV3."""
    before = in_query.createDataFrame([(1, 1, "abc")], "id int, n int, word string")
    load(data_dir, before, "db.old", size=size, schema_evolution="widen")
    assert list(kinds(data_dir, "db.old")) == ["id", "n", "word"]
    after = in_query.createDataFrame(
        [(2, 3_000_000_000, "abcdef", 1.5)], "id int, n bigint, word string, more double not null"
    )
    load(data_dir, after, "db.old", epoch=1, size=size, schema_evolution="widen")
    assert kinds(data_dir, "db.old") == {
        "id": ("INT", False),
        "n": ("BIGINT", True),
        "word": ("VARCHAR(8)", True),
        "more": ("DOUBLE", True),
    }
    assert [tuple(row.values()) for row in rows(data_dir, "db.old")] == [
        (1, 1, "abc", None),
        (2, 3_000_000_000, "abcdef", 1.5),
    ]
    with Store.open(data_dir) as store:
        operations = [info.operation for info in store.table("db.old").history()]
    assert operations[-2:] == ["SCHEMA EVOLUTION", "SPARK WRITE"]


def test_add_leaves_types_alone_and_off_refuses_new_columns(in_query: SparkSession, data_dir: Path) -> None:
    frame = in_query.createDataFrame([(1, "abcdef", 1)], "id int, word string, more int")
    with pytest.raises(InvalidInputError, match="more"):
        load(data_dir, frame, "db.old")
    with pytest.raises(LoadRejectedError):
        load(data_dir, frame, "db.old", schema_evolution="add")
    assert list(kinds(data_dir, "db.old")) == ["id", "n", "word"]


def test_rejected_rows_are_kept_mended_and_replayed(in_query: SparkSession, data_dir: Path) -> None:
    """DL1, DL5: of a large frame too, which the driver collects for their texts."""
    frame = in_query.createDataFrame(
        [(1, 1, "ab"), (2, 2, "too long"), (None, 3, "x")], "id int, n int, word string"
    )
    report = load(data_dir, frame, "db.old", size=BY_EXECUTORS, dead_letters=True)
    assert report.metrics is not None
    assert (report.metrics.rows_total, report.metrics.rows_filtered) == (3, 2)
    letters = sorted(rows(data_dir, "db.old__dead_letters"), key=lambda row: row["position"])
    assert [json.loads(row["raw"]) for row in letters] == [
        {"id": 2, "n": 2, "word": "too long"},
        {"id": None, "n": 3, "word": "x"},
    ]
    assert {row["label"] for row in letters} == {report.label}
    with Store.open(data_dir) as store:
        changed = store.table("db.old__dead_letters").scan().read_all().to_pylist()
        for row in changed:
            row["raw"] = row["raw"].replace("too long", "new").replace('"id":null', '"id":3')
        letters_of = store.table("db.old__dead_letters")
        letters_of.upsert(pa.Table.from_pylist(changed, letters_of.scan().read_all().schema))
        replay(store, "db.old")
        assert store.table("db.old__dead_letters").count() == 0
    assert [row["id"] for row in rows(data_dir, "db.old")] == [1, 2, 3]
    with pytest.raises(LoadRejectedError):
        load(data_dir, frame, "db.old", epoch=1, size=BY_EXECUTORS, dead_letters=True, max_filter_ratio=0.5)
    assert len(rows(data_dir, "db.old__dead_letters")) == 0


def test_an_epoch_of_rejected_rows_alone_is_not_loaded_again(in_query: SparkSession, data_dir: Path) -> None:
    frame = in_query.createDataFrame([(2, 2, "too long")], "id int, n int, word string")
    report = load(data_dir, frame, "db.old", dead_letters=True)
    again = load(data_dir, frame, "db.old", dead_letters=True)
    assert (again.is_replay, again.versions) == (True, report.versions)
    assert len(rows(data_dir, "db.old__dead_letters")) == 1


def messages(spark: SparkSession, *changes: dict[str, Any] | str) -> DataFrame:
    values = [(json.dumps({"k": 1}), c if isinstance(c, str) else json.dumps(c)) for c in changes]
    return spark.createDataFrame(values, "key string, value string")


def test_messages_make_their_table_and_its_columns(in_query: SparkSession, data_dir: Path) -> None:
    """EV10, EV1, DL1: key and sequence are those of the messages."""
    given: dict[str, Any] = {
        "format": "debezium_json",
        "auto_create": True,
        "schema_evolution": "widen",
        "dead_letters": True,
    }
    empty = load(data_dir, messages(in_query, "").limit(0), "db.made", **given)
    assert (empty.version, tables(data_dir)) == (0, ["old"])
    load(data_dir, messages(in_query, envelope("c", 1, after={"k": 1, "v": 1})), "db.made", 1, **given)
    later = messages(in_query, envelope("u", 3, after={"k": 1, "v": 2.5, "w": "x"}), "no message")
    load(data_dir, later, "db.made", 2, **given)
    late = messages(in_query, envelope("u", 2, after={"k": 1, "v": 9, "w": "late"}))
    load(data_dir, late, "db.made", 3, **given)
    assert [(row["k"], float(row["v"]), row["w"]) for row in rows(data_dir, "db.made")] == [(1, 2.5, "x")]
    (letter,) = rows(data_dir, "db.made__dead_letters")
    assert "no message" in letter["raw"]


def test_several_tables_come_in_one_commit_or_none(in_query: SparkSession, data_dir: Path) -> None:
    frame = in_query.createDataFrame([(1, "long word")], "id int, word string")
    feeds = {
        "db.one": Feed(lambda df: df, auto_create=True, auto_create_key="id"),
        "db.old": Feed(lambda df: df.select("id", "word")),
    }
    with pytest.raises(LoadRejectedError):
        load(data_dir, frame, feeds)
    assert tables(data_dir) == ["old"]
    feeds["db.old"] = Feed(lambda df: df.select("id", "word"), schema_evolution="widen")
    report = load(data_dir, frame, feeds)
    assert set(report.versions) == {"db.one", "db.old"}
    assert [len(rows(data_dir, name)) for name in ("db.one", "db.old")] == [1, 1]
    assert load(data_dir, frame, feeds).is_replay


def test_a_schema_that_changes_meanwhile_is_met(
    in_query: SparkSession, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EV5: another load adds the column, with another type, between the look and the commit."""
    original: Callable[[GrowingPart, Table], Evolution | None] = GrowingPart.evolution
    tries = []

    def evolution(part: GrowingPart, table: Table) -> Evolution | None:
        found = original(part, table)
        tries.append(found)
        if len(tries) == 1:
            other = in_query.createDataFrame([(7, 7)], "id int, more int")
            in_query.sparkContext.setLocalProperty(QUERY_ID, "other")
            load(data_dir, other, "db.old", schema_evolution="add")
            in_query.sparkContext.setLocalProperty(QUERY_ID, "q")
        return found

    monkeypatch.setattr(GrowingPart, "evolution", evolution)
    frame = in_query.createDataFrame([(1, 1)], "id int, more int")
    load(data_dir, frame, "db.old", schema_evolution="widen")
    assert len(tries) == 3
    assert [(row["id"], row["more"]) for row in rows(data_dir, "db.old")] == [(1, 1), (7, 7)]


def test_a_table_that_is_not_to_be_made_is_missing(in_query: SparkSession, data_dir: Path) -> None:
    frame = in_query.createDataFrame([(1,)], "id int")
    with pytest.raises(NotFoundError):
        load(data_dir, frame, "db.new", schema_evolution="add")


def test_a_store_elsewhere_is_refused_by_name(in_query: SparkSession, data_dir: Path) -> None:
    frame = in_query.createDataFrame([(1, "x")], "id int, word string")
    with elsewhere(), pytest.raises(InvalidInputError, match="need a store on the driver's host"):
        foreach_batch_sink(at(data_dir), "db.old", dead_letters=True)(frame, 0)
