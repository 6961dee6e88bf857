"""CREATE TABLE .. FROM ICEBERG: tables of pyiceberg and of this store, deletes of format versions 2 and 3."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")

from pyiceberg.types import LongType

from seqstore import AccessDeniedError, InvalidInputError, NotFoundError, Session, Store
from seqstore.store.errors import VersionExpiredError
from tests.loaders.lake.iceberg_writer import delete_equal
from tests.support.statements import dicts, last_result, run
from tests.weight import by_form


def create(session: Session, path: Path, more: str = "") -> Any:
    return last_result(session, f"CREATE TABLE t FROM ICEBERG '{path}' KEY(k) {more}")


@pytest.fixture(params=["2", "3"])
def source(request: pytest.FixtureRequest, files: Path) -> Path:
    """The directory of an open table with deleted and updated rows, lists, a rename and an added column."""
    with Store.open(files / "source") as opened:
        opened.create_database("db")
        with Session(opened, "db") as session:
            last_result(
                session,
                "CREATE TABLE s (k BIGINT NOT NULL, v STRING, a ARRAY<STRUCT<x:INT,y:ARRAY<DATE>>> NULL,"
                " m MAP<VARCHAR(9),DECIMAL(9,2)> NULL) UNIQUE KEY(k) PROPERTIES"
                " ('delta.universalFormat.enabledFormats' = 'iceberg', 'open_every_seconds' = '0',"
                f" 'iceberg.format-version' = '{request.param}')",
            )
            last_result(
                session,
                "INSERT INTO s VALUES (1, 'a', [{1, ['2024-01-01']}], map('x', 1.5)),"
                " (2, 'b', [{2, NULL}], NULL)",
            )
            more = ", ".join(f"({key}, 'n', NULL, NULL)" for key in range(10, 100))
            last_result(session, f"INSERT INTO s VALUES {more}")
            last_result(session, "ALTER TABLE s RENAME COLUMN v text")
            last_result(session, "ALTER TABLE s ADD COLUMN d DATETIME(6) NULL")
            last_result(session, "DELETE FROM s WHERE k BETWEEN 20 AND 40")
            last_result(session, "UPDATE s SET text = 'new', d = '2024-02-29 01:02:03.5' WHERE k = 50")
            (files / "wanted.json").write_text(repr(dicts(session, "SELECT * FROM s ORDER BY k")))
        return files / "source" / "tables" / str(opened.table("db.s").id)


def test_an_open_table_is_read_as_it_is(session: Session, source: Path, files: Path) -> None:
    done = create(session, source)
    assert repr(dicts(session, "SELECT * FROM t ORDER BY k")) == (files / "wanted.json").read_text()
    assert "'source':'ICEBERG'" in done.info


def test_a_metadata_file_and_a_snapshot_are_read(session: Session, source: Path) -> None:
    number = (source / "metadata" / "version-hint.text").read_text()
    file = source / "metadata" / f"v{number}.metadata.json"
    snapshots = [each["snapshot-id"] for each in json.loads(file.read_text())["snapshots"]]
    create(session, file, f"VERSION AS OF {snapshots[1]}")
    assert run(session, "SELECT k FROM t") == [(1,), (2,)]
    with pytest.raises(VersionExpiredError, match="has no snapshot 77"):
        create(session, file, "VERSION AS OF 77")


MakeIcebergTable = Callable[[pa.Schema], Any]


@pytest.fixture
def catalog_table(files: Path) -> Iterator[MakeIcebergTable]:
    """Makes a table of pyiceberg's own catalog."""
    pytest.importorskip("sqlalchemy", reason="pyiceberg's catalog needs the package sqlalchemy")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{files}/c.db", warehouse=files.as_uri())
    catalog.create_namespace("n")
    yield lambda schema: catalog.create_table("n.t", schema=schema)
    catalog.engine.dispose()


def test_a_table_of_pyiceberg_is_read(session: Session, catalog_table: MakeIcebergTable) -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.int32(), False),
            ("t", pa.timestamp("us", "UTC")),
            ("x", pa.float64()),
            ("n", pa.decimal128(9, 2)),
            ("s", pa.struct([("t", pa.timestamp("us", "UTC")), ("b", pa.bool_())])),
        ]
    )
    table = catalog_table(schema)
    moment = dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)
    row = {"t": moment, "x": 1.5, "n": Decimal("2.25"), "s": {"t": moment, "b": True}}
    table.append(pa.Table.from_pylist([{"k": 1, **row}, {"k": 2}, {"k": 3}], schema))
    table.delete("k = 2")
    with table.update_schema() as update:
        update.rename_column("x", "y")
        update.move_first("x")
    last_result(session, "SET time_zone = 'Europe/Berlin'")
    create(session, Path(table.metadata_location))
    local = dt.datetime(2024, 7, 1, 12)
    assert dicts(session, "SELECT * FROM t ORDER BY k") == [
        {"k": 1, "y": 1.5, "t": local, "n": Decimal("2.25"), "s": {"t": local, "b": True}},
        {"k": 3, "y": None, "t": None, "n": None, "s": None},
    ]


def test_a_table_without_a_snapshot_makes_an_empty_one(
    session: Session, catalog_table: MakeIcebergTable
) -> None:
    table = catalog_table(pa.schema([("k", pa.int64())]))
    create(session, Path(table.metadata_location))
    assert run(session, "SELECT * FROM t") == []


