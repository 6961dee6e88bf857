"""Counts, states and lag of the routine loads of a store, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.show import lag
from seqstore.store import Store


def routine_metrics(store: Store, sees: Callable[[str, str], bool]) -> Iterable[Metric]:
    """Returns the metrics of the jobs that have not ended; none when there is no such job.

    Args:
        sees: whether the jobs of a table of a database are shown.
    """
    name, labels = "seqstore_routine_load", ["database", "job"]
    rows = CounterMetricFamily(f"{name}_rows", "rows of routine loads", labels=[*labels, "outcome"])
    size = CounterMetricFamily(f"{name}_bytes", "bytes of routine loads", labels=labels)
    tasks = CounterMetricFamily(f"{name}_tasks", "tasks of routine loads", labels=[*labels, "outcome"])
    state = GaugeMetricFamily(
        f"{name}_state", "1 for the state a routine load is in", labels=[*labels, "state"]
    )
    text = "offsets between a partition's end and its job"
    behind = GaugeMetricFamily(f"{name}_lag", text, labels=[*labels, "partition"])
    for job in RoutineJobs(store.catalog).living().values():
        if not sees(job.database, job.spec.table):
            continue
        found, key = job.statistic, [job.database, job.name]
        rows.add_metric([*key, "loaded"], found.loaded_rows)
        rows.add_metric([*key, "filtered"], found.error_rows)
        rows.add_metric([*key, "unselected"], found.unselected_rows)
        tasks.add_metric([*key, "committed"], found.committed_tasks)
        tasks.add_metric([*key, "aborted"], found.aborted_tasks)
        size.add_metric(key, found.received_bytes)
        state.add_metric([*key, job.state], 1)
        for partition, count in lag(job).items():
            behind.add_metric([*key, partition], count)
    return (rows, size, tasks, state, behind) if state.samples else ()
