"""Catalogs that are shipped to another place: what arrives, who may write, what is refused."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from seqstore import (
    AlreadyExistsError,
    CommitUnknownError,
    CorruptionError,
    InvalidInputError,
    LabelExistsError,
    NotFoundError,
    Settings,
    Store,
    Table,
    UnavailableError,
)
from seqstore.store.catalog.catalog import DATABASES, CatalogTransaction
from seqstore.store.catalog.ship_log import base_copy
from seqstore.store.catalog.ship_log.outbox import is_shipped_record
from seqstore.store.catalog.ship_log.place import Place, open_place
from seqstore.store.catalog.ship_log.ship_file import (
    LEASE,
    BaseChunk,
    Hold,
    Lease,
    LogObject,
    Manifest,
    ShipFile,
    log_name,
)
from seqstore.store.catalog.ship_log.shipper import Shipper, ShipStatus
from seqstore.store.catalog.transaction_record import find_label, put_transaction
from seqstore.store.failover.restore import restore_store
from tests.support.forks.pools import forked_context
from tests.support.object_store import WEED, object_store
from tests.support.rows import rows_of, schema_of

EVERY = Settings(inline_bytes_max=400, ship_seconds=0, auto_compaction=0)
LATER = Settings(inline_bytes_max=400, ship_seconds=3600, auto_compaction=0)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of an empty bucket on a server of its own."""
    if not WEED.exists():
        pytest.skip("needs the object store of the extra test")
    with object_store(tmp_path_factory.mktemp("weed")) as uri:
        yield uri


