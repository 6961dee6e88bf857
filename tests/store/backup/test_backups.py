"""Backups and restorations: every kind of table, concurrent loads, files copied once, damage, cancels."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    AlreadyExistsError,
    CorruptionError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    Session,
    Settings,
    Store,
    Table,
    UnavailableError,
)
from seqstore.store.backup import capture, runs
from seqstore.store.backup import manifest as manifests
from seqstore.store.backup.capture import Capture
from seqstore.store.backup.job import USER_CANCEL, BackupJob, TransferJob
from seqstore.store.backup.stored_backups import backup_faults, stored_backups
from seqstore.store.backup.target import Target
from seqstore.store.catalog.job_record import CANCELLED
from tests.seeds import new_seed
from tests.support.every_kind import every_kind
from tests.support.forks.forked import run_forked
from tests.support.lake.delta_reader import open_delta
from tests.support.object_store import WEED, object_store
from tests.support.rows import MakeTable, rows_of
from tests.support.statements import last_result, run
from tests.weight import by_form

SMALL = Settings(inline_bytes_max=400, segment_rows=300, auto_compaction=0)
pytestmark = pytest.mark.settings(SMALL)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "backups")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    """A store on another host, as far as the backup knows."""
    with Store.open(tmp_path / "other", settings=SMALL) as opened:
        opened.create_database("db")
        yield opened


def rows(first: int, count: int, value: str = "a") -> pa.Table:
    return pa.table({"k": list(range(first, first + count)), "v": [value] * count})


def back_up(store: Store, place: str, label: str = "daily", *tables: str, **options: Any) -> TransferJob:
    return store.backups.wait(store.backups.backup("db", label, place, tables, **options))


def restore(store: Store, place: str, label: str = "daily", **options: Any) -> TransferJob:
    return store.backups.wait(store.backups.restore("db", label, place, **options))


def everything(table: Table) -> list[tuple[Any, ...]]:
    """All rows with their hidden columns, tombstones too."""
    return rows_of(table, hidden=True, deleted=True)


def files_of(place: str) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in Path(place).rglob("*") if path.is_file())


def test_a_store_of_every_kind_comes_back(tmp_path: Path, place: str, other: Store) -> None:
    """Column groups, flexible updates, partitions, duplicate tables, sequences, views: rows, versions and
    schemas are the same, and so is what later loads make of them."""
    with every_kind(tmp_path) as made:
        back_up(made.store, place)
        restore(other, place)
        assert other.tables("db") == made.store.tables("db")
        assert other.views.of("db") == made.store.views.of("db")
        for name in other.tables("db"):
            before, after = made.store.table(f"db.{name}"), other.table(f"db.{name}")
            assert after.check() == []
            assert (after.version, after.schema.to_record()) == (before.version, before.schema.to_record())
            assert everything(after) == everything(before)
        later = pa.table({"k": [1, 2, 700], "v": ["later"] * 3})
        for store in (made.store, other):
            store.table("db.plain").upsert(later, mode="UPDATE_FIXED_COLUMNS")
            store.table("db.plain").optimize(full=True)
            store.table("db.plain").vacuum(retention_seconds=0)
        columns = ["k", "v", "n", "w"]
        found, expected = (rows_of(s.table("db.plain"), columns=columns) for s in (other, made.store))
        assert found == expected
        taken = {row[0] for row in rows_of(other.table("db.counted"))}
        other.table("db.counted").upsert(pa.table({"v": [9]}))
        assert len(rows_of(other.table("db.counted"))) == len(taken) + 1, "an id was given twice"


def test_prepared_transactions_and_labels_are_not_restored(
    store: Store, make_table: MakeTable, place: str, other: Store
) -> None:
    """What was not visible at the moment of the backup is not in it."""
    load = make_table("k BIGINT NOT NULL", "v STRING").begin_load(label="two")
    load.write(rows(0, 500))
    load.precommit()
    back_up(store, place)
    restore(other, place)
    assert other.table("db.t").count() == 0
    assert other.find_transaction("db", "two") is None
    store.commit_transaction("db", label="two")
    assert store.table("db.t").count() == 500


def test_idempotent_writers_go_on(store: Store, make_table: MakeTable, place: str, other: Store) -> None:
    """A pair of txnAppId and txnVersion that the rows have is skipped after a restoration too."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 5), txn_app_id="app", txn_version=3)
    back_up(store, place)
    restore(other, place)
    table = other.table("db.t")
    table.upsert(rows(100, 5), txn_app_id="app", txn_version=3)
    assert table.count() == 5
    table.upsert(rows(100, 5), txn_app_id="app", txn_version=4)
    assert table.count() == 10


