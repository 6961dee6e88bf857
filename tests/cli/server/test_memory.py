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
import pyarrow.parquet
import pytest

from store import Store
from store.sql.session import Session
from tests.support.http_server import ServerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process")

PEAK_BYTES_MAX = 500 * 10**6  # of a 2 GB upload
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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        list(
            session.execute(
                "CREATE DATABASE db; CREATE TABLE db.t (k BIGINT NOT NULL, cost DOUBLE NULL, price INT NULL, "
                "note VARCHAR(20) NULL) UNIQUE KEY(k)"
            )
        )
    running = ServerProcess(tmp_path / "data")
    try:
        yield running
    finally:
        running.kill()


def peak_bytes(server: ServerProcess) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def upload(server: ServerProcess, body: Body, **headers: str) -> int:
    """Loads a body; the peak of the server's memory since its start."""
    reply: Any = server.client.load("t", iter(body), **headers)
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", body.rows), reply
    return peak_bytes(server)


def test_memory_does_not_grow_with_the_body(server: ServerProcess) -> None:
    """Some gathered batches more take no more memory."""
    small, large = (upload(server, Body(megabytes, as_csv)) for megabytes in (45, 110))
    told = f"45 MB: {small >> 20} MB, 110 MB: {large >> 20} MB"
    assert large < PEAK_BYTES_MAX * 0.95, told
    assert large - small < 64 * MEGABYTE, told


@pytest.mark.parametrize("kind", ["json", "two phases"])
def test_memory_is_bounded_for_other_bodies(server: ServerProcess, kind: str) -> None:
    """Of more than one gathered batch."""
    if kind == "json":
        peak = upload(server, Body(50, as_json), format="json", read_json_by_line="true")
    else:
        peak = upload(server, Body(50, as_csv), two_phase_commit="true")
    assert peak < PEAK_BYTES_MAX * 0.95, f"{peak >> 20} MB"


def test_memory_is_not_that_of_a_parquet_file(server: ServerProcess, tmp_path: Path) -> None:
    """One row group, as some writers make; it is cut while it is read."""
    rows = pa.concat_tables([block(number) for number in range(120)])
    file = tmp_path / "rows.parquet"
    pa.parquet.write_table(rows, file, row_group_size=len(rows), use_dictionary=False, compression="none")
    assert file.stat().st_size > 60 * MEGABYTE
    with file.open("rb") as body:
        reply = server.client.load("t", body, format="parquet")
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", len(rows)), reply
    assert peak_bytes(server) < PEAK_BYTES_MAX * 0.95


@pytest.mark.torture
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_two_gigabytes_stay_below_half_a_gigabyte_of_memory(server: ServerProcess, kind: str) -> None:
    text, headers = (as_csv, {}) if kind == "csv" else (as_json, {"format": "json"})
    megabytes = int(os.environ.get("UPLOAD_MEGABYTES", "2048"))
    peak = upload(server, Body(megabytes, text), **headers)
    assert peak < PEAK_BYTES_MAX, f"{peak / MEGABYTE:.0f} MB"
