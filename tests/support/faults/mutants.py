"""One-line faults of chosen modules, and the tests of their layer that notice them: `make mutants`.

    python -m tests.support.faults.mutants store/publish/winner_test.py store/conflict
    python -m tests.support.faults.mutants --sample 40 --seed 7 store/fill

For each module every comparison, condition, operator, number, truth value and statement of its functions is
changed once, in a copy of the repository, and the tests run there until the first failure. A mutant that no
test notices has survived. `.mutants/results.jsonl` keeps the results, so that a run that was stopped goes on;
they count as long as the module and its tests are as they were. `survivors.toml` explains survivors that
change nothing a caller sees; all others are printed, and make the run fail.

cosmic-ray and mutmut of PyPI fit less: the first removes no statements, which is the fault of a missing sync,
and edits the checkout in place; the second forks processes that have an open LMDB environment.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
RESULTS: Final = ROOT / ".mutants" / "results.jsonl"
EXPLAINED: Final = Path(__file__).with_name("survivors.toml")
_COPIED: Final = (".package", "bench", "cli", "conf", "docs", "loaders", "store", "tests")
_SECONDS_MAX: Final = 600
# Folder -> tests of the layer, those that fail soonest first.
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "store/catalog": ("tests/store/catalog", "tests/store/publish", "tests/crash/test_sync_order.py"),
    "store/check": ("tests/store/check", "tests/store/load", "tests/store/fill"),
    "store/conflict": (
        "tests/store/conflict",
        "tests/store/sql/test_isolation_sql.py",
        "tests/store/publish/test_two_phase_transactions.py",
        "tests/store/ddl/test_alter.py",
    ),
    "store/fill": ("tests/store/fill", "tests/store/publish", "tests/store/maintenance/test_restore.py"),
    "store/history": (
        "tests/store/history",
        "tests/store/maintenance",
        "tests/store/sql/test_maintenance.py",
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
    "store/segment": ("tests/store/segment", "tests/store/load", "tests/crash/test_sync_order.py"),
    "store/transaction": ("tests/store/transaction", "tests/store/conflict", "tests/store/sql/test_dml.py"),
}
_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One changed place of a module.

    Attributes:
        before, after: the statement or expression, in the words of `ast.unparse`.
        number: of the place among those with the same words.
    """

    module: str
    line: int
    before: str
    after: str
    number: int = 0

    @property
    def name(self) -> str:
        """What identifies it when lines have moved."""
        return f"{self.module}: {self.before} -> {self.after}" + (f" #{self.number}" if self.number else "")


def mutants_of(module: str) -> Iterator[tuple[Mutant, str]]:
    """Yields the mutants of a module, and the text of the module with each."""
    tree = ast.parse((ROOT / module).read_text())
    seen: dict[str, int] = {}
    for path in _places(tree):
        for changed in _changes(_at(tree, path)):
            other = copy.deepcopy(tree)
            _put(other, path, changed)
            place = _at(tree, path)
            found = Mutant(module, place.lineno, _words(place), _words(changed))
            number = seen[found.name] = seen.get(found.name, -1) + 1
            yield Mutant(**{**asdict(found), "number": number}), ast.unparse(ast.fix_missing_locations(other))


_Path = tuple[tuple[str, int | None], ...]


def _places(node: ast.AST, path: _Path = (), *, is_inside: bool = False) -> Iterator[_Path]:
    """Yields the paths of the places that may be changed: bodies of functions without messages and types."""
    if is_inside and path and hasattr(node, "lineno"):
        yield path
    if isinstance(node, (ast.JoinedStr, ast.Raise, ast.Assert)):
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for i, child in enumerate(node.body):
            yield from _places(child, (*path, ("body", i)), is_inside=True)
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "decorator_list", "returns", "bases"):
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for at, child in children:
            if isinstance(child, ast.AST):
                yield from _places(child, (*path, (name, at)), is_inside=is_inside)


def _at(tree: ast.AST, path: _Path) -> Any:
    node: Any = tree
    for name, i in path:
        node = getattr(node, name) if i is None else getattr(node, name)[i]
    return node


