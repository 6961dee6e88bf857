"""What commands show while they work: on standard error, from the first second on, for every command."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from seqstore import Store
from seqstore.cli import progress
from seqstore.cli import sql as sql_command
from seqstore.cli.main import app
from seqstore.cli.progress import Progress
from tests.support.kafka import wait_until
from tests.support.rows import schema_of

# Commands that show by themselves what they do.
OWN = {"serve", "top", "demo"}
# How each other command is run, and what its progress names.
COMMANDS: dict[str, tuple[Sequence[str], str]] = {
    "sql": (("sql", "-e", "SELECT count(*) FROM db.t"), "sql, SELECT count(*) FROM db.t"),
    "load": (("load", "{tmp}/rows.csv", "--into", "db.t"), "100 %, 1 of 1 files"),
    "stream-load": (("stream-load", "db.t", "-T", "{tmp}/rows.tsv"), "of 0.0 MiB read"),
    "broker-load": (("broker-load", "{tmp}/job.toml"), "1 of 1 files"),
    "history": (("history", "db.t"), "history"),
    "changes": (("changes", "db.t"), "versions 1 to 2, 10 lines"),
    "replay": (("replay", "db.t"), "dead letters of db.t"),
    "optimize": (("optimize",), "db.u (2 of 2)"),
    "vacuum": (("vacuum",), "db.u (2 of 2)"),
    "check": (("check",), "db.u (2 of 2)"),
    "repair": (("repair",), "the catalog of"),
    "backup": (("backup", "db", "{tmp}/backups"), "files, 0.0 of 0.0 MiB"),
    "restore": (("restore", "db", "{tmp}/nowhere"), "restore"),
    "backups": (("backups", "{tmp}/backups", "--verify"), "backups"),
    "ship": (("ship", "{tmp}/elsewhere"), "the first copy of the catalog"),
    "doctor": (("doctor",), "doctor"),
    "routine-load": (("routine-load", "show"), "routine-load"),
}
JOB = """
database = "db"
label = "once"
[[load]]
table = "t"
paths = ["{tmp}/bare.csv"]
column_separator = ","
columns = ["k", "v"]
"""


@pytest.fixture(autouse=True)
def _shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEQSTORE_QUIET")  # which other tests have


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with Store.open(path) as store:
        store.create_database("db")
        for name in ("t", "u"):
            table = store.create_table(f"db.{name}", schema_of("k BIGINT NOT NULL", "v STRING"))
            table.upsert(pa.table({"k": list(range(10)), "v": ["a"] * 10}))
    (tmp_path / "rows.csv").write_text("k,v\n1,b\n")
    (tmp_path / "bare.csv").write_text("1,b\n")
    (tmp_path / "rows.tsv").write_text("1\tb\n")
    return path


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each command would show last, however short it is."""
    seen: list[str] = []

    class Recorded(Progress):
        def __exit__(self, *ended: object) -> None:
            seen.append(self.line())
            super().__exit__(*ended)

    monkeypatch.setattr(progress, "Progress", Recorded)
    return seen


def names() -> list[str]:
    return list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_every_command_is_here() -> None:
    """A new command shows progress by itself; here stands what it says."""
    assert set(names()) == {*COMMANDS, *OWN}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_what_it_does(name: str, data: Path, tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "job.toml").write_text(JOB.replace("{tmp}", str(tmp_path)))
    arguments, told = COMMANDS[name]
    given = [each.replace("{tmp}", str(tmp_path)) for each in arguments]
    done = CliRunner().invoke(app, ["--data-dir", str(data), *given])
    assert len(lines) == 1, done.output
    assert told in lines[0], done.output


def test_quiet_shows_nothing(data: Path, lines: list[str]) -> None:
    assert CliRunner().invoke(app, ["--quiet", "--data-dir", str(data), "check"]).exit_code == 0
    assert lines == []


class Screen(io.StringIO):
    """Standard error that tells of each text."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FIRST_SECONDS", 0.0)


def test_without_a_terminal_a_plain_line_is_printed(at_once: None) -> None:
    screen = Screen()
    with Progress("check", screen, is_drawn=False) as shown:
        shown.doing("db.t (1 of 3)")
        assert screen.written.wait(60)
    first = screen.getvalue().splitlines()[0]
    assert first.startswith("seqstore: check")
    assert "\x1b" not in screen.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "SET PASSWORD FOR root = PASSWORD('geheim')",
        "CREATE USER u IDENTIFIED BY 'geheim'",
        "the first copy of the catalog to s3://key:geheim@bucket/shipped?secret_key=geheim",
        "https://me:geheim@host/rows.csv into db.t",
    ],
)
def test_what_is_done_is_shown_without_secrets(at_once: None, text: str) -> None:
    """The progress of `sql -e "SET PASSWORD .."` showed the password."""
    screen = Screen()
    with Progress("sql", screen, is_drawn=False) as shown:
        shown.doing(text)
        wait_until(lambda: "******" in screen.getvalue(), "a line", screen.getvalue)
    assert "geheim" not in screen.getvalue()


def test_a_secret_that_is_cut_is_masked() -> None:
    """The cut part of a URI has no host, by which its password is known."""
    text = f"EXPORT TABLE {'t' * 20} TO 's3://key:{'geheim' * 20}@bucket/x'"
    assert "geheim" not in sql_command._head(text)


def test_a_terminal_has_one_line_that_is_removed(at_once: None) -> None:
    screen = Screen()
    with Progress("check", screen, is_drawn=True) as shown:
        shown.doing("db.t")
        wait_until(lambda: "check, db.t" in screen.getvalue(), "a line", screen.getvalue)
    assert screen.getvalue().endswith("\r\x1b[2K")
    assert "\n" not in screen.getvalue()


def test_nothing_is_shown_before_a_second_and_while_a_user_types() -> None:
    screen = Screen()
    with Progress("sql", screen, is_drawn=True) as shown, shown.paused():
        assert not screen.written.wait(1.5)


def test_no_color_means_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def kept(name: str, screen: Any, *, is_drawn: bool) -> Progress:
        made.append(is_drawn)
        return Progress(name, screen, is_drawn=is_drawn)

    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(progress, "Progress", kept)
    monkeypatch.setenv("TERM", "xterm")
    for value in ("", "1"):
        monkeypatch.setenv("NO_COLOR", value)
        with progress.shown("check", is_quiet=False):
            pass
    assert made == [True, False]


def test_standard_output_has_no_progress(data: Path, at_once: None) -> None:
    done = CliRunner().invoke(
        app, ["--data-dir", str(data), "sql", "--format", "json", "-e", "SELECT 1 AS a"]
    )
    assert json.loads(done.stdout) == [{"a": 1}]
