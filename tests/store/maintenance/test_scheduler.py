"""Compaction after loads: the policy, its switches, and one at a time."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from seqstore import Column, Session, Settings, Store, Table, TableSchema, parse_type
from seqstore.store.ddl.alter import alter, set_properties
from seqstore.store.maintenance import compaction_policy
from seqstore.store.maintenance.compaction import Compaction, CompactionResult
from seqstore.store.maintenance.scheduler import TINY, maintain
from seqstore.store.maintenance.segment_merge import Merged
from seqstore.store.publish.tombstones import Purge
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from seqstore.store.segment.load_marker import made_at

pytestmark = pytest.mark.maintenance


def make(store: Store, **properties: str) -> Table:
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    return store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))


def load(table: Table, number: int, rows: int = 20) -> None:
    keys = range(number * rows // 2, number * rows // 2 + rows)
    table.upsert(pa.table({"k": list(keys), "v": [number] * rows}))


def test_many_small_loads_leave_about_ten_segments(store: Store) -> None:
    table = make(store)
    for number in range(120):
        load(table, number)
        store.maintainer.wait()
        assert len(table.state().segments) <= 15
    assert table.count() == 120 * 10 + 10
    assert store.maintainer.last_failure == ""
    assert table.check() == []
    written = sum(info.metrics.rows_total for info in table.history() if info.operation == "OPTIMIZE")
    assert written < 6 * 120 * 20, "a row is written again a few times, not with every compaction"


def test_an_unexpected_error_neither_ends_maintenance_nor_holds_up_a_close(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(store)
    run = Compaction.run

    def fail(_: Compaction) -> None:
        raise OverflowError("of a date")

    with monkeypatch.context() as patch:
        patch.setattr(Compaction, "run", fail)
        for number in range(30):
            load(table, number)
        store.maintainer.wait()
        assert store.maintainer.last_failure == "db.t: of a date"
    assert Compaction.run is run
    load(table, 30)
    store.maintainer.wait()
    assert len(table.state().segments) <= 15


def test_a_table_that_cannot_be_maintained_does_not_hold_up_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(store, disable_auto_compaction="true")
    other = store.create_table("db.z", table.schema)
    for number in range(20):
        load(table, number)
        load(other, number)
    run = Compaction.run

    def fail_of_the_first(compaction: Compaction) -> CompactionResult:
        if compaction.table.name == "db.t":
            raise OverflowError("of a date")
        return run(compaction)

    monkeypatch.setattr(Compaction, "run", fail_of_the_first)
    for each in (table, other):
        alter(each, [set_properties({"disable_auto_compaction": "false"})])
    store.maintainer.wait()
    with pytest.raises(OverflowError):
        store.maintain()
    assert len(other.state().segments) < 15


def test_a_large_segment_with_many_dead_rows_is_rewritten(store: Store) -> None:
    with Store.open(store.path, settings=Settings(batch_rows_max=100, segment_rows=200)) as small:
        table = make(small)
        load(table, 0, 1000)
        sizes = [live.segment.rows for live in table.state().segments.values()]
        table.delete({"k": list(range(200))})
        small.maintainer.wait()
        assert max(live.deletes.hidden for live in table.state().segments.values()) < max(sizes) * 0.3
        assert table.count() == 800
        assert table.check() == []


def test_few_dead_rows_of_a_large_segment_wait_for_leisure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(segment_rows=1000, compaction_bytes_per_second=2**40)
    with Store.open(store.path, settings=settings) as small:
        table = make(small)
        load(table, 0, 1000)
        table.delete(pa.table({"k": list(range(20))}))
        assert maintain(table) == [], "it was written a moment ago"
        monkeypatch.setattr(compaction_policy, "_LEISURE_SECONDS_MIN", 0.0)
        assert [done.rows_removed for done in maintain(table)] == [20]
        assert maintain(table) == []
        slow = Settings(segment_rows=1000, compaction_bytes_per_second=1)
        with Store.open(store.path, settings=slow) as other:
            other.table("db.t").delete(pa.table({"k": list(range(20, 40))}))
            assert maintain(other.table("db.t")) == [], "a table is not rewritten faster than the setting"
        assert table.check() == []


def depth_of(table: Table) -> int:
    """The most segments that have rows around one key code."""
    indexes = [live.segment.index for live in table.state().segments.values()]
    ends = [(int(index.codes[0]), int(index.codes[-1])) for index in indexes]
    return max(sum(first <= code <= last for first, last in ends) for code, _ in ends)


def test_large_segments_that_overlap_are_merged_until_few_do(store: Store) -> None:
    """Each look-up tries every segment whose range has the key: 100 of them, one after another."""
    settings = Settings(segment_rows=100, segment_growth=1, inline_bytes_max=0)
    with Store.open(store.path, settings=settings) as small:
        table = make(small)
        for number in range(60):
            table.upsert(pa.table({"k": [each * 60 + number for each in range(100)], "v": [number] * 100}))
        small.maintainer.wait()
        table.get(pa.table({"k": [1]}))
        maintain(table)
        assert depth_of(table) <= 16
        assert len(table.state().segments) == 60
        found = table.scan(["k", "v"]).read_all()
        assert sorted(zip(*found.to_pydict().values(), strict=True)) == [(k, k % 60) for k in range(6_000)]
        assert maintain(table) == []
        moved = sum(done.metrics.rows_total for done in table.history() if done.operation == "OPTIMIZE")
        assert moved <= 2 * 6_000, "each row once or twice"


def test_large_segments_without_overlap_are_left_as_they_are(store: Store) -> None:
    settings = Settings(segment_rows=100, segment_growth=1, inline_bytes_max=0)
    with Store.open(store.path, settings=settings) as small:
        table = make(small, disable_auto_compaction="true")
        for number in range(40):
            load(table, number * 2, 100)
        table.optimize(full=True)
        alter(table, [set_properties({"disable_auto_compaction": "false"})])
        table.get(pa.table({"k": [1]}))
        assert (depth_of(table), len(table.state().segments)) == (1, 40)
        assert maintain(table) == []


def test_the_last_dead_rows_leave_a_table_that_nobody_loads(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While loads go on, new dead rows come before a rewrite has paid."""
    with Store.open(store.path, settings=Settings(segment_rows=1000, batch_rows_max=100)) as small:
        table = make(small)
        load(table, 0, 1000)
        table.delete({"k": [7]})
        segments = sorted(live.segment.meta.id for live in table.state().segments.values())
        ages = dict.fromkeys(segments, 3600)
        monkeypatch.setattr(compaction_policy, "made_at", lambda made: made_at(made) - ages.get(made, 0))
        ages[segments[-1]] = 0
        assert maintain(table) == [], "one in a thousand is few, and a segment is new"
        ages[segments[-1]] = 3600
        assert [done.rows_removed for done in maintain(table)] == [1]
        assert all(not live.deletes.hidden for live in table.state().segments.values())
        assert maintain(table) == []
        assert table.check() == []


