"""Small compressed bodies that unfold to gigabytes: they end with a reply, in bounded memory and time."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from seqstore import Store
from seqstore.store.sql.session.session import Session
from tests.support.http_server import ServerProcess
from tests.support.streams.avro import block_container, deflated, varint

PEAK_BYTES_MAX: Final = 550 * 10**6  # half of it before the first request, DuckDB and the allocators among it
PIECE_BYTES: Final = 16 << 20
PIECES: Final = 192  # 3 GB


def framed(codec: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return bytes(sink.getvalue())

    return compress


def in_blocks(codec: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        part: bytes = pa.Codec(codec).compress(data, asbytes=True)
        return len(data).to_bytes(4, "big") + len(part).to_bytes(4, "big") + part

    return compress


COMPRESSORS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "deflate": zlib.compress,
    "lz4": framed("lz4"),
    "zstd": framed("zstd"),
    "lz4_block": in_blocks("lz4_raw"),
    "snappy_block": in_blocks("snappy"),
}


def bomb(compression: str, text: bytes, pieces: int = PIECES) -> bytes:
    """Several compressed files in a row are one text."""
    return COMPRESSORS[compression](text * (PIECE_BYTES // len(text))) * pieces


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("bombs") / "data"
    with Store.open(path) as opened, Session(opened) as session:
        list(
            session.execute(
                "CREATE DATABASE db; CREATE TABLE db.t (k BIGINT NOT NULL, v VARCHAR(20) NULL) UNIQUE KEY(k)"
            )
        )
    running = ServerProcess(path, is_measured=True)
    try:
        yield running
        assert running.client.load("t", "1,one\n")["Status"] == "Success"
        assert peak_bytes(running) < PEAK_BYTES_MAX, "of all of them"
    finally:
        running.kill()
    with Store.open(path) as opened:
        rows = opened.scan("db.t").read_all().sort_by("k").to_pylist()
    assert rows.pop(0) == {"k": 1, "v": "one"}, "nothing of a refused body is there"
    assert rows in ([], [{"k": 7, "v": "the same"}])


def peak_bytes(server: ServerProcess) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def refused(reply: Any, told: str) -> None:
    assert reply["Status"] == "Fail", reply
    assert told in reply["Message"], reply


@pytest.mark.long
def test_one_endless_line_is_refused_in_every_compression(server: ServerProcess) -> None:
    for name in COMPRESSORS:
        body = bomb(name, b"\0")
        assert len(body) * 20 < PIECE_BYTES * PIECES
        headers = {"format": "json", "read_json_by_line": "true"} if name in ("bz2", "lz4") else {}
        reply = server.client.load("t", body, compress_type=name, **headers)
        refused(reply, "line 1 is longer than 100 MB")
    assert peak_bytes(server) < PEAK_BYTES_MAX


@pytest.mark.parametrize("text", [b"\n", b"x\n", b"1,\n", b"1,2,3\n"], ids=["empty", "short", "same", "long"])
def test_endless_rows_end_with_the_timeout_and_change_nothing(server: ServerProcess, text: bytes) -> None:
    """Empty lines are no rows, so they never fill a batch after which the time is looked at."""
    reply = server.client.load("t", bomb("zstd", text), compress_type="zstd", timeout="1")
    refused(reply, "longer than its timeout of 1 s")
    assert peak_bytes(server) < PEAK_BYTES_MAX


def test_bad_rows_without_number_are_counted_and_refused(server: ServerProcess) -> None:
    rows = PIECE_BYTES // 6 * 2
    reply = server.client.load("t", bomb("gz", b"1,2,3\n", pieces=2), compress_type="gz")
    refused(reply, f"too many filtered rows: {rows} of {rows}")
    assert reply["NumberFilteredRows"] == rows
    assert peak_bytes(server) < PEAK_BYTES_MAX


def test_a_json_document_without_end_is_refused(server: ServerProcess) -> None:
    body = bomb("bz2", b"[")
    refused(
        server.client.load("t", body, compress_type="bz2", format="json", strip_outer_array="true"),
        "104857600",
    )
    assert peak_bytes(server) < PEAK_BYTES_MAX


def avro_schema(**fields: Any) -> Any:
    return {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


@pytest.mark.family(2)
@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard", "snappy", "lz4"])
def test_a_block_of_avro_that_unfolds_to_more_than_its_limit_is_refused(
    server: ServerProcess, codec: str
) -> None:
    text = [{"k": 1, "v": "a" * (80 << 20)}]
    body = block_container(avro_schema(k="long", v="string"), text, codec)
    refused(server.client.load("t", body, format="avro"), "a block unfolds to more than 64 MB")
    assert peak_bytes(server) < PEAK_BYTES_MAX


NEXT: Final = avro_schema(next=["null", "r"])
LEVELS: Final = b"\x02" * 100_000 + b"\x00"


@pytest.mark.parametrize(
    ("schema", "data", "told"),
    [
        (
            avro_schema(k="long", a={"type": "array", "items": "null"}),
            varint(1) + varint(1 << 31) + varint(0),
            "the value takes more than 256 MB of memory",
        ),
        (
            avro_schema(k="long", a={"type": "array", "items": {**avro_schema(b="boolean"), "name": "i"}}),
            varint(1) + varint(32 << 20) + bytes(32 << 20) + varint(0),
            "the value takes more than 256 MB of memory",
        ),
        (NEXT, LEVELS, "the value is nested too deep"),
    ],
    ids=["items without bytes", "items of one byte", "levels"],
)
def test_a_value_of_avro_is_measured_before_it_is_decoded(
    server: ServerProcess, schema: Any, data: bytes, told: str
) -> None:
    """The decoder gave such a value gigabytes in one call, and ended the server amid the levels."""
    body = block_container(schema, [], "deflate", count=1, data=deflated(data))
    refused(server.client.load("t", body, format="avro"), told)
    assert peak_bytes(server) < PEAK_BYTES_MAX


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_a_file_of_one_row_repeated_takes_the_memory_of_some_batches(
    server: ServerProcess, file_format: str
) -> None:
    """Encodings unfold as well: one row group or stripe of five million rows in some kilobytes."""
    million = pa.table({"k": pa.array([7] * 10**6), "v": pa.array(["the same"] * 10**6)})
    rows = pa.concat_tables([million] * 5)
    sink = io.BytesIO()
    if file_format == "parquet":
        pa.parquet.write_table(rows, sink, row_group_size=len(rows))
    else:
        pa.orc.write_table(
            rows, sink, stripe_size=1 << 30, compression="zstd", dictionary_key_size_threshold=1
        )
    assert len(sink.getvalue()) < 10**6
    reply = server.client.load("t", sink.getvalue(), format=file_format)
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", len(rows)), reply
    assert peak_bytes(server) < PEAK_BYTES_MAX
