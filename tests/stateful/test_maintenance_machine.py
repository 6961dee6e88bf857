"""The table machine with compaction, vacuum, restore and time travel as steps.

Nothing of it changes data, except RESTORE, so after every step each version that can still be read must be
what the model has for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from seqstore import CompactionResult, Snapshot, Store, Table, VersionExpiredError
from seqstore.store.maintenance.compaction import Compaction
from tests.stateful.test_table_machine import ROWS, Rows, TableMachine, run_machine
from tests.support.clock import Clock
from tests.support.compare import assert_version, expected_rows, key_table, seen_rows
from tests.support.shapes import EXACT_SHAPES, HASHED_SHAPES
from tests.weight import by_form, torture_minutes


class MaintenanceMachine(TableMachine):
    """A table that is compacted while loads are open."""

    knows_all_versions = True

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: list[Snapshot] = []

    def compacted(self, result: CompactionResult) -> None:
        """A compaction makes a version without a change, or none."""
        if result.made_version:
            self.model.versions.append(dict(self.model.at(self.model.version)))
        assert result.version == self.model.version
        self.agree()

    @rule(full=st.booleans())
    def optimize(self, full: bool) -> None:
        """K1."""
        self.compacted(self.table.optimize(full=full))

    @rule(columns=st.sampled_from([("v",), ("w", "v"), ("v", "w")]))
    def z_order(self, columns: tuple[str, ...]) -> None:
        self.compacted(self.table.optimize(zorder_by=columns))

    @rule()
    def purge_twice(self) -> None:
        """Scenario 41: the second makes no version."""
        self.compacted(self.table.purge())
        assert not self.table.purge().made_version

    @rule(loads=st.lists(ROWS, min_size=1, max_size=3), at=st.integers(0, 2))
    def optimize_overtaken(self, loads: list[Rows], at: int) -> None:
        """K5, scenario 39: loads and deletes commit between its merge and its commit point."""
        merge = Compaction.merge

        def overtaken(compaction: Compaction, *arguments: Any) -> Any:
            merged = merge(compaction, *arguments)
            self.overtake(loads)
            numbers = [at, at + 1]
            keys = [self.keys[number % len(self.keys)] for number in numbers]
            table = Store.open(self.path, settings=self.sizes).table(self.name)
            assert table.delete(key_table(table.schema, keys)).version == self.model.delete(keys)
            return merged

        with mock.patch.object(Compaction, "merge", overtaken):
            self.compacted(self.table.optimize(full=True))

    @rule(ahead=st.integers(0, 30), dry=st.booleans())
    def vacuum(self, ahead: int, dry: bool) -> None:
        """Versions of before the retention cannot be opened, but again by who holds them; held ones stay."""
        before = self.table.oldest_version
        times = {line.version: line.timestamp for line in self.table.history()}
        then = times[min(before + ahead, self.model.version)]
        oldest = max(version for version, time in times.items() if time == then)
        now = round(then.timestamp() * 1000)
        with mock.patch("seqstore.store.maintenance.retention.now_ms", return_value=now):
            result = self.table.vacuum(retention_seconds=0, dry_run=dry)
        assert result.oldest == oldest
        assert self.table.oldest_version == (before if dry else oldest)
        held = {snapshot.version for snapshot in self.snapshots}
        assert set(result.held) == held
        for version in held:
            assert_version(self.table, self.model, version, self.keys)
        if not dry and oldest > 1 and oldest - 1 not in held:
            with pytest.raises(VersionExpiredError) as caught:
                self.table.snapshot(oldest - 1)
            assert caught.value.oldest == oldest
        self.agree()

    @rule(back=st.integers(0, 10))
    def restore(self, back: int) -> None:
        """A version like an earlier one, row versions included; itself restorable."""
        version = self.readable(self.model.version - back)
        self.model.versions.append(dict(self.model.at(version)))
        assert self.table.restore(version) == self.model.version
        self.agree()

    @rule(length=st.integers(0, 6), back=st.integers(0, 6))
    def change_feed(self, length: int, back: int) -> None:
        """What the versions of a range changed, as the model's versions differ."""
        last = self.readable(self.model.version - back)
        before = self.readable(last - length - 1)
        if before == last:
            return
        steps = [before, *(version for version in self.all_readable() if before < version <= last)]
        found = [
            (row.pop("_commit_version"), row.pop("_change_type"), _comparable(row))
            for row in self.table.changes(before + 1, last)
            .read_all()
            .drop_columns("_commit_timestamp")
            .to_pylist()
        ]
        wanted = [change for one, two in pairwise(steps) for change in self.changed(one, two)]
        assert sorted(found, key=repr) == sorted(wanted, key=repr)
        assert [version for version, _, _ in found] == sorted(version for version, _, _ in found)

    def readable(self, version: int) -> int:
        """Returns the version that can be opened and is nearest to one of before the newest."""
        return max(version, self.table.oldest_version)

    def all_readable(self) -> list[int]:
        return list(range(self.table.oldest_version, self.model.version + 1))

    def changed(self, earlier: int, version: int) -> list[tuple[int, str, tuple[Any, ...]]]:
        before, after = self.model.at(earlier), self.model.at(version)
        found = []
        for key in before.keys() | after.keys():
            old, new = before.get(key), after.get(key)
            was = _comparable(old.values) if old is not None and not old.sign else None
            now = _comparable(new.values) if new is not None and not new.sign else None
            if was is not None and now is not None:
                found += [(version, "-U", was), (version, "+U", now)] if old != new else []
            elif was is not None:
                found.append((version, "-D", was))
            elif now is not None:
                found.append((version, "+I", now))
        return found

    @rule(number=st.integers(0, 15))
    def history_of_a_key(self, number: int) -> None:
        """Its live or deleting write is the one the model has."""
        key = self.keys[number % len(self.keys)]
        events = self.table.key_history(dict(zip(self.shape.key_names, key, strict=True)))
        current = [event for event in events if event.outcome in ("live", "tombstone")]
        stored = self.model.at(self.model.version).get(key)
        if stored is None:
            assert current == []
            return
        assert [(e.version, e.sequence, e.outcome) for e in current] == [
            (stored.version, stored.sequence, "tombstone" if stored.sign else "live")
        ]
        for event in events:
            if event.until is not None and self.knows_all_versions:
                assert event.until > event.version
                assert self.model.at(event.until).get(key) != self.model.at(event.until - 1).get(key)

    @rule(back=st.integers(0, 10))
    def keep_open(self, back: int) -> None:
        """A snapshot that stays open through whatever follows."""
        version = self.readable(self.model.version - back)
        self.snapshots.append(self.table.snapshot(version))
        self.snapshots[:] = self.snapshots[-3:]

    @invariant()
    def open_snapshots_read_as_ever(self) -> None:
        for snapshot in getattr(self, "snapshots", []):
            live = expected_rows(self.model, snapshot.version, deleted=False)
            assert seen_rows(snapshot.scan(hidden=True).read_all(), snapshot.schema) == live

    def agree(self) -> None:
        """The newest version and another one that can be read."""
        newest, oldest = self.model.version, self.table.oldest_version
        assert self.table.version == newest
        for version in {newest, oldest, self.readable(oldest + self.serial % (newest - oldest + 1))}:
            assert_version(self.table, self.model, version, self.keys)
        assert self.table.check() == []

    def check_all_versions(self, fresh: Table) -> None:
        for version in self.all_readable():
            assert_version(fresh, self.model, version, self.keys)
        self.snapshots.clear()


