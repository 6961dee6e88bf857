"""`dead_letters` of stream and routine loads, and their replay: rules DL1 to DL5."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from seqstore import ConflictError, InvalidInputError, NotFoundError, Settings, Store
from seqstore.cli.main import app
from seqstore.loaders.begin import begin as begin_load
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.dead_letters import replay as replaying
from seqstore.loaders.dead_letters.replay import replay
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.stream_load import stream_load
from seqstore.store.sql import ServerContext, Session
from tests.support.changes.messages import canal, envelope
from tests.support.children import MODULES
from tests.support.statements import dicts

TABLE = """
CREATE TABLE t (k INT NOT NULL, a INT NULL, v VARCHAR(3) NOT NULL) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)
"""
pytestmark = [pytest.mark.settings(auto_compaction=0), pytest.mark.sql(TABLE)]
CSV = {"column_separator": ",", "strict_mode": "true"}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "in").mkdir()
    return replace(settings, load_paths=(str(tmp_path / "in"),))


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as opened:
        yield opened


def load(store: Store, body: str, **headers: str) -> dict[str, Any]:
    return stream_load(store, "db", "t", io.BytesIO(body.encode()), {"dead_letters": "true", **headers})


def letters(session: Session, table: str = "t") -> list[dict[str, Any]]:
    return dicts(session, f"SELECT * FROM {table}__dead_letters ORDER BY source, position")


def keys(store: Store, table: str = "t") -> list[int]:
    return sorted(store.table(f"db.{table}").scan(["k"]).read_all().column(0).to_pylist())


def test_rejected_rows_are_kept_with_the_reason_in_the_commit_of_the_others(
    store: Store, session: Session
) -> None:
    """DL1: rows that are no rows, that the cast refuses, and that the engine rejects."""
    reply = load(store, "1,2,a\n2,x,b\n3,4\n4,5,abcdef\n5,6,\\N\n", **CSV, label="one")
    assert (reply["Status"], reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == ("Success", 1, 4)
    found = letters(session)
    assert [(row["position"], row["raw"], row["label"]) for row in found] == [
        (2, "2,x,b", "one"),
        (3, "3,4", "one"),
        (4, "4,5,abcdef", "one"),
        (5, "5,6,\\N", "one"),
    ]
    reasons = ["cannot be converted to INT", "expected 3 fields, found 2", "too long", "is null while"]
    assert all(text in row["reason"] for text, row in zip(reasons, found, strict=True))
    made = [store.table(f"db.t{suffix}").history()[-1] for suffix in ("", "__dead_letters")]
    assert made[0].txn_id == made[1].txn_id


def test_all_rows_are_kept_whole(store: Store, session: Session) -> None:
    """DL4: the error log has the first thousand, and each only begins there."""
    body = "".join(f"{number},x,{'y' * 3000}\n" for number in range(2500))
    reply = load(store, body, **CSV)
    assert reply["NumberFilteredRows"] == 2500
    found = letters(session)
    assert len(found) == 2500
    assert {len(row["raw"].split(",")[2]) for row in found} == {3000}
    log = Path(reply["ErrorURL"]).read_text().splitlines()
    assert len(log) == 1000
    assert max(map(len, log)) < 2500


def test_a_load_above_its_ratio_keeps_nothing(store: Store, session: Session) -> None:
    """DL1, DL2: the default ratio is 1."""
    assert load(store, "1,2,a\n2,x,b\n", **CSV, max_filter_ratio="0.4")["Status"] == "Fail"
    assert keys(store) == []
    assert store.tables("db") == ["t"]
    assert load(store, "1,2,a\n2,x,b\n", **CSV, max_filter_ratio="0.5")["Status"] == "Success"
    assert load(store, "x,2,a\n", **CSV)["Status"] == "Success"
    assert (keys(store), len(letters(session))) == ([1], 2)


def test_a_load_without_bad_rows_makes_no_table(store: Store) -> None:
    assert load(store, "1,2,a\n", **CSV)["Status"] == "Success"
    assert store.tables("db") == ["t"]


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"format": "parquet"}, "lines of text, found parquet"),
        ({"two_phase_commit": "true"}, "two_phase_commit does not go with dead_letters"),
    ],
)
def test_headers_that_contradict_it_are_refused_by_name(
    store: Store, headers: dict[str, str], message: str
) -> None:
    """DL4."""
    assert message in load(store, "1,2,a\n", **headers)["Message"]


def test_dead_letters_have_none_of_their_own(store: Store) -> None:
    load(store, "x,2,a\n", **CSV)
    body = io.BytesIO(b"1,2\n")
    reply = stream_load(store, "db", "t__dead_letters", body, {"dead_letters": "true", **CSV})
    assert "dead letters have none of their own" in reply["Message"]


def test_mended_rows_are_loaded_and_removed_in_one_commit(store: Store, session: Session) -> None:
    """DL5."""
    load(store, "1,x,a\n2,x,b\n3,x,c\n", **CSV)
    assert [reason for _, reason in replay(store, "db.t").left] == [
        "column a: 'x' cannot be converted to INT"
    ] * 3
    dicts(session, "UPDATE t__dead_letters SET raw = replace(raw, 'x', '7') WHERE position < 3")
    assert replay(store, "db.t", "position = 1").loaded == 1
    assert keys(store) == [1]
    done = replay(store, "db.t")
    assert (done.loaded, len(done.left)) == (1, 1)
    assert keys(store) == [1, 2]
    assert [row["raw"] for row in letters(session)] == ["3,x,c"]
    made = [store.table(f"db.t{suffix}").history()[-1] for suffix in ("", "__dead_letters")]
    assert made[0].txn_id == made[1].txn_id
    assert made[0].operation == "REPLAY"


def test_rows_that_fit_the_altered_table_need_no_mending(store: Store, session: Session) -> None:
    load(store, "1,2,abcdef\n", **CSV)
    dicts(session, "ALTER TABLE t MODIFY COLUMN v VARCHAR(20) NOT NULL")
    assert replay(store, "db.t").loaded == 1
    assert letters(session) == []


@pytest.mark.parametrize(
    ("body", "headers", "mend"),
    [
        ('{"k": "x", "v": "a"}\n', {"format": "json"}, ('"x"', "5")),
        ('[{"k": "x",\n "v": "a"}]', {"format": "json", "strip_outer_array": "true"}, ('"x"', "5")),
        ("a|x\n", {"columns": "v, n, k = n", "column_separator": "|"}, ("x", "5")),
        ('x,1,"a\nb"\n', {"enclose": '"', "trim_double_quotes": "true", **CSV}, ("x", "5")),
        ("k,v,a\nx,a,1\n", {"format": "csv_with_names", "columns": "k, v, a", **CSV}, ("x", "5")),
        ("v,k\na,x\n", {"format": "csv_with_names", "schema_evolution": "add", **CSV}, ("x", "5")),
        (
            json.dumps(envelope("c", 1, after={"k": "x", "v": "a"})),
            {"format": "debezium_json"},
            ('"x"', "5"),
        ),
        *(
            (body, {"format": "json", **given}, ('"x"', "5"))
            for body, given in (
                ('{"r": [{"k": "x", "v": "a"}]}', {"json_root": "$.r", "strip_outer_array": "true"}),
                ('[{"r": {"k": "x", "v": "a"}}]', {"json_root": "$.r", "strip_outer_array": "true"}),
                ('{"r": {"k": "x", "v": "a"}}\n', {"json_root": "$.r", "read_json_by_line": "true"}),
                ('[{"k": "x", "v": "a"}]\n', {"strip_outer_array": "true", "read_json_by_line": "true"}),
            )
        ),
    ],
    ids=[
        *("json", "array", "columns", "enclosed", "names", "evolution", "debezium"),
        *("list at root", "root of elements", "root of lines", "lists in lines"),
    ],
)
def test_rows_are_read_again_by_the_headers_of_their_load(
    store: Store, session: Session, body: str, headers: dict[str, str], mend: tuple[str, str]
) -> None:
    """DL5."""
    reply = load(store, body, **{"strict_mode": "true", **headers})
    assert (reply["Status"], reply["NumberFilteredRows"]) == ("Success", 1)
    (found,) = letters(session)
    rows = pa.table({"id": [found["id"]], "raw": [found["raw"].replace(*mend)]})
    store.table("db.t__dead_letters").upsert(rows, mode="UPDATE_FIXED_COLUMNS")
    assert replay(store, "db.t").left == []
    assert keys(store) == [5]


def test_the_options_of_a_separator_that_is_no_text_are_kept(store: Store, session: Session) -> None:
    """DL3: the load ended with a Python exception."""
    headers = {"column_separator": "\udcff", "strict_mode": "true", "dead_letters": "true"}
    reply = stream_load(store, "db", "t", io.BytesIO(b"1\xff2\xffa\nx\xff2\xffa\n"), headers)
    assert (reply["Status"], reply["NumberFilteredRows"]) == ("Success", 1)
    assert json.loads(letters(session)[0]["options"])["column_separator"] == "\udcff"
    dicts(
        session, """UPDATE t__dead_letters SET raw = '3,2,a', options = replace(options, '\\\\udcff', ',')"""
    )
    assert (replay(store, "db.t").left, keys(store)) == ([], [1, 3])


def test_an_element_that_lacks_the_root_is_kept_whole(store: Store, session: Session) -> None:
    """DL4: its text was null."""
    body = '[{"r": {"k": 1, "v": "a"}}, {"k": 2, "v": "b"}]'
    load(store, body, format="json", json_root="$.r", strip_outer_array="true")
    assert [json.loads(row["raw"]) for row in letters(session)] == [{"k": 2, "v": "b"}]


@pytest.mark.parametrize("raw", ["[1]", '{"k": 1, "v": "a"} {"k": 2, "v": "a"}'], ids=["list", "several"])
def test_a_text_that_no_reader_takes_leaves_the_others_alone(
    store: Store, session: Session, raw: str
) -> None:
    """DL5: it ended the replay of all letters of the table."""
    load(
        store,
        "".join(f'{{"k": "x{number}", "v": "a"}}\n' for number in range(5)),
        format="json",
        strict_mode="true",
    )
    load(store, "y,2,a\n", **CSV)
    dicts(session, "UPDATE t__dead_letters SET raw = replace(replace(raw, '\"x', '\"'), 'y,', '9,')")
    dicts(session, f"UPDATE t__dead_letters SET raw = '{raw}' WHERE position = 3")
    done = replay(store, "db.t")
    assert (done.loaded, len(done.left), keys(store)) == (5, 1, [0, 1, 3, 4, 9])


@pytest.mark.parametrize("options", ["", "[]", '{"format": 5}', '{"format": "json", "jsonpaths": "x"}'])
def test_options_that_were_changed_to_none_leave_the_others_alone(
    store: Store, session: Session, options: str
) -> None:
    """DL5: they ended the replay of all letters of the table."""
    load(store, "x,2,a\ny,2,a\n", **CSV)
    dicts(session, "UPDATE t__dead_letters SET raw = replace(replace(raw, 'x', '1'), 'y', '2')")
    dicts(session, f"UPDATE t__dead_letters SET options = '{options}' WHERE position = 1")
    done = replay(store, "db.t")
    assert (done.loaded, len(done.left), keys(store)) == (1, 1, [2])


def test_a_text_that_was_emptied_stays(store: Store, session: Session) -> None:
    load(store, "x,2,a\n", **CSV)
    dicts(session, "UPDATE t__dead_letters SET raw = ' '")
    assert [reason for _, reason in replay(store, "db.t").left] == ["the text is empty"]


def test_the_same_rows_are_not_replayed_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """DL5: another replay comes in between."""
    load(store, "1,2,abcd\n", **CSV)
    with Session(store, "db") as session:
        dicts(session, "ALTER TABLE t MODIFY COLUMN v VARCHAR(20) NOT NULL")
    original = begin_load
    others = [1]

    def begin(*args: Any, **kwargs: Any) -> Any:
        if others:
            others.pop()
            assert replay(store, "db.t").loaded == 1
        return original(*args, **kwargs)

    monkeypatch.setattr(replaying, "begin", begin)
    with pytest.raises(ConflictError):
        replay(store, "db.t")
    assert len([info for info in store.table("db.t").history() if info.operation == "REPLAY"]) == 1


def test_errors_of_a_replay_say_what_is_missing(store: Store) -> None:
    with pytest.raises(NotFoundError, match=r"db.t has no dead letters"):
        replay(store, "db.t")
    load(store, "x,2,a\n", **CSV)
    with pytest.raises((InvalidInputError, NotFoundError), match="nothing"):
        replay(store, "db.t", "nothing = 1")


def test_the_command_prints_what_was_loaded_and_what_is_left(store: Store) -> None:
    load(store, "x,2,a\n1,2,abcd\n", **CSV)
    with Session(store, "db") as session:
        dicts(session, "ALTER TABLE t MODIFY COLUMN v VARCHAR(20) NOT NULL")
    done = CliRunner().invoke(
        app, ["--data-dir", str(store.path), "replay", "db.t", "--where", "position > 0"]
    )
    answer = json.loads(done.output)
    assert (answer["LoadedRows"], answer["LeftRows"]) == (1, 1)
    assert "cannot be converted" in answer["Left"][0]["reason"]


def test_a_routine_load_goes_on_over_bad_rows(store: Store, session: Session, tmp_path: Path) -> None:
    """DL2, DL3: without limits of its own the job is not paused."""
    (tmp_path / "in/a.csv").write_text("1,2,a\n2,x,b\n3,4,abcdef\n")
    dicts(
        session,
        "CREATE ROUTINE LOAD job ON t COLUMNS TERMINATED BY ',' PROPERTIES ('dead_letters' = 'true', "
        f"'strict_mode' = 'true') FROM FILES ('path' = '{tmp_path}/in/*.csv')",
    )
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.loaded_rows, job.statistic.error_rows) == (1, 2)
    assert job.state in ("RUNNING", "NEED_SCHEDULE")
    found = letters(session)
    assert [(row["position"], row["raw"]) for row in found] == [(2, "2,x,b"), (3, "3,4,abcdef")]
    assert all(row["source"].endswith("in/a.csv") for row in found)
    dicts(session, "UPDATE t__dead_letters SET raw = '2,9,b' WHERE position = 2")
    assert replay(store, "db.t").loaded == 1
    assert keys(store) == [1, 2]


def test_each_table_of_a_change_stream_has_its_own(store: Store, session: Session, tmp_path: Path) -> None:
    """DL3."""
    dicts(session, "CREATE TABLE other (k INT NOT NULL, n INT NULL) UNIQUE KEY (k)")
    messages = [
        envelope("c", 1, after={"k": 1, "v": "abcdef"}, table="t"),
        envelope("c", 2, after={"k": 1, "n": "word"}, table="other"),
        envelope("c", 3, after={"k": 2, "n": 3}, table="other"),
    ]
    for number, each in enumerate(messages):
        (tmp_path / f"in/{number}.json").write_text(json.dumps(each))
    dicts(
        session,
        "CREATE ROUTINE LOAD job PROPERTIES ('dead_letters' = 'true', 'format' = 'debezium_json') "
        f"FROM FILES ('path' = '{tmp_path}/in/*.json')",
    )
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.loaded_rows, job.statistic.error_rows) == (1, 2)
    assert [json.loads(row["raw"])["after"]["k"] for row in letters(session)] == [1]
    assert ["word" in row["reason"] for row in letters(session, "other")] == [True]


@pytest.mark.parametrize(
    ("file_format", "message", "reasons"),
    [
        (
            "canal_json",
            canal("INSERT", 2, [{"v": "x"}, {"v": "y"}, {"k": 3, "v": "c"}]),
            ["no field", "no field"],
        ),
        (
            "debezium_json",
            {**envelope("u", 2, before={"k": 1, "v": "a"}, after={"k": 2, "v": "b"}), "source": {}},
            ["no position", "no position"],
        ),
    ],
    ids=["rows of a statement", "old and new key"],
)
def test_each_bad_row_of_a_message_is_kept(
    store: Store, session: Session, file_format: str, message: dict[str, Any], reasons: list[str]
) -> None:
    """DL2: the load failed, because the rows of one message made one dead letter."""
    if file_format == "debezium_json":
        dicts(session, "DROP TABLE t")
        dicts(session, TABLE + " PROPERTIES ('function_column.sequence_type' = 'LARGEINT')")
    reply = load(store, json.dumps(message), format=file_format)
    assert (reply["Status"], reply["NumberFilteredRows"]) == ("Success", 2)
    found = letters(session)
    assert [json.loads(row["raw"]) for row in found] == [message] * 2
    assert all(part in row["reason"] for part, row in zip(reasons, found, strict=True))


def copy_job(session: Session, folder: Path, **properties: str) -> None:
    """Makes a routine load of many tables that keeps the rejected messages of Debezium."""
    given = {"dead_letters": "true", "format": "debezium_json", **properties}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    dicts(
        session, f"CREATE ROUTINE LOAD job PROPERTIES ({listed}) FROM FILES ('path' = '{folder}/in/*.json')"
    )


def test_bad_messages_are_kept_beside_the_table_that_they_name(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """DL1, DL3: they were counted and lost, because they had no body of the table."""
    messages = [
        envelope("d", 1, table="t"),
        envelope("t", 2, table="t"),
        envelope("u", 3, table="t"),
        envelope("t", 4, table="missing"),
        {**envelope("t", 5), "source": {}},
    ]
    (tmp_path / "in/a.json").write_text("\n".join(map(json.dumps, messages)))
    copy_job(session, tmp_path)
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.error_rows, job.reason) == (5, "")
    assert sorted(json.loads(row["raw"])["op"] for row in letters(session)) == ["d", "t", "u"]
    assert store.tables("db") == ["t", "t__dead_letters"]
    mended = json.dumps(envelope("c", 3, after={"k": 1, "v": "a"}, table="t"))
    dicts(session, f"UPDATE t__dead_letters SET raw = '{mended}' WHERE reason LIKE '%no image%'")
    done = replay(store, "db.t")
    assert (done.loaded, len(done.left), keys(store)) == (1, 2, [1])


@pytest.mark.parametrize(
    ("limit", "reason"), [({}, "dead_letters cannot keep 1"), ({"max_error_number": "1"}, "")]
)
def test_messages_of_a_table_that_cannot_be_made_pause_the_job(
    store: Store, session: Session, tmp_path: Path, limit: dict[str, str], reason: str
) -> None:
    """DL2: they were lost in silence, because a job that keeps rejected rows has no limit of them."""
    keyless = envelope("c", 1, after={"v": 1}, table="keyless")
    (tmp_path / "in/a.json").write_text(json.dumps(keyless))
    copy_job(session, tmp_path, auto_create="true", **limit)
    (job,) = RoutineRunner(store).drain().values()
    assert (job.state, job.statistic.error_rows) == ("PAUSED" if reason else "NEED_SCHEDULE", 1)
    assert job.reason.startswith(reason)


CHILD = """
import io, sys
from seqstore import Store
from seqstore.loaders.stream_load import stream_load
with Store.open(sys.argv[1]) as store:
    headers = {"column_separator": ",", "strict_mode": "true", "dead_letters": "true"}
    stream_load(store, "db", "t", io.BytesIO(b"1,2,a\\n2,x,b\\n"), headers)
