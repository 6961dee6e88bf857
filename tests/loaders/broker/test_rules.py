"""Rules of broker load by their number, as SQL and as jobs."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from seqstore import AccessDeniedError, InvalidInputError, LabelExistsError, Store, StoreError
from seqstore.loaders.broker.file_task import FileTask
from seqstore.loaders.broker.files import InputFile, check_allowed, find_files, shown
from seqstore.loaders.broker.job import COMMITTED, FINISHED, LOADING, LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.pools import TRIES, Cancelled, run_locally
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.show import SHOW_COLUMNS, job_line
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.broker.statements import spec_of
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.store.catalog.job_record import CANCELLED
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import UnavailableError
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.sql import ServerContext, Session
from seqstore.store.sql.parse.load_jobs import LoadLabel
from seqstore.store.sql.session.statement_kind import parse

TABLES = """
CREATE TABLE plain (k BIGINT NOT NULL, v VARCHAR(10) NULL, n TINYINT NULL)
    UNIQUE KEY (k) DISTRIBUTED BY HASH (k)
    PROPERTIES ('enable_unique_key_skip_bitmap_column' = 'true');
CREATE TABLE timed (k BIGINT NOT NULL, v VARCHAR(10) NULL) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)
    PROPERTIES ('function_column.sequence_type' = 'bigint');
CREATE TABLE numbered (id BIGINT NOT NULL AUTO_INCREMENT, v VARCHAR(4) NULL) UNIQUE KEY (id)
    DISTRIBUTED BY HASH (id);
CREATE TABLE days (k BIGINT NOT NULL, day DATE) UNIQUE KEY (k, day)
    PARTITION BY RANGE (day) (PARTITION may VALUES [('2024-05-01'), ('2024-06-01')),
                              PARTITION june VALUES [('2024-06-01'), ('2024-07-01')))
    DISTRIBUTED BY HASH (k);
CREATE TABLE grouped (k BIGINT NOT NULL, a INT NULL, sa INT NULL, b INT NULL, sb INT NULL) UNIQUE KEY (k)
    DISTRIBUTED BY HASH (k) PROPERTIES ('sequence_mapping.sa' = 'a', 'sequence_mapping.sb' = 'b')
