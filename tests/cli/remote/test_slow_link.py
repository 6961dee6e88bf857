"""A bad link between client and server: slow, far, cut, half open. Results are equal, and nothing hangs."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Settings, Store, Table, UnavailableError
from seqstore.cli.elsewhere.loads import stream_load_elsewhere
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.loaders.spark.registration import register
from seqstore.store.failover.restore import restore_store
from seqstore.store.remote.connection import Request
from seqstore.store.remote.remote_store import RemoteStore, connect
from tests.support.object_store import WEED, object_store
from tests.support.remote.cut_proxy import CutProxy
from tests.support.remote.server import serving
from tests.support.rows import rows_of, schema_of
from tests.weight import by_form

SLOW = {"bytes_per_second": 300_000, "delay_seconds": 0.01}
CSV = {"column_separator": ",", "columns": "k, v"}


@contextmanager
def connected(proxy: CutProxy, retry_seconds: float = 30.0) -> Iterator[RemoteStore]:
    with connect(f"seqstore://127.0.0.1:{proxy.port}", retry_seconds=retry_seconds) as store:
        yield store


@pytest.fixture
def slow(server: FlightSqlServer) -> Iterator[CutProxy]:
    """A link of 300 kB a second, 10 ms for each piece."""
    proxy = CutProxy(server.port, **SLOW)  # type: ignore[arg-type]
    yield proxy
    proxy.close()


@pytest.fixture
def fast(server: FlightSqlServer) -> Iterator[CutProxy]:
    proxy = CutProxy(server.port)
    yield proxy
    proxy.close()


def body(rows: int) -> bytes:
    return b"".join(b"%d,%064d\n" % (100 + n, n) for n in range(rows))


def test_rows_are_written_and_read_over_a_slow_link(slow: CutProxy, stored: Table) -> None:
    rows = by_form(2_000, 40_000)
    given = pa.table({"k": range(100, 100 + rows), "v": [f"{n:040}" for n in range(rows)]})
    with connected(slow) as store:
        table = store.table("db.t")
        assert table.upsert(given, label="slow").rows_loaded == rows
        assert table.scan().read_all().sort_by("k").equals(stored.scan().read_all().sort_by("k"))
    assert stored.count() == rows + 2


def test_a_file_is_loaded_over_a_link_that_is_cut(
    slow: CutProxy, stored: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqstore.store.remote.remote_upload.PART_BYTES", 8_192)
    rows, ended = by_form(1_500, 8_000), threading.Event()

    def cut() -> None:
        at, cuts = slow.passed, 0
        while not ended.wait(0.01) and cuts < 4:
            if slow.passed > at + 40_000:
                at, cuts = slow.passed, cuts + 1
                slow.cut()

    cutting = threading.Thread(target=cut)
    with connected(slow) as store:
        cutting.start()
        try:
            reply = stream_load_elsewhere(store, "db", "t", io.BytesIO(body(rows)), CSV)
        finally:
            ended.set()
            cutting.join()
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", rows)
    assert (stored.version, stored.count()) == (3, rows + 2)


def test_the_reply_of_a_load_is_lost(fast: CutProxy, stored: Table) -> None:
    """The request arrives, its reply does not: the client asks for it in the same session."""
    with connected(fast) as store:
        store.databases()
        called = threading.Event()
        request = store.request

        def lost(name: str, *given: Any) -> Request:
            if name == "stream_load":
                fast.withhold_replies()
                called.set()
            return request(name, *given)

        store.request = lost  # type: ignore[method-assign, assignment]

        def cut() -> None:
            called.wait()
            while stored.version < 3:
                threading.Event().wait(0.01)
            fast.cut()

        cutting = threading.Thread(target=cut)
        cutting.start()
        reply = stream_load_elsewhere(store, "db", "t", io.BytesIO(body(10)), {**CSV, "label": "lost"})
        cutting.join()
    assert (reply["Status"], reply["Label"], reply["NumberLoadedRows"]) == ("Success", "lost", 10)
    assert stored.version == 3


def test_another_server_meets_a_lost_reply_by_the_label(fast: CutProxy, store: Store, stored: Table) -> None:
    with serving(store) as other, connected(fast) as remote:
        remote.databases()
        request = remote.request

        def lost(name: str, *given: Any) -> Request:
            if name == "stream_load":
                fast.withhold_replies()
                fast.target_after_cut = other.port
                threading.Thread(target=cut, daemon=True).start()
            return request(name, *given)

        def cut() -> None:
            while stored.version < 3:
                threading.Event().wait(0.01)
            fast.cut()

        remote.request = lost  # type: ignore[method-assign, assignment]
        reply = stream_load_elsewhere(remote, "db", "t", io.BytesIO(body(10)), {**CSV, "label": "met"})
    assert (reply["Status"], reply["Label"], reply["NumberLoadedRows"]) == ("Success", "met", 10)
    assert stored.version == 3


def test_a_link_that_was_half_open_goes_on(fast: CutProxy, stored: Table) -> None:
    with connected(fast) as store:
        table = store.table("db.t")
        fast.swallow()
        threading.Timer(0.5, fast.pass_again).start()
        assert table.upsert(pa.table({"k": [7], "v": ["x"]})).version == 3
        fast.swallow()
        threading.Timer(0.5, fast.cut).start()
        assert table.upsert(pa.table({"k": [8], "v": ["x"]})).version == 4
    assert stored.count() == 4


@pytest.mark.long
def test_a_half_open_link_ends_with_an_error(fast: CutProxy, stored: Table) -> None:
    """Nobody cuts it: the client gives up by itself, and says what it was about."""
    with connected(fast, retry_seconds=1.0) as store:
        table = store.table("db.t")
        fast.swallow()
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1"):
            table.count()
        fast.cut()
    assert stored.count() == 2


def test_a_server_that_cannot_be_reached_is_named(fast: CutProxy) -> None:
    fast.cut(refuse=True)
    with pytest.raises(UnavailableError, match=rf"127\.0\.0\.1:{fast.port}: no server answers"):
        connect(f"seqstore://127.0.0.1:{fast.port}")


@pytest.mark.long
def test_a_store_is_shipped_and_taken_over_by_a_slow_link(tmp_path: Path) -> None:
    """The object store is behind the link; it is cut between loads."""
    if not WEED.exists():
        pytest.skip("needs the object store of the extra test")
    settings = Settings(ship_seconds=0, auto_compaction=0, inline_bytes_max=200)
    (tmp_path / "weed").mkdir()
    with object_store(tmp_path / "weed") as uri:
        port = int(re.findall(r"endpoint_override=127\.0\.0\.1:(\d+)", uri)[0])
        proxy = CutProxy(port, **SLOW)  # type: ignore[arg-type]
        place = uri.format("shipped").replace(str(port), str(proxy.port))
        segments = uri.format("segments").replace(str(port), str(proxy.port))
        with Store.open(tmp_path / "one", settings=settings, segments=segments) as store:
            store.create_database("db")
            table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
            store.shipping.begin(place)
            for number in range(10):
                table.upsert(pa.table({"k": [number], "v": ["x" * 300]}), label=f"load{number}")
                if number % 3 == 2:
                    proxy.cut()
            expected = rows_of(table)
        restore_store(place, tmp_path / "two", settings)
        with Store.open(tmp_path / "two", settings=settings) as store:
            assert rows_of(store.table("db.t")) == expected
            assert store.table("db.t").check() == []
        proxy.close()


@pytest.mark.spark
@pytest.mark.long
def test_spark_writes_and_reads_over_a_link_that_is_cut(
    slow: CutProxy, stored: Table, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(spark)
    url = f"seqstore://127.0.0.1:{slow.port}"
    frame = spark.range(100, 4_100).selectExpr("id AS k", "cast(id AS string) AS v").repartition(3)
    ended = threading.Event()

    def cut() -> None:
        at = slow.passed
        while not ended.wait(0.01):
            if slow.passed > at + 60_000:
                slow.cut()
                return

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        frame.write.format("seqstore").option("url", url).option("table", "db.t").mode("append").save()
    finally:
        ended.set()
        cutting.join()
    assert (stored.version, stored.count()) == (3, 4_002)
    read = spark.read.format("seqstore").option("url", url).option("table", "db.t").load()
    assert read.selectExpr("count(*)", "sum(k)").first()[:2] == (4_002, 3 + sum(range(100, 4_100)))
