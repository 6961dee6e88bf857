"""What the routine loads of a store have done and how far behind they are, as Prometheus reads it."""

from __future__ import annotations

from seqstore.cli.server.metrics import add_metric
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.show import lag
from seqstore.store import Store


def routine_text(store: Store) -> str:
    """Counts and lag of the jobs that have not ended; empty when there are none."""
    jobs = [job for job in RoutineJobs(store.catalog).all().values() if not job.has_ended]
    if not jobs:
        return ""
    lines: list[str] = []
    rows = {
        f'{_labels(job)},outcome="{outcome}"': count
        for job in jobs
        for outcome, count in (
            ("loaded", job.statistic.loaded_rows),
            ("filtered", job.statistic.error_rows),
            ("unselected", job.statistic.unselected_rows),
        )
    }
    tasks = {
        f'{_labels(job)},outcome="{outcome}"': count
        for job in jobs
        for outcome, count in (
            ("committed", job.statistic.committed_tasks),
            ("aborted", job.statistic.aborted_tasks),
        )
    }
    states = {f'{_labels(job)},state="{job.state}"': 1 for job in jobs}
    received = {_labels(job): job.statistic.received_bytes for job in jobs}
    behind = {
        f'{_labels(job)},partition="{partition}"': count
        for job in jobs
        for partition, count in lag(job).items()
    }
    add_metric(lines, "routine_load_rows_total", "counter", "rows of routine loads", rows)
    add_metric(lines, "routine_load_bytes_total", "counter", "bytes of routine loads", received)
    add_metric(lines, "routine_load_tasks_total", "counter", "tasks of routine loads", tasks)
    add_metric(lines, "routine_load_state", "gauge", "1 for the state a routine load is in", states)
    add_metric(lines, "routine_load_lag", "gauge", "offsets between a partition's end and its job", behind)
    return "\n".join(lines) + "\n"


def _labels(job: RoutineJob) -> str:
    return f'database="{job.spec.database}",job="{job.spec.name}"'
