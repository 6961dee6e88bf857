"""LOAD LABEL, SHOW LOAD and CANCEL LOAD as SQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from seqstore import InvalidInputError, LabelExistsError, NotFoundError, Store, StoreError
from seqstore.loaders.broker.job import COMMITTED, ENDED, FINISHED, LOADING, PENDING, LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.broker.statements import spec_of
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.sql import Session
from seqstore.store.sql.parse.load_jobs import LoadLabel
from seqstore.store.sql.session.statement_kind import parse

CREATE = (
    "CREATE TABLE {} (k BIGINT NOT NULL, v VARCHAR(10) NULL, s INT NULL) UNIQUE KEY (k) "
    "DISTRIBUTED BY HASH (k) PROPERTIES ('function_column.sequence_col' = 's')"
)
pytestmark = [pytest.mark.sql(CREATE.format(name)) for name in ("one", "two")]


def ask(session: Session, statement: str) -> list[dict[str, Any]]:
    (result,) = session.execute(statement)
    return [] if result.rows is None else result.rows.to_pylist()


def wait_for(session: Session, label: str) -> dict[str, Any]:
    """The job's line once it has ended: jobs tell nobody, SHOW LOAD is how one learns."""
    deadline = time.monotonic() + 200
    while True:
        (line,) = ask(session, f"SHOW LOAD WHERE LABEL = '{label}'")
        if line["State"] in ENDED:
            return line
        assert time.monotonic() < deadline, line
        time.sleep(0.05)


def test_a_statement_loads_several_tables_in_the_background(session: Session, tmp_path: Path) -> None:
    """B1, B2, B4"""
    (tmp_path / "files" / "a.csv").write_text("1,a,1\n2,b,1\nx,c,1\n")
    (tmp_path / "files" / "b.txt").write_text("7|z|3\n7|y|2\n")
    statement = f"""
        LOAD LABEL db.first (
            DATA INFILE ("{tmp_path}/files/a.csv") INTO TABLE one COLUMNS TERMINATED BY "," (k, t, s)
            SET (v = upper(t)) WHERE k < 9,
            DATA INFILE ("file://{tmp_path}/files/b.*") INTO TABLE two COLUMNS TERMINATED BY "|"
            FORMAT AS "csv" (k, v, s) ORDER BY s
        ) WITH LOCAL () PROPERTIES ("max_filter_ratio" = "0.5", "timeout" = "100") COMMENT "both"
    """
    (result,) = session.execute(statement)
    assert result.rows is None
    line = wait_for(session, "first")
    assert (line["State"], line["ErrorMsg"], line["Comment"], line["User"]) == (
        "FINISHED",
        None,
        "both",
        "root",
    )
    assert (
        line["EtlInfo"] == "unselected.rows=1; dpp.abnorm.ALL=0; dpp.norm.ALL=4"
    )  # NULL < 9 selects nothing
    assert ask(session, "SELECT k, v FROM one ORDER BY k") == [{"k": 1, "v": "A"}, {"k": 2, "v": "B"}]
    assert ask(session, "SELECT k, v FROM two") == [{"k": 7, "v": "z"}]
    with pytest.raises(LabelExistsError, match=r"Label \[first\] has already been used"):
        ask(session, statement)


def test_the_process_of_a_job_leaves_no_zombie(session: Session, tmp_path: Path) -> None:
    """Each statement left one as long as the server ran: of a job that ended, and of one that was refused."""
    this = psutil.Process()
    before = {child.pid for child in this.children()}
    (tmp_path / "files" / "a.csv").write_text("1,a,1\n")
    statement = f"""LOAD LABEL db.first (DATA INFILE ("{tmp_path}/files/a.csv") INTO TABLE one
        COLUMNS TERMINATED BY "," ORDER BY s) WITH LOCAL ()"""
    ask(session, statement)
    assert wait_for(session, "first")["State"] == "FINISHED"
    with pytest.raises(LabelExistsError):
        ask(session, statement)

    def left() -> list[psutil.Process]:
        return [child for child in this.children() if child.pid not in before]

    deadline = time.monotonic() + 100
    while left():
        assert time.monotonic() < deadline, left()
        time.sleep(0.05)


