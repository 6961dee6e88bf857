"""Processes that are killed while they back up or restore: the next opening goes on, or nothing was there."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import NotFoundError, Settings, Store
from seqstore.store.backup.job import ATTEMPTS_MAX, FINISHED
from seqstore.store.backup.stored_backups import backup_faults, stored_backups
from seqstore.store.catalog.job_record import CANCELLED
from tests.support.faults.dying_child import run_until_dead
from tests.support.rows import rows_of, schema_of

pytestmark = pytest.mark.crash
SMALL = Settings(inline_bytes_max=400, segment_rows=300, auto_compaction=0)
BACKUP = """
import sys
from seqstore import Settings, Store
store = Store.open(sys.argv[1])
print("ready", flush=True)
store.backups.wait(store.backups.backup("db", "daily", sys.argv[1] + ".backups"))
"""
RESTORE = BACKUP.replace(".backup(", ".restore(").replace('".backups")', '".backups", replace_tables=True)')
GO_ON = """
import sys
from seqstore import Settings, Store
print("ready", flush=True)
store = Store.open(sys.argv[1])
store.backups.join()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with Store.open(path, settings=SMALL) as store:
        store.create_database("db")
        for name in ("t", "u"):
            table = store.create_table(f"db.{name}", schema_of("k BIGINT NOT NULL", "v STRING"))
            table.upsert(pa.table({"k": list(range(900)), "v": ["a"] * 900}))
            table.delete(pa.table({"k": list(range(100))}))
    return path


@pytest.mark.parametrize("point", ["backup.copied", "backup.copied:3", "backup.files"])
def test_a_killed_backup_is_absent_and_goes_on(directory: Path, point: str) -> None:
    """There is no manifest; the next opening copies only what is missing."""
    place = f"{directory}.backups"
    run_until_dead(BACKUP, directory, 0, failpoint=point)
    assert stored_backups(place) == []
    there = len(list(Path(place, "files").iterdir()))
    with Store.open(directory, settings=SMALL) as store:
        job = store.backups.wait(next(iter(store.backups.backups("db"))))
        assert (job.state, job.attempts) == (FINISHED, 2)
        assert job.files_copied == job.files - there
    assert [each.error for each in stored_backups(place)] == [""]
    assert backup_faults(place) == []


def test_a_kill_behind_the_manifest_makes_no_second_backup(directory: Path) -> None:
    """The job ends as what it made."""
    place = f"{directory}.backups"
    run_until_dead(BACKUP, directory, 0, failpoint="backup.manifest")
    with Store.open(directory, settings=SMALL) as store:
        job = store.backups.wait(next(iter(store.backups.backups("db"))))
        assert job.state == FINISHED
    assert [each.timestamp for each in stored_backups(place)] == [job.timestamp]


def at_one_moment(store: Store) -> tuple[object, object]:
    """The rows of both tables; a table that was restored after the moment is none of it."""
    while True:
        with store.snapshot() as moment, suppress(NotFoundError):
            return rows_of(moment.table("db.t")), rows_of(moment.table("db.u"))


@pytest.mark.parametrize(
    "point", ["restore.copied", "restore.copied:3", "restore.files", "restore.installed", "disk.written:2"]
)
def test_a_killed_restoration_goes_on(directory: Path, point: str) -> None:
    """Tables change at one commit; files of killed attempts are used, or removed."""
    place = f"{directory}.backups"
    with Store.open(directory, settings=SMALL) as store:
        store.backups.wait(store.backups.backup("db", "daily", place))
        expected = rows_of(store.table("db.t"))
        for name in ("t", "u"):
            store.table(f"db.{name}").upsert(pa.table({"k": [5], "v": ["later"]}))
        later = rows_of(store.table("db.t"))
    run_until_dead(RESTORE, directory, 0, failpoint=point)
    with Store.open(directory, settings=SMALL) as store:
        before, other = at_one_moment(store)  # the job goes on meanwhile
        assert before == other
        assert before in (expected, later)
        job = store.backups.wait(next(iter(store.backups.restores("db"))))
        assert job.state == FINISHED
        for name in ("t", "u"):
            table = store.table(f"db.{name}")
            assert rows_of(table) == expected
            assert table.check() == []
    with Store.open(directory, settings=SMALL) as store:  # the opening sweeps
        named = {store.table(f"db.{name}").loader.directory for name in ("t", "u")}
        found = {f"tables/{path.parent.name}" for path in (directory / "tables").glob("*/*")}
        assert found == named


def test_a_job_that_ends_every_process_is_cancelled(directory: Path) -> None:
    """After some attempts it does not run again, and its files are swept."""
    place = f"{directory}.backups"
    with Store.open(directory, settings=SMALL) as store:
        store.backups.wait(store.backups.backup("db", "daily", place))
    run_until_dead(RESTORE, directory, 0, failpoint="restore.files")
    for _ in range(ATTEMPTS_MAX - 1):
        run_until_dead(GO_ON, directory, 0, failpoint="restore.files")
    with Store.open(directory, settings=SMALL) as store:
        job = next(iter(store.backups.restores("db").values()))
        assert job.state == CANCELLED
        assert "3 times" in job.message
    with Store.open(directory, settings=SMALL):
        assert len([path for path in (directory / "tables").iterdir() if any(path.iterdir())]) == 2