@pytest.mark.parametrize(("kind", "name"), [(pa.binary(), "binary"), (pa.time64("us"), "time")])
def test_a_type_without_a_column_type_is_refused_by_name(
    session: Session, catalog_table: MakeIcebergTable, kind: pa.DataType, name: str
) -> None:
    table = catalog_table(pa.schema([("k", pa.int64()), ("l", pa.list_(kind))]))
    with pytest.raises(InvalidInputError, match=rf"column l\.element has the type {name} of Iceberg"):
        create(session, Path(table.metadata_location))


PAIRS = pa.schema([("k", pa.int64()), ("v", pa.string())])


def pairs(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], PAIRS)


def test_equality_deletes_are_applied_to_older_rows(
    session: Session, catalog_table: MakeIcebergTable
) -> None:
    table = catalog_table(PAIRS)
    table.append(pairs((1, "a"), (2, "b"), (3, None), (4, None), (5, "e")))
    delete_equal(table, pairs((1, None), (3, None), (5, "other")), [1, 2])  # 1 and 5 have other values
    delete_equal(table, pairs((2, None)).select(["k"]), [1])
    table.append(pairs((2, "again")))
    create(session, Path(table.metadata_location))
    assert run(session, "SELECT k, v FROM t ORDER BY k") == [(1, "a"), (2, "again"), (4, None), (5, "e")]


def test_a_column_that_was_added_later_is_null_to_an_equality_delete(
    session: Session, catalog_table: MakeIcebergTable
) -> None:
    table = catalog_table(PAIRS)
    table.append(pairs((1, "a"), (2, "b")))
    with table.update_schema() as update:
        update.add_column("w", LongType())
    table.append(pa.table({"k": [3], "v": ["c"], "w": [7]}))
    delete_equal(table, pa.table({"w": pa.array([None], pa.int64())}), [3])
    create(session, Path(table.metadata_location))
    assert run(session, "SELECT k FROM t") == [(3,)]


def test_equality_deletes_of_a_partition_spare_the_others(
    session: Session, catalog_table: MakeIcebergTable
) -> None:
    table = catalog_table(PAIRS)
    with table.update_spec() as update:
        update.add_identity("v")
    table.append(pairs((1, "a"), (2, "b"), (3, "a"), (4, "b")))
    delete_equal(table, pairs((1, None), (2, None)).select(["k"]), [1], partition=["b"])
    create(session, Path(table.metadata_location))
    assert run(session, "SELECT k FROM t ORDER BY k") == [(1,), (3,), (4,)]


def test_an_equality_delete_by_a_column_that_was_dropped_is_refused_by_name(
    session: Session, catalog_table: MakeIcebergTable
) -> None:
    table = catalog_table(PAIRS)
    table.append(pairs((1, "a")))
    delete_equal(table, pairs((1, "a")).select(["v"]), [2])
    with table.update_schema() as update:
        update.delete_column("v")
    with pytest.raises(
        InvalidInputError, match=r"it deletes by the field ids \[2\]; expected ids of columns"
    ):
        create(session, Path(table.metadata_location))


@pytest.mark.parametrize("seed", range(by_form(2, 20)))
def test_random_appends_and_equality_deletes_are_read(
    session: Session, catalog_table: MakeIcebergTable, seed: int
) -> None:
    random_ = random.Random(seed)
    table = catalog_table(PAIRS)
    live: list[tuple[int, str | None]] = []
    top = 0
    for _ in range(10):
        if random_.random() < 0.5:
            added = [(top + i, random_.choice(["a", "b", None])) for i in range(random_.randrange(1, 9))]
            top += len(added)
            table.append(pairs(*added))
            live += added
        else:
            gone = [(random_.randrange(top + 1), random_.choice(["a", "b", None])) for _ in range(4)]
            if random_.random() < 0.5:
                delete_equal(table, pairs(*gone), [1, 2])
                live = [row for row in live if row not in gone]
            else:
                delete_equal(table, pairs(*gone).select(["v"]).slice(0, 1), [2])
                live = [row for row in live if row[1] != gone[0][1]]
    create(session, Path(table.metadata_location))
    assert run(session, "SELECT k, v FROM t ORDER BY k") == sorted(live), f"seed {seed}"


def test_no_table_elsewhere_is_read(session: Session, source: Path, files: Path, tmp_path: Path) -> None:
    source.parent.parent.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere" / "tables" / source.name
    with pytest.raises(AccessDeniedError):
        create(session, moved)
    copy = files / "copy" / "metadata"
    copy.mkdir(parents=True)
    number = (moved / "metadata" / "version-hint.text").read_text()
    text = (moved / "metadata" / f"v{number}.metadata.json").read_text()
    (copy / f"v{number}.metadata.json").write_text(text.replace(str(source), str(moved)))
    with pytest.raises(AccessDeniedError):
        create(session, copy.parent)


def test_a_class_that_the_metadata_name_is_not_imported(session: Session, source: Path, files: Path) -> None:
    number = (source / "metadata" / "version-hint.text").read_text()
    file = source / "metadata" / f"v{number}.metadata.json"
    found = json.loads(file.read_text())
    found["properties"] = {**found.get("properties", {}), "py-io-impl": "nowhere.Nothing"}
    file.write_text(json.dumps(found))
    create(session, source)
    assert repr(dicts(session, "SELECT * FROM t ORDER BY k")) == (files / "wanted.json").read_text()


def test_a_directory_without_metadata_is_no_table(session: Session, files: Path) -> None:
    with pytest.raises(NotFoundError, match="no Iceberg table"):
        create(session, files)


@pytest.mark.parametrize("text", ["", "{}", '{"format-version": 9}'])
def test_damaged_metadata_are_refused(session: Session, files: Path, text: str) -> None:
    file = files / "v1.metadata.json"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match="the Iceberg table cannot be read"):
        create(session, file)
