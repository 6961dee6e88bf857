"""format("seqstore"): a snapshot read, and a version written, by Spark's executors."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import Column, InvalidInputError, Session, Settings, Store, Table, TableSchema, parse_type
from seqstore.loaders.spark import held_table, read_table, read_tables
from seqstore.store.ddl.alter import alter
from seqstore.store.ddl.column_changes import add_column
from tests.support.rows import schema_of
from tests.support.spark.places import at, place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


# No compaction between: the versions a write makes are counted.
SMALL = Settings(
    inline_bytes_max=2_000,
    segment_rows=5_000,
    batch_rows_max=1_000,
    clustered_rows_min=1_000,
    auto_compaction=0,
)
pytestmark = [pytest.mark.spark, pytest.mark.settings(SMALL)]
NAMED = pc.is_in(pc.field("v"), pa.array(["third 1", "first 2"]))
TYPES = {
    "id": "BIGINT",
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "large": "LARGEINT",
    "real": "FLOAT",
    "ratio": "DOUBLE",
    "price": "DECIMAL(9,2)",
    "wide": "DECIMAL(50,3)",
    "day": "DATE",
    "at": "DATETIME(6)",
    "code": "CHAR(5)",
    "name": "VARCHAR(20)",
    "doc": "JSON",
    "list": "ARRAY<INT>",
    "map": "MAP<STRING,LARGEINT>",
    "pair": "STRUCT<x:INT,y:DATE>",
}


@pytest.fixture
def table(store: Store) -> Table:
    """20,000 rows, some replaced, every tenth deleted; sequence is `s`."""
    columns = [
        Column("k", parse_type("BIGINT"), nullable=False),
        Column("s", parse_type("INT")),
        Column("v", parse_type("VARCHAR(20)")),
        Column("f", parse_type("DOUBLE")),
    ]
    schema = TableSchema.create(columns, ["k"], properties={"function_column.sequence_col": "s"})
    made = store.create_table("db.t", schema)
    made.upsert(numbered(range(20_000), 1, "first"))
    made.upsert(numbered(range(5_000, 5_300), 2, "second"))
    made.upsert(numbered(range(3), 3, "third"))
    made.delete(pa.table({"k": pa.array(range(0, 20_000, 10), pa.int64())}))
    return made


def numbered(keys: range, sequence: int, text: str) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "s": pa.array([sequence] * len(keys), pa.int32()),
            "v": [f"{text} {k % 7}" if k % 11 else None for k in keys],
            "f": [float("nan") if k % 13 == 0 else k / 2 for k in keys],
        }
    )


def reading(session: SparkSession, store: Store, table: str = "db.t", **options: str) -> DataFrameReader:
    reader = session.read.format("seqstore").options(**place(store.path)).option("table", table)
    return reader.options(**options)


def write(frame: DataFrame, store: Store, table: str = "db.t", **options: str) -> None:
    writer = frame.write.format("seqstore").mode("append")
    writer.options(**place(store.path)).option("table", table).options(**options).save()


def sorted_rows(rows: pa.Table, key: str = "k") -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row[key])


@pytest.mark.telling
def test_a_frame_is_the_snapshot_in_several_partitions(
    session: SparkSession, store: Store, table: Table
) -> None:
    frame = reading(session, store, rows_per_partition="3000", columns="k,s,v").load()
    assert frame.rdd.getNumPartitions() > 4
    assert sorted_rows(frame.toArrow()) == sorted_rows(table.scan(["k", "s", "v"]).read_all())


@pytest.mark.long
def test_a_duplicate_table_keeps_the_rows_of_every_write_and_is_read(
    session: SparkSession, store: Store
) -> None:
    """T10: executors hand rows to the driver's process, which generates their keys."""
    made = store.create_table(
        "db.d", TableSchema.from_arrow(pa.schema([("k", pa.int64()), ("v", pa.string())]), [])
    )
    frame = session.range(0, 6_000, 1, 3).selectExpr("id % 2 AS k", "'x' AS v")
    for _ in range(2):
        write(frame, store, "db.d")
    made.delete_where(pc.field("k") == 1)
    write(frame.limit(10), store, "db.d")
    found = reading(session, store, "db.d", rows_per_partition="1000").load()
    counts = {row["k"]: row["n"] for row in found.groupBy("k").agg({"*": "count"}).toDF("k", "n").collect()}
    assert (counts, found.columns) == ({0: 6_005, 1: 5}, ["k", "v"])
    assert made.count() == 6_010
    with pytest.raises(Exception, match="only supported in unique tables"):
        write(frame, store, "db.d", merge_type="DELETE")


