"""The store of jobs: records of version 0.1 are read, taken over and written back with the same fields."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqstore import Store
from seqstore.loaders.broker.job import ATTEMPTS_MAX, PENDING, LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.jobs.periodic import PeriodicThread
from seqstore.loaders.routine.job import NEED_SCHEDULE
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.store.catalog.job_record import CANCELLED
from seqstore.store.catalog.jobs import Jobs
from seqstore.store.runtime.process_identity import this_process

DEAD = [2**22 + 1, 1]
CLAUSES: dict[str, Any] = {
    "merge_type": "APPEND",
    "partitions": [],
    "column_separator": ",",
    "line_delimiter": "",
    "columns": ["k", "v"],
    "assignments": ["`w` = v + 1"],
    "preceding_filter": "",
    "where": "v > 0",
    "delete_on": "",
    "order_by": "",
}
DESCRIPTION = {
    **CLAUSES,
    "table": "t",
    "paths": ["/in/*.csv"],
    "format": "",
    "compression": "",
    "columns_from_path": [],
    "properties": {},
}
BROKER: dict[str, Any] = {
    "spec": {
        "database": "db",
        "label": "label",
        "descriptions": [DESCRIPTION],
        "properties": {"timeout": "60"},
        "comment": "",
    },
    "state": "LOADING",
    "owner": DEAD,
    "created_ms": 1_700_000_000_000,
    "allowed": ["/in"],
    "attempts": 1,
    "started_ms": 0,
    "finished_ms": 0,
    "txn_id": 0,
    "files": 2,
    "files_done": 0,
    "bytes_total": 10,
    "bytes_done": 0,
    "loaded": -1,
    "filtered": -1,
    "unselected": -1,
    "error": "",
    "url": "",
    "user": "root",
    "is_cancelling": False,
}
ROUTINE: dict[str, Any] = {
    "spec": {
        **CLAUSES,
        "database": "db",
        "name": "events",
        "table": "t",
        "properties": {"max_batch_rows": "200000"},
        "source": "FILES",
        "source_properties": {"path": "/in/*.csv"},
        "comment": "",
    },
    "table_id": 3,
    "created_ms": 1_700_000_000_000,
    "database_id": 2,
    "state": "RUNNING",
    "owner": DEAD,
    "paused_ms": 0,
    "ended_ms": 0,
    "resumed_ms": 0,
    "pause_kind": "",
    "reason": "",
    "other_message": "",
    "source_id": "",
    "progress": {"0": 1},
    "latest": {"0": 5},
    "tasks": {
        "04467323-aaba-4033-80ec-76ee1fef72d1": {
            "partitions": ["0"],
            "created_ms": 1_700_000_000_000,
            "txn_id": 7,
            "started_ms": 1_700_000_000_000,
        }
    },
    "statistic": {
        "received_bytes": 0,
        "error_rows": 0,
        "loaded_rows": 0,
        "unselected_rows": 0,
        "committed_tasks": 0,
        "aborted_tasks": 0,
        "task_ms": 0,
        "error_rows_after_resumed": 0,
        "window_rows": 0,
        "window_error_rows": 0,
    },
    "error_urls": [],
    "wanted_offsets": {},
    "allowed": [],
    "user": "root",
    "auto_resumes": 0,
    "timeouts": 0,
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data") as opened:
        yield opened


def test_a_stored_broker_load_is_taken_over(store: Store) -> None:
    records, jobs = Jobs(store.catalog, "broker"), LoadJobs(store.catalog)
    job_id = records.add(BROKER)
    assert jobs.abandoned() == [job_id]
    taken = jobs.take_over(job_id, this_process())
    assert (taken.state, taken.owner, taken.attempts, taken.files) == (PENDING, this_process(), 2, 0)
    assert taken.spec.descriptions[0].columns == ("k", "v")
    changed = {"state": "PENDING", "owner": list(this_process()), "attempts": 2, "files": 0, "bytes_total": 0}
    assert records.get(job_id) == BROKER | changed


def test_a_stored_routine_load_is_taken_over(store: Store) -> None:
    records, jobs = Jobs(store.catalog, "routine"), RoutineJobs(store.catalog)
    job_id = records.add(ROUTINE)
    taken = jobs.take_over(job_id, this_process())
    assert (taken.state, taken.owner, taken.progress) == (NEED_SCHEDULE, this_process(), {"0": 1})
    changed = {"state": "NEED_SCHEDULE", "owner": list(this_process()), "tasks": {}}
    assert records.get(job_id) == ROUTINE | changed


def test_the_job_of_a_living_process_is_not_taken_over(store: Store) -> None:
    records = Jobs(store.catalog, "routine")
    job_id = records.add(ROUTINE | {"owner": list(this_process())})
    before = records.get(job_id)
    assert RoutineJobs(store.catalog).take_over(job_id, (1, 1)).owner == this_process()
    assert records.get(job_id) == before


def test_an_ended_job_is_not_taken_over(store: Store) -> None:
    job_id = Jobs(store.catalog, "routine").add(ROUTINE | {"state": "STOPPED"})
    assert RoutineJobs(store.catalog).take_over(job_id, this_process()).owner == tuple(DEAD)


def test_a_broker_load_that_ended_every_process_is_cancelled(store: Store) -> None:
    job_id = Jobs(store.catalog, "broker").add(BROKER | {"attempts": ATTEMPTS_MAX})
    taken: LoadJob = LoadJobs(store.catalog).take_over(job_id, this_process())
    assert (taken.state, taken.owner) == (CANCELLED, tuple(DEAD))


def test_a_periodic_step_runs_again_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged, the next call follows, `stop` waits for the running one."""
    calls, again = [0], threading.Event()

    def step() -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise ValueError("the first one fails")
        again.set()

    thread = PeriodicThread("steps", step, 0.001)
    thread.start()
    assert again.wait(60)
    thread.stop()
    assert "steps failed" in caplog.text
    assert "steps" not in {each.name for each in threading.enumerate()}
