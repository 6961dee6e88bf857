"""The built distribution: what a wheel installs, and that it works beside a user's own packages.

One wheel, made from the sdist of the checkout, is installed into an environment that has no seqstore. Its
dependencies are those of the running environment: nothing is downloaded.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.kafka.jars import cache_directory
from seqstore import Session, Store, Table, Transaction

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
# Folders and files of the checkout that make the distribution.
SOURCES = ("README.md", "LICENSE", "pyproject.toml", ".package", "store", "loaders", "cli", "conf")
# Public methods that only other modules of the engine call.
OF_THE_ENGINE = {
    Store: {"drop_tables", "table_of_id", "maintainer"},
    Table: {
        *("advance", "checks", "hold", "hold_of_moment", "kept_versions", "lease"),
        *("maintainer", "meets_conflicts"),
        *("needed_versions", "only_moved", "policy", "published", "refuse_label", "remember", "shown_by"),
        "state",
        "write_task",
    },
    Transaction: {
        *("check_writable", "expire", "has_written", "lock", "lock_before_reading"),
        *("read_newest", "reserve", "writers"),
    },
    Session: {
        *("columns_of", "find_view", "full_name", "in_zone", "is_system", "moment"),
        *("note_answer", "note_failure", "parse", "query_context", "reading", "require", "require_admin"),
        *("require_within", "run", "schema", "sees_user", "stream", "table", "table_filter", "tables_of"),
        *("within", "workload_group", "working"),
    },
}

pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Environment:
    """A virtual environment and a folder of a user to run programs in."""

    python: Path
    folder: Path

    def run(self, *command: str | Path, path: Path | None = None) -> str:
        """Runs a command and returns what it printed; `path` is its PYTHONPATH."""
        variables = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        variables |= {"PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
        if path is not None:
            variables["PYTHONPATH"] = str(path)
        return _run(command, self.folder, variables)


def _run(command: Sequence[str | Path], folder: Path, variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of the checkout, and the wheel that the sdist makes."""
    work = tmp_path_factory.mktemp("build")
    checkout, target, unpacked = work / "checkout", work / "dist", work / "unpacked"
    checkout.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignored)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, checkout / name)
    _build("sdist", checkout, target)
    shutil.unpack_archive(next(target.glob("*.tar.gz")), unpacked, filter="data")
    _build("wheel", next(unpacked.iterdir()), target)
    return target


def _build(kind: str, source: Path, target: Path) -> None:
    program = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    target.mkdir(exist_ok=True)
    _run([sys.executable, "-c", program, target], source)


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


def _environment(folder: Path) -> Environment:
    """An environment that sees the running one's packages, but none that is installed in place."""
    venv.create(folder / "env", with_pip=False)
    environment = Environment(folder / "env" / "bin" / "python", folder / "user")
    site = Path(_purelib(environment))
    # Python reads the .pth files of its own site-packages only, so an editable install stays unseen.
    (site / "dependencies.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n"
    )
    for name in ("store", "loaders", "cli", "conf"):
        (environment.folder / name).mkdir()
        (environment.folder / name / "__init__.py").write_text("OWNER = 'the user'\n")
    return environment


def _purelib(environment: Environment) -> str:
    environment.folder.mkdir(exist_ok=True)
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return environment.run(environment.python, "-c", program).strip()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment without seqstore."""
    return _environment(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """An environment with the wheel."""
    environment = _environment(tmp_path_factory.mktemp("installed"))
    options = ["--no-deps", "--no-index", "--ignore-installed", "--quiet", "--disable-pip-version-check"]
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", environment.python, "install", *options]
    _run([*pip, wheel], environment.folder)
    return environment


@pytest.fixture(scope="module")
def files(installed: Environment) -> list[str]:
    """Every file that the wheel put into site-packages, as its RECORD lists them."""
    record = next(Path(_purelib(installed)).glob("seqstore-*.dist-info/RECORD"))
    return [line.split(",")[0] for line in record.read_text().splitlines()]


def first_program() -> tuple[str, str]:
    """README's first Python program, and the text below it."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    at = next(i for i, (kind, _) in enumerate(blocks) if kind == "python")
    assert blocks[at + 1][0] == "text"
    return blocks[at][1], blocks[at + 1][1]


def test_the_wheel_installs_one_package_and_one_script(installed: Environment, files: list[str]) -> None:
    of_package = {name.split("/")[0] for name in files if not name.startswith("../")}
    assert {name for name in of_package if not name.endswith(".dist-info")} == {"seqstore"}
    scripts = [name for name in files if name.startswith("../")]
    assert [Path(name).name for name in scripts] == ["seqstore"]
    top = next(name for name in files if name.endswith("top_level.txt"))
    assert (Path(_purelib(installed)) / top).read_text().split() == ["seqstore"]


