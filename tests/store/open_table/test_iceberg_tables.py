"""Versions of open tables as Iceberg tables: pyiceberg and delta-rs find in the same files what we find."""

from __future__ import annotations

import json
import logging
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.seeds import new_seed

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")
if version("pyiceberg").startswith("0.10."):
    pytest.skip("pyiceberg 0.10 shows deleted rows", allow_module_level=True)

from pyiceberg.expressions import EqualTo, GreaterThan

from seqstore import Session, Store, Table
from seqstore.store.open_table.iceberg_metadata import _kept
from tests.store.open_table.test_delta import (
    COLUMNS,
    EVERY_TYPE,
    FORMATS,
    assert_shown,
    root_of,
    rows,
    sorted_rows,
)
from tests.store.open_table.test_delta_readers import Work, by_delta_rs
from tests.support.lake.iceberg_reader import static_table
from tests.support.rows import MakeTable
from tests.support.statements import last_result
from tests.weight import by_form

OPEN = {FORMATS: "delta,iceberg", "open_every_seconds": "0"}
VERSION = "iceberg.format-version"
LOADS = by_form(12, 60)
_WIDER = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}  # Iceberg has no narrower integers


def by_pyiceberg(root: Path, version: int | None = None) -> pa.Table:
    return static_table(root).scan(snapshot_id=version).to_arrow()


def assert_read(table: Table, version: int | None = None) -> None:
    """Compares what pyiceberg finds with a version of the store, values and types."""
    found, expected = by_pyiceberg(root_of(table), version), table.scan(version=version).read_all()
    assert found.schema.names == expected.schema.names
    kinds = [pa.string() if each.type == pa.large_string() else each.type for each in found.schema]
    assert kinds == [_WIDER.get(each.type, each.type) for each in expected.schema]
    assert repr(sorted_rows(found)) == repr(sorted_rows(expected))


def metadata(table: Table) -> dict[str, Any]:
    root = root_of(table) / "metadata"
    number = (root / "version-hint.text").read_text()
    found: dict[str, Any] = json.loads((root / f"v{number}.metadata.json").read_text())
    return found


@pytest.fixture(params=["2", "3"])
def table(make_table: MakeTable, request: pytest.FixtureRequest) -> Table:
    return make_table(*COLUMNS, **OPEN, **{VERSION: request.param})


def test_each_version_is_a_snapshot(table: Table, session: Session) -> None:
    table.upsert(rows(range(100)))
    table.upsert(rows(range(50, 150), "b"))
    table.delete(pa.table({"k": list(range(20))}))
    last_result(session, "UPDATE t SET w = 0 WHERE k < 40")
    last_result(session, "ALTER TABLE t RENAME COLUMN v text")
    last_result(session, "ALTER TABLE t ADD COLUMN v DATETIME(6)")
    last_result(session, "INSERT INTO t VALUES (1000, 'x', 1, '2024-02-29 12:34:56.789012')")
    last_result(session, "ALTER TABLE t DROP COLUMN w")
    snapshots = static_table(root_of(table)).metadata.snapshots
    assert [each.snapshot_id for each in snapshots] == list(range(1, table.version + 1))
    assert_read(table)
    for number in range(2, table.version + 1):
        found = by_pyiceberg(root_of(table), number)
        assert sorted_rows(found) == sorted_rows(table.scan(version=number).read_all())
    found = static_table(root_of(table))
    assert found.schema().identifier_field_names() == {"k"}
    assert {each.summary["seqstore.version"] for each in snapshots if each.summary} >= {"1", "4"}


def test_both_formats_name_the_same_files(table: Table) -> None:
    table.upsert(rows(range(100)))
    table.upsert(rows(range(50, 60), "b"))
    names = {path.name for path in root_of(table).glob("*.parquet")}
    tasks = static_table(root_of(table)).scan().plan_files()
    assert (
        names == set(assert_shown(table).files) == {task.file.file_path.rpartition("/")[2] for task in tasks}
    )


def test_a_table_is_open_for_iceberg_alone(make_table: MakeTable) -> None:
    table = make_table(*COLUMNS, **{**OPEN, FORMATS: "iceberg"})
    table.upsert(rows(range(10)))
    assert not (root_of(table) / "_delta_log").exists()
    assert_read(table)