@pytest.mark.sql(
    "CREATE TABLE shown (k BIGINT NOT NULL, v STRING) UNIQUE KEY(k) "
    'PROPERTIES ("delta.universalFormat.enabledFormats" = "delta", "open_every_seconds" = "0")'
)
def test_an_open_table_is_shown_again(store: Store, place: str, other: Store) -> None:
    """The Delta log of a restored table has the rows of its version, and of later ones."""
    store.table("db.shown").upsert(rows(0, 700))
    store.table("db.shown").delete(rows(0, 100).select(["k"]))
    back_up(store, place)
    restore(other, place)
    table = other.table("db.shown")
    for count in (600, 601):
        other.opener.wait()
        shown = open_delta(other.path / table.loader.directory)
        assert (shown.shown, shown.read().num_rows) == (table.version, count)
        table.upsert(rows(5000, 1))


def test_backups_under_loads_are_of_one_version_of_all_tables(store: Store, place: str, other: Store) -> None:
    """Transactions write two tables; each backup has both as of one of them, as a dictionary says."""
    seed = new_seed()
    print(f"seed {seed}")
    chosen = random.Random(seed)
    with Session(store, "db") as session:
        for name in ("one", "two"):
            run(session, f"CREATE TABLE {name} (k BIGINT NOT NULL, v STRING) UNIQUE KEY(k)")
    model: dict[int, dict[int, str]] = {1: {}}  # rows of both tables by their version
    ended, begun = threading.Event(), threading.Event()

    def load() -> None:
        current: dict[int, str] = {}
        number = 1
        while not ended.is_set():
            number += 1
            keys = chosen.sample(range(2000), 350)
            with store.transaction() as transaction:
                for name in ("one", "two"):
                    batch = pa.table({"k": keys, "v": [f"v{number}"] * len(keys)})
                    transaction.table(f"db.{name}").upsert(batch)
                current = {**current, **dict.fromkeys(keys, f"v{number}")}
                model[number] = current
                transaction.commit()
            begun.set()

    loader = threading.Thread(target=load)
    loader.start()
    try:
        begun.wait()
        jobs = [back_up(store, place, f"b{i}") for i in range(by_form(3, 12))]
    finally:
        ended.set()
        loader.join()
    for job in jobs:
        restore(other, place, job.label, replace_tables=True)
        one, two = other.table("db.one"), other.table("db.two")
        assert one.version == two.version
        assert dict(rows_of(one)) == dict(rows_of(two)) == model[one.version]
        assert one.check() == two.check() == []
    assert backup_faults(place) == []


def test_only_new_files_are_copied(store: Store, make_table: MakeTable, place: str) -> None:
    """A second backup copies the files of the loads since the first, and one without loads copies nothing."""
    table = make_table("k BIGINT NOT NULL", "v STRING")
    table.upsert(rows(0, 900))
    first = back_up(store, place)
    assert first.files_copied == first.files == len(files_of(place)) - 1
    again = back_up(store, place)
    assert (again.files, again.files_copied, again.bytes_copied) == (first.files, 0, 0)
    table.upsert(rows(5000, 200))
    more = back_up(store, place)
    assert (more.files, more.files_copied) == (first.files + 2, 2)
    assert [each.files for each in stored_backups(place)] == [first.files, first.files, more.files]


def test_a_cut_file_is_copied_again(store: Store, make_table: MakeTable, place: str) -> None:
    """A file whose size is another one counts as missing."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    back_up(store, place)
    victim = Path(place) / next(name for name in files_of(place) if name.startswith("files/"))
    victim.write_bytes(victim.read_bytes()[:-1])
    assert back_up(store, place).files_copied == 1
    assert backup_faults(place) == []


def test_verify_copies_damaged_files_again(store: Store, make_table: MakeTable, place: str) -> None:
    """Without it a damaged file of the right size is found by `backup_faults` only."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    back_up(store, place)
    for name in files_of(place):
        if name.startswith("files/"):
            _flip(Path(place) / name, 77)
    assert back_up(store, place).files_copied == 0
    assert len(backup_faults(place)) == len(files_of(place)) - 2
    job = back_up(store, place, verify=True)
    assert job.files_copied == job.files
    assert backup_faults(place) == []


