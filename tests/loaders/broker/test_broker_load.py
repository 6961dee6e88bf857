"""Broker load: files become versions of several tables at once, or of none."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from seqstore import InvalidInputError, LabelExistsError, NotFoundError, Store
from seqstore.cli import progress
from seqstore.cli.broker_load import show_progress
from seqstore.loaders.broker import pools
from seqstore.loaders.broker.job import FINISHED, LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.show import SHOW_COLUMNS, job_line
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.broker.toml_spec import read_spec
from seqstore.store.catalog.job_record import CANCELLED
from seqstore.store.sql import Session
from tests.support.changes.messages import body, canal, envelope, maxwell
from tests.support.forks.pools import forked_context
from tests.support.streams.avro import change, container, envelope_schema

ROOT = Path(__file__).parents[3]
CREATE = (
    "CREATE TABLE db.{} (k BIGINT NOT NULL, v VARCHAR(10) NULL, s INT NULL, day DATE NULL) UNIQUE KEY (k) "
    "DISTRIBUTED BY HASH (k) PROPERTIES ('function_column.sequence_col' = 's')"
)


pytestmark = [pytest.mark.sql(CREATE.format(name)) for name in ("one", "two")]


def csv(path: Path, *rows: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(row + "\n" for row in rows))
    return str(path)


def description(*paths: str, table: str = "one", **more: Any) -> DataDescription:
    given: dict[str, Any] = {"column_separator": ",", "columns": ("k", "v", "s"), **more}
    return DataDescription(table, paths, **given)


def spec(*descriptions: DataDescription, label: str = "job", **properties: str) -> LoadSpec:
    """With one process that reads, for each takes a second to start."""
    return LoadSpec("db", label, descriptions, {"load_parallelism": "1", **properties})


def run(store: Store, job: LoadSpec, files: Path) -> LoadJob:
    return BrokerLoad(store, job, [str(files)]).run()[1]


def rows(store: Store, table: str = "one") -> dict[int, Any]:
    found = store.table(f"db.{table}").scan(["k", "v"]).read_all().to_pylist()
    return {row["k"]: row["v"] for row in found}


def test_files_of_a_pattern_become_one_version(store: Store, files: Path) -> None:
    """B6; SO4: the sequence decides among files, whatever their order."""
    csv(files / "a1.csv", "1,new,9", "2,b,1")
    csv(files / "a2.csv", "1,old,3", "3,c,1")
    csv(files / "b1.csv", "4,d,1")
    (files / "a3.csv").mkdir()  # a directory is no file
    job = run(store, spec(description(f"{files}/a*.csv"), load_parallelism="2"), files)
    assert (job.state, job.files, job.loaded, job.filtered, job.error) == (FINISHED, 2, 4, 0, "")
    assert rows(store) == {1: "new", 2: "b", 3: "c"}
    assert store.table("db.one").version == 2


def test_small_files_are_read_by_the_process_of_the_job(store: Store, files: Path) -> None:
    """The start of other processes took longer than the load of three small files."""
    for number in range(3):
        csv(files / f"{number}.csv", f"{number},a,1")
    job = LoadSpec("db", "job", (description(f"{files}/*.csv"),))
    with mock.patch.object(pools, "ProcessPoolExecutor", side_effect=AssertionError("a process began")):
        assert run(store, job, files).error == ""
    assert rows(store) == {0: "a", 1: "a", 2: "a"}


def test_large_files_are_read_by_a_process_for_each_core(store: Store, files: Path) -> None:
    for number in range(3):
        csv(files / f"{number}.csv", f"{number},a,1")
    job = LoadSpec("db", "job", (description(f"{files}/*.csv"),))
    began = mock.patch.object(pools, "ProcessPoolExecutor", side_effect=OSError("a process began"))
    with mock.patch.object(pools, "_OWN_BYTES_MAX", 10), mock.patch("os.cpu_count", return_value=2), began:
        assert "a process began" in run(store, job, files).error


def test_tables_of_one_job_are_loaded_together_or_not_at_all(store: Store, files: Path) -> None:
    """B4"""
    good, bad = csv(files / "good.csv", "1,a,1"), csv(files / "bad.csv", "x,a,1")
    failing = spec(description(good), description(bad, table="two"))
    job = run(store, failing, files)
    assert (job.state, job.error) == (
        CANCELLED,
        "type:ETL_QUALITY_UNSATISFIED; msg:quality not good enough to cancel",
    )
    assert rows(store) == rows(store, "two") == {}
    assert "bad.csv" in Path(job.url).read_text()
    again = run(store, replace(failing, properties={"max_filter_ratio": "0.5"}), files)
    assert again.state == FINISHED
    assert (rows(store), rows(store, "two")) == ({1: "a"}, {})
    assert not [path for path in (store.path / "tables").rglob("*") if path.is_file()]


def test_a_label_is_loaded_once(store: Store, files: Path) -> None:
    """B2, X16: refused before it becomes a job."""
    job = spec(description(csv(files / "a.csv", "1,a,1")))
    assert run(store, job, files).state == FINISHED
    with pytest.raises(LabelExistsError):
        run(store, job, files)
    assert len(LoadJobs(store.catalog).all()) == 1


def test_the_suffix_tells_format_and_compression(store: Store, files: Path) -> None:
    """B8"""
    table = pa.table({"k": [1], "v": ["parquet"], "s": [1]})
    pq.write_table(table, files / "a.parquet")
    orc.write_table(pa.table({"k": [2], "v": ["orc"], "s": [1]}), str(files / "b.orc"))
    (files / "c.json").write_text('{"k": 3, "v": "json", "s": 1}\n')
    with pa.CompressedOutputStream(str(files / "d.csv.gz"), "gzip") as compressed:
        compressed.write(b"4,gz,1\n")
    job = run(store, spec(description(f"{files}/*")), files)
    assert (job.state, job.files, job.error) == (FINISHED, 4, "")
    assert rows(store) == {1: "parquet", 2: "orc", 3: "json", 4: "gz"}


def test_fields_come_from_the_path_with_their_escapes(store: Store, files: Path) -> None:
    """B7"""
    csv(files / "city=a%3Ab" / "d=2024-01-02" / "x.csv", "1,1")
    csv(files / "city=c" / "d=2024-01-03" / "x.csv", "2,1")
    described = description(
        f"{files}/*/*/*.csv",
        columns=("k", "s"),
        columns_from_path=("city", "d"),
        assignments=("v = city", "day = d"),
        where="d > '2024-01-01'",
    )
    assert run(store, spec(described), files).error == ""
    found = store.table("db.one").scan(["k", "v", "day"]).read_all().to_pylist()
    assert sorted((row["k"], row["v"], str(row["day"])) for row in found) == [
        (1, "a%3Ab", "2024-01-02"),
        (2, "c", "2024-01-03"),
    ]


def test_filters_before_and_after_the_mapping_count_rows_as_unselected(store: Store, files: Path) -> None:
    path = csv(files / "a.csv", "1,a,1", "2,skip,1", "3,c,1", "x,skip,1")
    described = description(path, preceding_filter="v != 'skip'", where="k < 3")
    job = run(store, spec(described), files)
    assert (job.loaded, job.filtered, job.unselected) == (1, 0, 3)
    assert rows(store) == {1: "a"}


def test_merge_deletes_what_delete_on_says(store: Store, files: Path) -> None:
    """G1"""
    run(store, spec(description(csv(files / "a.csv", "1,a,1", "2,b,1")), label="first"), files)
    described = description(
        csv(files / "b.csv", "1,x,2", "3,c,2"), merge_type="MERGE", delete_on="v = 'x'", order_by="s"
    )
    assert run(store, spec(described), files).error == ""
    assert rows(store) == {2: "b", 3: "c"}


def test_a_partial_update_keeps_the_other_columns(store: Store, files: Path) -> None:
    run(store, spec(description(csv(files / "a.csv", "1,a,1")), label="first"), files)
    described = description(csv(files / "b.csv", "1,2024-05-05"), columns=("k", "day"))
    assert run(store, spec(described, partial_columns="true"), files).error == ""
    (row,) = store.table("db.one").scan(["v", "day"]).read_all().to_pylist()
    assert (row["v"], str(row["day"])) == ("a", "2024-05-05")


def test_the_error_policy_for_new_keys_cancels_the_job(store: Store, files: Path) -> None:
    """B20"""
    described = description(csv(files / "a.csv", "1,2024-05-05"), columns=("k", "day"))
    properties = {"partial_columns": "true", "partial_update_new_key_behavior": "ERROR"}
    job = run(store, spec(described, **properties), files)
    assert job.state == CANCELLED
    assert "[E-7003]" in job.error


def test_only_allowed_directories_are_read(store: Store, files: Path, tmp_path: Path) -> None:
    outside = csv(tmp_path / "outside.csv", "1,a,1")
    (files / "link.csv").symlink_to(outside)
    for path in (outside, str(files / "link.csv"), f"{files}/../outside.csv"):
        job = run(store, spec(description(path)), files)
        assert job.state == CANCELLED
        assert "not below a directory or bucket that loads may read" in job.error
    assert rows(store) == {}


def test_no_match_is_an_error(store: Store, files: Path) -> None:
    """B6"""
    job = run(store, spec(description(f"{files}/none*.csv")), files)
    assert job.state == CANCELLED
    assert job.error.startswith("type:LOAD_RUN_FAIL; msg:")
    assert "no file matches" in job.error


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            spec(description("a"), description("b", merge_type="DELETE")),
            "merge type in all statement must be the same.",
        ),
        (spec(description("a"), speed="9"), "Unknown property: speed"),
        (spec(description("a"), timeout="0"), "timeout: expected an integer from 1 to 259200, found '0'"),
        (spec(description("a"), priority="urgent"), "priority: expected one of HIGH, NORMAL, LOW"),
        (spec(), "a load needs at least one data description"),
    ],
    ids=["merge types", "property", "timeout", "priority", "empty"],
)
def test_what_cannot_be_is_refused_before_it_is_a_job(
    store: Store, files: Path, job: LoadSpec, message: str
) -> None:
    """B5, B9"""
    with pytest.raises(InvalidInputError, match=message):
        run(store, job, files)
    assert LoadJobs(store.catalog).all() == {}


def test_an_unknown_table_is_refused_at_once(store: Store, files: Path) -> None:
    with pytest.raises(NotFoundError):
        run(store, spec(description("a", table="three")), files)


def test_a_running_job_is_cancelled_and_leaves_nothing(store: Store, files: Path) -> None:
    """B17: here as soon as it starts to run; then its label may be used again."""
    paths = [csv(files / f"{i}.csv", f"{i},a,1") for i in range(3)]
    jobs = LoadJobs(store.catalog)
    job_spec = spec(description(*paths))

    def cancel(job: LoadJob) -> None:
        if job.state == "LOADING" and not job.is_cancelling:
            assert jobs.cancel("db", "job") == 1

    _, ended = BrokerLoad(store, job_spec, [str(files)], on_progress=cancel).run()
    assert (ended.state, ended.error) == (CANCELLED, "type:USER_CANCEL; msg:user cancel")
    assert rows(store) == {}
    with pytest.raises(
        InvalidInputError, match="Job could not be cancelled when job is finished or cancelled"
    ):
        jobs.cancel("db", "job")
    with pytest.raises(NotFoundError):
        jobs.cancel("db", "another")
    assert run(store, job_spec, files).state == FINISHED


def test_show_load_tells_what_doris_tells(store: Store, files: Path) -> None:
    """B12, B13, B15, B16"""
    path = csv(files / "a.csv", "1,a,1", "2,b,1", "x,c,1")
    run(store, spec(description(path), max_filter_ratio="0.5", timeout="60"), files)
    ((job_id, job),) = LoadJobs(store.catalog).all("db").items()
    shown = dict(zip(SHOW_COLUMNS, job_line(job_id, job), strict=True))
    assert shown["State"] == FINISHED
    assert shown["Progress"] == "100.00% (1/1)"
    assert shown["Type"] == "BROKER"
    assert shown["EtlInfo"] == "unselected.rows=0; dpp.abnorm.ALL=1; dpp.norm.ALL=2"
    assert shown["TaskInfo"] == "cluster:N/A; timeout(s):60; max_filter_ratio:0.5; priority:NORMAL"
    details = json.loads(shown["JobDetails"] or "")
    assert (details["ScannedRows"], details["FileNumber"], details["FileSize"]) == (
        3,
        1,
        os.path.getsize(path),
    )
    assert LoadJobs(store.catalog).all("other") == {}


def test_a_dead_job_is_cancelled_and_its_label_free(store: Store, files: Path) -> None:
    """Killed while it loads: nothing is visible, nothing stays."""
    script = f"""
