"""RESTORE and the change feed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from seqstore import (
    Column,
    CorruptionError,
    FormatError,
    InvalidInputError,
    Settings,
    Store,
    Table,
    TableSchema,
    VersionExpiredError,
    parse_type,
)
from seqstore.store.catalog import catalog
from seqstore.store.ddl.alter import alter, set_properties


def make(store: Store, **properties: str) -> Table:
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    return store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "v": [v for _, v in pairs]})


def content(table: Table, version: int | None = None) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = table.scan(version=version, hidden=True).read_all().sort_by("k").to_pylist()
    return rows


@pytest.mark.parametrize("inline_bytes", [1, 2**18])
def test_restore_makes_a_version_that_can_be_restored_from(store: Store, inline_bytes: int) -> None:
    with Store.open(store.path, settings=Settings(inline_bytes_max=inline_bytes)) as opened:
        table = make(opened)
        table.upsert(rows((1, 10), (2, 20)))
        table.upsert(rows((2, 21), (3, 31)))
        table.delete({"k": [1]})
        assert table.restore(2) == 5
        assert content(table) == content(table, 2)
        table.upsert(rows((1, 11)))
        assert table.restore(4) == 7
        assert content(table) == content(table, 4)
        table.optimize(full=True)
        table.vacuum(retention_seconds=0)
        assert [row["v"] for row in content(table)] == [21, 31]
        assert table.check() == []
    with Store.open(store.path) as fresh:
        assert [row["v"] for row in content(fresh.table("db.t"))] == [21, 31]


def test_restored_segments_keep_their_files_when_the_originals_are_vacuumed(store: Store) -> None:
    with Store.open(store.path, settings=Settings(inline_bytes_max=1)) as opened:
        table = make(opened)
        table.upsert(rows((1, 10), (2, 20)))
        table.upsert(rows((1, 11), (2, 22)))
        table.restore(2)
        table.vacuum(retention_seconds=0)
        assert [row["v"] for row in content(table)] == [10, 20]
        assert table.check() == []


def test_a_partial_update_planned_before_a_restore_is_filled_anew(store: Store) -> None:
    columns = [
        Column("k", parse_type("bigint"), False),
        Column("v", parse_type("int")),
        Column("w", parse_type("int")),
    ]
    table = store.create_table("db.w", TableSchema.create(columns, ["k"]))
    table.upsert(pa.table({"k": [1], "v": [1], "w": [1]}))
    table.upsert(pa.table({"k": [1], "v": [2], "w": [2]}))
    load = table.begin_load(mode="UPDATE_FIXED_COLUMNS")
    load.write(pa.table({"k": [1], "v": [9]}))
    load.prepare()
    table.restore(2)
    load.commit()
    assert table.scan().read_all().to_pylist() == [{"k": 1, "v": 9, "w": 1}]


@pytest.mark.parametrize("inline_bytes", [1, 2**18])
@pytest.mark.parametrize("between", ["nothing", "a load", "a compaction"])
def test_a_partial_update_precommitted_before_a_restore_is_filled_anew(
    store: Store, inline_bytes: int, between: str
) -> None:
    """The restored row is older than the pre-commit, and its cells differ all the same."""
    columns = [Column(name, parse_type("bigint"), nullable=name != "k") for name in ("k", "v", "w")]
    store.create_table("db.w", TableSchema.create(columns, ["k"]))
    with Store.open(store.path, settings=Settings(inline_bytes_max=inline_bytes)) as opened:
        table = opened.table("db.w")
        table.upsert(pa.table({"k": [1, 2], "v": [1, 1], "w": [1, 1]}))
        table.upsert(pa.table({"k": [1, 3], "v": [2, 2], "w": [2, 2]}))
        with table.begin_load(label="two", mode="UPDATE_FIXED_COLUMNS") as load:
            load.write(pa.table({"k": [1, 2, 3], "v": [9, 9, 9]}))
            load.precommit()
        if between == "a load":
            table.upsert(pa.table({"k": [7], "v": [7], "w": [7]}))
        elif between == "a compaction":
            table.optimize(full=True)
        table.restore(2)
        opened.commit_transaction("db", label="two")
        found = {row["k"]: (row["v"], row["w"]) for row in table.scan().read_all().to_pylist()}
        assert found == {1: (9, 1), 2: (9, 1), 3: (9, None)}
        assert table.check() == []


def test_a_version_that_is_gone_cannot_be_restored(store: Store) -> None:
    table = make(store)
    table.upsert(rows((1, 10)))
    table.upsert(rows((1, 11)))
    table.vacuum(retention_seconds=0)
    with pytest.raises(VersionExpiredError) as caught:
        table.restore(2)
    assert caught.value.oldest == 3


def test_changes_tell_what_each_version_did_and_nothing_of_compactions(store: Store) -> None:
    table = make(store)
    table.upsert(rows((1, 10), (2, 20)))
    table.optimize(full=True)
    table.upsert(rows((2, 21), (3, 30)))
    table.delete({"k": [1, 77]})
    table.optimize(full=True)
    found = table.changes(2).read_all().drop_columns("_commit_timestamp").to_pylist()
    keys = ("_commit_version", "_change_type", "k", "v")
    assert sorted(tuple(row[key] for key in keys) for row in found) == [
        (2, "+I", 1, 10),
        (2, "+I", 2, 20),
        (4, "+I", 3, 30),
        (4, "+U", 2, 21),
        (4, "-U", 2, 20),
        (5, "-D", 1, 10),
    ]
    stamps = {
        row["_commit_version"]: row["_commit_timestamp"] for row in table.changes(2).read_all().to_pylist()
    }
    assert stamps[4] == table.history()[3].timestamp.replace(tzinfo=None)


FEED = ("_commit_version", "_change_type", "k", "v")


@pytest.mark.parametrize("inline_bytes", [1, 2**18])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_feed_of_a_restore_has_the_rows_that_differ(
    store: Store, inline_bytes: int, is_compacted: bool
) -> None:
    """The row of key 6, which both versions have, is no change, wherever it is stored."""
    with Store.open(store.path, settings=Settings(inline_bytes_max=inline_bytes)) as opened:
        table = make(opened)
        table.upsert(rows((1, 10), (2, 20), (3, 30), (4, 40), (6, 60)))
        table.delete({"k": [4]})
        table.upsert(rows((2, 21), (5, 50)))
        table.upsert(rows((3, 30)))
        table.delete({"k": [1]})
        if is_compacted:
            table.optimize(full=True)
        restored = table.restore(3)
        feed = table.changes(restored).read_all().to_pylist()
    assert sorted(tuple(row[name] for name in FEED[1:]) for row in feed) == [
        ("+I", 1, 10),
        ("+U", 2, 20),
        ("+U", 3, 30),
        ("-D", 5, 50),
        ("-U", 2, 21),
        ("-U", 3, 30),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_the_feed_replayed_is_the_table_through_restores(store: Store, seed: int) -> None:
    random_of = np.random.default_rng(seed)
    table = make(store)
    table.upsert(rows((1, 0)))
    for step in range(14):
        kind, some = random_of.integers(0, 5), random_of.permutation(6)[:3].tolist()
        if kind == 0:
            table.restore(int(random_of.integers(2, table.version + 1)))
        elif kind == 1:
            table.delete({"k": some})
        elif kind == 2:
            table.optimize(full=True)
        else:
            table.upsert(rows(*((key, step) for key in some)))
    state: dict[int, int] = {}
    feed = table.changes(2).read_all().to_pylist()
    for version in range(2, table.version + 1):
        changes = [row for row in feed if row["_commit_version"] == version]
        for row in sorted(changes, key=lambda row: row["_change_type"] in ("+I", "+U")):
            key, value, kind = row["k"], row["v"], row["_change_type"]
            if kind in ("-D", "-U"):
                assert state.pop(key) == value, f"seed {seed}, version {version}"
            else:
                assert key not in state, f"seed {seed}, version {version}"
                state[key] = value
        expected = {row["k"]: row["v"] for row in content(table, version)}
        assert state == expected, f"seed {seed}, version {version}"


def test_late_rows_are_not_in_the_feed(store: Store) -> None:
    table = make(store, **{"function_column.sequence_col": "v"})
    table.upsert(rows((1, 10)))
    table.upsert(rows((1, 5)))
    assert len(table.changes(3).read_all()) == 0


def test_changes_of_a_range_that_is_none_or_gone_are_refused(store: Store) -> None:
    table = make(store)
    for value in range(4):
        table.upsert(rows((1, value)))
    with pytest.raises(InvalidInputError):
        table.changes(5, 3)
    table.vacuum(retention_seconds=0)
    with pytest.raises(VersionExpiredError):
        table.changes(3)


def test_a_feed_is_read_on_after_a_vacuum(store: Store) -> None:
    table = make(store)
    for value in range(6):
        table.upsert(rows((1, value)))
    feed = table.changes(3)
    table.optimize(full=True)
    table.vacuum(retention_seconds=0)
    assert len(feed.read_all()) == 10


@pytest.mark.timeout(120)
def test_the_feed_of_a_small_version_reads_only_the_batches_it_needs(store: Store) -> None:
    """The far half of the segment it lies in is damaged, which whoever reads it finds."""
    table = make(store)
    table.upsert(pa.table({"k": np.arange(300_000), "v": np.zeros(300_000, np.int32)}))
    (path,) = (store.path / "tables").rglob("*.arrow")
    table.upsert(rows((5, 1), (6, 2)))
    stored = bytearray(path.read_bytes())
    middle = len(stored) // 2
    stored[middle : middle + 100_000] = bytes(100_000)
    path.write_bytes(stored)
    assert len(table.changes(3).read_all()) == 4
    with pytest.raises(CorruptionError):
        table.scan().read_all()


APPEND_ONLY = {"delta.appendOnly": "true"}


def test_an_append_only_table_is_not_restored_to_a_version_that_lacks_rows(store: Store) -> None:
    """47"""
    table = make(store, **APPEND_ONLY)
    table.upsert(rows((1, 10), (2, 20)))
    table.upsert(rows((3, 30)))
    with pytest.raises(
        InvalidInputError, match=r"RESTORE would change or delete 1 rows .*appendOnly is true"
    ):
        table.restore(2)
    assert len(content(table)) == 3


def test_an_append_only_table_is_not_restored_to_another_version_of_a_row(store: Store) -> None:
    """47: what counts is the property of today, not that of then."""
    table = make(store)
    table.upsert(rows((1, 10), (2, 20)))
    table.upsert(rows((2, 21)))
    alter(table, [set_properties(APPEND_ONLY)])
    with pytest.raises(InvalidInputError, match="change or delete 1 rows"):
        table.restore(2)


@pytest.mark.parametrize("inline_bytes", [1, 2**18])
def test_an_append_only_table_is_restored_to_a_version_with_all_its_rows(
    store: Store, inline_bytes: int
) -> None:
    """47: rows that were deleted before it became append-only may come back."""
    with Store.open(store.path, settings=Settings(inline_bytes_max=inline_bytes)) as opened:
        table = make(opened)
        table.upsert(rows((1, 10), (2, 20)))
        table.upsert(rows((3, 30)))
        table.delete({"k": [1]})
        alter(table, [set_properties(APPEND_ONLY)])
        table.optimize(full=True)
        table.restore(3)
        alter(table, [set_properties(APPEND_ONLY)])
        assert [row["k"] for row in content(table)] == [1, 2, 3]


def test_a_row_written_again_after_the_version_counts_as_lost(store: Store) -> None:
    """47: it has the same key and values, and another version."""
    table = make(store)
    table.upsert(rows((1, 10)))
    table.delete({"k": [1]})
    table.upsert(rows((1, 10)))
    alter(table, [set_properties(APPEND_ONLY)])
    with pytest.raises(InvalidInputError, match="change or delete 1 rows"):
        table.restore(2)


def test_a_deleted_row_is_none_that_a_restore_loses(store: Store) -> None:
    """47: the version of a deletion has a tombstone that the version before it lacks."""
    table = make(store)
    table.upsert(rows((1, 10), (2, 20)))
    table.delete({"k": [1]})
    alter(table, [set_properties(APPEND_ONLY)])
    table.restore(2)
    assert [row["k"] for row in content(table)] == [1, 2]


def test_44_a_version_with_an_unknown_feature_is_not_restored(store: Store) -> None:
    """The restored revision would list it, and this program does not know what it demands of writers."""
    table = make(store)
    table.upsert(rows((1, 10)))
    alter(table, [set_properties(APPEND_ONLY)])
    record = {**table.state(2).schema.to_record(), "features": ["teleport"]}
    with store.catalog.write() as tx:
        tx.put("schemas", catalog.schema_key(table.id, 1), record)
    store.close()
    with Store.open(store.path) as again:
        with pytest.raises(FormatError, match=r"written only by .* 'teleport'"):
            again.table("db.t").restore(2)
        assert again.table("db.t").version == 3
