"""Followers: stores on other hosts that read what a leader ships."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqstore import CorruptionError, InvalidInputError, NotFoundError, Settings, Store, UnavailableError
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.store.catalog.ship_log.place import open_place
from seqstore.store.catalog.ship_log.ship_file import FOLLOWERS, Hold, log_name
from seqstore.store.errors import StoreError
from seqstore.store.failover.restore import restore_store
from seqstore.store.sql import ServerContext
from seqstore.store.sql.session.session import Session
from tests.store.failover.test_shipping import EVERY, awaited, leader, rows
from tests.support.every_kind import every_kind
from tests.support.rows import rows_of

OFTEN = Settings(follow_seconds=1, stale_seconds_max=600)
WITHOUT_CONDITIONS = (
    *("LOAD", "ROUTINE LOAD", "ROUTINE LOAD TASK", "STREAM LOAD", "BACKUP", "RESTORE", "EXPORT"),
    *("ALTER TABLE COLUMN", "TABLES", "TABLE STATUS", "VIEWS", "ROLES", "ALL GRANTS", "WORKLOAD GROUPS"),
)
SELDOM = Settings(follow_seconds=3600, stale_seconds_max=600)


def followed(store: Store) -> Store:
    """A follower that has caught up."""
    assert store.follower is not None
    store.follower.catch_up()
    return store


def lines(store: Store, text: str) -> list[dict[str, Any]]:
    """The rows of a statement."""
    with Session(store) as session:
        (result,) = session.execute(text)
    assert result.rows is not None
    found: list[dict[str, Any]] = result.rows.to_pylist()
    return found


def test_a_follower_reads_what_was_shipped(tmp_path: Path) -> None:
    """Rows, versions and new tables, as the leader has them; nothing may be changed."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    with Store.open(target, mode="r", settings=SELDOM) as copy:
        assert rows_of(copy.table("db.t")) == rows_of(store.table("db.t"))
        with copy.table("db.t").snapshot() as before:
            store.table("db.t").upsert(rows(1, 900, "later"))
            store.create_database("other")
            followed(copy)
            assert len(rows_of(before)) == 3
        assert rows_of(copy.table("db.t")) == rows_of(store.table("db.t"))
        assert copy.table("db.t").version == store.table("db.t").version
        assert copy.databases() == ["db", "other"]
        with pytest.raises(InvalidInputError, match="only read"):
            copy.table("db.t").upsert(rows(0, 1, "x"))
        with pytest.raises(InvalidInputError, match="only read"):
            copy.create_database("x")
        assert rows_of(copy.table("db.t")) == rows_of(store.table("db.t"))


def test_a_write_during_the_application_of_the_log_is_refused(tmp_path: Path) -> None:
    """It joined the transaction that applied the log, and was acknowledged; the copy differed since then."""
    target = str(tmp_path / "shipped")
    leader(tmp_path, target)
    with Store.open(target, mode="r", settings=SELDOM) as copy, ThreadPoolExecutor(1) as pool:
        queue = copy.catalog._environment().queue
        with copy.catalog.following():
            writing = pool.submit(copy.create_database, "other")
            while not queue.waiting and not writing.done():
                time.sleep(0.01)
        with pytest.raises(InvalidInputError, match="only read"):
            writing.result()
        assert copy.databases() == ["db"]


def test_a_follower_notices_a_hole_in_the_log(tmp_path: Path) -> None:
    """It waited for the object that was missing, and called itself fresh."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    with Store.open(target, mode="r", settings=SELDOM) as copy:
        for number in range(2):
            store.table("db.t").upsert(rows(number, number + 1, "later"))
        missing = log_name(len(open_place(target).list("log")) - 1)
        open_place(target).delete(missing)
        with pytest.raises(CorruptionError, match="is missing") as found:
            followed(copy)
        assert missing in found.value.path


@pytest.mark.parametrize("commits", [0, 8], ids=["shorter", "longer"])
def test_a_lasting_copy_follows_no_other_store(tmp_path: Path, commits: int) -> None:
    """It showed the rows of the first store, and called itself fresh."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = leader(tmp_path / "one", str(tmp_path / "one" / "shipped"))
    for number in range(4):
        first.create_database(f"db{number}")
    with Store.open(tmp_path / "copy", follow=str(tmp_path / "one" / "shipped"), settings=SELDOM):
        pass
    second = leader(tmp_path / "two", str(tmp_path / "two" / "shipped"))
    for number in range(commits):
        second.create_database(f"db{number}")
    with pytest.raises(InvalidInputError, match="a copy of another store"):
        Store.open(tmp_path / "copy", follow=str(tmp_path / "two" / "shipped"), settings=SELDOM)
    with Store.open(tmp_path / "copy", follow=str(tmp_path / "one" / "shipped"), settings=SELDOM) as copy:
        assert copy.databases() == first.databases()


