"""Loads and jobs that a user sees: those of tables on which it holds LOAD, and their rejected rows."""

from __future__ import annotations

import re
import time
from itertools import islice
from typing import Any, Final

from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.show import lag
from seqstore.store import NotFoundError, Store
from seqstore.store.catalog import catalog
from seqstore.store.catalog.accounts import Account
from seqstore.store.catalog.load_history import metrics_of, newest_transactions
from seqstore.store.catalog.transaction_record import TransactionRecord, read_transaction
from seqstore.store.runtime.secrets.statements import masked_statement
from seqstore.store.runtime.secrets.words import without_values

PAGE_MAX: Final = 200
_LOOKED_AT_MAX: Final = 5_000
_MINUTES: Final = 30
_JOBS_MAX: Final = 500
_LINE: Final = re.compile(r"line (\d+): Reason: (.*?)\. src line \[(.*)\];", re.DOTALL)
_LOG_BYTES_MAX: Final = 1 << 20


def loads(
    store: Store, account: Account, *, before: int | None, limit: int, status: str, like: str
) -> dict[str, Any]:
    """Returns a page of loads, newest first.

    Args:
        before: only transactions with smaller ids, None for the newest.
        status: only of this state of a transaction; empty for all.
        like: only of labels or tables that contain this text.
    """
    found: list[dict[str, Any]] = []
    last = None
    with store.catalog.read() as tx:
        names = _database_names(store, tx)
        for record in islice(newest_transactions(tx, before=before), _LOOKED_AT_MAX):
            if len(found) == limit:
                break
            last = record.id
            if not _may_load(account, names, record) or status not in ("", record.status):
                continue
            if like and like.lower() not in f"{record.label} {record.table}".lower():
                continue
            found.append(_load(tx, record))
        else:
            last = last if _has_older(tx, last) else None
    return {"loads": found, "before": last}


def _has_older(tx: catalog.CatalogTransaction, last: int | None) -> bool:
    return last is not None and next(newest_transactions(tx, before=last), None) is not None


def _database_names(store: Store, tx: catalog.CatalogTransaction) -> dict[int, str]:
    return {catalog.require_database(tx, name): name for name in store.databases()}


def _may_load(account: Account, names: dict[int, str], record: TransactionRecord) -> bool:
    database = names.get(record.database)
    return database is not None and account.may("LOAD", database, record.table.partition(".")[2])


def _load(tx: catalog.CatalogTransaction, record: TransactionRecord) -> dict[str, Any]:
    metrics = metrics_of(tx, record)
    return {
        "txn_id": record.id,
        "table": record.table,
        "label": record.label,
        "status": record.status,
        "operation": record.operation,
        "begun_ms": record.begun_ms,
        "finished_ms": record.finished_ms,
        "version": record.version,
        "reason": masked_statement(record.reason),
        "metrics": metrics.__dict__ if metrics is not None else None,
    }


def activity(store: Store, account: Account) -> dict[str, Any]:
    """Returns finished and failed loads by minute, the newest minute last."""
    now = time.time_ns() // 60_000_000_000
    done, failed = [0] * _MINUTES, [0] * _MINUTES
    running = waiting = 0
    with store.catalog.read() as tx:
        names = _database_names(store, tx)
        for record in islice(newest_transactions(tx), _LOOKED_AT_MAX):
            age = now - record.begun_ms // 60_000
            if age >= _MINUTES:
                break
            if not _may_load(account, names, record):
                continue
            running += record.status == "PREPARE"
            waiting += record.status == "PRECOMMITTED"
            if record.status in ("VISIBLE", "ABORTED") and age >= 0:
                (done if record.status == "VISIBLE" else failed)[_MINUTES - 1 - age] += 1
    minutes = [(now - _MINUTES + 1 + number) * 60 for number in range(_MINUTES)]
    return {
        "minutes": minutes,
        "finished": done,
        "failed": failed,
        "running": running,
        "precommitted": waiting,
    }


def routine_jobs(store: Store, account: Account) -> list[tuple[int, RoutineJob]]:
    """Returns the routine loads that a user sees, the newest first."""
    jobs = RoutineJobs(store.catalog).all().items()
    return [
        (number, job)
        for number, job in reversed(list(jobs))
        if account.may("LOAD", job.database, "" if job.spec.is_multi else job.spec.table)
    ]


def jobs(store: Store, account: Account) -> dict[str, Any]:
    """Returns routine loads and broker loads, the newest first."""
    found = routine_jobs(store, account)
    routine = [_routine(number, job) for number, job in found[:_JOBS_MAX]]
    broker = [
        {
            "id": number,
            "database": job.database,
            "label": job.name,
            "state": job.state,
            "created_ms": job.created_ms,
            "finished_ms": job.finished_ms,
            "files": job.files,
            "files_done": job.files_done,
            "bytes": job.bytes_total,
            "bytes_done": job.bytes_done,
            "loaded": job.loaded,
            "filtered": job.filtered,
            "error": masked_statement(job.error),
        }
        for number, job in reversed(list(LoadJobs(store.catalog).all().items()))
        if all(account.may("LOAD", job.database, each.table) for each in job.spec.descriptions)
    ]
    return {"routine": routine, "broker": broker[:_JOBS_MAX]}


def _routine(number: int, job: RoutineJob) -> dict[str, Any]:
    found = job.statistic
    behind = lag(job)
    secrets = job.spec.source_properties
    return {
        "id": number,
        "database": job.database,
        "name": job.name,
        "table": job.spec.table,
        "source": job.spec.source,
        "state": job.state,
        "has_ended": job.has_ended,
        "reason": without_values(job.reason, secrets),
        "other": without_values(job.other_message, secrets),
        "lag": sum(behind.values()),
        "lag_by_partition": behind,
        "loaded": found.loaded_rows,
        "errors": found.error_rows,
        "unselected": found.unselected_rows,
        "committed_tasks": found.committed_tasks,
        "aborted_tasks": found.aborted_tasks,
        "tasks": len(job.tasks),
    }


def rejected(store: Store, account: Account, txn_id: int) -> dict[str, Any]:
    """Returns the rows that a load left out, with reasons; an old log may be gone.

    Raises:
        NotFoundError: the user sees no such load.
    """
    with store.catalog.read() as tx:
        record = read_transaction(tx, txn_id)
        names = _database_names(store, tx)
    if record is None or not _may_load(account, names, record):
        raise NotFoundError(f"there is no transaction {txn_id}", kind="unknown_transaction")
    logs = sorted((store.path / "error_log").glob(f"error_log_{txn_id}_*"))
    lines: list[dict[str, Any]] = []
    for log in logs:
        with log.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_LOG_BYTES_MAX)
        lines += [
            {"line": int(found[1]), "reason": found[2], "row": found[3][:4096]}
            for found in map(_LINE.fullmatch, text.splitlines())
            if found is not None
        ]
    return {"label": record.label, "table": record.table, "rows": lines, "reason": record.reason}
