"""The metrics of a server for Prometheus, in the text format or in OpenMetrics as the scraper prefers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from seqstore.cli.clients.audit_log import AuditLog
from seqstore.cli.clients.shared import Families, Shared
from seqstore.cli.server.routine_metrics import routine_metrics
from seqstore.store import Store
from seqstore.store.failover.shipping import loss_window_seconds
from seqstore.store.load.group_commit import counts
from seqstore.store.runtime.memory_limit import resident_bytes
from seqstore.store.sql.evaluate.connections import column_copies

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_ROWS: Final = {
    "loaded": "NumberLoadedRows",
    "filtered": "NumberFilteredRows",
    "unselected": "NumberUnselectedRows",
}


class Metrics:
    """The counters of one server since its start. Safe to share between threads."""

    def __init__(self, store: Store, audit: AuditLog | None = None, shared: Shared | None = None) -> None:
        self._audit = audit
        self._worker = shared.worker if shared is not None else None
        self._others = shared.metrics(self._families) if shared is not None else tuple
        own: dict[str, Any] = {"namespace": "seqstore", "registry": None}
        self._loads = Counter("stream_loads", "finished stream loads", ["status"], **own)
        self._rows = Counter("stream_load_rows", "rows of stream loads", ["outcome"], **own)
        self._bytes = Counter("stream_load_bytes", "bytes of bodies read", **own)
        self._running = Gauge("stream_loads_running", "stream loads on their way", **own)
        self._seconds = Histogram(
            "stream_load_duration_seconds", "time from request to reply", buckets=_BUCKETS, **own
        )
        self._started = Gauge("start_time_seconds", "Unix time of the start", **own)
        self._started.set(round(time.time(), 3))
        for outcome in _ROWS:
            self._rows.labels(outcome)
        self._store = store

    def begin_load(self) -> None:
        self._running.inc()

    def end_load(self) -> None:
        self._running.dec()

    def count_load(self, reply: Mapping[str, Any], seconds: float) -> None:
        """Adds a finished load."""
        self._loads.labels(reply["Status"]).inc()
        self._bytes.inc(reply["LoadBytes"])
        for outcome, field in _ROWS.items():
            self._rows.labels(outcome).inc(reply[field])
        self._seconds.observe(seconds)

    def scrape(self, accept: str, sees: Callable[[str, str], bool]) -> tuple[bytes, str]:
        """Returns the metrics and their content type. It reads the catalog.

        Args:
            accept: the scraper's header of that name.
            sees: whether the scraper may read the names of the jobs of a table, or of a database.
        """
        encode, content_type = choose_encoder(accept)
        registry = CollectorRegistry()
        registry.register(_Scrape(self, sees))
        return encode(registry), content_type

    def collect(self, sees: Callable[[str, str], bool]) -> Iterable[Metric]:
        """Yields every metric of a scrape; if there are workers, theirs have the label `worker`."""
        if self._worker is None:
            yield from self._own()
        else:
            yield from _by_worker([(self._worker, self._families()), *self._others()])
        yield from routine_metrics(self._store, sees)
        yield from _shipping(self._store)

    def _families(self) -> Families:
        """Returns the metrics of this process as plain values."""
        return [
            (each.type, each.name, each.documentation, [(s.name, s.labels, s.value) for s in each.samples])
            for each in self._own()
        ]

    def _own(self) -> Iterable[Metric]:
        for each in (self._loads, self._rows, self._bytes, self._running, self._seconds, self._started):
            for metric in each.collect():
                # `start_time_seconds` is the creation time of every counter.
                metric.samples = [each for each in metric.samples if not each.name.endswith("_created")]
                yield metric
        yield from _groups()
        yield from _column_copies()
        if self._audit is not None:
            yield from _audited(self._audit)
        if (resident := resident_bytes()) is not None:
            yield GaugeMetricFamily("seqstore_resident_memory_bytes", "memory of the server", resident)


def _column_copies() -> Iterable[Metric]:
    sizes = [copies.sizes() for copies in column_copies()]
    count, held = (sum(each) for each in zip(*sizes, strict=True)) if sizes else (0, 0)
    yield GaugeMetricFamily("seqstore_column_copies", "copies of columns that queries read", count)
    yield GaugeMetricFamily("seqstore_column_copies_bytes", "memory of these copies", held)


def _shipping(store: Store) -> Iterable[Metric]:
    """Yields how far the catalog was shipped; nothing for a store that is not."""
    status = store.shipping.status()
    if status is None:
        return
    window = round(loss_window_seconds(status), 3)
    for name, text, value in (
        ("loss_window_seconds", "age of the oldest commit that a loss of the host would lose", window),
        ("waiting_commits", "commits that were not shipped yet", status.waiting),
        ("position", "newest object of the log", status.state.position),
        ("epoch", "of the lease of this host", status.state.epoch),
        ("failing", "1 while the last try failed, or another host leads", int(bool(status.error))),
    ):
        yield GaugeMetricFamily(f"seqstore_shipping_{name}", text, value)


def _by_worker(found: Iterable[tuple[int, Families]]) -> Iterable[Metric]:
    metrics: dict[str, Metric] = {}
    for worker, families in found:
        for kind, name, text, samples in families:
            metric = metrics.setdefault(name, Metric(name, text, kind))
            for sample, labels, value in samples:
                metric.add_sample(sample, {**labels, "worker": str(worker)}, value)
    return metrics.values()


@dataclass(frozen=True)
class _Scrape:
    """One scrape, as the registry calls it."""

    metrics: Metrics
    sees: Callable[[str, str], bool]

    def collect(self) -> Iterable[Metric]:
        return self.metrics.collect(self.sees)


def _audited(audit: AuditLog) -> Iterable[Metric]:
    yield CounterMetricFamily("seqstore_audit_events", "events that the audit log holds", audit.written)
    text = "events that the audit log could not hold"
    yield CounterMetricFamily("seqstore_audit_events_lost", text, audit.lost)


def _groups() -> Iterable[Metric]:
    publishes, loads = counts.publishes, dict(counts.loads)
    waited = CounterMetricFamily(
        "seqstore_group_commit_loads",
        "loads that were grouped, by the publishes they waited for before their own",
        labels=["waited_for"],
    )
    waited.add_metric(["0"], loads.pop(0, 0))
    waited.add_metric(["1"], loads.pop(1, 0))
    waited.add_metric(["more"], sum(loads.values()))
    yield waited
    text = "transactions made for groups of loads"
    yield CounterMetricFamily("seqstore_group_commit_publishes", text, publishes)
