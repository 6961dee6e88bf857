"""Versions of open tables as Delta tables: each one equals our own scan, whatever made it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, Session, Store, Table, UnavailableError
from seqstore.store.runtime import failpoint
from tests.support.lake.delta_reader import DeltaTable, checkpointed, commits, open_delta
from tests.support.rows import MakeTable, schema_of
from tests.support.statements import last_result

FORMATS = "delta.universalFormat.enabledFormats"
OPEN = {FORMATS: "delta", "open_every_seconds": "0"}
COLUMNS = ("k BIGINT NOT NULL", "v STRING", "w BIGINT")


def root_of(table: Table) -> Path:
    return table.loader.disk.path(table.loader.directory)


def rows(keys: range, value: str = "a", **others: Any) -> pa.Table:
    return pa.table(
        {"k": list(keys), "v": [f"{value}{k}" for k in keys], "w": [k * 7 for k in keys], **others}
    )


def sorted_rows(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: tuple(map(repr, row.values())))


def assert_shown(table: Table, version: int | None = None) -> DeltaTable:
    """Compares what a reader of Delta finds with a version of the store, the newest when None."""
    found = open_delta(root_of(table))
    expected = table.scan(version=version).read_all()
    assert found.shown == (version or table.version)
    assert found.arrow.names == expected.schema.names
    for by_name in (False, True):
        assert sorted_rows(found.read(by_name=by_name)) == sorted_rows(expected)
    return found


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    return make_table(*COLUMNS, **OPEN)


@pytest.fixture(params=["id", "none"])
def mapped_table(make_table: MakeTable, request: pytest.FixtureRequest) -> Table:
    """A table with column mapping, and one whose files have the names of the table."""
    return make_table(*COLUMNS, **{**OPEN, "delta.columnMapping.mode": request.param})


def test_each_version_is_a_version_of_the_delta_table(table: Table) -> None:
    versions = [table.version]
    table.upsert(rows(range(100)))
    versions.append(table.version)
    table.upsert(rows(range(50, 150), "b"))
    versions.append(table.version)
    table.delete(pa.table({"k": list(range(20))}))
    versions.append(table.version)
    assert_shown(table)
    assert len(commits(root_of(table))) == len(versions)
    for number, version in enumerate(versions):
        found = open_delta(root_of(table), number)
        assert found.shown == version
        assert sorted_rows(found.read()) == sorted_rows(table.scan(version=version).read_all())


def test_nothing_is_written_twice(table: Table) -> None:
    table.upsert(rows(range(100)))
    table.upsert(rows(range(50, 60), "b"))
    names = {path.name for path in root_of(table).glob("*.parquet")}
    assert names == set(assert_shown(table).files)
    assert all(live.segment.meta.home == "parquet" for live in fresh_state(table))


def fresh_state(table: Table) -> list[Any]:
    """The segments of the newest version as another process finds them."""
    from seqstore.store.catalog import catalog as records
    from seqstore.store.read.table_state import StateLoader

    loader = StateLoader(table.id, table.loader.directory, table.loader.disk)
    with table.catalog.read() as tx:
        state = loader.load(tx, records.head(tx, table.id, table.name)[0])
    return list(state.segments.values())


@pytest.mark.settings(inline_bytes_max=0)
def test_segments_that_are_files_from_the_start_are_shown_in_place(table: Table) -> None:
    table.upsert(rows(range(1000)))
    table.upsert(rows(range(500, 1500), "b"))
    table.delete(pa.table({"k": list(range(900, 1100))}))
    assert_shown(table)
    assert table.check() == []


def test_hidden_columns_are_no_columns_of_the_delta_table(make_table: MakeTable) -> None:
    table = make_table(*COLUMNS, **OPEN, **{"function_column.sequence_type": "BIGINT"})
    for sequence, value in ((5, "new"), (3, "late"), (9, "newest")):
        with table.begin_load() as load:
            load.write(rows(range(10), value, __SEQUENCE_COL__=[sequence] * 10))
            load.commit()
    assert [each["name"] for each in assert_shown(table).fields] == ["k", "v", "w"]


def test_columns_keep_their_values_through_renames_drops_and_additions(
    table: Table, session: Session
) -> None:
    table.upsert(rows(range(20)))
    for statement in (
        "ALTER TABLE t RENAME COLUMN v text",
        "ALTER TABLE t ADD COLUMN v BIGINT",
        "ALTER TABLE t ADD COLUMN with_default BIGINT NOT NULL DEFAULT '7'",
        "INSERT INTO t VALUES (100, 'x', 1, 2, 3), (5, 'y', 4, 5, 6)",
        "ALTER TABLE t DROP COLUMN w",
        "ALTER TABLE t MODIFY COLUMN with_default LARGEINT NOT NULL",
        "ALTER TABLE t ADD COLUMN w STRING",
        "INSERT INTO t VALUES (101, 'x', 1, 2, 'w')",
    ):
        if "LARGEINT" in statement:
            with pytest.raises(InvalidInputError, match="LARGEINT"):
                last_result(session, statement)
            continue
        last_result(session, statement)
        session.store.schema_changes.wait()
        assert_shown(table)


def test_a_widened_column_is_written_anew(make_table: MakeTable, session: Session) -> None:
    table = make_table("k BIGINT NOT NULL", "v INT", **OPEN)
    table.upsert(pa.table({"k": [1, 2], "v": [3, None]}))
    last_result(session, "ALTER TABLE t MODIFY COLUMN v BIGINT")
    session.store.schema_changes.wait()
    table.upsert(pa.table({"k": [3], "v": [2**40]}))
    assert_shown(table)


EVERY_TYPE: dict[str, list[Any]] = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [-128, 127, None],
    "SMALLINT": [-32768, 32767, None],
    "INT": [-(2**31), 2**31 - 1, None],
    "BIGINT": [-(2**63), 2**63 - 1, None],
    "FLOAT": [float("inf"), -0.5, None],
    "DOUBLE": [1e300, float("nan"), None],
    "DATE": ["0001-01-01", "9999-12-31", None],
    "DATETIME(6)": ["0001-01-01 00:00:00", "2024-02-29 23:59:59.999999", None],
    "DECIMAL(9,2)": ["-1234567.89", "0.01", None],
    "DECIMAL(38,10)": ["1234567890123456789012345678.0123456789", "0", None],
    "CHAR(3)": ["a", "é", None],
    "VARCHAR(200)": ["x" * 100, "", None],
    "JSON": ['{"a": 1}', "[]", None],
    "ARRAY<INT>": [[1, None], [], None],
    "MAP<STRING,BIGINT>": [[("a", 1)], [], None],
    "STRUCT<a:INT,b:ARRAY<STRUCT<c:DATE>>>": [{"a": 1, "b": []}, {"a": None, "b": None}, None],
}


@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_every_type_appears(make_table: MakeTable, kind: str) -> None:
    table = make_table("k BIGINT NOT NULL", f"v {kind}", **OPEN)
    values = EVERY_TYPE[kind]
    arrow = table.schema.column("v").type.arrow
    column = (
        pa.array(values, pa.string()).cast(arrow) if isinstance(values[0], str) else pa.array(values, arrow)
    )
    table.upsert(pa.table({"k": [1, 2, 3], "v": column}))
    table.upsert(pa.table({"k": [3, 4], "v": column.slice(1)}))
    found, expected = open_delta(root_of(table)).read(), table.scan().read_all()
    assert repr(sorted_rows(found)) == repr(sorted_rows(expected))


@pytest.mark.parametrize("kind", ["LARGEINT", "DECIMAL(76,1)", "ARRAY<LARGEINT>"])
def test_a_type_that_others_lack_is_refused_by_name(make_table: MakeTable, kind: str) -> None:
    with pytest.raises(InvalidInputError, match="column 'v'"):
        make_table("k BIGINT NOT NULL", f"v {kind}", **OPEN)


def test_compaction_restore_and_truncate_appear(table: Table, session: Session) -> None:
    table.upsert(rows(range(100)))
    table.upsert(rows(range(50, 150), "b"))
    then = table.version
    table.optimize()
    assert assert_shown(table).info["operation"] == "OPTIMIZE"
    last_result(session, "TRUNCATE TABLE t")
    assert assert_shown(table).files == {}
    table.restore(then)
    assert_shown(table)
    table.upsert(rows(range(10), "c"))
    table.restore(then)
    assert_shown(table)
    table.restore(table.version)  # the same files under other segments
    assert_shown(table)


def test_a_compaction_changes_no_data_for_streams(table: Table) -> None:
    table.upsert(rows(range(100)))
    table.upsert(rows(range(50, 150), "b"))
    table.optimize()
    text = (root_of(table) / "_delta_log" / f"{commits(root_of(table))[-1]:020}.json").read_text()
    kinds = [action for line in text.splitlines() for action in json.loads(line).values()]
    assert {kind["dataChange"] for kind in kinds if "dataChange" in kind} == {False}


def test_application_versions_appear_as_transactions(table: Table) -> None:
    table.upsert(rows(range(10)), txn_app_id="etl", txn_version=4)
    table.upsert(rows(range(10)), label="morning", txn_app_id="etl", txn_version=5)
    found = open_delta(root_of(table))
    assert found.apps == {"etl": 5}
    assert json.loads(found.info["operationParameters"]["labels"]) == ["morning"]
    assert found.info["operationMetrics"]["rows_loaded"] == "10"


def test_a_damaged_checkpoint_costs_no_showing(store: Store, table: Table) -> None:
    """ArrowInvalid ended each showing."""
    for number in range(11):
        table.upsert(rows(range(number, number + 5), str(number)))
    (path,) = (root_of(table) / "_delta_log").glob("*10.checkpoint.parquet")
    whole = path.read_bytes()
    for offset in range(0, len(whole), len(whole) // 16):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        with Store.open(store.path) as again:
            other = again.table("db.t")
            other.upsert(rows(range(3), f"{offset}-"))
            assert_shown(other)


def test_checkpoints_have_the_state_and_old_commits_leave(table: Table, session: Session) -> None:
    for number in range(11):
        table.upsert(rows(range(number, number + 5), str(number)))
    root = root_of(table)
    hint = json.loads((root / "_delta_log" / "_last_checkpoint").read_text())
    assert checkpointed(root, hint["version"]).files == {
        path: {**add, "dataChange": False} for path, add in open_delta(root, hint["version"]).files.items()
    }
    last_result(session, "ALTER TABLE t SET ('version_retention_seconds' = '0')")
    for number in range(15):
        table.upsert(rows(range(number, number + 5), str(number)))
    assert commits(root)[0] == 20
    assert_shown(table)
    named = {path.name for path in root.glob("deletion_vector_*")}
    assert len(named) <= len(commits(root)) + 20
    table.vacuum(retention_seconds=0)
    assert_shown(table)


def test_vacuum_keeps_the_files_of_the_version_that_is_shown(store: Store, make_table: MakeTable) -> None:
    table = make_table(*COLUMNS, **{**OPEN, "open_every_seconds": "3600"})
    table.upsert(rows(range(100)))
    store.opener.wait()
    shown = table.version
    expected = sorted_rows(table.scan().read_all())
    table.upsert(rows(range(100), "b"))
    table.optimize()
    table.vacuum(retention_seconds=0)
    found = open_delta(root_of(table))
    assert found.shown == shown
    assert sorted_rows(found.read()) == expected
    store.opener.wait()
    table.vacuum(retention_seconds=0)
    assert_shown(table)


def test_a_handle_that_is_closed_shows_its_last_version(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of(*COLUMNS, **{**OPEN, "open_every_seconds": "3600"}))
        table.upsert(rows(range(100)))
        assert not (root_of(table) / "_delta_log").exists()
    assert_shown(table)


def test_versions_between_two_appearances_appear_together(store: Store, make_table: MakeTable) -> None:
    table = make_table(*COLUMNS, **{**OPEN, "open_every_seconds": "3600"})
    store.opener.wait()
    for number in range(5):
        table.upsert(rows(range(number, number + 3), str(number)))
    store.opener.wait()
    assert commits(root_of(table)) == [0, 1]
    assert json.loads(assert_shown(table).info["operationParameters"]["versions"]) == [2, 3, 4, 5, 6]


def test_alter_opens_a_table_and_rewrites_its_files(make_table: MakeTable, session: Session) -> None:
    table = make_table(*COLUMNS)
    table.upsert(rows(range(100)))
    table.upsert(rows(range(50, 150), "b"))
    last_result(session, f"ALTER TABLE t SET ('{FORMATS}' = 'delta', 'open_every_seconds' = '0')")
    assert_shown(table)
    table.upsert(rows(range(140, 160), "c"))
    assert_shown(table)
    last_result(session, f"ALTER TABLE t SET ('{FORMATS}' = '')")
    assert not (root_of(table) / "_delta_log").exists()
    assert list(root_of(table).glob("deletion_vector_*")) == []
    table.upsert(rows(range(200, 210)))
    assert table.check() == []
    last_result(session, f"ALTER TABLE t SET ('{FORMATS}' = 'delta')")
    assert_shown(table)


def test_a_dropped_table_leaves_no_log(store: Store, table: Table) -> None:
    table.upsert(rows(range(10)))
    table.upsert(rows(range(5)))
    root = root_of(table)
    assert list(root.glob("deletion_vector_*"))
    store.drop_table("db.t")
    assert list(root.iterdir()) == [] if root.exists() else True


def test_properties_that_cannot_be_are_refused_by_name(make_table: MakeTable) -> None:
    with pytest.raises(InvalidInputError, match="'hudi'"):
        make_table(*COLUMNS, **{FORMATS: "hudi"})
    with pytest.raises(InvalidInputError, match=r"iceberg\.format-version.*2 or 3.*'1'"):
        make_table(*COLUMNS, **{FORMATS: "iceberg", "iceberg.format-version": "1"})
    with pytest.raises(InvalidInputError, match="parquet"):
        make_table(*COLUMNS, **{FORMATS: "delta", "storage_format": "arrow"})
    with pytest.raises(InvalidInputError, match="open_every_seconds"):
        make_table(*COLUMNS, **{FORMATS: "delta", "open_every_seconds": "often"})


def _append(root: Path, number: int, text: str) -> int:
    return (root / "_delta_log" / f"{number:020}.json").write_text(text)


def test_a_process_that_slept_finds_a_log_whose_commits_have_left(store: Store, table: Table) -> None:
    """A process whose next commit was removed meanwhile must not write one of that number."""
    with Store.open(table.catalog.data_dir) as other:
        slept = other.table("db.t")
        slept.upsert(rows(range(3)))
        log = store.opener.of(table)
        for number in range(30):
            table.upsert(rows(range(number, number + 5), str(number)))
        log._writers["delta"]._forget(0)  # type: ignore[union-attr]
        first = commits(root_of(table))[0]
        assert first > 3
        slept.upsert(rows(range(7), "late"))
        assert commits(root_of(table))[0] == first
    assert_shown(table)


FOREIGN: dict[str, Callable[[Path, int], object]] = {
    "a commit": lambda root, number: _append(
        root, number, json.dumps({"commitInfo": {"operation": "WRITE", "engineInfo": "other"}})
    ),
    "two commits": lambda root, number: [_append(root, each, "{}") for each in (number, number + 1)],
    "half a commit": lambda root, number: _append(root, number, '{"commitInfo": {"oper'),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("is_new_process", [False, True])
def test_a_foreign_commit_is_named_and_moved_aside(
    store: Store, table: Table, caplog: pytest.LogCaptureFixture, kind: str, is_new_process: bool
) -> None:
    table.upsert(rows(range(10)))
    root = root_of(table)
    number = commits(root)[-1] + 1
    FOREIGN[kind](root, number)
    if is_new_process:
        store.opener.of(table)._writers.clear()
    with caplog.at_level(logging.WARNING):
        table.upsert(rows(range(5, 15), "b"))
    assert f"{number:020}.json" in caplog.text
    assert_shown(table)
    assert [path.name.split(".")[0] for path in (root / "_delta_log" / "_foreign").glob("*.json.*")]


def test_other_writers_find_a_feature_that_they_lack(table: Table) -> None:
    protocol = open_delta(root_of(table)).protocol
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (3, 7)
    assert set(protocol["writerFeatures"]) - set(protocol["readerFeatures"]) == {
        "domainMetadata",
        "invariants",  # without it Delta on Spark refuses to read NOT NULL columns
        "seqstoreManaged",
    }


def test_a_showing_that_failed_leaves_no_files(
    store: Store, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of small loads stayed while the process lived: no record named them."""

    def fail(name: str) -> None:
        if name == "open.written_out":
            raise UnavailableError("the disk is full", kind="disk")

    monkeypatch.setattr(failpoint, "hit", fail)
    table.upsert(rows(range(10)))
    store.opener.wait()
    assert list(root_of(table).glob("*.parquet")) == []
    monkeypatch.undo()
    table.upsert(rows(range(5), "b"))
    store.opener.wait()
    assert_shown(table)
