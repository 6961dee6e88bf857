"""Two-phase commit: durable and detached after the first phase, aligned at the second (PC, C, X)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import (
    Column,
    ConflictError,
    CorruptionError,
    Default,
    InvalidInputError,
    LabelExistsError,
    LoadRejectedError,
    NotFoundError,
    Settings,
    Store,
    Table,
    TableSchema,
    parse_type,
)
from seqstore.store.catalog import catalog as records
from seqstore.store.catalog import transaction_record as transaction
from seqstore.store.catalog.prepared_records import prepared_transactions
from seqstore.store.fill.partial import fill
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.runtime import failpoint
from tests.support.forks.forked import run_forked

Row = dict[str, Any]


@pytest.fixture(params=[1, 2**18], ids=["files", "inline"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return Settings(catalog_bytes_max=2**28, inline_bytes_max=request.param)


@pytest.fixture(autouse=True)
def other_database(store: Store) -> None:
    store.create_database("other")


def make(store: Store, columns: str, *, sequence: str = "", **defaults: str) -> Table:
    declared = []
    for i, name in enumerate(columns.split(" ")):
        default = Default("constant", defaults[name]) if name in defaults else None
        declared.append(Column(name, parse_type("int"), nullable=i > 0, default=default))
    properties = {"function_column.sequence_col": sequence} if sequence else {}
    schema = TableSchema.create(declared, [declared[0].name], properties=properties)
    return store.create_table("db.t", schema)


def precommit(
    table: Table, columns: str, *rows: tuple[Any, ...], label: str | None = None, **options: Any
) -> int:
    """A pre-committed partial update of the named columns; returns its transaction id."""
    names = columns.split(" ")
    data = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    with table.begin_load(label=label, **({"mode": "UPDATE_FIXED_COLUMNS"} | options)) as load:
        load.write(data)
        return load.precommit().txn_id


def full(table: Table, *rows: tuple[Any, ...]) -> None:
    names = table.schema.names
    table.upsert(pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=names))


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.scan().read_all().to_pylist()), key=str)


def hidden(table: Table) -> dict[int, tuple[int, Any]]:
    found = table.scan(["k", "__DELETE_SIGN__", "__SEQUENCE_COL__"], deleted=True).read_all()
    return {row["k"]: (row["__DELETE_SIGN__"], row["__SEQUENCE_COL__"]) for row in found.to_pylist()}


def files(store: Store) -> list[str]:
    return sorted(path.name for path in (store.path / "tables").rglob("*.*"))


# the states and what they allow


def test_a_pre_committed_load_is_invisible_until_it_is_committed(store: Store) -> None:
    """PC1, X2: and the version is taken then."""
    table = make(store, "k a")
    with table.begin_load(label="l") as load:
        load.write(pa.table({"k": [1, 2], "a": [1, 2]}))
        result = load.precommit()
    assert (result.version, result.rows_loaded) == (0, 2)
    assert (rows_of(table), table.version) == ([], 1)
    done = store.commit_transaction("db", txn_id=result.txn_id)
    assert (done.status, done.version, done.label) == ("VISIBLE", 2, "l")
    assert rows_of(table) == [(1, 1), (2, 2)]
    line = table.history()[-1]
    assert (line.label, line.txn_id, line.metrics.rows_loaded) == ("l", result.txn_id, 2)


def test_of_two_the_one_committed_later_is_newer(store: Store) -> None:
    """PC9."""
    table = make(store, "k a")
    first = precommit(table, "k a", (1, 1), mode="UPSERT")
    second = precommit(table, "k a", (1, 2), mode="UPSERT")
    store.commit_transaction("db", txn_id=second)
    store.commit_transaction("db", txn_id=first)
    assert rows_of(table) == [(1, 1)]


def test_an_aborted_one_leaves_nothing_and_frees_its_label(store: Store) -> None:
    """X16, X20."""
    table = make(store, "k a")
    before = files(store)
    precommit(table, "k a", (1, 1), label="l")
    aborted = store.abort_transaction("db", label="l")
    assert (aborted.status, aborted.reason) == ("ABORTED", "User Abort")
    assert files(store) == before
    assert rows_of(table) == []
    full(table, (1, 5))
    precommit(table, "k a", (1, 2), label="l")
    store.commit_transaction("db", label="l")
    assert rows_of(table) == [(1, 2)]


def test_statuses_are_told_with_the_words_of_doris(store: Store) -> None:
    """PC4, PC7."""
    table = make(store, "k a")
    visible, aborted = precommit(table, "k a", (1, 1)), precommit(table, "k a", (2, 2))
    store.commit_transaction("db", txn_id=visible)
    store.abort_transaction("db", txn_id=aborted, reason="no longer wanted")
    running = table.begin_load(label="running")

    def told(call: Any, txn_id: int) -> tuple[str, str]:
        with pytest.raises(InvalidInputError) as caught:
            call("db", txn_id=txn_id)
        return caught.value.message, caught.value.status

    commit, abort = store.commit_transaction, store.abort_transaction
    text = f"transaction [{visible}] is already visible, not pre-committed."
    assert told(commit, visible) == (text, "VISIBLE")
    text = f"transaction [{visible}] is already VISIBLE, could not abort."
    assert told(abort, visible) == (text, "VISIBLE")
    text = f"transaction [{aborted}] is already aborted. abort reason: no longer wanted"
    assert told(commit, aborted) == (text, "ABORTED")
    assert told(abort, aborted) == (text, "ABORTED")
    text = f"transaction [{running.txn_id}] is prepare, not pre-committed."
    assert told(commit, running.txn_id) == (text, "PREPARE")
    running.abort("end of the test")


@pytest.mark.parametrize("database", ["db", "other"])
def test_an_unknown_transaction_and_one_of_another_database_are_not_found(
    store: Store, database: str
) -> None:
    """PC4."""
    table = make(store, "k a")
    txn_id = precommit(table, "k a", (1, 1), label="l")
    asked: dict[str, Any] = {"txn_id": 999} if database == "db" else {"txn_id": txn_id}
    for call in (store.commit_transaction, store.abort_transaction):
        with pytest.raises(NotFoundError, match=rf"^transaction \[{asked['txn_id']}\] not found$"):
            call(database, **asked)
        with pytest.raises(NotFoundError, match=r"^transaction \[none\] not found$"):
            call(database, label="none")
    with pytest.raises(NotFoundError, match="Unknown database 'nowhere'"):
        store.commit_transaction("nowhere", txn_id=txn_id)
    with pytest.raises(InvalidInputError, match="one of both"):
        store.commit_transaction("db")
    assert store.commit_transaction("db", txn_id=txn_id).status == "VISIBLE"


def test_the_pair_of_an_idempotent_load_is_known_once_it_is_committed(store: Store) -> None:
    """Another process may commit it: the pair is in the record of the load."""
    table = make(store, "k a")
    pair: Any = {"txn_app_id": "job", "txn_version": 3}
    txn_id = precommit(table, "k a", (1, 1), **pair)
    store.commit_transaction("db", txn_id=txn_id)
    again = table.upsert(pa.table({"k": [2], "a": [2]}), **pair)
    assert (again.status, again.txn_id) == ("DUPLICATE", txn_id)
    assert rows_of(table) == [(1, 1)]


def test_the_label_of_a_pre_committed_load_is_taken(store: Store) -> None:
    """PC6, LS5."""
    table = make(store, "k a")
    txn_id = precommit(table, "k a", (1, 1), label="l")
    with pytest.raises(LabelExistsError) as caught:
        table.begin_load(label="l")
    assert (caught.value.status, caught.value.txn_id) == ("PRECOMMITTED", txn_id)


def test_too_many_rejected_rows_fail_the_first_phase(store: Store) -> None:
    """Y7: the label is free again."""
    table = make(store, "k a")
    with table.begin_load(label="l") as load:
        load.write(pa.table({"k": ["1", "x"], "a": [1, 2]}))
        with pytest.raises(LoadRejectedError):
            load.precommit(max_filter_ratio=0.0)
    assert precommit(table, "k a", (1, 1), label="l")


def test_a_running_load_that_others_abort_cannot_be_committed(store: Store) -> None:
    """X20: it is told why, and its label is free."""
    table = make(store, "k a")
    for phase in ("commit", "precommit"):
        load = table.begin_load(label="l")
        load.write(pa.table({"k": [1], "a": [1]}))
        store.abort_transaction("db", txn_id=load.txn_id, reason="stop it")
        with pytest.raises(InvalidInputError, match=r"is already aborted\. abort reason: stop it"):
            getattr(load, phase)()
        with pytest.raises(InvalidInputError, match="abort reason: stop it"):
            store.commit_transaction("db", txn_id=load.txn_id)
    assert (rows_of(table), files(store)) == ([], [])


def test_an_empty_one_makes_no_version(store: Store) -> None:
    table = make(store, "k a")
    with table.begin_load(label="l") as load:
        load.precommit()
    assert store.commit_transaction("db", label="l").version == 1


# detached from its process


PREPARE = """
import sys
import pyarrow as pa
from seqstore import Settings, Store
store = Store.open(sys.argv[1], settings=Settings(catalog_bytes_max=2**28, inline_bytes_max=int(sys.argv[2])))
table = store.table("db.t")
with table.begin_load(label="l", mode=sys.argv[3]) as load:
    load.write(pa.table({"k": [1, 2], "b": [10, 20]} if sys.argv[3] != "UPSERT" else
                        {"k": [1, 2], "a": [0, 0], "b": [10, 20]}))
    load.precommit()