def test_an_older_version_is_read_while_the_table_goes_on(
    session: SparkSession, store: Store, table: Table
) -> None:
    frame = reading(session, store, version="2", columns="v,k").load()
    table.upsert(numbered(range(20_000), 9, "later"))
    expected = table.scan(["v", "k"], version=2).read_all()
    assert sorted_rows(frame.toArrow()) == sorted_rows(expected)


def test_a_frame_keeps_the_version_it_was_made_for(session: SparkSession, store: Store, table: Table) -> None:
    """Partitions are planned once a query starts, all of one version."""
    before = table.count()
    frame = reading(session, store).load().filter("k >= 0")
    assert frame.count() == before


def test_hidden_columns_come_when_asked_for(session: SparkSession, store: Store, table: Table) -> None:
    names = ["k", "__DELETE_SIGN__", "__VERSION_COL__", "__SEQUENCE_COL__"]
    frame = reading(session, store, columns="k," + ",".join(names[1:])).load()
    assert frame.columns == names
    assert sorted_rows(frame.toArrow()) == sorted_rows(table.scan(names).read_all())
    shown = reading(session, store, hidden="true").load()
    assert shown.columns == ["k", "s", "v", "f", *names[1:]]


@pytest.mark.parametrize(
    ("condition", "expression"),
    [
        ("k = 4999", pc.field("k") == 4999),
        ("k < 50 and s >= 1", (pc.field("k") < 50) & (pc.field("s") >= 1)),
        ("k in (1, 2, 20, 30000)", pc.is_in(pc.field("k"), pa.array([1, 2, 20, 30_000]))),
        ("v like 'second%'", pc.starts_with(pc.field("v"), "second")),
        ("v is null and k > 100", pc.field("v").is_null() & (pc.field("k") > 100)),
        ("not (s = 1)", pc.field("s") != 1),
        ("v not in ('third 1', 'first 2')", ~NAMED & pc.field("v").is_valid()),
        ("v not like 'first%'", ~pc.starts_with(pc.field("v"), "first")),
        ("not (v <=> 'third 1')", (pc.field("v") != "third 1") | pc.field("v").is_null()),
        ("v <=> 'third 1'", pc.field("v") == "third 1"),
    ],
)
def test_filters_reach_the_store_and_mean_the_same(
    session: SparkSession, store: Store, table: Table, condition: str, expression: pc.Expression
) -> None:
    frame = reading(session, store, columns="k,s,v", pushdown="true").load().where(condition)
    assert sorted_rows(frame.toArrow()) == sorted_rows(table.scan(["k", "s", "v"], expression).read_all())
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan, plan


def test_a_frame_that_several_queries_filter_gives_each_its_rows(
    session: SparkSession, store: Store, table: Table
) -> None:
    """Spark 4.3 would give all of them those of the filter that was pushed last."""
    frame = reading(session, store, columns="k").load()
    assert frame.where("k < 5").count() == 4
    assert frame.count() == table.count()
    both = frame.where("k = 11").union(frame.where("k = 12"))
    assert sorted(row["k"] for row in both.collect()) == [11, 12]


