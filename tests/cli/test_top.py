"""`seqstore top` and `history --plot`: what tables and jobs do, on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from seqstore import Store, TableSchema
from seqstore.cli import top
from seqstore.cli.main import app
from seqstore.cli.version_plot import version_plot

BY_TIME = {"function_column.sequence_col": "at"}
SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64())])


def rows(*pairs: tuple[int, int]) -> pa.Table:
    keys, times = zip(*pairs, strict=True)
    return pa.table({"k": pa.array(keys), "at": pa.array(times)}, schema=SCHEMA)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_database("db")
        table = store.create_table("db.t", TableSchema.from_arrow(SCHEMA, ["k"], properties=BY_TIME))
        table.upsert(rows((1, 10), (2, 10), (3, 10)))
        table.upsert(rows((1, 5), (2, 20)))  # the first one is late
        yield store


def run(store: Store, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["--data-dir", str(store.path), *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_a_page_counts_the_last_minute_of_a_table(store: Store) -> None:
    text = run(store, "top", "--once")
    assert "1 table, 2 loads in the last minute" in text
    line = next(line for line in text.splitlines() if "db.t" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:2] == ["db.t", "3"]
    assert cells[5:9] == ["2", "5", "1", "0"]


def test_the_table_that_changed_last_is_first_and_older_ones_are_counted(store: Store) -> None:
    for number in range(3):
        schema = TableSchema.from_arrow(SCHEMA, key=["k"])
        store.create_table(f"db.later{number}", schema)
    store.table("db.t").upsert(rows((9, 99)))
    page = top.page(store, 2)
    assert next(name for name, _ in page.tables) == "db.t"
    assert page.left_out == 2
    assert "and 2 tables that changed earlier" in top.page_text(page)


def test_a_routine_load_shows_its_state_and_how_far_it_is_behind(store: Store, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("4,1\n5,1\n")
    job = tmp_path / "job.toml"
    job.write_text(
        'database = "db"\nname = "feed"\ntable = "t"\ncolumn_separator = ","\n'
        f'[files]\npath = "{tmp_path}/in/*.csv"\n'
    )
    created = CliRunner().invoke(
        app, ["--data-dir", str(store.path), "routine-load", "create", str(job), "--allow", str(tmp_path)]
    )
    assert created.exit_code == 0, created.output
    line = next(line for line in run(store, "top").splitlines() if "db.feed" in line)
    assert "routine" in line
    assert "0 rows loaded" in line


def test_a_terminal_is_drawn_until_ctrl_c(store: Store) -> None:
    main, worker = pty.openpty()
    command = [sys.executable, "-m", "seqstore", "--data-dir", str(store.path), "top", "-n", "0.2"]
    process = subprocess.Popen(command, stdin=worker, stdout=worker, stderr=worker)
    os.close(worker)
    seen = b""
    while seen.count(b"db.t") < 2:  # drawn twice at least
        seen += os.read(main, 65536)
    process.send_signal(signal.SIGINT)
    try:
        while os.read(main, 65536):
            pass
    except OSError:  # the other end is closed
        pass
    os.close(main)
    assert process.wait() == 130


def test_a_plot_has_a_bar_for_each_version_and_names_its_marks(store: Store) -> None:
    store.table("db.t").delete({"k": [3]})
    lines = run(store, "history", "db.t", "--plot").splitlines()
    assert len(lines) == 4
    assert "▒" not in lines[0]
    assert "█▒" in lines[1]
    assert lines[2].rstrip().endswith("─")
    assert lines[3] == "rows: █ won, ▒ lost (late or repeated), ░ filtered, ─ deleted"


def test_more_versions_than_lines_are_joined_and_no_row_is_lost(store: Store) -> None:
    table = store.table("db.t")
    for number in range(20):
        table.upsert(rows((number, number + 100)))
    lines = version_plot(table.history(), width=100, height=5).splitlines()
    assert len(lines) == 6
    assert sum(int(line.split("versions")[1].split()[0]) for line in lines[:-1]) == 25
    assert max(map(len, lines)) <= 100


def test_a_plot_uses_ascii_where_blocks_cannot_be_shown(store: Store) -> None:
    assert version_plot(store.table("db.t").history(), width=80, height=9, encoding="ascii").isascii()


def test_a_table_without_loads_says_so(store: Store) -> None:
    store.create_table("db.empty", TableSchema.from_arrow(SCHEMA, key=["k"]))
    assert run(store, "history", "db.empty", "--plot").strip() == (
        "no version of this table has loaded or deleted rows"
    )


def test_a_plot_is_no_format_and_of_no_key(store: Store) -> None:
    run(store, "history", "db.t", "--plot", "--format", "json", code=2)
    run(store, "history", "db.t", "--plot", "--key", "1", code=2)