def test_a_job_without_rights_to_its_files_is_cancelled(session: Session, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("1,a,1\n")
    ask(session, f'LOAD LABEL db.no (DATA INFILE ("{tmp_path}/secret.csv") INTO TABLE one) WITH LOCAL ()')
    line = wait_for(session, "no")
    assert line["State"] == "CANCELLED"
    assert line["ErrorMsg"].startswith("type:LOAD_RUN_FAIL; msg:")
    assert "load_paths" in line["ErrorMsg"]
    assert ask(session, "SELECT count(*) AS n FROM one") == [{"n": 0}]


def test_show_load_filters_and_cuts(session: Session, tmp_path: Path) -> None:
    (tmp_path / "files" / "a.csv").write_text("1\ta\t1\n")
    for label in ("x_1", "x_2", "y"):
        ask(
            session,
            f'LOAD LABEL {label} (DATA INFILE ("{tmp_path}/files/a.csv") INTO TABLE one) WITH LOCAL ()',
        )
        wait_for(session, label)
    assert [line["Label"] for line in ask(session, "SHOW LOAD FROM db WHERE LABEL LIKE 'x%'")] == [
        "x_1",
        "x_2",
    ]
    assert [line["Label"] for line in ask(session, "SHOW LOAD LIMIT 1 OFFSET 1")] == ["x_2"]
    assert ask(session, "SHOW LOAD WHERE STATE = 'CANCELLED'") == []
    with pytest.raises(InvalidInputError, match="finished or cancelled"):
        ask(session, "CANCEL LOAD WHERE LABEL = 'y'")
    with pytest.raises(NotFoundError):
        ask(session, "CANCEL LOAD WHERE LABEL = 'nothing'")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            'LOAD LABEL a (DATA INFILE ("x") NEGATIVE INTO TABLE one) WITH LOCAL ()',
            "NEGATIVE is for aggregate tables",
        ),
        ('LOAD LABEL a (DATA INFILE ("x") INTO TABLE three) WITH LOCAL ()', "three"),
        ('LOAD LABEL a (DATA INFILE ("x") INTO TABLE one) WITH HDFS ("fs.defaultFS" = "y")', "WITH HDFS"),
        ('LOAD LABEL a (DATA INFILE ("x") INTO TABLE one) WITH LOCAL () PROPERTIES ("nope" = "1")', "nope"),
    ],
)
def test_what_cannot_run_is_refused_at_once(session: Session, statement: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        ask(session, statement)
    assert ask(session, "SHOW LOAD") == []


def test_s3_properties_become_part_of_the_uri() -> None:
    (statement,) = parse(
        'LOAD LABEL db.l (DATA INFILE ("s3://bucket/a/*.csv") INTO TABLE t) WITH S3 ("s3.endpoint" = '
        '"http://127.0.0.1:9", "s3.region" = "r", "s3.access_key" = "k/1", "s3.secret_key" = "s+2")'
    )
    assert isinstance(statement, LoadLabel)
    assert spec_of(statement, "db").descriptions[0].paths == (
        "s3://k%2F1:s%2B2@bucket/a/*.csv?endpoint_override=127.0.0.1%3A9&region=r&scheme=http",
    )


def test_b1_words_that_start_a_clause_may_be_columns() -> None:
    """B1: what stands behind them tells."""
    (statement,) = parse(
        'LOAD LABEL db.l (DATA INFILE ("/x") INTO TABLE t (comment, format, lines) SET (s = order + delete) '
        "PRECEDING FILTER comment = 'a' WHERE format <> comment AND lines IN (1, 2) AND s > set "
        'FORMAT AS "csv" DELETE ON delete = 1 ORDER BY partition) WITH LOCAL () COMMENT "c"'
    )
    assert isinstance(statement, LoadLabel)
    (description,) = spec_of(statement, "db").descriptions
    assert description.preceding_filter == "comment = 'a'"
    assert description.where == "format <> comment AND lines IN (1, 2) AND s > set"
    assert (description.format, description.delete_on, description.order_by) == (
        "csv",
        "delete = 1",
        "partition",
    )
    assert description.assignments == ("`s` = order + delete",)


@pytest.mark.parametrize("prefix", ["", "s3.", "AWS.", "AWS_"])
def test_s3_properties_have_several_prefixes(prefix: str) -> None:
    assert s3_paths("s3://b/x.csv", f'"{prefix}ENDPOINT" = "http://h:9", "{prefix}REGION" = "r"') == (
        "s3://b/x.csv?endpoint_override=h%3A9&region=r&scheme=http",
    )


def test_an_unknown_s3_property_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match=r"Unknown property: s3\.endpiont"):
        s3_paths("s3://b/x.csv", '"s3.endpiont" = "http://h:9"')