"""


@pytest.mark.parametrize("mode", ["UPSERT", "UPDATE_FIXED_COLUMNS"])
def test_the_end_of_its_process_and_reopenings_do_not_touch_it(
    store: Store, settings: Settings, mode: str
) -> None:
    """PC2, C18: any process may end it, and the sweep of orphaned files spares what it keeps."""
    table = make(store, "k a b")
    full(table, (1, 1, 1))
    inline = str(settings.inline_bytes_max)
    run_forked("-c", PREPARE, str(store.path), inline, mode).check_returncode()
    kept = files(store)
    assert bool([name for name in kept if name.endswith(".delta")]) == (inline == "1" and mode != "UPSERT")
    Store.open(store.path, settings=settings).close()
    assert files(store) == kept
    full(table, (1, 5, 5))
    fresh = Store.open(store.path, settings=settings)
    assert fresh.commit_transaction("db", label="l").version == 4
    a = (5, None) if mode != "UPSERT" else (0, 0)
    assert rows_of(fresh.table("db.t")) == [(1, a[0], 10), (2, a[1], 20)]
    assert fresh.table("db.t").check() == []
    assert not [name for name in files(store) if name.endswith(".delta")]


def test_an_expired_one_is_aborted_and_frees_label_and_files(store: Store, monkeypatch: Any) -> None:
    """PC8: by whoever asks for its label, ends it, or opens the store."""
    table = make(store, "k a")
    before = files(store)
    asked, ended, opened = (precommit(table, "k a", (i, i), label=f"l{i}") for i in range(3))
    term = store.settings.precommitted_keep_seconds * 1000
    real = transaction.now_ms
    monkeypatch.setattr(transaction, "now_ms", lambda: real() + term - 60_000)
    with pytest.raises(LabelExistsError):
        table.begin_load(label="l0")
    monkeypatch.setattr(transaction, "now_ms", lambda: real() + term + 1)
    table.begin_load(label="l0").abort("it is free")
    expired = f"transaction [{ended}] is already aborted. abort reason: timeout by txn manager"
    with pytest.raises(InvalidInputError) as caught:
        store.commit_transaction("db", label="l1")
    assert caught.value.message == expired
    with Store.open(store.path, settings=store.settings) as fresh:
        assert files(store) == before
        for txn_id in (asked, ended, opened):
            with pytest.raises(InvalidInputError, match="timeout by txn manager"):
                fresh.commit_transaction("db", txn_id=txn_id)
    assert rows_of(table) == []


def test_dropping_the_table_aborts_it(store: Store) -> None:
    table = make(store, "k a")
    precommit(table, "k a", (1, 1), label="l")
    store.drop_table("db.t")
    with pytest.raises(InvalidInputError, match="abort reason: the table was dropped"):
        store.commit_transaction("db", label="l")
    Store.open(store.path, settings=store.settings).close()
    assert files(store) == []


@pytest.mark.parametrize("settings", [1], indirect=True, ids=["files"])
def test_a_damaged_delta_is_an_error_and_never_rows(store: Store) -> None:
    table = make(store, "k a b")
    full(table, (1, 1, 1))
    precommit(table, "k b", (1, 2), label="l")
    (delta,) = (store.path / "tables").rglob("*.delta")
    data = bytearray(delta.read_bytes())
    data[len(data) // 2] ^= 1
    delta.write_bytes(data)
    with pytest.raises(CorruptionError, match="delta does not match its checksum"):
        store.commit_transaction("db", label="l")
    assert rows_of(table) == [(1, 1, 1)]


# alignment at commit


def test_columns_of_one_key_from_two_loads_both_survive(store: Store) -> None:
    """C3, C4, C18: whatever is committed first."""
    table = make(store, "k a b c")
    full(table, (1, 1, 1, 1), (2, 2, 2, 2))
    first = precommit(table, "k a c", (1, 10, 10), (2, 20, 20))
    second = precommit(table, "k b c", (1, 11, 11))
    store.commit_transaction("db", txn_id=second)
    store.commit_transaction("db", txn_id=first)
    assert rows_of(table) == [(1, 10, 11, 10), (2, 20, 2, 20)]
    assert table.check() == []


def test_only_keys_that_others_wrote_are_filled_again(store: Store, monkeypatch: Any) -> None:
    """C1, C15: rows of other keys keep what the first phase gave them."""
    import seqstore.store.publish.prepare_write as module

    table = make(store, "k a b")
    full(table, *((k, k, k) for k in range(100)))
    txn_id = precommit(table, "k b", *((k, -k) for k in range(50)))
    load_rows = pa.table({"k": [7, 70], "a": [700, 700], "b": [0, 0]})
    table.upsert(load_rows)
    filled: list[int] = []

    def counted(delta: pa.Table, *rest: Any) -> Any:
        filled.append(len(delta))
        return fill(delta, *rest)

    monkeypatch.setattr(module, "fill", counted)
    store.commit_transaction("db", txn_id=txn_id)
    assert filled == [1]
    expected = [(k, k, -k if k < 50 else k) for k in range(100)]
    expected[7], expected[70] = (7, 700, -7), (70, 700, 0)
    assert rows_of(table) == sorted(expected, key=str)
    assert table.check() == []


def test_vectors_of_conflicting_loads_with_a_sequence(store: Store) -> None:
    """C5-C11: every load was prepared before the one it meets was committed."""
    table = make(store, "k s c2 c3 c4", sequence="s")
    full(table, (1, 1, 1, 1, 1), (2, 2, 2, 2, 2), (3, 3, 3, 3, 3))

    def both(first: int, second: int) -> None:
        store.commit_transaction("db", txn_id=first)
        store.commit_transaction("db", txn_id=second)
        assert table.check() == []

    both(
        precommit(table, "k s c2", (1, 10, 99), (2, 10, 99), (3, 10, 99)),
        precommit(table, "k s c3", (1, 20, 88), (2, 10, 88), (3, 5, 88)),
    )
    assert rows_of(table) == [(1, 20, 99, 88, 1), (2, 10, 99, 88, 2), (3, 10, 99, 3, 3)]
    both(
        precommit(table, "k s c2", (1, 9, 77), (2, 10, 77), (3, 50, 77)),
        precommit(table, "k c4", (1, 33), (2, 33), (3, 33)),
    )
    assert rows_of(table) == [(1, 20, 99, 88, 33), (2, 10, 77, 88, 33), (3, 50, 77, 3, 33)]
    assert hidden(table)[3] == (0, 50)
    both(
        precommit(table, "k s c2", (1, 80, 66), (2, 100, 66), (3, 120, 66)),
        precommit(table, "k s", (1, 100), (2, 100), (3, 100), merge_type="DELETE"),
    )
    assert rows_of(table) == [(3, 120, 66, 3, 33)]


def test_a_delete_without_sequence_inherits_it_at_commit(store: Store) -> None:
    """C11, C17, D8."""
    table = make(store, "k s c2 c3 c4", sequence="s")
    full(table, (1, 10, 1, 1, 1), (2, 10, 2, 2, 2), (3, 110, 3, 3, 3))
    delete = precommit(table, "k c4", (1, 100), (2, 100), (3, 100), merge_type="DELETE")
    full(table, (1, 20, 1, 1, 1), (2, 100, 2, 2, 2), (3, 120, 3, 3, 3))
    store.commit_transaction("db", txn_id=delete)
    assert rows_of(table) == []
    assert hidden(table) == {1: (1, 20), 2: (1, 100), 3: (1, 120)}


def test_a_key_deleted_meanwhile_starts_from_defaults(store: Store) -> None:
    """C12, P25, P26: the hidden sequence is still read from the tombstone."""
    table = make(store, "k s c2 c3", sequence="s", c3="7")
    full(table, (1, 50, 1, 1))
    txn_id = precommit(table, "k c2", (1, 99))
    table.delete(pa.table({"k": [1]}))
    store.commit_transaction("db", txn_id=txn_id)
    assert rows_of(table) == [(1, None, 99, 7)]
    assert hidden(table) == {1: (0, 50)}


def test_a_new_key_that_came_meanwhile_with_a_smaller_sequence_gives_its_own(store: Store) -> None:
    """C7: the row first filled with the default once won with it, and hid what it should be filled from."""
    table = make(store, "k s a b", sequence="s", s="999")
    txn_id = precommit(table, "k a", (1, 5), (2, 6))
    full(table, (1, 7, 70, 71))
    done = store.commit_transaction("db", txn_id=txn_id)
    assert rows_of(table) == [(1, 7, 5, 71), (2, 999, 6, None)]
    assert hidden(table) == {1: (0, 7), 2: (0, 999)}
    line = table.history()[done.version - 1]
    assert (line.metrics.rows_late, line.metrics.rows_superseded, line.metrics.rows_replaced) == (0, 0, 1)
    assert table.check() == []


def test_new_keys_are_judged_in_the_first_phase(store: Store) -> None:
    """C13: neither a key that went nor one that came since changes the answer."""
    table = make(store, "k a b")
    full(table, (1, 1, 1))
    txn_id = precommit(table, "k a", (1, 5), new_keys="ERROR")
    with pytest.raises(InvalidInputError, match="E-7003"):
        precommit(table, "k a", (2, 5), new_keys="ERROR")
    table.delete(pa.table({"k": [1]}))
    store.commit_transaction("db", txn_id=txn_id)
    assert rows_of(table) == [(1, 5, None)]


def test_whole_rows_are_only_tested_again(store: Store) -> None:
    """C15, SO1, SO2, D2."""
    table = make(store, "k s a", sequence="s")
    full(table, (1, 10, 1), (2, 10, 1), (3, 10, 1))
    txn_id = precommit(table, "k s a", (1, 20, 2), (2, 20, 2), (3, 20, 2), (4, 20, 2), mode="UPSERT")
    full(table, (1, 30, 3), (2, 20, 3), (3, 15, 3))
    store.commit_transaction("db", txn_id=txn_id)
    assert rows_of(table) == [(1, 30, 3), (2, 20, 2), (3, 20, 2), (4, 20, 2)]
    assert table.check() == []


def test_flexible_cells_are_filled_again_row_by_row(store: Store) -> None:
    """C6, C7, F15-F17 at publish."""
    table = make(store, "k s a b c", sequence="s")
    full(table, (1, 10, 1, 1, 1), (2, 10, 2, 2, 2))
    rows: list[Row] = [
        {"k": 1, "a": 5},
        {"k": 1, "b": 6, "s": 15},
        {"k": 1, "c": 7, "s": 30},
        {"k": 2, "c": 9},
    ]
    data = pa.table({name: pa.array([row.get(name) for row in rows]) for name in "ksabc"})
    masks = {name: np.array([name in row for row in rows]) for name in "ksabc"}
    with table.begin_load(label="l", mode="UPDATE_FLEXIBLE_COLUMNS") as load:
        load.write(data, supplied=masks)
        load.precommit()
    full(table, (1, 20, 100, 100, 100), (2, 40, 200, 200, 200))
    store.commit_transaction("db", label="l")
    assert rows_of(table) == [(1, 30, 5, 100, 7), (2, 40, 200, 200, 9)]


def test_several_writes_are_one_load(store: Store) -> None:
    """P19: in the order they were written."""
    table = make(store, "k a b c")
    full(table, (1, 1, 1, 1))
    with table.begin_load(label="l", mode="UPDATE_FIXED_COLUMNS") as load:
        load.write(pa.table({"k": [1, 2], "a": [5, 5]}))
        load.write(pa.table({"k": [1], "b": [6]}))
        load.precommit()
    full(table, (1, 9, 9, 9))
    store.commit_transaction("db", label="l")
    assert rows_of(table) == [(1, 5, 6, 9), (2, 5, None, None)]


# failures in the middle


def test_a_commit_that_fails_leaves_it_pre_committed(store: Store, monkeypatch: Any) -> None:
    """C14: no mark and no file of the failed try is left, and the next one succeeds."""
    table = make(store, "k a b")
    full(table, (1, 1, 1), (2, 2, 2))
    txn_id = precommit(table, "k b", (1, 10), (2, 20))
    full(table, (1, 5, 5))
    before = files(store)

    def broken(name: str) -> None:
        if name == "publish.before_commit":
            raise RuntimeError("power")

    with monkeypatch.context() as patched:
        patched.setattr(failpoint, "hit", broken)
        with pytest.raises(RuntimeError, match="power"):
            store.commit_transaction("db", txn_id=txn_id)
    assert files(store) == before
    assert rows_of(table) == [(1, 5, 5), (2, 2, 2)]
    assert table.check() == []
    store.commit_transaction("db", txn_id=txn_id)
    assert rows_of(table) == [(1, 5, 10), (2, 2, 20)]
    assert table.check() == []


def test_a_changed_schema_refuses_the_commit(store: Store) -> None:
    """SC2: a load pending across a schema change is a metadata conflict here; it can be aborted."""
    table = make(store, "k a")
    txn_id = precommit(table, "k a", (1, 1))
    changed = replace(table.schema, revision=2)
    with store.catalog.write() as tx:
        tx.put("schemas", records.schema_key(table.id, 2), changed.to_record())
        tx.put("heads", records.table_key(table.id), [1, 2])
    with pytest.raises(ConflictError, match="was prepared for schema revision 1, but the table has 2"):
        store.commit_transaction("db", txn_id=txn_id)
    assert store.abort_transaction("db", txn_id=txn_id).status == "ABORTED"


def test_a_commit_that_is_overtaken_again_and_again_gets_through(store: Store, monkeypatch: Any) -> None:
    """C2, C16: aligned at every version that comes between, at last under the writer lock."""
    table = make(store, "k a b")
    full(table, (1, 0, 0), (2, 0, 0), (3, 0, 0))
    txn_id = precommit(table, "k b", (1, 10), (2, 10), (3, 10))
    other = Store.open(store.path, settings=store.settings).table("db.t")
    waves = iter([1, 2, 3])

    def overtake() -> None:
        wave = next(waves, None)
        if wave is not None:
            other.upsert(pa.table({"k": [wave], "a": [wave]}), mode="UPDATE_FIXED_COLUMNS")

    def wrapped(real: Any) -> Any:
        def call(writer: Any, *args: Any) -> None:
            real(writer, *args)
            if writer.table.loader is not other.loader:
                overtake()

        return call

    monkeypatch.setattr(
        TableWriter, "is_small", lambda _writer: False
    )  # small loads are aligned under the lock at once
    for name in ("prepare", "align"):
        monkeypatch.setattr(TableWriter, name, wrapped(getattr(TableWriter, name)))
    assert store.commit_transaction("db", txn_id=txn_id).version == 6
    assert rows_of(table) == [(1, 1, 10), (2, 2, 10), (3, 3, 10)]
    assert table.check() == []


def test_transactions_that_wait_are_named_by_their_ids(store: Store) -> None:
    table = make(store, "k v")
    for number in range(5):
        table.upsert(pa.table({"k": [number], "v": [number]}))
    waiting = [precommit(table, "k v", (number, 9)) for number in (1, 2)]
    with store.catalog.read() as tx:
        assert prepared_transactions(tx) == waiting


def test_a_transaction_that_was_aborted_before_its_table_was_dropped_keeps_its_reason(store: Store) -> None:
    """Its files are removed a little later than it is aborted."""
    table = make(store, "k v")
    txn_id = precommit(table, "k v", (1, 9))
    with store.catalog.write() as tx:
        record = transaction.read_transaction(tx, txn_id)
        assert record is not None
        transaction.abort(tx, record, "by its owner")
    store.drop_table("db.t")
    found = store.find_transaction("db", txn_id=txn_id)
    assert found is not None
    assert (found.status, found.reason) == ("ABORTED", "by its owner")