def test_the_option_filter_prunes_and_belongs_to_the_frame(
    session: SparkSession, store: Store, table: Table
) -> None:
    frame = reading(session, store, columns="v", filter="k >= 5000 AND k < 5300 AND s = 2").load()
    assert frame.rdd.getNumPartitions() == 1
    assert frame.where("v is null").count() + frame.where("v is not null").count() == 270
    assert frame.count() == 270
    with pytest.raises(Exception, match="expected comparisons of a column with constants"):
        reading(session, store, filter="k + 1 = 2").load().count()


def test_filters_over_floats_stay_with_spark(session: SparkSession, store: Store, table: Table) -> None:
    """Spark sorts NaN above every number; the store does not."""
    frame = reading(session, store, pushdown="true").load()
    values = table.scan(["f"]).read_all().column("f").to_pylist()
    expected = sum(1 for value in values if value != value or value > 9_000)
    assert frame.where("f > 9000").count() == expected


def test_every_type_goes_there_and_back(session: SparkSession, store: Store) -> None:
    columns = [Column(name, parse_type(text), nullable=name != "id") for name, text in TYPES.items()]
    made = store.create_table("db.every", TableSchema.create(columns, ["id"]))
    first = {
        "id": 1,
        "flag": True,
        "tiny": -128,
        "small": 32_767,
        "whole": -1,
        "large": Decimal(2**127 - 1),
        "real": 1.5,
        "ratio": 0.1,
        "price": Decimal("12.50"),
        "wide": Decimal("99999999999999999999999999999999999999999.125"),
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 23, 59, 59, 999_999),
        "code": "ab",
        "name": "flüge",
        "doc": '{"a":[1,2]}',
        "list": [1, None],
        "map": [("k", Decimal(7)), ("n", None)],
        "pair": {"x": 1, "y": None},
    }
    nothing = {name: 2 if name == "id" else None for name in TYPES}
    made.upsert(pa.Table.from_pylist([first, nothing], schema=made.schema.arrow))
    frame = reading(session, store, "db.every").load()
    assert {f.name: f.dataType.simpleString() for f in frame.schema} == {
        **{name: kind.lower() for name, kind in TYPES.items()},
        "id": "bigint",
        "large": "string",
        "real": "float",
        "price": "decimal(9,2)",
        "wide": "string",
        "at": "timestamp_ntz",
        "code": "string",
        "name": "string",
        "doc": "string",
        "map": "map<string,string>",
        "list": "array<int>",
        "pair": "struct<x:int,y:date>",
    }
    store.create_table("db.copy", made.schema)
    write(frame, store, "db.copy")
    copied = store.table("db.copy").scan().read_all().to_pylist()
    assert sorted(copied, key=lambda row: row["id"]) == [first, nothing]


def test_a_narrower_schema_reads_only_its_columns(session: SparkSession, store: Store, table: Table) -> None:
    frame = reading(session, store).schema("K long, s long").load()
    assert frame.columns == ["K", "s"]
    assert frame.selectExpr("sum(K + s)").collect()[0][0] == sum(
        row["k"] + row["s"] for row in table.scan(["k", "s"]).read_all().to_pylist()
    )


def test_sql_reads_and_inserts_through_a_view(session: SparkSession, store: Store, table: Table) -> None:
    """Both are handed all options of the view."""
    options = f"path '{store.path.as_uri()}', table 'db.t', columns 'k,s,v,f', merge_type 'APPEND'"
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING seqstore OPTIONS ({options})")
    before = table.count()
    assert session.sql("SELECT count(*) FROM v").collect()[0][0] == before
    session.sql("INSERT INTO v SELECT 50000, 1, 'new', 0.5")
    assert table.count() == before + 1


def test_an_append_upserts_by_sequence(session: SparkSession, store: Store, table: Table) -> None:
    """SO4 among the tasks of one write and against what is stored; one version."""
    version, before = table.version, table.count()
    frame = session.range(0, 12_000, 1, 5).selectExpr(
        "19000 + id % 3000 AS k",
        "CAST(id div 3000 AS int) AS s",
        "concat('spark ', id div 3000) AS v",
        "0.0D AS f",
    )
    write(frame, store, label="one")
    assert table.version == version + 1
    info = table.history()[-1]
    assert (info.operation, info.label, info.metrics.rows_total) == ("SPARK WRITE", "one", 12_000)
    assert table.count() == before + 2_000 + 100  # 100 of the keys had been deleted with sequence 1
    values = pc.unique(table.scan(["v"], pc.field("k") >= 19_000).read_all().column("v"))
    assert values.to_pylist() == ["spark 3"]
    assert table.check() == []


