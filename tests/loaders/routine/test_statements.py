"""Routine loads as SQL: made, run, paused, resumed, altered, stopped, shown."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqstore import AccessDeniedError, AlreadyExistsError, InvalidInputError, NotFoundError, Store
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.job_runner import JobRunner
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.open_source import open_source
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.store.sql import ServerContext, Session
from tests.support.statements import dicts

TABLE = """
CREATE TABLE t (k BIGINT NOT NULL, v VARCHAR(10) NULL, s INT NULL) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)
PROPERTIES ('function_column.sequence_col' = 's')
"""
pytestmark = pytest.mark.sql(TABLE)


def make(session: Session, folder: Path, clauses: str = "", properties: str = "", name: str = "job") -> None:
    properties = f"PROPERTIES ({properties})" if properties else ""
    dicts(
        session,
        f'CREATE ROUTINE LOAD {name} ON t {clauses} {properties} FROM FILES ("path" = "{folder}/in/*.json")',
    )


def drain(store: Store) -> RoutineJob:
    (job,) = RoutineRunner(store).drain().values()
    return job


def put(folder: Path, name: str, *rows: Any) -> None:
    """A file of rows, put in place whole."""
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    (folder / name).write_text(text)
    (folder / name).rename(folder / "in" / name)


def line(session: Session, name: str = "job") -> dict[str, Any]:
    (found,) = dicts(session, f"SHOW ALL ROUTINE LOAD FOR {name}")
    return found


def rows(session: Session) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in dicts(session, "SELECT k, v, s FROM t ORDER BY k")]


def test_a_round_looks_only_for_names_of_files_that_are_there(
    store: Store, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the names of all files that the job had read: 100,000 of them took a second, twice a second."""
    make(session, tmp_path)
    for number in range(5):
        put(tmp_path, f"{number}.json", {"k": number, "v": "a", "s": 1})
    assert drain(store).progress == {"0": 5}
    for number in range(4):
        (tmp_path / "in" / f"{number}.json").unlink()
    asked: list[set[str]] = []
    marked = RoutineJobs.marked

    def noted(self: RoutineJobs, job_id: int, names: Collection[str]) -> set[str]:
        asked.append({Path(name).name for name in names})
        return marked(self, job_id, names)

    monkeypatch.setattr(RoutineJobs, "marked", noted)
    monkeypatch.setattr(RoutineJobs, "marks", lambda *_: pytest.fail("it reads the names of all files"))
    put(tmp_path, "5.json", {"k": 5, "v": "a", "s": 1})
    assert drain(store).progress == {"0": 6}
    assert asked[0] == {"4.json", "5.json"}
    assert all(names <= {"5.json"} for names in asked[1:]), "a name that was found once is remembered"
    put(tmp_path, "3.json", {"k": 99, "v": "again", "s": 1})
    assert drain(store).progress == {"0": 6}, "it was read under this name"
    assert [key for key, *_ in rows(session)] == [0, 1, 2, 3, 4, 5]


