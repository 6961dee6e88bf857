"""Requests that no client should send, made up from a seed: name, bytes, and whether our side closes after
them."""

from __future__ import annotations

import bz2
import gzip
import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet

from tests.support.http_server import basic

HEADERS: Final = [
    "label",
    "format",
    "column_separator",
    "line_delimiter",
    "columns",
    "where",
    "max_filter_ratio",
    "partitions",
    "timeout",
    "temporary_partitions",
    "strict_mode",
    "timezone",
    "merge_type",
    "delete",
    "function_column.sequence_col",
    "hidden_columns",
    "partial_columns",
    "unique_key_update_mode",
    "partial_update_new_key_behavior",
    "two_phase_commit",
    "jsonpaths",
    "json_root",
    "strip_outer_array",
    "read_json_by_line",
    "num_as_string",
    "fuzzy_parse",
    "enclose",
    "escape",
    "trim_double_quotes",
    "skip_lines",
    "empty_field_as_null",
    "compress_type",
    "negative",
    "exec_mem_limit",
    "send_batch_parallelism",
    "group_commit",
    "sql",
    "comment",
    "partial_update_ignore_null",
    "load_to_single_tablet",
    "memtable_on_sink_node",
    "enable_profile",
]
SQL: Final = (
    "k; DROP TABLE t; --",
    "k, v=(SELECT v FROM t), n",
    "k, v=read_text('/etc/passwd'), n",
    "k, v=getenv('HOME'), n",
    "k=1; COPY t TO '/tmp/stolen.csv'",
    "k, v, n=1/0",
    "1=1) OR (SELECT count(*) FROM duckdb_settings()) > 0",
    "k IN (SELECT k FROM read_csv('/etc/passwd'))",
    "k = k /* */ UNION SELECT 1",
    "exists(select 1)",
    "k = '\\x00'",
    "((((((((((" * 50,
    "k" + "+k" * 3000,
    "`",
    "'",
    '"',
    "k=",
    "=k",
    ",,,",
    "k v n",
    "k,k",
    "k=k=k",
    "😀=k",
    "*",
)
NASTY: Final = (
    "",
    " ",
    "\t",
    "x",
    "-1",
    "0",
    "1e999",
    "nan",
    "inf",
    "true",
    "TRUE",
    "99999999999999999999",
    "\\x",
    "\\xZZ",
    "\\x0",
    "\\x00",
    "\\n",
    "\\",
    "'",
    '"',
    "`",
    "%",
    "%00",
    "../..",
    "\xff\xfe",
    "é",
    "null",
    "[]",
    "{}",
    "[1]",
    '["$.a"',
    '["$..*"]',
    "$",
    "$.",
    "$[*]",
    "$.a[999999999999]",
    "a" * 5000,
    "Mars/Olympus",
    "+99:99",
    "+08:00",
    *SQL,
)
NAMES: Final = (
    "..",
    "%2e%2e",
    "..%2f..%2fcatalog",
    "%00",
    "t%00",
    "%ff",
    "t%20",
    "%22t%22",
    "`t`",
    "t'",
    "t;drop",
    "T",
    "a.b.c",
    "db.t",
    "information_schema",
    "x" * 3000,
    "%F0%9F%98%80",
    "_stream_load",
    "*",
    "t?x=1",
    "t%3Fx",
    "-",
    "con",
    "%0d%0a",
)


@dataclass(frozen=True)
class BadRequest:
    """One request.

    Attributes:
        closes: our side of the connection closes behind the bytes.
        may_load: it may turn out to be fine.
    """

    name: str
    data: bytes
    closes: bool = True
    may_load: bool = False


def bad_request(rng: random.Random) -> BadRequest:
    """One of them."""
    return rng.choice(_KINDS)(rng)


