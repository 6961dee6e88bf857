"""Stream load end to end on a real store: rules by their ids (docs/rules.md)."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from seqstore import Load, LoadResult, Store, WriteResult
from seqstore.loaders.mapping import MappedBatch
from seqstore.loaders.reply import StreamLoadReply
from seqstore.loaders.row_buffer import RowBuffer
from seqstore.loaders.stream_load import stream_load
from seqstore.store.sql.session.session import Session

FIELDS = [
    "TxnId",
    "Label",
    "Comment",
    "TwoPhaseCommit",
    "Status",
    "Message",
    "NumberTotalRows",
    "NumberLoadedRows",
    "NumberFilteredRows",
    "NumberUnselectedRows",
    "LoadBytes",
    "LoadTimeMs",
    "BeginTxnTimeMs",
    "StreamLoadPutTimeMs",
    "ReadDataTimeMs",
    "WriteDataTimeMs",
    "CommitAndPublishTimeMs",
]


class Bench:
    """A store with a database, and short ways to load and look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Store.open(path)
        self.session = Session(self.store)
        self.sql("CREATE DATABASE db; USE db")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for result in self.session.execute(text):
            if result.rows is not None:
                rows = [tuple(row.values()) for row in result.rows.to_pylist()]
        return rows

    def load(self, body: bytes | str, table: str = "t", **headers: str) -> StreamLoadReply:
        given = {"column_separator": ","} | {k.replace("__", ".", 1): v for k, v in headers.items()}
        data = body.encode() if isinstance(body, str) else body
        reply = stream_load(self.store, "db", table, io.BytesIO(data), given)
        total = reply["NumberLoadedRows"] + reply["NumberFilteredRows"] + reply["NumberUnselectedRows"]
        assert reply["NumberTotalRows"] == total  # LS7
        return reply

    def good(self, body: bytes | str, table: str = "t", **headers: str) -> StreamLoadReply:
        reply = self.load(body, table, **headers)
        assert (reply["Status"], reply["Message"]) == ("Success", "OK"), reply["Message"]
        return reply

    def refused(self, body: bytes | str, table: str = "t", **headers: str) -> str:
        version = self.store.table(f"db.{table}").version
        reply = self.load(body, table, **headers)
        assert reply["Status"] == "Fail"
        assert self.store.table(f"db.{table}").version == version
        return str(reply["Message"])

    def log(self, reply: StreamLoadReply) -> list[str]:
        return Path(reply["ErrorURL"]).read_text().splitlines()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "data")
    made.sql(
        "CREATE TABLE t (k INT NOT NULL, v VARCHAR(5) NULL, n DECIMAL(5,2) NULL, "
        "d DATETIME NULL, x TINYINT NULL) "
        "UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1"
    )
    made.sql(
        "CREATE TABLE seq (k INT NOT NULL, s INT NULL, "
        "v STRING NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 "
        'PROPERTIES ("function_column.sequence_col" = "s")'
    )
    made.sql(
        "CREATE TABLE typed (k INT NOT NULL, v STRING NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 "
        'PROPERTIES ("function_column.sequence_type" = "INT")'
    )
    with made.store:
        yield made


def counts(reply: StreamLoadReply) -> tuple[int, int, int, int]:
    return (
        reply["NumberTotalRows"],
        reply["NumberLoadedRows"],
        reply["NumberFilteredRows"],
        reply["NumberUnselectedRows"],
    )


# ------------------------------------------------------------------------------------------ the reply


def test_the_reply_has_the_fields_of_doris_in_their_order(bench: Bench) -> None:
    """LS1, LS2, LS6."""
    reply = bench.good("1,a,1.5,2024-01-01,1\n", label="l1", comment="hello")
    assert list(reply) == FIELDS
    assert (reply["Label"], reply["Comment"], reply["TwoPhaseCommit"]) == ("l1", "hello", "false")
    assert reply["LoadBytes"] == 21
    assert json.loads(reply.to_json()) == dict(reply)
    assert reply.is_success


def test_a_label_is_generated_when_none_is_given(bench: Bench) -> None:
    """LH1."""
    first, second = bench.good("", label=""), bench.good("")
    assert len(first["Label"]) == 36
    assert first["Label"] != second["Label"]


def test_a_used_label_is_refused_and_says_that_the_first_load_is_finished(bench: Bench) -> None:
    """LS4, LS5, LS14, X16."""
    first = bench.good("1,a,,,\n", label="l1")
    reply = bench.load("2,b,,,\n", label="l1")
    assert list(reply) == [*FIELDS[:5], "ExistingJobStatus", *FIELDS[5:]]
    assert (reply["Status"], reply["ExistingJobStatus"], reply["TxnId"]) == (
        "Label Already Exists",
        "FINISHED",
        -1,
    )
    assert f"Label [l1] has already been used, relate to txn [{first['TxnId']}]" in reply["Message"]
    assert reply["Message"].startswith("[LABEL_ALREADY_EXISTS]")
    assert counts(reply) == (0, 0, 0, 0)
    assert bench.sql("SELECT k FROM t") == [(1,)]