def test_files_are_loaded_once_in_the_order_of_their_names(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R4, R10, R11, R32, R38"""
    make(session, tmp_path)
    assert line(session)["State"] == "NEED_SCHEDULE"
    put(tmp_path, "b.json", {"k": 1, "v": "b", "s": 5}, {"k": 2, "v": "b", "s": 1})
    put(tmp_path, "a.json", {"k": 1, "v": "a", "s": 5}, {"k": 2, "v": "a", "s": 2})
    drain(store)
    assert rows(session) == [(1, "b", 5), (2, "a", 2)], "the later file wins a tie, never the smaller one"
    put(tmp_path, "0.json", {"k": 3, "v": "0", "s": 1})  # before all others by name, but new
    drain(store)
    drain(store)
    found = line(session)
    assert rows(session)[2:] == [(3, "0", 1)]
    assert (found["Progress"], found["Lag"]) == ('{"0": "2"}', '{"0": 0}')
    statistic = json.loads(found["Statistic"])
    assert {name: statistic[name] for name in ("loadedRows", "totalRows", "committedTaskNum")} == {
        "loadedRows": 5,
        "totalRows": 5,
        "committedTaskNum": 2,
    }


def test_clauses_map_filter_and_delete(store: Store, session: Session, tmp_path: Path) -> None:
    """R1, R16: rows that WHERE removes are no errors."""
    clauses = (
        "WITH MERGE COLUMNS(k, t, s, op, v = upper(t)), PRECEDING FILTER k <> 9, WHERE k < 8, "
        "DELETE ON op = 'd', ORDER BY s"
    )
    make(session, tmp_path, clauses, "'format' = 'json'")
    one = {"t": "x", "s": 1, "op": "u"}
    put(tmp_path, "1.json", *({"k": k, **one} for k in (1, 2, 8, 9)))
    put(tmp_path, "2.json", {"k": 1, "t": "x", "s": 2, "op": "d"}, {"k": 2, "t": "x", "s": 0, "op": "d"})
    job = drain(store)
    assert rows(session) == [(2, "X", 1)]
    assert (job.state, job.statistic.error_rows, job.statistic.unselected_rows) == ("NEED_SCHEDULE", 0, 2)


def test_a_batch_of_bad_rows_moves_on_and_what_breaks_the_budget_is_kept(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R15, R16, R17, R33, R34"""
    make(session, tmp_path, properties="'max_error_number' = '2'")
    put(tmp_path, "1.json", {"k": "x", "v": "a", "s": 1}, {"k": "y", "v": "a", "s": 1})
    job = drain(store)
    assert (job.state, dict(job.progress), job.statistic.error_rows) == ("NEED_SCHEDULE", {"0": 1}, 2)
    put(tmp_path, "2.json", {"k": "x", "v": "a", "s": 1}, {"k": 1, "v": "a", "s": 1})
    drain(store)
    found = line(session)
    assert rows(session) == [(1, "a", 1)]
    assert found["State"] == "PAUSED"
    assert found["ReasonOfStateChanged"] == (
        "current error rows is more than max_error_number or the max_filter_ratio is more than the value set"
    )
    assert found["Progress"] == '{"0": "1"}'
    assert "2.json" in Path(found["ErrorLogUrls"].split(", ")[-1]).read_text()
    put(tmp_path, "3.json", {"k": 3, "v": "a", "s": 1})
    assert drain(store).state == "PAUSED", "too many errors are no pause that ends by itself"
    dicts(session, "RESUME ROUTINE LOAD FOR job")
    assert drain(store).statistic.error_rows_after_resumed == 0
    assert rows(session) == [(1, "a", 1), (3, "a", 1)]
    assert line(session)["ReasonOfStateChanged"] == ""


def test_states_and_their_illegal_transitions(store: Store, session: Session, tmp_path: Path) -> None:
    """R4, R5, R6, R7"""
    make(session, tmp_path)
    dicts(session, "RESUME ROUTINE LOAD FOR job")
    assert line(session)["State"] == "NEED_SCHEDULE", "a job that is not paused is scheduled anew"
    dicts(session, "PAUSE ROUTINE LOAD FOR db.job")
    assert line(session)["PauseTime"] is not None
    with pytest.raises(InvalidInputError, match="Could not transform PAUSED to PAUSED"):
        dicts(session, "PAUSE ROUTINE LOAD FOR job")
    put(tmp_path, "1.json", {"k": 1, "v": "a", "s": 1})
    assert (drain(store).state, rows(session)) == ("PAUSED", [])
    dicts(session, "RESUME ALL ROUTINE LOAD")
    assert (drain(store).state, rows(session)) == ("NEED_SCHEDULE", [(1, "a", 1)])
    dicts(session, "PAUSE ALL ROUTINE LOAD")
    assert dicts(session, "SHOW ROUTINE LOAD TASK WHERE JobName = 'job'") == []
    dicts(session, "STOP ROUTINE LOAD FOR job")
    for action, state in (("PAUSE", "PAUSED"), ("RESUME", "NEED_SCHEDULE"), ("STOP", "STOPPED")):
        with pytest.raises(InvalidInputError, match=f"Could not transform STOPPED to {state}"):
            dicts(session, f"{action} ROUTINE LOAD FOR job")
    assert dicts(session, "SHOW ROUTINE LOAD") == []
    assert line(session)["EndTime"] is not None
    with pytest.raises(NotFoundError, match="no"):
        dicts(session, "STOP ROUTINE LOAD FOR other")


def test_a_name_is_free_again_when_its_job_has_ended(session: Session, tmp_path: Path) -> None:
    """R2"""
    make(session, tmp_path)
    with pytest.raises(AlreadyExistsError, match="Name job already used in db db"):
        make(session, tmp_path)
    dicts(session, "STOP ROUTINE LOAD FOR job")
    make(session, tmp_path)
    assert len(dicts(session, "SHOW ALL ROUTINE LOAD FOR job")) == 2
    for name in ("j" * 65, "`a b`", "`1a`"):
        with pytest.raises(InvalidInputError, match="Incorrect job name"):
            make(session, tmp_path, name=name)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("no_such", "1", "no_such is invalid property"),
        ("desired_concurrent_number", "0", "desired_concurrent_number must be greater than 0"),
        ("max_error_number", "-1", "max_error_number should >= 0"),
        ("max_filter_ratio", "1.5", "max_filter_ratio should between 0 and 1"),
        ("max_batch_interval", "0", "max_batch_interval should >= 1"),
        ("max_batch_rows", "199999", "max_batch_rows should > 200000"),
        ("max_batch_size", "1000", "max_batch_size should between 100MB and 10GB"),
        ("strict_mode", "maybe", "strict_mode should be a boolean"),
        (
            "unique_key_update_mode",
            "SOME",
            r"unique_key_update_mode should be one of \{'UPSERT', 'UPDATE_FIXED_COLUMNS', "
            r"'UPDATE_FLEXIBLE_COLUMNS'\}, but found SOME",
        ),
        (
            "partial_update_new_key_behavior",
            "ERROR",
            "partial_update_new_key_behavior can only be set when partial update is enabled",
        ),
        ("exec_mem_limit", "0", "exec_mem_limit must be greater than 0"),
        ("send_batch_parallelism", "0", "send_batch_parallelism must be greater than 0"),
        ("load_to_single_tablet", "2", "load_to_single_tablet should be a boolean"),
    ],
)
def test_properties_are_checked(
    session: Session, tmp_path: Path, name: str, value: str, message: str
) -> None:
    """R20, R21, R22, P13"""
    with pytest.raises(InvalidInputError, match=f"^{message}$"):
        make(session, tmp_path, properties=f"'{name}' = '{value}'")
    assert dicts(session, "SHOW ALL ROUTINE LOAD") == []


