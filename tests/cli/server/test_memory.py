"""The server's memory while it takes large uploads: that of some batches, whatever the size of the body."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet
import pytest

from seqstore import Store
from seqstore.store.sql.session.session import Session
from tests.support.http_server import ServerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process")

PEAK_BYTES_MAX = 550 * 10**6  # of a 2 GB upload; DuckDB is open from the start
BLOCK_ROWS = 20_000
MEGABYTE = 10**6


def block(number: int) -> pa.Table:
    """Rows whose keys no other block has."""
    rng = np.random.default_rng(number)
    keys = np.arange(number * BLOCK_ROWS, (number + 1) * BLOCK_ROWS) * 2_654_435_761 % (1 << 40)
    price = rng.integers(0, 10**6, BLOCK_ROWS)
    note = pa.array(price).cast(pa.string())
    return pa.table({"k": keys, "cost": rng.random(BLOCK_ROWS).round(4), "price": price, "note": note})


def as_csv(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
    pa.csv.write_csv(rows, sink, options)
    return sink.getvalue()


def as_json(rows: pa.Table) -> bytes:
    lines = zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True)
    return "".join(f'{{"k":{k},"cost":{c},"price":{p},"note":"{n}"}}\n' for k, c, p, n in lines).encode()


class Body:
    """So many bytes of rows, made while they are sent.

    Attributes:
        rows: sent so far.
    """

    def __init__(self, megabytes: int, text: Callable[[pa.Table], bytes]) -> None:
        self._bytes = megabytes * MEGABYTE
        self._text = text
        self.rows = 0

    def __iter__(self) -> Iterator[bytes]:
        sent = 0
        while sent < self._bytes:
            piece = self._text(block(self.rows // BLOCK_ROWS))
            self.rows += BLOCK_ROWS
            sent += len(piece)
            yield piece


class ArrowBody(Body):
    """The same as a stream of Arrow's record batches."""

    def __init__(self, megabytes: int) -> None:
        super().__init__(megabytes, self._batch)
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, block(0).schema)

    def _batch(self, rows: pa.Table) -> bytes:
        self._writer.write_table(rows)
        written = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return written

    def __iter__(self) -> Iterator[bytes]:
        yield from super().__iter__()
        self._writer.close()
        yield self._sink.getvalue()


def write_file(file: Path, file_format: str, megabytes: int, rows_together: int) -> int:
    """A file of at least so many megabytes, with that many rows in a row group or stripe; how many it has."""
    number = 0
    with file.open("wb") as sink:
        if file_format == "parquet":
            plain = {"use_dictionary": False, "compression": "none"}
            writer: Any = pa.parquet.ParquetWriter(sink, block(0).schema, **plain)
        else:
            writer = pa.orc.ORCWriter(sink, stripe_size=rows_together * 40, compression="uncompressed")
        with writer:
            while sink.tell() < megabytes * MEGABYTE:
                blocks = [block(number + i) for i in range(rows_together // BLOCK_ROWS)]
                writer.write(pa.concat_tables(blocks).combine_chunks())
                number += len(blocks)
    return number * BLOCK_ROWS


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        list(
            session.execute(
                "CREATE DATABASE db; CREATE TABLE db.t (k BIGINT NOT NULL, cost DOUBLE NULL, price INT NULL, "
                "note VARCHAR(20) NULL) UNIQUE KEY(k)"
            )
        )
    running = ServerProcess(tmp_path / "data", is_measured=True)
    try:
        yield running
    finally:
        running.kill()


def peak_bytes(server: ServerProcess) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def send(server: ServerProcess, kind: str, megabytes: int, work: Path) -> int:
    """Loads rows of one kind; the peak of the server's memory since its start."""
    if kind == "csv":
        return upload(server, Body(megabytes, as_csv))
    if kind == "two phases":
        return upload(server, Body(megabytes, as_csv), two_phase_commit="true")
    if kind == "json":
        return upload(server, Body(megabytes, as_json), format="json", read_json_by_line="true")
    if kind == "arrow":
        return upload(server, ArrowBody(megabytes), format="arrow")
    file = work / "rows"
    rows = write_file(file, kind, megabytes, rows_together=60 * BLOCK_ROWS)
    with file.open("rb") as body:
        reply = server.client.load("t", body, format=kind)
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", rows), reply
    return peak_bytes(server)


def upload(server: ServerProcess, body: Body, **headers: str) -> int:
    """Loads a body; the peak of the server's memory since its start."""
    reply: Any = server.client.load("t", iter(body), **headers)
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", body.rows), reply
    return peak_bytes(server)


@pytest.mark.long
def test_memory_does_not_grow_with_the_body(server: ServerProcess) -> None:
    """Some gathered batches more take no more memory."""
    small, large = (upload(server, Body(megabytes, as_csv)) for megabytes in (100, 200))
    told = f"100 MB: {small >> 20} MB, 200 MB: {large >> 20} MB"
    assert large < PEAK_BYTES_MAX, told
    assert large - small < 64 * MEGABYTE, told


@pytest.mark.long
@pytest.mark.parametrize("kind", ["json", "two phases", "arrow", "parquet", "orc"])
def test_memory_is_bounded_for_other_bodies(server: ServerProcess, kind: str, tmp_path: Path) -> None:
    """Of more than one gathered batch; of files with one row group or stripe, as some writers make."""
    peak = send(server, kind, 50, tmp_path)
    assert peak < PEAK_BYTES_MAX, f"{peak >> 20} MB"


@pytest.mark.torture
@pytest.mark.parametrize("kind", ["csv", "json", "two phases", "arrow", "parquet", "orc"])
def test_two_gigabytes_stay_below_half_a_gigabyte_of_memory(
    server: ServerProcess, kind: str, tmp_path: Path
) -> None:
    server.client.timeout = 900  # of a file nothing is loaded before all of it is there
    peak = send(server, kind, int(os.environ.get("UPLOAD_MEGABYTES", "2048")), tmp_path)
    assert peak < PEAK_BYTES_MAX, f"{peak / MEGABYTE:.0f} MB"
