"""BACKUP SNAPSHOT and RESTORE SNAPSHOT as statements: columns of Doris, properties, refusals, privileges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqstore import AccessDeniedError, InvalidInputError, NotFoundError, Session, Store
from seqstore.store.runtime.secrets.statements import masked_statement
from seqstore.store.sql.session.server_context import ServerContext
from tests.support.statements import last_result, run

pytestmark = pytest.mark.sql(
    "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k); INSERT INTO t VALUES (1, 1); CREATE TABLE u LIKE t"
)
BACKUP_COLUMNS = [
    "JobId", "SnapshotName", "DbName", "State", "BackupObjs", "CreateTime", "SnapshotFinishedTime",
    "UploadFinishedTime", "FinishedTime", "UnfinishedTasks", "Progress", "TaskErrMsg", "Status", "Timeout",
]  # fmt: skip
RESTORE_COLUMNS = [
    "JobId", "Label", "Timestamp", "DbName", "State", "AllowLoad", "ReplicationNum", "ReplicaAllocation",
    "ReserveReplica", "ReserveDynamicPartitionEnable", "RestoreObjs", "CreateTime", "MetaPreparedTime",
    "SnapshotFinishedTime", "DownloadFinishedTime", "FinishedTime", "UnfinishedTasks", "Progress",
    "TaskErrMsg", "Status", "Timeout",
]  # fmt: skip


def lines(session: Session, text: str) -> list[dict[str, Any]]:
    found = last_result(session, text).rows
    assert found is not None
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_backups_have_the_columns_of_doris(session: Session, tmp_path: Path) -> None:
    place = tmp_path / "b"
    run(session, f"BACKUP SNAPSHOT db.one TO '{place}'; BACKUP SNAPSHOT two TO 'file://{place}' ON (t)")
    first, second = lines(session, "SHOW BACKUP FROM db")
    assert list(first) == BACKUP_COLUMNS
    assert (first["State"], first["BackupObjs"], first["Status"]) == ("FINISHED", "[db.t], [db.u]", "[OK]")
    assert second["BackupObjs"] == "[db.t]"
    found = lines(session, "SHOW BACKUP WHERE SnapshotName LIKE 't%'")
    assert [line["SnapshotName"] for line in found] == ["two"]
    assert [line["Snapshot"] for line in lines(session, f"SHOW SNAPSHOT ON '{place}'")] == ["one", "two"]
    (shown,) = lines(session, f"SHOW SNAPSHOT ON '{place}' WHERE SNAPSHOT = 'two'")
    assert list(shown) == ["Snapshot", "Timestamp", "Database", "Details", "Status"]
    assert json.loads(shown["Details"])["backup_objects"] == ["t"]


def test_restorations_have_the_columns_of_doris(session: Session, tmp_path: Path) -> None:
    run(session, f"BACKUP SNAPSHOT one TO '{tmp_path}/b' EXCLUDE (u)")
    run(
        session,
        f"RESTORE SNAPSHOT one FROM '{tmp_path}/b' ON (t AS copy) PROPERTIES ('replication_num' = '1')",
    )
    (line,) = lines(session, "SHOW RESTORE")
    assert list(line) == RESTORE_COLUMNS
    assert json.loads(line["RestoreObjs"])["objects"] == [{"name": "t", "alias": "copy"}]
    brief = lines(session, "SHOW BRIEF RESTORE FROM db WHERE Label = 'one'")
    assert list(brief[0]) == [name for name in RESTORE_COLUMNS if name != "RestoreObjs"]
    assert lines(session, "SELECT * FROM copy") == [{"k": 1, "v": 1}]
    run(session, "UPDATE t SET v = 2")
    stamp = lines(session, f"SHOW SNAPSHOT ON '{tmp_path}/b'")[0]["Timestamp"]
    properties = f"PROPERTIES ('atomic_restore' = 'true', 'backup_timestamp' = '{stamp}')"
    run(session, f"RESTORE SNAPSHOT one FROM '{tmp_path}/b' {properties}")
    assert lines(session, "SELECT * FROM t") == [{"k": 1, "v": 1}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BACKUP SNAPSHOT one TO repository", "no repositories, such as 'repository'"),
        ("RESTORE SNAPSHOT one FROM repository", "no repositories"),
        ("SHOW SNAPSHOT ON repository", "no repositories"),
        ("CREATE REPOSITORY r WITH S3 ON LOCATION 's3://x'", "no repositories"),
        ("BACKUP GLOBAL SNAPSHOT one TO '/x'", "users, roles and settings"),
        ("BACKUP SNAPSHOT one TO '/x' ON (t PARTITION (p))", "whole tables"),
        ("BACKUP SNAPSHOT one TO '/x' PROPERTIES ('type' = 'incremental')", "every backup is full"),
        ("BACKUP SNAPSHOT one TO '/x' PROPERTIES ('speed' = '1')", "'speed' is not known here"),
        ("BACKUP SNAPSHOT one TO '/x' PROPERTIES ('timeout' = 'x')", "number of seconds"),
        ("BACKUP SNAPSHOT one TO '/x' PROPERTIES ('verify' = 'x')", "true or false"),
        ("RESTORE SNAPSHOT one FROM '/x' PROPERTIES ('replication_num' = '3')", "1 replica"),
        ("BACKUP SNAPSHOT `a b` TO '/x'", "Label format error"),
        ("BACKUP SNAPSHOT one TO 'x'", "absolute path"),
        ("CANCEL BACKUP", "no backup job"),
        ("CANCEL RESTORE FROM db", "no restore job"),
    ],
)
def test_what_is_refused(session: Session, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(session, text)


def test_places_need_admin_and_jobs_need_load(store: Store, tmp_path: Path) -> None:
    """LOAD, ALTER and all others on the database are not enough for a statement that names a place."""
    store.accounts.create("ann")
    store.accounts.grant("ann", ["ALL"], "db")
    store.accounts.create("eve")
    store.accounts.grant("eve", ["SELECT", "ALTER"], "db")
    place = tmp_path / "b"
    with Session(store, "db", user="ann") as ann, Session(store, "db", user="eve") as eve:
        for text in (
            f"BACKUP SNAPSHOT one TO '{place}'",
            f"RESTORE SNAPSHOT one FROM '{place}'",
            f"SHOW SNAPSHOT ON '{place}'",
        ):
            with pytest.raises(AccessDeniedError):
                run(ann, text)
        run(ann, "SHOW BACKUP; SHOW RESTORE; SHOW BRIEF RESTORE")
        with pytest.raises(InvalidInputError, match="no backup job"):
            run(ann, "CANCEL BACKUP")
        for text in ("SHOW BACKUP", "SHOW BRIEF RESTORE", "CANCEL BACKUP", "CANCEL RESTORE"):
            with pytest.raises(AccessDeniedError):
                run(eve, text)
    assert not place.exists()


def test_a_server_does_not_wait_for_a_job(store: Store, tmp_path: Path) -> None:
    """The statement returns when the job is submitted; its handle of the store runs it."""
    with Session(store, "db", server=ServerContext(connection_id=7)) as served:
        run(served, f"BACKUP SNAPSHOT one TO '{tmp_path}/b'")
        store.backups.join()
        assert [line["State"] for line in lines(served, "SHOW BACKUP")] == ["FINISHED"]
        with pytest.raises(NotFoundError, match="has no backup"):
            run(served, f"RESTORE SNAPSHOT other FROM '{tmp_path}/b'")


def test_keys_of_a_place_are_not_shown(session: Session, tmp_path: Path) -> None:
    """SHOW SNAPSHOT, errors and lists of sessions have stars for them."""
    with pytest.raises(InvalidInputError) as caught:
        run(session, "SHOW SNAPSHOT ON 'nosuch://key:secret@bucket/x'")
    assert "secret" not in str(caught.value)
    shown = masked_statement("BACKUP SNAPSHOT x TO 's3://key:secret@bucket/p?scheme=http&secret_key=hidden'")
    assert shown == "BACKUP SNAPSHOT x TO 's3://******@bucket/p?scheme=http&secret_key=******'"