def _comparable(values: Any) -> tuple[Any, ...]:
    return tuple(sorted(values.items()))


class MaintainedExactKeys(MaintenanceMachine):
    """Keys whose code proves them."""

    shapes = EXACT_SHAPES


class MaintainedHashedKeys(MaintenanceMachine):
    """Hashed keys, with and without collisions."""

    shapes = HASHED_SHAPES
    bits = (64, 3)


class ThinnedVersions(MaintenanceMachine):
    """Old versions are thinned out; each version is a second and more after the one before it."""

    shapes = (*EXACT_SHAPES, *HASHED_SHAPES)
    bits = (64, 3)
    knows_all_versions = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.clock.start()
        self.kept = {1}
        self.known = 1  # versions up to this one were judged by a vacuum

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.clock.stop()

    def agree(self) -> None:
        self.clock.tick(0.7)
        super().agree()

    def readable(self, version: int) -> int:
        found = self.all_readable()
        return max((each for each in found if each <= version), default=found[0])

    def all_readable(self) -> list[int]:
        return sorted(self.kept | set(range(self.known, self.model.version + 1)))

    @rule(ahead=st.integers(0, 8), retention=st.integers(5, 60), dry=st.booleans())
    def vacuum(self, ahead: int, retention: int, dry: bool) -> None:
        """Leaves the versions that the rule names, and those that are held."""
        self.clock.tick(ahead)
        settings = replace(self.sizes, version_thinning="4:3,12:10")
        table = Store.open(self.path, settings=settings).table(self.name)
        wanted, known = self.thinned(((4, 3), (12, 10)), retention)
        before = self.all_readable()
        result = table.vacuum(retention_seconds=retention, dry_run=dry)
        assert result.versions == len(set(before) - wanted)
        assert result.oldest == min(wanted)
        if not dry:
            self.kept, self.known = wanted, known
        found = self.table.kept_versions
        assert [v for v in range(1, self.model.version + 1) if v in found] == self.all_readable()
        for version in {snapshot.version for snapshot in self.snapshots}:
            assert_version(self.table, self.model, version, self.keys)
        held = {snapshot.version for snapshot in self.snapshots}
        gone = set(range(1, self.model.version)) - set(self.all_readable()) - held
        if gone:
            with pytest.raises(VersionExpiredError):
                self.table.snapshot(max(gone))
        self.agree()

    def thinned(self, steps: Sequence[tuple[int, int]], retention: int) -> tuple[set[int], int]:
        """Returns the versions that stay, and the one up to which they were judged."""
        now, newest = self.clock.now_ms + 1, self.model.version
        times = {line.version: round(line.timestamp.timestamp() * 1000) for line in self.table.history()}

        def newest_at(moment: int) -> int:
            return max((v for v, time in times.items() if time <= moment), default=0)

        known = max(self.known, min(newest, newest_at(now - steps[0][0] * 1000)))
        young = {times[version] // (steps[0][1] * 1000): version for version in range(self.known, known)}
        last: dict[tuple[int, int], int] = {}
        for version in sorted({*(each for each in self.kept if each < known), *young.values()}):
            age = (now - times[version]) // 1000
            step = max((step for limit, step in steps if age >= limit), default=steps[0][1])
            last[step, times[version] // (step * 1000)] = version
        oldest = min(self.all_readable())
        kept = {oldest, *last.values(), *range(known, newest + 1)}
        limit = max(min(newest, newest_at(now - retention * 1000)), oldest)
        first = max(each for each in kept if each <= limit)
        return {each for each in kept if each >= first}, max(known, first)


MACHINES = [MaintainedExactKeys, MaintainedHashedKeys, ThinnedVersions]


@pytest.mark.family(1)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("machine", MACHINES)
def test_maintenance_changes_no_answer_at_any_version(machine: type[TableMachine]) -> None:
    """K1, K5, scenarios 39 and 41."""
    run_machine(machine, examples=by_form(6, 80), steps=12)


@pytest.mark.torture
@pytest.mark.parametrize("machine", MACHINES)
def test_maintenance_changes_no_answer_at_length(machine: type[TableMachine]) -> None:
    """A thousand examples of each machine or more, 60 for each of TORTURE_MINUTES."""
    run_machine(machine, examples=max(1_000, int(torture_minutes() * 60)), steps=30)
