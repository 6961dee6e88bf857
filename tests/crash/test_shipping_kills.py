"""Leaders and new leaders that are killed at a failpoint of shipping: what was acknowledged is at the place.

The host is lost with its disk, or the killed process is started again on it. Each load has a label and adds
the row of its number, so a load that is missing or that was applied twice shows.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import AlreadyExistsError, InvalidInputError, LabelExistsError, Store, UnavailableError
from seqstore.store.catalog.ship_log.place import open_place
from seqstore.store.catalog.ship_log.ship_file import BASE, MANIFEST
from seqstore.store.failover.restore import restore_store
from tests.support.failover_rounds import SETTINGS
from tests.support.faults.dying_child import run_until_dead
from tests.support.rows import rows_of, schema_of

pytestmark = pytest.mark.crash
LEADER = """
import sys, itertools
import pyarrow as pa
from seqstore import Settings, Store
store = Store.open(sys.argv[1], settings=Settings(ship_seconds=0, auto_compaction=0, inline_bytes_max=200))
table = store.table("db.t")
print("ready", flush=True)
for number in itertools.count(int(sys.argv[2])):
    text = "x" * (number % 3 * 300)  # some rows are stored in segments
    table.upsert(pa.table({"k": [number], "v": [text]}), label=f"load{number}")
    print(number, flush=True)
    store.catalog.shipper.renew_base(store.catalog)