@pytest.fixture(params=["directory", "object store"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a shipped catalog, empty so far."""
    if request.param == "directory":
        return str(tmp_path / "shipped")
    uri: str = request.getfixturevalue("bucket")
    return uri.format(tmp_path.name)


def leader(tmp_path: Path, target: str, settings: Settings = EVERY) -> Store:
    """A store with a table that ships its catalog."""
    store = Store.open(tmp_path / "leader", settings=settings, segments=f"file://{tmp_path}/segments")
    store.create_database("db")
    store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING")).upsert(rows(0, 3, "before"))
    store.shipping.begin(target)
    return store


def rows(low: int, high: int, text: str) -> pa.Table:
    return pa.table({"k": pa.array(range(low, high), pa.int64()), "v": [text] * (high - low)})


def test_a_lost_host_loses_nothing(tmp_path: Path, target: str) -> None:
    """Rows in segments and rows in the catalog, from before and after shipping began."""
    store = leader(tmp_path, target)
    store.table("db.t").upsert(rows(2, 500, "large"))
    store.table("db.t").delete(pa.table({"k": [0]}))
    expected, version = rows_of(store.table("db.t")), store.table("db.t").version
    shutil.rmtree(tmp_path / "leader")
    restored = restore_store(target, tmp_path / "new", EVERY)
    assert restored.epoch == 2
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert rows_of(new.table("db.t")) == expected
        assert new.table("db.t").version == version
        assert new.table("db.t").check() == []


def test_a_fenced_host_publishes_nothing(tmp_path: Path, target: str) -> None:
    """The old host learns it at its next commit, and later at once, in other processes too."""
    old = leader(tmp_path, target)
    restore_store(target, tmp_path / "new", EVERY)
    with pytest.raises(UnavailableError, match="epoch 2") as found:
        old.table("db.t").upsert(rows(0, 1, "zombie"))
    assert found.value.kind == "fenced"
    with pytest.raises(UnavailableError, match="epoch 2"):
        old.create_database("other")
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        new.table("db.t").upsert(rows(5, 6, "new"))
        assert set(rows_of(new.table("db.t"))) == {(0, "before"), (1, "before"), (2, "before"), (5, "new")}


def test_a_fence_is_remembered(tmp_path: Path) -> None:
    """The next process of the old host is refused before it has asked the place."""
    target = str(tmp_path / "shipped")
    old = leader(tmp_path, target)
    restore_store(target, tmp_path / "new", EVERY)
    with pytest.raises(UnavailableError):
        old.create_database("other")
    deadline = time.monotonic() + 300
    while old.catalog.shipper._thread is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    status = old.shipping.status()
    assert status is not None
    assert "epoch 2" in status.state.fenced


def test_commits_between_two_shipments_are_the_loss_window(tmp_path: Path) -> None:
    """At intervals a load is acknowledged first; the status tells what waits."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target, LATER)
    store.table("db.t").upsert(rows(7, 8, "waits"))
    status = store.shipping.status()
    assert status is not None
    assert (status.waiting, status.waiting_since_ms > 0) == (1, True)
    store.shipping.flush()
    status = store.shipping.status()
    assert status is not None
    assert (status.waiting, status.waiting_since_ms, status.error) == (0, 0, "")
    store.table("db.t").upsert(rows(8, 9, "lost"))
    restore_store(target, tmp_path / "new", LATER)
    with Store.open(tmp_path / "new", settings=LATER) as new:
        assert {value for _, value in rows_of(new.table("db.t"))} == {"before", "waits"}


def precommitted(table: Table, label: str, values: pa.Table, mode: str = "UPSERT") -> None:
    """Makes a transaction durable that waits for its second phase."""
    with table.begin_load(label=label, mode=mode) as load:
        load.write(values)
        load.precommit()


def segment_files(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "segments" / "tables").rglob("*") if path.is_file()}


def test_files_of_precommitted_transactions_stay_until_their_end_is_shipped(tmp_path: Path) -> None:
    """A new host finds the transactions as they were shipped: pre-committed, with all their rows."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target, LATER)
    table = store.table("db.t")
    table.upsert(rows(0, 900, "before"))
    precommitted(table, "partial", rows(0, 900, "partial"), "UPDATE_FIXED_COLUMNS")
    for label in ("aborted", "expired"):
        precommitted(table, label, rows(1000, 1900, label))
    store.shipping.flush()
    before = segment_files(tmp_path)
    store.commit_transaction("db", label="partial")
    store.abort_transaction("db", label="aborted")
    with store.catalog.write() as tx:
        expired = find_label(tx, 1, "expired")
        assert expired is not None
        put_transaction(tx, replace(expired, expires_ms=1))
    store.maintain()
    assert segment_files(tmp_path) >= before
    restore_store(target, tmp_path / "new", LATER)
    with Store.open(tmp_path / "new", settings=LATER) as new:
        for label in ("partial", "aborted", "expired"):
            new.commit_transaction("db", label=label)
        assert {value for _, value in rows_of(new.table("db.t"))} == {"partial", "expired"}
        assert new.table("db.t").check() == []


def test_files_that_waited_for_a_shipment_are_swept(tmp_path: Path) -> None:
    """The next vacuum ships what waits, and removes them."""
    store = leader(tmp_path, str(tmp_path / "shipped"), LATER)
    before = segment_files(tmp_path)
    precommitted(store.table("db.t"), "aborted", rows(1000, 1900, "aborted"))
    store.abort_transaction("db", label="aborted")
    assert segment_files(tmp_path) > before
    store.table("db.t").vacuum()
    assert segment_files(tmp_path) == before


def test_closing_ships_what_waits(tmp_path: Path) -> None:
    """A host that is shut down in order loses nothing."""
    target = str(tmp_path / "shipped")
    with leader(tmp_path, target, LATER) as store:
        store.table("db.t").upsert(rows(7, 8, "last"))
    restore_store(target, tmp_path / "new", LATER)
    with Store.open(tmp_path / "new", settings=LATER) as new:
        assert (7, "last") in rows_of(new.table("db.t"))


def test_a_place_that_is_away_leaves_the_outcome_open(tmp_path: Path) -> None:
    """The load is not acknowledged; the next commit ships it too."""
    target = tmp_path / "shipped"
    store = leader(tmp_path, str(target))
    target.rename(tmp_path / "away")
    target.write_text("no directory")
    with pytest.raises(CommitUnknownError, match="not shipped"):
        store.table("db.t").upsert(rows(7, 8, "open"))
    with pytest.raises(UnavailableError):  # not even the label may be found before it is shipped
        store.table("db.t").upsert(rows(8, 9, "refused"))
    target.unlink()
    (tmp_path / "away").rename(target)
    store.table("db.t").upsert(rows(9, 10, "later"))
    restore_store(str(target), tmp_path / "new", EVERY)
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert {value for _, value in rows_of(new.table("db.t"))} == {"before", "open", "later"}


@pytest.fixture
def unmounted(tmp_path: Path) -> tuple[Store, Path]:
    """A store whose place is on a file system that is away: its mount point is an empty directory."""
    mount = tmp_path / "mount"
    mount.mkdir()
    store = leader(tmp_path, str(mount))
    mount.rename(tmp_path / "away")
    mount.mkdir()
    return store, mount


def test_a_place_that_is_not_mounted_acknowledges_nothing(
    unmounted: tuple[Store, Path], tmp_path: Path
) -> None:
    """The directory was filled anew on the disk of the host; the log that came back had a hole there."""
    store, mount = unmounted
    with pytest.raises(CommitUnknownError, match="mount its file system"):
        store.table("db.t").upsert(rows(7, 8, "open"))
    assert list(mount.iterdir()) == []
    mount.rmdir()
    (tmp_path / "away").rename(mount)
    store.table("db.t").upsert(rows(8, 9, "later"))
    restore_store(str(mount), tmp_path / "new", EVERY)
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert rows_of(new.table("db.t")) == rows_of(store.table("db.t"))


def test_a_place_that_is_not_mounted_frees_no_file(unmounted: tuple[Store, Path]) -> None:
    """Whether this host leads, and which versions followers read, cannot be known there."""
    store, _ = unmounted
    with pytest.raises(UnavailableError, match="mount its file system"):
        store.catalog.make_durable()
    with pytest.raises(UnavailableError, match="mount its file system"):
        store.catalog.shipper.follower_moments(store.catalog)


@pytest.fixture
def unshipped(tmp_path: Path) -> Store:
    """A store whose newest load, of the label `mine`, was stored and could not be shipped."""
    store = leader(tmp_path, str(tmp_path / "shipped"))
    load = store.table("db.t").begin_load(label="mine", txn_app_id="app", txn_version=1)
    load.write(rows(7, 8, "x"))
    (tmp_path / "shipped").rename(tmp_path / "away")
    with pytest.raises(CommitUnknownError):
        load.commit()
    return store


QUESTIONS: dict[str, Callable[[Store], object]] = {
    "find_transaction": lambda store: store.find_transaction("db", "mine"),
    "find_label": lambda store: store.table("db.t").find_label("mine"),
    "refuse_label": lambda store: store.table("db.t").refuse_label("mine"),
    "a load of the label": lambda store: store.table("db.t").upsert(rows(7, 8, "x"), label="mine"),
    "a transaction of the label": lambda store: store.transaction(database="db", label="mine"),
    "commit_transaction": lambda store: store.commit_transaction("db", label="mine"),
    "abort_transaction": lambda store: store.abort_transaction("db", label="mine"),
    "an idempotent load": lambda store: (
        store.table("db.t").begin_load(txn_app_id="app", txn_version=1).commit()
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_answer_tells_of_a_load_that_was_not_shipped(
    unshipped: Store, tmp_path: Path, question: str
) -> None:
    """The answer was VISIBLE, and the load may be lost with the host. Once it is shipped, it is given."""
    with pytest.raises(UnavailableError, match="mount its file system"):
        QUESTIONS[question](unshipped)
    (tmp_path / "away").rename(tmp_path / "shipped")
    with suppress(LabelExistsError, InvalidInputError):
        QUESTIONS[question](unshipped)
    restore_store(str(tmp_path / "shipped"), tmp_path / "new", EVERY)
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert (7, "x") in rows_of(new.table("db.t"))


def test_another_process_ships_what_waits_before_it_writes(tmp_path: Path) -> None:
    """It had shipped all there was, and so it took the next label as used by a load that was not shipped."""
    store = leader(tmp_path, str(tmp_path / "shipped"))
    other = Shipper(str(tmp_path / "leader" / "catalog"))  # as another process has one
    other.ship(store.catalog)
    (tmp_path / "shipped").rename(tmp_path / "away")
    with pytest.raises(CommitUnknownError):
        store.create_database("waits")
    with pytest.raises(UnavailableError, match="mount its file system"):
        other.before_write(store.catalog, 0)


def require_label(store: Store) -> None:
    with store.catalog.write() as tx:
        if find_label(tx, 1, "mine") is None:
            raise NotFoundError("no such label")


@pytest.mark.parametrize(
    "block", [lambda store: store.table("db.t").refuse_label("mine"), require_label], ids=["fails", "ends"]
)
def test_a_block_tells_only_of_what_was_shipped(
    unshipped: Store, monkeypatch: pytest.MonkeyPatch, block: Callable[[Store], None]
) -> None:
    """It looked for what waits, and the commit that it read was stored after that, before its transaction."""
    shipper, early = unshipped.catalog.shipper, [0]
    real = shipper.unshipped
    monkeypatch.setattr(shipper, "unshipped", lambda catalog: early.pop() if early else real(catalog))
    with pytest.raises(UnavailableError, match="mount its file system"):
        block(unshipped)


def test_the_first_load_of_a_fenced_host_says_where_it_is(tmp_path: Path) -> None:
    """It is stored there and read there; the error said that nothing was published."""
    store = leader(tmp_path, str(tmp_path / "shipped"))
    load = store.table("db.t").begin_load(label="mine")
    load.write(rows(9, 10, "zombie"))
    restore_store(str(tmp_path / "shipped"), tmp_path / "new", EVERY)
    with pytest.raises(UnavailableError, match="stored on it only: another host leads") as found:
        load.commit()
    assert found.value.kind == "fenced"
    with pytest.raises(UnavailableError, match="stored on it only: another host leads"):
        store.find_transaction("db", "mine")


def test_new_base_copies_cut_the_log(tmp_path: Path, target: str) -> None:
    """Two copies stay, and the log that the older one needs."""
    store = leader(tmp_path, target)
    for number in range(4):
        store.table("db.t").upsert(rows(number, number + 1, f"round {number}"))
        store.catalog.shipper.renew_base(store.catalog)
    place = open_place(target)
    assert len([name for name in place.list("base") if name.endswith("manifest")]) == 2
    assert len(place.list("log")) == 2
    store.table("db.t").upsert(rows(4, 5, "after"))
    expected = rows_of(store.table("db.t"))
    restore_store(target, tmp_path / "new", EVERY)
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert rows_of(new.table("db.t")) == expected


def test_an_upload_that_lasts_long_holds_no_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB reused no page meanwhile, and a forked child could not use the store."""
    with leader(tmp_path, str(tmp_path / "shipped")) as store, ThreadPoolExecutor(1) as pool:
        place = type(open_place(str(tmp_path / "shipped")))
        begun, done, write = threading.Event(), threading.Event(), place.write

        def slow(self: Place, name: str, data: bytes) -> None:
            begun.set()
            done.wait()
            write(self, name, data)

        with monkeypatch.context() as patch:
            patch.setattr(place, "write", slow)
            copying = pool.submit(store.catalog.shipper.renew_base, store.catalog)
            begun.wait()
            try:
                store.catalog.close()  # raises after ten seconds if a transaction runs
            finally:
                done.set()
            copying.result()
        restore_store(str(tmp_path / "shipped"), tmp_path / "new", EVERY)
        with Store.open(tmp_path / "new", settings=EVERY) as new:
            assert rows_of(new.table("db.t")) == rows_of(store.table("db.t"))


def test_a_base_copy_has_the_commit_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that was shipped right after the copy's moment was named by it, and skipped in the log."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    store.table("db.t").upsert(rows(7, 8, "before"))
    shipper, copier = store.catalog.shipper, threading.current_thread()
    place_of = shipper._place_of

    def meanwhile(tx: CatalogTransaction) -> Place:
        if threading.current_thread() is copier:
            monkeypatch.setattr(shipper, "_place_of", place_of)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(store.table("db.t").upsert, rows(8, 9, "meanwhile")).result()
        return place_of(tx)

    monkeypatch.setattr(shipper, "_place_of", meanwhile)
    shipper.renew_base(store.catalog)
    restore_store(target, tmp_path / "new", EVERY)
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert rows_of(new.table("db.t")) == rows_of(store.table("db.t"))


def awaited(condition: Callable[[], object]) -> bool:
    """Whether a condition becomes true."""
    deadline = time.monotonic() + 300
    while not (found := bool(condition())) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def status_of(store: Store) -> ShipStatus:
    found = store.shipping.status()
    assert found is not None
    return found


@pytest.mark.parametrize(
    "error", [OSError(24, "the disk is away"), UnavailableError("the disk is away", kind="disk")]
)
def test_no_error_ends_the_shipping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """An error once ended the thread: the status did not tell of it, and no later load was shipped."""
    store = leader(tmp_path, str(tmp_path / "shipped"), replace(EVERY, ship_seconds=1))

    def failing(*_: object) -> bool:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(store.catalog.shipper._file_lock, "acquire", failing)
        store.table("db.t").upsert(rows(7, 8, "x"))
        assert awaited(lambda: "the disk is away" in status_of(store).error)
    assert awaited(lambda: not status_of(store).waiting)
    assert awaited(lambda: not status_of(store).error)


def test_a_thread_that_cannot_start_is_started_by_the_next_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load is stored, and the status tells that nothing ships it."""
    store = leader(tmp_path, str(tmp_path / "shipped"), replace(EVERY, ship_seconds=1))
    shipper = store.catalog.shipper
    assert awaited(lambda: shipper._thread is None)

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        store.create_database("first")
    assert "can't start new thread" in status_of(store).error
    store.create_database("second")
    assert awaited(lambda: not status_of(store).waiting)


def test_shipping_that_failed_to_begin_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call did nothing, without an error, and there was nothing to restore."""
    target = str(tmp_path / "shipped")
    store = Store.open(tmp_path / "leader", settings=EVERY, segments=f"file://{tmp_path}/segments")
    store.create_database("db")

    def full(*_: object) -> None:
        raise UnavailableError("no space left", kind="disk")

    with monkeypatch.context() as patch:
        patch.setattr(type(open_place(target)), "write", full)
        with pytest.raises(UnavailableError, match="no space left"):
            store.shipping.begin(target)
    assert "no space left" in status_of(store).error
    store.shipping.begin(target)
    assert status_of(store).error == ""
    restore_store(target, tmp_path / "new", EVERY)
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert new.databases() == ["db"]


def test_a_place_without_a_base_copy_is_told_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that began was killed; the next one that opens the store makes the copy."""
    target = str(tmp_path / "shipped")
    store = Store.open(tmp_path / "leader", settings=EVERY, segments=f"file://{tmp_path}/segments")
    with monkeypatch.context() as patch:
        patch.setattr(store.catalog.shipper, "renew_base", lambda _: None)
        store.shipping.begin(target)
    assert "no base copy" in status_of(store).error
    with Store.open(tmp_path / "leader", settings=EVERY):
        assert awaited(lambda: not status_of(store).error)
    restore_store(target, tmp_path / "new", EVERY)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error was ModuleNotFoundError of Python."""
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    place = open_place("s3://bucket/prefix")
    for ask in (place.read, lambda name: place.create(name, b""), lambda name: place.replace(name, b"", "")):
        with pytest.raises(InvalidInputError, match=r"pip install 'seqstore\[ship\]'"):
            ask("lease")


@pytest.mark.parametrize("ask", ["create", "write", "list"])
def test_a_bucket_that_does_not_exist_is_unavailable(monkeypatch: pytest.MonkeyPatch, ask: str) -> None:
    """The client's error for it is FileNotFoundError, which is no error of the store."""
    pytest.importorskip("obstore")
    place = open_place("s3://bucket/prefix?region=x")

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("NoSuchBucket")

    monkeypatch.setattr(place, "_store", SimpleNamespace(put=missing, list=missing))
    with pytest.raises(UnavailableError, match="NoSuchBucket"):
        place.list("log") if ask == "list" else getattr(place, ask)("log/1", b"")


@pytest.mark.long
def test_a_forked_child_uses_no_object_store_after_its_parent(bucket: str, tmp_path: Path) -> None:
    """Its requests waited for ever, and its parent's from then on: both had the client's event queue."""
    open_place(bucket.format(tmp_path.name), is_new=True).write("lease", b"x")
    child = os.fork()
    if not child:
        code = 1
        with suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)  # a request that waits cannot be interrupted
            try:
                open_place(bucket.format("other")).read("lease")
            except UnavailableError as error:
                code = 0 if error.kind == "forked" else 2
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    found = open_place(bucket.format(tmp_path.name)).read("lease")
    assert found is not None
    assert found[0] == b"x"