"""


pytestmark = [pytest.mark.settings(auto_compaction=0), pytest.mark.sql(TABLES)]


def load(store: Store, files: Path, table: str, label: str = "job", **given: Any) -> LoadJob:
    """Runs a job over all CSV files of the files, unless `given` says which."""
    properties = given.pop("properties", {})
    paths = given.pop("paths", (f"{files}/*.csv",))
    described = DataDescription(table, paths, **{"column_separator": ",", **given})
    spec = LoadSpec("db", label, (described,), {"load_parallelism": "1", **properties})
    return BrokerLoad(
        store, spec, [str(files)], on_progress=given.pop("on_progress", lambda job: None)
    ).run()[1]


def job_of(store: Store, files: Path, statement: str) -> LoadJob:
    """Runs LOAD LABEL here."""
    (parsed,) = parse(statement)
    assert isinstance(parsed, LoadLabel)
    return BrokerLoad(store, spec_of(parsed, "db"), [str(files)]).run()[1]


def ask(store: Store, statement: str) -> list[tuple[Any, ...]]:
    (result,) = Session(store, server=ServerContext(load_jobs=StoreLoadJobs(store)), database="db").execute(
        statement
    )
    return [] if result.rows is None else [tuple(row.values()) for row in result.rows.to_pylist()]


def test_b1_partitions_named_reject_rows_of_others(store: Store, files: Path) -> None:
    (files / "a.csv").write_text("1,2024-05-03\n2,2024-06-03\n")
    job = load(store, files, "days", partitions=("may",), properties={"max_filter_ratio": "0.5"})
    assert (job.state, job.loaded, job.filtered) == (FINISHED, 1, 1)
    assert "is not in partitions may" in Path(job.url).read_text()
    assert ask(store, "SELECT k FROM days") == [(1,)]
    refused = load(store, files, "plain", "other", partitions=("may",), columns=("k", "v"))
    assert "unknown partition 'may'" in refused.error


def test_b1_set_where_preceding_filter_and_path_columns_as_sql(store: Store, files: Path) -> None:
    (files / "d=7").mkdir()
    (files / "d=7" / "x.csv").write_text("1;a\n2;b\n3;skip\n4;d\n")
    job = job_of(
        store,
        files,
        f"""LOAD LABEL db.l (DATA INFILE ("{files}/*/x.csv") INTO TABLE plain COLUMNS TERMINATED BY ";"
        (k, t) COLUMNS FROM PATH AS (d) SET (v = upper(t), n = d) PRECEDING FILTER t != 'skip' WHERE k < 4)
        WITH LOCAL () PROPERTIES ("load_parallelism" = "1")""",
    )
    assert (job.state, job.loaded, job.unselected) == (FINISHED, 2, 2)
    assert ask(store, "SELECT k, v, n FROM plain ORDER BY k") == [(1, "A", 7), (2, "B", 7)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"merge_type": "MERGE"}, "Excepted DELETE ON clause when merge type is MERGE"),
        ({"delete_on": "n = 1"}, "Not support DELETE ON clause when merge type is not MERGE"),
    ],
)
def test_b1_delete_on_goes_with_merge(store: Store, files: Path, given: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        load(store, files, "plain", **given)


def test_b1_delete_loads_take_rows_away(store: Store, files: Path) -> None:
    (files / "a.csv").write_text("1,a,1\n2,b,1\n")
    load(store, files, "plain", "first")
    (files / "a.csv").write_text("1\n")
    job = load(store, files, "plain", merge_type="DELETE", columns=("k",))
    assert job.error == ""
    assert ask(store, "SELECT k FROM plain") == [(2,)]


@pytest.mark.parametrize("suffix", ["parquet", "orc", "json"])
@pytest.mark.parametrize("name", ["n", "N"])
def test_b7_the_path_beats_a_column_of_the_file(store: Store, files: Path, suffix: str, name: str) -> None:
    """In the row that is stored, and in SET, WHERE and PRECEDING FILTER."""
    (files / "n=7").mkdir()
    path = files / "n=7" / f"x.{suffix}"
    rows = pa.table({name: [3], "k": [1]})
    if suffix == "json":
        path.write_text(f'{{"{name}": 3, "k": 1}}\n')
    elif suffix == "orc":
        orc.write_table(rows, str(path))
    else:
        pq.write_table(rows, path)
    given: dict[str, Any] = {
        "paths": (str(path),),
        "column_separator": "",
        "columns_from_path": ("n",),
        "where": "n = 7",
    }
    job = load(
        store, files, "plain", assignments=("v = concat('p', n)",), preceding_filter="n = '7'", **given
    )
    assert (job.error, job.loaded, job.unselected) == ("", 1, 0)
    assert ask(store, "SELECT k, v, n FROM plain") == [(1, "p7", 7)]
    if suffix != "json":  # its list says where a key goes, not what the file has
        load(store, files, "plain", "listed", columns=("k", "n"), **given)
        assert ask(store, "SELECT k, v, n FROM plain") == [(1, None, 7)]


def test_b7_a_file_can_have_nothing_but_what_its_path_tells(store: Store, files: Path) -> None:
    (files / "k=7").mkdir()
    pq.write_table(pa.table({"k": [1, 2, 3]}), files / "k=7" / "x.parquet")
    paths = (f"{files}/k=7/x.parquet",)
    job = load(store, files, "plain", paths=paths, column_separator="", columns_from_path=("k",))
    assert (job.error, job.loaded) == ("", 3)
    assert ask(store, "SELECT k FROM plain") == [(7,)]


@pytest.mark.parametrize(
    ("suffix", "properties"), [("csv", {}), ("json", {"jsonpaths": '["$.k", "$.n"]'})], ids=["csv", "json"]
)
def test_b7_a_field_that_goes_by_its_position_is_not_of_the_path(
    store: Store, files: Path, suffix: str, properties: dict[str, str]
) -> None:
    paths = (f"{files}/N=7/x.{suffix}",)
    message = "plain: column 'n' is read from the path; remove it from the list"
    with pytest.raises(InvalidInputError, match=message):
        load(
            store,
            files,
            "plain",
            paths=paths,
            columns=("k", "n"),
            columns_from_path=("N",),
            properties=properties,
        )


def test_b8_format_as_beats_the_suffix(store: Store, files: Path) -> None:
    (files / "rows.txt").write_text('[{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]')
    given: dict[str, Any] = {"paths": (f"{files}/rows.txt",), "format": "json"}
    job = load(store, files, "plain", properties={"strip_outer_array": "true"}, **given)
    assert (job.state, job.loaded) == (FINISHED, 2)
    orc.write_table(pa.table({"k": [3], "v": ["c"]}), str(files / "rows.bin"))
    load(store, files, "plain", "orc", paths=(f"{files}/rows.bin",), format="orc", columns=("k", "v"))
    assert ask(store, "SELECT k, v FROM plain ORDER BY k") == [(1, "a"), (2, "b"), (3, "c")]


def test_b9_strict_mode_filters_what_else_becomes_null(store: Store, files: Path) -> None:
    (files / "a.csv").write_text("1,a,300\n")
    assert load(store, files, "plain", "loose").loaded == 1
    job = load(store, files, "plain", properties={"strict_mode": "true"})
    assert (job.state, job.filtered) == (CANCELLED, 1)
    assert ask(store, "SELECT k, n FROM plain") == [(1, None)]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_filter_ratio", "", "a number from 0 to 1"),
        ("max_filter_ratio", " ", "a number from 0 to 1"),
        ("timeout", "", "an integer from 1 to 259200"),
        ("timeout", "\u00b2", "an integer from 1 to 259200"),
        ("priority", "", "one of HIGH, NORMAL, LOW"),
        ("strict_mode", "", "true or false"),
        ("enclose", "", "one character"),
        ("jsonpaths", "", "a list of JSON paths"),
        ("exec_mem_limit", "", "a value"),
    ],
)
def test_b9_an_empty_property_is_refused_by_its_name(
    store: Store, files: Path, name: str, value: str, expected: str
) -> None:
    """A number that is none, too: it would stay in the record and be read with every SHOW LOAD."""
    with pytest.raises(InvalidInputError, match=f"^{name}: expected {expected}, found '{value}'$"):
        load(store, files, "plain", properties={name: value})
    assert ask(store, "SHOW LOAD") == []


def test_b12_show_load_shows_a_job_recorded_with_empty_properties(store: Store, files: Path) -> None:
    empty = dict.fromkeys(("max_filter_ratio", "timeout", "priority", "load_parallelism"), "")
    spec = LoadSpec("db", "old", (), empty)
    LoadJobs(store.catalog).add(LoadJob(spec, CANCELLED, this_process(), now_ms(), finished_ms=now_ms()))
    (files / "a.csv").write_text("1,a,1\n")
    assert load(store, files, "plain").state == FINISHED
    shown = ask(store, "SHOW LOAD")
    assert [line[SHOW_COLUMNS.index("Label")] for line in shown] == ["old", "job"]
    assert shown[0][SHOW_COLUMNS.index("TaskInfo")] == (
        "cluster:N/A; timeout(s):14400; max_filter_ratio:0.0; priority:NORMAL"
    )


def test_b9_a_job_that_takes_longer_than_its_timeout_is_cancelled(store: Store, files: Path) -> None:
    """B14: TIMEOUT. Two others run, so it waits."""
    jobs = LoadJobs(store.catalog)
    for _ in range(2):
        jobs.add(LoadJob(LoadSpec("db", "other", ()), LOADING, this_process(), now_ms()))
    (files / "a.csv").write_text("1,a,1\n")
    job = load(store, files, "plain", properties={"timeout": "1"})
    assert (job.state, job.error) == (
        CANCELLED,
        "type:TIMEOUT; msg:the load ran longer than its timeout of 1 s",
    )
    assert job_line(1, job)[SHOW_COLUMNS.index("EtlInfo")] is None  # B13: it has not counted


def test_b10_separators_that_cannot_be_seen_are_written_as_hex(store: Store, files: Path) -> None:
    (files / "a.csv").write_bytes(b"1\x01a\n")
    statement = f"""LOAD LABEL db.l (DATA INFILE ("{files}/a.csv") INTO TABLE plain
        COLUMNS TERMINATED BY "\\\\x01" (k, v)) WITH LOCAL ()"""
    assert job_of(store, files, statement).error == ""
    assert ask(store, "SELECT v FROM plain") == [("a",)]


def test_b11_order_by_and_the_table_must_agree(store: Store, files: Path) -> None:
    (files / "a.csv").write_text("1,a\n")
    job = load(store, files, "plain", columns=("k", "v"), order_by="k")
    assert "There is no sequence column in the table plain" in job.error
    job = load(store, files, "timed", columns=("k", "v"))
    assert "need to specify the sequence column" in job.error


def test_b12_show_load_orders_and_cuts(store: Store, files: Path) -> None:
    (files / "a.csv").write_text("1,a,1\n")
    for label in ("b", "a", "c"):
        load(store, files, "plain", label)
    position = SHOW_COLUMNS.index("Label")

    def labels(rest: str) -> list[str]:
        return [line[position] for line in ask(store, f"SHOW LOAD {rest}")]

    assert labels("ORDER BY Label") == ["a", "b", "c"]
    assert labels("ORDER BY State DESC, JobId DESC LIMIT 1, 1") == ["a"]
    assert labels("FROM db WHERE LABEL LIKE '%' AND STATE = 'FINISHED' LIMIT 1 OFFSET 2") == ["c"]
    with pytest.raises(InvalidInputError, match="ORDER BY Nope: SHOW LOAD has no such column"):
        labels("ORDER BY Nope")


def test_b17_a_job_that_commits_cannot_be_cancelled(store: Store, files: Path) -> None:
    """Whichever comes first decides, in one step: no job is told to end and finishes."""
    jobs = LoadJobs(store.catalog)
    refused: list[str] = []

    def cancel(job: LoadJob) -> None:
        if job.state == COMMITTED:
            with pytest.raises(InvalidInputError) as caught:
                jobs.cancel("db", "job")
            refused.append(caught.value.message)

    (files / "a.csv").write_text("1,a,1\n")
    described = DataDescription("plain", (f"{files}/*.csv",), column_separator=",")
    load = BrokerLoad(store, LoadSpec("db", "job", (described,)), [str(files)], on_progress=cancel)
    assert load.run()[1].state == FINISHED
    assert refused == ["Job could not be cancelled while txn is committing"]


def test_b17_a_job_of_one_file_is_cancelled_while_it_reads(store: Store, files: Path) -> None:
    (files / "a.csv").write_text("".join(f"{k},a,1\n" for k in range(1_500_000)))
    jobs = LoadJobs(store.catalog)
    asked = threading.Event()

    def cancel(job: LoadJob) -> None:
        if job.files and not asked.is_set():
            asked.set()
            jobs.cancel("db", "job")

    described = DataDescription("plain", (f"{files}/*.csv",), column_separator=",")
    load = BrokerLoad(store, LoadSpec("db", "job", (described,)), [str(files)], on_progress=cancel)
    job = load.run()[1]
    assert (job.state, job.error) == (CANCELLED, "type:USER_CANCEL; msg:user cancel")
    assert job.bytes_done < job.bytes_total


class Endless(FileTask):
    """A task that reads until it is told to end; who is not told leaves a file."""

    def run(self, on_read: Any = None) -> Any:
        deadline = time.monotonic() + 200  # where it is not told
        while time.monotonic() < deadline:
            on_read(1)
            time.sleep(0.01)
        Path(self.file.uri).touch()


def test_b17_processes_that_read_end_at_their_next_batch(tmp_path: Path) -> None:
    """Those that wait for a process do not begin."""
    nothing: Any = None
    names = [tmp_path / str(number) for number in range(4)]
    tasks = [Endless(0, InputFile(str(name), 1), nothing, nothing, nothing, nothing) for name in names]

    def watch(files_done: int, bytes_done: int) -> None:
        if bytes_done:
            raise Cancelled("user cancel")

    with pytest.raises(Cancelled, match="user cancel"):
        run_locally(tasks, 2, watch)
    assert list(tmp_path.iterdir()) == []


def test_b17_a_file_that_is_read_as_a_whole_is_not_read_to_its_end(store: Store, files: Path) -> None:
    path = files / "a.parquet"
    pq.write_table(pa.table({"k": np.random.default_rng(1).integers(0, 2**62, 2_000_000)}), path)
    description = DataDescription("plain", (str(path),))
    found = find_files(description, [str(files)])
    (task,) = BrokerLoad(store, LoadSpec("db", "job", (description,)), [str(files)]).tasks([found])
    read: list[int] = []

    def cancel(count: int) -> None:
        read.append(count)
        raise Cancelled("user cancel")

    with pytest.raises(Cancelled):
        task.run(cancel)
    assert len(read) == 1
    assert read[0] < path.stat().st_size


class Flaky(FileTask):
    """A task whose file can be read the third time."""

    tries = 0

    def run(self, on_read: Any = None) -> Any:
        Flaky.tries += 1
        if Flaky.tries < self.description:
            raise UnavailableError("not now")
        return "read"


def test_b18_a_file_that_cannot_be_read_now_is_tried_again() -> None:
    nothing: Any = None
    for last, is_read in ((TRIES, True), (TRIES + 1, False)):
        Flaky.tries = 0
        task = Flaky(last, InputFile("x", 1), nothing, nothing, nothing, nothing)
        if is_read:
            results: list[Any] = run_locally([task], 1, lambda files, count: None)
            assert results == ["read"]
        else:
            with pytest.raises(UnavailableError):
                run_locally([task], 1, lambda files, count: None)
        assert Flaky.tries == TRIES


@pytest.mark.parametrize("statement", ["DROP TABLE db.plain", "DROP DATABASE db FORCE"])
def test_b19_dropping_the_table_cancels_the_job(store: Store, files: Path, statement: str) -> None:
    (files / "a.csv").write_text("1,a,1\n")

    def drop(job: LoadJob) -> None:
        if job.files and job.state == LOADING and not job.files_done:
            list(Session(store).execute(statement))

    described = DataDescription("plain", (f"{files}/*.csv",), column_separator=",")
    load = BrokerLoad(store, LoadSpec("db", "job", (described,)), [str(files)], on_progress=drop)
    job = load.run()[1]
    assert job.state == CANCELLED
    assert job.error.startswith("type:LOAD_RUN_FAIL; msg:")


def test_flexible_updates_write_the_cells_a_row_has(store: Store, files: Path) -> None:
    """F1, F4: the merge type is not said, so it is not refused."""
    (files / "a.csv").write_text("1,a,1\n2,b,2\n")
    load(store, files, "plain", "first")
    (files / "b.json").write_text('{"k": 1, "v": "x"}\n{"k": 2, "n": 9}\n{"v": "no key"}\n')
    properties = {"unique_key_update_mode": "UPDATE_FLEXIBLE_COLUMNS", "max_filter_ratio": "0.5"}
    job = load(store, files, "plain", paths=(f"{files}/b.json",), column_separator="", properties=properties)
    assert (job.state, job.error, job.loaded, job.filtered) == (FINISHED, "", 2, 1)
    assert f"line 3: Reason: {files}/b.json: " in Path(job.url).read_text()
    assert ask(store, "SELECT k, v, n FROM plain ORDER BY k") == [(1, "x", 1), (2, "b", 9)]


def test_rows_that_only_the_committer_can_write_are_counted_and_named_too(store: Store, files: Path) -> None:
    """Values of AUTO_INCREMENT, and rows of column groups, each with a bad row."""
    (files / "a.csv").write_text("a\nb\ntoo long\n")
    job = load(store, files, "numbered", columns=("v",), properties={"max_filter_ratio": "0.5"})
    assert (job.state, job.loaded, job.filtered, job.error) == (FINISHED, 2, 1, "")
    assert f"line 3: Reason: {files}/a.csv: " in Path(job.url).read_text()
    assert sorted(ask(store, "SELECT v FROM numbered")) == [("a",), ("b",)]
    (files / "a.csv").write_text("1,10,5,\\N,\\N\n1,\\N,\\N,20,3\n1,99,4,99,2\n")
    job = load(store, files, "grouped", "groups", columns=("k", "a", "sa", "b", "sb"))
    assert (job.state, job.error) == (FINISHED, "")
    assert ask(store, "SELECT k, a, b FROM grouped") == [(1, 10, 20)]


def test_a_load_that_selects_nothing_takes_its_label_all_the_same(store: Store, files: Path) -> None:
    (files / "a.csv").write_text("1,a,1\n")
    job = load(store, files, "plain", where="k > 9")
    assert (job.state, job.loaded, job.unselected) == (FINISHED, 0, 1)
    with pytest.raises(LabelExistsError):
        load(store, files, "plain")


@pytest.mark.parametrize(
    ("uri", "allowed", "is_allowed"),
    [
        ("s3://key:secret@bucket/in/a.csv", "s3://bucket/in", True),
        ("s3://bucket/inside/a.csv", "s3://bucket/in", False),
        ("s3://key:secret@bucket/in/a.csv?endpoint_override=h:1", "s3://bucket/in", False),
        ("s3://bucket/in/a.csv?region=r&endpoint_override=h:1", "s3://bucket?endpoint_override=h:1", True),
        ("file:///in/../etc/passwd", "/in", False),
        ("file:///in/a.csv", "file:///in", True),
        ("/in/a.csv", "s3://bucket", False),
    ],
)
def test_what_may_be_read_is_decided_by_where_it_really_is(uri: str, allowed: str, is_allowed: bool) -> None:
    """Keys of a URI do not matter, the server that is asked does."""
    if is_allowed:
        check_allowed(uri, [allowed])
        return
    with pytest.raises(AccessDeniedError) as caught:
        check_allowed(uri, [allowed])
    assert "secret" not in caught.value.message


def test_dots_in_a_uri_are_refused_and_its_keys_never_shown() -> None:
    with pytest.raises(StoreError, match=r"'\.\.' cannot be in the URI"):
        check_allowed("s3://k:s@bucket/in/../out/a", ["s3://bucket/in"])
    assert shown("s3://k:s%2F@bucket/a?.csv?endpoint_override=h:1") == "s3://bucket/a?.csv"
    assert replace(InputFile("/a@b.csv", 1), size=2).name == "/a@b.csv"
