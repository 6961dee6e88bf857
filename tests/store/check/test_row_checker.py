"""Rows that do not fit: which are refused with the load, which one by one, and with what words."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import InvalidInputError, LoadRejectedError, RejectedRow, Settings, Store, Table
from tests.support.rows import rows_of, schema_of


def rejected(table: Table, data: Any, **options: Any) -> list[tuple[int, str | None, str]]:
    """Rejected rows of one write."""
    with table.begin_load(**options) as load:
        result = load.write(data)
        load.commit()
    return [(row.row, row.column, row.reason) for row in result.rejected]


BAD_VALUES: list[tuple[str, pa.Array, str]] = [
    ("TINYINT", pa.array([128]), "value '128' is no TINYINT"),
    ("INT", pa.array([2**31]), "value '2147483648' is no INT"),
    ("INT", pa.array(["12x"]), "value '12x' is no INT"),
    ("BIGINT", pa.array(["9223372036854775808"]), "value '9223372036854775808' is no BIGINT"),
    ("BIGINT", pa.array([2**64 - 1], pa.uint64()), "is no BIGINT"),
    ("LARGEINT", pa.array([str(2**127)]), "is no LARGEINT"),
    ("DECIMAL(5,2)", pa.array(["1000.00"]), "value '1000.00' is no DECIMAL(5,2)"),
    ("DATE", pa.array(["2023-02-29"]), "value '2023-02-29' is no DATE"),
    ("DATETIME", pa.array(["2024-01-01 25:00:00"]), "is no DATETIME"),
    ("BOOLEAN", pa.array(["maybe"]), "value 'maybe' is no BOOLEAN"),
    ("JSON", pa.array(["{"]), "value '{' is no JSON"),
    ("VARCHAR(3)", pa.array(["abcd"]), "schema length: 3; actual length: 4"),
    ("VARCHAR(3)", pa.array(["éé"]), "schema length: 3; actual length: 4"),
    ("CHAR(1)", pa.array(["ab"]), "schema length: 1; actual length: 2"),
    ("VARCHAR(9)", pa.array([b"\xff\xfe"]), "is no VARCHAR(9)"),
]


@pytest.mark.parametrize(
    ("kind", "values", "reason"), BAD_VALUES, ids=[f"{b[0]} {b[1][0]}" for b in BAD_VALUES]
)
def test_a_value_that_does_not_fit_rejects_its_row_alone(
    store: Store, kind: str, values: pa.Array, reason: str
) -> None:
    """Y2, Y5: with its position and column, and the other rows are loaded."""
    table = store.create_table("db.t", schema_of("k INT NOT NULL", f"v {kind}"))
    column = pa.concat_arrays([pa.nulls(1, values.type), values, pa.nulls(1, values.type)])
    [(row, name, text)] = rejected(table, pa.table({"k": [1, 2, 3], "v": column}))
    assert (row, name) == (1, "v")
    assert reason in text
    assert rows_of(table) == [(1, None), (3, None)]


def test_null_in_a_not_null_column_rejects_its_row(store: Store) -> None:
    """A2."""
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v INT NOT NULL"))
    assert rejected(table, pa.table({"k": pa.array([1, None, 3]), "v": pa.array([1, 2, None])})) == [
        (1, "k", "column(k) values is null while columns is not nullable"),
        (2, "v", "column(v) values is null while columns is not nullable"),
    ]
    assert rows_of(table) == [(1, 1)]


def test_one_row_with_two_faults_is_rejected_once(store: Store) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v INT", "w DATE"))
    [(row, column, _)] = rejected(table, pa.table({"k": ["x"], "v": ["y"], "w": ["z"]}))
    assert (row, column) == (0, "k")


def test_positions_of_rejected_rows_count_through_the_data_of_a_write(store: Store) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL"))
    batches = [pa.record_batch({"k": ["1", "x"]}), pa.record_batch({"k": ["3", "y", "5"]})]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    with table.begin_load() as load:
        load.write(pa.table({"k": ["0"]}))
        assert [row.row for row in load.write(reader).rejected] == [1, 3]
        result = load.commit()
    assert [row.row for row in result.rejected] == [2, 4], "the result counts through the load"
    assert (result.rows_total, result.rows_loaded, result.rows_filtered) == (6, 4, 2)


COLUMN_ERRORS: list[tuple[list[str], str, str]] = [
    (["k", "v", "x"], "unknown_column", "unknown column 'x'; the table has k, v, w"),
    (["k", "v", "V"], "duplicate_column", "column 'V' is named twice"),
    (["k", "v", "v"], "duplicate_column", "column 'v' is named twice"),
    (["v"], "missing_column", "key column 'k' is missing"),
    (["k"], "missing_column", "column 'v' is missing; it is NOT NULL and has no default"),
    (["k", "v", "__DELETE_SIGN__", "__DORIS_DELETE_SIGN__"], "duplicate_column", "is named twice"),
    (["k", "v", "__SEQUENCE_COL__"], "no_sequence", "There is no sequence column in the table t"),
]


@pytest.mark.parametrize(
    ("names", "kind", "text"), COLUMN_ERRORS, ids=[" ".join(c[0]) for c in COLUMN_ERRORS]
)
def test_columns_that_do_not_fit_refuse_the_load(
    store: Store, names: list[str], kind: str, text: str
) -> None:
    """A1, M8, SL13: nothing is applied and no version is made."""
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v INT NOT NULL", "w INT"))
    data = pa.Table.from_arrays([pa.array([0])] * len(names), names)
    with pytest.raises(InvalidInputError, match=text.replace("(", r"\(")) as caught:
        table.upsert(data, label="x")
    assert caught.value.kind == kind
    assert table.version == 1
    table.upsert(pa.table({"K": [1], "V": [2]}), label="x")  # names without regard to case; the label is free
    assert rows_of(table) == [(1, 2, None)]


def test_a_type_that_can_never_fit_refuses_the_load(store: Store) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL"))
    with pytest.raises(InvalidInputError):
        table.upsert(pa.table({"k": [[1]]}))
    with pytest.raises(InvalidInputError, match="rows come as an Arrow table"):
        table.upsert([{"k": 1}])


def test_a_missing_sequence_refuses_the_load(store: Store) -> None:
    """SL6, SL10: a constant default is no source."""
    text = "Table t has sequence column, need to specify the sequence column"
    for i, schema in enumerate(
        [
            schema_of("k INT NOT NULL", "s INT", sequence_col="s"),
            schema_of("k INT NOT NULL", "s INT DEFAULT 9", sequence_col="s"),
            schema_of("k INT NOT NULL", sequence_type="BIGINT"),
        ]
    ):
        table = store.create_table(f"db.t{i}", schema)
        with pytest.raises(InvalidInputError, match=text.replace("t has", rf"t{i} has")):
            table.upsert(pa.table({"k": [1]}))


def test_a_default_of_now_is_a_sequence(store: Store) -> None:
    """SL9, A3: one moment for the whole load."""
    schema = schema_of("k INT NOT NULL", "s DATETIME DEFAULT CURRENT_TIMESTAMP", sequence_col="s")
    table = store.create_table("db.t", schema)
    moment = datetime(2024, 5, 1, 12)
    with table.begin_load(now=moment) as load:
        load.write(pa.table({"k": [1]}))
        load.write(pa.table({"k": [2]}))
        load.commit()
    assert rows_of(table, hidden=True) == [(1, moment, 0, 2, moment), (2, moment, 0, 2, moment)]


def test_a_sequence_that_cannot_be_cast_rejects_its_row(store: Store) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL", sequence_type="DATE"))
    data = pa.table({"k": [1, 2], "ts": ["2024-01-01", "soon"]})
    assert [r[:2] for r in rejected(table, data, sequence="ts")] == [(1, "ts")]


@pytest.mark.parametrize("sign", [2, -1, 127])
def test_a_delete_sign_is_0_or_1(store: Store, sign: int) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL"))
    [(row, column, reason)] = rejected(table, pa.table({"k": [1, 2], "__DELETE_SIGN__": [sign, 0]}))
    assert (row, column) == (0, "__DELETE_SIGN__")
    assert "neither 0 nor 1" in reason


ZEROS: list[str] = [
    "BOOLEAN",
    "INT",
    "LARGEINT",
    "DOUBLE",
    "DECIMAL(5,2)",
    "DECIMAL(20,10)",
    "DECIMAL(76,3)",
    "DATE",
    "DATETIME",
    "VARCHAR(3)",
    "JSON",
    "ARRAY<INT>",
    "MAP<INT,STRING>",
    "STRUCT<a:INT>",
]


@pytest.mark.parametrize("storage_format", ["arrow", "parquet"])
@pytest.mark.parametrize("kind", ZEROS)
def test_a_tombstone_needs_its_key_only(store: Store, kind: str, storage_format: str) -> None:
    """D9, D10: a delete of an unknown key is accepted, NOT NULL columns are not asked for."""
    schema = schema_of("k INT NOT NULL", f"v {kind} NOT NULL", storage_format=storage_format)
    table = store.create_table("db.t", schema)
    table.upsert(pa.table({"k": [1]}), merge_type="DELETE")
    value = pa.nulls(1, schema.column("v").type.arrow)
    table.upsert(pa.table({"k": pa.array([2]), "v": value, "__DELETE_SIGN__": [1]}))
    assert table.count() == 0
    assert table.scan(deleted=True).read_all().num_rows == 2
    assert rejected(table, pa.table({"k": pa.array([3]), "v": value, "__DELETE_SIGN__": [0]})) != []
    assert table.check() == []


ROUND_TRIPS: list[tuple[str, list[Any]]] = [
    ("BOOLEAN", [True, False, None]),
    ("TINYINT", [-128, 127, None]),
    ("LARGEINT", [Decimal(-(2**127)), Decimal(2**127 - 1), Decimal(0), None]),
    ("FLOAT", [1.5, float("inf"), None]),
    ("DOUBLE", [-0.0, 1e308, None]),
    ("DECIMAL(38,10)", [Decimal("-1.0000000001"), None]),
    ("DECIMAL(76,30)", [Decimal("9" * 46 + "." + "9" * 30), None]),
    ("DATE", [date(1, 1, 1), date(9999, 12, 31), None]),
    ("DATETIME(6)", [datetime.min, datetime.max, None]),
    ("CHAR(3)", ["", "abc", None]),
    ("STRING", ["", "x" * 70_000, "\0", None]),
    ("JSON", ['{"a": [1, null]}', None]),
    ("ARRAY<INT>", [[], [1, None, 3], None]),
    ("ARRAY<ARRAY<STRING>>", [[["a"], None, []], None]),
    ("MAP<STRING,DATETIME(6)>", [[("a", datetime(2024, 1, 1)), ("b", None)], [], None]),
    ("STRUCT<a:INT,b:ARRAY<DATE>>", [{"a": 1, "b": [date(2024, 1, 1)]}, {"a": None, "b": None}, None]),
    ("ARRAY<STRUCT<m:MAP<INT,LARGEINT>>>", [[{"m": [(1, Decimal(2**127 - 1))]}, None], None]),
]


@pytest.mark.family(34)
@pytest.mark.parametrize(
    "layout", ["inline", "arrow none", "arrow lz4", "arrow zstd", "parquet zstd", "parquet lz4"]
)
@pytest.mark.parametrize(("kind", "values"), ROUND_TRIPS, ids=[kind for kind, _ in ROUND_TRIPS])
def test_values_of_every_type_come_back_as_they_went_in(
    store: Store, kind: str, values: list[Any], layout: str
) -> None:
    storage_format, _, compression = layout.partition(" ")
    if layout != "inline":
        store = Store.open(store.path, settings=Settings(inline_bytes_max=1, batch_rows_max=2))
    chosen = {} if layout == "inline" else {"storage_format": storage_format, "compression": compression}
    schema = schema_of("k INT NOT NULL", f"v {kind}", **chosen)
    table = store.create_table("db.t", schema)
    data = pa.table(
        {"k": pa.array(range(len(values)), pa.int32()), "v": pa.array(values, schema.arrow.field("v").type)}
    )
    table.upsert(data)
    again = Store.open(store.path).table("db.t")
    assert again.scan().read_all().schema == schema.arrow
    assert again.scan().read_all().sort_by("k").column("v").to_pylist() == values
    assert again.get(pa.table({"k": [1, 0]})).column("v").to_pylist() == [values[1], values[0]]
    assert again.check() == []


def test_nan_and_negative_zero_come_back(store: Store) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v DOUBLE"))
    table.upsert(pa.table({"k": [1, 2], "v": [float("nan"), -0.0]}))
    shown = [repr(v) for v in table.scan().read_all().sort_by("k").column("v").to_pylist()]
    assert shown == ["nan", "-0.0"]


def test_a_field_of_10_mb_is_an_ordinary_value(store: Store) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v STRING", "w VARCHAR(65533)"))
    large = "x" * 10 * 2**20
    assert [r[1] for r in rejected(table, pa.table({"k": [1, 2], "v": [large, "a"], "w": ["a", large]}))] == [
        "w"
    ]
    assert table.get(pa.table({"k": [1]})).column("v").to_pylist() == [large]


def test_keys_longer_than_an_lmdb_key_are_ordinary_keys(store: Store) -> None:
    """LMDB takes 511 bytes; keys of rows are not LMDB keys."""
    table = store.create_table("db.t", schema_of("k VARCHAR(65533) NOT NULL", "v INT"))
    keys = ["k" * 511, "k" * 512, "k" * 65533, "k" * 65532 + "l"]
    table.upsert(pa.table({"k": keys, "v": [1, 2, 3, 4]}))
    table.upsert(pa.table({"k": keys[1:3], "v": [20, 30]}))
    assert table.get(pa.table({"k": keys})).column("v").to_pylist() == [1, 20, 30, 4]


def test_a_ratio_that_is_just_reached_passes(store: Store) -> None:
    """Y7, M5: more than the ratio fails, the ratio itself does not."""
    table = store.create_table("db.t", schema_of("k INT NOT NULL"))
    for bad, ratio in [(29, 0.29), (57, 0.57), (7, 0.07)]:
        data = pa.table({"k": [*(["x"] * bad), *map(str, range(100 - bad))]})
        assert table.upsert(data, max_filter_ratio=ratio).rows_filtered == bad
        with pytest.raises(LoadRejectedError):
            table.upsert(data, max_filter_ratio=ratio - 0.01)


def test_too_many_rejected_rows_apply_nothing(store: Store) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL"))
    with pytest.raises(LoadRejectedError, match="1 of 2") as caught:
        table.upsert(pa.table({"k": ["1", "x"]}), label="a")
    assert caught.value.rejected == [RejectedRow(1, "k", "column(k) value 'x' is no INT")]
    assert (table.version, table.count()) == (1, 0)
    assert table.upsert(pa.table({"k": ["1", "x"]}), label="a", max_filter_ratio=0.5).version == 2
    assert table.upsert(pa.table({"k": ["x"]}), max_filter_ratio=1.0).version == 2, (
        "Y8: success without a row"
    )


def test_text_that_is_not_utf8_is_rejected_whatever_its_arrow_type(store: Store) -> None:
    """A producer may hand over a string array whose bytes are no text: nothing has looked at them."""
    table = store.create_table("db.t", schema_of("k VARCHAR(9) NOT NULL", "v STRING"))
    good = pa.array(["ok", "ok"])
    offsets = pa.py_buffer(np.array([0, 2, 4], np.int32))
    bad = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab\xff\xfe")])
    assert [r[:2] for r in rejected(table, pa.table({"k": ["a", "b"], "v": bad}))] == [(1, "v")]
    assert [r[:2] for r in rejected(table, pa.table({"k": bad, "v": good}))] == [(1, "k")]
    assert rows_of(table) == [("a", "ab"), ("ab", "ok")]


def test_a_null_sequence_does_not_get_into_a_not_null_mapped_column(store: Store) -> None:
    """SD1: the sequence given under its hidden name is the mapped column's value, with its rules."""
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "s INT NOT NULL", sequence_col="s"))
    data = pa.table({"k": [1, 2], "__SEQUENCE_COL__": pa.array([5, None], pa.int32())})
    assert [r[0] for r in rejected(table, data)] == [1]
    assert rows_of(table) == [(1, 5)]