@pytest.mark.parametrize(
    ("clauses", "properties", "message"),
    [
        ("", "'partial_update_new_key_behavior' = 'x'", r"one of \{'APPEND', 'ERROR'\}, but found X$"),
        ("", "'format' = 'csv'", "update only supports JSON format, but found: csv$"),
        ("", "'format' = 'json', 'fuzzy_parse' = 'true'", "update does not support fuzzy_parse$"),
        ("", "'format' = 'json', 'jsonpaths' = '[\"$.k\"]'", "update does not support jsonpaths$"),
        ("COLUMNS(k)", "'format' = 'json'", "update does not support COLUMNS specification$"),
        ("WHERE k > 1", "'format' = 'json'", "update does not support WHERE$"),
    ],
)
def test_a_flexible_update_is_checked(
    session: Session, tmp_path: Path, clauses: str, properties: str, message: str
) -> None:
    """F27, P12"""
    dicts(session, 'ALTER TABLE t ENABLE FEATURE "UPDATE_FLEXIBLE_COLUMNS"')
    with pytest.raises(InvalidInputError, match=message):
        make(
            session, tmp_path, clauses, f"'unique_key_update_mode' = 'UPDATE_FLEXIBLE_COLUMNS', {properties}"
        )


def test_limits_themselves_are_accepted(session: Session, tmp_path: Path) -> None:
    """R18, R20"""
    make(session, tmp_path, properties="'max_batch_rows' = '200000', 'max_batch_size' = '104857600'")
    found = json.loads(line(session)["JobProperties"])
    assert (found["max_batch_rows"], found["max_batch_interval"]) == ("200000", "60")


