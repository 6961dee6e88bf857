"""The prose rules of CONTRIBUTING.md that a program can check."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("store", "loaders", "cli")
# Nouns in the plural, which end like a verb.
NOUNS: Final = frozenset(
    re.findall(r"\w+", "Columns Rows Values Names Keys Types Texts Files Versions Segments Lines")
)
SUBJECTS: Final = re.compile(r"\b(who|whoever|nobody)\b", re.IGNORECASE)


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def summaries_without_verb(source: str) -> Iterator[str]:
    """Yields the functions whose docstring does not start with a verb in the third person.

    Properties are nouns. The help of a command (a function with `typer` in its signature) is imperative.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name == "__init__":
            continue
        text = ast.get_docstring(node)
        head = " ".join(map(ast.unparse, [*node.decorator_list, node.args]))
        if text is None or "property" in head or "typer" in head:
            continue
        word = text.split()[0].rstrip(",.:")
        if not re.fullmatch(r"[A-Z][a-z]+s", word) or word in NOUNS:
            yield f"{node.name}: {text.splitlines()[0]}"


def empty_subjects(source: str) -> Iterator[str]:
    """Yields the comments and docstrings with a subject that names nothing."""
    if not SUBJECTS.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
        if (is_docstring or token.type == tokenize.COMMENT) and SUBJECTS.search(token.string):
            yield f"{token.start[0]}: {SUBJECTS.search(token.string)}"


@pytest.mark.parametrize("faults", [summaries_without_verb, empty_subjects])
@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_follow_the_rules(
    folder: str, faults: Callable[[str], Iterator[str]]
) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line}" for path in modules(folder) for line in faults(path.read_text())
    ]
    assert found == []


def test_the_check_finds_a_noun_and_an_empty_subject() -> None:
    noun = 'def count() -> int:\n    """The number of rows."""\n    return 1  # who knows\n'
    verb = 'def count() -> int:\n    """Counts rows."""\n    return 1\n'
    assert list(summaries_without_verb(noun)) == ["count: The number of rows."]
    assert list(summaries_without_verb(verb)) == []
    assert len(list(empty_subjects(noun))) == 1