def test_a_label_is_written_once(session: SparkSession, store: Store, table: Table) -> None:
    """X16"""
    frame = session.range(5_000).selectExpr("id AS k", "7 AS s", "'a' AS v", "0.0D AS f")
    write(frame, store, label="once")
    version = table.version
    with pytest.raises(Exception, match=r"Label \[once\] has already been used"):
        write(frame, store, label="once")
    assert table.version == version
    assert staged_files(store) == named_files(table)


def test_a_failed_write_leaves_nothing(session: SparkSession, store: Store, table: Table) -> None:
    version = table.version
    frame = session.range(0, 20_000, 1, 4).selectExpr(
        "id AS k", "7 AS s", "if(id = 15000, raise_error('broken'), 'a') AS v", "0.0D AS f"
    )
    with pytest.raises(Exception, match="broken"):
        write(frame, store)
    assert table.version == version
    assert staged_files(store) == named_files(table)


def test_bad_rows_count_and_fail_the_write(session: SparkSession, store: Store, table: Table) -> None:
    frame = session.range(0, 100, 1, 4).selectExpr(
        "id AS k", "7 AS s", "if(id % 10 = 3, repeat('x', 30), 'a') AS v", "0.0D AS f"
    )
    with pytest.raises(Exception, match="10 of 100"):
        write(frame, store)
    write(frame, store, max_filter_ratio="0.1")
    info = table.history()[-1]
    assert (info.metrics.rows_total, info.metrics.rows_loaded, info.metrics.rows_filtered) == (100, 90, 10)


def test_merge_type_delete_deletes(session: SparkSession, store: Store, table: Table) -> None:
    """G1"""
    before = table.count()
    frame = session.range(1, 10).selectExpr("id AS k", "9 AS s")
    write(frame, store, merge_type="DELETE")
    assert table.count() == before - 9


def test_a_partial_frame_keeps_the_other_columns(session: SparkSession, store: Store, table: Table) -> None:
    """P6, P7, P10: rows are checked by executors and filled where they are published."""
    frame = session.range(0, 6, 1, 3).selectExpr("id AS k", "10 AS s", "concat('part ', id) AS v")
    write(frame, store, partial_columns="true")
    found = sorted_rows(table.scan(["k", "s", "v", "f"], pc.field("k") < 6).read_all())
    assert [(row["s"], row["v"]) for row in found] == [(10, f"part {k}") for k in range(6)]
    assert [row["f"] for row in found[1:]] == [k / 2 for k in range(1, 6)]
    assert found[0]["f"] is None  # key 0 had been deleted
    version = table.version
    new = session.range(70_000, 70_001).selectExpr("id AS k", "10 AS s")
    with pytest.raises(Exception, match="Can't append new rows in partial update"):
        write(new, store, partial_columns="true", partial_update_new_key_behavior="ERROR")
    assert table.version == version
    assert staged_files(store) == named_files(table)
    assert table.check() == []


def test_a_write_with_an_application_id_is_repeated_by_larger_versions_only(
    session: SparkSession, store: Store, table: Table
) -> None:
    """Scenario 49: 1, 2, 5, 5, 4."""
    before = table.version
    versions = []
    for number, txn_version in enumerate(("1", "2", "5", "5", "4")):
        frame = session.range(1).selectExpr("id AS k", f"{number + 50} AS s", "'x' AS v", "0.0D AS f")
        write(frame, store, txnAppId="job", txnVersion=txn_version)
        versions.append(table.version - before)
    assert versions == [1, 2, 3, 3, 3]
    assert table.get(pa.table({"k": [0]}), ["s"]).to_pylist() == [{"s": 52}]
    with pytest.raises(Exception, match="txnAppId and txnVersion go together, txnVersion is missing"):
        write(session.range(1).selectExpr("id AS k", "99 AS s", "'x' AS v", "0.0D AS f"), store, txnAppId="a")


