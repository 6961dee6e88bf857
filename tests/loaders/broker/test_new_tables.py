"""`auto_create` of broker loads: tables that their files describe (EV10)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from seqstore import InvalidInputError, LabelExistsError, NotFoundError, Store
from seqstore.loaders.broker.job import LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.store.sql import Session
from tests.support.changes.messages import envelope
from tests.support.children import MODULES
from tests.support.statements import dicts


def run(store: Store, files: Path, *descriptions: DataDescription, **properties: str) -> LoadJob:
    spec = LoadSpec("db", properties.pop("label", "one"), descriptions, {"auto_create": "true", **properties})
    return BrokerLoad(store, spec, [str(files)]).run()[1]


def described(files: Path, pattern: str, table: str = "new", **given: Any) -> DataDescription:
    return DataDescription(table, (f"{files}/{pattern}",), **given)


def test_all_files_of_a_table_tell_its_columns(store: Store, files: Path) -> None:
    """EV6, EV10."""
    (files / "a.csv").write_text("k,n\n1,2\n2,\n")
    (files / "b.csv").write_text("k,n,word\n3,1.5,x\n")
    pyarrow.parquet.write_table(pa.table({"k": [4], "day": pa.array([0], pa.date32())}), files / "c.parquet")
    job = run(
        store,
        files,
        described(files, "*.csv", column_separator=","),
        described(files, "*.parquet"),
        auto_create_key="k",
    )
    assert (job.state, job.error, job.loaded) == ("FINISHED", "", 4)
    schema = store.table("db.new").schema
    kinds = {column.name: column.type.sql for column in schema.columns}
    assert (kinds, list(schema.key)) == (
        {"k": "BIGINT", "n": "DOUBLE", "word": "STRING", "day": "DATE"},
        ["k"],
    )
    found = sorted(
        store.table("db.new").scan(["k", "n", "word"]).read_all().to_pylist(), key=lambda r: r["k"]
    )
    assert [tuple(row.values()) for row in found] == [
        (1, 2.0, None),
        (2, None, None),
        (3, 1.5, "x"),
        (4, None, None),
    ]
    assert [statement.split("(")[0].strip() for statement in job.created] == ["CREATE TABLE `new`"]


def test_tables_with_their_own_keys_come_in_one_commit(store: Store, files: Path) -> None:
    (files / "a.json").write_text('{"k": 1, "at": 5}\n{"k": 1, "at": 4}\n')
    (files / "b.json").write_text('{"id": "x"}\n')
    job = run(
        store,
        files,
        described(files, "a.json", "one", properties={"auto_create_key": "k", "auto_create_sequence": "at"}),
        described(files, "b.json", "two"),
    )
    assert (job.state, job.error) == ("FINISHED", "")
    assert store.table("db.one").scan().read_all().to_pylist() == [{"k": 1, "at": 5}]
    assert store.table("db.two").schema.is_duplicate


def test_names_in_the_path_are_columns(store: Store, files: Path) -> None:
    """B7: the path wins over a field of its name."""
    for day, region in (("2024-01-01", "eu"), ("2024-01-02", "us")):
        (files / f"day={day}/region={region}").mkdir(parents=True)
        (files / f"day={day}/region={region}/a.json").write_text('{"k": 1, "region": 5}\n')
    given = described(files, "*/*/a.json", columns_from_path=("day", "region"))
    assert run(store, files, given).state == "FINISHED"
    kinds = {column.name: column.type.sql for column in store.table("db.new").schema.columns}
    assert kinds == {"k": "BIGINT", "day": "DATE", "region": "STRING"}
    found = store.table("db.new").scan(["day", "region"]).read_all().to_pylist()
    assert sorted((str(row["day"]), row["region"]) for row in found) == [
        ("2024-01-01", "eu"),
        ("2024-01-02", "us"),
    ]


def test_messages_of_a_change_stream_name_the_key(store: Store, files: Path) -> None:
    changes = [envelope("c", 1, after={"k": 1, "v": "a"}), envelope("u", 2, after={"k": 1, "v": "b"})]
    text = "".join(f'{{"k": 1}}\t{json.dumps(each)}\n' for each in changes)
    (files / "a.json").write_text(text)
    assert run(store, files, described(files, "a.json", format="debezium_json")).state == "FINISHED"
    assert store.table("db.new").scan().read_all().to_pylist() == [{"k": 1, "v": "b"}]
    assert run(
        store, files, described(files, "a.json", "other", format="debezium_json"), label="b"
    ).state == ("FINISHED")
    (files / "keyless.json").write_text(json.dumps(changes[0]))
    refused = run(
        store, files, described(files, "keyless.json", "keyless", format="debezium_json"), label="c"
    )
    assert "auto_create_key" in refused.error


def test_a_job_that_fails_leaves_no_table_and_its_label(store: Store, files: Path) -> None:
    (files / "a.json").write_text('{"k": null}\n{"k": 1}\n')
    refused = run(store, files, described(files, "a.json"), auto_create_key="k")
    assert refused.state == "CANCELLED"
    kept = run(store, files, described(files, "nothing*.json"), dead_letters="true")
    assert kept.state == "CANCELLED"
    assert store.tables("db") == []
    (files / "a.json").write_text('{"k": 1}\n')
    assert run(store, files, described(files, "a.json"), auto_create_key="k").state == "FINISHED"
    with pytest.raises(LabelExistsError):
        run(store, files, described(files, "a.json", "late"))
    assert store.tables("db") == ["new"]


def test_a_table_that_is_there_stays_as_it_is(store: Store, files: Path) -> None:
    (files / "a.json").write_text('{"k": 1, "v": 2}\n')
    assert run(store, files, described(files, "a.json"), auto_create_key="k").created != ()
    again = run(store, files, described(files, "a.json"), auto_create_key="v", label="b")
    assert (again.state, again.created) == ("FINISHED", ())
    assert list(store.table("db.new").schema.key) == ["k"]


def test_rejected_rows_and_later_columns_go_with_a_new_table(store: Store, files: Path) -> None:
    """DL1, EV1."""
    (files / "a.json").write_text('{"k": 1}\n{"k": null, "v": 3}\nno row\n')
    properties = {"auto_create_key": "k", "dead_letters": "true", "schema_evolution": "widen"}
    assert run(store, files, described(files, "a.json"), **properties).loaded == 1
    assert store.table("db.new__dead_letters").count() == 2
    (files / "a.json").write_text('{"k": 2, "w": 1}\n')
    assert run(store, files, described(files, "a.json"), **properties, label="b").state == "FINISHED"
    assert store.table("db.new").schema.names == ["k", "v", "w"]


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"auto_create": "no"}, "auto_create"),
        ({"auto_create_key": " "}, "auto_create_key"),
        ({"auto_create": "false", "auto_create_key": "k"}, "auto_create: true"),
    ],
)
def test_bad_properties_are_refused_before_the_job(
    store: Store, files: Path, properties: dict[str, str], error: str
) -> None:
    with pytest.raises(InvalidInputError, match=error):
        run(store, files, described(files, "a.json"), **properties)


def test_without_the_property_a_missing_table_is_refused_at_once(store: Store, files: Path) -> None:
    (files / "a.json").write_text('{"k": 1}\n')
    with pytest.raises(NotFoundError):
        run(store, files, described(files, "a.json"), auto_create="false")


def test_load_label_tells_the_table_it_made(session: Session, store: Store, files: Path) -> None:
    (files / "a.json").write_text('{"k": 1}\n')
    dicts(
        session,
        f"LOAD LABEL db.job (DATA INFILE ('{files}/a.json') INTO TABLE new FORMAT AS 'json') WITH LOCAL "
        "PROPERTIES ('auto_create' = 'true', 'auto_create_key' = 'k')",
    )

    deadline = time.monotonic() + 120
    while (shown := dicts(session, "SHOW LOAD FROM db")[0])["State"] not in ("FINISHED", "CANCELLED"):
        assert time.monotonic() < deadline, shown
        time.sleep(0.02)
    assert shown["State"] == "FINISHED", shown
    assert "UNIQUE KEY(`k`)" in json.loads(shown["JobDetails"])["CreatedTables"][0]


CHILD = """
import sys
from seqstore import Store
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
with Store.open(sys.argv[1]) as store:
    spec = LoadSpec("db", "one", (DataDescription("new", (sys.argv[2],)),), {"auto_create": "true"})
    BrokerLoad(store, spec, [sys.argv[2].rpartition("/")[0]]).run()
"""


@pytest.mark.crash
def test_killed_before_the_commit_it_leaves_neither_table_nor_job(store: Store, files: Path) -> None:
    (files / "a.json").write_text('{"k": 1}\n')
    store.close()
    command = [sys.executable, "-c", CHILD, str(store.path), f"{files}/a.json"]
    environment = {**os.environ, "PYTHONPATH": MODULES, "SEQSTORE_FAILPOINT": "publish.before_commit"}
    done = subprocess.run(command, env=environment, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    with Store.open(store.path) as opened:
        assert opened.tables("db") == []
        (job,) = LoadJobs(opened.catalog).all("db").values()
        assert job.state == "CANCELLED"
        assert run(opened, files, described(files, "a.json")).state == "FINISHED"
