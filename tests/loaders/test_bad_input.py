"""Bad input by stream load: refused by name, or a counted row with its line; nothing half-applied."""

from __future__ import annotations

import io
import random
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from seqstore import Store, Table
from seqstore.loaders.columnar import _spoiled
from seqstore.loaders.http_stream import http_stream
from seqstore.loaders.reply import StreamLoadReply
from seqstore.loaders.stream_load import stream_load
from tests.seeds import new_seed
from tests.support.rows import rows_of, schema_of

LONG = "x" * 10_000_000


def columnar_bytes(rows: pa.Table, kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "parquet":
        pq.write_table(rows, out, compression="none", store_schema=False)
    elif kind == "orc":
        orc.write_table(rows, out, compression="uncompressed")
    else:
        with pa.ipc.new_stream(out, rows.schema) as writer:
            writer.write_table(rows)
    return out.getvalue()


def texts_of(values: list[bytes]) -> pa.StringArray:
    """Texts, whether they are UTF-8 or not."""
    return pa.StringArray.from_buffers(len(values), *pa.array(values, pa.binary()).buffers()[1:])


@pytest.fixture(autouse=True)
def made_table(store: Store) -> Table:
    return store.create_table(
        "db.t", schema_of("k VARCHAR(2000) NOT NULL", "n TINYINT", "d DATE NOT NULL", "text STRING")
    )


def load(store: Store, body: str | bytes, table: str = "t", **headers: str) -> StreamLoadReply:
    data = body.encode() if isinstance(body, str) else body
    return stream_load(store, "db", table, io.BytesIO(data), {"column_separator": ",", **headers})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"k,one,2024-01-01,a", "column n: 'one'"),
        (b"k,128,2024-01-01,a", "column n: '128'"),
        (b"k,1,2024-02-30,a", "column d: '2024-02-30'"),
        (b"k,1,\\N,a", "(d)"),
        (b"\\N,1,2024-01-01,a", "(k)"),
        (b"k,1,2024-01-01", "expected 4 fields, found 3"),
        (b"k,1,2024-01-01,a,b", "expected 4 fields, found 5"),
        (b"k,1,2024-01-01,\xff\xfe", "UTF-8"),
        (b"x" * 2001 + b",1,2024-01-01,a", "column_name: k"),
    ],
    ids=["type", "overflow", "date", "null", "null key", "missing", "extra", "utf-8", "too long"],
)
def test_a_bad_row_is_counted_with_its_line_and_reason(store: Store, line: bytes, reason: str) -> None:
    body = b"a,1,2024-01-01,x\n" + line + b"\nb,2,2024-01-02,y\n"
    reply = load(store, body, max_filter_ratio="0.5", strict_mode="true")
    assert (reply["Status"], reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == ("Success", 2, 1)
    [logged] = Path(reply["ErrorURL"]).read_text().splitlines()
    assert reason in logged
    assert "line 2" in logged
    assert [row[0] for row in rows_of(store.table("db.t"))] == ["a", "b"]
    refused = load(store, body, strict_mode="true")
    assert refused["Status"] == "Fail"
    assert store.table("db.t").version == 2


@pytest.mark.parametrize("kind", ["parquet", "orc", "arrow"])
@pytest.mark.parametrize("name", [b"spoiled", b"within"], ids=["column", "field"])
def test_names_of_a_file_that_are_no_texts_are_refused(store: Store, kind: str, name: bytes) -> None:
    rows = pa.table({"k": ["a"], "d": [date(2024, 1, 1)], "spoiled": [1], "pair": [{"within": 1}]})
    body = columnar_bytes(rows, kind)
    assert name in body
    reply = load(store, body.replace(name, b"\xc4" * len(name)), format=kind)
    assert reply["Status"] == "Fail"
    assert f"cannot be read as {kind}: the name of a column is not UTF-8" in reply["Message"]
    assert store.table("db.t").version == 1


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_rows_of_a_file_that_are_no_texts_are_bad(store: Store, kind: str) -> None:
    """V10: also where an expression would have read them, and where another column of the row is bad."""
    texts = texts_of([b"x", b"\xff\xfe", b"\xff", b"y"])
    days = pa.array([date(2024, 1, 1), date(2024, 1, 1), None, None])
    body = columnar_bytes(pa.table({"k": ["a", "b", "c", "d"], "d": days, "t": texts}), kind)
    reply = load(store, body, format=kind, max_filter_ratio="1", columns="k,d,t,text=upper(t)")
    assert (reply["Status"], reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == ("Success", 1, 3)
    logged = Path(reply["ErrorURL"]).read_text().splitlines()
    assert [line.split(": Reason: ")[0] for line in logged] == ["line 2", "line 3", "line 4"]
    assert sum("the row is not encoded in UTF-8" in line for line in logged) == 2
    assert rows_of(store.table("db.t")) == [("a", None, date(2024, 1, 1), "X")]


def test_texts_within_lists_are_looked_at_too(store: Store) -> None:
    texts = texts_of([b"x", b"y", b"\xff", b"z"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3, 4], pa.int32()), texts)
    rows = pa.table({"k": ["a", "b", "c"], "d": [date(2024, 1, 1)] * 3, "text": lists})
    reply = load(store, columnar_bytes(rows, "parquet"), format="parquet", max_filter_ratio="1")
    assert (reply["Status"], reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == ("Success", 2, 1)
    assert [row[3] for row in rows_of(store.table("db.t"))] == ['["x","y"]', '["z"]']


@pytest.mark.parametrize("kind", ["plain", "list", "struct"])
@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_exactly_the_spoiled_rows_are_found_also_in_slices(kind: str, share: float) -> None:
    seed = new_seed()
    print("seed", seed)
    chosen = random.Random(seed)
    for _ in range(20):
        rows = chosen.randrange(1, 300)
        bad = [chosen.random() < share for _ in range(rows)]
        column: pa.Array = texts_of([b"\xff" if each else b"text" for each in bad])
        if kind == "list":
            column = pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), column)
        elif kind == "struct":
            column = pa.StructArray.from_arrays([column], ["x"])
        start = chosen.randrange(rows)
        batch = pa.record_batch([column.slice(start)], names=["c"])
        assert _spoiled(batch).tolist() == bad[start:]