"""


@pytest.mark.crash
@pytest.mark.parametrize(("failpoint", "count"), [("publish.before_commit", 0), ("publish.after_commit", 1)])
def test_killed_around_the_commit_rows_and_dead_letters_agree(
    store: Store, session: Session, failpoint: str, count: int
) -> None:
    """DL1."""
    environment = {**os.environ, "PYTHONPATH": MODULES, "SEQSTORE_FAILPOINT": failpoint}
    child = subprocess.run([sys.executable, "-c", CHILD, str(store.path)], env=environment, check=False)
    assert child.returncode == -signal.SIGKILL
    assert (len(keys(store)), len(letters(session))) == (count, count)


@pytest.mark.parametrize("parallelism", ["1", "2"])
def test_files_of_a_broker_load_keep_their_rejected_rows(
    store: Store, session: Session, tmp_path: Path, parallelism: str
) -> None:
    """DL1, DL2: in this process, and in processes of their own."""
    (tmp_path / "in/a.csv").write_text("1,2,a\n2,x,b\n3,4\n")
    (tmp_path / "in/b.csv").write_text("".join(f"{number},1,abcdef\n" for number in range(10, 2510)))
    properties = {"strict_mode": "true", "dead_letters": "true", "load_parallelism": parallelism}
    description = DataDescription("t", (f"{tmp_path}/in/*.csv",), column_separator=",")
    _, job = BrokerLoad(store, LoadSpec("db", "one", (description,), properties), [str(tmp_path)]).run()
    assert (job.state, job.loaded, job.filtered) == ("FINISHED", 1, 2502)
    found = letters(session)
    assert [row["raw"] for row in found[:2]] == ["2,x,b", "3,4"]
    assert len({row["raw"] for row in found}) == 2502
    dicts(session, "ALTER TABLE t MODIFY COLUMN v VARCHAR(20) NOT NULL")
    assert replay(store, "db.t").loaded == 2500
    assert len(letters(session)) == 2
    from_path = replace(description, columns_from_path=("v",))
    with pytest.raises(InvalidInputError, match="COLUMNS FROM PATH"):
        BrokerLoad(store, LoadSpec("db", "two", (from_path,), properties), [str(tmp_path)]).run()


def test_a_failed_load_leaves_no_table_of_dead_letters(
    store: Store, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stream loads that fail before and behind the first letters, and a broker load."""
    monkeypatch.setattr("seqstore.loaders.dead_letters.letters._FLUSHED", 1)
    strict = {"strict_mode": "true", **CSV}
    assert load(store, "1,x,a\n", max_filter_ratio="0.5", **strict)["Status"] == "Fail"
    (tmp_path / "in/a.csv").write_text("1,x,a\n")
    description = DataDescription("t", (f"{tmp_path}/in/*.csv",), column_separator=",")
    properties = {"strict_mode": "true", "dead_letters": "true", "max_filter_ratio": "0.5"}
    _, job = BrokerLoad(store, LoadSpec("db", "one", (description,), properties), [str(tmp_path)]).run()
    assert job.state == "CANCELLED"
    assert store.tables("db") == ["t"]


def test_a_failed_load_leaves_the_dead_letters_of_others(store: Store, session: Session) -> None:
    strict = {"strict_mode": "true", **CSV}
    assert load(store, "1,x,a\n", **strict)["Status"] == "Success"
    assert load(store, "1,x,a\n", max_filter_ratio="0.5", **strict)["Status"] == "Fail"
    assert len(letters(session)) == 1