def test_what_is_not_there_is_refused_by_name(session: Session, tmp_path: Path) -> None:
    """R24, R25"""
    path = f'FROM FILES ("path" = "{tmp_path}/in/*.json")'
    with pytest.raises(NotFoundError, match="nothing"):
        dicts(session, f"CREATE ROUTINE LOAD job ON nothing {path}")
    with pytest.raises(AccessDeniedError, match="load_paths"):
        dicts(session, 'CREATE ROUTINE LOAD job ON t FROM FILES ("path" = "/etc/*.json")')
    with pytest.raises(InvalidInputError, match="kafka_topic is a required property"):
        dicts(session, 'CREATE ROUTINE LOAD job ON t FROM KAFKA ("kafka_broker_list" = "b:9092")')
    kafka = '"kafka_broker_list" = "b:9092", "kafka_topic" = "x", "property.ssl.ca.location" = "FILE:ca.pem"'
    with pytest.raises(InvalidInputError, match=r"File ca\.pem does not exist in db \d+ with catalog: kafka"):
        dicts(session, f"CREATE ROUTINE LOAD job ON t FROM KAFKA ({kafka})")


def test_only_a_paused_job_is_altered(store: Store, session: Session, tmp_path: Path) -> None:
    """R29"""
    make(session, tmp_path)
    alter = "ALTER ROUTINE LOAD FOR job PROPERTIES ('{}' = '{}')"
    with pytest.raises(InvalidInputError, match="Only supports modification of PAUSED jobs"):
        dicts(session, alter.format("max_error_number", 1))
    dicts(session, "PAUSE ROUTINE LOAD FOR job")
    with pytest.raises(InvalidInputError, match="format is invalid property"):
        dicts(session, alter.format("format", "csv"))
    with pytest.raises(InvalidInputError, match="max_error_number should >= 0"):
        dicts(session, alter.format("max_error_number", -1))
    dicts(session, alter.format("max_error_number", 1))
    dicts(session, "RESUME ROUTINE LOAD FOR job")
    put(tmp_path, "1.json", {"k": "x", "v": "a", "s": 1})
    assert drain(store).state == "NEED_SCHEDULE", "one bad row is within the altered budget"


def test_a_job_of_a_table_that_was_dropped_is_cancelled(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R8, R33"""
    make(session, tmp_path)
    dicts(session, "DROP TABLE t")
    drain(store)
    found = line(session)
    assert (found["State"], found["ReasonOfStateChanged"]) == ("CANCELLED", "table does not exist")


def test_a_job_of_a_database_that_was_dropped_is_cancelled(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R8"""
    make(session, tmp_path)
    dicts(session, "DROP DATABASE db FORCE")
    (job,) = RoutineRunner(store).drain().values()
    assert (job.state, job.reason) == ("CANCELLED", "database db does not exist")


def test_a_delete_condition_belongs_to_merge(session: Session, tmp_path: Path) -> None:
    """R23"""
    with pytest.raises(InvalidInputError, match="DELETE ON clause when merge type is not MERGE"):
        make(session, tmp_path, "DELETE ON k = 1")
    with pytest.raises(InvalidInputError, match=r"Excepted DELETE ON clause when merge type is MERGE\."):
        make(session, tmp_path, "WITH MERGE")


def test_as_many_tasks_run_at_once_as_there_are_partitions(session: Session, tmp_path: Path) -> None:
    """R9, R17, R18, R19: the newest defaults"""
    make(session, tmp_path)
    found = json.loads(line(session)["JobProperties"])
    defaults = {
        "desired_concurrent_number": "256",
        "max_error_number": "0",
        "max_filter_ratio": "1.0",
        "max_batch_interval": "60",
        "max_batch_rows": "20000000",
        "max_batch_size": str(1 << 30),
        "strict_mode": "false",
        "exec_mem_limit": str(2 << 30),
    }
    assert {name: found[name] for name in defaults} == defaults


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("desired_concurrent_number", "3"),
        ("max_error_number", "7"),
        ("max_batch_interval", "9"),
        ("max_batch_rows", "300000"),
        ("max_batch_size", "209715200"),
        ("jsonpaths", '["$.a"]'),
        ("json_root", "$.rows"),
        ("strip_outer_array", "true"),
        ("strict_mode", "true"),
        ("timezone", "Europe/Berlin"),
        ("num_as_string", "true"),
        ("fuzzy_parse", "true"),
        ("partial_columns", "true"),
        ("max_filter_ratio", "0.5"),
        ("unique_key_update_mode", "UPDATE_FIXED_COLUMNS"),
    ],
)
def test_what_can_be_altered_is_kept(session: Session, tmp_path: Path, name: str, value: str) -> None:
    """R29"""
    make(session, tmp_path, properties="'format' = 'json'")
    dicts(session, "PAUSE ROUTINE LOAD FOR job")
    dicts(session, f"ALTER ROUTINE LOAD FOR job PROPERTIES ('{name}' = '{value}')")
    assert json.loads(line(session)["JobProperties"])[name] == value
    (shown,) = dicts(session, "SHOW CREATE ROUTINE LOAD FOR job")
    assert f'"{name}" = ' in shown["CreateStmt"]


