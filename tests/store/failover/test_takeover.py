"""Takeovers: one host of several, the loads of the lost one, and logs that no host wrote."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import CorruptionError, NotFoundError, Settings, Store, UnavailableError
from seqstore.store.catalog.ship_log.place import Place, open_place
from seqstore.store.catalog.ship_log.ship_file import BASE, MANIFEST, BaseChunk, Lease, LogObject, log_name
from seqstore.store.failover.restore import create_epoch, restore_store
from tests.support.rows import rows_of, schema_of

SETTINGS = Settings(inline_bytes_max=400, ship_seconds=0, auto_compaction=0)
ROW = pa.table({"k": [1], "v": ["a"]})


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "shipped")


@pytest.fixture
def leader(tmp_path: Path, target: str) -> Store:
    """A store that ships each commit; it stays open, as that of a host which is lost."""
    store = Store.open(tmp_path / "leader", settings=SETTINGS, segments=f"file://{tmp_path}/segments")
    store.create_database("db")
    store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
    store.shipping.begin(target)
    return store


def test_one_of_two_hosts_that_take_over_at_once_leads(
    leader: Store, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the lease before one of them replaces it."""
    together, read, waited = threading.Barrier(2), Lease.read, set[int]()

    def both(place: Place, name: str) -> Any:
        found = read(place, name)
        if threading.get_ident() not in waited:  # the loser reads once more
            waited.add(threading.get_ident())
            together.wait(300)
        return found

    def take_over(name: str) -> str:
        try:
            restore_store(target, tmp_path / name, SETTINGS)
        except UnavailableError as error:
            return error.message.rpartition(": ")[2]
        return "leads"

    monkeypatch.setattr(Lease, "read", both)
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(take_over, ("one", "two"))) == [
            "another host is taking over; only one can",
            "leads",
        ]


def test_labels_of_loads_that_ran_on_the_lost_host_are_free(
    leader: Store, tmp_path: Path, target: str
) -> None:
    """One that was pre-committed waits for its end."""
    table = leader.table("db.t")
    running = table.begin_load(label="running")
    running.write(ROW)
    with table.begin_load(label="prepared") as load:
        load.write(ROW)
        load.precommit()
    table.upsert(ROW)  # ships what was noted of them
    restore_store(target, tmp_path / "new", SETTINGS)
    with Store.open(tmp_path / "new", settings=SETTINGS) as new:
        new.table("db.t").upsert(pa.table({"k": [2], "v": ["again"]}), label="running")
        new.commit_transaction("db", label="prepared")
        assert sorted(rows_of(new.table("db.t"))) == [(1, "a"), (2, "again")]


def test_a_fenced_host_completes_no_base_copy(leader: Store, tmp_path: Path, target: str) -> None:
    """A new host would start from it, and miss what was written at the one before."""
    leader.table("db.t").upsert(ROW)
    restore_store(target, tmp_path / "new", SETTINGS)
    before = manifests(target)
    with pytest.raises(UnavailableError):
        leader.table("db.t").upsert(ROW)  # waits from now on
    with pytest.raises(UnavailableError) as fenced:
        leader.catalog.shipper.renew_base(leader.catalog)
    assert fenced.value.kind == "fenced"
    assert manifests(target) == before


def manifests(target: str) -> list[str]:
    return [name for name in open_place(target).list(BASE) if name.endswith(MANIFEST)]


