"""The command line: answers, exit codes, one-line errors, quick help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqstore import ConflictError, CorruptionError, InvalidInputError, LoadRejectedError, Store, __version__
from seqstore.cli.main import app, exit_code
from seqstore.cli.server.settings import ServerSettings
from seqstore.loaders.broker.toml_spec import read_spec as broker_spec
from seqstore.loaders.routine.toml_spec import read_spec as routine_spec
from tests.support.children import MODULES
from tests.support.printed import WORKED_EXAMPLE
from tests.support.waiting import until

Invoke = Callable[..., Any]
ROOT = Path(__file__).parents[2]

TABLE = "CREATE DATABASE test; USE test; CREATE TABLE t (k INT NOT NULL, v VARCHAR(5) NULL) UNIQUE KEY(k)"
CREATE = f"CREATE DATABASE test; {WORKED_EXAMPLE}"
# The manual prints No; the setting columns_not_null_by_default does so too (tests/store/sql/test_manual.py).
DESC = """\
+-------------+--------------+------+-------+---------+---------+
| Field       | Type         | Null | Key   | Default | Extra   |
+-------------+--------------+------+-------+---------+---------+
| user_id     | BIGINT       | Yes  | true  | NULL    |         |
| date        | DATE         | Yes  | true  | NULL    |         |
| group_id    | BIGINT       | Yes  | true  | NULL    |         |
| modify_date | DATE         | Yes  | false | NULL    | REPLACE |
| keyword     | VARCHAR(128) | Yes  | false | NULL    | REPLACE |
+-------------+--------------+------+-------+---------+---------+
"""
ROW = """\
+---------+------------+----------+-------------+---------+
| user_id | date       | group_id | modify_date | keyword |
+---------+------------+----------+-------------+---------+
|       1 | 2020-02-22 |        1 | {}  | {}       |
+---------+------------+----------+-------------+---------+
"""


@pytest.fixture
def run(tmp_path: Path) -> Invoke:
    """Runs a command on a data directory of its own; `input` is standard input."""

    def invoke(*arguments: str, input: str | None = None) -> Any:
        return CliRunner().invoke(app, ["--data-dir", str(tmp_path / "data"), *arguments], input=input)

    return invoke


def sql(run: Invoke, text: str) -> str:
    result = run("sql", "-e", text)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def test_statements_come_from_options_files_and_standard_input(run: Invoke, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("SELECT '你好' AS a;", encoding="utf-8")
    expected = "+------+\n| a    |\n+------+\n| 你好 |\n+------+\n"
    assert run("sql", "--create", "-f", str(script)).stdout == expected
    assert run("sql", "-f", "-", input=script.read_text(encoding="utf-8")).stdout == expected
    assert run("sql", input=script.read_text(encoding="utf-8")).stdout == expected
    assert run("sql", "-e", "SELECT 1", "-e", "SELECT 2").stdout.count("|") == 8


def test_rows_come_in_the_form_asked_for(run: Invoke) -> None:
    sql(run, TABLE + "; INSERT INTO t VALUES (1, NULL), (2, 'x')")
    query = ("sql", "-D", "test", "-e", "SELECT * FROM t ORDER BY k", "--format")
    assert json.loads(run(*query, "json").stdout) == [{"k": 1, "v": None}, {"k": 2, "v": "x"}]
    assert run(*query, "csv").stdout == "k,v\n1,\\N\n2,x\n"
    assert run(*query, "markdown").stdout == "| k | v |\n| ---: | --- |\n| 1 | NULL |\n| 2 | x |\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("sql", "-e", "SELEC 1"), 1, "seqstore: line 1, column 1: expected a statement"),
        (("sql", "-e", "SELECT * FROM test.nope"), 1, "seqstore: Unknown table 'test.nope'"),
        (("sql", "-e", "INSERT INTO test.t VALUES (1, 'too long')"), 4, "seqstore: Insert has "
            "filtered data in strict mode"),
        (("sql", "-f", "/no/such/file"), 1, "seqstore: /no/such/file: no such file or directory"),
        (("sql", "-e", "SELECT 1", "-f", "x"), 2, "give either -e or -f"),
        (("history", "t"), 2, "expected DB.TABLE, found 't'"),
        (("history", "test.nope"), 1, "seqstore: Unknown table 'test.nope'"),
        (("stream-load", "test.t", "-T", "-", "-H", "nonsense"), 2, "expected -H 'name: value'"),
        (("nonsense",), 2, "No such command"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_and_an_exit_code(
    run: Invoke, arguments: tuple[str, ...], code: int, message: str
) -> None:
    sql(run, TABLE)
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert code == 2 or result.stderr.count("\n") == 1


def test_each_kind_of_failure_has_its_exit_code() -> None:
    kinds = [InvalidInputError, ConflictError, LoadRejectedError, CorruptionError]
    assert [exit_code(kind("x")) for kind in kinds] == [1, 3, 4, 5]
    assert exit_code(ZeroDivisionError()) is None


def test_debug_gives_the_trace(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["--data-dir", str(tmp_path), "--debug", "sql", "--create", "-e", "SELEC"]
    )
    assert isinstance(result.exception, InvalidInputError)


@pytest.mark.parametrize(
    "text", ["SELECT 1", "SHOW DATABASES", "CREATE TABLE d.t (k INT)", "-- CREATE DATABASE d"]
)
def test_sql_makes_no_store_in_a_mistyped_directory(run: Invoke, tmp_path: Path, text: str) -> None:
    result = run("sql", "-e", text)
    assert result.exit_code == 1
    assert f"{tmp_path / 'data'}: no store here" in result.stderr
    assert "--create" in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "text", ["create database d", "CREATE SCHEMA d", " /* a */ -- b\n# c\n;Create\nDatabase IF NOT EXISTS d"]
)
def test_a_first_create_database_makes_the_store(run: Invoke, text: str) -> None:
    assert run("sql", "-e", text, "-e", "SHOW DATABASES").exit_code == 0


@pytest.mark.long
def test_sql_loads_files_below_an_allowed_path(run: Invoke, tmp_path: Path) -> None:
    rows = tmp_path / "in" / "rows.csv"
    rows.parent.mkdir()
    rows.write_text("1,a\n2,b\n")
    load = f"LOAD LABEL l (DATA INFILE('file://{rows}') INTO TABLE t COLUMNS TERMINATED BY ',') WITH LOCAL"
    sql(run, "CREATE DATABASE d; CREATE TABLE d.t (k INT, v VARCHAR(9)) UNIQUE KEY(k)")
    here = ("--data-dir", str(tmp_path / "data"), "sql", "-D", "d")
    assert seqstore(*here, "-e", load).returncode == 0  # its job is a process of its own, and may go on
    until(lambda: "CANCELLED" in sql(run, "USE d; SHOW LOAD"))
    assert "--allow" in sql(run, "USE d; SHOW LOAD")
    assert seqstore(*here, "--allow", str(rows.parent), "-e", load).returncode == 0
    until(lambda: "FINISHED" in sql(run, "USE d; SHOW LOAD"))
    assert run("sql", "-e", "SELECT count(*) n FROM d.t", "--format", "csv").stdout == "n\n2\n"


def test_sql_waits_for_the_jobs_of_its_statements(run: Invoke) -> None:
    sql(
        run, "CREATE DATABASE d; CREATE TABLE d.t (k INT, v INT) UNIQUE KEY(k); INSERT INTO d.t VALUES (1, 2)"
    )
    sql(run, "ALTER TABLE d.t MODIFY COLUMN v VARCHAR(11)")
    shown = run("sql", "-D", "d", "-e", "SHOW ALTER TABLE COLUMN", "--format", "csv").stdout
    assert ",FINISHED," in shown
    assert run("sql", "-e", "SELECT v FROM d.t", "--format", "csv").stdout == "v\n2\n"


def test_a_missing_data_directory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEQSTORE_DATA_DIR", raising=False)
    result = CliRunner().invoke(app, ["sql", "-e", "SELECT 1"])
    assert (result.exit_code, "SEQSTORE_DATA_DIR" in result.stderr) == (2, True)
    absent = CliRunner().invoke(app, ["--data-dir", str(tmp_path / "absent"), "check"])
    assert absent.exit_code == 1
    assert not (tmp_path / "absent").exists()


def test_history_and_check_tell_what_happened(run: Invoke, tmp_path: Path) -> None:
    sql(run, TABLE + "; INSERT INTO t WITH LABEL first VALUES (1, 'a'), (1, 'b')")
    (created, loaded) = json.loads(run("history", "test.t", "--format", "json").stdout)
    assert (created["version"], created["operation"]) == (1, "CREATE TABLE")
    assert (loaded["version"], loaded["label"], loaded["rows_total"], loaded["rows_superseded"]) == (
        2,
        "first",
        2,
        1,
    )
    assert run("check").stdout == "test.t: sound\n"
    assert run("check", "test.t").exit_code == 0
    with Store.open(tmp_path / "data") as store:
        assert store.table("test.t").check() == []


# What takes long to import, and what of the engine a short command has no use for.
HEAVY = {
    "aiohttp", "asyncio", "confluent_kafka", "cryptography", "duckdb", "grpc", "obstore",
    "opentelemetry", "pandas", "prometheus_client", "prompt_toolkit", "pyarrow.csv", "pyarrow.flight",
    "pyarrow.json", "pyarrow.orc", "pydantic", "pyiceberg", "pyspark", "rich", "xml", "seqstore.cli.server",
    "seqstore.loaders.broker", "seqstore.loaders.csv", "seqstore.loaders.json", "seqstore.loaders.routine",
    "seqstore.loaders.spark", "seqstore.store.remote.connection", "seqstore.store.sql.statements.accounts",
}  # fmt: skip
if tuple(map(int, version("typer").split(".")[:2])) < (0, 19):
    HEAVY.discard("rich")  # which it imports at its start
ENGINE = {"numpy", "pyarrow", "lmdb", "seqstore.loaders", "seqstore.store", "sqlglot"}


def modules_of(program: str) -> set[str]:
    """Runs a program in a new interpreter and returns the modules it has imported at its end."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys\ntry:\n {program}\nfinally:\n print(*sys.modules, file=sys.stderr)",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "program",
    ["import seqstore", "from seqstore.cli.main import app; app(['--help'])"],
    ids=["package", "help"],
)
def test_the_package_and_help_import_neither_engine_nor_anything_heavy(program: str) -> None:
    assert (HEAVY | ENGINE) & modules_of(program) == set()


