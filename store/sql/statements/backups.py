"""BACKUP SNAPSHOT, RESTORE SNAPSHOT, their SHOW and CANCEL, and SHOW SNAPSHOT.

There are no repositories: a statement names the place, a directory or a URI. In a server the jobs run in the
background; a session without one waits for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from seqstore.store.backup.job import TIMEOUT_SECONDS, BackupJob, RestoreJob, TransferJob
from seqstore.store.backup.stored_backups import StoredBackup, stored_backups
from seqstore.store.runtime.secrets.words import masked_uri
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.places import require_place
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import parse_database
from seqstore.store.sql.session.statement_kind import StatementKind

_BACKUP_PROPERTIES: Final = ("type", "timeout", "verify")
_RESTORE_PROPERTIES: Final = ("backup_timestamp", "timeout", "atomic_restore", "replication_num")
_TRUTHS: Final = {"true": True, "false": False}


@dataclass(frozen=True)
class BackupSnapshot:
    """BACKUP SNAPSHOT [db.]label TO 'target' [ON | EXCLUDE (table, ..)] [PROPERTIES (..)]."""

    database: str | None
    label: str
    target: str = field(repr=False)
    tables: tuple[str, ...] = ()
    is_excluding: bool = False
    verify: bool = False
    timeout_seconds: int = TIMEOUT_SECONDS


@dataclass(frozen=True)
class RestoreSnapshot:
    """RESTORE SNAPSHOT [db.]label FROM .. [ON (table [AS name], ..) | EXCLUDE (table)] [PROPERTIES (..)]."""

    database: str | None
    label: str
    target: str = field(repr=False)
    tables: Mapping[str, str] | None = None
    exclude: tuple[str, ...] = ()
    timestamp: str = ""
    replaces: bool = False
    timeout_seconds: int = TIMEOUT_SECONDS


def _parse_backup(stream: TokenStream) -> BackupSnapshot:
    database, label = _parse_label(stream)
    stream.need("TO")
    target = _parse_target(stream)
    word = stream.take_one_of("ON", "EXCLUDE")
    tables = tuple(stream.enclosed(_parse_table)) if word else ()
    properties = _parse_properties(stream, _BACKUP_PROPERTIES)
    if properties.get("type", "full").lower() != "full":
        stream.refuse(
            f'"type" = "{properties["type"]}" is not supported: every backup is full, and copies only files '
            "that the target does not have",
            "bad_property",
        )
    return BackupSnapshot(
        database,
        label,
        target,
        tables,
        word == "EXCLUDE",
        _truth(stream, properties, "verify"),
        _timeout(stream, properties),
    )


def _parse_restore(stream: TokenStream) -> RestoreSnapshot:
    database, label = _parse_label(stream)
    stream.need("FROM")
    target = _parse_target(stream)
    word = stream.take_one_of("ON", "EXCLUDE")
    tables = dict(stream.enclosed(_parse_renamed)) if word == "ON" else None
    exclude = tuple(stream.enclosed(_parse_table)) if word == "EXCLUDE" else ()
    properties = _parse_properties(stream, _RESTORE_PROPERTIES)
    if properties.get("replication_num", "1") != "1":
        stream.refuse('"replication_num": a table has 1 replica', "bad_property")
    return RestoreSnapshot(
        database,
        label,
        target,
        tables,
        exclude,
        properties.get("backup_timestamp", ""),
        _truth(stream, properties, "atomic_restore"),
        _timeout(stream, properties),
    )


def _parse_label(stream: TokenStream) -> tuple[str | None, str]:
    *before, label = stream.dotted_name("label")
    return before[-1] if before else None, label


def _parse_target(stream: TokenStream) -> str:
    if stream.kind() is not None and not stream.word().startswith(("'", '"')) and stream.word():
        stream.refuse(
            f"there are no repositories, such as {stream.found()}: name the place of backups in quotes, as "
            "'/backups' or 's3://bucket/prefix'"
        )
    return stream.string("the place of backups")


def _parse_table(stream: TokenStream) -> str:
    name = stream.name("a table name")
    if stream.word() in ("PARTITION", "PARTITIONS"):
        stream.refuse("partitions are not backed up or restored one by one; name whole tables")
    return name


def _parse_renamed(stream: TokenStream) -> tuple[str, str]:
    name = _parse_table(stream)
    return name, stream.name("a new name") if stream.take("AS") else name


def _parse_properties(stream: TokenStream, known: tuple[str, ...]) -> dict[str, str]:
    found = stream.properties() if stream.take("PROPERTIES") else {}
    lowered = {name.lower(): value for name, value in found.items()}
    unknown = sorted(set(lowered) - set(known))
    if unknown:
        stream.refuse(
            f"property {unknown[0]!r} is not known here; expected {', '.join(known)}", "bad_property"
        )
    return lowered


def _truth(stream: TokenStream, properties: Mapping[str, str], name: str) -> bool:
    found = _TRUTHS.get(properties.get(name, "false").lower())
    if found is None:
        stream.refuse(f"property {name!r} is {properties[name]!r}; expected true or false", "bad_property")
    return found


def _timeout(stream: TokenStream, properties: Mapping[str, str]) -> int:
    text = properties.get("timeout", str(TIMEOUT_SECONDS))
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        stream.refuse(f"property 'timeout' is {text!r}; expected a number of seconds", "bad_property")
    return int(text)


def _backup(statement: BackupSnapshot, session: Session) -> None:
    require_place(session, statement.target)
    backups = session.store.backups
    job_id = backups.backup(
        statement.database or session.current_database(),
        statement.label,
        statement.target,
        statement.tables,
        exclude=statement.is_excluding,
        verify=statement.verify,
        timeout_seconds=statement.timeout_seconds,
    )
    _wait(session, job_id)


def _restore(statement: RestoreSnapshot, session: Session) -> None:
    require_place(session, statement.target)
    job_id = session.store.backups.restore(
        statement.database or session.current_database(),
        statement.label,
        statement.target,
        statement.tables,
        exclude=statement.exclude,
        timestamp=statement.timestamp,
        replace_tables=statement.replaces,
        timeout_seconds=statement.timeout_seconds,
    )
    _wait(session, job_id)


def _wait(session: Session, job_id: int) -> None:
    """Waits for a job, unless the session is one of a server, whose handle of the store outlives it."""
    if not session.server.connection_id:
        session.store.backups.wait(job_id)


@dataclass(frozen=True)
class ShowBackup:
    """SHOW BACKUP [FROM db]."""

    database: str | None


@dataclass(frozen=True)
class ShowRestore:
    """SHOW [BRIEF] RESTORE [FROM db]; `is_brief` leaves out the list of tables."""

    database: str | None
    is_brief: bool = False


def _parse_show_restore(stream: TokenStream) -> ShowRestore:
    is_brief = stream.tokens[1].text.upper() == "BRIEF"
    return ShowRestore(parse_database(stream), is_brief)


def _show_backup(statement: ShowBackup, session: Session) -> Result:
    jobs = session.store.backups.backups(statement.database or session.current_database())
    rows = [[show(job_id, job) for show in _BACKUP.values()] for job_id, job in jobs.items()]
    return text_rows(list(_BACKUP), rows)


def _show_restore(statement: ShowRestore, session: Session) -> Result:
    jobs = session.store.backups.restores(statement.database or session.current_database())
    columns = {
        name: show for name, show in _RESTORE.items() if name != "RestoreObjs" or not statement.is_brief
    }
    rows = [[show(job_id, job) for show in columns.values()] for job_id, job in jobs.items()]
    return text_rows(list(columns), rows)


def _time(unix_ms: int) -> str | None:
    return datetime.fromtimestamp(unix_ms / 1000).strftime("%Y-%m-%d %H:%M:%S") if unix_ms else None


def _unfinished(job: TransferJob) -> str:
    return "" if job.has_ended else str(job.files - job.files_done)


def _progress(job: TransferJob) -> str:
    return f"{job.files_done}/{job.files} files, {job.bytes_done}/{job.bytes_total} bytes"


def _status(job: TransferJob) -> str:
    return f"[COMMON_ERROR, msg: {job.message}]" if job.message else "[OK]"


def _backed_up(job: BackupJob) -> str:
    return ", ".join(f"[{job.db}.{name}]" for name in job.copied or job.objects)


def _restored(job: RestoreJob) -> str:
    tables = [{"name": name, "alias": new} for name, new in job.names.items()]
    return json.dumps(
        {"name": job.label, "database": job.db, "backup_time": job.timestamp, "objects": tables}
    )


_BACKUP: Final[Mapping[str, Callable[[int, BackupJob], str | None]]] = {
    "JobId": lambda job_id, job: str(job_id),
    "SnapshotName": lambda _, job: job.label,
    "DbName": lambda _, job: job.db,
    "State": lambda _, job: job.state,
    "BackupObjs": lambda _, job: _backed_up(job),
    "CreateTime": lambda _, job: _time(job.created_ms),
    "SnapshotFinishedTime": lambda _, job: _time(job.snapshot_ms),
    "UploadFinishedTime": lambda _, job: _time(job.moved_ms),
    "FinishedTime": lambda _, job: _time(job.finished_ms),
    "UnfinishedTasks": lambda _, job: _unfinished(job),
    "Progress": lambda _, job: _progress(job),
    "TaskErrMsg": lambda _, job: job.message,
    "Status": lambda _, job: _status(job),
    "Timeout": lambda _, job: str(job.timeout_seconds),
}
_RESTORE: Final[Mapping[str, Callable[[int, RestoreJob], str | None]]] = {
    "JobId": lambda job_id, job: str(job_id),
    "Label": lambda _, job: job.label,
    "Timestamp": lambda _, job: job.timestamp,
    "DbName": lambda _, job: job.db,
    "State": lambda _, job: job.state,
    "AllowLoad": lambda _, job: "false",
    "ReplicationNum": lambda _, job: "1",
    "ReplicaAllocation": lambda _, job: "tag.location.default: 1",
    "ReserveReplica": lambda _, job: "false",
    "ReserveDynamicPartitionEnable": lambda _, job: "false",
    "RestoreObjs": lambda _, job: _restored(job),
    "CreateTime": lambda _, job: _time(job.created_ms),
    "MetaPreparedTime": lambda _, job: _time(job.snapshot_ms),
    "SnapshotFinishedTime": lambda _, job: _time(job.snapshot_ms),
    "DownloadFinishedTime": lambda _, job: _time(job.moved_ms),
    "FinishedTime": lambda _, job: _time(job.finished_ms),
    "UnfinishedTasks": lambda _, job: _unfinished(job),
    "Progress": lambda _, job: _progress(job),
    "TaskErrMsg": lambda _, job: job.message,
    "Status": lambda _, job: _status(job),
    "Timeout": lambda _, job: str(job.timeout_seconds),
}


@dataclass(frozen=True)
class CancelBackup:
    """CANCEL BACKUP [FROM db]."""

    database: str | None


@dataclass(frozen=True)
class CancelRestore:
    """CANCEL RESTORE [FROM db]."""

    database: str | None


def _cancel_backup(statement: CancelBackup, session: Session) -> None:
    session.store.backups.cancel(statement.database or session.current_database())


def _cancel_restore(statement: CancelRestore, session: Session) -> None:
    session.store.backups.cancel(statement.database or session.current_database(), restores=True)


@dataclass(frozen=True)
class ShowSnapshot:
    """SHOW SNAPSHOT ON 'target' [WHERE SNAPSHOT = '..' [AND TIMESTAMP = '..']]."""

    target: str = field(repr=False)
    label: str | None = None
    timestamp: str | None = None


def _parse_show_snapshot(stream: TokenStream) -> ShowSnapshot:
    stream.need("ON")
    target = _parse_target(stream)
    label = timestamp = None
    if stream.take("WHERE"):
        stream.need("SNAPSHOT", "=")
        label = stream.string("a label")
        if stream.take("AND"):
            stream.need("TIMESTAMP", "=")
            timestamp = stream.string("a timestamp")
    return ShowSnapshot(target, label, timestamp)


def _show_snapshot(statement: ShowSnapshot, session: Session) -> Result:
    require_place(session, statement.target)
    found = [
        each
        for each in stored_backups(statement.target)
        if statement.label in (None, each.label) and statement.timestamp in (None, each.timestamp)
    ]
    if statement.label is None:
        return text_rows(
            ["Snapshot", "Timestamp", "Status"],
            [(each.label, each.timestamp, _stored(each)) for each in found],
        )
    rows = [
        (each.label, each.timestamp, each.database, _details(each, statement.target), _stored(each))
        for each in found
    ]
    return text_rows(["Snapshot", "Timestamp", "Database", "Details", "Status"], rows)


def _stored(backup: StoredBackup) -> str:
    return f"ERROR: {backup.error}" if backup.error else "OK"


def _details(backup: StoredBackup, target: str) -> str:
    return json.dumps(
        {
            "place": masked_uri(target),
            "backup_objects": list(backup.objects),
            "files": backup.files,
            "bytes": backup.bytes,
        }
    )


KINDS: Final = (
    StatementKind(("BACKUP SNAPSHOT",), BackupSnapshot, _parse_backup, _backup),
    StatementKind(("RESTORE SNAPSHOT",), RestoreSnapshot, _parse_restore, _restore),
    StatementKind(
        ("SHOW BACKUP",), ShowBackup, lambda stream: ShowBackup(parse_database(stream)), _show_backup
    ),
    StatementKind(("SHOW RESTORE", "SHOW BRIEF RESTORE"), ShowRestore, _parse_show_restore, _show_restore),
    StatementKind(
        ("CANCEL BACKUP",), CancelBackup, lambda stream: CancelBackup(parse_database(stream)), _cancel_backup
    ),
    StatementKind(
        ("CANCEL RESTORE",),
        CancelRestore,
        lambda stream: CancelRestore(parse_database(stream)),
        _cancel_restore,
    ),
    StatementKind(("SHOW SNAPSHOT",), ShowSnapshot, _parse_show_snapshot, _show_snapshot),
)
