"""`seqstore repair --from` a place of backups: what the catalog and the disk have lost and a backup has."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Session, Settings, Store, UnavailableError
from seqstore.store.repair.repair import repair
from seqstore.store.repair.report import RepairReport
from tests.seeds import new_seed
from tests.support.faults.flipped_catalog import PAGE_BYTES
from tests.support.forks.forked import run_forked
from tests.support.rows import rows_of
from tests.support.statements import run
from tests.weight import by_form

# A hundred rows become files, fewer stay in the catalog.
SMALL = Settings(inline_bytes_max=600, auto_compaction=0, catalog_bytes_max=2**26)
FILES_ONLY = Settings(inline_bytes_max=0, auto_compaction=0, catalog_bytes_max=2**26)
MODELS = by_form(4, 30)
TABLE = "CREATE TABLE t (k BIGINT NOT NULL, v STRING) UNIQUE KEY(k)"
Model = dict[int, str]


def opened(path: Path, settings: Settings = SMALL) -> Store:
    return Store.open(path, settings=settings)


def make(path: Path, *statements: str) -> None:
    with opened(path) as store, Session(store) as session:
        run(session, "CREATE DATABASE IF NOT EXISTS db; USE db")
        for statement in statements:
            run(session, statement)


def load(path: Path, keys: range, value: str, name: str = "db.t", settings: Settings = FILES_ONLY) -> None:
    with opened(path, settings) as store:
        store.table(name).upsert(pa.table({"k": list(keys), "v": [value] * len(keys)}))


def back_up(path: Path, label: str = "daily") -> str:
    place = str(path.with_name("backups"))
    with opened(path) as store:
        store.backups.wait(store.backups.backup("db", label, place))
    return place


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with Store.open(path, create=False, settings=SMALL) as store:
        for name in store.tables("db"):
            assert store.table(f"db.{name}").check() == []
        return {name: rows_of(store.table(f"db.{name}")) for name in store.tables("db")}


def told(report: RepairReport) -> str:
    return "\n".join(report.lines())


def without_catalog(path: Path) -> Path:
    """A copy that no process has opened, without its catalog."""
    lost = shutil.copytree(path, path.with_name("lost"), ignore=shutil.ignore_patterns("catalog"))
    (lost / "catalog").mkdir()
    return lost


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_rows_and_deletes_of_small_loads_are_from_the_backup(path: Path) -> None:
    """Without it they were lost with the catalog; later files are added to what it has."""
    make(
        path,
        TABLE,
        "CREATE VIEW w AS SELECT k FROM t",
        "INSERT INTO t VALUES (1, 'small'), (2, 'small')",
        "DELETE FROM t WHERE k = 2",
    )
    load(path, range(10, 200), "file")
    make(path, "USE db; DELETE FROM t WHERE k >= 100")
    place = back_up(path)
    load(path, range(50, 60), "later")
    expected = contents(path)
    path = without_catalog(path)
    report = repair(path, copy=place)
    assert contents(path) == expected, told(report)
    assert "its records are from the backup db.daily of" in told(report)
    assert "users, jobs and labels are in no backup" in told(report)
    with opened(path) as store:
        assert store.views.of("db")


def test_a_table_that_had_no_file_is_from_the_backup(path: Path) -> None:
    make(path, TABLE, "INSERT INTO t VALUES (1, 'a')", TABLE.replace("TABLE t", "TABLE u"))
    expected, place = contents(path), back_up(path)
    path = without_catalog(path)
    report = repair(path, copy=place)
    assert contents(path) == expected, told(report)
    for name in ("db.t", "db.u"):
        assert f"{name} is matched with the backup by its name alone" in told(report)


def test_a_table_that_has_a_file_of_the_backup_is_matched_by_it(path: Path) -> None:
    """Its name may be another one meanwhile, and nothing is said about it."""
    make(path, TABLE)
    load(path, range(80), "file")
    place = back_up(path)
    report = repair(without_catalog(path), copy=place)
    assert "by its name alone" not in told(report)


def test_the_newest_backup_of_a_table_counts(path: Path) -> None:
    make(path, TABLE, "INSERT INTO t VALUES (1, 'old')")
    back_up(path)
    make(path, "USE db; INSERT INTO t VALUES (1, 'new')")
    expected, place = contents(path), back_up(path)
    path = without_catalog(path)
    repair(path, copy=place)
    assert contents(path) == expected


def test_lost_files_are_from_the_backup(path: Path) -> None:
    """Beside a damaged catalog; a cut file is kept in the trash."""
    make(path, TABLE)
    for first in (0, 100, 200):
        load(path, range(first, first + 80), f"v{first}")
    expected, place = contents(path), back_up(path)
    path = shutil.copytree(path, path.with_name("lost"))
    keys = sorted(path.glob("tables/*/*.keys"))
    keys[0].unlink()
    data = keys[1].with_suffix(".arrow")
    data.write_bytes(data.read_bytes()[:-9])
    flipped = bytearray((path / "catalog" / "data.mdb").read_bytes())
    flipped[2 * PAGE_BYTES + 3] ^= 2
    (path / "catalog" / "data.mdb").write_bytes(bytes(flipped[: len(flipped) // 2]))
    dry = repair(path, copy=place, dry_run=True)
    assert "2 lost files are from the backup" in told(dry)
    assert not keys[0].exists()
    report = repair(path, copy=place)
    assert contents(path) == expected, told(report)
    assert list(path.glob(f"trash/*/{data.name}"))


def test_files_that_a_later_compaction_has_replaced_stay_away(path: Path) -> None:
    """Rows that were deleted before it would be back: their tombstones are gone."""
    make(path, f"{TABLE} PROPERTIES ('tombstone_retention_seconds' = '0')")
    for first in (0, 100):
        load(path, range(first, first + 80), "v")
    place = back_up(path)
    make(path, "USE db; DELETE FROM t WHERE k < 50")
    with opened(path) as store:
        table = store.table("db.t")
        table.optimize(full=True)
        table.purge()
        table.vacuum(retention_seconds=0)
    expected = contents(path)
    shutil.rmtree(path / "trash", ignore_errors=True)
    path = without_catalog(path)
    report = repair(path, copy=place)
    assert contents(path) == expected, told(report)


def test_segments_that_were_dropped_before_the_backup_stay_away(path: Path) -> None:
    """Their files wait for the retention of versions, and no record names them any more."""
    make(path, TABLE)
    load(path, range(80), "first")
    load(path, range(70), "second")
    make(path, "USE db; DELETE FROM t WHERE k < 60")
    with opened(path) as store:
        store.table("db.t").optimize(full=True)
        store.table("db.t").purge()
    expected, place = contents(path), back_up(path)
    assert len(list(path.glob("tables/*/*.keys"))) > 2
    path = without_catalog(path)
    report = repair(path, copy=place)
    assert contents(path) == expected
    assert "segments that were begun before the backup and are not in it are left out" in told(report)


def test_a_table_that_was_dropped_since_stays_away(path: Path) -> None:
    """The catalog still tells which tables there are; one made anew under the name has its own rows."""
    make(path, TABLE, "INSERT INTO t VALUES (1, 'old')", TABLE.replace("TABLE t", "TABLE gone"))
    place = back_up(path)
    make(path, "USE db; DROP TABLE t; DROP TABLE gone", TABLE, "INSERT INTO t VALUES (2, 'new')")
    expected = contents(path)
    path = shutil.copytree(path, path.with_name("lost"))
    (path / "catalog" / "data.mdb").write_bytes(_with_a_damaged_record(path))
    report = repair(path, copy=place)
    assert report.fault
    assert contents(path) == expected, told(report)


def _with_a_damaged_record(path: Path) -> bytes:
    """The data file with wrong bytes in the records of loads, whose checksums fail then."""
    return (path / "catalog" / "data.mdb").read_bytes().replace(b"INSERT", b"inSERT")


@pytest.mark.parametrize("number", range(MODELS))
def test_random_work_around_a_backup(path: Path, number: int) -> None:
    """Small loads and compactions before it, files behind it: rows are those of a dictionary."""
    seed = new_seed()
    print(f"seed {seed}")
    drawn = random.Random(seed)
    make(path, TABLE)
    model: Model = {}

    def work(steps: int, settings: Settings, value: str) -> None:
        with opened(path, settings) as store:
            table = store.table("db.t")
            for step in range(steps):
                keys = drawn.sample(range(60), drawn.randint(1, 40))
                kind = drawn.choice(("upsert", "upsert", "delete", "optimize"))
                if kind == "optimize":
                    table.optimize(full=True)
                elif kind == "delete":
                    table.delete(pa.table({"k": keys}))
                    for key in keys:
                        model.pop(key, None)
                else:
                    table.upsert(pa.table({"k": keys, "v": [f"{value}{step}"] * len(keys)}))
                    model.update(dict.fromkeys(keys, f"{value}{step}"))

    work(12, drawn.choice((SMALL, FILES_ONLY)), "before")
    place = back_up(path)
    work(number % 4 * 3, FILES_ONLY, "after")
    path = without_catalog(path)
    report = repair(path, copy=place)
    assert dict(contents(path)["t"]) == model, f"seed {seed}: {told(report)}"


def test_the_command_takes_a_place_of_backups(path: Path) -> None:
    make(path, TABLE, "INSERT INTO t VALUES (1, 'a')")
    expected, place = contents(path), back_up(path)
    path = without_catalog(path)
    done = run_forked("-m", "seqstore", "repair", str(path), "--from", place)
    assert (done.returncode, "from the backup db.daily" in done.stdout) == (0, True), done.stderr
    assert contents(path) == expected


@pytest.mark.long
def test_a_place_that_cannot_be_read_is_named(path: Path) -> None:
    make(path, TABLE)
    path = without_catalog(path)
    with pytest.raises(UnavailableError, match=r"s3://none"):
        repair(path, copy="s3://none/of?endpoint_override=127.0.0.1:1&scheme=http&region=x")


def test_a_damaged_manifest_is_left_out_and_named(path: Path) -> None:
    make(path, TABLE, "INSERT INTO t VALUES (1, 'a')")
    expected, place = contents(path), back_up(path)
    (manifest,) = Path(place, "manifests").iterdir()
    Path(place, "manifests", manifest.name.replace("daily", "other")).write_bytes(manifest.read_bytes()[:-1])
    path = without_catalog(path)
    report = repair(path, copy=place)
    assert "a backup is left out" in told(report)
    assert contents(path) == expected
