"""Scans and look-ups: columns, hidden columns, filters, versions, and what misuse is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    Column,
    InvalidInputError,
    Settings,
    Store,
    Table,
    TableSchema,
    VersionExpiredError,
    parse_type,
)
from seqstore.store.read.marked_scan import LIVE
from tests.support.filter_text import needs_cut_text
from tests.support.rows import rows_of, schema_of


@pytest.fixture(params=["inline", "arrow", "lz4", "parquet"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    """Four versions: three rows, one replaced, one deleted, one late; spread over several batches."""
    home = str(request.param)
    sizes = (
        Settings()
        if home == "inline"
        else Settings(inline_bytes_max=1, batch_rows_max=2, clustered_rows_min=2)
    )
    store = Store.open(tmp_path / "data", settings=sizes)
    store.create_database("db")
    properties = {"parquet": {"storage_format": "parquet"}, "lz4": {"compression": "lz4"}}.get(home, {})
    schema = schema_of("k INT NOT NULL", "v INT", "w VARCHAR(9)", sequence_col="v", **properties)
    made = store.create_table("db.t", schema)
    made.upsert(pa.table({"k": [1, 2, 3, 4], "v": [10, 20, 30, None], "w": list("abcd")}))
    made.upsert(pa.table({"k": [2, 3], "v": [21, 29], "w": ["B", "late"]}))
    made.upsert(pa.table({"k": [1], "v": [11]}), merge_type="DELETE")
    return made


def test_select_star_shows_visible_columns_of_live_rows(table: Table) -> None:
    assert rows_of(table) == [(2, 21, "B"), (3, 30, "c"), (4, None, "d")]
    assert table.count() == 3


def test_hidden_columns_come_in_the_documented_order(table: Table) -> None:
    """T4, T8."""
    reader = table.scan(hidden=True, deleted=True)
    assert reader.schema.names[3:] == ["__DELETE_SIGN__", "__VERSION_COL__", "__SEQUENCE_COL__"]
    rows = sorted((r["k"], *list(r.values())[3:]) for r in reader.read_all().to_pylist())
    assert rows == [(1, 1, 4, 11), (2, 0, 3, 21), (3, 0, 2, 30), (4, 0, 2, None)]


def test_columns_are_named_without_regard_to_case_and_in_any_order(table: Table) -> None:
    """T7: hidden ones by either spelling."""
    reader = table.scan(["W", "__doris_version_col__", "k"])
    assert reader.schema.names == ["w", "__VERSION_COL__", "k"]
    assert sorted(row["__VERSION_COL__"] for row in reader.read_all().to_pylist()) == [2, 2, 3]


def test_a_column_may_be_asked_for_twice(table: Table) -> None:
    for options in ({}, {"filter": pc.field("k") > 0}):
        rows = table.scan(["k", "k"], **options).read_all()
        assert rows.schema.names == ["k", "k"]
        assert rows.column(0).equals(rows.column(1))
        assert rows.num_rows == 3


@pytest.mark.family(12)
@pytest.mark.parametrize(
    ("predicate", "keys"),
    [
        (pc.field("k") == 2, [2]),
        (pc.field("v").is_null(), [4]),
        (pc.field("v") != 21, [3]),
        (pc.field("w").isin(["c", "a"]), [3]),
        (pc.field("__VERSION_COL__") == 2, [3, 4]),
        (pc.field("__SEQUENCE_COL__") > 20, [2, 3]),
        ((pc.field("w") == "late") | (pc.field("k") == 1), []),
        (pc.scalar(True), [2, 3, 4]),
        (pc.scalar(False), []),
        (pc.field("k") > pc.field("v"), []),
    ],
    ids=str,
)
def test_filters_see_live_rows_only(table: Table, predicate: pc.Expression, keys: list[int]) -> None:
    """SO12."""
    rows = table.scan(["k"], predicate).read_all()
    assert rows.schema == pa.schema([table.schema.arrow.field("k")])
    assert sorted(rows.column("k").to_pylist()) == keys


def test_a_filter_may_find_tombstones_when_they_are_asked_for(table: Table) -> None:
    rows = table.scan(["k"], pc.field("__DELETE_SIGN__") == 1, deleted=True).read_all()
    assert rows.to_pylist() == [{"k": 1}]


def test_no_columns_still_count_rows(table: Table) -> None:
    assert sum(batch.num_rows for batch in table.scan([])) == 3
    assert table.scan([]).read_all().num_rows == 3
    assert sum(batch.num_rows for batch in table.scan([], filter=pc.field("k") > 2)) == 2
    assert table.scan([], filter=pc.field("k") > 9).read_all().num_rows == 0


@pytest.mark.parametrize(
    "predicate",
    [
        pc.field("nope") == 1,
        pc.field("w") > 5,
        pc.field("k") + 1,
        pc.field("w") == pa.scalar([1]),
        pc.scalar(None),
        pc.divide(pc.field("k"), 0) == 1,
        "k > 1",
        [("k", ">", 1)],
    ],
    ids=["unknown", "types", "number", "list", "null", "division", "text", "tuples"],
)
def test_a_filter_that_does_not_fit_is_named(table: Table, predicate: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^filter[^\n]*$") as caught:
        table.scan(filter=predicate).read_all()
    assert caught.value.kind == "bad_filter"


@needs_cut_text
def test_a_filter_whose_text_cannot_be_had_filters_all_the_same(table: Table) -> None:
    """Arrow cuts long strings of a value set for its text, perhaps within a character."""
    unwritable = pc.field("w").isin(["c", "\U0010ffff" * 30])
    with pytest.raises(UnicodeDecodeError):
        str(unwritable)
    assert table.scan(["k"], unwritable).read_all().to_pylist() == [{"k": 3}]
    assert sorted(row["k"] for row in table.scan(["k"], ~unwritable).read_all().to_pylist()) == [2, 4]
    with pytest.raises(InvalidInputError, match="filter"):
        table.scan(filter=pc.field("k") + unwritable)


def test_a_filter_may_name_columns_by_position_and_within_functions(table: Table) -> None:
    assert table.scan(["w"], pc.field(0) == 3).read_all().to_pylist() == [{"w": "c"}]
    assert table.scan(["w"], pc.starts_with(pc.field("w"), "c")).read_all().to_pylist() == [{"w": "c"}]
    assert table.scan([], pc.field(1) > 20).read_all().num_rows == 2


def test_unknown_columns_are_named(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="unknown column 'nope'; the table has k, v, w"):
        table.scan(["nope"])
    with pytest.raises(InvalidInputError, match="unknown column"):
        table.get(pa.table({"k": [1]}), ["nope"])
    with pytest.raises(
        InvalidInputError, match=r"filter \(nope > 1\) does not fit .*: unknown column 'nope'$"
    ):
        table.scan(filter=pc.field("nope") > 1)
    with pytest.raises(InvalidInputError, match=r"unknown column 'nope'$"):
        table.delete_where(pc.field("nope") > 1)
    with pytest.raises(InvalidInputError, match=r"assignment does not fit the table: unknown column 'nope'$"):
        table.update({"v": pc.field("nope")})


def test_the_sequence_of_a_table_without_one_is_no_column(store: Store) -> None:
    plain = store.create_table("db.p", schema_of("k INT NOT NULL"))
    with pytest.raises(InvalidInputError, match="no sequence column"):
        plain.scan(["__SEQUENCE_COL__"])
    assert plain.scan(hidden=True).schema.names == ["k", "__DELETE_SIGN__", "__VERSION_COL__"]


def test_every_version_stays_as_it_was(table: Table) -> None:
    """X3, X4."""
    assert rows_of(table, version=1) == []
    assert rows_of(table, version=2) == [(1, 10, "a"), (2, 20, "b"), (3, 30, "c"), (4, None, "d")]
    assert rows_of(table, version=3) == [(1, 10, "a"), (2, 21, "B"), (3, 30, "c"), (4, None, "d")]
    assert [table.count(version) for version in (1, 2, 3, 4)] == [0, 4, 4, 3]
    assert table.get(pa.table({"k": [1]}), version=3).num_rows == 1


@pytest.mark.parametrize("version", [0, -1, 5, 2**40, 2**70])
def test_versions_that_are_not_there_are_named(table: Table, version: int) -> None:
    with pytest.raises(VersionExpiredError, match="the table has versions 1 to 4") as caught:
        table.scan(version=version)
    assert (caught.value.oldest, caught.value.latest) == (1, 4)


def test_a_snapshot_does_not_see_later_loads(table: Table) -> None:
    """X6."""
    with table.snapshot() as snapshot:
        reader = snapshot.scan(["k"])
        table.upsert(pa.table({"k": [7], "v": [1]}))
        table.delete(pa.table({"k": [2]}))
        assert sorted(reader.read_all().column("k").to_pylist()) == [2, 3, 4]
        assert (snapshot.version, snapshot.count()) == (4, 3)
        assert snapshot.get(pa.table({"k": [7, 2]})).num_rows == 1
    assert table.count() == 3


def test_get_keeps_the_order_of_the_keys_and_their_repeats(table: Table) -> None:
    found = table.get(pa.table({"k": [4, 1, 2, 99, 4, 3]}), ["k"])
    assert found.column("k").to_pylist() == [4, 2, 4, 3]
    assert table.get(pa.table({"k": [1]}), deleted=True, columns=["__DELETE_SIGN__"]).num_rows == 1
    empty = table.get(pa.table({"k": pa.array([], pa.int32())}), hidden=True)
    assert empty.schema.names == table.scan(hidden=True).schema.names
    assert table.get(pa.table({"k": [98, 99]})).schema == table.schema.arrow


def test_get_takes_keys_of_other_types_and_beside_other_columns(table: Table) -> None:
    assert table.get(pa.table({"note": ["x"], "K": ["2"]}), ["v"]).to_pylist() == [{"v": 21}]
    assert table.get(pa.record_batch({"k": pa.array([2], pa.int8())}), ["v"]).to_pylist() == [{"v": 21}]
    assert table.get({"k": [2]}, ["v"]).to_pylist() == [{"v": 21}]
    assert table.get(pa.table({"k": pa.array([None], pa.int32())})).num_rows == 0


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (pa.table({"v": [1]}), "key column 'k' is missing"),
        (pa.table({"k": ["x"]}), "row 0 is no INT"),
        (pa.table({"k": [1], "K": [2]}), "given twice"),
        (5, "keys"),
        ([1, 2], "keys"),
    ],
    ids=["missing", "text", "twice", "number", "list"],
)
def test_keys_that_do_not_fit_are_named(table: Table, keys: Any, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        table.get(keys)


def test_keys_beyond_64_bits_are_found_by_python_integers(tmp_path: Path) -> None:
    schema = TableSchema.create([Column("k", parse_type("LARGEINT"), nullable=False)], ["k"])
    with Store.open(tmp_path) as store:
        store.create_database("db")
        large = store.create_table("db.t", schema)
        large.upsert(pa.table({"k": [str(2**100), "5"]}))
        assert large.get({"k": [2**100, 2**64]}).num_rows == 1
        assert len(large.key_history({"k": 2**100})) == 1


def test_reading_a_part_and_leaving_is_fine(table: Table) -> None:
    for _ in range(20):
        reader = table.scan()
        reader.read_next_batch()
        reader.close()
    assert table.count() == 3


def test_many_rows_in_many_batches_come_once_each(tmp_path: Path) -> None:
    sizes = Settings(segment_rows=1000, batch_rows_max=64, inline_bytes_max=1)
    store = Store.open(tmp_path / "data", settings=sizes)
    store.create_database("db")
    table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v BIGINT"))
    keys = np.random.default_rng(1).permutation(20_000)
    table.upsert(pa.table({"k": keys, "v": keys}))
    table.upsert(pa.table({"k": keys[:5_000], "v": keys[:5_000] + 1_000_000}))
    rows = table.scan().read_all()
    expected = {int(k): int(k) for k in keys} | {int(k): int(k) + 1_000_000 for k in keys[:5_000]}
    assert dict(zip(rows.column("k").to_pylist(), rows.column("v").to_pylist(), strict=True)) == expected
    assert rows.num_rows == 20_000
    wanted = keys[4_990:5_010]
    assert table.get(pa.table({"k": wanted})).column("v").to_pylist() == [expected[int(k)] for k in wanted]
    assert table.check() == []


def test_a_marked_scan_names_exactly_the_rows_a_scan_returns(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s") as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of("k INT NOT NULL", "v INT"))
        assert not table.snapshot().marked(["k"]).is_marked
        for start in (0, 50, 25):
            table.upsert(pa.table({"k": list(range(start, start + 60)), "v": [start] * 60}))
        table.upsert(pa.table({"k": [3, 99], "v": [0, 0]}), merge_type="DELETE")
        snapshot = table.snapshot()
        for deleted in (False, True):
            marked = snapshot.marked(["v", "k"], deleted=deleted)
            assert marked.is_marked
            for _ in range(2):
                rows = marked.open().read_all()
                live = rows.filter(rows.column(LIVE)).select(["v", "k"]).sort_by("k")
                assert live == snapshot.scan(["v", "k"], deleted=deleted).read_all().sort_by("k")