def test_no_error_ends_the_following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is none of the store's ended the thread, and the status told of no error."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    with Store.open(target, mode="r", settings=OFTEN) as copy:
        follower = copy.follower
        assert follower is not None

        def exhausted(**_: object) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(follower._replica, "catch_up", exhausted)
            assert awaited(lambda: "Too many open files" in follower.error)
        store.create_database("later")
        assert awaited(lambda: copy.databases() == ["db", "later"])


def test_a_follower_goes_on_by_itself_and_over_a_failover(tmp_path: Path) -> None:
    """Its thread applies the commits of the next leader as well."""
    target = str(tmp_path / "shipped")
    leader(tmp_path, target)
    with Store.open(target, mode="r", settings=OFTEN) as copy:
        restore_store(target, tmp_path / "new", EVERY)
        with Store.open(tmp_path / "new", settings=EVERY) as new:
            new.table("db.t").upsert(rows(7, 8, "new"))
            version = new.table("db.t").version
        deadline = time.monotonic() + 300
        while copy.table("db.t").version < version and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (7, "new") in rows_of(copy.table("db.t"))


def test_a_lasting_copy_is_continued(tmp_path: Path) -> None:
    """A follower with a directory of its own applies what came meanwhile, a cut log included."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    with Store.open(tmp_path / "copy", follow=target, settings=SELDOM):
        pass
    for number in range(3):
        store.table("db.t").upsert(rows(number, number + 1, f"round {number}"))
        store.catalog.shipper.renew_base(store.catalog)
    with Store.open(tmp_path / "copy", follow=target, settings=SELDOM) as copy:
        assert rows_of(copy.table("db.t")) == rows_of(store.table("db.t"))
    with Store.open(tmp_path / "copy") as plain:  # as a command on the host of the follower does
        assert rows_of(plain.table("db.t")) == rows_of(store.table("db.t"))
        with pytest.raises(InvalidInputError, match="only read"):
            plain.create_database("x")


def test_a_follower_that_is_too_far_behind_does_not_answer(tmp_path: Path) -> None:
    """The bound is a setting; the message tells what keeps it from catching up."""
    target = tmp_path / "shipped"
    leader(tmp_path, str(target))
    settings = replace(SELDOM, stale_seconds_max=1)
    with Store.open(str(target), mode="r", settings=settings) as copy:
        assert copy.follower is not None
        copy.follower._fresh_at -= 2
        with pytest.raises(UnavailableError, match="seconds behind") as found:
            copy.databases()
        assert found.value.kind == "stale"
        copy.follower.catch_up()
        assert copy.databases() == ["db"]


def test_vacuum_keeps_what_followers_read(tmp_path: Path) -> None:
    """Until the follower ends, files of versions that it may read stay."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    table = store.table("db.t")
    table.upsert(rows(0, 900, "a"))
    copy = Store.open(target, mode="r", settings=SELDOM)
    snapshot = copy.table("db.t").snapshot()
    table.upsert(rows(0, 900, "b"))
    table.optimize()
    assert table.vacuum(retention_seconds=0).files == ()
    assert {value for _, value in rows_of(snapshot)} == {"a"}
    snapshot.close()
    copy.close()
    assert table.vacuum(retention_seconds=0).files != ()