"""
SUCCESSOR = """
import sys
from pathlib import Path
from seqstore.store.failover.restore import restore_store
print("ready", flush=True)
restore_store(sys.argv[1] + ".shipped", Path(sys.argv[1] + ".new"))
"""


@pytest.fixture
def leader(tmp_path: Path) -> Path:
    """The data directory of a store that ships to the directory beside it."""
    path = tmp_path / "data"
    with Store.open(path, settings=SETTINGS, segments=f"file://{tmp_path}/segments") as store:
        store.create_database("db")
        store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
        store.shipping.begin(f"{path}.shipped")
    return path


def load(store: Store, number: int) -> None:
    store.table("db.t").upsert(pa.table({"k": [number], "v": ["later"]}), label=f"load{number}")


def checked(store: Store, told: list[str]) -> int:
    """Returns how many loads there are, which are the first ones, all that were acknowledged among them."""
    table = store.table("db.t")
    found = sorted(key for key, _ in rows_of(table))
    assert found == list(range(len(found)))
    assert len(told) <= len(found) <= len(told) + 1
    assert table.version == 1 + len(found)
    assert table.check() == []
    return len(found)


POINTS = [
    f"ship.{point}:{number}" for point in ("committed", "shipped", "copied", "based") for number in (1, 3)
]


@pytest.mark.parametrize("point", POINTS)
def test_a_lost_host_loses_nothing_that_it_acknowledged(leader: Path, tmp_path: Path, point: str) -> None:
    """The new host has the loads, and goes on with the next one."""
    told = run_until_dead(LEADER, leader, 0, failpoint=point)
    shutil.rmtree(leader)
    assert restore_store(f"{leader}.shipped", tmp_path / "new", SETTINGS).epoch == 2
    with Store.open(tmp_path / "new", settings=SETTINGS) as store:
        there = checked(store, told)
        load(store, there)
        assert checked(store, [*told, *["acknowledged"] * (there + 1 - len(told))]) == there + 1


@pytest.mark.parametrize("point", POINTS)
def test_a_host_that_is_there_again_goes_on(leader: Path, tmp_path: Path, point: str) -> None:
    """A load that was stored and not acknowledged is there, under its label, and is shipped with the next."""
    told = run_until_dead(LEADER, leader, 0, failpoint=point)
    with Store.open(leader, settings=SETTINGS) as store:
        there = checked(store, told)
        if there > len(told):
            with pytest.raises(LabelExistsError):
                load(store, len(told))
        load(store, there)
        status = store.shipping.status()
        assert status is not None
        assert (status.waiting, status.error) == (0, "")
        expected = rows_of(store.table("db.t"))
    restore_store(f"{leader}.shipped", tmp_path / "new", SETTINGS)
    with Store.open(tmp_path / "new", settings=SETTINGS) as store:
        assert rows_of(store.table("db.t")) == expected


def test_copies_that_were_not_completed_displace_no_whole_one(leader: Path, tmp_path: Path) -> None:
    """Processes that are killed in one base copy after another leave their parts at the place; the next whole
    copy removed itself, as it was not among the newest two directories."""
    place = open_place(f"{leader}.shipped")
    with Store.open(leader, settings=SETTINGS) as store:
        load(store, 0)
        state = store.shipping.status()
        assert state is not None
        for number in range(3):  # the greatest names that copies of this moment can have
            place.write(f"{BASE}/{state.state.position:020d}-zzzzzzzzzzz{number}/000000", b"part")
        for _ in range(2):
            store.catalog.shipper.renew_base(store.catalog)
        load(store, 1)
        expected = rows_of(store.table("db.t"))
    assert sum(name.endswith(MANIFEST) for name in place.list(BASE)) == 2
    restore_store(f"{leader}.shipped", tmp_path / "new", SETTINGS)
    with Store.open(tmp_path / "new", settings=SETTINGS) as store:
        assert rows_of(store.table("db.t")) == expected


def test_parts_of_a_copy_go_with_the_copies_of_their_time(leader: Path) -> None:
    """Those that are newer than a copy which stays may become a copy still."""
    place = open_place(f"{leader}.shipped")
    place.write(f"{BASE}/{0:020d}-abc/000000", b"part")
    with Store.open(leader, settings=SETTINGS) as store:
        for number in range(2):
            load(store, number)
            store.catalog.shipper.renew_base(store.catalog)
            state = store.shipping.status()
            assert state is not None
            place.write(f"{BASE}/{state.state.position:020d}-zzz{number}/000000", b"part")
    left = [name for name in place.list(BASE) if not name.endswith(MANIFEST)]
    assert not [name for name in left if "-abc/" in name]
    assert [name[-11:] for name in left if "-zzz" in name] == ["zzz0/000000", "zzz1/000000"]


def test_a_successor_killed_with_the_lease_leaves_the_leader_in_office(leader: Path, tmp_path: Path) -> None:
    """Nothing is fenced before the log has an object of the new epoch; the next one can take over."""
    run_until_dead(SUCCESSOR, leader, 0, failpoint="failover.leased")
    with Store.open(leader, settings=SETTINGS) as store:
        load(store, 0)
        assert checked(store, ["0"]) == 1
    assert restore_store(f"{leader}.shipped", tmp_path / "data.new", SETTINGS).epoch == 3
    with Store.open(tmp_path / "data.new", settings=SETTINGS) as store:
        assert checked(store, ["0"]) == 1


def test_a_successor_killed_behind_the_fence_leaves_no_leader(leader: Path, tmp_path: Path) -> None:
    """The old host is fenced, the unfinished directory refuses writes, and the next host takes over."""
    with Store.open(leader, settings=SETTINGS) as store:
        load(store, 0)
    run_until_dead(SUCCESSOR, leader, 0, failpoint="failover.fenced")
    with Store.open(leader, settings=SETTINGS) as store, pytest.raises(UnavailableError, match="epoch 2"):
        load(store, 1)
    with pytest.raises(AlreadyExistsError, match="has files"):
        restore_store(f"{leader}.shipped", tmp_path / "data.new", SETTINGS)
    with Store.open(tmp_path / "data.new", settings=SETTINGS) as store:
        with pytest.raises(InvalidInputError) as refused:
            load(store, 1)
        assert refused.value.kind == "read_only"
    assert restore_store(f"{leader}.shipped", tmp_path / "other", SETTINGS).epoch == 3
    with Store.open(tmp_path / "other", settings=SETTINGS) as store:
        assert checked(store, ["0"]) == 1
        load(store, 1)