@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_every_type_appears(make_table: MakeTable, kind: str) -> None:
    table = make_table("k BIGINT NOT NULL", f"v {kind}", **OPEN)
    values = EVERY_TYPE[kind]
    arrow = table.schema.column("v").type.arrow
    text = isinstance(values[0], str)
    column = pa.array(values, pa.string()).cast(arrow) if text else pa.array(values, arrow)
    table.upsert(pa.table({"k": [1, 2, 3], "v": column}))
    table.upsert(pa.table({"k": [3, 4], "v": column.slice(1)}))
    found, expected = by_pyiceberg(root_of(table)), table.scan().read_all()
    # pyiceberg 0.12 reads a NULL list within a struct as an empty one.
    assert repr(sorted_rows(found)) == repr(sorted_rows(expected)).replace("'b': None", "'b': []")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("TINYINT", [-128, 0, 127]),
        ("BIGINT", [-(2**63), 0, 2**63 - 1]),
        ("DOUBLE", [-0.0, 0.0, 1e300]),
        ("DATE", ["1969-12-31", "1970-01-01", "9999-12-31"]),
        ("DECIMAL(9,2)", ["-1.28", "0.00", "3276.80"]),
        ("DECIMAL(38,10)", ["-1234567890123456789012345678.0123456789", "0.0000000001", "1.0000000000"]),
        ("STRING", ["", "é", "x" * 100]),
    ],
)
def test_bounds_prune_no_row_that_is_there(make_table: MakeTable, kind: str, values: list[Any]) -> None:
    table = make_table("k BIGINT NOT NULL", f"v {kind}", **OPEN)
    arrow = table.schema.column("v").type.arrow
    for key, value in enumerate(values):
        column = pa.array([value]).cast(arrow) if isinstance(value, str) else pa.array([value], arrow)
        table.upsert(pa.table({"k": [key], "v": column}))
    stored = table.scan().read_all()
    for row in stored.to_pylist():
        for condition in (EqualTo("v", row["v"]), EqualTo("k", row["k"])):
            found = static_table(root_of(table)).scan(row_filter=condition).to_arrow()
            assert row in found.to_pylist(), condition
    found = static_table(root_of(table)).scan(row_filter=GreaterThan("k", 1))
    assert len(list(found.plan_files())) == 1


def test_restored_rows_are_not_hidden_by_vectors_of_before(table: Table) -> None:
    """Some readers apply every vector of a Puffin file, those that are replaced included."""
    table.upsert(rows(range(10)))
    first = table.version
    table.upsert(rows(range(100, 110)))
    table.delete(pa.table({"k": [1, 2, 101]}))
    table.delete(pa.table({"k": [3]}))
    table.restore(first)
    assert_read(table)
    table.upsert(rows(range(100, 110)))
    table.restore(first + 2)
    assert_read(table)
    table.restore(first + 1)
    assert_read(table)


def test_column_groups_appear(session: Session) -> None:
    last_result(
        session,
        "CREATE TABLE g (k BIGINT, price DOUBLE NULL, at BIGINT NULL, stock INT NULL, counted BIGINT NULL) "
        "UNIQUE KEY(k) PROPERTIES('sequence_mapping.at' = 'price', 'sequence_mapping.counted' = 'stock', "
        f"'{FORMATS}' = 'delta,iceberg', 'open_every_seconds' = '0')",
    )
    table = session.store.table("db.g")
    for price, at in ((9.5, 10), (8.0, 30), (9.0, 20)):
        feed = pa.table({"k": [1, at], "price": [price, 1.0], "at": [at, at]})
        table.upsert(feed, mode="UPDATE_FIXED_COLUMNS")
        stock = pa.table({"k": [1], "stock": pa.array([at], pa.int32()), "counted": [50 - at]})
        table.upsert(stock, mode="UPDATE_FIXED_COLUMNS")
        assert_read(table)
        assert by_delta_rs(root_of(table)) == sorted_rows(table.scan().read_all())


def test_a_delta_table_becomes_an_iceberg_table(make_table: MakeTable, session: Session) -> None:
    table = make_table(*COLUMNS, **{**OPEN, FORMATS: "delta"})
    for number in range(3):
        table.upsert(rows(range(number, number + 10), str(number)))
    table.optimize(full=True)
    last_result(session, f"ALTER TABLE t SET ('{FORMATS}' = 'delta,iceberg')")
    assert_read(table)
    assert_shown(table)


@pytest.mark.family(1)
@pytest.mark.parametrize("format_version", ["2", "3"])
def test_after_random_work_pyiceberg_and_delta_rs_see_what_we_see(
    store: Store, make_table: MakeTable, format_version: str
) -> None:
    seed = new_seed()
    table = make_table(*COLUMNS, "s BIGINT", sequence_col="s", **OPEN, **{VERSION: format_version})
    work, done = Work(store, table, seed), []
    for _ in range(LOADS):
        done.append(work.step())
        try:
            assert_read(table)
            assert by_delta_rs(root_of(table)) == sorted_rows(table.scan().read_all())
            for snapshot in static_table(root_of(table)).metadata.snapshots[
                -3:
            ]:  # OPEN's versions may come between
                number = snapshot.snapshot_id
                found = sorted_rows(by_pyiceberg(root_of(table), number))
                assert found == sorted_rows(table.scan(version=number).read_all()), number
        except BaseException:
            print(f"seed {seed}: {done}")
            raise