def test_an_empty_frame_makes_no_version(session: SparkSession, store: Store, table: Table) -> None:
    version = table.version
    write(session.range(0).selectExpr("id AS k", "9 AS s", "'' AS v", "0.0D AS f"), store)
    assert table.version == version


@pytest.mark.family(2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tabel": "db.t"}, "option 'tabel' of format seqstore is not known"),
        ({"table": "db.none"}, "Unknown table"),
        ({"table": ""}, "table is missing"),
        ({"version": "77"}, "version 77 cannot be read"),
        ({"version": "x"}, "expected a positive integer, found 'x'"),
        ({"columns": "k,zz"}, "zz"),
        ({"hidden": "maybe"}, "expected true or false"),
        ({"partitions": "p"}, "option 'partitions' means nothing to a read"),
    ],
)
def test_wrong_options_are_named(
    session: SparkSession, store: Store, table: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        reading(session, store, **options).load().count()


@pytest.mark.family(2)
@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("1 AS nope", {}, "unknown column 'nope'"),
        ("parse_json('1') AS doc", {}, r"VARIANT.*to_json\(doc\)"),
        ("array(map(1, parse_json('1'))) AS doc", {}, "'doc' is or holds a VARIANT"),
        ("named_struct('X', 1, 'z', 2) AS pair", {}, "unknown field 'z' of 'pair'; the table has x, y"),
        ("array(named_struct('X', named_struct('z', 2))) AS deep", {}, "unknown field 'z' of 'deep.X'"),
        ("1 AS whole", {"label": "bad label"}, "label 'bad label': expected 1 to 128 bytes"),
        ("1 AS whole", {"label": ""}, "label '': expected 1 to 128 bytes"),
        ("1 AS whole", {"columns": "id"}, "selects columns of a read, not of a write"),
        ("1 AS whole", {"filter": "id = 1"}, "option 'filter' means nothing to a write"),
    ],
)
def test_what_does_not_fit_fails_before_a_task_runs(
    session: SparkSession, store: Store, columns: str, options: dict[str, str], message: str
) -> None:
    types = {**TYPES, "deep": "ARRAY<STRUCT<x:STRUCT<y:INT>>>"}
    made = [Column(name, parse_type(text), nullable=name != "id") for name, text in types.items()]
    store.create_table("db.every", TableSchema.create(made, ["id"]))
    frame = session.range(3).selectExpr("if(id < 9, raise_error('a task ran'), id) AS id", columns)
    with pytest.raises(Exception, match=message):
        write(frame, store, "db.every", **options)
    assert staged_files(store) == set()


@pytest.fixture
def parquet(tmp_path: Path) -> Iterator[tuple[Store, Table]]:
    """20,000 rows in Parquet files, some replaced, a tenth deleted; the path looks like a pattern."""
    columns = [Column(name, parse_type(TYPES[name]), nullable=name != "id") for name in TYPES]
    columns.append(Column("_metadata", parse_type("INT")))
    with Store.open(tmp_path / "da[ta]*", settings=SMALL) as opened:
        opened.create_database("db")
        schema = TableSchema.create(columns, ["id"], properties={"storage_format": "parquet"})
        made = opened.create_table("db.t", schema)
        made.upsert(wide_rows(range(20_000), "first"))
        made.upsert(wide_rows(range(5_000, 5_400), "second"))
        made.upsert(wide_rows(range(3), "third"))
        made.delete(pa.table({"id": pa.array(range(0, 20_000, 10), pa.int64())}))
        yield opened, made