def test_other_storage_is_not_taken_for_s3() -> None:
    assert s3_paths("hdfs://n:8020/x.csv", '"username" = "u"') == ("hdfs://n:8020/x.csv",)


def s3_paths(path: str, properties: str) -> tuple[str, ...]:
    (statement,) = parse(f'LOAD LABEL db.l (DATA INFILE ("{path}") INTO TABLE t) WITH S3 ({properties})')
    assert isinstance(statement, LoadLabel)
    return spec_of(statement, "db").descriptions[0].paths


@pytest.fixture
def jobs(session: Session, tmp_path: Path) -> Iterator[LoadJobs]:
    """Jobs in four states that nobody runs."""
    with Store.open(tmp_path / "data") as store:
        made = LoadJobs(store.catalog)
        for label, state in (("d_1", FINISHED), ("d_2", LOADING), ("d_3", COMMITTED), ("d_4", PENDING)):
            spec = LoadSpec("db", label, (DataDescription("one", ("/x",)),))
            made.add(LoadJob(spec, state, this_process(), now_ms()))
        yield made


def cancelling(jobs: LoadJobs) -> list[str]:
    return [job.spec.label for job in jobs.all().values() if job.is_cancelling]


def test_a_pattern_cancels_what_can_still_be_cancelled(session: Session, jobs: LoadJobs) -> None:
    """B17"""
    ask(session, "CANCEL LOAD FROM db WHERE LABEL LIKE 'd_%'")
    assert cancelling(jobs) == ["d_2", "d_4"]


def test_cancel_load_keeps_to_the_state_it_names(session: Session, jobs: LoadJobs) -> None:
    ask(session, "CANCEL LOAD FROM db WHERE LABEL LIKE 'd_%' AND STATE = 'pending'")
    assert cancelling(jobs) == ["d_4"]


def test_a_job_in_another_state_is_not_the_one_to_cancel(session: Session, jobs: LoadJobs) -> None:
    with pytest.raises(NotFoundError, match=r"Load job does not exist: label \[d_2\]"):
        ask(session, "CANCEL LOAD FROM db WHERE LABEL = 'd_2' AND STATE = 'PENDING'")
    assert cancelling(jobs) == []


def test_a_committing_job_alone_is_not_cancelled(session: Session, jobs: LoadJobs) -> None:
    with pytest.raises(InvalidInputError, match="could not be cancelled while txn is committing"):
        ask(session, "CANCEL LOAD FROM db WHERE LABEL = 'd_3'")


@pytest.mark.parametrize(
    "name", ["max_filter_ratio", "timeout", "priority", "engine", "load_parallelism", "winner_test"]
)
def test_properties_of_a_job_are_refused_in_a_description(name: str) -> None:
    described = DataDescription("one", ("/x.csv",), properties={name: "1"})
    with pytest.raises(InvalidInputError, match=f"one: property {name} is one of the whole job"):
        LoadSpec("db", "l", (described,)).check()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"winner_test": "driver"}, "expected auto, executors or host, found 'driver'"),
        ({"winner_test": "executors"}, "executors need engine spark, found engine auto"),
    ],
    ids=["no such choice", "another engine"],
)
def test_winners_are_tested_by_the_host_or_by_executors_of_spark(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        LoadSpec("db", "l", (DataDescription("one", ("/x.csv",)),), given).check()


@pytest.mark.parametrize("name", ["partial_columns", "strip_outer_array"])
def test_a_flag_is_true_or_false(name: str) -> None:
    spec = LoadSpec("db", "l", (DataDescription("one", ("/x.json",)),), {name: "maybe"})
    with pytest.raises(InvalidInputError, match=f"Invalid {name} format. Must be bool type"):
        spec.check()