def test_row_ids_are_counted_and_never_used_twice(make_table: MakeTable) -> None:
    table = make_table(*COLUMNS, **OPEN)
    for start in range(3):
        table.upsert(rows(range(start, start + 10)))
    table.optimize(full=True)
    found = metadata(table)
    starts = [each["first-row-id"] for each in found["snapshots"]]
    assert starts == [0, 0, 10, 20, 30]
    assert found["next-row-id"] == 30 + found["snapshots"][-1]["added-rows"] == 42
    assert found["snapshots"][-1]["summary"]["operation"] == "replace"


def test_foreign_metadata_are_named_and_moved_aside(
    store: Store, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    for text, is_new_process in (("{}", False), ("{}", True), ('{"half', True), ("", False)):
        table.upsert(rows(range(10)))
        found, root = metadata(table), root_of(table) / "metadata"
        number = int(found["properties"]["seqstore.metadata"])
        foreign = root / f"v{number + 1}.metadata.json"
        foreign.write_text(text or json.dumps(found))  # a program that keeps our properties
        (root / "version-hint.text").write_text(str(number + 1))
        if is_new_process:
            store.opener.of(table)._writers.clear()
        with caplog.at_level(logging.WARNING):
            table.upsert(rows(range(5), "b"))
        assert foreign.name in caplog.text
        assert_read(table)
        caplog.clear()
    assert len(list((root_of(table) / "metadata" / "_foreign").iterdir())) == 4


def test_damaged_metadata_cost_no_showing(store: Store, table: Table) -> None:
    for _ in range(3):
        table.upsert(rows(range(10)))
    root = root_of(table) / "metadata"
    for pattern in ("v*.metadata.json", "snap-*.avro"):
        for path in root.glob(pattern):
            path.write_bytes(path.read_bytes()[:60])
        store.opener.of(table)._writers.clear()
        table.upsert(rows(range(5), "b"))
        assert_read(table)


def test_closing_a_table_removes_the_metadata(table: Table, session: Session) -> None:
    table.upsert(rows(range(10)))
    table.upsert(rows(range(5), "b"))
    last_result(session, f"ALTER TABLE t SET ('{FORMATS}' = 'delta')")
    table.upsert(rows(range(3), "c"))
    assert not (root_of(table) / "metadata").exists()
    assert_shown(table)
    last_result(session, f"ALTER TABLE t SET ('{FORMATS}' = 'iceberg')")
    assert not (root_of(table) / "_delta_log").exists()
    assert_read(table)
    assert table.check() == []


def test_the_format_version_of_a_table_changes(make_table: MakeTable, session: Session) -> None:
    table = make_table(*COLUMNS, **OPEN)
    table.upsert(rows(range(10)))
    table.upsert(rows(range(5), "b"))
    for number in (2, 3):
        last_result(session, f"ALTER TABLE t SET ('{VERSION}' = '{number}')")
        assert static_table(root_of(table)).metadata.format_version == number
        assert_read(table)


def test_a_moved_store_has_readable_metadata_after_its_next_version(tmp_path: Path) -> None:
    from tests.support.rows import schema_of

    with Store.open(tmp_path / "old") as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of(*COLUMNS, **OPEN))
        table.upsert(rows(range(10)))
        table.upsert(rows(range(5), "b"))
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    with Store.open(tmp_path / "new") as store:
        table = store.table("db.t")
        table.upsert(rows(range(3), "c"))
        assert_read(table)
        assert static_table(root_of(table)).metadata.location.endswith(f"/new/tables/{table.id}")


def test_vacuum_keeps_what_a_snapshot_within_the_retention_names(store: Store, make_table: MakeTable) -> None:
    table = make_table(*COLUMNS, **{**OPEN, FORMATS: "iceberg", "open_every_seconds": "3600"})
    table.upsert(rows(range(100)))
    store.opener.wait()
    shown, expected = table.version, sorted_rows(table.scan().read_all())
    table.upsert(rows(range(100), "b"))
    table.optimize()
    table.vacuum(retention_seconds=0)
    assert sorted_rows(by_pyiceberg(root_of(table), shown)) == expected
    store.opener.wait()
    table.vacuum(retention_seconds=0)
    assert_read(table)


def test_snapshots_and_files_older_than_the_retention_leave(make_table: MakeTable) -> None:
    table = make_table(*COLUMNS, **OPEN, version_retention_seconds="0")
    table.upsert(rows(range(1000)))
    table.delete(pa.table({"k": [7]}))
    for number in range(25):
        table.upsert(rows(range(number * 10, number * 10 + 5), str(number)))
    names = [path.name for path in (root_of(table) / "metadata").iterdir()]
    assert len([name for name in names if name.startswith("snap-")]) < 15
    assert len(metadata(table)["snapshots"]) <= 2
    assert_read(table)


def test_thousands_of_snapshots_are_thinned_within_the_retention() -> None:
    snapshots = [{"snapshot-id": number, "timestamp-ms": number * 1000} for number in range(5000)]
    found = [each["snapshot-id"] for each in _kept(snapshots, 5000 * 1000, 3600)]
    assert found[-100:] == list(range(4900, 5000))
    assert 90 <= len(found) - 100 <= 101
    assert found[0] < 1450
    assert found == sorted(found)