Change = Callable[[LogObject], LogObject]
BROKEN: dict[str, tuple[Change, str]] = {
    "position": (lambda found: replace(found, position=found.position + 1), "has position"),
    "chain": (lambda found: replace(found, previous=bytes(16)), "does not follow the object before it"),
    "epoch": (lambda found: replace(found, epoch=0), "has epoch 0 after 1"),
    "commit": (
        lambda found: replace(found, commits=((found.commits[0][0] + 1, *found.commits[0][1:]),)),
        "has commit",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_log_that_is_no_sequence_is_damaged(leader: Store, tmp_path: Path, target: str, name: str) -> None:
    """Its objects are whole and match their checksums."""
    for number in range(2):
        leader.table("db.t").upsert(pa.table({"k": [number], "v": ["a"]}))
    place = open_place(target)
    path = log_name(len(place.list("log")))
    found = LogObject.read(place, path)
    assert found is not None
    change, fault = BROKEN[name]
    place.write(path, change(found[0]).packed(path))
    with pytest.raises(CorruptionError, match=fault) as damaged:
        restore_store(target, tmp_path / "new", SETTINGS)
    assert path in damaged.value.path or name == "position"


@pytest.mark.parametrize("last", [2, 3])
def test_a_hole_in_the_log_is_no_end(leader: Store, tmp_path: Path, target: str, last: int) -> None:
    """Loads behind it were lost without an error: a new host began its epoch in the hole."""
    for number in range(3):
        leader.table("db.t").upsert(pa.table({"k": [number], "v": ["a"]}))
    place = open_place(target)
    missing = [log_name(position) for position in range(2, last + 1)]
    kept = {name: place.read(name) for name in missing}
    for name in missing:
        place.delete(name)
    with pytest.raises(CorruptionError, match="is missing") as damaged:
        restore_store(target, tmp_path / "new", SETTINGS)
    assert missing[0] in damaged.value.path
    for name, found in kept.items():
        assert found is not None
        place.write(name, found[0])
    restore_store(target, tmp_path / "new", SETTINGS)
    with Store.open(tmp_path / "new", settings=SETTINGS) as new:
        assert rows_of(new.table("db.t")) == rows_of(leader.table("db.t"))


def test_a_log_object_that_is_missing_ends_no_log(leader: Store, tmp_path: Path, target: str) -> None:
    """The objects behind it cannot be reached: the new base copy begins behind them."""
    for number in range(2):
        leader.table("db.t").upsert(pa.table({"k": [number], "v": ["a"]}))
    leader.catalog.shipper.renew_base(leader.catalog)
    expected = rows_of(leader.table("db.t"))
    shutil.rmtree(tmp_path / "leader")
    for name in open_place(target).list("log")[:-1]:
        open_place(target).delete(f"log/{name}")
    restore_store(target, tmp_path / "new", SETTINGS)
    with Store.open(tmp_path / "new", settings=SETTINGS) as new:
        assert rows_of(new.table("db.t")) == expected


def test_a_place_without_a_base_copy_fences_nobody(leader: Store, tmp_path: Path, target: str) -> None:
    place = open_place(target)
    kept = {name: place.read(f"{BASE}/{name}") for name in place.list(BASE)}
    for name in kept:
        place.delete(f"{BASE}/{name}")
    with pytest.raises(NotFoundError, match="no base copy"):
        restore_store(target, tmp_path / "new", SETTINGS)
    for name, found in kept.items():
        assert found is not None
        place.write(f"{BASE}/{name}", found[0])
    assert restore_store(target, tmp_path / "new", SETTINGS).epoch == 2


@pytest.mark.parametrize("fault", ["is missing", "is another one than its manifest names"])
def test_a_base_copy_without_a_part_of_its_own_is_damaged(
    leader: Store, tmp_path: Path, target: str, fault: str
) -> None:
    """The other part is whole and has the same name: it is of a copy that nobody completed."""
    place = open_place(target)
    (name,) = (f"{BASE}/{name}" for name in place.list(BASE) if not name.endswith(MANIFEST))
    if fault == "is missing":
        place.delete(name)
    else:
        place.write(name, BaseChunk(()).packed(name))
    with pytest.raises(CorruptionError, match=fault) as damaged:
        restore_store(target, tmp_path / "new", SETTINGS)
    assert name in damaged.value.path


def test_an_epoch_begins_though_the_reply_of_its_first_object_is_lost(
    leader: Store, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object is there, and is not that of another host."""
    place = open_place(target)
    create = place.create

    def tried_again(name: str, data: bytes) -> bool:
        create(name, data)
        return create(name, data)

    monkeypatch.setattr(place, "create", tried_again)
    digest = create_epoch(place, 999, 1)
    found = LogObject.read(place, log_name(999))
    assert found is not None
    assert digest == found[1]
    assert create_epoch(place, 999, 2) is None
