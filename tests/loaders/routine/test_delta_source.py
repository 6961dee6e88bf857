"""CREATE ROUTINE LOAD .. FROM DELTA: a table that follows a Delta table, commit by commit."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from seqstore import AccessDeniedError, InvalidInputError, Store
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.job_runner import JobRunner
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.open_source import open_source
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.store.sql import Session
from tests.loaders.lake.delta_writer import HandMade, field
from tests.seeds import new_seed
from tests.support.statements import dicts, run
from tests.weight import by_form

pytestmark = pytest.mark.sql(
    "CREATE TABLE t (k BIGINT NOT NULL, v VARCHAR(20) NULL) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)"
)
K = field("k", "long", nullable=False)
V = field("v", "string")
FEED = {"delta.enableChangeDataFeed": "true"}


def pairs(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.table(
        {"k": pa.array([k for k, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.string())}
    )


def changes(*rows: tuple[int, str, str]) -> pa.Table:
    return pairs(*((k, v) for k, v, _ in rows)).append_column("_change_type", pa.array([c for *_, c in rows]))


def follow(session: Session, root: Path, more: str = "", clauses: str = "") -> None:
    dicts(session, f"CREATE ROUTINE LOAD job ON t {clauses} FROM DELTA ('path' = '{root}' {more})")


def drain(store: Store) -> RoutineJob:
    (job,) = RoutineRunner(store).drain().values()
    return job


def stored(session: Session) -> dict[int, Any]:
    return dict(run(session, "SELECT k, v FROM t"))


def live(root: Path) -> dict[int, Any]:
    found = QueryBuilder().register("d", DeltaTable(root)).execute("SELECT k, v FROM d").read_all()
    return {row["k"]: row["v"] for row in pa.table(found).to_pylist()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "in" / "d"


@pytest.fixture
def delta(root: Path) -> Path:
    """A table of delta-rs of two rows, without a change data feed."""
    write_deltalake(root, pairs((1, "a"), (2, "b")))
    return root


@pytest.fixture(params=["with feed", "without feed"])
def any_delta(request: pytest.FixtureRequest, root: Path) -> Path:
    feed = FEED if request.param == "with feed" else {}
    write_deltalake(root, pairs((1, "a"), (2, "b")), configuration=feed)
    return root


def test_a_job_begins_with_all_rows_and_follows(store: Store, session: Session, any_delta: Path) -> None:
    follow(session, any_delta)
    assert drain(store).progress == {"0": 1}
    assert stored(session) == {1: "a", 2: "b"}
    write_deltalake(any_delta, pairs((3, "c"), (4, None)), mode="append")
    DeltaTable(any_delta).update(updates={"v": "'B'"}, predicate="k = 2")
    DeltaTable(any_delta).delete("k = 1")
    assert drain(store).progress == {"0": 4}
    assert stored(session) == {2: "B", 3: "c", 4: None} == live(any_delta)


def test_a_merge_and_an_overwrite_are_followed(store: Store, session: Session, any_delta: Path) -> None:
    follow(session, any_delta)
    drain(store)
    (
        DeltaTable(any_delta)
        .merge(pairs((2, "merged"), (9, "new"), (1, "gone")), "t.k = s.k", source_alias="s", target_alias="t")
        .when_matched_delete("s.v = 'gone'")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    drain(store)
    assert stored(session) == {2: "merged", 9: "new"} == live(any_delta)
    write_deltalake(any_delta, pairs((9, "over"), (10, "x")), mode="overwrite")
    drain(store)
    assert stored(session) == {9: "over", 10: "x"}


def test_a_changed_key_leaves_no_row_of_the_old_one(store: Store, session: Session, any_delta: Path) -> None:
    follow(session, any_delta)
    DeltaTable(any_delta).update(updates={"k": "k + 10"})
    drain(store)
    DeltaTable(any_delta).update(updates={"k": "k + 10"})
    drain(store)
    assert stored(session) == {21: "a", 22: "b"}


def test_rows_that_only_move_change_nothing(store: Store, session: Session, delta: Path) -> None:
    write_deltalake(delta, pairs((3, "c")), mode="append")
    follow(session, delta)
    drain(store)
    version = store.table("db.t").version
    assert DeltaTable(delta).optimize.compact()["numFilesRemoved"] == 2
    assert drain(store).progress == {"0": 3}
    assert store.table("db.t").version - version <= 1
    assert drain(store).statistic.loaded_rows == 3


def test_an_imported_table_goes_on_behind_the_import(store: Store, session: Session, delta: Path) -> None:
    dicts(session, f"DROP TABLE t; CREATE TABLE t FROM DELTA '{delta}' KEY(k)")
    write_deltalake(delta, pairs((3, "c")), mode="append")
    follow(session, delta)
    job = drain(store)
    assert (job.progress, job.statistic.loaded_rows) == ({"0": 2}, 1)
    assert stored(session) == {1: "a", 2: "b", 3: "c"}


def test_a_starting_version_reads_its_changes_and_later_ones(
    store: Store, session: Session, delta: Path
) -> None:
    write_deltalake(delta, pairs((3, "c")), mode="append")
    write_deltalake(delta, pairs((4, "d")), mode="append")
    follow(session, delta, ", 'starting_version' = '1'")
    drain(store)
    assert stored(session) == {3: "c", 4: "d"}


@pytest.mark.parametrize("start", ["9", "-1", "x", "²"])
def test_an_unknown_starting_version_is_refused(session: Session, delta: Path, start: str) -> None:
    with pytest.raises(InvalidInputError, match=r"starting_version: .* has the commits 0 to 0"):
        follow(session, delta, f", 'starting_version' = '{start}'")


def test_the_feed_of_a_commit_counts_and_not_its_files(store: Store, session: Session, root: Path) -> None:
    table = HandMade(root, [K, V], configuration=FEED)
    follow(session, root)
    drain(store)
    told = changes((1, "a", "insert"), (2, "b", "insert"), (2, "b", "update_preimage"), (3, "c", "delete"))
    action = table.add("_change_data/c.parquet", told)["add"]
    cdc = {name: action[name] for name in ("path", "partitionValues", "size")} | {"dataChange": False}
    table.commit([table.add("a.parquet", pairs((7, "of the file"))), {"cdc": cdc}])
    drain(store)
    assert stored(session) == {1: "a", 2: "b"}


def test_replaced_deletion_vectors_are_changes(store: Store, session: Session, root: Path) -> None:
    table = HandMade(root, [K, V], features=["deletionVectors"])
    rows = pairs(*((k, str(k)) for k in range(100)))
    first = table.add("a.parquet", rows)
    table.commit([first])
    follow(session, root)
    drain(store)
    hidden: list[int] = []
    before = first["add"]
    for wanted in ([3, 5], [3, 5, 99], [5]):
        after = {**first["add"], "deletionVector": table.vector(wanted)}
        removed = {"path": before["path"], "partitionValues": {}, "dataChange": True}
        if "deletionVector" in before:
            removed["deletionVector"] = before["deletionVector"]
        table.commit([{"remove": removed}, {"add": after}])
        hidden, before = wanted, after
        drain(store)
        assert stored(session) == {k: str(k) for k in range(100) if k not in hidden}


def test_a_vacuumed_file_of_a_derived_change_is_named(store: Store, session: Session, root: Path) -> None:
    write_deltalake(root, pairs((1, "a")))
    follow(session, root)
    drain(store)
    (old,) = root.glob("*.parquet")
    write_deltalake(root, pairs((2, "b")), mode="overwrite")
    old.unlink()
    job = drain(store)
    assert "it may have been vacuumed" in job.other_message
    assert stored(session) == {1: "a"}


def test_a_new_column_pauses_the_job_until_the_table_has_it(
    store: Store, session: Session, delta: Path
) -> None:
    follow(session, delta)
    drain(store)
    write_deltalake(delta, pairs((3, "c")), mode="append")
    more = pairs((4, "d")).append_column("w", pa.array([1.5]))
    write_deltalake(delta, more, mode="append", schema_mode="merge")
    job = drain(store)
    assert stored(session) == {1: "a", 2: "b", 3: "c"}
    assert "the column w (DOUBLE)" in job.reason
    dicts(session, "ALTER TABLE t ADD COLUMN w DOUBLE NULL; RESUME ROUTINE LOAD FOR job")
    drain(store)
    assert run(session, "SELECT k, w FROM t ORDER BY k") == [(1, None), (2, None), (3, None), (4, 1.5)]


def test_columns_choose_and_map(store: Store, session: Session, delta: Path) -> None:
    more = pairs((4, "d")).append_column("w", pa.array([1.5]))
    write_deltalake(delta, more, mode="append", schema_mode="merge")
    follow(session, delta, clauses="COLUMNS(k, w, v = concat('w', w))")
    drain(store)
    assert stored(session) == {1: None, 2: None, 4: "w1.5"}
    DeltaTable(delta).delete("k = 2")
    drain(store)
    assert stored(session) == {1: None, 4: "w1.5"}


def test_rows_outside_of_a_condition_are_left_out_and_leave(
    store: Store, session: Session, delta: Path
) -> None:
    follow(session, delta, clauses="WHERE v < 'm'")
    drain(store)
    DeltaTable(delta).update(updates={"v": "'z'"}, predicate="k = 1")
    drain(store)
    assert stored(session) == {2: "b"}


def test_a_replaced_table_pauses_the_job(store: Store, session: Session, delta: Path) -> None:
    follow(session, delta)
    drain(store)
    delta.rename(delta.parent / "old")
    write_deltalake(delta, pairs((7, "other")))
    write_deltalake(delta, pairs((8, "other")), mode="append")
    assert "was replaced" in drain(store).reason
    assert stored(session) == {1: "a", 2: "b"}


def test_commits_that_left_the_log_pause_the_job(store: Store, session: Session, delta: Path) -> None:
    follow(session, delta)
    drain(store)
    for key in range(3, 7):
        write_deltalake(delta, pairs((key, "x")), mode="append")
    DeltaTable(delta).create_checkpoint()
    for version in range(3):
        (delta / "_delta_log" / f"{version:020}.json").unlink()
    assert "offset out of range: 1 to 2 are gone from the source, the oldest is 3" in drain(store).reason


def test_a_task_that_fails_at_its_commit_is_read_again(
    store: Store, session: Session, delta: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(session, delta)
    drain(store)
    write_deltalake(delta, pairs((3, "c")), mode="append")
    ((number, _),) = RoutineJobs(store.catalog).all().items()
    with monkeypatch.context() as patched:
        patched.setattr(RoutineJobs, "commit_within", _fail)
        assert JobRunner(store, number, open_source).round().failed == 1
    assert stored(session) == {1: "a", 2: "b"}
    job = drain(store)
    assert (job.progress, stored(session)) == ({"0": 2}, {1: "a", 2: "b", 3: "c"})


def _fail(*_: object) -> None:
    raise OSError("the disk went away")


@pytest.mark.parametrize(
    ("properties", "clauses", "found"),
    [
        ("", "WITH DELETE", "expected neither WITH"),
        ("PROPERTIES ('format' = 'json')", "", "format is invalid property of a job FROM DELTA"),
        ("PROPERTIES ('partial_columns' = 'true')", "", "partial_columns is invalid property"),
    ],
)
def test_what_does_not_fit_is_refused(
    session: Session, delta: Path, properties: str, clauses: str, found: str
) -> None:
    with pytest.raises(InvalidInputError, match=found):
        dicts(session, f"CREATE ROUTINE LOAD job ON t {clauses} {properties} FROM DELTA ('path' = '{delta}')")


def test_other_directories_are_refused(session: Session, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "elsewhere", pairs((1, "a")))
    with pytest.raises(AccessDeniedError):
        follow(session, tmp_path / "elsewhere")


def test_a_job_of_many_tables_is_refused(session: Session, delta: Path) -> None:
    with pytest.raises(InvalidInputError, match="expected ON and a table with a unique key"):
        dicts(session, f"CREATE ROUTINE LOAD job FROM DELTA ('path' = '{delta}')")


def test_show_create_makes_the_same_job(store: Store, session: Session, delta: Path) -> None:
    follow(session, delta)
    (shown,) = dicts(session, "SHOW CREATE ROUTINE LOAD FOR job")
    dicts(session, "STOP ROUTINE LOAD FOR job")
    dicts(session, shown["CreateStmt"])
    assert len(dicts(session, "SHOW ROUTINE LOAD")) == 1


CHILD = """
import sys
from seqstore import Settings, Store
from seqstore.loaders.routine.runner import RoutineRunner
with Store.open(sys.argv[1], settings=Settings(load_paths=(sys.argv[2],))) as store:
    print("open", flush=True)
    while True:
        RoutineRunner(store).drain()
