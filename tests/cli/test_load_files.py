"""`seqstore load`: files into a table that is made from them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from seqstore import Session, Store
from seqstore.cli import load_files
from seqstore.cli.main import app
from tests.loaders.lake.delta_writer import HandMade, field
from tests.support.changes.messages import body, envelope, with_schema
from tests.support.children import MODULES
from tests.support.statements import dicts, run

Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Runs the command on a data directory of its own."""

    def go(*arguments: Any) -> Any:
        given = ["--data-dir", str(tmp_path / "data"), "load", *map(str, arguments), "--into", "shop.t"]
        return CliRunner().invoke(app, given)

    return go


def rows(tmp_path: Path, order: str = "id") -> list[dict[str, Any]]:
    with Store.open(tmp_path / "data") as store, Session(store, "shop") as session:
        return dicts(session, f"SELECT * FROM t ORDER BY {order}")


def statement(output: str) -> str:
    """Returns the printed CREATE TABLE."""
    return output[output.index("CREATE TABLE") : output.index("\n{")]


def test_csv_makes_a_table_whose_types_take_every_value(load: Load, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text(
        "id,name,changed,day,price,zip,ok,big,empty\n"
        '1,"a, ""b""",2024-01-01 10:00:00,2024-01-01,1,00501,true,9,\n'
        "2,,2024-01-02 10:00:00.5,2024-01-02,,12345,FALSE,99999999999999999999,\n"
    )
    late = "id,name,changed,day,price,zip,ok,big,empty\n1,late,2023-01-01 00:00:00,2024-01-01,2.5,1,true,1,\n"
    (tmp_path / "in" / "2.csv.gz").write_bytes(gzip.compress(late.encode()))
    (tmp_path / "in" / "_SUCCESS").write_text("")
    done = load(tmp_path / "in", "--key", "ID", "--sequence", "changed")
    assert done.exit_code == 0, done.output
    made = statement(done.output)
    for kind in (
        "`id` bigint NOT NULL",
        "`changed` datetime(6)",
        "`day` date",
        "`price` double",
        "`zip` string",
    ):
        assert kind in made
    for kind in (
        "`ok` boolean",
        "`big` largeint",
        "`empty` string",
        '"function_column.sequence_col" = "changed"',
    ):
        assert kind in made
    found = rows(tmp_path)
    assert [(row["id"], row["name"], row["price"], row["big"]) for row in found] == [
        (1, 'a, "b"', 1.0, 9),
        (2, "", None, 99999999999999999999),
    ]
    assert found[1]["changed"] == datetime(2024, 1, 2, 10, 0, 0, 500000)


def test_the_printed_statement_makes_the_same_table(load: Load, tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text(
        '{"id": 1, "n": 1.5, "at": "2024-01-01", "o": {"a": 1}}\n{"id": 2, "b": true}\n'
    )
    printed = statement(load(tmp_path / "1.jsonl", "--key", "id").output)
    with Store.open(tmp_path / "data") as store, Session(store, "shop") as session:
        made = store.table("shop.t").schema
        run(session, "DROP TABLE t")
        run(session, printed)
        again = store.table("shop.t").schema
    assert [column.to_record() for column in again.columns] == [column.to_record() for column in made.columns]
    assert (again.key, again.sequence_column) == (made.key, made.sequence_column)


def test_files_of_several_formats_and_types_share_a_table(load: Load, tmp_path: Path) -> None:
    parquet = pa.table(
        {"id": pa.array([1], pa.int32()), "n": pa.array([5], pa.int64()), "d": [date(2024, 1, 1)]}
    )
    pq.write_table(parquet, tmp_path / "1.parquet")
    (tmp_path / "2.json").write_text('{"id": 2, "n": 0.5, "more": [1, 2]}\n')
    done = load(tmp_path / "1.parquet", tmp_path / "2.json", "--key", "id")
    assert done.exit_code == 0, done.output
    found = rows(tmp_path)
    assert [(row["id"], row["n"], row["d"]) for row in found] == [(1, 5.0, date(2024, 1, 1)), (2, 0.5, None)]


def test_a_second_load_uses_the_table_and_checks_its_key(load: Load, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id;v\n1;a\n")
    (tmp_path / "2.csv").write_text("v;ID\nb;2\n")
    assert load(tmp_path / "1.csv", "--key", "id", "--separator", ";").exit_code == 0
    again = load(tmp_path / "2.csv", "--key", "id", "--separator", ";")
    assert (again.exit_code, "CREATE" in again.output) == (0, False)
    assert [(row["id"], row["v"]) for row in rows(tmp_path)] == [(1, "a"), (2, "b")]
    other = load(tmp_path / "2.csv", "--key", "v", "--separator", ";")
    assert (other.exit_code, "has the key id, found --key v" in other.output) == (1, True)
    other = load(tmp_path / "2.csv", "--sequence", "v", "--separator", ";")
    assert (other.exit_code, "has the sequence None, found --sequence v" in other.output) == (1, True)


def test_messages_of_debezium_declare_the_table(load: Load, tmp_path: Path) -> None:
    fields: list[dict[str, Any]] = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "name", "type": "string", "optional": True},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
    ]
    row = {"id": 1, "name": "x", "day": 1, "at": 1_000_000, "price": "AfQ="}
    messages = [
        with_schema(envelope("u", 9, after={**row, "name": "last"}, connector="mysql"), fields),
        with_schema(envelope("c", 3, after=row, connector="mysql"), fields),
        with_schema(envelope("d", 4, before={"id": 2}, connector="mysql"), fields),
        {"ts_ms": 1},
    ]
    (tmp_path / "1.json").write_bytes(body(*messages))
    done = load(tmp_path / "1.json", "--key", "id", "--format", "debezium_json")
    assert done.exit_code == 0, done.output
    assert '"function_column.sequence_type" = "LARGEINT"' in done.output
    (found,) = rows(tmp_path)
    assert found == {
        "id": 1,
        "name": "last",
        "day": date(1970, 1, 2),
        "at": datetime(1970, 1, 1, 0, 0, 1),
        "price": Decimal("5.00"),
    }


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ('{"a": 1}\n', ["--key", "id"], "column 'id' is not among the columns of the files: a"),
        (
            '{"id": 1, "s": "x"}\n',
            ["--key", "id", "--sequence", "s"],
            "sequence 's': expected integers, dates",
        ),
        ("[1]\n", [], "no file names a column"),
        (json.dumps(envelope("c", 1, after={"id": 1})), ["--format", "debezium_json"], "have no schema"),
        ("{}", ["--format", "canal_json"], "messages of canal_json declare no types"),
    ],
)
def test_files_that_declare_no_table_leave_none(
    load: Load, tmp_path: Path, text: str, options: list[str], reason: str
) -> None:
    (tmp_path / "1.json").write_text(text)
    done = load(tmp_path / "1.json", *options)
    assert (done.exit_code, reason in done.output) == (1, True), done.output
    with Store.open(tmp_path / "data") as store:
        assert "shop" not in store.databases()


