"""The layout of the code: sizes of folders and functions that a reader can keep in view.

The layers are checked by import-linter (`make lint`).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.documents import ROOT

FLAT_MODULES_MAX = 8
MODULES_MAX = 25
PARAMETERS_MAX = 8
FUNCTION_LINES_MAX = 50
SOURCES = [path for name in ("store", "loaders", "cli") for path in sorted((ROOT / name).rglob("*.py"))]

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Size(NamedTuple):
    """How large a function is."""

    parameters: int
    lines: int


@cache
def functions() -> dict[str, Size]:
    """Every function of the product, by the place where it stands.

    Their trees are not kept: each full collection of garbage of this process would pass them.
    """
    return {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": Size(
            parameters(node), (node.end_lineno or 0) - node.lineno + 1
        )
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function)
    }


def parameters(function: Function) -> int:
    """How many arguments a caller may name; the object of a method does not count."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_the_engine_has_few_modules_outside_of_its_packages() -> None:
    flat = [path.name for path in (ROOT / "store").glob("*.py")]
    assert 0 < len(flat) <= FLAT_MODULES_MAX, flat


@pytest.mark.parametrize("name", ["store", "loaders", "cli", "tests", "bench"])
def test_no_folder_holds_more_modules_than_a_screen_shows(name: str) -> None:
    modules = Counter(path.parent for path in (ROOT / name).rglob("*.py"))
    assert modules
    assert {str(folder): count for folder, count in modules.items() if count > MODULES_MAX} == {}


def test_no_function_has_more_parameters_than_a_caller_keeps_in_mind() -> None:
    counted = {place: size.parameters for place, size in functions().items()}
    assert max(counted.values()) > 3
    assert {place: count for place, count in counted.items() if count > PARAMETERS_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    lines = {place: size.lines for place, size in functions().items()}
    assert {place: count for place, count in lines.items() if count > FUNCTION_LINES_MAX} == {}


def test_tests_stand_in_folders_named_as_the_packages_they_test() -> None:
    for name in ("store", "loaders", "cli"):
        folders = {
            path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests" / name).rglob("test_*.py")
        }
        assert {str(folder) for folder in folders if not (ROOT / folder).is_dir()} == set()


def packages() -> Iterator[Path]:
    yield from (path for path in sorted((ROOT / "store").rglob("*")) if path.is_dir() and path.name[0] != "_")


def test_every_package_says_in_its_first_line_of_what_it_consists() -> None:
    undocumented = [
        str(path.relative_to(ROOT))
        for path in packages()
        if not ast.get_docstring(ast.parse((path / "__init__.py").read_text()))
    ]
    assert undocumented == []