def test_the_wheel_has_types_settings_and_example_jobs(files: list[str]) -> None:
    conf = [path for path in (ROOT / "conf").rglob("*") if path.is_file()]
    expected = {f"seqstore/conf/{path.relative_to(ROOT / 'conf')}" for path in conf}
    assert {"seqstore/conf/default.toml", "seqstore/conf/loads/orders.toml"} <= expected
    assert {"seqstore/py.typed", *expected} <= set(files)


def test_the_wheel_has_the_pages_of_the_console(files: list[str]) -> None:
    pages = {f"seqstore/{path.relative_to(ROOT)}" for path in (ROOT / "cli/console/static").iterdir()}
    assert {
        "seqstore/cli/console/static/index.html",
        "seqstore/cli/console/static/uplot-license.txt",
    } <= pages
    assert pages <= set(files)


def test_the_wheel_has_every_module_of_the_checkout(files: list[str]) -> None:
    modules = {
        f"seqstore/{path.relative_to(ROOT)}"
        for folder in ("store", "loaders", "cli")
        for path in (ROOT / folder).rglob("*.py")
    }
    installed = {name for name in files if name.startswith("seqstore/") and name.endswith(".py")}
    assert installed == modules | {"seqstore/__init__.py", "seqstore/__main__.py"}


def test_an_environment_without_the_wheel_has_no_seqstore(bare: Environment) -> None:
    found = bare.run(bare.python, "-c", "import importlib.util as u; print(u.find_spec('seqstore'))")
    assert found == "None\n"


def test_the_first_program_runs_beside_a_users_own_packages(installed: Environment) -> None:
    program, printed = first_program()
    (installed.folder / "first.py").write_text(program)
    assert installed.run(installed.python, "first.py") == printed


def test_a_users_own_packages_stay_importable(installed: Environment) -> None:
    program = (
        "import store, loaders, cli, conf, seqstore.loaders.spark, seqstore.cli.main, seqstore\n"
        "print({m.OWNER for m in (store, loaders, cli, conf)}, seqstore.Store.__module__)\n"
        "print(seqstore.__file__)"
    )
    owners, place = installed.run(installed.python, "-c", program).splitlines()
    assert owners == "{'the user'} seqstore.store.store"
    assert Path(place).is_relative_to(_purelib(installed))


def test_the_command_line_runs_as_script_and_as_module(installed: Environment) -> None:
    script = installed.run("seqstore", "--help")
    assert script == installed.run(installed.python, "-m", "seqstore", "--help")
    assert "stream-load" in script


@pytest.mark.long
def test_a_zip_of_the_package_runs_as_py_files_of_spark_do(
    installed: Environment, bare: Environment, files: list[str], tmp_path: Path
) -> None:
    """`spark-submit --py-files seqstore.zip` puts the archive on the executors' import path."""
    archive = tmp_path / "seqstore.zip"
    site = Path(_purelib(installed))
    with zipfile.ZipFile(archive, "w") as packed:
        for name in files:
            if name.startswith("seqstore/"):
                packed.write(site / name, name)
    program, printed = first_program()
    place = "import seqstore.loaders.spark\nassert seqstore.__file__.startswith(" + repr(str(archive)) + ")\n"
    (bare.folder / "zipped.py").write_text(place + program)
    assert bare.run(bare.python, "zipped.py", path=archive) == printed
    assert "stream-load" in bare.run(bare.python, "-m", "seqstore", "--help", path=archive)


@pytest.mark.parametrize("cls", [Store, Table, Transaction, Session])
def test_the_users_program_calls_every_public_function(cls: type) -> None:
    program = (HERE / "user_program.py").read_text()
    public = {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}
    assert {name for name in public - OF_THE_ENGINE[cls] if f".{name}" not in program} == set()


def test_the_users_program_runs(installed: Environment) -> None:
    shutil.copy(HERE / "user_program.py", installed.folder)
    assert installed.run(installed.python, "user_program.py")


@pytest.mark.long
def test_a_users_type_checker_sees_the_types(installed: Environment, tmp_path: Path) -> None:
    """mypy passes the program with every public function, and refuses each of the wrong calls."""
    pytest.importorskip("mypy")
    for name in ("user_program.py", "wrong_calls.py"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\n[mypy-pyarrow.*]\nignore_missing_imports = True\n"
    )
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mypy",
        "--python-executable",
        installed.python,
        "--no-error-summary",
        "--cache-dir",  # what it knows of other packages outlives the test; mypy compares hashes of files
        cache_directory() / "mypy-of-users",
    ]
    variables = {name: text for name, text in os.environ.items() if name not in {"PYTHONPATH", "MYPYPATH"}}
    done = subprocess.run(
        [*command, "user_program.py", "wrong_calls.py"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = enumerate((HERE / "wrong_calls.py").read_text().splitlines(), 1)
    expected = [(i, line.partition("# expect: ")[2]) for i, line in lines if "# expect: " in line]
    found = re.findall(r"^wrong_calls.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert [(int(i), code) for i, code in found] == expected, done.stdout + done.stderr
    assert "user_program.py" not in done.stdout
