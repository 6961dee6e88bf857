"""Each command with --url: it works at the server, or refuses by its name and says why."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from seqstore import Store, Table
from seqstore.cli.main import app
from tests.support.remote.server import ServerProcess
from tests.support.rows import rows_of

JOB = """
database = "db"
label = "job"
[[load]]
table = "t"
paths = ["day=*/*.csv"]
columns = ["k"]
columns_from_path = ["day"]
set = ["v = day"]
column_separator = ","
"""
REFUSED = {  # with the first words of their reasons
    "serve": "it is the server of a directory",
    "repair": "a damaged catalog has no server",
    "ship /x": "the host that leads ships",
    "doctor": "it checks this host",
    "demo": "it makes a directory of its own",
    "backups /x": "SHOW SNAPSHOT",
    "restore --from s3://b/p": "it makes a data directory",
    "routine-load create {job}": "CREATE ROUTINE LOAD makes a job",
    "routine-load start": "the server runs those that are there",
}
WORKS = {"sql", "history", "changes", "check", "optimize", "vacuum", "stream-load", "load", "broker-load",
         "replay", "top", "backup", "restore", "routine-load pause", "routine-load resume",
         "routine-load stop", "routine-load show"}  # fmt: skip


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    made = ServerProcess()
    yield made
    made.end()


@pytest.fixture
def url(process: ServerProcess, store: Store, stored: Table, tmp_path: Path) -> Iterator[str]:
    yield process.open(tmp_path / "data", store.settings)
    process.close()


def run(url: str, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["--url", url, *arguments], env={"SEQSTORE_DATA_DIR": "/nowhere"})
    assert done.exit_code == code, done.output
    return done.output


def reply(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def commands() -> Iterator[str]:
    """The commands of the program, those of groups with their group."""
    group: Any = get_command(app)
    for name, command in group.commands.items():
        inner = getattr(command, "commands", {})
        yield from (f"{name} {each}" for each in inner)
        if not inner:
            yield name


def test_each_command_is_tested_here() -> None:
    refused = {" ".join(each.split()[: 1 + each.startswith("routine")]) for each in REFUSED}
    assert set(commands()) == WORKS | (refused - {"restore"})


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_beside_the_data_refuses_and_says_why(command: str, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text("")
    words = command.format(job=job).split()
    done = run("seqstore://127.0.0.1:1", *words, code=2)
    said = " ".join(done.replace("│", " ").split())
    assert REFUSED[command] in said
    assert "without --url" in said


def test_a_stream_load_has_the_headers_and_the_reply_of_a_local_one(
    url: str, stored: Table, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("1,5\n2,6\n")
    headers = ["-H", "column_separator: ,", "-H", "label: one", "-H", "columns: k, v",
               "-H", "merge_type: MERGE", "-H", "delete: v = 6"]  # fmt: skip
    done = reply(run(url, "stream-load", "db.t", "-T", str(file), *headers))
    assert (done["Status"], done["Label"], done["NumberLoadedRows"]) == ("Success", "one", 2)
    assert rows_of(stored) == [(1, "5")]
    again = reply(run(url, "stream-load", "db.t", "-T", str(file), *headers, code=1))
    assert (again["Status"], again["ExistingJobStatus"]) == ("Label Already Exists", "FINISHED")


def test_a_stream_load_updates_some_columns(url: str, stored: Table, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text('{"k": 2, "v": "new"}')
    headers = ["-H", "format: json", "-H", "partial_columns: true", "-H", "columns: k, v"]
    assert reply(run(url, "stream-load", "db.t", "-T", str(file), *headers))["Status"] == "Success"
    assert rows_of(stored) == [(1, "a"), (2, "new")]


def test_a_load_in_two_phases_waits(url: str, stored: Table, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("3,c\n")
    headers = ["-H", "column_separator: ,", "-H", "two_phase_commit: true", "-H", "label: two"]
    run(url, "stream-load", "db.t", "-T", str(file), *headers)
    assert stored.find_label("two").status == "PRECOMMITTED"  # type: ignore[union-attr]


def test_rejected_rows_are_in_an_error_log(url: str, stored: Table, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("1,5\nx,6\n")
    given = ["stream-load", "db.t", "-T", str(file), "-H", "column_separator: ,"]
    done = reply(run(url, *given, code=4))
    assert (done["NumberFilteredRows"], done["Status"]) == (1, "Fail")
    assert "error_log_" in done["ErrorURL"]
    done = reply(run(url, *given, "-H", "max_filter_ratio: 0.5"))
    assert (done["NumberFilteredRows"], done["NumberLoadedRows"]) == (1, 1)


def test_files_become_a_new_table(url: str, store: Store, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,price\n1,10\n2,20\n")
    (tmp_path / "in" / "b.csv").write_text("id,price\n3,30\n")
    said = run(url, "load", str(tmp_path / "in"), "--into", "shop.orders", "--key", "id")
    assert "CREATE DATABASE shop" in said
    assert '"LoadedRows": 3' in said
    assert rows_of(store.table("shop.orders")) == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.long
def test_a_load_of_files_is_all_or_nothing(url: str, store: Store, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v\n7,x\n")
    (tmp_path / "b.csv").write_text("k,v\nbad,x\n")
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    said = run(url, "load", *files, "--into", "db.t", code=4)
    assert "ETL_QUALITY_UNSATISFIED" in said
    assert store.table("db.t").version == 2


@pytest.mark.long
def test_a_broker_load_reads_fields_of_paths(url: str, stored: Table, tmp_path: Path) -> None:
    for day in ("mon", "tue"):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "x.csv").write_text("7\n" if day == "mon" else "8\n")
    (tmp_path / "job.toml").write_text(JOB)
    done = reply(run(url, "broker-load", str(tmp_path / "job.toml")))
    assert (done["State"], done["LoadedRows"], done["Files"]) == ("FINISHED", 2, 2)
    assert rows_of(stored)[-2:] == [(7, "mon"), (8, "tue")]
    assert "job" in run(url, "broker-load", str(tmp_path / "job.toml"), code=1)


def test_dead_letters_are_loaded_again(url: str, store: Store, stored: Table, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("x,6\n")
    run(url, "stream-load", "db.t", "-T", str(file), "-H", "column_separator: ,", "-H", "dead_letters: true")
    assert reply(run(url, "replay", "db.t"))["LeftRows"] == 1
    run(url, "sql", "-e", "UPDATE db.t__dead_letters SET raw = '9,6'")
    assert reply(run(url, "replay", "db.t"))["LoadedRows"] == 1
    assert rows_of(stored)[-1] == (9, "6")


def test_top_shows_the_tables_of_the_server(url: str) -> None:
    said = run(url, "top", "--once")
    assert "db.t" in said
    assert "1 table" in said


@pytest.mark.settings(output_paths=("/",))
def test_a_backup_is_made_and_restored_at_the_server(url: str, store: Store, tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    assert "FINISHED" in run(url, "backup", "db", place)
    assert "restored" in run(url, "restore", "db", place, "--table", "t=t2")
    assert rows_of(store.table("db.t2")) == rows_of(store.table("db.t"))
    assert "absolute path" in run(url, "backup", "db", "place", code=2)


def test_routine_loads_are_steered_at_the_server(url: str) -> None:
    assert run(url, "routine-load", "show") == ""
    for action in ("pause", "resume", "stop"):
        said = run(url, "routine-load", action, "db.none", code=1)
        assert "none" in said


def test_the_server_keeps_no_file_of_a_client(url: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("5,a\n")
    before = set(Path(tempfile.gettempdir()).glob("seqstore-upload-*"))
    run(url, "stream-load", "db.t", "-T", str(file), "-H", "column_separator: ,")
    assert set(Path(tempfile.gettempdir()).glob("seqstore-upload-*")) <= before