"""


@pytest.mark.crash
def test_no_row_is_lost_or_read_twice_when_the_process_is_killed(
    store: Store, session: Session, root: Path
) -> None:
    seed = new_seed()
    print(f"seed {seed}")
    random_ = random.Random(seed)
    write_deltalake(root, pairs((0, "v0")))
    follow(session, root)
    count = 1
    for _ in range(by_form(3, 30)):
        arguments = [sys.executable, "-c", CHILD, str(store.path), str(root.parent)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"open\n"
            for _ in range(random_.randrange(1, 6)):
                write_deltalake(root, pairs(*((count + i, f"v{count + i}") for i in range(3))), mode="append")
                count += 3
            child.kill()
    job = drain(store)
    assert stored(session) == {key: f"v{key}" for key in range(count)} == live(root)
    assert job.statistic.loaded_rows == count


@pytest.mark.parametrize("seed", range(by_form(2, 20)))
def test_any_changes_are_followed(store: Store, session: Session, root: Path, seed: int) -> None:
    random_ = random.Random(seed)
    feed = FEED if random_.random() < 0.5 else {}
    write_deltalake(root, pairs((0, "start")), configuration=feed)
    follow(session, root)
    for step in range(8):
        _change(root, random_, step)
        if random_.random() < 0.4:
            drain(store)
            assert stored(session) == live(root), f"seed {seed}, step {step}"
    drain(store)
    assert stored(session) == live(root), f"seed {seed}"


def _change(root: Path, random_: random.Random, step: int) -> None:
    table = DeltaTable(root)
    low = random_.randrange(40)
    match random_.choice(["append", "update", "delete", "merge", "overwrite", "optimize", "restore"]):
        case "append":
            top = max(live(root), default=-1) + 1
            write_deltalake(root, pairs(*((top + i, f"a{step}") for i in range(8))), mode="append")
        case "update":
            table.update(updates={"v": f"'u{step}'"}, predicate=f"k BETWEEN {low} AND {low + 9}")
        case "delete":
            table.delete(f"k BETWEEN {low} AND {low + 5}")
        case "merge":
            source = pairs(*((key, f"m{step}") for key in range(low, low + 12)))
            merge = table.merge(source, "t.k = s.k", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        case "overwrite":
            write_deltalake(root, pairs(*((key, f"o{step}") for key in range(low))), mode="overwrite")
        case "optimize":
            table.optimize.compact()
        case "restore" if table.version():
            table.restore(random_.randrange(table.version()))