def test_the_source_of_a_paused_job_is_altered(store: Store, session: Session) -> None:
    """R29: brokers, properties of the client and the topic, whose offsets begin anew."""
    dicts(
        session,
        'CREATE ROUTINE LOAD job ON t FROM KAFKA ("kafka_broker_list" = "a:1", "kafka_topic" = "x", '
        '"property.client.id" = "one")',
    )
    dicts(session, "PAUSE ROUTINE LOAD FOR job")
    alter = "ALTER ROUTINE LOAD FOR job FROM KAFKA ({})"
    dicts(session, alter.format('"kafka_broker_list" = "b:2", "property.client.id" = "two"'))
    ((job_id, _),) = RoutineJobs(store.catalog).all().items()
    RoutineJobs(store.catalog).change(
        job_id, lambda job: replace(job, progress={"0": 5, "1": 6}, source_id="some")
    )
    dicts(session, alter.format('"kafka_partitions" = "0", "kafka_offsets" = "3"'))
    altered = RoutineJobs(store.catalog).get(job_id)
    assert (altered.progress, altered.source_id) == ({"0": 3, "1": 6}, "some")
    with pytest.raises(InvalidInputError, match="one offset for each partition"):
        dicts(session, alter.format('"kafka_partitions" = "0"'))
    with pytest.raises(InvalidInputError, match="FILES is not the type of job job, KAFKA"):
        dicts(session, 'ALTER ROUTINE LOAD FOR job FROM FILES ("path" = "x")')
    dicts(session, alter.format('"kafka_topic" = "y"'))
    altered = RoutineJobs(store.catalog).get(job_id)
    assert (altered.progress, altered.source_id) == ({}, "")
    shown = line(session)
    assert json.loads(shown["DataSourceProperties"])["topic"] == "y"
    assert json.loads(shown["DataSourceProperties"])["brokerList"] == "b:2"
    custom = json.loads(shown["CustomProperties"])
    assert (custom["client.id"], custom["group.id"].startswith("job_"), shown["ComputeGroup"]) == (
        "two",
        True,
        "",
    )


def test_bad_jsonpaths_pause_the_job(store: Store, session: Session, tmp_path: Path) -> None:
    """R28"""
    make(session, tmp_path, properties="""'format' = 'json', 'jsonpaths' = '["$.k", "$.v", "$.s["]'""")
    put(tmp_path, "1.json", {"k": 1, "v": "a", "s": 1})
    job = drain(store)
    assert (job.state, rows(session)) == ("PAUSED", [])
    assert job.reason.endswith("please check the jsonpaths")
    dicts(session, """ALTER ROUTINE LOAD FOR job PROPERTIES ('jsonpaths' = '["$.k", "$.v", "$.s"]')""")
    dicts(session, "RESUME ROUTINE LOAD FOR job")
    drain(store)
    assert rows(session) == [(1, "a", 1)]


