"""Spans of loads: who called, what took how long, what came out; and nothing where nobody asked."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from seqstore import Store
from seqstore.loaders.stream_load import stream_load
from seqstore.store.sql import Session
from tests.support.children import MODULES
from tests.support.http_server import ServerProcess
from tests.support.streams.served import served

CREATE = "CREATE TABLE db.t (k INT NULL, v INT NOT NULL) UNIQUE KEY(k)"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """Has the spans of this process; a provider is set once and for all."""
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    trace.set_tracer_provider(provider)
    return found


@pytest.mark.sql(CREATE)
def test_a_load_is_a_span_with_its_steps_and_its_outcome(
    store: Store, exporter: InMemorySpanExporter
) -> None:
    exporter.clear()
    headers = {"column_separator": ",", "label": "first", "max_filter_ratio": "1"}
    stream_load(store, "db", "t", io.BytesIO(b"1,1\n2,2\n3,\\N\n"), headers)
    spans: dict[str, ReadableSpan] = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"stream load", "read and write", "prepare", "publish"}
    load, prepare = spans["stream load"], spans["prepare"]
    assert load.parent is None
    assert spans["read and write"].parent == spans["publish"].parent == load.context
    assert prepare.parent == spans["publish"].context  # a small load is planned as the next to publish
    found = dict(load.attributes or {})
    assert found.pop("seqstore.txn_id")
    assert found == {
        "seqstore.table": "db.t",
        "seqstore.status": "Success",
        "seqstore.label": "first",
        "seqstore.rows_loaded": 2,
        "seqstore.rows_filtered": 1,
        "seqstore.bytes": 13,
    }


@pytest.mark.sql(CREATE)
def test_a_step_that_fails_says_why(store: Store, exporter: InMemorySpanExporter) -> None:
    exporter.clear()
    reply = stream_load(store, "db", "t", io.BytesIO(b"1,\\N\n"), {"column_separator": ","})
    assert reply["Status"] == "Fail"
    step = next(span for span in exporter.get_finished_spans() if span.name == "read and write")
    assert step.status.description is not None
    assert "too many filtered rows" in step.status.description


def test_a_process_that_does_not_trace_imports_nothing_for_it(tmp_path: Path) -> None:
    code = (
        "import io, sys; from seqstore import Store; from seqstore.loaders.stream_load import stream_load\n"
        f"with Store.open({str(tmp_path / 'data')!r}) as store:\n"
        "    stream_load(store, 'db', 't', io.BytesIO(b''), {})\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": MODULES})


class _Collector(HTTPServer):
    """Takes spans over OTLP as a collector does."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for pair in each.resource.attributes:
                        if pair.key == "service.name":
                            collector.services.add(pair.value.string_value)
                    collector.spans += [span for scope in each.scope_spans for span in scope.spans]
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *given: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def collector() -> Iterator[_Collector]:
    with served(_Collector()) as found:
        yield found


def test_a_server_sends_its_loads_to_the_collector_below_the_span_of_the_client(
    tmp_path: Path, collector: _Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        list(session.execute(f"CREATE DATABASE db; {CREATE}"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    server = ServerProcess(tmp_path / "data", is_measured=True)
    try:
        reply = server.client.load("t", "1,1\n", traceparent=CALLER)
        assert reply["Status"] == "Success", reply
        assert server.stop() == 0  # what waits is sent before
    finally:
        server.kill()
    assert collector.services == {"seqstore"}
    load = next(span for span in collector.spans if span.name == "stream load")
    assert (load.trace_id.hex(), load.parent_span_id.hex()) == tuple(CALLER.split("-")[1:3])
    assert {span.trace_id for span in collector.spans} == {load.trace_id}
    assert "publish" in {span.name for span in collector.spans}
