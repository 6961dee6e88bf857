"""Ctrl-C while a commit waits for the disk: what is published has its files, what is not leaves none."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import lmdb
import pyarrow as pa
import pytest

from seqstore import Column, Store, Table, TableSchema, parse_type
from seqstore.store.catalog.environment import environment

Write = Callable[[Store, Table], None]


pytestmark = pytest.mark.settings(inline_bytes_max=0, auto_compaction=0)


def make(store: Store, name: str) -> Table:
    """1,000 keys, a tenth of them written twice."""
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("INT"))]
    table = store.create_table(f"db.{name}", TableSchema.create(columns, ["k"]))
    table.upsert(rows(range(1_000)))
    table.upsert(rows(range(100)))
    return table


def rows(keys: range) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([len(keys)] * len(keys), pa.int32())})


def load(_: Store, table: Table) -> None:
    table.upsert(rows(range(500, 1_500)))


def load_with_a_label(_: Store, table: Table) -> None:
    with table.begin_load(label=table.name) as load:
        load.write(rows(range(500, 1_500)))
        load.commit()


def partial_update(_: Store, table: Table) -> None:
    table.upsert(rows(range(500, 1_500)), mode="UPDATE_FIXED_COLUMNS")


def transaction(store: Store, table: Table) -> None:
    with store.transaction() as running:
        running.table(table.name).upsert(rows(range(500, 1_500)))


def compaction(_: Store, table: Table) -> None:
    table.optimize()


def pre_commit(_: Store, table: Table) -> None:
    with table.begin_load(label=table.name) as load:
        load.write(rows(range(500, 1_500)))
        load.precommit()


WRITES = [load, load_with_a_label, partial_update, transaction, compaction, pre_commit]


def interrupt_last_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch, write: Write, *, is_done: bool
) -> tuple[Table, int]:
    """Ctrl-C at the last commit of the catalog in a write, its commit point: when it is done, or not begun.

    Returns:
        The table, and how many versions it had.
    """
    commit = environment._commit
    count, until = 0, None

    def counted(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        nonlocal count
        count += 1
        if is_done or count != until:
            commit(env, txn)
        if count == until:
            raise KeyboardInterrupt

    other, table = make(store, "other"), make(store, "t")
    monkeypatch.setattr(environment, "_commit", counted)
    write(store, other)
    count, until = 0, count
    version = table.version
    with pytest.raises(KeyboardInterrupt):
        write(store, table)
    monkeypatch.undo()
    return table, version


@pytest.mark.parametrize("write", WRITES)
def test_an_interrupt_behind_the_commit_point_takes_no_file_away(
    store: Store, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    table, version = interrupt_last_commit(store, monkeypatch, write, is_done=True)
    if write is pre_commit:
        store.commit_transaction("db", label=table.name)
    assert table.version == version + 1
    assert table.check() == []
    assert table.scan().read_all().num_rows == (1_000 if write is compaction else 1_500)


@pytest.mark.parametrize("write", WRITES)
def test_an_interrupt_before_the_commit_point_leaves_no_file(
    store: Store, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    table, version = interrupt_last_commit(store, monkeypatch, write, is_done=False)
    assert table.version == version
    assert len(table.loader.disk.list(table.loader.directory)) == 2 * len(table.state().segments)
    write(store, table)
    if write is pre_commit:
        store.commit_transaction("db", label=table.name)
    assert table.version == version + 1
    assert table.check() == []


@pytest.fixture
def python_handles_interrupts() -> Iterator[None]:
    """As it does unless somebody else wants to: Spark does, where a test before had a session."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_handles_interrupts")
def test_an_interrupt_within_a_transaction_of_the_catalog_waits_for_its_end(store: Store) -> None:
    """Whatever it holds is given back."""

    def interrupted(*, times: int) -> None:
        with store.catalog.write() as tx:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            tx.put("config", f"interrupted {times}".encode(), times)

    with pytest.raises(KeyboardInterrupt):
        interrupted(times=1)
    with pytest.raises(KeyboardInterrupt):
        interrupted(times=2)  # the second one does not wait
    with store.catalog.read() as tx:
        assert tx.get("config", b"interrupted 1") == 1
        assert tx.get("config", b"interrupted 2") is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_takes_care_of_interrupts_himself_is_left_to_it(store: Store) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with store.catalog.write():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]