def test_a_query_without_tables_imports_nothing_heavy_but_the_engine(tmp_path: Path) -> None:
    """typer imported pydantic, and SELECT all families of statements."""
    Store.open(tmp_path / "data", create=True).close()
    arguments = ["--data-dir", str(tmp_path / "data"), "sql", "-e", "SELECT 1"]
    imported = modules_of(f"from seqstore.cli.main import app; app({arguments})")
    assert HEAVY & imported == set()
    assert imported >= ENGINE - {"seqstore.loaders"}
    families = {name for name in imported if name.startswith("seqstore.store.sql.statements.")}
    assert families == {"seqstore.store.sql.statements.query"}


def test_collections_of_garbage_leave_out_what_a_command_imported() -> None:
    """The first collection behind the imports took 40 ms."""
    program = (
        "import gc\nfrom seqstore.cli.context import quick_imports\n"
        "with quick_imports():\n import seqstore.store.store\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 10_000\n"
        "gc.unfreeze()\n"
        "with quick_imports():\n pass\n"
        "assert gc.isenabled() and gc.get_freeze_count() == 0  # all garbage would stay for ever\n"
    )
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": MODULES}, check=True)


def test_commands_import_neither_pandas_nor_spark(tmp_path: Path) -> None:
    """pyarrow imported pandas where it is installed: half of the time of a short command.

    `sql` imported the modules of load jobs, and every command those of servers and Spark.
    """
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.csv").write_text(f"{name},1\n")
    job = tmp_path / "job.toml"
    job.write_text(
        'database = "db"\nlabel = "job"\n[[load]]\ntable = "t"\npaths = ["*.csv"]\n'
        'column_separator = ","\ncolumns = ["k", "v"]\n'
    )
    made = "CREATE DATABASE db; CREATE TABLE db.t (k VARCHAR(9), v INT) UNIQUE KEY(k)"
    for command in (["sql", "-e", made], ["broker-load", str(job)], ["sql", "-e", "SELECT * FROM db.t"]):
        arguments = ["--data-dir", str(tmp_path / "data"), *command]
        program = (
            f"import sys; from seqstore.cli.main import app\ntry: app({arguments})\nfinally: "
            "print(*sys.modules, file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
        )
        needless = {"pandas", "pyspark", "asyncio", "seqstore.loaders.spark"}
        needless |= {"seqstore.loaders.broker", "seqstore.loaders.routine"} if command[0] == "sql" else set()
        needless |= (
            {"duckdb"} if made not in command else set()
        )  # a scan alone, and a load without expressions
        needless |= {"seqstore.store.sql.statements"} if command[0] == "broker-load" else set()
        assert not needless & set(done.stderr.split()), command
    assert done.stdout.count("|") == 12
    assert all(f"| {name} | 1 |" in done.stdout for name in "abc")