def _head(
    headers: dict[str, str], *, path: str = "/api/db/t/_stream_load?redirected=1", method: str = "PUT"
) -> bytes:
    given = {"Host": "localhost", "Authorization": basic("root:"), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n"


def _put(body: bytes, headers: dict[str, str], **options: Any) -> bytes:
    given = {"column_separator": ",", "Content-Length": str(len(body))}
    return _head(given | headers, **options) + body


def _credentials(rng: random.Random) -> BadRequest:
    value = rng.choice(
        [
            "",
            "Basic",
            "Basic ",
            "Basic !!!",
            "Basic cm9vdDo=x",
            "Bearer abc",
            basic("root:wrong"),
            basic(":"),
            basic("root"),
            basic("nobody:x"),
            "Basic " + "QQ==" * 5000,
            basic("root\x00:"),
            basic("a" * 3000 + ":"),
        ]
    )
    return BadRequest(f"credentials {value[:30]!r}", _put(b"1,a,1\n", {"Authorization": value}))


def _length(rng: random.Random) -> BadRequest:
    value = rng.choice(
        ["-1", "abc", "1e3", "0x10", "7 ", "999999999999999999999", "100", "12345678", "+6", "6, 6", ""]
    )
    return BadRequest(
        f"length {value!r}", _put(b"1,a,1\n", {"Content-Length": value}), may_load=value == "7 "
    )


def _chunks(rng: random.Random) -> BadRequest:
    body = rng.choice(
        [
            b"",
            b"zz\r\n1,a,1\n\r\n0\r\n\r\n",
            b"6\r\n1,a,1\n",
            b"6\r\n1,a,1\nXX0\r\n\r\n",
            b"ffffffffffffffffff\r\n1",
            b"-1\r\n1\r\n",
            b"6;" + b"x" * 70000 + b"\r\n1,a,1\n\r\n0\r\n\r\n",
            b"\r\n\r\n",
            b"100000\r\n1,a,1\n",
        ]
    )
    both = {"Content-Length": "6"} if rng.random() < 0.2 else {}
    encoding = rng.choice(
        ["chunked", "chunked", "chunked", "gzip, chunked", "identity", "chunked, chunked", "nonsense"]
    )
    head = _head({"column_separator": ",", "Transfer-Encoding": encoding} | both)
    return BadRequest(f"{encoding} {body[:20]!r} {both}", head + body, may_load=True)


def _compressed(rng: random.Random) -> BadRequest:
    plain = b"".join(b"%d,a,1\n" % k for k in range(rng.choice([1, 1000, 30_000])))
    name = rng.choice(
        ["gz", "bz2", "lz4", "zstd", "zlib", "deflate", "lz4_block", "snappy_block", "lzo", "rar"]
    )
    compress: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress}
    made = compress.get(name, bytes)(plain)
    how = rng.choice(["cut", "noise", "changed", "doubled"])
    if how == "cut":
        made = made[: rng.randrange(len(made))]
    elif how == "noise":
        made = rng.randbytes(rng.choice([1, 5, 100, 5000]))
    elif how == "changed":
        at = rng.randrange(len(made))
        made = made[:at] + bytes([made[at] ^ 0xFF]) + made[at + 1 :]
    else:
        made = made + b"tail" + made
    return BadRequest(f"{name} {how}", _put(made, {"compress_type": name}), may_load=True)