def wide_rows(keys: range, text: str) -> pa.Table:
    values = [
        {
            "id": k,
            "flag": k % 2 == 0,
            "tiny": k % 100 - 50,
            "whole": k,
            "large": Decimal(2**100 + k),
            "ratio": k / 3,
            "price": Decimal(k) / 100,
            "day": date(2024, 1, 1 + k % 28),
            "at": datetime(2024, 2, 29, 23, 59, 59, k),
            "name": f"{text} {k}" if k % 7 else None,
            "list": [k, None],
            "pair": {"x": k, "y": None},
        }
        for k in keys
    ]
    return pa.Table.from_pylist(values)


def test_parquet_tables_are_read_by_spark_itself_where_that_is_right(
    session: SparkSession, parquet: tuple[Store, Table]
) -> None:
    store, table = parquet
    columns = ["name", "id", "at", "price", "flag", "tiny", "day", "list", "pair", "ratio"]
    homes = {live.segment.meta.home for live in table.state().segments.values()}
    assert homes == {"parquet", "inline"}
    expected = {k: table.scan(columns, version=k).read_all() for k in (2, table.version)}
    for version, rows in expected.items():
        frame = read_table(session, at(store.path), "db.t", columns, version=version, route="native")
        assert frame.columns == columns
        assert sorted_rows(frame.toArrow(), "id") == sorted_rows(rows, "id")
    frame = read_table(session, at(store.path), "db.t", ["id"])
    assert frame.where("id BETWEEN 5000 AND 5099").count() == 90
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet" in plan, plan
    assert "BatchScan seqstore" not in plan


