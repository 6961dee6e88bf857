"""What SHOW ROUTINE LOAD, SHOW ROUTINE LOAD TASK and SHOW CREATE ROUTINE LOAD tell (R30-R33, R37)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from seqstore.loaders.broker.files import without_login
from seqstore.loaders.routine.job import CANCELLED, PAUSED, RoutineJob
from seqstore.loaders.routine.kafka_properties import shown as without_secrets
from seqstore.loaders.routine.properties import EXEC_MEM_LIMIT
from seqstore.loaders.routine.spec import KAFKA, RoutineSpec

JOB_COLUMNS: Final = (
    "Id",
    "Name",
    "CreateTime",
    "PauseTime",
    "EndTime",
    "DbName",
    "TableName",
    "IsMultiTable",
    "State",
    "DataSourceType",
    "CurrentTaskNum",
    "JobProperties",
    "DataSourceProperties",
    "CustomProperties",
    "Statistic",
    "Progress",
    "Lag",
    "ReasonOfStateChanged",
    "ErrorLogUrls",
    "OtherMsg",
    "User",
    "Comment",
    "ComputeGroup",
)
TASK_COLUMNS: Final = (
    "TaskId",
    "TxnId",
    "TxnStatus",
    "JobId",
    "CreateTime",
    "ExecuteStartTime",
    "Timeout",
    "BeId",
    "DataSourceProperties",
)
CREATE_COLUMNS: Final = ("JobId", "JobName", "CreateStmt")


def job_line(job_id: int, job: RoutineJob) -> tuple[str | None, ...]:
    """A job's line (R30)."""
    spec = job.spec
    custom = {
        name.removeprefix("property."): value
        for name, value in without_secrets(spec.source_properties).items()
        if name.startswith("property.")
    }
    return (
        str(job_id),
        spec.name,
        _time(job.created_ms),
        _time(job.paused_ms),
        _time(job.ended_ms),
        spec.database,
        spec.table,
        str(spec.is_multi).lower(),  # R3
        job.state,
        spec.source,
        str(len(job.tasks)),
        json.dumps(_job_properties(spec)),
        json.dumps(_source_properties(job)),
        json.dumps(custom),
        json.dumps(_statistic(job)),
        json.dumps({name: _consumed(offset) for name, offset in job.progress.items()}),
        json.dumps(lag(job)),
        job.reason if job.state in (PAUSED, CANCELLED) else "",  # R33
        ", ".join(job.error_urls),
        job.other_message,
        job.user,
        spec.comment,
        "",  # there are no groups of backends
    )