def _file(rng: random.Random) -> BadRequest:
    table = pa.table({"k": list(range(1000)), "v": ["a"] * 1000, "n": [1] * 1000})
    sink = io.BytesIO()
    name = rng.choice(["parquet", "orc", "arrow"])
    if name == "parquet":
        pa.parquet.write_table(table, sink)
    elif name == "orc":
        pa.orc.write_table(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    made = bytearray(sink.getvalue())
    how = rng.choice(["cut", "noise", "changed", "none", "types"])
    if how == "cut":
        made = made[: rng.randrange(len(made))]
    elif how == "noise":
        made = bytearray(rng.randbytes(500))
    elif how == "changed":
        for _ in range(20):
            made[rng.randrange(len(made))] = rng.randrange(256)
    elif how == "none":
        made = bytearray()
    else:
        made = made.replace(b"k", b"z")
    return BadRequest(f"{name} {how}", _put(bytes(made), {"format": name}), may_load=True)


def _json(rng: random.Random) -> BadRequest:
    deep = rng.choice([100, 5_000, 200_000])
    body = rng.choice(
        [
            b"[" * deep,
            b'{"k":' * deep,
            b"[" * deep + b"]" * deep,
            b'{"k":' * deep + b"1" + b"}" * deep,
            b"nul",
            b"\xff\xfe",
            b'{"k": 1, "k": 2}',
            b'{"k": ' + b"9" * 5000 + b"}",
            b'{"k": "\\ud800"}',
            b'{"k": 1}{"k": 2}',
            b"[1, 2, 3]",
            b'"text"',
            b'{"k": {"a": [1, {"b": 2}]}, "v": [[]], "n": {}}',
            b'{"": 1}',
            b"{" * 1000,
            b'[{"k": 1},]',
            b'{"k": NaN}',
            b'{"k": 1e400}',
            b"\x00" * 100,
            b'{"' + b"x" * 100_000 + b'": 1}',
        ]
    )
    headers = {"format": "json"}
    for name, values in (
        ("strip_outer_array", ["true", "false"]),
        ("read_json_by_line", ["true", "false"]),
        ("jsonpaths", ['["$.k","$.v","$.n"]', '["$"]', '["$.k.a[*].b"]', "[", '["$.k"' * 1000]),
        ("json_root", ["$.k", "$", "$.a.b.c", "k", "$["]),
        ("columns", ["k,v,n", "k", "v=k"]),
    ):
        if rng.random() < 0.3:
            headers[name] = rng.choice(values)
    return BadRequest(f"json {body[:20]!r} {headers}", _put(body, headers), may_load=True)


def _csv(rng: random.Random) -> BadRequest:
    body = rng.choice(
        [
            b"\x00" * 1000,
            b"\xff\xff,a,1\n",
            b"1,a,1",
            b"," * 100_000,
            b"\n" * 100_000,
            b"\r\r\r",
            b'"1,a,1\n',
            b"1,a\n" * 1000,
            b"1" * 1_000_000,
            rng.randbytes(10_000),
            b"\xef\xbb\xbf",
            b"1,a,1\n\x001,\n",
            b"\\N,\\N,\\N\n",
        ]
    )
    headers = {}
    for name in (
        "column_separator",
        "line_delimiter",
        "enclose",
        "escape",
        "skip_lines",
        "trim_double_quotes",
    ):
        if rng.random() < 0.3:
            headers[name] = _value(rng)
    return BadRequest(f"csv {body[:20]!r} {headers}", _put(body, headers), may_load=True)


def _value(rng: random.Random) -> str:
    """A header's value; control characters would end the request early."""
    return rng.choice(NASTY).replace("\r", "").replace("\n", "")


def _header(rng: random.Random) -> BadRequest:
    headers = {rng.choice(HEADERS): _value(rng) for _ in range(rng.choice([1, 1, 2, 4]))}
    body = rng.choice([b"1000,a,1\n", b'{"k": 1000, "v": "a", "n": 1}\n', b""])
    return BadRequest(
        f"headers { {k: v[:40] for k, v in headers.items()} }", _put(body, headers), may_load=True
    )


def _statement(rng: random.Random) -> BadRequest:
    headers = {
        rng.choice(
            ["columns", "where", "delete", "partitions", "label", "function_column.sequence_col"]
        ): rng.choice(SQL)
    }
    if "delete" in headers:
        headers["merge_type"] = "MERGE"
    return BadRequest(f"sql {headers}"[:120], _put(b"1000,a,1\n", headers), may_load=True)


def _large_header(rng: random.Random) -> BadRequest:
    count = rng.choice([200, 20_000, 1_000_000])
    many = rng.random() < 0.3
    headers = (
        {f"x{i}": "y" for i in range(min(count, 20_000))}
        if many
        else {"columns": ",".join(f"c{i}" for i in range(count)) if count < 1_000_000 else "a," * count}
    )
    what = "headers" if many else "columns"
    # aiohttp before 3.14 takes 200 headers, which then mean nothing to the load.
    return BadRequest(f"{what} {count}", _put(b"1,a,1\n", headers), may_load=many)


def _path(rng: random.Random) -> BadRequest:
    database, table = rng.choice(["db", rng.choice(NAMES)]), rng.choice(NAMES)
    path = rng.choice(
        [
            f"/api/{database}/{table}/_stream_load?redirected=1",
            f"/api/{table}/_load_info?label={table}",
            f"/api/_load_error_log?file={table}",
            f"/{table}",
            f"//api//{database}/{table}/_stream_load",
            f"/api/{table}/_stream_load_2pc",
            f"/api/{database}/get_load_state?label={table}",
        ]
    )
    method = rng.choice(["PUT", "PUT", "GET", "DELETE", "OPTIONS", "PROPFIND"])
    return BadRequest(f"{method} {path[:100]}", _put(b"1,a,1\n", {}, path=path, method=method), may_load=True)


def _second_phase(rng: random.Random) -> BadRequest:
    headers = {name: _value(rng) for name in ("txn_id", "label", "txn_operation") if rng.random() < 0.7}
    if rng.random() < 0.5:
        headers["txn_operation"] = rng.choice(["commit", "abort"])
    path = "/api/db/_stream_load_2pc"
    return BadRequest(f"2pc {headers}"[:120], _head(headers | {"Content-Length": "0"}, path=path))


def _no_http(rng: random.Random) -> BadRequest:
    put = b"PUT /api/db/t/_stream_load HTTP/1.1\r\n"
    data = rng.choice(
        [
            b"GET\r\n\r\n",
            b"PUT / HTTP/9.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
            b"PUT " + b"/a" * 2_000_000 + b" HTTP/1.1\r\n\r\n",
            put + b"bad header\r\n\r\n",
            put + b"a\x00b: c\r\n\r\n",
            put + b"Host: localhost\r\n continued: y\r\n\r\n",
            rng.randbytes(200) + b"\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"PUT http://elsewhere/api/db/t/_stream_load HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        ]
    )
    return BadRequest(f"no http {data[:40]!r}", data)


def _expect(rng: random.Random) -> BadRequest:
    value = rng.choice(["100-continue", "200-ok", "nonsense"])
    data = _put(b"1000,a,1\n", {"Expect": value, "format": rng.choice(["csv", "xml"])})
    return BadRequest(f"expect {value}", data, may_load=True)


_KINDS: Final[tuple[Callable[[random.Random], BadRequest], ...]] = (
    _credentials,
    _length,
    _chunks,
    _compressed,
    _compressed,
    _file,
    _file,
    _json,
    _json,
    _csv,
    _csv,
    _header,
    _header,
    _header,
    _statement,
    _statement,
    _large_header,
    _path,
    _path,
    _second_phase,
    _no_http,
    _expect,
)
