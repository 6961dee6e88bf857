"""Thinning: which versions stay as they grow old, and what readers of the others are told."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    Column,
    InvalidInputError,
    Session,
    Settings,
    Store,
    Table,
    TableSchema,
    UnavailableError,
    VersionExpiredError,
    parse_type,
)
from seqstore.store.catalog.kept_versions import KeptVersions
from seqstore.store.catalog.version_chain import require_whole
from seqstore.store.locks.file_lock import FileLock, Patience
from seqstore.store.maintenance import retention
from seqstore.store.maintenance.retention import vacuum_unless_busy
from seqstore.store.maintenance.thinning import Holders, whole_after
from seqstore.store.repair.repair import repair
from tests.support.clock import Clock

pytestmark = pytest.mark.settings(inline_bytes_max=1)
THINNING = "60:60,600:300"  # after a minute one each minute, after ten minutes one each five


@pytest.fixture
def clock() -> Iterator[Clock]:
    with Clock() as clock:
        yield clock


def make(store: Store, clock: Clock, loads: int, seconds: int = 20, **properties: str) -> Table:
    """A table that gets a version every so many seconds: key 0 each time, and a key of its own."""
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    properties = {"version_thinning": THINNING, **properties}
    table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))
    load(table, clock, loads, seconds)
    return table


def load(table: Table, clock: Clock, loads: int, seconds: int = 20) -> None:
    for _ in range(loads):
        clock.tick(seconds)
        number = table.version + 1
        table.upsert(pa.table({"k": [0, number], "v": [number, number]}))


def readable(table: Table) -> list[int]:
    return [version for version in range(1, table.version + 1) if version in table.kept_versions]


def rows(table: Table, version: int | None = None) -> dict[int, int]:
    found = table.scan(version=version).read_all().to_pydict()
    return dict(zip(found["k"], found["v"], strict=True))


def expected(version: int) -> dict[int, int]:
    return {0: version, **{number: number for number in range(2, version + 1)}} if version > 1 else {}


def test_old_versions_stay_in_steps_that_grow_with_their_age(store: Store, clock: Clock) -> None:
    """A version comes every 20 seconds, 45 of them in 15 minutes; the first is the creation."""
    table = make(store, clock, 45)
    result = table.vacuum()
    kept = readable(table)
    ages = [(table.history()[-1].timestamp - table.history()[v - 1].timestamp).total_seconds() for v in kept]
    gaps = [round(one - two) for one, two in pairwise(ages)]
    assert gaps[-3:] == [20, 20, 20]
    assert 60 in gaps
    assert max(gaps) <= 300
    assert gaps == sorted(gaps, reverse=True) or gaps[1:] == sorted(gaps[1:], reverse=True)
    assert result.versions == 46 - len(kept) > 25
    for version in kept:
        assert rows(table, version) == expected(version)
    assert Store.open(store.path).table("db.t").check() == []


def test_another_vacuum_at_once_takes_nothing_more(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    planned = table.vacuum(dry_run=True)
    assert readable(table) == list(range(1, 32))
    assert table.vacuum().versions == planned.versions > 0
    kept = readable(table)
    assert table.vacuum().versions == 0
    assert readable(table) == kept


def test_a_thinned_version_names_its_neighbours(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    table.vacuum()
    kept = readable(table)
    gone = next(version for version in range(2, 20) if version not in kept)
    before, after = (
        max(v for v in kept if v < gone),
        min(v for v in kept if v > gone),
    )
    near = f"version {gone} .* are {before} of .* and {after} of "
    with pytest.raises(VersionExpiredError, match=near) as caught:
        table.scan(version=gone)
    assert caught.value.kind == "version_expired"
    moment = table.history()[gone - 1].timestamp
    with pytest.raises(VersionExpiredError, match=f"version {gone}, the newest at .* are {before} of"):
        table.version_as_of(moment)
    shown = {line.version: line.version in table.kept_versions for line in table.history()}
    assert shown[gone] is False


def test_a_feed_over_thinned_versions_has_net_changes(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    table.delete({"k": [5]})
    clock.tick(600)
    load(table, clock, 1)
    table.optimize(full=True)
    table.vacuum()
    kept = readable(table)
    changes = table.changes(kept[0] + 1).read_all()
    assert sorted(set(changes.column("_commit_version").to_pylist())) == kept[1 : kept.index(33) + 1]
    copy: dict[int, int] = {}
    for each in changes.to_pylist():
        if each["_change_type"] in ("-U", "-D"):
            assert copy.pop(each["k"]) == each["v"]
        else:
            copy[each["k"]] = each["v"]
    assert copy == rows(table)
    updates = changes.filter((pc.field("k") == 0) & (pc.field("_change_type") == "+U"))
    loaded = [version for version in kept[1:] if version not in (32, 34)]  # a DELETE, a compaction
    assert len(updates) == len(loaded) - 1, "one for each kept version after the first load"


def test_a_feed_from_a_thinned_version_is_refused(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    table.vacuum()
    gone = next(version for version in range(2, 20) if version not in readable(table))
    with pytest.raises(VersionExpiredError, match="thinned out"):
        table.changes(gone + 1)
    with pytest.raises(VersionExpiredError, match="thinned out"):
        table.changes(2, gone)


def test_a_feed_goes_on_while_its_next_versions_are_thinned_out(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    table.vacuum()
    kept = readable(table)
    feed = iter(table.changes(kept[0] + 1, 31))
    next(feed)
    clock.tick(3600)
    load(table, clock, 1)
    table.optimize(full=True)
    table.vacuum()
    left = [batch.column("_commit_version")[0].as_py() for batch in feed]
    assert left[-1] == 31
    assert len(left) < len(kept) - 2


def test_files_of_thinned_versions_go(store: Store, clock: Clock) -> None:
    """A compaction's inputs are needed by no version that is kept."""
    table = make(store, clock, 12)
    table.optimize(full=True)
    files = len(list(store.path.glob("tables/*/*")))
    load(table, clock, 8)
    result = table.vacuum()
    assert result.files
    assert len(list(store.path.glob("tables/*/*"))) < files + 8 * 2
    for version in readable(table):
        assert rows(table, version).keys() == expected(version).keys() - ({14} if version >= 14 else set())