def test_a_bad_row_is_told_whatever_its_values_are(store: Store) -> None:
    """Python has no year 20,000 and no zone Nowhere; the row is bad for something else, or for them."""
    far = pa.array([568_971_820_800, 0], pa.timestamp("s"))
    zone = pa.array([0, 0], pa.timestamp("us", tz="Nowhere/Here"))
    rows = pa.table({"k": ["a", None], "d": far, "at": zone})
    reply = load(
        store, columnar_bytes(rows, "arrow"), format="arrow", max_filter_ratio="1", strict_mode="true"
    )
    assert (reply["Status"], reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == ("Success", 0, 2)
    first, second = Path(reply["ErrorURL"]).read_text().splitlines()
    assert "column d: '20000-01-01 00:00:00' cannot be converted to DATE" in first
    assert "'k': None" in second


def test_a_field_of_10_mb_and_a_key_over_511_bytes_are_ordinary(store: Store) -> None:
    """LMDB's keys end at 511 bytes; row keys are not among them."""
    key = "é" * 900
    assert load(store, f"{key},1,2024-01-01,{LONG}\n")["Status"] == "Success"
    document = f'{{"k": "{key}", "n": 2, "d": "2024-01-01", "text": "{LONG}"}}\n'
    assert load(store, document, format="json", read_json_by_line="true")["Status"] == "Success"
    [(found, number, _, text)] = rows_of(store.table("db.t"))
    assert (found, number, text) == (key, 2, LONG)


@pytest.mark.parametrize("body", ["", "\n", "\n\n"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_an_empty_file_is_a_success_with_no_rows(store: Store, body: str, kind: str) -> None:
    headers = {} if kind == "csv" else {"format": "json", "read_json_by_line": "true"}
    reply = load(store, body, **headers)
    assert (reply["Status"], reply["NumberTotalRows"]) == ("Success", 0)
    assert store.table("db.t").version == 1


@pytest.mark.parametrize(
    ("table", "headers", "word"),
    [
        ("nope", {}, "nope"),
        ("t", {"columns": "k,n,d,text,d"}, "listed twice"),
        ("t", {"columns": "k,n,d,text,twice=n,twice=n"}, "derived twice"),
        ("t", {"columns": "n,d,text"}, "column: k"),
    ],
    ids=["no table", "listed twice", "derived twice", "no key"],
)
def test_what_does_not_fit_the_table_is_refused_by_name(
    store: Store, table: str, headers: dict[str, str], word: str
) -> None:
    reply = load(store, "a,1,2024-01-01,x\n", table, **headers)
    assert reply["Status"] == "Fail"
    assert word in reply["Message"]
    assert store.table("db.t").version == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"k,1,2024-02-30,a", "'2024-02-30' cannot be converted to DATE"),
        (b"k,1,soon,a", "'soon' cannot be converted to DATE"),
        (b"k,1,\\N,a", "values is null while columns is not nullable; see"),
    ],
)
def test_a_lost_value_of_a_not_null_column_is_named(store: Store, line: bytes, said: str) -> None:
    assert said in load(store, line)["Message"]