def test_a_load_that_fails_leaves_no_new_table(load: Load, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,v\n1,a\n2\n")
    done = load(tmp_path / "1.csv", "--key", "id")
    assert done.exit_code == 4, done.output
    assert "DROP TABLE shop.t" in done.output
    with Store.open(tmp_path / "data") as store:
        assert store.tables("shop") == []


def test_a_new_table_with_rows_of_another_load_stays(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was dropped with the rows that another process had loaded meanwhile."""
    (tmp_path / "1.csv").write_text("id,v\n1,a\n2\n")
    run = load_files._run

    def overtaken(store: Store, given: Any) -> Any:
        with Store.open(tmp_path / "data") as other:
            other.table("shop.t").upsert(pa.table({"id": [7], "v": ["theirs"]}))
        return run(store, given)

    monkeypatch.setattr(load_files, "_run", overtaken)
    done = load(tmp_path / "1.csv", "--key", "id")
    assert done.exit_code == 4, done.output
    assert "shop.t has rows of another load" in done.output
    assert rows(tmp_path) == [{"id": 7, "v": "theirs"}]


@pytest.mark.parametrize("has_database", [True, False])
def test_a_load_whose_output_cannot_be_written_leaves_nothing(tmp_path: Path, has_database: bool) -> None:
    """The statements are printed before the rows are loaded: an empty table was left."""
    (tmp_path / "1.csv").write_text("id,v\n1,a\n")
    with Store.open(tmp_path / "data") as store:
        store.create_database("shop" if has_database else "other")
    given = ["--data-dir", str(tmp_path / "data"), "load", str(tmp_path / "1.csv"), "--into", "shop.t"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "seqstore", "--quiet", *given, "--key", "id"],
            env={**os.environ, "PYTHONPATH": MODULES},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "seqstore: standard output: no space left on device\n")
    with Store.open(tmp_path / "data") as store:
        assert [store.tables(name) for name in store.databases()] == [[]]
        assert store.databases() == ["shop" if has_database else "other"]


def test_missing_files_and_repeated_names_are_refused(load: Load, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "expected a file, or a directory" in load(tmp_path / "none.csv").output
    assert "expected a file, or a directory" in load(tmp_path / "empty").output
    (tmp_path / "1.csv").write_text("a,A\n1,2\n")
    assert "each once" in load(tmp_path / "1.csv").output


def test_properties_are_those_of_a_new_table(load: Load, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,a\n")
    done = load(tmp_path / "a.csv", "--key", "id", "--property", "delta.appendOnly=true")
    assert done.exit_code == 0
    with Store.open(tmp_path / "data") as store:
        assert store.table("shop.t").schema.properties["delta.appendOnly"] == "true"
    again = load(tmp_path / "a.csv", "--property", "delta.appendOnly=false")
    assert "ALTER TABLE .. SET" in again.output
    assert "expected NAME=VALUE" in load(tmp_path / "a.csv", "--property", "x").output


def test_a_property_that_is_not_known_makes_no_table(load: Load, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,a\n")
    assert load(tmp_path / "a.csv", "--property", "no_such_thing=1").exit_code != 0
    with Store.open(tmp_path / "data") as store:
        assert "shop" not in store.databases() or store.tables("shop") == []


def test_the_directory_of_a_delta_table_is_imported(load: Load, tmp_path: Path) -> None:
    lake = HandMade(tmp_path / "lake", [field("id", "long", nullable=False)], features=["deletionVectors"])
    keys = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    lake.commit([lake.add("a.parquet", keys, deletionVector=lake.vector([1]))])
    done = load(lake.root, "--key", "id")
    assert done.exit_code == 0, done.output
    assert "CREATE TABLE `t`" in done.output
    assert "2 rows" in done.output
    assert rows(tmp_path) == [{"id": 1}, {"id": 3}]
    again = load(lake.root, "--key", "id")
    assert again.exit_code != 0
    assert "shop.t exists, and a DELTA table becomes a new table" in again.output


def test_the_directory_of_an_iceberg_table_is_imported(load: Load, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    opened = "'delta.universalFormat.enabledFormats' = 'iceberg', 'open_every_seconds' = '0'"
    with Store.open(tmp_path / "other") as store, Session(store) as session:
        run(session, f"CREATE DATABASE d; CREATE TABLE d.t (id INT) UNIQUE KEY(id) PROPERTIES ({opened})")
        run(session, "INSERT INTO d.t VALUES (1), (2); DELETE FROM d.t WHERE id = 1")
        root = store.path / store.table("d.t").loader.directory
    done = load(root, "--key", "id")
    assert done.exit_code == 0, done.output
    assert rows(tmp_path) == [{"id": 2}]


def test_a_table_of_another_format_needs_a_key(load: Load, tmp_path: Path) -> None:
    HandMade(tmp_path / "lake", [field("id", "long")])
    done = load(tmp_path / "lake")
    assert done.exit_code != 0
    assert "is imported alone, with --key" in done.output
