"""Rule ids: the places that name them, and the entries that define them.

An id is one to three capital letters and a number, such as `SO1`. A range `SO1-SO4` names all ids between its
ends. `Scenario 20` names the entry `scenario-20`.

- Python: comments, docstrings, and ids at the start of test names (`test_d13_...`, `test_20_...`).
- Markdown and TOML: the text, and the comments.

Words between backticks are code, so they name no rule.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Words that look like an id, each with its meaning.
OTHER_WORDS: Final = {
    "AVX2": "instructions of processors",
    "CC0": "a licence",
    "LZ4": "a codec",
    "S3": "an object store",
    "SHA1": "a digest",
    "XXH3": "a digest",
    "U?INT(8|16|32|64)": "an integer type",
    r"TPC-(H|DS) Q\d+": "a query of a benchmark",
}
_OTHER: Final = re.compile(rf"\b({'|'.join(OTHER_WORDS)})\b")
_CODE: Final = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_ID: Final = re.compile(r"\b(?P<family>[A-Z]{1,3})(?P<first>\d{1,2})(?:-(?P=family)?(?P<last>\d{1,2}))?\b")
_NUMBERS: Final = re.compile(r"\b[Ss]cenarios?\s+(?P<list>\d+((,|,?\s+(and|or|to)|-)\s*\d+)*)")
_SPAN: Final = re.compile(r"(?P<first>\d+)(\s+to\s+|-)(?P<last>\d+)|(?P<one>\d+)")
# References that lead out of the repository: each must become an id.
_SECTION: Final = re.compile(r"\b[Ss]ections?\s+\d[\d.]*|\bisolation\s+rules\b")
_TEST_NAME: Final = re.compile(r"test_(?:(?P<scenarios>(\d{1,2}[a-z]?_)+)|(?P<ids>([a-z]{1,3}\d{1,2}_)+))")
_ENTRY: Final = re.compile(
    r'^- <a id="(?P<anchor>[^"]*)"></a>\*\*(?P<name>[^*]+)\.\*\*(?P<text>.*(\n  .*)*)', re.MULTILINE
)
# A string behind one of these is a statement of its own: a docstring.
_ENDS: Final = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
_ANCHOR: Final = re.compile(r'<a id="([^"]*)">')


@dataclass(frozen=True)
class Mention:
    """One place that names a rule: `path` and `line` of the place, `id` as the entry has it."""

    id: str
    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.id}"


@dataclass(frozen=True)
class Entry:
    """One definition of a rule: the text behind its id."""

    id: str
    anchor: str
    text: str
    path: str


def mentions(path: Path, root: Path) -> Iterator[Mention]:
    """Finds the rules that a file names."""
    read = _of_python if path.suffix == ".py" else _of_toml if path.suffix == ".toml" else _of_text
    name = path.relative_to(root).as_posix()
    return (Mention(found, name, line) for line, found in read(path.read_text()))


def named_in(text: str) -> Iterator[tuple[int, str]]:
    """Finds the ids in a text; yields the line, from 0, and the id."""
    plain = _OTHER.sub(_blank, _CODE.sub(_blank, text))
    for match in _SECTION.finditer(plain):
        yield _line(plain, match.start()), " ".join(match.group().split())
    for match in _NUMBERS.finditer(plain):
        for span in _SPAN.finditer(match["list"]):
            first, last = int(span["one"] or span["first"]), int(span["one"] or span["last"])
            yield from ((_line(plain, match.start()), f"scenario-{n}") for n in range(first, last + 1))
    for match in _ID.finditer(plain):
        first = int(match["first"])
        for number in range(first, int(match["last"] or first) + 1):
            yield _line(plain, match.start()), f"{match['family']}{number}"


def named_by(test: str) -> Iterator[str]:
    """Finds the ids, or the numbers of scenarios, at the start of a test's name."""
    match = _TEST_NAME.match(test)
    if match is None:
        return
    for number in re.findall(r"\d+", match["scenarios"] or ""):
        yield f"scenario-{number}"
    for name in (match["ids"] or "").split("_"):
        if name and not _OTHER.fullmatch(name.upper()):
            yield name.upper()


def entries(path: Path, root: Path) -> Iterator[Entry]:
    """Finds the rules that a Markdown file defines."""
    name = path.relative_to(root).as_posix()
    for match in _ENTRY.finditer(path.read_text()):
        rule = match["name"].replace("Scenario ", "scenario-")
        yield Entry(rule, match["anchor"], " ".join(match["text"].split()), name)


def anchors(path: Path) -> list[str]:
    """Lists the anchors that a Markdown file sets by hand."""
    return _ANCHOR.findall(path.read_text())


def _of_text(text: str) -> Iterator[tuple[int, str]]:
    return ((line + 1, found) for line, found in named_in(text))


def _of_toml(text: str) -> Iterator[tuple[int, str]]:
    comments = [line.partition("#")[2] for line in text.splitlines()]
    return _of_text("\n".join(comments))


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    if not any(pattern.search(text) for pattern in (_ID, _NUMBERS, _SECTION, _TEST_NAME)):
        return
    before, keyword = tokenize.NEWLINE, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if keyword == "def":
            yield from ((token.start[0], name) for name in named_by(token.string))
        elif token.type == tokenize.COMMENT or (token.type == tokenize.STRING and before in _ENDS):
            yield from ((token.start[0] + line, name) for line, name in named_in(token.string))
        keyword = token.string
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type


def _blank(match: re.Match[str]) -> str:
    """Keeps line ends, so that later matches keep their lines."""
    return re.sub(r"[^\n]", " ", match.group())


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at)
