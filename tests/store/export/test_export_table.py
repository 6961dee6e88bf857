"""EXPORT TABLE, SHOW EXPORT and CANCEL EXPORT."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqstore import (
    AccessDeniedError,
    InvalidInputError,
    LabelExistsError,
    NotFoundError,
    Session,
    Store,
    UnavailableError,
)
from seqstore.store.backup.target import Target
from seqstore.store.export.job import OWNER_ENDED, USER_CANCEL, ExportJobs
from seqstore.store.sql.session.server_context import ServerContext
from tests.support.faults.dying_child import run_until_dead
from tests.support.statements import last_result, run

pytestmark = pytest.mark.sql("CREATE TABLE t (k BIGINT NOT NULL, v STRING) UNIQUE KEY(k)")
COLUMNS = ["JobId", "Label", "State", "Progress", "TaskInfo", "Path", "CreateTime", "StartTime", "FinishTime",
           "Timeout", "ErrorMsg", "OutfileInfo"]  # fmt: skip
KILLED = """
import os, signal, sys
from seqstore import Session, Store
from seqstore.store.sql.statements import export
export.write_rows = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store = Store.open(sys.argv[1])
print("ready", flush=True)
with Session(store, "db") as session:
    list(session.execute("EXPORT TABLE t TO 'file://" + sys.argv[1] + ".out/x' PROPERTIES ('label' = 'one')"))
"""


def exports(session: Session) -> list[dict[str, Any]]:
    found = last_result(session, "SHOW EXPORT").rows
    assert found is not None
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def fill(store: Store) -> None:
    store.table("db.t").upsert(pa.table({"k": list(range(200_000)), "v": ["a"] * 200_000}))


def test_rows_of_a_table_become_files(store: Store, session: Session, tmp_path: Path) -> None:
    """Those of the condition, in the named columns; SHOW EXPORT has the columns of Doris."""
    fill(store)
    folder = tmp_path / "out"
    properties = "'format' = 'parquet', 'columns' = 'k', 'label' = 'one', 'timeout' = '60'"
    run(
        session,
        f"EXPORT TABLE t WHERE k < 10 AND v <> 'TO' TO 'file://{folder}/part_' PROPERTIES ({properties})",
    )
    (path,) = folder.iterdir()
    assert pq.read_table(path).sort_by("k").to_pydict() == {"k": list(range(10))}
    (line,) = exports(session)
    assert list(line) == COLUMNS
    assert (line["State"], line["Progress"], line["Timeout"]) == ("FINISHED", "100%", "60")
    assert json.loads(line["TaskInfo"])["tbl"] == "t"
    written = json.loads(line["OutfileInfo"])[0][0]
    assert (written["fileNumber"], written["totalRows"]) == ("1", "10")
    assert written["url"].startswith(f"file://{folder}/part_")
    with pytest.raises(LabelExistsError):
        run(session, f"EXPORT TABLE t TO 'file://{folder}/x' PROPERTIES ('label' = 'one')")


def test_a_server_runs_it_in_the_background_and_cancels_it(
    store: Store, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled export leaves no file."""
    fill(store)
    reached, go_on = threading.Event(), threading.Event()
    write = Target.write

    def slow(self: Target, name: str, pieces: Any) -> None:
        def paused() -> Any:
            for piece in pieces:
                reached.set()
                go_on.wait()
                yield piece

        write(self, name, paused())

    monkeypatch.setattr(Target, "write", slow)
    monkeypatch.setattr("seqstore.store.sql.statements.export._LOOK_SECONDS", 0)
    folder = tmp_path / "out"
    with Session(store, "db", server=ServerContext(connection_id=7)) as served:
        run(served, f"EXPORT TABLE t TO 'file://{folder}/x' PROPERTIES ('label' = 'one')")
        reached.wait()
        assert [line["State"] for line in exports(session)] == ["EXPORTING"]
        with pytest.raises(NotFoundError):
            run(session, "CANCEL EXPORT WHERE LABEL = 'two'")
        run(session, "CANCEL EXPORT FROM db WHERE LABEL LIKE 'o%'")
        go_on.set()
        for thread in threading.enumerate():
            if thread.name.startswith("export-"):
                thread.join()
    (line,) = exports(session)
    assert (line["State"], line["ErrorMsg"]) == ("CANCELLED", USER_CANCEL)
    assert list(folder.iterdir()) == []
    with pytest.raises(InvalidInputError, match="final state"):
        run(session, "CANCEL EXPORT WHERE STATE = 'CANCELLED'")


def test_an_export_whose_process_was_killed_is_cancelled(
    store: Store, session: Session, tmp_path: Path
) -> None:
    run_until_dead(KILLED, store.path, 0, failpoint="none")
    (line,) = exports(session)
    assert (line["State"], line["ErrorMsg"]) == ("CANCELLED", OWNER_ENDED)


def test_an_export_that_fails_says_why(store: Store, session: Session, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError):
        run(session, f"EXPORT TABLE t TO 'file://{tmp_path}/file/x'")
    assert [line["State"] for line in exports(session)] == ["CANCELLED"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("EXPORT TABLE t PARTITION (p) TO 'file:///x/y'", "by WHERE"),
        ("EXPORT TABLE t TO '/x/y'", "expected file:///directory"),
        ("EXPORT TABLE t TO 's3://x/y' WITH S3 ('a' = 'b')", "s3.endpoint"),
        ("EXPORT TABLE t TO 'file:///x/y' PROPERTIES ('parallelism' = '2')", "'parallelism' is not known"),
        ("EXPORT TABLE t TO 'file:///x/y' PROPERTIES ('timeout' = '0')", "number of seconds"),
        ("EXPORT TABLE t TO 'file:///x/y' PROPERTIES ('columns' = 'nothing')", "nothing"),
        ("EXPORT TABLE t WHERE k = 1; SELECT 1", "TO"),
        ("CANCEL EXPORT", "WHERE"),
    ],
)
def test_what_is_refused(session: Session, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(session, text)
    assert exports(session) == []


def test_privileges(store: Store, tmp_path: Path) -> None:
    """Files of the server need ADMIN; SELECT on the database is enough for the list."""
    store.accounts.create("ann")
    store.accounts.grant("ann", ["SELECT", "LOAD", "ALTER", "CREATE", "DROP"], "db")
    store.accounts.create("eve")
    store.accounts.grant("eve", ["LOAD"], "db")
    with Session(store, "db", user="ann") as ann, Session(store, "db", user="eve") as eve:
        for text in (f"EXPORT TABLE t TO 'file://{tmp_path}/x'", "CANCEL EXPORT WHERE LABEL = 'x'"):
            with pytest.raises(AccessDeniedError):
                run(ann, text)
        assert exports(ann) == []
        with pytest.raises(AccessDeniedError):
            exports(eve)
    assert ExportJobs(store.catalog).all() == {}