def test_a_lost_value_behind_a_filter_is_named_with_its_own_line(store: Store) -> None:
    body = "a,1,2024-01-01,x\nb,1,2024-02-30,x\nc,1,2024-03-32,x\n"
    reply = load(store, body, where="k <> 'b'", max_filter_ratio="1")
    log = Path(reply["ErrorURL"]).read_text()
    assert log.count("Reason") == 1
    assert "line 3: Reason: column(d) values is null while columns is not nullable: '2024-03-32'" in log


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"k\t1\t2024-01-01\ta\n", "column_separator is ',', and a tab cuts the line into 4 fields"),
        (b"k;1;2024-01-01;a\n", "column_separator is ',', and ';' cuts the line into 4 fields"),
        (b"k,n,d,text\nk,1,2024-01-01,a\n", "looks like a header row; set format to csv_with_names"),
        (b'{"k": "a", "n": 1}\n', "looks like JSON; set format to json"),
        (b"\x1f\x8b\x08\x00\x00", "looks compressed; set compress_type to gz"),
        (b"\x28\xb5\x2f\xfd\x00", "looks compressed; set compress_type to zstd"),
        (b"BZh9\x00", "looks compressed; set compress_type to bz2"),
        (b"\x04\x22\x4d\x18\x00", "looks compressed; set compress_type to lz4"),
        (b"PAR1\x15\x04", "looks like a Parquet file; set format to parquet"),
        (b"ORC\x11\x00", "looks like an ORC file; set format to orc"),
        (b"ARROW1\x00\x00", "looks like an Arrow file; set format to arrow"),
    ],
)
def test_the_likely_cause_stands_with_a_first_line_that_does_not_fit(
    store: Store, body: bytes, said: str
) -> None:
    reply = load(store, body)
    assert reply["Status"] == "Fail"
    assert said in reply["Message"]


def test_the_default_separator_is_called_the_default(store: Store) -> None:
    reply = stream_load(store, "db", "t", io.BytesIO(b"k,1,2024-01-01,a\n"), {})
    assert "column_separator is a tab by default, and ',' cuts the line into 4 fields" in reply["Message"]


def test_a_header_row_that_fits_is_loaded_and_suspected(store: Store) -> None:
    store.create_table("db.texts", schema_of("k VARCHAR(20) NOT NULL", "text STRING"))
    reply = load(store, "k,Text\na,b\n", "texts")
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", 2)
    assert reply["Message"] == "OK; line 1: the line looks like a header row; set format to csv_with_names"


def test_the_first_line_alone_is_suspected(store: Store) -> None:
    body = "k,1,2024-01-01,a\nk;1;2024-01-01;a\nk,n,d,text\n"
    log = Path(load(store, body)["ErrorURL"]).read_text()
    assert "cuts the line" not in log
    assert "header row" not in log


def test_an_unknown_header_is_named_with_a_similar_one(store: Store) -> None:
    row = "k,1,2024-01-01,a\n"
    message = load(store, row, colum_separator="|", strictmode="true", quiet="1")["Message"]
    assert message == (
        "OK; header 'colum_separator' is not known and was ignored, did you mean column_separator?; "
        "header 'strictmode' is not known and was ignored, did you mean strict_mode?; "
        "header 'quiet' is not known and was ignored"
    )
    headers = {
        "column_separator": ",",
        "User-Agent": "x",
        "Host": "y",
        "Expect": "100",
        "max-filter-ratio": "0",
    }
    reply = stream_load(store, "db", "t", io.BytesIO(row.encode()), headers)
    assert reply["Message"] == (
        "OK; header 'max-filter-ratio' is not known and was ignored, did you mean max_filter_ratio?"
    )


def test_a_thousand_unknown_headers_make_a_short_message(store: Store) -> None:
    message = load(store, "k,1,2024-01-01,a\n", **{f"x{n}": "1" for n in range(1_000)})["Message"]
    assert message.endswith("'x9' is not known and was ignored; 990 more headers were not looked at")


@pytest.mark.parametrize(
    "sql",
    [
        "insert into d.t select " + "x from http_stream (" * 4_900,
        "insert into d.t select x from http_stream(" + "a from http_stream() where b " * 3_300,
        "insert into d.t select x from http_stream() where " + "where x " * 12_000 + ";;!",
    ],
)
def test_a_statement_of_http_stream_is_read_from_left_to_right(store: Store, sql: str) -> None:
    """One expression for the whole statement tried every place of every clause, for seconds."""
    reply = http_stream(store, sql, io.BytesIO(b"1\n"), {})
    assert reply["Status"] == "Fail"


def test_a_string_of_json_that_does_not_end_is_read_once(store: Store) -> None:
    """Every escaped quote was tried as the start of a string up to the end of the document."""
    store.create_table("db.j", schema_of("k bigint", "v string"))
    body = b'{"k": 12345678901234567.5, "v": "' + b'\\"' * 1_000_000
    reply = stream_load(store, "db", "j", io.BytesIO(body), {"format": "json"})
    assert reply["Status"] == "Fail"