def _flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    path.write_bytes(data)


def test_a_flipped_bit_in_any_file_is_found(
    store: Store, make_table: MakeTable, place: str, other: Store
) -> None:
    """By verification and by RESTORE, which leaves neither tables nor files."""
    seed = new_seed()
    print(f"seed {seed}")
    chosen = random.Random(seed)
    table = make_table("k BIGINT NOT NULL", "v STRING")
    table.upsert(rows(0, 900))
    table.delete(rows(0, 100).select(["k"]))
    table.upsert(rows(3, 2))  # inline: in the manifest
    back_up(store, place)
    for name in files_of(place):
        path = Path(place) / name
        whole = path.read_bytes()
        bits = {0, len(whole) * 8 - 1, *(chosen.randrange(len(whole) * 8) for _ in range(by_form(3, 40)))}
        for bit in bits:
            _flip(path, bit)
            faults = backup_faults(place)
            assert any(name.rpartition("/")[2] in fault for fault in faults), (name, bit)
            with pytest.raises((CorruptionError, UnavailableError)) as caught:
                restore(other, place)
            assert path.name in str(caught.value) or "checksum" in str(caught.value), (name, bit)
            path.write_bytes(whole)
        path.unlink()
        assert backup_faults(place)
        with pytest.raises((CorruptionError, UnavailableError, NotFoundError)):
            restore(other, place)
        path.write_bytes(whole)
    assert other.tables("db") == []
    assert [each for each in (other.path / "tables").rglob("*") if each.is_file()] == []
    restore(other, place)
    assert everything(other.table("db.t")) == everything(table)


def test_a_damaged_source_is_not_backed_up(store: Store, make_table: MakeTable, place: str) -> None:
    """A file that does not match the catalog's checksums ends the backup, which is absent then."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    _flip(next((store.path / "tables").rglob("*.arrow")), 12345)
    with pytest.raises(UnavailableError, match="damaged"):
        back_up(store, place)
    assert stored_backups(place) == []


def test_vacuum_keeps_what_a_running_backup_copies(store: Store, make_table: MakeTable) -> None:
    """Files of the versions of a backup stay until it has ended, through a compaction and a vacuum."""
    table = make_table("k BIGINT NOT NULL", "v STRING")
    table.upsert(rows(0, 900))
    capture = Capture(store.catalog, "db", "label", (), is_excluding=False)
    names = [capture.directories["t"] + file.ending for file in capture.manifest.tables[0].files]
    for number in range(3):
        table.upsert(rows(0, 900, f"v{number}"))
    table.optimize(full=True)
    table.vacuum(retention_seconds=0)
    assert all(store.disk.exists(name) for name in names)
    capture.close()
    table.vacuum(retention_seconds=0)
    assert not any(store.disk.exists(name) for name in names)


class _Pause:
    """Stops a job before its n-th file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str, number: int) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._left = number
        self._step = getattr(runs, step)
        monkeypatch.setattr(runs, step, self)

    def __call__(self, *arguments: Any) -> Any:
        self._left -= 1
        if not self._left:
            self.reached.set()
            self.go_on.wait()
        return self._step(*arguments)