def test_delete_bitmaps_of_thinned_versions_go(store: Store, clock: Clock) -> None:
    table = make(store, clock, 60)
    with store.catalog.read() as tx:
        before = len(list(tx.items("bitmaps")))
    table.vacuum()
    with store.catalog.read() as tx:
        assert len(list(tx.items("bitmaps"))) < before
        require_whole(tx, table.id)
    load(table, clock, 20)
    assert rows(table) == expected(81)


def test_what_a_young_reader_holds_keeps_all_later_versions(store: Store, clock: Clock) -> None:
    """The check of a transaction walks them."""
    table = make(store, clock, 10)
    with table.snapshot(8) as snapshot:
        load(table, clock, 30)
        table.vacuum()
        other = Store.open(store.path).table("db.t")
        for version in (8, 9, 10):
            assert version not in table.kept_versions or rows(other, version) == expected(version)
        with store.catalog.read() as tx:
            loader = table.loader
            state = loader.load(tx, 8)
            for version in range(9, 42):
                state = loader.advance(tx, state, version)
                assert state.version == version
        assert snapshot.count() == 8
    table.vacuum()
    gone = next(version for version in range(9, 42) if version not in table.kept_versions)
    with store.catalog.read() as tx, pytest.raises(VersionExpiredError):
        table.loader.load(tx, gone)


