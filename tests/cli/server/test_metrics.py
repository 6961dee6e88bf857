"""GET /metrics as Prometheus reads it: names, types, labels, content type, the values of two servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from seqstore import Settings, Store
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.store.sql import ServerContext, Session
from tests.support.http_server import Client, serving

ALWAYS = {
    "seqstore_stream_loads": ("counter", {"status"}),
    "seqstore_stream_load_rows": ("counter", {"outcome"}),
    "seqstore_stream_load_bytes": ("counter", set()),
    "seqstore_stream_loads_running": ("gauge", set()),
    "seqstore_stream_load_duration_seconds": ("histogram", {"le"}),
    "seqstore_group_commit_loads": ("counter", {"waited_for"}),
    "seqstore_group_commit_publishes": ("counter", set()),
    "seqstore_start_time_seconds": ("gauge", set()),
    "seqstore_resident_memory_bytes": ("gauge", set()),
    "seqstore_column_copies": ("gauge", set()),
    "seqstore_column_copies_bytes": ("gauge", set()),
}
OF_JOBS = {
    "seqstore_routine_load_rows": ("counter", {"database", "job", "outcome"}),
    "seqstore_routine_load_bytes": ("counter", {"database", "job"}),
    "seqstore_routine_load_tasks": ("counter", {"database", "job", "outcome"}),
    "seqstore_routine_load_state": ("gauge", {"database", "job", "state"}),
    "seqstore_routine_load_lag": ("gauge", {"database", "job", "partition"}),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", settings=Settings(load_paths=(str(tmp_path),))) as opened:
        run(opened, "CREATE DATABASE db", "CREATE TABLE db.t (k INT, v INT) UNIQUE KEY(k)")
        yield opened


def run(store: Store, *statements: str) -> None:
    with Session(store, server=ServerContext(load_jobs=StoreLoadJobs(store))) as session:
        for statement in statements:
            list(session.execute(statement))


def families(client: Client, user: str | None = None) -> dict[str, tuple[str, set[str]]]:
    """Types and labels by name, as the parser of the text format finds them."""
    text = client.request("GET", "/metrics", user=user).body.decode()
    return {
        found.name: (found.type, {label for sample in found.samples for label in sample.labels})
        for found in text_string_to_metric_families(text)
    }


def value(client: Client, name: str, **labels: str) -> float:
    text = client.request("GET", "/metrics").body.decode()
    (found,) = (
        float(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if (sample.name, sample.labels) == (name, labels)
    )
    return found


def test_names_types_and_labels(store: Store, tmp_path: Path) -> None:
    with serving(store) as client:
        client.load("t", "1,1\n")
        assert families(client) == ALWAYS
        path = tmp_path / "*.csv"
        run(store, f'CREATE ROUTINE LOAD db.job ON t FROM FILES ("path" = "{path}")')
        jobs = RoutineJobs(store.catalog)
        (job_id,) = jobs.all()
        jobs.change(job_id, lambda job: job.divided({"0": 3}, {"0": 10}))
        assert families(client) == ALWAYS  # the names of jobs are for users
        assert families(client, user="root:") == ALWAYS | OF_JOBS
        of_job = {"database": "db", "job": "job"}
        assert value(client, "seqstore_routine_load_lag", partition="0", **of_job) == 7
        assert value(client, "seqstore_routine_load_state", state="RUNNING", **of_job) == 1
        run(store, "STOP ROUTINE LOAD FOR db.job")
        assert families(client) == ALWAYS


def test_the_histogram_counts_every_load_once(store: Store) -> None:
    with serving(store) as client:
        for body in ("1,1\n", "2,2\n", "x\n"):
            client.load("t", body)
        name = "seqstore_stream_load_duration_seconds"
        assert value(client, f"{name}_bucket", le="+Inf") == value(client, f"{name}_count") == 3
        assert value(client, "seqstore_stream_loads_total", status="Success") == 2


def test_servers_of_one_process_count_apart(store: Store) -> None:
    with serving(store) as first, serving(store) as second:
        first.load("t", "1,1\n")
        assert value(first, "seqstore_stream_load_rows_total", outcome="loaded") == 1
        assert value(second, "seqstore_stream_load_rows_total", outcome="loaded") == 0


def test_the_text_format_is_the_default(store: Store) -> None:
    with serving(store) as client:
        answer = client.request("GET", "/metrics", user=None)
    kind, *parameters = answer.headers["Content-Type"].split("; ")
    assert kind == "text/plain"
    assert "charset=utf-8" in parameters
    assert any(each.startswith("version=") for each in parameters)


def test_a_scraper_that_accepts_openmetrics_gets_it(store: Store) -> None:
    with serving(store) as client:
        client.load("t", "1,1\n")
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        answer = client.request("GET", "/metrics", headers=accept, user=None)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    found = openmetrics_parser.text_string_to_metric_families(answer.body.decode())
    assert {family.name: family.type for family in found} == {
        name: kind for name, (kind, _) in ALWAYS.items()
    }