def test_small_loads_do_not_pile_up_while_a_large_segment_is_rewritten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, going_on = Compaction.merge, threading.Event()
    slow: list[int] = []

    def held(self: Compaction, state: TableState, inputs: Sequence[LiveSegment], rule: Purge) -> Merged:
        rows = max(live.segment.rows for live in inputs)
        if rows >= 100:
            slow.append(rows)
            assert going_on.wait(60)
        return merge(self, state, inputs, rule)

    monkeypatch.setattr(Compaction, "merge", held)
    with Store.open(store.path, settings=Settings(batch_rows_max=100, segment_rows=1000)) as small:
        table = make(small, compaction_segments_max="4")
        load(table, 0, 1000)
        table.delete(pa.table({"k": list(range(400))}))
        most = 0
        for number in range(100, 160):
            load(table, number, 4)
            small.maintainer.wait_for(TINY)
            most = max(most, len(table.state().segments))
        assert slow == [1000], "still held"
        assert most <= 8
        going_on.set()
        small.maintainer.wait()
        assert small.maintainer.last_failure == ""
        assert table.count() == 600 + 60 * 2 + 2
        assert all(live.deletes.hidden < 100 for live in table.state().segments.values())
        assert table.check() == []


@pytest.mark.parametrize("switch", ["property", "setting"])
def test_compaction_can_be_switched_off(store: Store, switch: str) -> None:
    settings = Settings(auto_compaction=0 if switch == "setting" else 1)
    with Store.open(store.path, settings=settings) as opened:
        table = make(opened, **({"disable_auto_compaction": "true"} if switch == "property" else {}))
        for number in range(15):
            load(table, number)
        opened.maintainer.wait()
        assert table.version == 16
        assert opened.maintain() == {}


