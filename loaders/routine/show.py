"""The rows of SHOW ROUTINE LOAD, SHOW ROUTINE LOAD TASK and SHOW CREATE ROUTINE LOAD (R30-R33, R37)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from seqstore.loaders.broker.files import without_login
from seqstore.loaders.jobs.statements import Line, format_time
from seqstore.loaders.routine.job import PAUSED, RoutineJob
from seqstore.loaders.routine.properties import EXEC_MEM_LIMIT
from seqstore.loaders.routine.spec import KAFKA, RoutineSpec
from seqstore.loaders.routine.topics import PATTERN, in_order
from seqstore.store.catalog.access.user_hosts import plain_user
from seqstore.store.catalog.job_record import CANCELLED
from seqstore.store.runtime.secrets.words import without_secrets, without_values

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


def job_line(job_id: int, job: RoutineJob) -> Line:
    """Returns a job's line (R30)."""
    return tuple(value(job_id, job) for value in _JOB.values())


def task_lines(job_id: int, job: RoutineJob) -> list[Line]:
    """Returns the lines of a job's tasks (R37)."""
    return [
        (
            task_id,
            str(task.txn_id),
            "UNKNOWN" if task.txn_id < 0 else "PREPARE",
            str(job_id),
            format_time(task.created_ms),
            format_time(task.started_ms),
            str(job.timeout_ms // 1000),
            str(job.owner[0] or -1),
            json.dumps({name: job.progress.get(name, 0) for name in task.partitions}),
        )
        for task_id, task in job.tasks.items()
    ]


def lag(job: RoutineJob) -> dict[str, int]:
    """Returns the offsets between each partition's last known end and the job (R32)."""
    return {name: max(job.latest.get(name, 0) - offset, 0) for name, offset in job.progress.items()}


def create_text(job: RoutineJob) -> str:
    """Returns the statement that creates a job like this one, without secrets."""
    spec = job.spec
    on = "" if spec.is_multi else f" ON {spec.table}"
    lines = [f"CREATE ROUTINE LOAD {spec.name}{on}", f"WITH {spec.merge_type}"]
    columns = [*(f"`{name}`" for name in spec.columns), *spec.assignments]
    clauses = (
        (spec.column_separator, f"COLUMNS TERMINATED BY {_quoted(spec.column_separator)}"),
        (spec.line_delimiter, f"LINES TERMINATED BY {_quoted(spec.line_delimiter)}"),
        (columns, f"COLUMNS({', '.join(columns)})"),
        (spec.preceding_filter, f"PRECEDING FILTER {spec.preceding_filter}"),
        (spec.where, f"WHERE {spec.where}"),
        (spec.partitions, f"PARTITION({', '.join(spec.partitions)})"),
        (spec.delete_on, f"DELETE ON {spec.delete_on}"),
        (spec.order_by, f"ORDER BY `{spec.order_by}`"),
    )
    if given := [clause for value, clause in clauses if value]:
        lines.append(",\n".join(given))
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


def _custom(job: RoutineJob) -> dict[str, str]:
    return {
        name.removeprefix("property."): value
        for name, value in without_secrets(job.spec.source_properties).items()
        if name.startswith("property.")
    }


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
    """Returns the properties of the source without secrets."""
    given = spec.source_properties
    if spec.source == KAFKA:
        return without_secrets(given)
    return without_secrets({name: without_login(value) for name, value in given.items()})


def _source_properties(job: RoutineJob) -> dict[str, str]:
    given = job.spec.source_properties
    if job.spec.source != KAFKA:
        return _shown(job.spec)
    return {
        "topic": given.get("kafka_topic") or given.get(PATTERN, ""),
        "currentKafkaPartitions": ",".join(in_order(job.progress)),
        "brokerList": given.get("kafka_broker_list", ""),
    }


def _statistic(job: RoutineJob) -> dict[str, Any]:
    """Returns the Statistic of a job (R31). Rates refer to the execution time of the tasks."""
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


def _message(job: RoutineJob, text: str, *states: str) -> str:
    """Returns a message of one of the states without the secrets of the source."""
    return without_values(text, job.spec.source_properties) if not states or job.state in states else ""


def _consumed(offset: int) -> str:
    """Returns the last offset read (R32); before the first there is none."""
    return str(offset - 1) if offset else "OFFSET_ZERO"


_JOB: Final[Mapping[str, Callable[[int, RoutineJob], str | None]]] = {
    "Id": lambda job_id, job: str(job_id),
    "Name": lambda _, job: job.name,
    "CreateTime": lambda _, job: format_time(job.created_ms),
    "PauseTime": lambda _, job: format_time(job.paused_ms),
    "EndTime": lambda _, job: format_time(job.ended_ms),
    "DbName": lambda _, job: job.database,
    "TableName": lambda _, job: job.spec.table,
    "IsMultiTable": lambda _, job: str(job.spec.is_multi).lower(),  # R3
    "State": lambda _, job: job.state,
    "DataSourceType": lambda _, job: job.spec.source,
    "CurrentTaskNum": lambda _, job: str(len(job.tasks)),
    "JobProperties": lambda _, job: json.dumps(_job_properties(job.spec)),
    "DataSourceProperties": lambda _, job: json.dumps(_source_properties(job)),
    "CustomProperties": lambda _, job: json.dumps(_custom(job)),
    "Statistic": lambda _, job: json.dumps(_statistic(job)),
    "Progress": lambda _, job: json.dumps({name: _consumed(at) for name, at in job.progress.items()}),
    "Lag": lambda _, job: json.dumps(lag(job)),
    "ReasonOfStateChanged": lambda _, job: _message(job, job.reason, PAUSED, CANCELLED),  # R33
    "ErrorLogUrls": lambda _, job: ", ".join(job.error_urls),
    "OtherMsg": lambda _, job: _message(job, job.other_message),
    "User": lambda _, job: plain_user(job.user),
    "Comment": lambda _, job: job.spec.comment,
    "ComputeGroup": lambda _, job: "",  # there are no groups of backends
}
JOB_COLUMNS: Final = tuple(_JOB)