def test_a_reader_among_thinned_versions_keeps_only_its_own(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    table.vacuum()
    old = readable(table)[1]
    with table.snapshot(old) as snapshot:
        clock.tick(3600)
        load(table, clock, 20)
        table.vacuum()
        assert old not in table.kept_versions
        assert snapshot.count() == len(expected(old))
        assert len(readable(table)) < 20
    table.vacuum()
    with pytest.raises(VersionExpiredError):
        table.snapshot(old)


def test_a_moment_keeps_every_version_since(store: Store, clock: Clock) -> None:
    table = make(store, clock, 5, version_thinning="0:60")
    with store.snapshot() as moment:
        load(table, clock, 20)
        table.vacuum()
        assert rows_of(moment.table("db.t").scan().read_all()) == expected(6)


def rows_of(found: pa.Table) -> dict[int, int]:
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_a_transaction_that_began_before_is_checked_against_all_since(store: Store, clock: Clock) -> None:
    table = make(store, clock, 5)
    with store.transaction() as transaction:
        transaction.table("db.t").update({"v": 7}, pc.field("k") == 2)
        for number in range(20):
            clock.tick(20)
            table.upsert(pa.table({"k": [100 + number], "v": [1]}))
        table.vacuum()
        transaction.commit()
    assert rows(table)[2] == 7


def test_a_precommitted_transaction_keeps_what_it_read(store: Store, clock: Clock) -> None:
    table = make(store, clock, 5)
    transaction = store.transaction()
    transaction.table("db.t").update({"v": 7}, pc.field("k") == 2)
    number = transaction.precommit().txn_id
    for key in range(20):
        clock.tick(20)
        table.upsert(pa.table({"k": [100 + key], "v": [1]}))
    table.vacuum()
    Store.open(store.path).commit_transaction("db", txn_id=number)
    assert rows(table)[2] == 7


def test_a_kept_version_is_restored(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    table.vacuum()
    old = readable(table)[2]
    table.restore(old)
    clock.tick(3600)
    load(table, clock, 1)
    table.vacuum(retention_seconds=0)
    assert rows(table) == {**expected(old), 0: 33, 33: 33}
    assert table.check() == []


def test_a_handle_that_sat_still_follows_over_thinned_versions(store: Store, clock: Clock) -> None:
    table = make(store, clock, 5)
    idle = Store.open(store.path).table("db.t")
    assert idle.count() == 6
    load(table, clock, 30)
    table.optimize(full=True)
    load(table, clock, 10)
    table.vacuum()
    assert rows(idle) == {0: 47, **{k: k for k in range(2, 48) if k != 37}}
    idle.upsert(pa.table({"k": [0], "v": [1]}))
    assert idle.check() == []


def test_the_history_of_a_key_knows_what_is_kept(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    table.optimize(full=True)
    table.vacuum()
    events = table.key_history({"k": 0})
    assert [event.outcome for event in events][-1] == "live"
    assert {event.outcome for event in events[:-1]} == {"replaced"}
    assert all(event.until is None or event.until > event.version for event in events)


def test_a_backup_of_a_thinned_table_comes_back(store: Store, clock: Clock, tmp_path: Path) -> None:
    table = make(store, clock, 30)
    table.optimize(full=True)
    load(table, clock, 10)
    table.vacuum()
    store.backups.wait(store.backups.backup("db", "daily", str(tmp_path / "backups"), ["t"]))
    with Store.open(tmp_path / "other") as other:
        other.create_database("db")
        other.backups.wait(other.backups.restore("db", "daily", str(tmp_path / "backups")))
        restored = other.table("db.t")
        assert (rows(restored), restored.version) == (rows(table), table.version)
        load(restored, clock, 20)
        restored.vacuum()
        assert restored.check() == []
        assert rows(restored, readable(restored)[1])[0] == readable(restored)[1]


def test_a_table_that_others_read_in_place_is_not_thinned(store: Store, clock: Clock) -> None:
    """Readers of Delta need the files of each version that was shown within the retention."""
    shown = {"delta.universalFormat.enabledFormats": "delta", "open_every_seconds": "0"}
    table = make(store, clock, 30, 20, **shown)
    assert table.vacuum().versions == 0


def test_a_repair_keeps_the_versions_behind_the_thinned_ones(
    store: Store, clock: Clock, tmp_path: Path
) -> None:
    table = make(store, clock, 30)
    table.vacuum()
    expected_rows, newest, path = rows(table), table.version, store.path
    every = table.kept_versions.every
    copy = tmp_path / "copy"
    store.close()
    shutil.copytree(path, copy)
    repair(copy)
    with Store.open(copy) as again:
        repaired = again.table("db.t")
        assert (rows(repaired), repaired.version) == (expected_rows, newest)
        assert repaired.oldest_version <= every
        assert rows(repaired, repaired.oldest_version) == expected(repaired.oldest_version)
        assert repaired.check() == []


def test_a_thinned_catalog_is_sound_for_repair_and_stays_as_it_is(store: Store, clock: Clock) -> None:
    table = make(store, clock, 60)
    table.vacuum()
    kept, path = table.kept_versions, store.path
    assert kept.some
    store.close()
    store.catalog.close()
    assert list(repair(path).lines()) == ["the catalog is sound, nothing to repair"]
    with Store.open(path) as again:
        assert again.table("db.t").kept_versions == kept


def test_one_vacuum_of_a_table_runs_at_a_time(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older plan would open again what a newer one has given up."""
    table = make(store, clock, 30)
    lock = FileLock(store.path / "locks" / f"vacuum-{table.id}")
    assert lock.acquire(Patience(60))
    assert vacuum_unless_busy(table) is None
    assert table.vacuum(dry_run=True).versions > 0
    with monkeypatch.context() as patch:
        patch.setattr(retention, "_WAIT_SECONDS", 0.0)
        with pytest.raises(UnavailableError, match="another vacuum of the table has not ended"):
            table.vacuum()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(table.vacuum)
        assert not waiting.done()
        lock.release()
        assert waiting.result().versions > 0
    assert vacuum_unless_busy(table) is not None


def test_what_was_given_up_is_not_whole_again_by_an_older_plan() -> None:
    before = KeptVersions.of(1, 90, {1, 20, 80})
    opened = KeptVersions.of(1, 60, {1, 20, 30, 50})  # of a vacuum that planned earlier
    holders = Holders(frozenset(), frozenset(), frozenset())
    assert whole_after(before, opened, holders) == KeptVersions.of(1, 90, {1, 20})


def test_net_changes_cross_a_change_of_types(store: Store, clock: Clock) -> None:
    table = make(store, clock, 3)
    with Session(store) as session:
        list(session.execute("ALTER TABLE db.t MODIFY COLUMN v BIGINT"))
    load(table, clock, 12)
    table.vacuum()
    kept = readable(table)
    changes = table.changes(kept[0] + 1).read_all()
    assert changes.schema.field("v").type == pa.int64()
    copy: dict[int, int] = {}
    for each in changes.to_pylist():
        if each["_change_type"] in ("-U", "-D"):
            assert copy.pop(each["k"]) == each["v"]
        else:
            copy[each["k"]] = each["v"]
    assert copy == rows(table)


def test_thinning_that_was_turned_off_brings_no_version_back(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    table.vacuum()
    kept = readable(table)
    with Session(store) as session:
        list(session.execute("ALTER TABLE db.t SET ('version_thinning' = '')"))
    clock.tick(3600)
    table.vacuum()
    assert readable(table) == [*kept, 32]


def test_the_setting_is_the_default_of_tables(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30, version_thinning="")
    assert table.vacuum().versions == 0
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    other = Store.open(store.path, settings=replace(store.settings, version_thinning=THINNING))
    plain = other.create_table("db.plain", TableSchema.create(columns, ["k"]))
    load(plain, clock, 30)
    assert plain.vacuum().versions > 0


@pytest.mark.parametrize("text", ["60", "60:0", "a:1", "60:60,30:90", "60:60,90:60", "60:60,", "-1:2"])
def test_another_text_is_refused(store: Store, tmp_path: Path, text: str) -> None:
    columns = [Column("k", parse_type("bigint"), False)]
    with pytest.raises(InvalidInputError, match="'version_thinning': expected AGE:STEP"):
        TableSchema.create(columns, ["k"], properties={"version_thinning": text})
    file = tmp_path / "settings.toml"
    file.write_text(f'[store]\nversion_thinning = "{text}"\n')
    with pytest.raises(InvalidInputError, match="'version_thinning' expects AGE:STEP"):
        Settings.load(file)


def test_a_held_version_of_a_moment_below_the_thinned_ones_stops_thinning() -> None:
    """The moment's own version is one of those from `every` on; what is known of it may be an older one."""
    before = KeptVersions.of(1, 50, {1, 20})
    opened = KeptVersions.of(1, 90, {1, 20, 60})
    holders = Holders(frozenset(), frozenset({30}), frozenset())
    assert whole_after(before, opened, holders) == KeptVersions.of(1, 50, {1, 20})


def test_a_held_version_below_the_thinned_ones_stays_for_its_moment() -> None:
    before = KeptVersions.of(1, 50, {1, 20, 40})
    opened = KeptVersions.of(60, 90, {60})
    holders = Holders(frozenset(), frozenset({30}), frozenset())
    assert whole_after(before, opened, holders) == KeptVersions.of(20, 50, {20})


def test_the_first_version_that_was_never_thinned_stops_thinning_while_it_is_held() -> None:
    """Its holder may read all later ones."""
    before = KeptVersions.of(1, 50, {1, 20})
    opened = KeptVersions.of(1, 90, {1, 20, 60})
    holders = Holders(frozenset({50}), frozenset(), frozenset())
    assert whole_after(before, opened, holders) == KeptVersions.of(1, 50, {1, 20})


def test_times_of_neighbours_are_those_of_the_history(store: Store, clock: Clock) -> None:
    table = make(store, clock, 30)
    table.vacuum()
    first = datetime.fromtimestamp(table.history()[0].timestamp.timestamp(), UTC)
    with pytest.raises(VersionExpiredError, match=f"1 of {first:%Y-%m-%d %H:%M:%S} UTC"):
        table.scan(version=2)
