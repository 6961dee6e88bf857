"""Dependencies: sqlglot is behind one module, and every range has a lowest version to test."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADAPTER = ROOT / "store" / "sql" / "parse" / "sqlglot_adapter.py"


def _modules() -> Iterator[Path]:
    for folder in ("store", "loaders", "cli"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def _imported(path: Path) -> set[str]:
    """The top-level packages that a module imports, inside functions and for type checks too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


def test_only_the_adapter_imports_sqlglot() -> None:
    naming = [path for path in _modules() if "sqlglot" in path.read_text()]
    importers = [path for path in naming if "sqlglot" in _imported(path)]
    assert importers == [ADAPTER]


def test_every_dependency_of_users_has_a_lowest_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = [
        each for name in ("spark", "server", "iceberg") for each in project["optional-dependencies"][name]
    ]
    without = [each for each in [*project["dependencies"], *optional] if not re.match(r"[\w-]+>=\d", each)]
    assert without == []