def test_a_follower_renews_its_hold_from_the_oldest_version_that_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hold of its beginning ends after a quarter of an hour, and the files of its readers went."""
    monkeypatch.setattr("seqstore.store.failover.follower._HOLD_SECONDS", 0.0)
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    place, table = open_place(target), store.table("db.t")

    def hold() -> Hold:
        (name,) = place.list(FOLLOWERS)
        found = Hold.read(place, f"{FOLLOWERS}/{name}")
        assert found is not None
        return found[0]

    with Store.open(target, mode="r", settings=replace(OFTEN, follow_seconds=0)) as copy:
        with copy.table("db.t").snapshot() as snapshot:
            opened_ms = table.history()[snapshot.version - 1].timestamp.timestamp() * 1000
            assert awaited(lambda: abs(hold().moment_ms - opened_ms) < 1)
            table.upsert(rows(0, 900, "b"))
            assert awaited(lambda: copy.table("db.t").version == table.version)
            followed_ms = hold().renewed_ms
            assert awaited(lambda: hold().renewed_ms > followed_ms + 1)
            assert abs(hold().moment_ms - opened_ms) < 1
        assert awaited(lambda: hold().moment_ms > opened_ms + 1)


def test_show_shipping_of_both_ends(tmp_path: Path) -> None:
    """Nothing for a store that is not shipped; then both name place, epoch and position."""
    target = str(tmp_path / "shipped")
    with Store.open(tmp_path / "plain") as plain:
        assert lines(plain, "SHOW SHIPPING") == []
    store = leader(tmp_path, target)
    store.table("db.t").upsert(rows(7, 8, "more"))
    (sent,) = lines(store, "SHOW SHIPPING")
    assert (sent["Target"], sent["State"], sent["WaitingCommits"]) == (target, "SHIPPING", "0")
    with Store.open(target, mode="r", settings=SELDOM) as copy:
        (read,) = lines(copy, "SHOW SHIPPING")
    assert read["State"] == "FOLLOWING"
    assert all(read[name] == sent[name] for name in ("Target", "Epoch", "Position", "Commit"))


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    """A place without a store, a directory that has one, a mode that is none."""
    target = str(tmp_path / "shipped")
    leader(tmp_path, target)
    with pytest.raises(NotFoundError):
        Store.open(str(tmp_path / "nothing"), mode="r")
    with Store.open(tmp_path / "own") as own:
        own.create_database("mine")
    with pytest.raises(InvalidInputError, match="a store of its own"):
        Store.open(tmp_path / "own", follow=target)
    with pytest.raises(InvalidInputError, match="mode"):
        Store.open(target, mode="w")


def test_a_follower_answers_sql(tmp_path: Path) -> None:
    """Queries and SHOW; a write is refused."""
    target = str(tmp_path / "shipped")
    leader(tmp_path, target)
    with Store.open(target, mode="r", settings=SELDOM) as copy:
        assert lines(copy, "SELECT count(*) AS n FROM db.t") == [{"n": 3}]
        lines(copy, "SHOW BACKUP FROM db")
        with pytest.raises(InvalidInputError, match="only read"):
            lines(copy, "INSERT INTO db.t VALUES (1, 'x')")


def test_a_follower_answers_every_question_as_its_leader(tmp_path: Path) -> None:
    """The leader has jobs, views, users and tables of every kind; none of them is taken over."""
    written = (Path(__file__).parents[1] / "sql" / "fuzz_statements.sql").read_text().splitlines()
    asked = [text for text in written if text.startswith(("SHOW", "DESC", "EXPLAIN", "SELECT"))]
    asked += [f"SHOW {what}" for what in WITHOUT_CONDITIONS]
    (tmp_path / "kinds").mkdir()
    with every_kind(tmp_path / "kinds", f"file://{tmp_path}/segments") as made:
        made.store.shipping.begin(str(tmp_path / "shipped"))
        with Store.open(str(tmp_path / "shipped"), mode="r", settings=OFTEN) as copy:
            followed(copy)
            differ = [text for text in asked if answer(made.store, text) != answer(copy, text)]
    assert differ == []


def answer(store: Store, text: str) -> tuple[str, list[int]]:
    """The number of rows, or the class of the error."""
    try:
        with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as session:
            found = [result.rows for result in session.execute(text)]
    except StoreError as error:
        return type(error).__name__, []
    return "", [rows.num_rows if rows is not None else -1 for rows in found]