def test_a_cancelled_backup_leaves_nothing(
    store: Store, make_table: MakeTable, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files go, but for those of other backups."""
    table = make_table("k BIGINT NOT NULL", "v STRING")
    table.upsert(rows(0, 500))
    back_up(store, place, "first")
    before = files_of(place)
    table.upsert(rows(5000, 900))
    pause = _Pause(monkeypatch, "upload", 3)
    job_id = store.backups.backup("db", "second", place)
    pause.reached.wait()
    assert len(files_of(place)) == len(before) + 2
    with pytest.raises(InvalidInputError, match="Can only run one"):
        store.backups.backup("db", "third", place)
    assert store.backups.cancel("db") == job_id
    pause.go_on.set()
    with pytest.raises(UnavailableError, match=USER_CANCEL):
        store.backups.wait(job_id)
    assert store.backups.job(job_id).state == CANCELLED
    assert files_of(place) == before
    with pytest.raises(InvalidInputError, match="There is no backup job"):
        store.backups.cancel("db")


def test_a_backup_waits_until_a_cancelled_one_has_removed_its_files(
    store: Store, make_table: MakeTable, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would count files as there that are about to go."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    upload, removal = _Pause(monkeypatch, "upload", 3), _Pause(monkeypatch, "remove_unused", 1)
    job_id = store.backups.backup("db", "first", place)
    upload.reached.wait()
    store.backups.cancel("db")
    upload.go_on.set()
    removal.reached.wait()
    with pytest.raises(InvalidInputError, match="is CANCELLED, and still removes its files"):
        store.backups.backup("db", "second", place)
    removal.go_on.set()
    with pytest.raises(UnavailableError, match=USER_CANCEL):
        store.backups.wait(job_id)
    assert back_up(store, place, "second").files_copied > 0
    assert backup_faults(place) == []


def test_a_backup_whose_files_are_removed_again_and_again_fails(
    store: Store, make_table: MakeTable, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    sizes = Target.sizes

    def without_one(target: Target, directory: str) -> dict[str, int]:
        found = sizes(target, directory)
        return dict(sorted(found.items())[1:]) if directory == "files" else found

    monkeypatch.setattr(Target, "sizes", without_one)
    with pytest.raises(UnavailableError, match="1 of 6 files were removed again"):
        back_up(store, place)
    monkeypatch.undo()
    assert stored_backups(place) == []


def test_backups_of_two_databases_into_one_place_do_not_disturb_each_other(
    store: Store, make_table: MakeTable, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first writes a file."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    store.create_database("db2")
    (Path(place) / "files").mkdir(parents=True)
    being_written = Path(place) / "files" / "x.arrow.0.part"
    being_written.write_bytes(b"so far")
    left = Path(place) / "files" / "y.arrow.0.part"
    left.write_bytes(b"of a killed writer")
    os.utime(left, (0, 0))
    back_up(store, place)
    assert being_written.exists()
    assert not left.exists()


@pytest.mark.family(5)
@pytest.mark.parametrize("name", ["../1/x", "../../../outside", "/tmp/x", "0", "."])
@pytest.mark.parametrize("field", ["id", "file", "home"])
def test_a_manifest_with_odd_names_of_files_restores_nothing(
    store: Store, make_table: MakeTable, place: str, other: Store, field: str, name: str
) -> None:
    """Whoever can write to the place could have files written anywhere, and those of others replaced."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    back_up(store, place)
    (path,) = (Path(place) / "manifests").iterdir()
    manifest = manifests.unpack(path.name, path.read_bytes())
    (table,) = manifest.tables
    segments = tuple((created, {**meta, field: name}) for created, meta in table.segments)
    path.write_bytes(replace(manifest, tables=(replace(table, segments=segments),)).pack())
    before = sorted(other.path.rglob("*"))
    with pytest.raises(CorruptionError, match="that is no name of a segment"):
        restore(other, place)
    assert sorted(other.path.rglob("*")) == before


def test_a_cancelled_restoration_leaves_nothing(
    store: Store, make_table: MakeTable, place: str, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither tables nor files; a table that it would replace stays as it is."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    back_up(store, place)
    restore(other, place)
    kept = everything(other.table("db.t"))
    files = sorted((other.path / "tables").rglob("*.*"))
    pause = _Pause(monkeypatch, "download", 3)
    job_id = other.backups.restore("db", "daily", place, replace_tables=True)
    pause.reached.wait()
    other.backups.cancel("db", restores=True)
    pause.go_on.set()
    with pytest.raises(UnavailableError, match=USER_CANCEL):
        other.backups.wait(job_id)
    assert everything(other.table("db.t")) == kept
    assert sorted((other.path / "tables").rglob("*.*")) == files


def test_another_opening_keeps_the_files_of_a_restoration(
    store: Store, make_table: MakeTable, place: str, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sweep finds files of tables that the catalog does not name yet."""
    table = make_table("k BIGINT NOT NULL", "v STRING")
    table.upsert(rows(0, 900))
    back_up(store, place)
    pause = _Pause(monkeypatch, "download", 3)
    job_id = other.backups.restore("db", "daily", place)
    pause.reached.wait()
    code = "import sys; from seqstore import Store; Store.open(sys.argv[1]).close()"
    run_forked("-c", code, str(other.path)).check_returncode()
    pause.go_on.set()
    other.backups.wait(job_id)
    assert other.table("db.t").check() == []
    assert everything(other.table("db.t")) == everything(table)


def test_a_closed_handle_leaves_its_job_to_the_next(
    store: Store, make_table: MakeTable, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no attempt, and what was copied is not copied again."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    pause = _Pause(monkeypatch, "upload", 3)
    job_id = store.backups.backup("db", "daily", place)
    pause.reached.wait()
    closing = threading.Thread(target=store.close)
    closing.start()
    while not store.backups.is_closing:
        closing.join(0.01)
    pause.go_on.set()
    closing.join()
    assert stored_backups(place) == []
    with Store.open(store.path, settings=SMALL) as again:
        job = again.backups.wait(job_id)
    assert (job.attempts, job.files_copied) == (1, job.files - 2)


def test_a_late_backup_is_cancelled(
    store: Store, make_table: MakeTable, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The property timeout counts from the submission."""
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 900))
    monkeypatch.setattr(
        BackupJob, "is_late", property(lambda job: job.files_done > 0 or bool(job.snapshot_ms))
    )
    with pytest.raises(UnavailableError, match="timeout"):
        back_up(store, place)
    assert files_of(place) == []


def test_restored_tables_take_new_names_or_places(store: Store, make_table: MakeTable, place: str) -> None:
    """A name in use is refused; with `replace_tables` the table is another one from one commit on."""
    table = make_table("k BIGINT NOT NULL", "v STRING")
    table.upsert(rows(0, 500))
    back_up(store, place)
    table.upsert(rows(0, 600, "later"))
    with pytest.raises(AlreadyExistsError, match="atomic_restore"):
        restore(store, place)
    restore(store, place, tables={"t": "copy"})
    assert {row[1] for row in rows_of(store.table("db.copy"))} == {"a"}
    assert store.table("db.t").count() == 600
    old = store.table("db.t").loader.directory
    restore(store, place, replace_tables=True)
    assert rows_of(store.table("db.t")) == rows_of(store.table("db.copy"))
    assert store.disk.list(old) == []
    with pytest.raises(NotFoundError, match="no table 'nothing'"):
        restore(store, place, tables={"nothing": "x"})
    with pytest.raises(NotFoundError, match="no table 'copy'"):
        restore(store, place, exclude=["copy"])
    back_up(store, place)
    with pytest.raises(InvalidInputError, match="one name"):
        restore(store, place, tables={"t": "x", "copy": "x"})


@pytest.mark.sql(
    "CREATE TABLE t (k BIGINT NOT NULL, v STRING) UNIQUE KEY(k); CREATE VIEW w AS SELECT k FROM t"
)
def test_views_stay_in_their_database(store: Store, place: str, other: Store) -> None:
    """The text of a view names its tables with their database, so another one cannot have it."""
    back_up(store, place)
    other.create_database("elsewhere")
    with pytest.raises(InvalidInputError, match="EXCLUDE"):
        other.backups.restore("elsewhere", "daily", place)
    other.backups.wait(other.backups.restore("elsewhere", "daily", place, exclude=["w"]))
    assert other.tables("elsewhere") == ["t"]
    restore(other, place)
    with Session(other, "db") as session:
        assert last_result(session, "SELECT count(*) FROM w").rows is not None


def test_a_label_may_have_several_backups(
    store: Store, make_table: MakeTable, place: str, other: Store
) -> None:
    """The newest one is restored unless a timestamp is named."""
    table = make_table("k BIGINT NOT NULL", "v STRING")
    stamps = []
    for count in (1, 2, 3):
        table.upsert(rows(0, count))
        stamps.append(back_up(store, place).timestamp)
    assert [each.timestamp for each in stored_backups(place)] == stamps
    restore(other, place)
    assert other.table("db.t").count() == 3
    restore(other, place, replace_tables=True, timestamp=stamps[1])
    assert other.table("db.t").count() == 2
    with pytest.raises(NotFoundError, match="has no backup 'daily' at '2020'"):
        restore(other, place, timestamp="2020")


@pytest.mark.parametrize("hours", [-9, -25, 9])
def test_the_newest_backup_is_the_newest_by_its_time_and_not_by_its_text(
    store: Store, make_table: MakeTable, place: str, other: Store, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The second host is in another time zone than the first."""
    table = make_table("k BIGINT NOT NULL", "v STRING")
    back_up(store, place)
    table.upsert(rows(0, 2))
    text_of = manifests.timestamp_of
    monkeypatch.setattr(capture, "timestamp_of", lambda ms: text_of(ms + hours * 3_600_000))
    back_up(store, place)
    restore(other, place)
    assert other.table("db.t").count() == 2


def test_files_that_others_put_beside_manifests_are_left_alone(
    store: Store, make_table: MakeTable, place: str, other: Store
) -> None:
    make_table("k BIGINT NOT NULL", "v STRING").upsert(rows(0, 2))
    back_up(store, place)
    for name in (".DS_Store", "notes", "a..b", "x.part"):
        (Path(place) / "manifests" / name).write_bytes(b"x")
    assert [each.label for each in stored_backups(place)] == ["daily"]
    assert backup_faults(place) == []
    restore(other, place)
    assert other.table("db.t").count() == 2


def test_a_label_of_several_databases_is_not_mixed_up(store: Store, place: str, other: Store) -> None:
    """A database of the same name goes before the newest; among others the choice is the user's."""
    for database in ("db", "db2"):
        store.create_database(database, if_not_exists=True)
        with Session(store, database) as session:
            run(session, f"CREATE TABLE of_{database} (k INT NOT NULL) UNIQUE KEY(k)")
        store.backups.wait(store.backups.backup(database, "daily", place))
    restore(other, place)
    assert other.tables("db") == ["of_db"]
    other.create_database("db3")
    with pytest.raises(InvalidInputError, match="databases db, db2"):
        other.backups.restore("db3", "daily", place)


@pytest.mark.parametrize(
    ("uri", "message"),
    [("relative/path", "absolute"), ("/x/../y", "absolute"), ("nosuch://x", "cannot be used")],
)
def test_places_that_cannot_be(store: Store, make_table: MakeTable, uri: str, message: str) -> None:
    make_table("k BIGINT NOT NULL", "v STRING")
    with pytest.raises((InvalidInputError, UnavailableError), match=message):
        back_up(store, uri)


def test_a_place_in_the_data_directory_is_refused(store: Store, make_table: MakeTable) -> None:
    make_table("k BIGINT NOT NULL", "v STRING")
    with pytest.raises(InvalidInputError, match="data directory"):
        back_up(store, str(store.path / "tables" / "x"))


def test_a_backup_of_a_newer_program_is_refused(
    store: Store, make_table: MakeTable, place: str, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table("k BIGINT NOT NULL", "v STRING")
    monkeypatch.setattr(manifests, "FORMAT", 2)
    back_up(store, place)
    monkeypatch.undo()
    with pytest.raises(FormatError, match="newer program"):
        restore(other, place)
    assert "newer program" in stored_backups(place)[0].error


def test_unknown_tables_and_databases(store: Store, place: str) -> None:
    with pytest.raises(NotFoundError, match=r"db\.nothing"):
        back_up(store, place, "daily", "nothing")
    with pytest.raises(NotFoundError, match="Unknown database"):
        store.backups.backup("nothing", "daily", place)
    with pytest.raises(NotFoundError, match="has no backup"):
        restore(store, place)


@pytest.mark.long
@pytest.mark.skipif(not WEED.exists(), reason="needs the object store of the extra test")
def test_an_object_store_holds_backups(tmp_path: Path, place: str) -> None:
    """Backups of a store whose segments are objects, on another prefix; no record has their keys."""
    weed = tmp_path / "weed"
    weed.mkdir()
    with object_store(weed) as uri:
        place = uri.format("backups")
        with Store.open(tmp_path / "data", settings=SMALL, segments=uri.format("segments")) as store:
            store.create_database("db")
            with Session(store, "db") as session:
                run(session, "CREATE TABLE t (k BIGINT NOT NULL, v STRING) UNIQUE KEY(k)")
            table = store.table("db.t")
            table.upsert(rows(0, 900))
            first = back_up(store, place)
            assert first.files_copied == first.files > 0
            assert back_up(store, place).files_copied == 0
            expected = everything(table)
            raw = b"".join(path.read_bytes() for path in (store.path / "catalog").iterdir())
            assert b"any:any@tests/backups" not in raw
        assert backup_faults(place) == []
        with Store.open(tmp_path / "local", settings=SMALL) as local:
            local.create_database("db")
            restore(local, place)
            assert everything(local.table("db.t")) == expected
        with Store.open(tmp_path / "remote", settings=SMALL, segments=uri.format("others")) as remote:
            remote.create_database("db")
            restore(remote, place)
            assert remote.table("db.t").check() == []
            assert pc.sum(remote.table("db.t").scan(["k"]).read_all()["k"]).as_py() == sum(range(900))