def test_serve_tells_which_package_it_misses(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['aiohttp'] = None; import importlib.util as util; find = util.find_spec; "
        "util.find_spec = lambda name: None if name == 'aiohttp' else find(name); "
        f"from seqstore.cli.main import app; app(['--data-dir', {str(tmp_path)!r}, 'serve'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "seqstore: serving needs the package 'aiohttp', which is not installed; "
        "pip install 'seqstore[server]'\n"
    )


def test_every_command_has_help(run: Invoke) -> None:
    for command in ("sql", "stream-load", "history", "check", "demo"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert command in result.stdout


def seqstore(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m seqstore`."""
    return subprocess.run(
        [sys.executable, "-m", "seqstore", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_version_is_that_of_the_package() -> None:
    done = seqstore("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"seqstore {__version__}\n", "")


def test_the_module_shows_the_name_of_the_command() -> None:
    assert seqstore("--help").stdout.startswith("Usage: seqstore [OPTIONS] COMMAND [ARGS]...\n")
    assert "Usage: seqstore sql " in seqstore("sql", "--nothing").stderr


def test_help_names_the_files_of_the_package() -> None:
    listed = seqstore("--help", COLUMNS="40").stdout.partition("\nFiles:\n")[2].splitlines()
    settings, loads, routine, operations = (Path(line.rpartition("  ")[2].strip()) for line in listed)
    assert ServerSettings.load(settings) == ServerSettings()
    assert broker_spec(loads / "orders.toml").label
    assert routine_spec(routine / "clicks.toml").name == "clicks"
    assert (operations / "seqstore.service").is_file()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str) -> None:
    words = {"_TYPER_COMPLETE_ARGS": "seqstore rou", "COMP_WORDS": "seqstore rou", "COMP_CWORD": "1"}
    done = seqstore(_SEQSTORE_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_FISH_ACTION="get-args", **words)
    assert done.returncode == 0
    assert "routine-load" in done.stdout
    assert "vacuum" not in done.stdout


def test_completion_is_shown_and_installed(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = seqstore("--show-completion", "bash", **variables)
    assert (shown.returncode, "_SEQSTORE_COMPLETE=complete_bash" in shown.stdout) == (0, True)
    installed = seqstore("--install-completion", "bash", **variables)
    assert installed.returncode == 0, installed.stderr
    script = tmp_path / ".bash_completions" / "seqstore.sh"
    assert script.read_text().strip() == shown.stdout.strip()
    assert str(script) in (tmp_path / ".bashrc").read_text()


LOADS = [
    (
        "1\t2020-02-22\t1\t2020-02-21\ta\n1\t2020-02-22\t1\t2020-02-22\tb\n1\t2020-02-22\t1\t2020-03-05\tc\n"
        "1\t2020-02-22\t1\t2020-02-26\td\n1\t2020-02-22\t1\t2020-02-23\te\n1\t2020-02-22\t1\t2020-02-24\tb\n",
        ROW.format("2020-03-05", "c"),
    ),
    ("1\t2020-02-22\t1\t2020-02-22\ta\n1\t2020-02-22\t1\t2020-02-23\tb\n", ROW.format("2020-03-05", "c")),
    ("1\t2020-02-22\t1\t2020-02-22\ta\n1\t2020-02-22\t1\t2020-03-23\tw\n", ROW.format("2020-03-23", "w")),
]


def test_the_documented_story_prints_what_the_documentation_prints(run: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("seqstore.loaders.stream_load", exc_type=ImportError)
    sql(run, CREATE)
    assert sql(run, "USE test; desc test_table;") == DESC
    for number, (lines, expected) in enumerate(LOADS):
        data = tmp_path / f"testData{number}"
        data.write_text(lines)
        loaded = run("stream-load", "test.test_table", "-T", str(data))
        assert loaded.exit_code == 0, loaded.stdout + loaded.stderr
        assert json.loads(loaded.stdout)["Status"] == "Success"
        assert sql(run, "USE test; select * from test_table;") == expected


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("column_separator: ,", "1,a"),
        ("column_separator:,", "1,a"),
        ("Column_Separator:  ", "1 a"),
        ("column_separator: \t", "1\ta"),
        ("column_separator:\t", "1\ta"),
        ("column_separator:  |", "1 |a"),
        ("column_separator: \\x20", "1 a"),
    ],
)
def test_one_blank_after_the_colon_of_a_header_is_dropped_and_no_more(
    run: Invoke, tmp_path: Path, header: str, row: str
) -> None:
    """LH3: separators may be blanks and tabs."""
    run("sql", "-e", TABLE)
    data = tmp_path / "rows.csv"
    data.write_text(row + "\n")
    result = run("stream-load", "test.t", "-T", str(data), "-H", header)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["NumberLoadedRows"] == 1


def test_a_rejected_stream_load_exits_with_4_and_still_prints_its_reply(run: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("seqstore.loaders.stream_load", exc_type=ImportError)
    sql(run, TABLE)
    data = tmp_path / "rows.csv"
    data.write_text("1,a\nx,b\n")
    result = run("stream-load", "test.t", "-T", str(data), "-H", "column_separator: ,", "-H", "label: once")
    reply = json.loads(result.stdout)
    assert (result.exit_code, reply["Status"], reply["NumberFilteredRows"]) == (4, "Fail", 1)
    data.write_text("1,a\n")
    again = ("stream-load", "test.t", "-T", str(data), "-H", "column_separator:,", "-H", "label:once")
    assert run(*again).exit_code == 0
    repeated = run(*again)
    assert (repeated.exit_code, json.loads(repeated.stdout)["Status"]) == (1, "Label Already Exists")


STREAMS = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-"}


@pytest.mark.parametrize("closed", [*STREAMS, "all"])
def test_a_command_whose_streams_are_closed_runs(tmp_path: Path, closed: str) -> None:
    """It ended by a trace or in silence, and the first file of the store would have been the stream."""
    ends = " ".join(STREAMS.values()) if closed == "all" else STREAMS[closed]
    text = "CREATE DATABASE d; USE d; CREATE TABLE t (k INT) UNIQUE KEY(k); INSERT INTO t VALUES (1); "
    text += "SELECT * FROM t"
    command = f"exec {sys.executable} -m seqstore --data-dir {tmp_path / 'data'} sql -e '{text}' {ends}"
    environment = {**os.environ, "PYTHONPATH": MODULES}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("| 1 |" in done.stdout) == (closed not in ("stdout", "all"))
    with Store.open(tmp_path / "data") as store:
        assert store.table("d.t").count() == 1


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_options_that_cannot_be_printed_end_in_one_line(option: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "seqstore", option],
            env={**os.environ, "PYTHONPATH": MODULES, "PYTHONUNBUFFERED": "1"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "o space left on device" in done.stderr


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (b"\xef\xbb\xbfSELECT 1\r\n;\r\n", 0, "| 1 "),
        (b"SELECT '\xff'", 2, "byte 8 is not UTF-8"),
    ],
    ids=["mark of an editor", "not UTF-8"],
)
def test_a_file_of_statements_is_text(
    run: Invoke, tmp_path: Path, content: bytes, status: int, told: str
) -> None:
    Store.open(tmp_path / "data", create=True).close()
    (tmp_path / "in.sql").write_bytes(content)
    done = run("sql", "-f", str(tmp_path / "in.sql"))
    assert done.exit_code == status, done.output
    assert told in done.output


@pytest.mark.parametrize("command", ["history", "check", "optimize", "changes", "stream-load"])
def test_a_name_that_is_no_text_is_refused(run: Invoke, tmp_path: Path, command: str) -> None:
    """It ended in the trace of an encoder."""
    Store.open(tmp_path / "data", create=True).close()
    done = run(command, "shop.\udcff", *(["-T", "-"] if command == "stream-load" else []))
    assert done.exit_code == 2, done.output
    assert "expected DB.TABLE of letters and digits" in " ".join(done.output.split())