def task_lines(job_id: int, job: RoutineJob) -> list[tuple[str | None, ...]]:
    """The tasks of a job (R37)."""
    return [
        (
            task_id,
            str(task.txn_id),
            "UNKNOWN" if task.txn_id < 0 else "PREPARE",
            str(job_id),
            _time(task.created_ms),
            _time(task.started_ms),
            str(job.timeout_ms // 1000),
            str(job.owner[0]) if job.owner[0] else "-1",
            json.dumps({name: job.progress.get(name, 0) for name in task.partitions}),
        )
        for task_id, task in job.tasks.items()
    ]


def lag(job: RoutineJob) -> dict[str, int]:
    """How far each partition is behind its end, when that was last looked at (R32)."""
    return {name: max(job.latest.get(name, 0) - offset, 0) for name, offset in job.progress.items()}


def create_text(job: RoutineJob) -> str:
    """The statement that makes a job like this one; secrets are left out."""
    spec = job.spec
    on = "" if spec.is_multi else f" ON {spec.table}"
    lines = [f"CREATE ROUTINE LOAD {spec.name}{on}", f"WITH {spec.merge_type}"]
    clauses = []
    if spec.column_separator:
        clauses.append(f"COLUMNS TERMINATED BY {_quoted(spec.column_separator)}")
    if spec.line_delimiter:
        clauses.append(f"LINES TERMINATED BY {_quoted(spec.line_delimiter)}")
    columns = [*(f"`{name}`" for name in spec.columns), *spec.assignments]
    if columns:
        clauses.append(f"COLUMNS({', '.join(columns)})")
    if spec.preceding_filter:
        clauses.append(f"PRECEDING FILTER {spec.preceding_filter}")
    if spec.where:
        clauses.append(f"WHERE {spec.where}")
    if spec.partitions:
        clauses.append(f"PARTITION({', '.join(spec.partitions)})")
    if spec.delete_on:
        clauses.append(f"DELETE ON {spec.delete_on}")
    if spec.order_by:
        clauses.append(f"ORDER BY `{spec.order_by}`")
    if clauses:
        lines.append(",\n".join(clauses))
    if spec.properties:
        lines.append(f"PROPERTIES\n({_pairs(spec.properties)})")
    lines.append(f"FROM {spec.source}\n({_pairs(_shown(spec))})")
    if spec.comment:
        lines.append(f"COMMENT {_quoted(spec.comment)}")
    return "\n".join(lines) + ";"


def _pairs(properties: Mapping[str, str]) -> str:
    return ",\n".join(f"{_quoted(name)} = {_quoted(value)}" for name, value in properties.items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _job_properties(spec: RoutineSpec) -> dict[str, str]:
    limits, options = spec.limits, spec.options("")
    effective: dict[str, Any] = {
        "desired_concurrent_number": limits.concurrency,
        "max_error_number": limits.errors_max,
        "max_filter_ratio": limits.error_ratio_max,
        "max_batch_interval": limits.seconds,
        "max_batch_rows": limits.rows,
        "max_batch_size": limits.bytes,
        "format": options.format,
        "timezone": options.time_zone,
        "strict_mode": str(options.strict_mode).lower(),
        "exec_mem_limit": spec.properties.get("exec_mem_limit", EXEC_MEM_LIMIT),
        "unique_key_update_mode": options.update_mode,
        "merge_type": spec.merge_type,
        "column_separator": spec.column_separator or "\\t",
        "columnToColumnExpr": ",".join([*spec.columns, *spec.assignments]) or "*",
        "precedingFilter": spec.preceding_filter or "*",
        "whereExpr": spec.where or "*",
        "deleteCondition": spec.delete_on or "*",
        "sequence_col": spec.order_by or "*",
        "partitions": ",".join(spec.partitions) or "*",
    }
    return {name: str(value) for name, value in {**spec.properties, **effective}.items()}


def _shown(spec: RoutineSpec) -> dict[str, str]:
    """What was said of the source, without what opens it."""
    given = spec.source_properties
    if spec.source == KAFKA:
        return without_secrets(given)
    return {name: without_login(value) for name, value in given.items()}


def _source_properties(job: RoutineJob) -> dict[str, str]:
    given = job.spec.source_properties
    if job.spec.source != KAFKA:
        return _shown(job.spec)
    return {
        "topic": given.get("kafka_topic", ""),
        "currentKafkaPartitions": ",".join(sorted(job.progress, key=int)),
        "brokerList": given.get("kafka_broker_list", ""),
    }


def _statistic(job: RoutineJob) -> dict[str, Any]:
    """R31. Rates are over the time tasks took."""
    found = job.statistic
    seconds = max(found.task_ms, 1) / 1000
    return {
        "receivedBytes": found.received_bytes,
        "runningTxns": [task.txn_id for task in job.tasks.values() if task.txn_id >= 0],
        "errorRows": found.error_rows,
        "committedTaskNum": found.committed_tasks,
        "loadedRows": found.loaded_rows,
        "loadRowsRate": round(found.loaded_rows / seconds),
        "abortedTaskNum": found.aborted_tasks,
        "errorRowsAfterResumed": found.error_rows_after_resumed,
        "totalRows": found.total_rows,
        "unselectedRows": found.unselected_rows,
        "receivedBytesRate": round(found.received_bytes / seconds),
        "taskExecuteTimeMs": found.task_ms,
    }


def _consumed(offset: int) -> str:
    """R32: the last one read; before the first there is none."""
    return str(offset - 1) if offset else "OFFSET_ZERO"


def _time(milliseconds: int) -> str | None:
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M:%S")