def test_the_sequence_may_come_from_a_column_that_is_not_stored(store: Store) -> None:
    """SL1, SL14."""
    table = store.create_table("db.t", schema_of("k INT NOT NULL", sequence_type="BIGINT"))
    table.upsert(pa.table({"k": [1], "ts": ["7"]}), sequence="TS")
    assert rows_of(table, hidden=True) == [(1, 0, 2, 7)]
    with pytest.raises(InvalidInputError, match="sequence source 'nope' is neither"):
        table.upsert(pa.table({"k": [1], "__SEQUENCE_COL__": [8]}), sequence="nope")


def test_a_reason_can_be_given_for_every_value(store: Store) -> None:
    """Bytes that are no text, and dates that Python has not."""
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v INT", "d DATETIME"))
    offsets = pa.py_buffer(np.array([0, 2], np.int32))
    bad = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    assert rejected(table, pa.table({"k": [1], "v": bad})) == [
        (0, "v", r"column(v) value '\\xff\\xfe' is no INT")
    ]
    late = pa.array([2**62], pa.timestamp("us"))
    assert [r[:2] for r in rejected(table, pa.table({"k": [1], "d": late}))] == [(0, "d")]


@pytest.mark.parametrize("mode", ["UPSERT", "UPDATE_FIXED_COLUMNS"])
def test_a_sequence_under_its_hidden_name_is_checked_like_its_column(store: Store, mode: str) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "s INT NOT NULL", sequence_col="s"))
    data = pa.table({"k": [1, 2, 3], "__SEQUENCE_COL__": ["5", None, "x"]})
    assert [r[0] for r in rejected(table, data, mode=mode)] == [1, 2]
    assert rows_of(table) == [(1, 5)]
    assert table.check() == []


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        ({"k": [1], "a": [10], "s": [20]}, {"sequence": "a"}, (1, 10, 20)),
        ({"k": [1], "a": [10], "s": [20], "__DORIS_SEQUENCE_COL__": [5]}, {}, (1, 10, 20)),
        ({"k": [1], "a": [10], "__DORIS_SEQUENCE_COL__": [20]}, {}, (1, 10, 20)),
        ({"k": [1], "a": [10], "f": [20]}, {"sequence": "f"}, (1, 10, 20)),
        ({"k": [1], "s": [20], "a": [10]}, {"sequence": "a", "mode": "UPDATE_FIXED_COLUMNS"}, (1, 10, 20)),
        (
            {"k": [1], "a": [10], "__DORIS_SEQUENCE_COL__": [20]},
            {"mode": "UPDATE_FIXED_COLUMNS"},
            (1, 10, 20),
        ),
    ],
)
def test_the_hidden_sequence_equals_the_mapped_column(
    store: Store, data: dict[str, list[int]], options: dict[str, Any], expected: tuple[int, ...]
) -> None:
    """SD1. A header with another source made it differ, so that a row of a smaller sequence won."""
    table = store.create_table("db.m", schema_of("k INT NOT NULL", "a INT", "s INT", sequence_col="s"))
    table.upsert(pa.table(data), **options)
    assert rows_of(table) == [expected]
    table.upsert(pa.table({"k": [1], "a": [11], "s": [expected[2] - 1]}))
    assert rows_of(table) == [expected]
    table.upsert(pa.table({"k": [1], "a": [12], "s": [expected[2] + 1]}))
    assert rows_of(table) == [(1, 12, expected[2] + 1)]


@pytest.mark.parametrize("ratio", [2, -1, 1.01, float("nan"), True, "x", None])
def test_a_share_of_rejected_rows_is_from_0_to_1(store: Store, ratio: Any) -> None:
    """LH7. With 2 a load of bad rows alone succeeded, and others were taken as long as no row was bad."""
    table = store.create_table("db.t", schema_of("k INT NOT NULL"))
    with pytest.raises(InvalidInputError, match="max_filter_ratio is a share from 0 to 1"):
        table.upsert(pa.table({"k": [1]}), max_filter_ratio=ratio)
    with table.begin_load() as load:
        load.write(pa.table({"k": [1]}))
        with pytest.raises(InvalidInputError, match="max_filter_ratio"):
            load.commit(max_filter_ratio=ratio)
    assert rows_of(table) == []
    table.upsert(pa.table({"k": ["x", "1"]}), max_filter_ratio=0.5)
    assert rows_of(table) == [(1,)]