import sys
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore import Store

def wait_when_committed(job):
    print(job.state, flush=True)
    if job.state == "COMMITTED":
        sys.stdin.read()

path = {str(files / "big.csv")!r}
rows = DataDescription("one", (path,), column_separator=",", columns=("k", "v", "s"))
spec = LoadSpec("db", "job", (rows,))
store = Store.open({str(store.path)!r})
BrokerLoad(store, spec, [{str(files)!r}], on_progress=wait_when_committed).run()
"""
    csv(files / "big.csv", *(f"{i},a,1" for i in range(50_000)))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "COMMITTED":
            break
    process.send_signal(signal.SIGKILL)
    process.wait(120)
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.close()
    (job,) = LoadJobs(store.catalog).all().values()
    assert job.state == CANCELLED
    assert "the process that ran it ended" in job.error
    assert rows(store) == {}
    again = spec(description(str(files / "big.csv")))
    assert run(store, again, files).state == FINISHED
    assert len(rows(store)) == 50_000
    opener = forked_context().Process(target=open_and_close, args=(str(store.path),))
    opener.start()
    opener.join(60)
    names = {path.stem for path in (store.path / "tables").rglob("*") if path.is_file()}
    live = {live.segment.meta.id for live in store.table("db.one").state().segments.values()}
    assert names <= live


def open_and_close(path: str) -> None:
    Store.open(path).close()


def test_waiting_jobs_start_by_priority(store: Store, files: Path) -> None:
    """B9"""
    jobs = LoadJobs(store.catalog)
    path = csv(files / "a.csv", "1,a,1")
    seen: list[str] = []
    blocker = [jobs.add(_running_job(label)) for label in ("r1", "r2")]
    started = []
    for label, priority in (("low", "LOW"), ("high", "HIGH")):
        submitted = threading.Event()
        load = BrokerLoad(
            store,
            spec(description(path), label=label, priority=priority),
            [str(files)],
            on_progress=lambda job: seen.append(job.spec.label) if job.state == "LOADING" else None,
        )
        thread = threading.Thread(target=load.run, args=(lambda _, event=submitted: event.set(),))
        thread.start()
        assert submitted.wait(120)
        started.append(thread)
    jobs.change(blocker[0], lambda job: replace(job, state=FINISHED))
    for thread in started:
        thread.join(60)
    assert seen.index("high") < seen.index("low")


def _running_job(label: str) -> LoadJob:
    from seqstore.store.runtime.process_identity import this_process

    return LoadJob(spec(description("x"), label=label), "LOADING", this_process(), 1)


def test_the_example_job_runs_from_the_command_line(tmp_path: Path) -> None:
    """conf/loads/orders.toml as it is."""
    with Store.open(tmp_path) as store:
        session = Session(store)
        for statement in (
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (order_id BIGINT NOT NULL, "
            "price DECIMAL(9,2) NULL, placed_on DATE NULL) "
            "UNIQUE KEY (order_id) DISTRIBUTED BY HASH (order_id) "
            "PROPERTIES ('function_column.sequence_type' = 'datetime')",
            "CREATE TABLE shop.customers (customer_id INT NOT NULL, "
            "name VARCHAR(50) NULL) UNIQUE KEY (customer_id) "
            "DISTRIBUTED BY HASH (customer_id)",
        ):
            list(session.execute(statement))
    command = [
        sys.executable,
        "-m",
        "seqstore.cli.main",
        "--data-dir",
        str(tmp_path),
        "broker-load",
        "conf/loads/orders.toml",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    reply = json.loads(done.stdout)
    assert (reply["State"], reply["LoadedRows"], reply["UnselectedRows"]) == ("FINISHED", 6, 1)
    with Store.open(tmp_path) as store:
        orders = store.table("shop.orders").scan().read_all().to_pylist()
        assert sorted((row["order_id"], str(row["price"]), str(row["placed_on"])) for row in orders) == [
            (1, "11.00", "2024-05-02"),
            (2, "20.00", "2024-05-01"),
        ]
        assert store.table("shop.customers").count() == 2
    again = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert again.returncode == 1
    assert "Label [orders-2024-05-01] has already been used" in again.stderr


def test_a_terminal_sees_the_load_beside_its_reply(store: Store, files: Path, tmp_path: Path) -> None:
    """On standard error, so that the reply on standard output stays JSON."""
    csv(files / "a.csv", "1,a,1", "2,b,1")
    job = tmp_path / "job.toml"
    job.write_text(
        'database = "db"\nlabel = "bar"\n[[load]]\ntable = "one"\npaths = ["files/*.csv"]\n'
        'column_separator = ","\ncolumns = ["k", "v", "s"]\n'
    )
    terminal, screen = os.openpty()
    command = [
        sys.executable,
        "-m",
        "seqstore.cli.main",
        "--data-dir",
        str(store.path),
        "broker-load",
        str(job),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "SEQSTORE_QUIET"}
    with subprocess.Popen(
        [*command, "--engine", "local"], stdout=subprocess.PIPE, stderr=screen, cwd=ROOT, env=environment
    ) as done:
        os.close(screen)
        shown = b""
        try:
            while piece := os.read(terminal, 65536):
                shown += piece
        except OSError:  # what a terminal says when nobody has it open any more
            pass
        assert done.stdout is not None
        reply = json.loads(done.stdout.read())
    os.close(terminal)
    assert (reply["State"], reply["LoadedRows"]) == ("FINISHED", 2)
    assert shown == b"" or b"broker-load" in shown  # nothing within the first second


def test_the_progress_of_a_load_has_its_state_percent_and_files(
    store: Store, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv(files / "a.csv", "1,a,1", "2,b,1")
    lines = []

    def seen(job: LoadJob) -> None:
        show_progress(job)
        lines.append(shown.line())

    with progress.Progress("broker-load", io.StringIO(), is_drawn=False) as shown:
        monkeypatch.setattr(progress, "_current", shown)
        BrokerLoad(store, spec(description(f"{files}/*.csv")), [str(files)], on_progress=seen).run()
    assert lines[-1].startswith("broker-load, FINISHED, 100 %, 1 of 1 files, ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("database = 1", "database: expected a text, found 1"),
        ("label = 'x'", "database is missing"),
        ("database = 'd'", "label is missing"),
        ("database = 'd'\nlabel = 'l'\nnope = 1", "unknown name 'nope'"),
        ("database = 'd'\nlabel = 'l'\n[[load]]\ntable = 't'", r"paths is missing in \[\[load\]\]"),
        ("database = 'd'\nlabel = 'l'\n[[load]]\ntable = 't'\npaths = 'x'", "expected a list of texts"),
        (
            "database = 'd'\nlabel = 'l'\n[[load]]\ntable = 't'\npaths = ['x']\npartitions = []",
            r"partitions is empty in \[\[load\]\]: name some, or leave it out",
        ),
        ("database = ", "not TOML"),
    ],
)
def test_a_job_file_is_read_with_care(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_spec(tmp_path / "job.toml")


def test_a_missing_job_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        read_spec(tmp_path / "none.toml")


@pytest.mark.parametrize("file_format", ["debezium_json", "canal_json", "maxwell_json", "debezium_avro"])
def test_files_of_every_format_of_change_streams(store: Store, files: Path, file_format: str) -> None:
    """CS1, AV1"""
    row = {"k": 1, "v": "a", "s": 5}
    fields = [{"name": "k", "type": "long"}, {"name": "v", "type": "string"}, {"name": "s", "type": "long"}]
    data = {
        "debezium_json": lambda: body(envelope("c", 3, after=row)),
        "canal_json": lambda: body(canal("INSERT", 3, [row])),
        "maxwell_json": lambda: body(maxwell("insert", 3, row)),
        "debezium_avro": lambda: container(envelope_schema(fields), [change("c", 3, None, row)]),
    }[file_format]()
    (files / "1").write_bytes(data)
    job = run(store, spec(description(str(files / "1"), columns=(), format=file_format)), files)
    assert (job.state, job.loaded) == (FINISHED, 1), job
    assert store.table("db.one").scan(["k", "v", "s"]).read_all().to_pylist() == [row]


def test_files_of_a_change_stream_are_loaded(store: Store, files: Path) -> None:
    """CS1: the operation, the sequence of a mapped column, and messages of another table."""
    row = {"k": 1, "v": "a", "s": 5}
    (files / "1.json").write_bytes(
        body(
            envelope("u", 4, after={**row, "v": "b", "s": 6}),
            envelope("c", 3, after=row),
            envelope("c", 3, after={**row, "k": 2}, table="other"),
        )
    )
    job = run(
        store,
        spec(
            description(
                str(files / "1.json"), columns=(), format="debezium_json", properties={"change_table": "t"}
            )
        ),
        files,
    )
    assert (job.state, job.loaded, job.filtered, job.unselected) == (FINISHED, 2, 0, 1)
    assert store.table("db.one").scan(["k", "v", "s"]).read_all().to_pylist() == [{**row, "v": "b", "s": 6}]