def test_a_label_in_use_is_running(bench: Bench) -> None:
    """LS5."""
    with bench.store.table("db.t").begin_load(label="open"):
        assert bench.load("1,a,,,\n", label="open")["ExistingJobStatus"] == "RUNNING"


def test_a_failed_load_frees_its_label(bench: Bench) -> None:
    """LS12."""
    bench.refused("x\n", label="again")
    bench.good("1,a,,,\n", label="again")


def test_a_missing_table_database_or_bad_header_is_a_clear_failure(bench: Bench) -> None:
    """LR6, LR7."""
    reply = stream_load(bench.store, "nodb", "t", io.BytesIO(b"1"), {})
    assert (reply["Status"], reply["TxnId"]) == ("Fail", -1)
    assert "nodb" in reply["Message"]
    assert "'db.nope'" in stream_load(bench.store, "db", "nope", io.BytesIO(b"1"), {})["Message"]
    reply = bench.load("1", format="xml", label="l")
    assert reply["Message"] == "[INVALID_ARGUMENT]unknown data format, format=xml"
    assert (reply["TxnId"], reply["Label"]) == (-1, "l")
    for name in ("../x", "t;drop", "", "a.b.c", "x" * 200, "\x00"):
        assert stream_load(bench.store, "db", name, io.BytesIO(b"1"), {})["Status"] == "Fail"


def test_headers_without_meaning_here_are_accepted(bench: Bench) -> None:
    """LH24, LH25."""
    bench.good(
        "1,a,,,\n",
        exec_mem_limit="2147483648",
        send_batch_parallelism="4",
        load_to_single_tablet="true",
        memtable_on_sink_node="true",
        enable_profile="true",
        group_commit="off_mode",
        timeout="30",
    )


def test_exec_mem_limit_bounds_a_batch_with_the_values_of_its_expressions(bench: Bench) -> None:
    """LH24: it had no effect."""
    body = "".join(f"{k},a,,,\n" for k in range(2000))
    assert "more than exec_mem_limit = 20000;" in bench.refused(body, exec_mem_limit="20000")
    assert bench.load(body, exec_mem_limit="20000000")["NumberLoadedRows"] == 2000


def test_exec_mem_limit_bounds_the_buffered_rows(bench: Bench) -> None:
    batch = MappedBatch(pa.table({"k": np.arange(1000)}), np.arange(1000), 0, [], 0)
    fullness = []
    for limit in (0, 32_000):
        buffer = RowBuffer()
        buffer.add(lambda _rows: [], replace(batch, memory_bytes=limit))
        fullness.append(buffer.fullness)
    assert fullness[0] < 0.1
    assert fullness[1] == 0.5


def test_partitions_name_the_only_one_there_is(bench: Bench) -> None:
    """LH8."""
    bench.good("1,a,,,\n", partitions="t")
    assert "unknown partition 'p1'" in bench.refused("1,a,,,\n", partitions="p1")


