"""`loaders.row_writer`: rows are staged while the load reads on."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest

from seqstore import Store, Table
from seqstore.loaders import row_buffer, row_writer
from seqstore.loaders.csv.reader import CsvReader
from seqstore.loaders.json.reader import JsonReader
from seqstore.loaders.stream_load import stream_load
from seqstore.store.errors import InvalidInputError
from seqstore.store.load.load import Load, WriteResult
from tests.support.rows import rows_of, schema_of

LINES = 8_000
BLOCK_BYTES = 20_000
FAULTY = range(500, LINES, 1_500)
WAIT_SECONDS = 60


@pytest.fixture(autouse=True)
def made_table(store: Store, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Blocks are small, buffers full after 100 rows, and there are cores."""
    for reader in (JsonReader, CsvReader):
        defaults = reader.__init__.__kwdefaults__ or {}
        monkeypatch.setitem(defaults, "block_bytes", BLOCK_BYTES)
    monkeypatch.setattr(row_buffer, "ROWS", 100)
    monkeypatch.setattr(row_writer, "_has_cores", lambda: True)
    return store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v VARCHAR(5)"))


def body_of(kind: str) -> bytes:
    """Some blocks of rows."""
    if kind == "json":
        return b"".join(b'{"k":%d,"v":"x"}\n' % number for number in range(LINES))
    return b"".join(b"%d\tx\n" % number for number in range(2 * LINES))


class Body(io.BytesIO):
    """A body whose second read waits for the first write to begin, and notes that it came so far."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads = 0
        self.write_began, self.was_read = threading.Event(), threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.reads > 1 and self.write_began.wait(WAIT_SECONDS):
            self.was_read.set()
        return super().read(size)


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_the_next_rows_are_read_while_a_buffer_is_staged(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    body = Body(body_of(kind))
    overlaps: list[bool] = []
    plain = Load.write

    def write(self: Load, data: Any, **options: Any) -> WriteResult:
        body.write_began.set()
        if not overlaps:
            overlaps.append(body.was_read.wait(WAIT_SECONDS))
        return plain(self, data, **options)

    monkeypatch.setattr(Load, "write", write)
    headers = {"format": kind, "columns": "k, v", "max_filter_ratio": "1"}
    reply = stream_load(store, "db", "t", body, headers)
    assert (reply["Status"], overlaps) == ("Success", [True]), reply["Message"]


def test_rows_keep_their_order_and_rejected_rows_their_lines(store: Store) -> None:
    """The last row of a key wins, whichever buffer it was in; the log is in the order of the body."""
    lines = [b'{"k":%d,"v":"%d"}' % (number % 7, number // 1_000) for number in range(LINES)]
    for number in FAULTY:
        lines[number] = b'{"k":1,"v":"too long"}'
        lines[number + 10] = b'{"k":'
    reply = stream_load(
        store, "db", "t", io.BytesIO(b"\n".join(lines)), {"format": "json", "max_filter_ratio": "0.1"}
    )
    assert reply["Status"] == "Success", reply["Message"]
    assert {row[1] for row in rows_of(store.table("db.t"))} == {str((LINES - 1) // 1_000)}
    logged = [
        int(line.split(":")[0].removeprefix("line "))
        for line in Path(reply["ErrorURL"]).read_text().splitlines()
    ]
    assert logged == sorted(logged)
    expected = [n + 1 for n in FAULTY] + [n + 11 for n in FAULTY]
    assert logged == sorted(expected)
    assert reply["NumberFilteredRows"] == len(expected)
    assert reply["NumberLoadedRows"] == LINES - len(expected)


@pytest.mark.parametrize("has_cores", [True, False])
def test_a_failed_write_ends_the_load_and_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, has_cores: bool
) -> None:
    monkeypatch.setattr(row_writer, "_has_cores", lambda: has_cores)
    threads: set[str] = set()
    plain = Load.write
    count = 0

    def write(self: Load, data: Any, **options: Any) -> WriteResult:
        nonlocal count
        count += 1
        threads.add(threading.current_thread().name)
        if count == 2:
            raise InvalidInputError("the second buffer fails", kind="bad_type")
        return plain(self, data, **options)

    monkeypatch.setattr(Load, "write", write)
    reply = stream_load(store, "db", "t", io.BytesIO(body_of("json")), {"format": "json"})
    assert reply["Status"] == "Fail"
    assert "the second buffer fails" in reply["Message"]
    assert count == 2
    assert store.table("db.t").version == 1
    assert (threads == {threading.current_thread().name}) is not has_cores
    assert not [each.name for each in threading.enumerate() if each.name.startswith("stage")]


def test_a_body_that_fails_waits_for_the_buffer_that_is_staged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread of the load outlives it."""
    began, ended = threading.Event(), threading.Event()
    plain = Load.write

    def write(self: Load, data: Any, **options: Any) -> WriteResult:
        began.set()
        result = plain(self, data, **options)
        ended.set()
        return result

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            if not data:
                began.wait(WAIT_SECONDS)
                raise InvalidInputError("the body breaks off", kind="short_body")
            return data

    monkeypatch.setattr(Load, "write", write)
    reply = stream_load(store, "db", "t", Broken(body_of("json")), {"format": "json"})
    assert "the body breaks off" in reply["Message"]
    assert ended.is_set()
    assert store.table("db.t").version == 1


def test_a_load_of_one_buffer_starts_no_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("a thread was made")

    monkeypatch.setattr(row_buffer, "ROWS", 1_000)
    monkeypatch.setattr(row_writer, "ThreadPoolExecutor", refused)
    reply = stream_load(store, "db", "t", io.BytesIO(b'{"k":1}\n{"k":2}\n'), {"format": "json"})
    assert reply["NumberLoadedRows"] == 2
