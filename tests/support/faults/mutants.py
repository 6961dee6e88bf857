"""One-line faults of the product, and the tests that notice them: `make mutants`.

    python -m tests.support.faults.mutants store/publish/winner_test.py store/conflict
    python -m tests.support.faults.mutants --sample 40 --seed 7 store/fill
    python -m tests.support.faults.mutants --table

1. The faults of `planted.toml` are planted one by one. The test that is named there must notice each.
2. The files of tests of a layer run once without a fault, and record the lines that each test runs. A file
   is recorded when a mutant is left for it.
3. For each module every comparison, condition, operator, number, truth value and statement of its functions
   is changed once, in a copy of the repository. The tests that run the changed lines run until the first
   failure, file by file: those that have noticed a fault of the module, then the short ones. A run without an
   end, and a process that crashes, have noticed the fault. A mutant that no test notices has survived.

`.mutants` keeps records and results, so that a run that was stopped goes on. A result counts as long as the
module is as it was, and the tests that decided it. `survivors.toml` explains survivors that change nothing
which a caller sees; all others are printed, and make the run fail. `--table` prints the results so far.

cosmic-ray and mutmut of PyPI fit less: the first removes no statements, which is the fault of a missing sync,
and edits the checkout in place; the second forks processes that have an open LMDB environment.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.faults.forked_pytest import ARGUMENTS, FAILED, UNFIT, ForkedPytest, environment_of
from tests.support.faults.mutations import Mutant, lines_of_functions, mutants_of, without_effect
from tests.support.faults.touched import CHOSEN, NOTICED, RECORD, TOUCHED

ROOT: Final = Path(__file__).parents[3]
KEPT: Final = ROOT / ".mutants"
RESULTS: Final = KEPT / "results.jsonl"
RECORDS: Final = KEPT / "touched"
EXPLAINED: Final = Path(__file__).with_name("survivors.toml")
PLANTED: Final = Path(__file__).with_name("planted.toml")
_COPIED: Final = (".package", "bench", "cli", "conf", "docs", "loaders", "store", "tests")
_HEART: Final = (
    "store/publish",
    "store/conflict",
    "store/failover",
    "store/fill",
    "store/catalog",
    "store/segment",
    "store/maintenance",
    "store/sql/session/privileges.py",
    "store/transaction",
    "store/types/cast",
)
_SECONDS_MAX: Final = 30.0  # of the tests of one file for one mutant, as they were recorded
_TRIED_MAX: Final = 3  # tests of a file that are tried for whether it loads a module
_FIRST: Final = 3  # tests that noticed most so far, which run before the short ones
# Tests of the engine as a whole, for what the tests of its layer did not notice.
_WHOLE: Final = (
    "tests/store/transaction",
    "tests/store/conflict",
    "tests/store/ddl",
    "tests/store/load",
    "tests/loaders/test_schema_evolution.py",
    "tests/stateful",
    "tests/concurrency",
    "tests/crash",
)
# Folder or module -> its tests. The longest name that fits decides.
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "loaders": ("tests/loaders/test_*.py",),
    "store/catalog": (
        "tests/store/catalog",
        "tests/store/publish",
        "tests/store/failover/test_shipping.py",
        "tests/crash/test_sync_order.py",
    ),
    "store/catalog/access": (
        "tests/store/catalog/test_privileges.py",
        "tests/store/catalog/test_accounts.py",
        "tests/cli/test_logins.py",
    ),
    "store/catalog/environment/page_check.py": ("tests/crash/test_flipped_catalog.py", "tests/store/catalog"),
    "store/catalog/update_lock.py": (
        "tests/store/locks",
        "tests/store/transaction",
        "tests/store/sql/test_isolation_sql.py",
        "tests/store/sql/test_dml.py",
    ),
    "store/catalog/ship_log": (
        "tests/store/failover",
        "tests/crash/test_shipping_kills.py",
        "tests/crash/test_failover.py",
    ),
    "store/check": ("tests/store/check", "tests/store/load", "tests/store/fill"),
    "store/conflict": (
        "tests/store/conflict",
        "tests/store/sql/test_isolation_sql.py",
        "tests/store/publish/test_two_phase_transactions.py",
        "tests/store/ddl/test_alter.py",
    ),
    "store/failover": (
        "tests/store/failover",
        "tests/crash/test_shipping_kills.py",
        "tests/crash/test_failover.py",
    ),
    "store/fill": ("tests/store/fill", "tests/store/publish", "tests/store/maintenance/test_restore.py"),
    "store/history": (
        "tests/store/history",
        "tests/store/maintenance",
        "tests/store/sql/test_maintenance.py",
    ),
    "store/load": ("tests/store/load", "tests/store/fill", "tests/store/transaction"),
    "store/locks": ("tests/store/locks", "tests/store/sql/test_isolation_sql.py", "tests/store/publish"),
    "store/maintenance": (
        "tests/store/maintenance",
        "tests/store/history",
        "tests/store/sql/test_maintenance.py",
        "tests/store/publish/test_tombstones.py",
        "tests/stateful/test_maintenance_machine.py",
    ),
    "store/publish": (
        "tests/store/publish",
        "tests/store/load",
        "tests/store/fill",
        "tests/store/conflict/test_isolation.py",
        "tests/store/maintenance/test_restore.py",
        "tests/crash/test_sync_order.py",
    ),
    "store/read": (
        "tests/store/read",
        "tests/store/load",
        "tests/store/maintenance",
        "tests/store/sql/test_select.py",
    ),
    "store/remote": (
        "tests/store/remote",
        *(f"tests/cli/remote/test_{name}.py" for name in ("calls", "lost_replies", "replies", "values")),
        *(f"tests/cli/remote/test_{name}.py" for name in ("surface", "tasks", "access", "processes")),
    ),
    "store/segment": ("tests/store/segment", "tests/store/load", "tests/crash/test_sync_order.py"),
    "store/sql/evaluate": (
        "tests/store/sql/evaluate",
        "tests/store/sql/test_select.py",
        "tests/store/sql/translate/test_join_sources.py",
        "tests/store/sql/test_logic.py",
    ),
    "store/sql/session/privileges.py": (
        "tests/store/catalog/test_privileges.py",
        "tests/cli/mysql/test_privileges.py",
        "tests/cli/test_logins.py",
        "tests/store/sql/session",
    ),
    "store/sql/statements/dml.py": ("tests/store/sql/test_*.py", "tests/store/sql/statements"),
    "store/sql/translate": ("tests/store/sql/translate", "tests/store/sql/test_sandbox.py"),
    "store/sql/write": ("tests/store/sql/test_*.py", "tests/store/sql/statements"),
    "store/transaction": ("tests/store/transaction", "tests/store/conflict", "tests/store/sql/test_dml.py"),
    "store/types": ("tests/store/types", "tests/store/check", "tests/loaders/test_csv.py"),
}


@dataclass(frozen=True)
class Planted:
    """A fault that was planted by hand.

    Attributes:
        name: what goes wrong, in words.
        before: text that occurs once in the module.
        test: notices the fault.
    """

    name: str
    module: str
    before: str
    after: str
    test: str

    def planted(self) -> str:
        """Returns the text of the module with the fault.

        Raises:
            ValueError: the module does not have the text exactly once.
        """
        text = (ROOT / self.module).read_text()
        if text.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: {self.module} has {text.count(self.before)} times {self.before!r}"
            )
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class Result:
    """The result of one mutant.

    Attributes:
        module: its path, and `state` the digest of its text.
        by: the test that noticed it, empty if none did.
        decided: digest of the files of the tests that decided.
        tests: how many tests ran at most.
    """

    module: str
    name: str
    state: str
    survived: bool
    by: str
    decided: str
    tests: int


def files_of_tests(module: str) -> list[str]:
    """The files with the tests of a module: a file of its name first, those of its layer, those of all."""
    layers = [name for name in TESTS if module == name or module.startswith(f"{name}/")]
    if not layers:
        raise SystemExit(f"{module}: no tests are named for its layer in {Path(__file__).name}")
    found = sorted(ROOT.joinpath("tests").rglob(f"test_{Path(module).stem.removeprefix('test_')}.py"))
    for name in (*TESTS[max(layers, key=len)], *(_WHOLE if module.startswith("store/") else ())):
        found += (
            sorted((ROOT / name).rglob("test_*.py")) if (ROOT / name).is_dir() else sorted(ROOT.glob(name))
        )
    return list(dict.fromkeys(str(path.relative_to(ROOT)) for path in found))


@cache
def digest(*names: str) -> str:
    """Returns a digest of the bytes of some files."""
    found = hashlib.blake2b(digest_size=8)
    for name in names:
        found.update((ROOT / name).read_bytes())
    return found.hexdigest()


class Runner:
    """Runs tests in a copy of the repository.

    Args:
        test_files: all that may run.
    """

    def __init__(self, folder: Path, test_files: Sequence[str]) -> None:
        self._folder = folder / "copy"
        self._folder.mkdir()
        for name in _COPIED:
            shutil.copytree(
                ROOT / name, self._folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, self._folder / name)
        start = "import os\nif 'SEQSTORE_TOUCHED' in os.environ:\n    "
        start += "from tests.support.faults.touched import start_in_child\n    start_in_child()\n"
        (self._folder / "sitecustomize.py").write_text(start)
        self._noticed, self._chosen = folder / "noticed", folder / "chosen"
        self._forked = ForkedPytest(self._folder, test_files, folder / "tests.log")
        self._passed: set[str] = set()

    @property
    def tests(self) -> frozenset[str]:
        """The names of the tests that were collected; a record may be of a run that drew others."""
        return self._forked.tests

    def close(self) -> None:
        self._forked.close()

    def record(self, test_file: str) -> None:
        """Runs the tests of a file, and keeps the lines that each of them ran."""
        folder = Path(tempfile.mkdtemp(dir=self._folder.parent))
        code = self._forked.run([test_file], {TOUCHED: str(folder)}, stops=False)
        kept = folder / RECORD
        if code is None:
            raise SystemExit(f"{test_file}: its tests do not end")
        tests = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
        by_name = {test["test"]: test for test in tests}
        for child in folder.glob("*.child"):
            for line in child.read_text().splitlines():
                module, number, name = line.split("\t")
                if name in by_name:
                    by_name[name]["lines"].setdefault(module, []).append(int(number))
        for test in tests:
            if test["outcome"] == "failed":
                print(f"not used, it fails without a fault: {test['test']}", flush=True)
        modules = sorted({module for test in tests for module in test["lines"]})
        states = {module: digest(module) for module in modules if (ROOT / module).exists()}
        record = {"state": digest(test_file), "modules": states, "tests": tests}
        path = _record_path(test_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
        shutil.rmtree(folder)

    def noticed_by(
        self, module: str, text: str, tests: Sequence[str], seconds: float, function: str = ""
    ) -> str | None:
        """Runs tests with another text of a module; returns the one that failed, None if all passed.

        Args:
            function: that differs.
        """
        self._noticed.unlink(missing_ok=True)
        with self._text_of(module, text):
            code = self._forked.run(
                tests,
                {NOTICED: str(self._noticed)},
                changed=module,
                cpu_seconds=20 + 10 * seconds,
            )
            if code == UNFIT or (code == 0 and self._forked.ran_at_import(module, function)):
                code = self._fresh(tests)
        if code == 0:
            return None
        return self._noticed.read_text().splitlines()[0] if self._noticed.exists() else tests[0]

    def _fresh(self, tests: Sequence[str]) -> int:
        """Runs tests in a process of their own."""
        self._chosen.write_text("\n".join(tests))
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        environment = environment_of(self._folder) | {
            CHOSEN: str(self._chosen),
            NOTICED: str(self._noticed),
        }
        command = [sys.executable, "-m", "pytest", *ARGUMENTS, "-x", *files]
        with self._forked.log.open("ab") as log:
            try:
                code = subprocess.run(
                    command,
                    cwd=self._folder,
                    env=environment,
                    stdout=log,
                    stderr=log,
                    timeout=600,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                return FAILED
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise SystemExit(f"pytest found none of {len(tests)} tests")
        return code

    def notices(self, fault: Planted) -> bool:
        """Whether the test that is named with a planted fault notices it, and passes without it."""
        if fault.test not in self._passed:
            if self._forked.run([fault.test], {}) != 0:
                print(f"{fault.test} fails without a fault")
                return False
            self._passed.add(fault.test)
        return self.noticed_by(fault.module, fault.planted(), [fault.test], 60) is not None

    @contextmanager
    def _text_of(self, module: str, text: str) -> Iterator[None]:
        """Gives a module of the copy another text for the length of a block."""
        path = self._folder / module
        original = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(original)


def _record_path(test_file: str) -> Path:
    return RECORDS / f"{test_file.replace('/', '+')}.json"


class Choice:
    """The tests of a file by the lines of a module that they run, as far as they pass without a fault."""

    def __init__(self, runner: Runner, module: str, test_file: str) -> None:
        self._killed: dict[str, int] = {}
        self._tests = {
            test["test"]: (test["seconds"], frozenset(test["lines"][module]))
            for test in _record_of(runner, module, test_file)["tests"]
            if test["outcome"] == "passed" and module in test["lines"] and test["test"] in runner.tests
        }

    def noticed(self, test: str) -> None:
        """Counts that a test has noticed a mutant."""
        self._killed[test] = self._killed.get(test, 0) + 1

    def of(self, lines: Collection[int], seconds_max: float) -> tuple[list[str], float]:
        """Returns the tests that run any of some lines, in their order, and their seconds together."""
        fit = {
            test: seconds for test, (seconds, touched) in self._tests.items() if not touched.isdisjoint(lines)
        }
        known = sorted((test for test in fit if test in self._killed), key=lambda test: -self._killed[test])
        chosen: list[str] = []
        total = 0.0
        for test in dict.fromkeys([*known[:_FIRST], *sorted(fit, key=lambda test: fit[test])]):
            if not chosen or total + fit[test] <= seconds_max:
                chosen.append(test)
                total += fit[test]
        return chosen, total


def _record_of(runner: Runner, module: str, test_file: str) -> Any:
    """Returns the lines that the tests of a file ran, recorded anew where the file or the module changed."""
    path = _record_path(test_file)
    if path.exists():
        record = json.loads(path.read_text())
        if record["state"] == digest(test_file) and record["modules"].get(module) in (None, digest(module)):
            return record
    started = time.monotonic()
    runner.record(test_file)
    print(f"recorded {test_file} in {time.monotonic() - started:.0f} s", flush=True)
    return json.loads(path.read_text())


def results() -> dict[str, Result]:
    """Returns the results that count, by the name of the mutant."""
    if not RESULTS.exists():
        return {}
    lines = (Result(**json.loads(line)) for line in RESULTS.read_text().splitlines())
    return {line.name: line for line in lines if (ROOT / line.module).exists() and _counts(line)}


def _counts(result: Result) -> bool:
    if result.state != digest(result.module):
        return False
    if result.survived:
        return result.decided == digest(*files_of_tests(result.module))
    test_file = result.by.partition("::")[0]
    return (ROOT / test_file).exists() and result.decided == digest(test_file)


@dataclass(frozen=True)
class Limits:
    """How much of a module runs.

    Attributes:
        sample, seed: so many mutants of it, chosen by a seed; 0 for all.
        seconds: of the tests of one file for each mutant, as they were recorded.
        files: so many files of tests, 0 for all.
    """

    sample: int
    seed: int
    seconds: float
    files: int


def run_module(runner: Runner, module: str, limits: Limits) -> tuple[int, list[Mutant]]:
    """Runs the mutants of a module that have no result yet; returns how many there are, and the survivors.

    Each file of tests sees the mutants that the files before did not notice.
    """
    chosen = list(mutants_of(ROOT, module))
    if limits.sample:  # a larger sample has the mutants of a smaller one
        random.Random(f"{limits.seed} {module}").shuffle(chosen)
        chosen = chosen[: limits.sample]
    known = {name: result.survived for name, result in results().items()}
    left = {mutant: text for mutant, text in chosen if mutant.name not in known}
    ran = dict.fromkeys(left, 0)
    is_loaded = False  # a file of tests that does not load the module cannot notice anything
    for test_file in files_of_tests(module)[: limits.files or None]:
        if not left:
            break
        choice = Choice(runner, module, test_file)
        is_loaded = is_loaded or _is_loaded(runner, module, choice)
        if not is_loaded:
            continue
        for mutant in list(left):
            started = time.monotonic()
            tests, seconds = choice.of(range(mutant.lines[0], mutant.lines[1] + 1), limits.seconds)
            ran[mutant] += len(tests)
            by = None
            if tests:
                by = runner.noticed_by(module, left[mutant](), tests, seconds, mutant.function)
            if by is not None:
                choice.noticed(by)
                del left[mutant]
                known[mutant.name] = False
                _keep(mutant, by, ran[mutant])
                print(f"{time.monotonic() - started:.1f} s  {mutant.name}  {by}", flush=True)
    for mutant in left:
        known[mutant.name] = True
        if not limits.files:  # else other files may notice it
            _keep(mutant, None, ran[mutant])
    return len(chosen), [mutant for mutant, _ in chosen if known[mutant.name]]


def _is_loaded(runner: Runner, module: str, choice: Choice) -> bool:
    """Whether tests of a file load the module of the copy: one fails when its functions do, and only then.

    The tests that run a line of a function are tried from the shortest on. A test that catches all errors
    does not show it.
    """
    text = (ROOT / module).read_text()
    tests, _ = choice.of(lines_of_functions(text), math.inf)
    for test in tests[:_TRIED_MAX]:
        fails = [
            runner.noticed_by(module, each, [test], _SECONDS_MAX) for each in (text, without_effect(text))
        ]
        if fails[0] is None and fails[1] is not None:
            return True
        why = "fails without a fault" if fails[0] else "passes when its functions fail"
        print(f"{module}: {test} {why}", flush=True)
    return False


def _keep(mutant: Mutant, by: str | None, tests: int) -> None:
    files = files_of_tests(mutant.module) if by is None else [by.partition("::")[0]]
    result = Result(
        mutant.module, mutant.name, digest(mutant.module), by is None, by or "", digest(*files), tests
    )
    KEPT.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def planted_faults() -> list[Planted]:
    """Returns the faults of `planted.toml`."""
    return [Planted(**fault) for fault in tomllib.loads(PLANTED.read_text())["fault"]]


def explained() -> set[str]:
    """Returns the names of the survivors that change nothing which a caller sees."""
    return {entry["mutant"] for entry in tomllib.loads(EXPLAINED.read_text()).get("survivor", [])}


def run_planted(runner: Runner, faults: Sequence[Planted]) -> int:
    """Plants faults one by one; returns how many no test noticed."""
    left = 0
    for fault in faults:
        is_noticed = runner.notices(fault)
        left += not is_noticed
        print(f"{'noticed' if is_noticed else 'NOT NOTICED'}: {fault.name} ({fault.test})", flush=True)
    return left


def _test_files(modules: Sequence[str], count: int) -> list[str]:
    return [test_file for module in modules for test_file in files_of_tests(module)[: count or None]]


def table_rows() -> Iterator[str]:
    """Yields the results by module as rows of a Markdown table."""
    equivalent = explained()
    by_module: dict[str, list[Result]] = {}
    for result in results().values():
        by_module.setdefault(result.module, []).append(result)
    for module, found in sorted(by_module.items()):
        survived = [result for result in found if result.survived]
        same = sum(result.name in equivalent for result in survived)
        noticed, left = len(found) - len(survived), len(survived) - same
        share = 100 * noticed / max(1, noticed + left)
        yield f"| `{module}` | {len(found)} | {noticed} | {same} | {left} | {share:.0f} % |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=_HEART, help="files or folders")
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument(
        "--seconds", type=float, default=_SECONDS_MAX, help="of the tests of a file for each mutant"
    )
    parser.add_argument("--files", type=int, default=0, help="at most so many files of tests of each module")
    parser.add_argument("--planted", metavar="TEXT", help="only the planted faults whose name has a text")
    parser.add_argument("--no-planted", action="store_true", help="leave the planted faults out")
    parser.add_argument("--table", action="store_true", help="print the results so far")
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    if given.table:
        print(*table_rows(), sep="\n")
        return 0
    modules = [
        str(path.relative_to(ROOT))
        for name in given.modules
        for path in (sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / name])
        if path.name != "__init__.py"
    ]
    print(f"seed {given.seed}, at most {given.sample or 'all'} mutants of a module", flush=True)
    with tempfile.TemporaryDirectory(prefix="seqstore-mutants-") as folder:
        planted = [] if given.no_planted else [f for f in planted_faults() if (given.planted or "") in f.name]
        modules = [] if given.planted is not None else modules
        files = [*(fault.test.partition("::")[0] for fault in planted), *_test_files(modules, given.files)]
        runner = Runner(Path(folder), list(dict.fromkeys(files)))
        left = run_planted(runner, planted)
        if modules:
            left += _run_modules(runner, modules, given)
        runner.close()
    return 1 if left else 0


def _run_modules(runner: Runner, modules: Sequence[str], given: argparse.Namespace) -> int:
    """Runs modules, prints their survivors, and returns how many are not explained."""
    total, left, same = 0, 0, explained()
    limits = Limits(given.sample, given.seed, given.seconds, given.files)
    for module in modules:
        count, survivors = run_module(runner, module, limits)
        unexplained = [mutant for mutant in survivors if mutant.name not in same]
        print(f"{module}: {count} mutants, {len(survivors)} survived, {len(unexplained)} not explained")
        for mutant in unexplained:
            line = (ROOT / module).read_text().splitlines()[mutant.lines[0] - 1].strip()
            print(f"  line {mutant.lines[0]}: {mutant.name!r} in {line}", flush=True)
        total, left = total + count, left + len(unexplained)
    print(f"{total} mutants, {left} survivors without an explanation")
    return left


if __name__ == "__main__":
    sys.exit(main())
