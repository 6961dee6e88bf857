"""The rows of SHOW LOAD (B12-B16)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from seqstore.loaders.broker.job import LoadJob
from seqstore.loaders.jobs.statements import Line, format_time
from seqstore.store.catalog.access.user_hosts import plain_user
from seqstore.store.catalog.job_record import CANCELLED


def job_line(job_id: int, job: LoadJob) -> Line:
    """Returns a job's line."""
    return tuple(value(job_id, job) for value in _JOB.values())


def _progress(job: LoadJob) -> str:
    if job.state == CANCELLED:
        return "Unknown id"
    return f"{job.percent:.2f}% ({job.files_done}/{job.files})"


def _counts(job: LoadJob) -> str | None:
    """Formats the row counts as EtlInfo (B13); None while they are unknown."""
    if job.loaded < 0:
        return None
    return f"unselected.rows={job.unselected}; dpp.abnorm.ALL={job.filtered}; dpp.norm.ALL={job.loaded}"


def _task(job: LoadJob) -> str:
    """Formats the settings of the job as TaskInfo (B15)."""
    spec = job.spec
    return (
        f"cluster:N/A; timeout(s):{spec.timeout_seconds}; max_filter_ratio:{spec.max_filter_ratio}; "
        f"priority:{spec.priority}"
    )


def _details(job: LoadJob) -> dict[str, Any]:
    """Returns the JobDetails (B16)."""
    waiting = [] if job.has_ended else [f"pid {job.owner[0]}"]
    return {
        "Unfinished backends": {job.spec.label: waiting} if waiting else {},
        "ScannedRows": max(job.loaded, 0) + max(job.filtered, 0) + max(job.unselected, 0),
        "TaskNumber": job.files,
        "LoadBytes": job.bytes_total,
        "All backends": {job.spec.label: [f"pid {job.owner[0]}"]},
        "FileNumber": job.files,
        "FileSize": job.bytes_total,
        **({"CreatedTables": list(job.created)} if job.created else {}),
    }


_JOB: Final[Mapping[str, Callable[[int, LoadJob], str | None]]] = {
    "JobId": lambda job_id, job: str(job_id),
    "Label": lambda _, job: job.name,
    "State": lambda _, job: job.state,
    "Progress": lambda _, job: _progress(job),
    "Type": lambda _, job: "BROKER",
    "EtlInfo": lambda _, job: _counts(job),
    "TaskInfo": lambda _, job: _task(job),
    "ErrorMsg": lambda _, job: job.error or None,
    "CreateTime": lambda _, job: format_time(job.created_ms),
    "EtlStartTime": lambda _, job: format_time(job.started_ms),
    "EtlFinishTime": lambda _, job: format_time(job.started_ms),
    "LoadStartTime": lambda _, job: format_time(job.started_ms),
    "LoadFinishTime": lambda _, job: format_time(job.finished_ms),
    "URL": lambda _, job: job.url or None,
    "JobDetails": lambda _, job: json.dumps(_details(job)),
    "TransactionId": lambda _, job: str(job.txn_id),
    "ErrorTablets": lambda _, job: "{}",
    "User": lambda _, job: plain_user(job.user),
    "Comment": lambda _, job: job.spec.comment,
}
SHOW_COLUMNS: Final = tuple(_JOB)