@pytest.mark.family(1)
@pytest.mark.parametrize("bits", [1 << 29, 2_500])
def test_files_of_one_size_keep_their_own_deletes(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    """Native reads know a file by its size: two of one size had the bitmap of one of them."""
    monkeypatch.setattr(importlib.import_module("seqstore.loaders.spark.read_table"), "_BITS_MAX", bits)
    settings = Settings(inline_bytes_max=0, auto_compaction=0)
    with Store.open(tmp_path / "data", settings=settings) as store:
        store.create_database("db")
        columns = ("k BIGINT NOT NULL", "v BIGINT")
        table = store.create_table("db.t", schema_of(*columns, storage_format="parquet"))
        for start in range(0, 12_000, 1_000):
            keys = list(range(start, start + 1_000))
            table.upsert(pa.table({"k": keys, "v": [start] * 1_000}))
        files = list((store.path / "tables" / str(table.id)).glob("*.parquet"))
        assert len({path.stat().st_size for path in files}) < len(files)
        hidden = [
            start + (start // 1_000) * 7 + each for start in range(0, 12_000, 1_000) for each in (0, 64)
        ]
        table.delete(pa.table({"k": hidden}))
        frame = read_table(session, at(store.path), "db.t", ["k", "v"], route="native")
        assert sorted_rows(frame.toArrow(), "k") == sorted_rows(table.scan(["k", "v"]).read_all(), "k")


def test_a_held_version_is_read_after_its_files_were_vacuumed(session: SparkSession, tmp_path: Path) -> None:
    """A query that Spark begins later than the retention found no files."""
    settings = Settings(inline_bytes_max=0, auto_compaction=0)
    with Store.open(tmp_path / "data", settings=settings) as store:
        store.create_database("db")
        table = store.create_table(
            "db.t", schema_of("k BIGINT NOT NULL", "v BIGINT", storage_format="parquet")
        )
        for value in (1, 2):
            table.upsert(pa.table({"k": [1, 2, 3], "v": [value] * 3}))
        expected = table.scan(["k", "v"]).read_all()
        with held_table(session, at(store.path), "db.t", ["k", "v"], route="native") as frame:
            table.upsert(pa.table({"k": [1, 2, 3], "v": [3] * 3}))
            table.optimize(full=True)
            table.vacuum(retention_seconds=0)
            assert sorted_rows(frame.toArrow(), "k") == sorted_rows(expected, "k")
        assert table.vacuum(retention_seconds=0).files


def test_open_tables_are_read_by_spark_itself_under_their_names_of_today(
    session: SparkSession, tmp_path: Path
) -> None:
    """Files of open tables have names of their own: read by those of the table, every value is NULL."""
    opened = {"delta.universalFormat.enabledFormats": "delta", "open_every_seconds": "0"}
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING", "w BIGINT", **opened))
        for text in ("a", "b"):
            table.upsert(pa.table({"k": [1, 2, 3], "v": [text] * 3, "w": [None, 5, 6]}))
        table.upsert(pa.table({"k": [7], "v": ["c"], "w": [8]}))
        with Session(store, "db") as sql:
            list(sql.execute("ALTER TABLE t RENAME COLUMN v text; DELETE FROM t WHERE k = 2"))
        table.upsert(pa.table({"k": [9], "text": ["d"], "w": [10]}))
        frame = read_table(session, at(store.path), "db.t", ["text", "k", "w"], route="native")
        assert frame.columns == ["text", "k", "w"]
        assert sorted_rows(frame.toArrow(), "k") == sorted_rows(
            table.scan(["text", "k", "w"]).read_all(), "k"
        )


def test_read_tables_returns_all_tables_as_of_one_moment(
    session: SparkSession, parquet: tuple[Store, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that commits between the planning of two frames is in neither."""
    store, table = parquet
    other = store.create_table("db.other", table.schema)
    other.upsert(table.scan().read_all().slice(0, 5))
    counts = [table.count(), other.count()]
    module = importlib.import_module("seqstore.loaders.spark.read_table")
    plan = module.read_table

    def plan_after_a_load(*arguments: Any, **options: Any) -> Any:
        with store.transaction() as transaction:
            for each in (table, other):
                rows = transaction.table(each.name)
                rows.delete(rows.scan(list(table.schema.key)).read_all().slice(0, 1))
        return plan(*arguments, **options)

    monkeypatch.setattr(module, "read_table", plan_after_a_load)
    frames = read_tables(session, at(store.path), ["db.t", "db.other"])
    assert [frame.count() for frame in frames.values()] == counts
    assert [table.count(), other.count()] == [count - 2 for count in counts]


@pytest.mark.long
def test_what_spark_cannot_read_itself_goes_through_the_source(
    session: SparkSession, parquet: tuple[Store, Table]
) -> None:
    store, table = parquet
    with pytest.raises(InvalidInputError, match="Spark has no type for large"):
        read_table(session, at(store.path), "db.t", ["id", "large"], route="native")
    frame = read_table(session, at(store.path), "db.t", ["id", "large"])
    assert frame.where("id = 4999").collect()[0]["large"] == str(2**100 + 4999)
    with pytest.raises(InvalidInputError, match="the name _metadata is used for the column"):
        read_table(session, at(store.path), "db.t", ["id", "_metadata"], route="native")
    assert read_table(session, at(store.path), "db.t", ["_METADATA"]).count() == table.count()
    alter(table, [add_column(Column("extra", parse_type("INT")))])
    with pytest.raises(InvalidInputError, match="column extra was changed after segment"):
        read_table(session, at(store.path), "db.t", ["id", "extra"], route="native")
    assert read_table(session, at(store.path), "db.t", ["EXTRA"]).columns == ["extra"]
    assert read_table(session, at(store.path), "db.t", ["id"], route="native").count() == table.count()
    with pytest.raises(InvalidInputError, match="route 'fast' is not known"):
        read_table(session, at(store.path), "db.t", route="fast")


def staged_files(store: Store) -> set[str]:
    """Segment files there are."""
    return {path.name for path in (store.path / "tables").rglob("*") if path.is_file()}


def named_files(table: Table) -> set[str]:
    """Segment files the newest version names."""
    segments = [live.segment.meta for live in table.state().segments.values()]
    return {
        f"{meta.id}.{suffix}" for meta in segments if meta.home != "inline" for suffix in (meta.home, "keys")
    }