def _put(tree: ast.AST, path: _Path, changed: ast.AST) -> None:
    parent, (name, i) = _at(tree, path[:-1]), path[-1]
    if i is None:
        setattr(parent, name, changed)
    else:
        getattr(parent, name)[i] = changed


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what may stand in place of a statement or an expression."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
        yield ast.Compare(node.left, [_COMPARED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        for i in range(len(node.values)):
            rest = [value for j, value in enumerate(node.values) if j != i]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, (ast.If, ast.While)):
        changed = copy.copy(node)
        changed.test = ast.UnaryOp(ast.Not(), node.test)
        yield changed
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        yield from _without_condition(node)
    elif _is_removable(node):
        yield ast.Pass()


def _without_condition(node: Any) -> Iterator[ast.AST]:
    for i, generator in enumerate(node.generators):
        for j in range(len(generator.ifs)):
            changed = copy.deepcopy(node)
            del changed.generators[i].ifs[j]
            yield changed


def _is_removable(node: ast.AST) -> bool:
    """Whether a statement may be left out without a name that is missing behind it."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Await))
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete))


def _words(node: ast.AST) -> str:
    text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))
    return text.splitlines()[0]


def tests_of(module: str) -> tuple[str, ...]:
    """The tests of a module: a file of its name first, then those of its layer."""
    layer = next((tests for folder, tests in TESTS.items() if module.startswith(f"{folder}/")), ())
    if not layer:
        raise SystemExit(f"{module}: no tests are named for its layer in {Path(__file__).name}")
    own = sorted(ROOT.joinpath("tests").rglob(f"test_{Path(module).stem.removeprefix('test_')}.py"))
    return (*(str(path.relative_to(ROOT)) for path in own), *layer)


def fingerprint(module: str) -> str:
    """Changes with the module and its tests: results of an earlier state do not count."""
    digest = hashlib.blake2b((ROOT / module).read_bytes(), digest_size=8)
    for test in tests_of(module):
        path = ROOT / test
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Runner:
    """Runs tests in a copy of the repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = folder / "tests.log"
        for name in _COPIED:
            shutil.copytree(
                ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, folder / name)

    def passes(self, tests: Sequence[str]) -> bool:
        """Whether tests pass; a run without an end has failed."""
        environment = {**os.environ, "PYTHONPATH": f"{self._folder}/.package:{self._folder}"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-n",
            "0",
            "--timeout=120",
        ]
        with (
            self.log.open("wb") as output,
            subprocess.Popen(
                [*command, *tests],
                cwd=self._folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as running,
        ):
            try:
                return running.wait(_SECONDS_MAX) == 0
            except subprocess.TimeoutExpired:
                running.kill()
                return False

    def survives(self, mutant: Mutant, text: str) -> bool:
        """Whether no test notices a mutant."""
        path = self._folder / mutant.module
        original = path.read_text()
        path.write_text(text)
        try:
            return self.passes(tests_of(mutant.module))
        finally:
            path.write_text(original)


def known(module: str) -> dict[str, bool]:
    """Results of earlier runs: the name of a mutant, and whether it survived."""
    if not RESULTS.exists():
        return {}
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    mark = fingerprint(module)
    return {line["name"]: line["survived"] for line in lines if line["state"] == mark}


def run_module(runner: Runner, module: str, sample: int, seed: int) -> tuple[int, list[Mutant]]:
    """Runs the mutants of a module that have no result yet; returns how many there are, and the survivors."""
    chosen = list(mutants_of(module))
    if 0 < sample < len(chosen):
        chosen = random.Random(f"{seed} {module}").sample(chosen, sample)
    results, state = known(module), fingerprint(module)
    if any(mutant.name not in results for mutant, _ in chosen) and not runner.passes(tests_of(module)):
        shown = runner.log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"{module}: its tests fail without a fault:\n{shown}")
    RESULTS.parent.mkdir(exist_ok=True)
    for number, (mutant, text) in enumerate(chosen, 1):
        if mutant.name in results:
            continue
        started = time.monotonic()
        results[mutant.name] = survived = runner.survives(mutant, text)
        with RESULTS.open("a") as file:
            line = {"name": mutant.name, "survived": survived, "state": state}
            file.write(json.dumps(line) + "\n")
        word, seconds = "SURVIVED" if survived else "killed", time.monotonic() - started
        print(f"{number}/{len(chosen)} {word} {seconds:.0f} s  {module}:{mutant.line}  "
              f"{mutant.before} -> {mutant.after}", flush=True)  # fmt: skip
    return len(chosen), [mutant for mutant, _ in chosen if results[mutant.name]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.splitlines()[0])
    parser.add_argument(
        "modules", nargs="*", default=["store/publish", "store/conflict"], help="files or folders"
    )
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    given = parser.parse_args()
    modules = [
        str(path.relative_to(ROOT))
        for name in given.modules
        for path in (sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / name])
        if path.name != "__init__.py"
    ]
    explained = {entry["mutant"] for entry in tomllib.loads(EXPLAINED.read_text()).get("survivor", [])}
    total, left = 0, 0
    with tempfile.TemporaryDirectory(prefix="seqstore-mutants-") as folder:
        runner = Runner(Path(folder))
        for module in modules:
            count, survivors = run_module(runner, module, given.sample, given.seed)
            unexplained = [mutant for mutant in survivors if mutant.name not in explained]
            print(f"{module}: {count} mutants, {len(survivors)} survived, {len(unexplained)} not explained")
            for mutant in unexplained:
                line = (ROOT / module).read_text().splitlines()[mutant.line - 1].strip()
                print(f"  line {mutant.line}: {mutant.name!r} in {line}")
            total, left = total + count, left + len(unexplained)
    print(f"{total} mutants, {left} survivors without an explanation")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
