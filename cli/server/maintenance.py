"""The maintenance that `serve` does, for tables that other processes load and for the effects of time.

Loads of this process start their own compactions (maintenance.scheduler).
"""

from __future__ import annotations

from seqstore.cli.server.background import BackgroundService
from seqstore.loaders.jobs.periodic import PeriodicThread
from seqstore.store import Store


def maintenance_service(store: Store, seconds: int) -> BackgroundService:
    """Returns a service that calls `Store.maintain` at once and then every `seconds`; 0 means never.

    Its stop ends a running compaction between two segments.
    """
    if not seconds:
        return BackgroundService(lambda: None)

    def maintain() -> None:
        store.maintain(is_cancelled=thread.ending.is_set)

    thread = PeriodicThread("maintenance", maintain, seconds)
    return BackgroundService(thread.start, thread.stop)
