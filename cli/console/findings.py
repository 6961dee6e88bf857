"""What is wrong in a store, as one of its users sees it, and what to do."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from seqstore.cli.clients.audit_log import AuditLog
from seqstore.cli.console.load_view import routine_jobs
from seqstore.loaders.routine.job import PAUSED
from seqstore.loaders.routine.show import lag
from seqstore.store import Store
from seqstore.store.catalog.accounts import ROOT, Account
from seqstore.store.runtime.secrets.words import without_values

_SEGMENTS_MANY: Final = 64
_FINDINGS_MAX: Final = 50
_LAG_ROWS: Final = 100_000


@dataclass(frozen=True)
class Finding:
    """One of them.

    Attributes:
        severity: `error` where something does not work, `warning` where it soon may not.
        href: the view of the console that shows more.
    """

    severity: str
    what: str
    advice: str
    href: str = ""


def findings(
    store: Store,
    account: Account,
    *,
    tables: Sequence[dict[str, Any]],
    activity: dict[str, Any],
    audit: AuditLog | None,
    disk_free_bytes_min: int,
) -> list[dict[str, Any]]:
    """Returns what is wrong, errors first.

    Args:
        tables: those of the page, as `table_list.table_page` returns them.
        activity: of loads, as `load_view.activity` returns it.
    """
    found = [*_of_jobs(store, account), *_of_loads(activity), *_of_tables(tables)]
    if account.may("ADMIN"):
        found += _of_server(store, audit, disk_free_bytes_min)
    found.sort(key=lambda finding: finding.severity != "error")
    return [asdict(finding) for finding in found[:_FINDINGS_MAX]]


def _of_jobs(store: Store, account: Account) -> Iterable[Finding]:
    for _, job in routine_jobs(store, account):
        name = f"{job.database}.{job.name}"
        reason = without_values(job.reason, job.spec.source_properties)
        if job.state == PAUSED:
            advice = "Remove its cause, then resume the job; it continues at the offset where it stopped."
            yield Finding(
                "error", f"Routine load {name} is paused: {reason or 'by a user'}", advice, "#/loads"
            )
        elif not job.has_ended and (behind := sum(lag(job).values())) >= _LAG_ROWS:
            advice = "Raise desired_concurrent_number or max_batch_rows by ALTER ROUTINE LOAD."
            yield Finding("warning", f"Routine load {name} is {behind:,} messages behind", advice, "#/loads")


def _of_loads(activity: dict[str, Any]) -> Iterable[Finding]:
    if failed := sum(activity["failed"]):
        advice = "Open Loads: each failed load has its reason, and its rejected rows."
        yield Finding("warning", f"{_loads(failed)} failed in the last 30 minutes", advice, "#/loads")
    if waiting := activity["precommitted"]:
        advice = "Commit or abort them by _stream_load_2pc; their rows are not visible until then."
        what = f"Commits that are still to come: {_loads(waiting)} pre-committed"
        yield Finding("warning", what, advice, "#/loads")


def _loads(count: int) -> str:
    return "1 load" if count == 1 else f"{count:,} loads"


def _of_tables(tables: Sequence[dict[str, Any]]) -> Iterable[Finding]:
    for table in tables:
        if table.get("segments", 0) > _SEGMENTS_MANY:
            name = f"{table['database']}.{table['name']}"
            advice = "Compaction is behind: load larger batches, or run OPTIMIZE."
            what = f"{name} has {table['segments']} segments; reads and loads look into each"
            yield Finding("warning", what, advice, f"#/table/{table['database']}/{table['name']}/segments")


def _of_server(store: Store, audit: AuditLog | None, disk_free_bytes_min: int) -> Iterable[Finding]:
    free = shutil.disk_usage(store.path).free
    if free < disk_free_bytes_min:
        what = f"The disk of the data directory has {free >> 20:,} MiB left"
        yield Finding("error", what, "Free space, or run VACUUM; loads fail when it is full.", "#/server")
    root = store.accounts.find(ROOT)
    if root is None or not root.has_password:
        advice = "SET PASSWORD FOR root = PASSWORD('...')"
        yield Finding("warning", "User root has an empty password", advice, "#/sql")
    if audit is not None and audit.lost:
        advice = "See the server's log: its disk may be full, or slower than the statements."
        yield Finding("warning", f"The audit log lost {audit.lost:,} events", advice, "#/server")
