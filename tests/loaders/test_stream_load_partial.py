"""Partial updates by stream load: fixed (P) and flexible (F), by the headers a user sends."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqstore import InvalidInputError, Store
from seqstore.loaders.reply import StreamLoadReply
from seqstore.loaders.stream_load import stream_load
from seqstore.store.sql import Session

FLEXIBLE = "UPDATE_FLEXIBLE_COLUMNS"
Row = dict[str, Any]


class Bench:
    """A store with a database, and short ways to load and look."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.session = Session(store, "db")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for result in self.session.execute(text):
            if result.rows is not None:
                rows = [tuple(row.values()) for row in result.rows.to_pylist()]
        return sorted(rows, key=str)

    def load(self, body: str, columns: str = "", **headers: str) -> StreamLoadReply:
        given = {"column_separator": ",", "partial_columns": "true"} | headers
        if columns:
            given["columns"] = columns
        return stream_load(self.store, "db", "t", io.BytesIO(body.encode()), given)

    def good(self, body: str, columns: str = "", **headers: str) -> StreamLoadReply:
        reply = self.load(body, columns, **headers)
        assert (reply["Status"], reply["Message"]) == ("Success", "OK"), reply["Message"]
        return reply

    def refused(self, body: str, columns: str = "", **headers: str) -> str:
        version = self.store.table("db.t").version
        reply = self.load(body, columns, **headers)
        assert (reply["Status"], self.store.table("db.t").version) == ("Fail", version)
        return str(reply["Message"])

    def flexible(self, *rows: Row, **headers: str) -> StreamLoadReply:
        body = "\n".join(json.dumps(row) for row in rows)
        return self.load(body, format="json", unique_key_update_mode=FLEXIBLE, **headers)

    def hidden(self, columns: str) -> list[tuple[Any, ...]]:
        return self.sql(
            f"SET show_hidden_columns=true; SELECT {columns} FROM t; SET show_hidden_columns=false"
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        yield Bench(store)


def make(bench: Bench, columns: str, *properties: str) -> None:
    listed = f" PROPERTIES({', '.join(properties)})" if properties else ""
    bench.sql(f"CREATE TABLE t ({columns}) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1{listed}")


SKIP = '"enable_unique_key_skip_bitmap_column" = "true"'
FIVE = "k INT NULL, v1 BIGINT NULL, v2 BIGINT NULL DEFAULT '9876', v3 BIGINT NOT NULL, "
FIVE += "v4 BIGINT NOT NULL DEFAULT '1234', v5 BIGINT NULL"
DOC = "k INT, v1 BIGINT NULL, v2 BIGINT NULL DEFAULT '9876', v3 BIGINT NULL, v4 BIGINT NULL DEFAULT '1234', "
DOC += "v5 BIGINT NULL"


# ------------------------------------------------------------------------------------------ fixed


@pytest.mark.parametrize("headers", [{}, {"unique_key_update_mode": "update_fixed_columns"}])
def test_listed_columns_are_replaced_and_the_others_kept(bench: Bench, headers: dict[str, str]) -> None:
    """P2, P4, P6, LH16."""
    make(bench, "k INT, a INT NULL, b INT NULL, c STRING NULL")
    bench.sql("INSERT INTO t VALUES (1, 10, 11, 'x'), (2, 20, 21, 'y')")
    reply = bench.good("1,\\N\n2,99\n", "k, B", **headers)
    assert reply["NumberLoadedRows"] == 2
    assert bench.sql("SELECT * FROM t") == [(1, 10, None, "x"), (2, 20, 99, "y")]


def test_the_mode_beats_partial_columns(bench: Bench) -> None:
    """P2: whole rows, whatever partial_columns says."""
    make(bench, "k INT, a INT NULL, b INT NULL")
    bench.sql("INSERT INTO t VALUES (1, 10, 11)")
    bench.good("1,5\n", "k, a", unique_key_update_mode="UPSERT")
    assert bench.sql("SELECT * FROM t") == [(1, 5, None)]


def test_derived_columns_and_a_filter_work_on_the_listed_columns(bench: Bench) -> None:
    """P4 with M1 and M5."""
    make(bench, "k INT, a INT NULL, b INT NULL")
    bench.sql("INSERT INTO t VALUES (1, 10, 11), (2, 20, 21)")
    reply = bench.good("1,5\n2,6\n", "k, x, a = x * 2", where="a > 10")
    assert (reply["NumberLoadedRows"], reply["NumberUnselectedRows"]) == (1, 1)
    assert bench.sql("SELECT * FROM t") == [(1, 10, 11), (2, 12, 21)]


def test_key_columns_must_be_listed(bench: Bench) -> None:
    """P3: found before the first row is read."""
    make(bench, "k INT NOT NULL, a INT NULL")
    message = bench.refused("", "a")
    assert message == "[INVALID_ARGUMENT]Partial update should include all key columns, missing: k"


def test_only_keys_touch_rows(bench: Bench) -> None:
    """P5."""
    make(bench, "k INT, a INT NULL")
    bench.sql("INSERT INTO t VALUES (1, 10)")
    bench.good("1\n2\n", "k")
    assert bench.sql("SELECT * FROM t") == [(1, 10), (2, None)]


def test_a_new_key_needs_a_default_or_null_for_what_is_not_listed(bench: Bench) -> None:
    """P7, P8: only when a new key is met, and strict mode is no matter (P14)."""
    make(bench, "k INT, a INT NOT NULL, b INT NULL")
    bench.sql("INSERT INTO t VALUES (1, 10, 11)")
    bench.good("1,5\n", "k, b", strict_mode="true")
    assert bench.refused("2,5\n", "k, b", max_filter_ratio="1") == (
        "[INVALID_ARGUMENT]the unmentioned column `a` should have default value or be nullable for newly "
        "inserted rows in non-strict mode partial update"
    )
    assert bench.sql("SELECT * FROM t") == [(1, 10, 5)]


def test_new_keys_are_refused_on_request(bench: Bench) -> None:
    """P10, P11: the whole load, whatever its ratio."""
    make(bench, "k INT, a INT NULL")
    bench.sql("INSERT INTO t VALUES (1, 10)")
    message = bench.refused(
        "1,5\n2,6\n", "k, a", partial_update_new_key_behavior="error", max_filter_ratio="1"
    )
    assert message == (
        "[INVALID_ARGUMENT][E-7003]Can't append new rows in partial update when "
        "partial_update_new_key_behavior is ERROR. Row with key=[2] is not in table."
    )
    assert bench.sql("SELECT * FROM t") == [(1, 10)]


def test_new_keys_are_no_matter_for_whole_rows(bench: Bench) -> None:
    """P13."""
    make(bench, "k INT, a INT NULL")
    bench.good("1,5\n", "k, a", partial_columns="false", partial_update_new_key_behavior="ERROR")
    assert bench.sql("SELECT * FROM t") == [(1, 5)]


def test_the_sequence_may_be_left_out_and_is_kept(bench: Bench) -> None:
    """P21, P22, SL11: default of the mapped column for new keys."""
    make(bench, "k INT, s INT NULL DEFAULT '999', a INT NULL", '"function_column.sequence_col" = "s"')
    bench.sql("INSERT INTO t VALUES (1, 5, 10)")
    bench.good("1,11\n2,22\n", "k, a")
    assert bench.hidden("k, s, a, __DORIS_SEQUENCE_COL__") == [(1, 5, 11, 5), (2, 999, 22, 999)]


def test_the_largest_sequence_of_a_load_wins_and_smaller_ones_lose(bench: Bench) -> None:
    """P20's vector."""
    make(
        bench,
        "k INT, score INT NULL, other INT NULL DEFAULT '4321', d DATE NULL",
        '"function_column.sequence_col" = "d"',
    )
    bench.sql("INSERT INTO t VALUES (1, 2000, 1, '2023-01-01'), (2, 3000, 2, '2023-01-01')")
    body = "2,2500,2023-07-19\n2,2600,2023-07-20\n1,1300,2022-07-19\n3,1500,2022-07-20\n3,2500,2022-07-18\n"
    reply = bench.good(body, "k, score, d")
    assert reply["NumberLoadedRows"] == 5
    assert bench.sql("SELECT k, score, other FROM t") == [(1, 2000, 1), (2, 2600, 2), (3, 1500, 4321)]


def test_a_table_with_a_hidden_sequence_takes_it_from_a_field(bench: Bench) -> None:
    """P24: it is stored, so an older row loses later."""
    make(bench, "k INT, a INT NULL, b INT NULL", '"function_column.sequence_type" = "INT"')
    source = {"function_column.sequence_col": "ts"}
    bench.good("1,10,5\n", "k, a, ts", **source)
    bench.good("1,11,4\n", "k, a, ts", **source)
    bench.good("1,12,5\n", "k, b, ts", **source)
    bench.good("1,13\n", "k, b")
    assert bench.hidden("k, a, b, __DORIS_SEQUENCE_COL__") == [(1, 10, 13, 5)]


def test_deletes_of_listed_columns_keep_the_sequence(bench: Bench) -> None:
    """P28's vector."""
    make(bench, "k INT, score INT NULL, d DATE NULL", '"function_column.sequence_col" = "d"')
    bench.sql("INSERT INTO t VALUES (1, 10, '2023-01-01'), (2, 20, '2023-01-01')")
    bench.good("1,0\n2,0\n", "k, score", merge_type="DELETE")
    assert bench.sql("SELECT * FROM t") == []
    seen = "k, __DORIS_DELETE_SIGN__, CAST(__DORIS_SEQUENCE_COL__ AS CHAR)"
    assert bench.hidden(seen) == [(1, 1, "2023-01-01"), (2, 1, "2023-01-01")]
    bench.good("1,2022-07-20\n2,2023-07-20\n", "k, d", merge_type="DELETE")
    assert bench.hidden(seen) == [(1, 1, "2023-01-01"), (2, 1, "2023-07-20")]


def test_merge_deletes_some_rows_and_updates_the_others(bench: Bench) -> None:
    """G1, G3 with partial columns; P9 for a column that tombstones need not bring."""
    make(bench, "k INT, a INT NULL, b INT NOT NULL")
    bench.sql("INSERT INTO t VALUES (1, 10, 11), (2, 20, 21)")
    bench.good("1,5,0\n2,6,1\n3,7,1\n", "k, a, gone", merge_type="MERGE", delete="gone = 1")
    assert bench.sql("SELECT * FROM t") == [(1, 5, 11)]


def test_null_means_keep_on_request(bench: Bench) -> None:
    """What users ask for: per load, in both modes."""
    make(bench, "k INT, a INT NULL, b INT NULL, c INT NOT NULL", SKIP)
    bench.sql("INSERT INTO t VALUES (1, 10, 11, 12), (2, 20, 21, 22)")
    bench.good("1,\\N,5,\\N\n2,6,\\N,7\n", "k, a, b, c", partial_update_ignore_null="true")
    assert bench.sql("SELECT * FROM t") == [(1, 10, 5, 12), (2, 6, 21, 7)]
    assert (
        bench.flexible({"k": 1, "a": None, "b": 8}, partial_update_ignore_null="true")["Status"] == "Success"
    )
    assert bench.sql("SELECT * FROM t") == [(1, 10, 8, 12), (2, 6, 21, 7)]


# ------------------------------------------------------------------------------------------ flexible


def test_each_row_updates_what_it_has(bench: Bench) -> None:
    """F1, F8, F9, F10: the vector of the manual."""
    make(bench, DOC, SKIP)
    bench.sql("INSERT INTO t VALUES " + ", ".join(f"({i}, {i}, {i}, {i}, {i}, {i})" for i in range(6)))
    reply = bench.flexible(
        {"k": 0, "__DORIS_DELETE_SIGN__": 1},
        {"k": 1, "v1": 10},
        {"k": 2, "v2": 20, "v5": 25},
        {"k": 3, "v3": 30, "unknown": 1, "__DORIS_VERSION_COL__": 7},
        {"k": 4, "v4": 20, "v1": 43, "v3": 99},
        {"k": 5, "v5": None},
        {"k": 6, "v1": 999, "v3": 777},
        {"k": 2, "v4": 222},
        {"k": 1, "v2": 111, "v3": 111},
    )
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", 9)
    assert bench.sql("SELECT * FROM t") == [
        (1, 10, 111, 111, 1, 1),
        (2, 2, 20, 2, 222, 25),
        (3, 3, 3, 30, 3, 3),
        (4, 43, 4, 99, 20, 4),
        (5, 5, 5, 5, 5, None),
        (6, 999, 9876, 777, 1234, None),
    ]


def test_rows_without_their_key_are_filtered(bench: Bench) -> None:
    """F7's vector: max_filter_ratio decides."""
    make(bench, FIVE, SKIP)
    rows = [{"k": 1, "v3": 1}, {"v1": 1}, {"v1": 2}, {"v1": 3}, {"k": 2, "v3": 2}]
    failed = bench.flexible(*rows, max_filter_ratio="0.5")
    assert failed["Status"] == "Fail"
    assert failed["Message"].startswith("[DATA_QUALITY_ERROR]too many filtered rows")
    counts = [failed[f"Number{what}Rows"] for what in ("Total", "Filtered", "Loaded")]
    assert counts == [5, 3, 2]
    assert bench.flexible(*rows, max_filter_ratio="0.6")["Status"] == "Success"
    assert bench.sql("SELECT k, v3, v4 FROM t") == [(1, 1, 1234), (2, 2, 1234)]


def test_a_mapped_sequence_orders_cells_row_by_row(bench: Bench) -> None:
    """F15-F17: both histories of the vector."""
    make(
        bench,
        "k INT, v1 INT NULL, v2 INT NULL, v3 INT NULL, v4 INT NULL, v5 INT NULL, s INT NULL",
        SKIP,
        '"function_column.sequence_col" = "s"',
    )
    bench.sql("INSERT INTO t VALUES (1, 1, 1, 1, 1, 1, 10), (2, 2, 2, 2, 2, 2, 20)")
    reply = bench.flexible(
        {"k": 1, "v1": 999},
        {"k": 1, "v1": 888, "s": 15},
        {"k": 1, "v2": 999},
        {"k": 1, "v2": 888, "s": 20},
        {"k": 1, "v3": 888, "s": 12},
        {"k": 2, "v3": 777},
        {"k": 2, "v3": 666, "s": 14},
        {"k": 2, "v5": 777},
        {"k": 2, "v4": 666, "s": 15},
        {"k": 2, "v4": 777},
    )
    assert reply["NumberLoadedRows"] == 10
    assert bench.sql("SELECT * FROM t") == [(1, 888, 888, 1, 1, 1, 20), (2, 2, 2, 777, 777, 777, 20)]


@pytest.mark.parametrize("spelling", ["__DORIS_SEQUENCE_COL__", "__sequence_col__"])
def test_a_hidden_sequence_and_sign_come_from_the_row(bench: Bench, spelling: str) -> None:
    """F8: honoured row by row, in either spelling; F20: NULL where nobody gives one."""
    make(bench, "k INT, a INT NULL", SKIP, '"function_column.sequence_type" = "INT"')
    bench.flexible({"k": 1, "a": 1, spelling: 5}, {"k": 2, "a": 2}, {"k": 3, "a": 3, spelling: 9})
    bench.flexible(
        {"k": 1, "a": 9, spelling: 4}, {"k": 2, "a": 8, spelling: 1}, {"k": 3, "__DELETE_SIGN__": 1}
    )
    seen = bench.hidden("k, a, __DORIS_DELETE_SIGN__, __DORIS_SEQUENCE_COL__")
    assert seen == [(1, 1, 0, 5), (2, 8, 0, 1), (3, 3, 1, 9)]


def test_a_new_key_without_a_needed_column_names_the_mode(bench: Bench) -> None:
    """F25."""
    make(bench, FIVE, SKIP)
    reply = bench.flexible({"k": 1, "v1": 1})
    assert reply["Message"].endswith("newly inserted rows in non-strict mode flexible partial update")
    assert bench.flexible({"k": 1, "__DORIS_DELETE_SIGN__": 1})["Status"] == "Success"


def test_flexible_updates_need_a_table_made_for_them(bench: Bench) -> None:
    """F2."""
    make(bench, "k INT, a INT NULL")
    assert bench.flexible({"k": 1})["Message"] == (
        "[INVALID_ARGUMENT]Flexible partial update can only support table with skip bitmap hidden column."
    )
    bench.sql("DROP TABLE t")
    make(bench, "k INT, a INT NULL", SKIP, '"light_schema_change" = "false"')
    assert bench.flexible({"k": 1})["Message"] == (
        "[INVALID_ARGUMENT]Flexible partial update can only support table with light_schema_change enabled."
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", "k"),
        ("jsonpaths", '["$.k"]'),
        ("hidden_columns", "__DORIS_DELETE_SIGN__"),
        ("function_column.sequence_col", "s"),
        ("merge_type", "APPEND"),
        ("where", "k > 1"),
        ("delete", "k = 1"),
        ("group_commit", "sync_mode"),
    ],
)
def test_headers_that_do_not_go_with_flexible_updates_are_refused(
    bench: Bench, name: str, value: str
) -> None:
    """F4, F5."""
    make(bench, DOC, SKIP)
    message = bench.flexible({"k": 1}, **{name: value})["Message"]
    assert message == f"[INVALID_ARGUMENT]Don't support flexible partial update when '{name}' is specified"