def test_several_failovers_in_a_row(tmp_path: Path) -> None:
    """Each host ships on; none makes a new base copy first."""
    target = str(tmp_path / "shipped")
    leader(tmp_path, target).close()
    for number in range(3):
        restore_store(target, tmp_path / f"host{number}", EVERY)
        with Store.open(tmp_path / f"host{number}", settings=EVERY) as store:
            store.table("db.t").upsert(rows(10 + number, 11 + number, "more"))
    restore_store(target, tmp_path / "last", EVERY)
    with Store.open(tmp_path / "last", settings=EVERY) as store:
        assert len(rows_of(store.table("db.t"))) == 6


def test_every_object_is_checked(tmp_path: Path) -> None:
    """A flipped bit in any object that a restoration reads is an error that names the object."""
    target = tmp_path / "shipped"
    store = leader(tmp_path, str(target))
    store.table("db.t").upsert(rows(7, 8, "more"))
    store.close()
    files = [path for path in target.rglob("*") if path.is_file() and not path.name.startswith(".")]
    read = {"lease", "log", "base"}
    checked = set()
    for number, path in enumerate(files):
        name = path.relative_to(target)
        if str(name) == "log/00000000000000000001":  # in the base copy already
            continue
        data = bytearray(path.read_bytes())
        for at in (0, 7, 9, len(data) // 2, len(data) - 1):
            data[at] ^= 1
            path.write_bytes(data)
            with pytest.raises(CorruptionError) as found:
                restore_store(str(target), tmp_path / f"new{number}-{at}", EVERY)
            assert str(name) in found.value.path
            data[at] ^= 1
        path.write_bytes(data)
        checked.add(name.parts[0])
    assert checked == read


def test_what_cannot_be_shipped_is_refused(tmp_path: Path) -> None:
    """Segments beside the catalog, a place within it, a taken place, no place."""
    local = Store.open(tmp_path / "local")
    with pytest.raises(InvalidInputError, match="segments of this store are in its data directory"):
        local.shipping.begin(str(tmp_path / "shipped"))
    store = leader(tmp_path, str(tmp_path / "shipped"))
    store.shipping.begin(str(tmp_path / "shipped"))  # once more changes nothing
    with pytest.raises(InvalidInputError, match="another place"):
        store.shipping.begin(str(tmp_path / "second"))
    other = Store.open(tmp_path / "other", segments=f"file://{tmp_path}/others")
    for place, error in (
        (tmp_path / "shipped", AlreadyExistsError),
        (tmp_path / "other" / "inside", InvalidInputError),
        ("relative", InvalidInputError),
        ("gs://bucket/x", InvalidInputError),
    ):
        with pytest.raises(error):
            other.shipping.begin(str(place))
    with pytest.raises(NotFoundError):
        restore_store(str(tmp_path / "nothing"), tmp_path / "new")
    with pytest.raises(AlreadyExistsError, match="has files"):
        restore_store(str(tmp_path / "shipped"), tmp_path / "other")


def test_a_place_without_conditions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some object stores accept the header of a conditional write and ignore it."""
    place = open_place(str(tmp_path / "shipped"), is_new=True)

    def careless(name: str, data: bytes) -> bool:
        place.write(name, data)
        return True

    monkeypatch.setattr(place, "create", careless)
    with pytest.raises(InvalidInputError, match="conditional writes"):
        place.check_conditions()


def test_conditions_of_places(tmp_path: Path, target: str) -> None:
    """One of two creates, one of two replaces with one tag; the probe leaves nothing."""
    place = open_place(target, is_new=True)
    place.check_conditions()
    assert place.list("probe") == []
    assert [place.create("a/b", b"1"), place.create("a/b", b"2")] == [True, False]
    found = place.read("a/b")
    assert found is not None
    assert [place.replace("a/b", b"3", found[1]), place.replace("a/b", b"4", found[1])] == [True, False]
    assert place.replace("a/none", b"5", found[1]) is False
    assert place.read("a/none") is None
    place.write("a/c", b"6")
    assert (place.list("a"), place.list("a", after="b")) == (["b", "c"], ["c"])
    place.delete("a/c")
    place.delete("a/b")
    place.delete("a/b")
    assert place.list("a") == []


def test_the_reply_of_a_write_that_succeeded_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try finds its own commits there, and the load is acknowledged; with it, later commits."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    table = store.table("db.t")
    table.upsert(rows(7, 8, "before"))  # the shipper knows its place
    place = store.catalog.shipper._place
    assert place is not None
    create = place[1].create

    def lost(name: str, data: bytes) -> bool:
        create(name, data)
        monkeypatch.setattr(place[1], "create", create)
        raise UnavailableError("the connection was reset", kind="disk")

    monkeypatch.setattr(place[1], "create", lost)
    with pytest.raises(CommitUnknownError):
        table.upsert(rows(8, 9, "unknown"))
    table.upsert(rows(9, 10, "after"))
    restore_store(target, tmp_path / "new", EVERY)
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert new.table("db.t").version == table.version
        assert rows_of(new.table("db.t")) == rows_of(table)


def test_writers_that_share_a_commit_ship_it_once(tmp_path: Path) -> None:
    """Sixteen writers at once need fewer objects than commits."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    before = len(open_place(target).list("log"))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: store.create_database(f"db{number}"), range(64)))
    assert len(open_place(target).list("log")) - before < 64
    restore_store(target, tmp_path / "new", EVERY)
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert len(new.databases()) == 65


def test_processes_take_turns(tmp_path: Path) -> None:
    """Commits of several processes of a host make one log."""
    target = str(tmp_path / "shipped")
    store = leader(tmp_path, target)
    context = forked_context()
    with context.Pool(2) as pool:
        waiting = pool.starmap_async(
            load_some, [(str(tmp_path / "leader"), 10), (str(tmp_path / "leader"), 20)]
        )
        for number in range(5):
            store.table("db.t").upsert(rows(30 + number, 31 + number, "here"))
        waiting.get(300)
    expected = rows_of(store.table("db.t"))
    assert len(expected) == 18
    restore_store(target, tmp_path / "new", EVERY)
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        assert rows_of(new.table("db.t")) == expected
        assert new.table("db.t").version == store.table("db.t").version


def load_some(path: str, first: int) -> None:
    with Store.open(path, settings=EVERY) as store:
        for number in range(first, first + 5):
            store.table("db.t").upsert(rows(number, number + 1, "there"))


def test_a_fenced_host_removes_no_file_of_the_new_one(tmp_path: Path) -> None:
    """Its sweeps and vacuums see files that its own catalog does not name."""
    target = str(tmp_path / "shipped")
    old = leader(tmp_path, target, LATER)
    old.table("db.t").upsert(rows(0, 900, "old"))
    old.shipping.flush()
    restore_store(target, tmp_path / "new", EVERY)
    context = forked_context()
    with context.Pool(1) as pool:  # its process ends: for the old host its files have no owner
        pool.apply(load_large, (str(tmp_path / "new"),))
    table = old.table("db.t")
    with suppress(UnavailableError):
        table.upsert(rows(0, 900, "zombie"))
    with pytest.raises(UnavailableError, match="epoch 2"):
        table.vacuum(retention_seconds=0)
    old.close()
    Store.open(tmp_path / "leader", settings=LATER).close()  # sweeps
    with Store.open(tmp_path / "new", settings=EVERY) as new:
        shutil.rmtree(tmp_path / "new" / "cache")
        assert {value for _, value in rows_of(new.table("db.t"))} == {"new"}
        assert new.table("db.t").check() == []


def load_large(path: str) -> None:
    with Store.open(path, settings=EVERY) as store:
        store.table("db.t").upsert(rows(0, 900, "new"))


def test_shipped_files_stay_readable() -> None:
    """The bytes of format 1, as docs/format.md describes them; other bytes need another number."""
    digest = bytes(range(16))
    writes = (("heads", b"\0\1", b"rec"), ("labels", b"x", None))
    time_ms = 1_700_000_000_000
    files: dict[str, tuple[ShipFile, str]] = {
        LEASE: (
            Lease(2, "00ff", "host", time_ms),
            "7365717368697001b44301011e80a7c13f394f8ce6d39d5184a565706f636802a5746f6b656ea430306666a4686f7374"
            "a4686f7374a873696e63655f6d73cf0000018bcfe56800",
        ),
        log_name(3): (
            LogObject(3, 2, digest, time_ms, ((7, time_ms + 1, writes),)),
            "7365717368697001708a2e4399fe3db166d7da7bcd01cb8e85a8706f736974696f6e03a565706f636802a87072657669"
            "6f7573c410000102030405060708090a0b0c0d0e0fa774696d655f6d73cf0000018bcfe56800a7636f6d6d6974739193"
            "07cf0000018bcfe568019293a56865616473c4020001c40372656393a66c6162656c73c40178c0",
        ),
        "base/00000000000000000002-a/manifest": (
            Manifest(6, 2, bytes(16), 1, (digest,), 512),
            "73657173686970019c7781a687737d503d3271a7fee09dc286a6636f6d6d697406a8706f736974696f6e02a664696765"
            "7374c41000000000000000000000000000000000a565706f636801a66368756e6b7391c4100001020304050607"
            "08090a0b0c0d0e0fa56279746573cd0200",
        ),
        "base/00000000000000000002-a/000000": (
            BaseChunk((("meta", b"format", b"abc"),)),
            "7365717368697001b69b5802e6ef04ba12a2957a316c95ef81a77265636f7264739193a46d657461c406666f726d6174"
            "c403616263",
        ),
        "followers/f": (
            Hold(5, 6, 900),
            "73657173686970019c7c10abad13947b0fc2466f1870b4ad83a96d6f6d656e745f6d7305aa72656e657765645f6d7306"
            "ac7465726d5f7365636f6e6473cd0384",
        ),
    }
    place = open_place("/nowhere")
    for name, (value, packed) in files.items():
        assert value.packed(name).hex() == packed
        assert type(value).unpacked(place, name, bytes.fromhex(packed)) == value


def test_a_base_copy_of_several_parts_has_each_record_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that kept the records of those before them would hold a catalog many times."""
    monkeypatch.setattr(base_copy, "_CHUNK_BYTES", 300)
    for number in range(5):
        store.create_table(f"db.t{number}", schema_of("k INT NOT NULL"))
    place = open_place(str(tmp_path / "place"), is_new=True)
    with store.catalog.read() as tx, (tmp_path / "copy").open("w+b") as file:
        copied = base_copy.copy_records(tx, file, 0)
        chunks = copied.upload(place)
        expected = [
            (database, key, bytes(raw))
            for database in DATABASES
            for key, raw in tx.items(database)
            if is_shipped_record(database, key)
        ]
    manifest = Manifest(1, 0, b"", 1, tuple(chunks), copied.size)
    found = [base_copy.base_chunk(place, copied.directory, manifest, i) for i in range(len(chunks))]
    assert len(chunks) > 5
    assert [record for chunk in found for record in chunk.records] == expected


def test_a_directory_is_named_by_its_path_or_by_a_uri() -> None:
    shown = [open_place(uri, is_new=True).shown for uri in ("/a/b c", "file:///a/b%20c")]
    assert shown == ["/a/b c", "/a/b c"]


@pytest.mark.parametrize(
    "uri", ["there", "../there", "/there/../here", "file:there", "file:///a/../b", "ftp://host/there"]
)
def test_a_place_is_an_absolute_path_or_an_object_store(uri: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot receive a catalog"):
        open_place(uri, is_new=True)