def test_a_new_key_under_the_error_policy_aborts_the_whole_batch(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R13, R33, R35"""
    dicts(session, "INSERT INTO t VALUES (1, 'old', 1)")
    properties = "'partial_columns' = 'true', 'partial_update_new_key_behavior' = 'ERROR', 'format' = 'json'"
    make(session, tmp_path, "COLUMNS(k, v)", properties)
    put(tmp_path, "1.json", {"k": 1, "v": "new"}, {"k": 2, "v": "new"})
    for tries in (1, 2):
        job = drain(store)
        assert (job.statistic.aborted_tasks, dict(job.progress)) == (tries, {"0": 0})
    assert rows(session) == [(1, "old", 1)]
    found = line(session)
    assert (found["State"], found["OtherMsg"] != "") == ("NEED_SCHEDULE", True)
    (tmp_path / "in" / "1.json").unlink()
    put(tmp_path, "2.json", {"k": 1, "v": "newer"})
    drain(store)
    assert rows(session) == [(1, "newer", 1)]


def test_rows_may_say_which_columns_they_update(store: Store, session: Session, tmp_path: Path) -> None:
    """R22, F4: a flexible partial update, which allows no merge type and no sequence column of its own."""
    create = (
        "CREATE TABLE f (k BIGINT NOT NULL, a INT NULL, b INT NULL) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)"
    )
    dicts(session, f"{create} PROPERTIES ('enable_unique_key_skip_bitmap_column' = 'true')")
    dicts(session, "INSERT INTO f VALUES (1, 1, 1), (2, 2, 2)")
    dicts(
        session,
        "CREATE ROUTINE LOAD job ON f PROPERTIES ('unique_key_update_mode' = 'UPDATE_FLEXIBLE_COLUMNS', "
        f"'format' = 'json') FROM FILES ('path' = '{tmp_path}/in/*.json')",
    )
    put(tmp_path, "1.json", {"k": 1, "a": 10}, {"k": 2, "b": 20}, {"k": 3, "b": 30})
    drain(store)
    found = [tuple(row.values()) for row in dicts(session, "SELECT k, a, b FROM f ORDER BY k")]
    assert found == [(1, 10, 1), (2, 2, 20), (3, None, 30)]


def test_show_create_makes_the_same_job(session: Session, tmp_path: Path) -> None:
    clauses = (
        'WITH MERGE COLUMNS TERMINATED BY "|", COLUMNS(k, v = upper("a")), WHERE k < 8, DELETE ON k = 1, '
        "ORDER BY s"
    )
    make(session, tmp_path, clauses, "'strict_mode' = 'true', 'format' = 'csv'")
    (shown,) = dicts(session, "SHOW CREATE ROUTINE LOAD FOR job")
    dicts(session, "STOP ROUTINE LOAD FOR job")
    dicts(session, shown["CreateStmt"].rstrip(";"))
    (again,) = dicts(session, "SHOW CREATE ROUTINE LOAD FOR job")
    assert again["CreateStmt"] == shown["CreateStmt"]
    assert again["JobId"] != shown["JobId"]


def test_tasks_are_shown_and_a_pause_takes_them_away(store: Store, session: Session, tmp_path: Path) -> None:
    """R4, R6, R37"""
    make(session, tmp_path)
    show = "SHOW ROUTINE LOAD TASK WHERE JobName = 'job'"
    assert dicts(session, show) == []
    ((job_id, _),) = RoutineJobs(store.catalog).all().items()
    runner = JobRunner(store, job_id, open_source)
    runner.round()
    assert line(session)["State"] == "RUNNING"
    (before,) = dicts(session, show)
    assert (before["TxnId"], before["DataSourceProperties"]) == ("-1", '{"0": 0}')
    put(tmp_path, "1.json", {"k": 1, "v": "a", "s": 1})
    assert runner.round().committed == 1
    (after,) = dicts(session, show)
    assert (after["TxnId"], after["DataSourceProperties"]) == ("-1", '{"0": 1}')
    assert after["TaskId"] != before["TaskId"]
    dicts(session, "PAUSE ROUTINE LOAD FOR job")
    assert (dicts(session, show), line(session)["CurrentTaskNum"]) == ([], "0")
    runner.release()


def test_a_job_of_another_database_needs_the_privilege_there(
    store: Store, session: Session, tmp_path: Path
) -> None:
    dicts(session, "CREATE DATABASE mine")
    store.accounts.create("ann", "a-secret")
    store.accounts.grant("ann", ["LOAD", "SELECT"], "mine")
    make(session, tmp_path)
    ann = Session(store, user="ann", server=ServerContext(load_jobs=StoreLoadJobs(store, "ann")))
    dicts(ann, "USE mine")
    path = f'FROM FILES ("path" = "{tmp_path}/in/*.json")'
    for statement in (
        f"CREATE ROUTINE LOAD db.other ON t {path}",
        "PAUSE ROUTINE LOAD FOR db.job",
        "STOP ROUTINE LOAD FOR db.job",
        "ALTER ROUTINE LOAD FOR db.job PROPERTIES ('max_error_number' = '1')",
        f'LOAD LABEL db.a (DATA INFILE ("{tmp_path}/in/a.csv") INTO TABLE t) WITH LOCAL',
    ):
        with pytest.raises(AccessDeniedError, match="LOAD"):
            dicts(ann, statement)
    assert line(session)["State"] == "NEED_SCHEDULE"
