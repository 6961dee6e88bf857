"""The examples of README.md and of the manual run, in their order, and print what the pages show."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.documents import ROOT, RUNNABLE, SHOWN, Block, Reader, fence_count, read_blocks

PAGES: Final = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}


@cache
def _has_java() -> bool:
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    has_spark = importlib.util.find_spec("pyspark") is not None
    return (
        has_spark
        and shutil.which(java) is not None
        and not subprocess.run([java, "-version"], capture_output=True).returncode
    )


def _never() -> bool:
    return False


# What a block may need, by its title. A block with any other title of this form fails the count below.
NEEDS: Final[dict[str, Callable[[], bool]]] = {
    "Java and the extra spark": _has_java,
    "the extra iceberg": lambda: importlib.util.find_spec("pyiceberg") is not None,
    "the extra server": lambda: importlib.util.find_spec("aiohttp") is not None,
    "a MySQL client": lambda: shutil.which("mysql") is not None,
    "a network": _never,
    "a checkout of the repository": _never,
    "a Kafka broker": _never,
    "a Spark cluster": _never,
    "an object store": _never,
    "a certificate": _never,
}
BLOCKS: Final = {page: read_blocks(text) for page, text in PAGES.items()}
WITH_NEEDS: Final = sorted(
    {(page, block.needs) for page, blocks in BLOCKS.items() for block in blocks if block.needs}
)


def _run_page(
    blocks: list[Block], directory: Path, monkeypatch: pytest.MonkeyPatch, needs: frozenset[str]
) -> int:
    """Runs the blocks whose needs are met; returns how many ran."""
    monkeypatch.chdir(directory)
    reader = Reader(directory)
    chosen = [block for block in blocks if (block.kind in RUNNABLE and block.needs in needs) or block.file]
    for block in chosen:
        reader.run(block)
    return sum(block.kind in RUNNABLE for block in chosen)


@pytest.mark.parametrize("page", [page for page, blocks in BLOCKS.items() if blocks])
def test_examples_print_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [block for block in BLOCKS[page] if block.kind in RUNNABLE and not block.needs]
    assert _run_page(BLOCKS[page], tmp_path, monkeypatch, frozenset([""])) == len(expected)


@pytest.mark.parametrize(("page", "needs"), WITH_NEEDS)
def test_examples_with_needs(page: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not NEEDS[needs]():
        pytest.skip(f"{page}: needs {needs}")
    _run_page(BLOCKS[page], tmp_path, monkeypatch, frozenset(["", needs]))


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs_or_names_its_needs(page: str) -> None:
    blocks = BLOCKS[page]
    assert fence_count(PAGES[page]) == 2 * len(blocks), "a fence that the runner does not see"
    outputs = [block.output for block in blocks if block.kind in RUNNABLE]
    assert {block.kind for block in blocks} <= {*RUNNABLE, *SHOWN}
    assert {block.needs for block in blocks} <= {"", *NEEDS}
    unused = [
        block.line for block in blocks if block.kind in SHOWN and not (block.file or block.text in outputs)
    ]
    assert [line for line in unused if page != "docs/design.md"] == [], "neither an output nor a file"


def test_the_manual_has_examples_of_every_kind() -> None:
    kinds = [block.kind for blocks in BLOCKS.values() for block in blocks]
    assert all(kinds.count(kind) >= 10 for kind in RUNNABLE)
