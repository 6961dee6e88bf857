"""The examples of README.md and of the manual run, in their order, and print what the pages show."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.children import MODULES
from tests.support.documents import ROOT, RUNNABLE, SHOWN, Reader, fence_count, read_blocks

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


def _has_new_pyiceberg() -> bool:
    """0.10 finds no table by its directory."""
    if importlib.util.find_spec("pyiceberg") is None:
        return False
    return not importlib.metadata.version("pyiceberg").startswith("0.10.")


JAVA: Final = "Java and the extra spark"
# What a block may need, by its title. A block with any other title of this form fails the count below.
NEEDS: Final[dict[str, Callable[[], bool]]] = {
    JAVA: _has_java,
    "the extra iceberg": lambda: importlib.util.find_spec("pyiceberg") is not None,
    "pyiceberg 0.11 or later": _has_new_pyiceberg,
    "the package deltalake": lambda: importlib.util.find_spec("deltalake") is not None,
    "the extra server": lambda: importlib.util.find_spec("aiohttp") is not None,
    "a MySQL client": lambda: shutil.which("mysql") is not None,
    "a network": _never,
    "a checkout of the repository": _never,
    "a Kafka broker": _never,
    "Kafka Connect": _never,
    "a Spark cluster": _never,
    "an object store": _never,
    "a certificate": _never,
}
BLOCKS: Final = {page: read_blocks(text) for page, text in PAGES.items()}
NAMED: Final = sorted(
    {(page, block.needs) for page, blocks in BLOCKS.items() for block in blocks if block.needs}
)
UNMET: Final = [(page, needs) for page, needs in NAMED if needs in NEEDS and not NEEDS[needs]()]


SPARK_PAGES: Final = [page for page, needs in NAMED if needs == JAVA and (page, JAVA) not in UNMET]
PLAIN_PAGES: Final = [
    page
    for page, blocks in BLOCKS.items()
    if page not in SPARK_PAGES and any(block.kind in RUNNABLE for block in blocks)
]


def run_page(page: str, directory: Path) -> None:
    """Runs the blocks of a page whose needs are met in a directory, which is the current one."""
    with contextlib.closing(Reader(directory)) as reader:
        for block in BLOCKS[page]:
            if block.file or (block.kind in RUNNABLE and (page, block.needs) not in UNMET):
                reader.run(block)
    unmet = [block for block in BLOCKS[page] if (page, block.needs) in UNMET]
    assert reader.runs + len(unmet) == sum(block.kind in RUNNABLE for block in BLOCKS[page])


def run_pages(pages: Sequence[str], directory: Path) -> None:
    """Runs pages one after the other in a directory, which each of them finds empty."""
    for page in pages:
        print(page)
        run_page(page, directory)
        for left in directory.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.mark.family(5)
@pytest.mark.parametrize("page", PLAIN_PAGES)
def test_examples_print_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "$ curl " in PAGES[page] and shutil.which("curl") is None:
        pytest.skip("needs curl: apt-get install curl")
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_examples_with_spark_print_what_the_page_shows(tmp_path: Path) -> None:
    """In a process of their own: its JVM keeps the directory in which it was started. It costs more than the
    pages, so that all share it."""
    program = "import sys; from pathlib import Path; from tests.docs.test_examples import run_pages; "
    program += "run_pages(sys.argv[1:], Path.cwd())"
    done = subprocess.run(
        [sys.executable, "-c", program, *SPARK_PAGES],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": MODULES},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("page", "needs"), UNMET)
def test_examples_without_their_needs(page: str, needs: str) -> None:
    pytest.skip(f"{page}: needs {needs}")


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