def test_a_load_beyond_its_timeout_fails(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """LH9."""
    moments = iter(range(0, 10_000, 5))
    monkeypatch.setattr("seqstore.loaders.stream_load.time.monotonic", lambda: float(next(moments)))
    reply = bench.load("1,a,,,\n", timeout="1")
    assert reply["Status"] == "Fail"
    assert reply["Message"].startswith("[TIMEOUT]")


def test_a_body_that_breaks_off_is_a_failure_and_nothing_is_applied(bench: Bench) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ConnectionResetError("the client went away")

    reply = stream_load(bench.store, "db", "t", Broken(), {"label": "b"})
    assert (reply["Status"], reply["Message"]) == ("Fail", "[IO_ERROR]the client went away")
    bench.good("1,a,,,\n", label="b")


# ------------------------------------------------------------------------------------------ bad rows


def test_rows_above_the_ratio_fail_the_load_and_the_counters_show_what_was_seen(bench: Bench) -> None:
    """Y5, Y7, Y9, LS9, LS10, V2."""
    body = "1,a,1,2024-01-01,1\n2,toolong,1,2024-01-01,1\n3,a\n"
    reply = bench.load(body, max_filter_ratio="0.5")
    assert reply["Status"] == "Fail"
    assert reply["Message"].startswith("[DATA_QUALITY_ERROR]too many filtered rows")
    assert counts(reply) == (3, 1, 2, 0)
    assert bench.sql("SELECT * FROM t") == []


def test_a_ratio_that_is_just_reached_passes(bench: Bench) -> None:
    """Y7."""
    reply = bench.good("1,a,1,2024-01-01,1\n3,a\n", max_filter_ratio="0.5")
    assert counts(reply) == (2, 1, 1, 0)
    assert reply["ErrorURL"]


def test_every_row_may_be_filtered_with_ratio_one(bench: Bench) -> None:
    """Y8."""
    assert counts(bench.good("x\ny\n", max_filter_ratio="1")) == (2, 0, 2, 0)


def test_the_error_log_has_line_reason_and_row_in_the_order_of_the_body(bench: Bench) -> None:
    """LS11, Y1, Y2, Y4, Y5."""
    body = "1,a,1,,1\n2,toolong,1,,1\nx,a,1,,1\n4,a,1234.5,,1\n\n6,a\n7,é,\xc3,,\n"
    reply = bench.good(body, max_filter_ratio="1", strict_mode="false")
    assert counts(reply) == (6, 2, 4, 0)
    lines = bench.log(reply)
    assert [line.split(":")[0] for line in lines] == ["line 2", "line 3", "line 4", "line 6"]
    assert all(" Reason: " in line for line in lines)
    assert lines[0].endswith("src line [2,toolong,1,,1];")
    assert "column_name: v" in lines[0]
    assert "'1234.5' is out of the range of DECIMAL(5,2)" in lines[2]
    assert "expected 5 fields, found 2" in lines[3]


def test_the_error_log_is_bounded(bench: Bench) -> None:
    reply = bench.good("x\n" * 5000, max_filter_ratio="1")
    assert reply["NumberFilteredRows"] == 5000
    assert len(bench.log(reply)) == 1000


def test_error_logs_of_old_loads_make_room(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqstore.loaders.error_log.FILES_MAX", 3)
    urls = [bench.load("x\n")["ErrorURL"] for _ in range(6)]
    assert [Path(url).exists() for url in urls] == [False] * 3 + [True] * 3


def test_a_log_line_stays_one_line_whatever_the_row_holds(bench: Bench) -> None:
    reply = bench.load(b"'a\nb\xff',1\n", enclose="'")
    assert len(bench.log(reply)) == 1


# ------------------------------------------------------------------------------------------ conversion


def test_what_cannot_be_converted_is_null_or_in_strict_mode_filtered(bench: Bench) -> None:
    """Y1, V1."""
    body = "1,a,1,2020-02-30,abc\n2,b,,,2000\n3,c,1,2024-01-01,7\n"
    assert counts(bench.good(body)) == (3, 3, 0, 0)
    assert bench.sql("SELECT k, x FROM t ORDER BY k") == [(1, None), (2, None), (3, 7)]
    reply = bench.good(body, strict_mode="true", max_filter_ratio="1")
    assert counts(reply) == (3, 1, 2, 0)
    assert "'2020-02-30' cannot be converted to DATETIME" in bench.log(reply)[0]


def test_null_for_a_not_null_column_filters_in_both_modes(bench: Bench) -> None:
    """Y2, A2."""
    for strict in ("true", "false"):
        reply = bench.good("\\N,a,,,\n", strict_mode=strict, max_filter_ratio="1")
        assert counts(reply) == (1, 0, 1, 0)


def test_strict_mode_does_not_look_at_derived_columns(bench: Bench) -> None:
    """Y3."""
    bench.good("1,abc\n", columns="k,tmp,x=cast(tmp as tinyint)", strict_mode="true")
    assert bench.sql("SELECT k, x FROM t") == [(1, None)]


def test_a_decimal_out_of_range_filters_in_both_modes(bench: Bench) -> None:
    """Y4."""
    for strict in ("true", "false"):
        reply = bench.good("1,1000\n2,1.005\n", columns="k,n", strict_mode=strict, max_filter_ratio="0.5")
        assert counts(reply) == (2, 1, 1, 0)
    assert bench.sql("SELECT k, n FROM t") == [(2, Decimal("1.01"))]
    reply = bench.good("1\n", columns="k,n=k*1000", max_filter_ratio="1")
    assert reply["NumberFilteredRows"] == 1


def test_text_with_an_offset_is_moved_to_the_zone_of_the_load(bench: Bench) -> None:
    """Y13, LH11."""
    body = "1,2024-01-01 00:00:00+00:00\n2,2024-01-01 00:00:00\n"
    bench.good(body, columns="k,d", timezone="Asia/Shanghai")
    assert [str(row[1]) for row in bench.sql("SELECT k, d FROM t ORDER BY k")] == [
        "2024-01-01 08:00:00",
        "2024-01-01 00:00:00",
    ]
    bench.good(body, columns="k,d", timezone="-01:00")
    assert str(bench.sql("SELECT d FROM t WHERE k = 1")[0][0]) == "2023-12-31 23:00:00"


# ------------------------------------------------------------------------------------------ mapping


def test_fields_go_by_position_and_names_that_are_no_column_are_skipped(bench: Bench) -> None:
    """M1, M6, V3, LH5."""
    bench.good("zzz,1,a\n", columns="skip, K, `v`")
    assert bench.sql("SELECT k, v, n FROM t") == [(1, "a", None)]


def test_derived_columns_use_fields_and_earlier_derived_ones(bench: Bench) -> None:
    """M1, M2, M3: textual order is free, chains work, a field may be replaced by itself."""
    bench.good("1,5\n", columns="tmpk = p+1, k, x = tmpk*2, p")
    assert bench.sql("SELECT k, x FROM t") == [(1, 12)]
    bench.good("2,6\n", columns="k,x,x=x+1,n=x")
    assert bench.sql("SELECT k, x, n FROM t WHERE k = 2") == [(2, 7, Decimal("6.00"))]


def test_functions_have_their_doris_meaning(bench: Bench) -> None:
    bench.good(
        "1,abc,20240102,1704067200\n",
        columns="k,a,b,c,v=upper(substr(a,1,2)),d=str_to_date(b,'%Y%m%d'),x=if(a='abc',1,0),n=c/1704067200",
    )
    assert bench.sql("SELECT v, date_format(d, '%Y-%m-%d'), x, n FROM t") == [
        ("AB", "2024-01-02", 1, Decimal("1.00"))
    ]


def test_columns_that_are_all_derived_read_the_fields_of_the_table(bench: Bench) -> None:
    """M7, in strict mode too."""
    bench.good("1,a,2,2024-01-01,3\n", columns="k=k+10,v=concat(v,'!')", strict_mode="true")
    assert bench.sql("SELECT k, v, x FROM t") == [(11, "a!", 3)]


def test_where_is_decided_on_finished_columns_and_dropped_rows_are_unselected(bench: Bench) -> None:
    """M4, M5, LH6, LS7's vector."""
    body = "".join(f"{i},{i % 7}\n" for i in range(2500))
    reply = bench.good(body, columns="k,p,x=p+1", where="k < 11 and x >= 1")
    assert counts(reply) == (2500, 11, 0, 2489)
    assert counts(bench.good("1,9\n2,9\n", columns="k,x", where="x is null")) == (2, 0, 0, 2)


def test_unselected_rows_are_outside_of_the_ratio(bench: Bench) -> None:
    """M5, Y7."""
    reply = bench.load("bad\n1,1\n2,2\n3,3\n", columns="k,x", where="k = 1", max_filter_ratio="0.4")
    assert reply["Status"] == "Fail"
    assert counts(reply) == (4, 1, 1, 2)


@pytest.mark.parametrize(
    ("headers", "part"),
    [
        ({"columns": "k,k"}, "listed twice"),
        ({"columns": "k,x=1,x=2"}, "derived twice"),
        ({"columns": "k,x=nosuch(k)"}, "'nosuch'"),
        ({"columns": "k,x=y"}, "unknown column 'y'"),
        ({"columns": "k,x="}, "columns:"),
        ({"columns": "k,,x"}, "columns:"),
        ({"columns": "k;drop table t"}, "columns:"),
        ({"columns": "k,x=(select 1)"}, "expressions over one row"),
        ({"columns": "k,x=sum(k)"}, "expressions over one row"),
        ({"columns": "k,x=read_csv('/etc/passwd')"}, "read_csv"),
        ({"columns": "k,v=getenv('HOME')"}, "getenv"),
        ({"where": "zz = 1"}, "unknown column 'zz'"),
        ({"where": "k = 1; select 1"}, "where:"),
        ({"where": "k in (select k from t)"}, "expressions over one row"),
        ({"columns": "v"}, "Column has no default value. column: k"),
        ({"function_column__sequence_col": "v"}, "There is no sequence column in the table t"),
        ({"hidden_columns": "__DORIS_SEQUENCE_COL__"}, "There is no sequence column in the table t"),
        ({"hidden_columns": "zz"}, "hidden_columns"),
        ({"merge_type": "MERGE"}, "Excepted DELETE ON clause when merge type is MERGE."),
        ({"merge_type": "MERGE", "delete": "zz=1"}, "unknown column 'zz'"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_row_is_read(
    bench: Bench, headers: dict[str, str], part: str
) -> None:
    """M8, SL13, SL14, LH13."""
    assert part in bench.refused("", **headers)


# ------------------------------------------------------------------------------------------ sequence


def test_the_sequence_comes_from_a_field_that_need_not_be_stored(bench: Bench) -> None:
    """SL1, SL14, SO6's vector, LS8."""
    body = "".join(f"1,{s},{s}\n" for s in (3, 1, 6, 2, 5, 4))
    reply = bench.good(body, "typed", columns="k,src,v", function_column__sequence_col="src")
    assert counts(reply) == (6, 6, 0, 0)
    assert bench.sql("SELECT * FROM typed") == [(1, "6")]
    bench.good("1,5,late\n", "typed", columns="k,src,v", function_column__sequence_col="SRC")
    assert bench.sql("SELECT * FROM typed") == [(1, "6")]


def test_the_sequence_may_be_a_derived_column(bench: Bench) -> None:
    bench.good("1,10\n", "typed", columns="k,p,s=p*2,v=p", function_column__sequence_col="s")
    bench.good("1,19\n", "typed", columns="k,s,v=s", function_column__sequence_col="s")
    assert bench.sql("SELECT * FROM typed") == [(1, "10")]


def test_a_mapped_sequence_needs_no_header(bench: Bench) -> None:
    """SL5."""
    bench.good("1,5,a\n", "seq")
    bench.good("1,4,b\n", "seq", columns="k,s,v")
    bench.good("1,3,c\n", "seq", columns="k,s,v", function_column__sequence_col="s")
    assert bench.sql("SELECT * FROM seq") == [(1, 5, "a")]


@pytest.mark.parametrize(("table", "columns"), [("seq", "k,v"), ("typed", "k,v"), ("typed", "")])
def test_a_load_without_a_sequence_source_is_refused(bench: Bench, table: str, columns: str) -> None:
    """SL6."""
    message = bench.refused("1,a\n", table, columns=columns)
    assert message.endswith(f"Table {table} has sequence column, need to specify the sequence column")


def test_an_unknown_sequence_source_is_refused(bench: Bench) -> None:
    """SL14."""
    assert "'zz'" in bench.refused("1,a\n", "typed", columns="k,v", function_column__sequence_col="zz")


def test_hidden_columns_are_the_last_fields_of_a_row(bench: Bench) -> None:
    """SL4, LH15."""
    hidden = "__DORIS_DELETE_SIGN__,__DORIS_SEQUENCE_COL__"
    bench.good("1,a,0,5\n2,b,0,5\n", "typed", hidden_columns=hidden)
    bench.good("1,x,1,6\n2,x,1,4\n", "typed", hidden_columns=hidden)
    assert bench.sql("SELECT * FROM typed") == [(2, "b")]


def test_hidden_columns_may_be_listed_among_the_columns(bench: Bench) -> None:
    """P24, D11."""
    bench.good("7,1,a,0\n", "typed", columns="__DORIS_SEQUENCE_COL__,k,v,__doris_delete_sign__")
    bench.good("8,1,a,1\n", "typed", columns="__SEQUENCE_COL__,k,v,__DELETE_SIGN__")
    assert bench.sql("SELECT * FROM typed") == []


def test_a_sequence_that_cannot_be_converted_is_null_or_filtered(bench: Bench) -> None:
    """Y14, SO4."""
    options = {"columns": "k,src,v", "function_column__sequence_col": "src"}
    bench.good("1,5,a\n", "typed", **options)
    assert counts(bench.good("1,soon,b\n", "typed", **options)) == (1, 1, 0, 0)
    assert bench.sql("SELECT * FROM typed") == [(1, "a")]
    reply = bench.load("1,soon,b\n", "typed", strict_mode="true", **options)
    assert counts(reply) == (1, 0, 1, 0)


def test_a_mapped_column_with_the_current_time_as_default_may_be_left_out(bench: Bench) -> None:
    """SL9, A3."""
    bench.sql(
        "CREATE TABLE now (k INT NOT NULL, s DATETIME(6) NULL DEFAULT CURRENT_TIMESTAMP(6)) UNIQUE KEY(k) "
        'DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES ("function_column.sequence_col" = "s")'
    )
    bench.good("1\n2\n", "now", columns="k")
    times = {row[0] for row in bench.sql("SELECT s FROM now")}
    assert len(times) == 1
    assert None not in times


# ------------------------------------------------------------------------------------------ deletes


def test_merge_deletes_what_meets_the_condition(bench: Bench) -> None:
    """G1, G5's vector."""
    bench.sql(
        "CREATE TABLE users (siteid INT NOT NULL, citycode INT, username VARCHAR(20)) UNIQUE KEY(siteid) "
        "DISTRIBUTED BY HASH(siteid) BUCKETS 1"
    )
    bench.good("4,3,bush\n5,3,helen\n1,1,jim\n", "users")
    bench.good("2,1,grace\n3,2,tom\n1,1,jim\n", "users", merge_type="MERGE", delete="siteid=1")
    assert bench.sql("SELECT username FROM users ORDER BY siteid") == [
        ("grace",),
        ("tom",),
        ("bush",),
        ("helen",),
    ]


def test_the_delete_condition_may_use_fields_that_are_not_stored(bench: Bench) -> None:
    """G3."""
    bench.good("1,a\n2,b\n", columns="k,v")
    reply = bench.good("1,x,1\n3,y,0\n", columns="k,v,label_c3", merge_type="merge", delete="label_c3=1")
    assert counts(reply) == (2, 2, 0, 0)  # LS8: delete rows count as loaded
    assert bench.sql("SELECT k, v FROM t ORDER BY k") == [(2, "b"), (3, "y")]


def test_merge_type_delete_needs_only_the_key(bench: Bench) -> None:
    """G1, D9."""
    bench.sql("CREATE TABLE strict (k INT NOT NULL, v STRING) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1")
    bench.good("1,a\n2,b\n", "strict")
    bench.good("1\n9\n", "strict", columns="k", merge_type="DELETE")
    assert bench.sql("SELECT * FROM strict") == [(2, "b")]


def test_rows_of_a_merge_apply_in_input_order(bench: Bench) -> None:
    """G1, SO3."""
    bench.good("1,a,1\n1,b,0\n2,c,0\n2,d,1\n", columns="k,v,del", merge_type="MERGE", delete="del=1")
    assert bench.sql("SELECT k, v FROM t") == [(1, "b")]


# ------------------------------------------------------------------------------------------ formats


@pytest.mark.parametrize("headers", [{}, {"format": "json"}, {"skip_lines": "3"}, {"compress_type": "gz"}])
def test_an_empty_body_is_a_success_with_no_rows(bench: Bench, headers: dict[str, str]) -> None:
    """V12."""
    reply = bench.good("", **headers)
    assert counts(reply) == (0, 0, 0, 0)
    assert "ErrorURL" not in reply


def test_names_lines_are_skipped_and_not_used(bench: Bench) -> None:
    """V9, LH2."""
    body = "x,d,n,v,k\n1,a,1,,2\n"
    bench.good(body, format="csv_with_names")
    assert bench.sql("SELECT k, v, x FROM t") == [(1, "a", 2)]
    bench.good("h,h\nINT,INT\n5,b\n", format="CSV_with_names_and_types", columns="k,v")
    assert bench.sql("SELECT v FROM t WHERE k = 5") == [("b",)]


def test_an_enclosed_field_that_never_ends_fails_whatever_the_ratio(bench: Bench) -> None:
    """V6."""
    message = bench.refused("1,a\n2,'b\n", columns="k,v", enclose="'", max_filter_ratio="1")
    assert message.startswith("[DATA_QUALITY_ERROR]line 2:")


def test_json_rows_take_the_default_for_a_missing_key_and_null_for_null(bench: Bench) -> None:
    """J7, A3."""
    bench.sql(
        'CREATE TABLE def (k INT NOT NULL, v STRING NULL DEFAULT "dflt", '
        "d DATETIME NULL DEFAULT CURRENT_TIMESTAMP, "
        "n INT NULL) "
        "UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1"
    )
    bench.good('{"k":1}\n{"k":2,"v":null,"d":null}\n{"K":3,"V":"x"}\n', "def", format="json")
    rows = bench.sql("SELECT k, v, d IS NULL, n FROM def ORDER BY k")
    assert [(row[0], row[1], bool(row[2]), row[3]) for row in rows] == [
        (1, "dflt", False, None),
        (2, None, True, None),
        (3, "x", False, None),
    ]


def test_json_booleans_and_nested_values_fit_their_columns(bench: Bench) -> None:
    """J11."""
    bench.sql(
        "CREATE TABLE js (k INT NOT NULL, b BOOLEAN NULL, i TINYINT NULL, s STRING NULL, j JSON NULL, "
        "a ARRAY<INT> NULL) "
        "UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1"
    )
    bench.good(
        '{"k":1,"b":true,"i":true,"s":{"x":[1]},"j":{"y":1},"a":[1,2]}\n',
        "js",
        format="json",
        strict_mode="true",
    )
    assert bench.sql("SELECT b, i, s, j, a FROM js") == [(True, 1, '{"x":[1]}', '{"y":1}', [1, 2])]


def test_json_paths_name_the_columns_in_order(bench: Bench) -> None:
    """J5, LH18."""
    body = '{"data":[{"id":1,"in":{"v":"a"}},{"id":2,"in":{"v":"b"}}]}'
    options = {"format": "json", "strip_outer_array": "true", "json_root": "$.data"}
    bench.good(body, jsonpaths='["$.id","$.in.v"]', **options)
    assert bench.sql("SELECT k, v FROM t ORDER BY k") == [(1, "a"), (2, "b")]
    bench.good(body, jsonpaths='["$.in.v","$.id"]', columns="v,p,k=p+10", **options)
    assert bench.sql("SELECT k, v FROM t WHERE k > 10 ORDER BY k") == [(11, "a"), (12, "b")]
    assert "1 paths for 2 columns" in bench.refused(body, jsonpaths='["$.id"]', columns="k,v", **options)


def test_several_json_objects_on_a_line_fail_with_the_words_of_doris(bench: Bench) -> None:
    """J3."""
    message = bench.refused('{"k":1}{"k":2}\n', format="json", max_filter_ratio="1")
    assert message == "[DATA_QUALITY_ERROR]Multiple JSON objects in a single line"


def test_compressed_bodies_load_like_plain_ones(bench: Bench) -> None:
    """LH22."""
    import gzip

    reply = bench.good(gzip.compress(b"1,a\n2,b\n"), columns="k,v", compress_type="GZ")
    assert reply["NumberLoadedRows"] == 2
    assert reply["LoadBytes"] == len(gzip.compress(b"1,a\n2,b\n"))
    assert "cannot be read as gz" in bench.refused(b"1,a\n", columns="k,v", compress_type="gz")
    truncated = gzip.compress(b"1,a\n" * 1000)[:-9]
    assert "cannot be read as gz" in bench.refused(truncated, columns="k,v", compress_type="gz")


def as_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink)
    return sink.getvalue()


def as_orc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pa.orc.write_table(table, sink)
    return sink.getvalue()


def as_arrow_stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def as_arrow_file(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("name", "write"),
    [("parquet", as_parquet), ("orc", as_orc), ("arrow", as_arrow_stream), ("arrow", as_arrow_file)],
    ids=["parquet", "orc", "arrow-stream", "arrow-file"],
)
def test_columns_of_a_file_go_by_name(bench: Bench, name: str, write: Any) -> None:
    """Q1: extra columns are ignored, absent ones take their default."""
    rows = pa.table({"V": ["a", "bb"], "K": pa.array([1, 2], pa.int64()), "extra": [1.5, 2.5]})
    assert counts(bench.good(write(rows), format=name)) == (2, 2, 0, 0)
    assert bench.sql("SELECT k, v, n FROM t ORDER BY k") == [(1, "a", None), (2, "bb", None)]
    bench.good(write(rows), format=name, columns="k,v,extra,n,x=extra*2", where="k > 1")
    assert bench.sql("SELECT k, x, n FROM t WHERE x IS NOT NULL") == [(2, 5, None)]
    assert "failed to find default value expr for slot: zz" in bench.refused(
        write(rows), format=name, columns="k,v,zz"
    )
    for broken in (write(rows)[:-30], b"", b"no such file" * 50):
        assert f"cannot be read as {name}" in bench.refused(broken, format=name)


def test_bad_rows_of_a_file_are_logged_by_their_number(bench: Bench) -> None:
    rows = pa.table({"k": [1, None, 3], "v": ["a", "b", "toolong"]})
    reply = bench.good(as_parquet(rows), format="parquet", max_filter_ratio="1")
    assert counts(reply) == (3, 1, 2, 0)
    assert [line.split(":")[0] for line in bench.log(reply)] == ["line 2", "line 3"]


def test_a_file_whose_types_can_never_fit_is_refused(bench: Bench) -> None:
    message = bench.refused(as_parquet(pa.table({"k": [[1]]})), format="parquet")
    assert "column 'k'" in message


# ------------------------------------------------------------------------------------------ size


def test_a_large_body_is_written_in_pieces_and_becomes_one_version(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X1; and bad rows keep their line numbers across pieces."""
    monkeypatch.setattr("seqstore.loaders.row_buffer.ROWS", 1000)
    lines = [f"{i},v{i % 100}" for i in range(20_000)]
    lines[12_345] = "bad"
    lines[17_000] = "17000,toolong"
    monkeypatch.setattr(
        "seqstore.loaders.csv.reader.CsvReader.__init__.__kwdefaults__", {"block_bytes": 4096}
    )
    before = bench.store.table("db.t").version
    reply = bench.good("\n".join(lines), columns="k,v", max_filter_ratio="0.1")
    assert counts(reply) == (20_000, 19_998, 2, 0)
    assert [line.split(":")[0] for line in bench.log(reply)] == ["line 12346", "line 17001"]
    table = bench.store.table("db.t")
    assert (table.version, table.count(), table.check()) == (before + 1, 19_998, [])


def test_the_fields_of_headers_are_never_run_as_sql(bench: Bench) -> None:
    """Expressions that would do harm are refused or are nothing but values."""
    bench.good("1,a\n", columns="k,v")
    for text in (
        "1=1); DROP TABLE t; --",
        "k = 1 UNION SELECT 1",
        "'; DROP TABLE t; --' = v",
        "1 = 1 /* x */",
    ):
        bench.load("2,b\n", columns="k,v", where=text)
    assert bench.store.tables("db") == ["seq", "t", "typed"]


# ------------------------------------------------------------------------------------------ two-phase commit


def test_a_two_phase_load_is_pre_committed_and_ended_later(bench: Bench) -> None:
    """LH17, PC1, PC2: nothing is visible, and any process may end it; on tables with unique keys too,
    unlike in the cloud mode (PC10)."""
    reply = bench.good("1,a,1.5,2024-01-01,1\n", label="l", two_phase_commit="true")
    assert (reply["TwoPhaseCommit"], reply["CommitAndPublishTimeMs"]) == ("true", 0)
    assert (reply["NumberLoadedRows"], bench.sql("SELECT k FROM t")) == (1, [])
    with Store.open(bench.path) as other:
        other.commit_transaction("db", txn_id=reply["TxnId"])
    assert bench.sql("SELECT k FROM t") == [(1,)]
    bench.good("2,b,1.5,2024-01-01,1\n", label="m", two_phase_commit="TRUE")
    bench.store.abort_transaction("db", label="m")
    bench.good("2,b,1.5,2024-01-01,1\n", label="m")


def test_the_label_of_a_pre_committed_load_is_told_with_its_status(bench: Bench) -> None:
    """PC6, LS4, LS5."""
    first = bench.good("1,a,1.5,2024-01-01,1\n", label="l", two_phase_commit="true")
    reply = bench.load("2,a,1.5,2024-01-01,1\n", label="l", two_phase_commit="true")
    assert (reply["Status"], reply["ExistingJobStatus"]) == ("Label Already Exists", "PRECOMMITTED")
    assert reply["Message"] == (
        "[LABEL_ALREADY_EXISTS]Label [l] has already been used, relate to txn "
        f"[{first['TxnId']}], status [PRECOMMITTED]."
    )


def test_a_two_phase_load_that_fails_frees_its_label(bench: Bench) -> None:
    """LS12, Y7."""
    bench.refused("x,a,1.5,2024-01-01,1\n", label="l", two_phase_commit="true")
    bench.good("1,a,1.5,2024-01-01,1\n", label="l", two_phase_commit="true", partial_columns="true")
    bench.store.commit_transaction("db", label="l")
    assert bench.sql("SELECT k FROM t") == [(1,)]


def test_a_damaged_arrow_body_is_refused_before_its_buffers_are_touched(bench: Bench) -> None:
    """Offsets that point outside of their buffer once ended the process, or read what was beside it."""
    bench.sql("CREATE TABLE words (k INT NOT NULL, v TEXT NULL) UNIQUE KEY(k)")
    sink = pa.BufferOutputStream()
    rows = pa.table({"k": pa.array(range(100), pa.int32()), "v": ["word"] * 100})
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    body = sink.getvalue().to_pybytes()
    offset = (77 * len("word")).to_bytes(4, "little")
    assert body.count(offset) == 1
    for changed in ((-7).to_bytes(4, "little", signed=True), (2**30).to_bytes(4, "little")):
        message = bench.load(body.replace(offset, changed), "words", format="arrow")["Message"]
        assert message.startswith("[DATA_QUALITY_ERROR]the body cannot be read as arrow:")
    assert bench.load(body, "words", format="arrow")["NumberLoadedRows"] == 100


def test_a_separator_may_be_nul(bench: Bench) -> None:
    """LH3: Arrow's reader takes none, so it is replaced like those of several bytes."""
    bench.sql("CREATE TABLE pairs (k INT NOT NULL, v TEXT NULL) UNIQUE KEY(k)")
    assert bench.load(b"1\x00a\n2\x00b\n", "pairs", column_separator="\\x00")["NumberLoadedRows"] == 2
    assert bench.sql("SELECT * FROM db.pairs ORDER BY k") == [(1, "a"), (2, "b")]


def test_a_message_is_cut_to_a_readable_length(bench: Bench) -> None:
    assert len(bench.load("1", enclose="x" * 100_000)["Message"]) < 2_100


def test_txn_app_id_and_version_skip_what_was_loaded(bench: Bench) -> None:
    """Delta's pair as headers: the second upload is a success that says what it left out."""
    bench.sql("CREATE TABLE apps (k INT NOT NULL, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1")
    first = bench.load("1,1\n", "apps", txnAppId="job", txnVersion="4", label="one")
    for headers in ({"txnAppId": "job", "txnVersion": "4"}, {"txn_app_id": "job", "txn_version": "3"}):
        again = bench.load("1,2\n", "apps", label="two", **headers)
        assert (again["Status"], again["NumberLoadedRows"]) == ("Success", 0)
        assert again["Message"].startswith(
            "skipped: txnAppId 'job' has committed txnVersion 4 as table version 2"
        )
        assert again["TxnId"] == first["TxnId"]
    assert bench.load("1,3\n", "apps", txnAppId="job", txnVersion="5", label="two")["NumberLoadedRows"] == 1
    assert bench.sql("SELECT * FROM apps") == [(1, 3)]
    for headers, message in (
        ({"txnAppId": "job"}, "txnVersion is missing"),
        ({"txnAppId": "job", "txnVersion": "x"}, "Invalid 'txnVersion': x"),
    ):
        refused = bench.load("1,9\n", "apps", **headers)
        assert refused["Status"] == "Fail"
        assert message in refused["Message"]


def test_a_turn_is_given_back_before_the_commit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads wait for each other at the commit: whoever waits there must not keep others from preparing."""
    bench.sql("CREATE TABLE turns (k INT NOT NULL, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1")
    turn, seen = threading.Semaphore(1), []
    write, commit = Load.write, Load.commit

    def is_held() -> bool:
        is_free = turn.acquire(blocking=False)
        if is_free:
            turn.release()
        return not is_free

    def watched_write(self: Load, *given: Any, **options: Any) -> WriteResult:
        seen.append(("write", is_held()))
        return write(self, *given, **options)

    def watched_commit(self: Load, **options: Any) -> LoadResult:
        seen.append(("commit", is_held()))
        return commit(self, **options)

    monkeypatch.setattr(Load, "write", watched_write)
    monkeypatch.setattr(Load, "commit", watched_commit)
    headers = {"column_separator": ","}
    for body in (b"1,1\n", b"no number,1\n"):
        stream_load(bench.store, "db", "turns", io.BytesIO(body), headers, turn=turn)
    assert seen == [("write", True), ("commit", False), ("write", True)], "bad rows never come to a commit"
    assert not is_held()


@pytest.mark.parametrize(
    ("condition", "selected"),
    [
        ("v", [2]),
        ("'x'", []),
        ("1.5", [1, 2, 3]),
        ("x", [1, 3]),
        ("x + 0.0", [1, 3]),
        ("null", []),
        ("k > 1 or null", [2, 3]),
        ("x = 1 and v <> 'true'", [1]),
    ],
)
@pytest.mark.parametrize("group_commit", ["", "sync_mode"])
def test_a_condition_may_be_a_number_or_a_text(
    bench: Bench, condition: str, selected: list[int], group_commit: str
) -> None:
    """`where: v` was an internal error in Arrow's words."""
    mode = {"group_commit": group_commit} if group_commit else {}
    body = "1,a,1\n2,true,0\n3,\\N,-2\n"
    bench.load(body, columns="k,v,x", where=condition, **mode)
    assert bench.sql("SELECT k FROM t ORDER BY k") == [(k,) for k in selected]
    bench.load(body, columns="k,v,x", merge_type="MERGE", delete=condition)
    assert bench.sql("SELECT k FROM t ORDER BY k") == [(k,) for k in (1, 2, 3) if k not in selected]


@pytest.mark.parametrize("condition", ["[1]", "date '2024-01-01'", "cast(v as date)", "map(1, 2)"])
def test_a_value_that_is_no_condition_is_refused(bench: Bench, condition: str) -> None:
    reply = bench.load("1,a,1\n", columns="k,v,x", where=condition)
    assert "where: expected a condition, found a value of type" in reply["Message"]