def test_thresholds_are_table_properties(store: Store) -> None:
    table = make(store, compaction_segments_max="3")
    for number in range(5):
        load(table, number)
    store.maintainer.wait()
    assert table.version == 7
    assert len(table.state().segments) < 4


def test_a_lone_segment_is_never_merged_with_itself(store: Store) -> None:
    table = make(store, compaction_segments_max="0")
    load(table, 0)
    store.maintainer.wait()
    assert table.version == 2
    load(table, 1)
    store.maintainer.wait()
    assert (table.version, len(table.state().segments)) == (4, 1)


def test_who_finds_a_table_being_maintained_leaves_it_alone(store: Store, tmp_path: Path) -> None:
    table = make(store, disable_auto_compaction="true")
    for number in range(12):
        load(table, number)
    locks = store.path / "locks"
    locks.mkdir(exist_ok=True)
    with (locks / f"maintain-{table.id}-tiny").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert maintain(table) == []
    assert len(maintain(table)) == 1


def test_loads_from_several_threads_and_compactions_agree(store: Store) -> None:
    table = make(store, compaction_segments_max="2")

    def work(first: int) -> None:
        for number in range(first, first + 25):
            load(table, number)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.maintainer.wait()
    assert store.maintainer.last_failure == ""
    assert store.maintainer.compactions > 5
    assert table.count() == 2 * (25 * 10 + 10)
    assert table.check() == []


def test_closing_a_store_stops_its_maintenance(store: Store) -> None:
    table = make(store)
    for number in range(12):
        load(table, number)
    store.close()
    assert not any(thread.name.startswith("seqstore-maintenance") for thread in threading.enumerate())


@pytest.fixture
def vacuums(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[float]]:
    """The table of each vacuum; the time, and how long each vacuum lasts."""
    done, clock = [], [0.0, 0.0]

    def vacuum(table: Table) -> None:
        done.append(table.id)
        clock[0] += clock[1]

    monkeypatch.setattr("seqstore.store.maintenance.scheduler.vacuum_unless_busy", vacuum)
    monkeypatch.setattr(
        "seqstore.store.maintenance.scheduler.time", SimpleNamespace(monotonic=lambda: clock[0])
    )
    return done, clock


def test_vacuums_come_at_the_pace_of_the_setting(
    store: Store, vacuums: tuple[list[int], list[float]]
) -> None:
    table, (done, clock) = make(store), vacuums
    for moment in (0.0, 299.0, 300.0, 599.0, 600.0):
        clock[0] = moment
        store.maintainer.vacuum(table)
    assert len(done) == 3


def test_a_vacuum_comes_early_when_compactions_replaced_half_of_the_table(
    store: Store, vacuums: tuple[list[int], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqstore.store.maintenance.scheduler._GROWN_BYTES_MIN", 1)
    table, (done, clock) = make(store), vacuums
    load(table, 1)
    load(table, 2)
    store.maintainer.vacuum(table)
    table.optimize(full=True)
    clock[0] = 31.0
    store.maintainer.vacuum(table)
    assert len(done) == 1, "an OPTIMIZE of a user is not counted"
    load(table, 3)
    monkeypatch.setattr(
        "seqstore.store.maintenance.scheduler.maintain", lambda table, **_: [table.optimize(full=True)]
    )
    store.maintain()
    assert len(done) == 2


def test_a_vacuum_that_needs_long_comes_less_often(
    store: Store, vacuums: tuple[list[int], list[float]]
) -> None:
    table, (done, clock) = make(store), vacuums
    clock[1] = 60.0
    for moment, vacuums_so_far in ((0.0, 1), (1190.0, 1), (1260.0, 2)):
        clock[0] = moment
        store.maintainer.vacuum(table)
        assert len(done) == vacuums_so_far


def test_a_table_that_is_written_anew_each_time_is_maintained(store: Store) -> None:
    """Only loads were followed by maintenance: such a table kept all that it had ever been."""
    table = make(store)
    load(table, 0)
    session = Session(store)
    for number in range(40):
        list(session.execute("INSERT OVERWRITE TABLE db.t SELECT k, v + 1 FROM db.t"))
        if number % 8 == 7:
            store.maintainer.wait()
    assert len(table.state().segments) < 25
    assert table.check() == []
