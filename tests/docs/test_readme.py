"""README.md is short, and pages lead to files and targets that exist. Examples run in test_examples.py."""

from __future__ import annotations

import re

import pytest

from tests.support.documents import ROOT, read_blocks

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "store/README.md",
    "loaders/spark/README.md",
    "bench/README.md",
)
README = (ROOT / "README.md").read_text()
PROGRAM = next(block.text for block in read_blocks(README) if block.kind == "python")


def test_first_program_is_a_screenful() -> None:
    assert len(PROGRAM.splitlines()) <= 14


def test_first_line_of_python_imports_the_package() -> None:
    assert PROGRAM.startswith("from seqstore import Store, TableSchema\n")


def test_first_screen_installs_and_runs_the_package() -> None:
    assert README.index("pip install") < README.index("from seqstore") < README.index("\n## ")
    assert len(README[: README.index("from seqstore")].splitlines()) <= 24


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    folder = (ROOT / page).parent
    assert [target for target in targets if "://" not in target and not (folder / target).exists()] == []


def test_index_of_the_manual_leads_to_each_page_once() -> None:
    """One row of the table stood there twice."""
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "index.md").read_text())
    assert sorted(linked) == sorted(page.name for page in ROOT.glob("docs/*.md") if page.stem != "index")


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make ([a-z]+)`", README))
    assert named
    for target in named:
        assert re.search(rf"^{target}:.* ## ", makefile, re.MULTILINE), target


def test_snippets_use_directories_of_their_own() -> None:
    directories = re.findall(r"Store\.open\(\"([^\"]+)\"|SEQSTORE_DATA_DIR=(\S+)", README)
    named = [one or other for one, other in directories]
    assert len(named) == len(set(named)) >= 2