def test_many_flexible_rows_cross_the_reader_s_batches(bench: Bench) -> None:
    """F9 over several batches of the body, of which some lack a column altogether."""
    make(bench, DOC, SKIP)
    first = [{"k": k, "v1": k} for k in range(60_000)]
    then: list[Row] = [
        {"k": k, "v5": -k, "v1": 1} if k % 3 == 0 else {"k": k, "v3": k} for k in range(60_000)
    ]
    assert bench.flexible(*first)["Status"] == "Success"
    assert bench.flexible(*then, max_filter_ratio="0")["NumberLoadedRows"] == 60_000
    found = bench.sql("SELECT count(*), sum(v1), sum(v3), sum(v5) FROM t")
    third = range(0, 60_000, 3)
    others = sum(k for k in range(60_000) if k % 3)
    assert found == [(60_000, len(third) + others, others, -sum(third))]


def test_values_of_auto_increment_columns_are_made_by_stream_load(bench: Bench) -> None:
    """A6-A8, A4: left out, null, or absent from a row; and the clock of touched rows moves."""
    make(
        bench,
        "k INT, id BIGINT NOT NULL AUTO_INCREMENT(100), a INT NULL, "
        "at DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
        SKIP,
    )
    old = "2000-01-01 00:00:00"
    bench.good(f"1,7,{old}\n2,\\N,{old}\n", "k, id, at", partial_columns="false")
    bench.good("1,5\n3,5\n", "k, a")
    assert bench.flexible({"k": 2, "a": 6}, {"k": 4, "id": None}, {"k": 5, "id": 9})["Status"] == "Success"
    found = bench.sql(f"SELECT k, id, a, at > '{old}' FROM t")
    made = dict(bench.sql("SELECT k, id FROM t"))
    assert [row[0] for row in found] == [1, 2, 3, 4, 5]
    assert (made[1], made[2], made[5]) == (7, 100, 9)
    assert len(set(made.values())) == 5
    assert all(row[3] for row in found)


def test_a_made_key_may_be_left_out_of_a_partial_load(bench: Bench) -> None:
    """A8 by stream load."""
    bench.sql("CREATE TABLE t (id BIGINT AUTO_INCREMENT, a INT NULL) UNIQUE KEY(id)")
    bench.good("5\n6\n", "a", partial_update_new_key_behavior="ERROR")
    assert bench.sql("SELECT * FROM t") == [(1, 5), (2, 6)]


def test_the_feature_lets_an_existing_table_take_flexible_updates(bench: Bench) -> None:
    """F3: once."""
    make(bench, "k INT, a INT NULL, b INT NULL")
    bench.sql("INSERT INTO t VALUES (1, 10, 11)")
    enable = 'ALTER TABLE t ENABLE FEATURE "UPDATE_FLEXIBLE_COLUMNS"'
    bench.sql(enable)
    assert bench.flexible({"k": 1, "b": 5})["Status"] == "Success"
    assert bench.sql("SELECT * FROM t") == [(1, 10, 5)]
    assert '"enable_unique_key_skip_bitmap_column" = "true"' in bench.sql("SHOW CREATE TABLE t")[0][1]
    with pytest.raises(InvalidInputError, match=r"has enabled update flexible columns feature already\."):
        bench.sql(enable)
