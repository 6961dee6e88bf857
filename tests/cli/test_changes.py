"""`seqstore changes`: what versions changed, as lines and files, and stores that are chained by it."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqstore import Session, Store
from seqstore.cli.main import app
from seqstore.loaders.stream_load import stream_load
from tests.support.children import MODULES
from tests.support.statements import dicts, run

Changes = Callable[..., list[dict[str, Any]]]
COLUMNS = "id BIGINT, v VARCHAR(20) NULL, price DECIMAL(38, 10) NULL, big LARGEINT NULL, at DATETIME(6) NULL"
TABLE = f"CREATE TABLE t ({COLUMNS}, list ARRAY<INT> NULL) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1"
FIRST = f"INSERT INTO t VALUES (1, 'a', 0.0000000001, {2**127 - 1}, '2024-01-01 10:00:00.5', [1])"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "data") as store, Session(store, "db") as session:
        store.create_database("db")
        run(session, TABLE)
        run(session, FIRST)
        run(session, "INSERT INTO t (id, v) VALUES (2, 'ü\"')")
    return tmp_path / "data"


@pytest.fixture
def changes(data: Path) -> Changes:
    def go(*arguments: str) -> list[dict[str, Any]]:
        done = CliRunner().invoke(app, ["--data-dir", str(data), "changes", "db.t", *arguments])
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.output.splitlines()]

    return go


def write(data: Path, statement: str) -> None:
    with Store.open(data) as store, Session(store, "db") as session:
        run(session, statement)


def test_rows_of_now_come_first_and_keep_their_digits(changes: Changes) -> None:
    first, second = sorted(changes(), key=lambda line: int(line["id"]))
    assert (first["id"], first["price"], first["at"], first["list"]) == (
        1,
        "0.0000000001",
        "2024-01-01 10:00:00.500000",
        [1],
    )
    assert first["big"] == "170141183460469231731687303715884105727"
    assert (second["v"], second["price"]) == ('ü"', None)
    assert {(line["_change_type"], line["_commit_version"]) for line in (first, second)} == {("+I", 3)}


def test_changes_since_a_version_are_those_of_the_feed(changes: Changes, data: Path) -> None:
    write(data, "UPDATE t SET v = 'b' WHERE id = 1")
    write(data, "DELETE FROM t WHERE id = 2")
    found = [
        (line["_commit_version"], line["_change_type"], line["id"], line["v"])
        for line in changes("--since", "4")
    ]
    assert found == [(4, "-U", 1, "a"), (4, "+U", 1, "b"), (5, "-D", 2, 'ü"')]
    envelopes = changes("--since", "4", "--format", "debezium_json")
    assert [(line["op"], (line["after"] or line["before"])["id"]) for line in envelopes] == [
        ("u", 1),
        ("d", 2),
    ]
    assert [line["source"]["commit_version"] for line in envelopes] == [4, 5]


@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_reads_the_changes_of_another_one_is_its_copy(
    data: Path, tmp_path: Path, seed: int
) -> None:
    """Files arrive in any order, and some of them twice."""
    rng = random.Random(seed)
    out = tmp_path / "out"
    command = ["--data-dir", str(data), "changes", "db.t", "--format", "debezium_json", "--out", str(out)]
    for step in range(6):
        assert CliRunner().invoke(app, command).exit_code == 0
        key = rng.randrange(1, 4)
        write(
            data,
            rng.choice(
                [f"DELETE FROM t WHERE id = {key}", f"INSERT INTO t (id, v) VALUES ({key}, 's{step}')"]
            ),
        )
    assert CliRunner().invoke(app, command).exit_code == 0
    files = sorted(out.glob("changes-*.json"))
    assert CliRunner().invoke(app, command).exit_code == 0
    assert sorted(out.glob("*")) == files, "a second run without changes writes no file"
    files += rng.sample(files, 2)
    rng.shuffle(files)
    with Store.open(tmp_path / "copy") as store, Session(store, "db") as session:
        store.create_database("db")
        run(session, f'{TABLE} PROPERTIES("function_column.sequence_type" = "BIGINT")')
        for file in files:
            given = {"format": "debezium_json", "change_table": "db.t"}
            reply = stream_load(store, "db", "t", io.BytesIO(file.read_bytes()), given)
            assert reply["Status"] == "Success", reply["Message"]
        copied = dicts(session, "SELECT * FROM t ORDER BY id")
    with Store.open(data) as store, Session(store, "db") as session:
        assert copied == dicts(session, "SELECT * FROM t ORDER BY id"), f"seed {seed}"


def test_follow_prints_versions_as_they_are_committed(data: Path) -> None:
    command = [sys.executable, "-m", "seqstore", "--data-dir", str(data), "changes", "db.t", "--follow"]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": MODULES, "PATH": ""}
    )
    try:
        assert child.stdout is not None
        assert {json.loads(child.stdout.readline())["id"] for _ in range(2)} == {1, 2}
        write(data, "INSERT INTO t (id, v) VALUES (9, 'later')")
        assert json.loads(child.stdout.readline())["v"] == "later"
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def test_a_number_that_json_cannot_write_is_refused(data: Path) -> None:
    write(data, "ALTER TABLE t ADD COLUMN d DOUBLE NULL")
    with Store.open(data) as store:
        import pyarrow as pa

        store.table("db.t").upsert(pa.table({"id": [5], "d": [float("inf")]}), mode="UPDATE_FIXED_COLUMNS")
    done = CliRunner().invoke(app, ["--data-dir", str(data), "changes", "db.t"])
    assert (done.exit_code, "is not finite" in done.output) == (1, True)
