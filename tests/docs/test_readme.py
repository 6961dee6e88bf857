"""README.md does what it says: its blocks run, in order, and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
SHELL = f'set -e; seqstore() {{ "{sys.executable}" -m cli.main "$@"; }}\n'


def printed_below(program: str) -> str:
    """The text block that follows a program."""
    after = BLOCKS[BLOCKS.index(("python", program)) + 1]
    assert after[0] == "text"
    return after[1]


@pytest.mark.parametrize("program", [text for kind, text in BLOCKS if kind == "python"], ids=["first"])
def test_python_program_prints_what_stands_below_it(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == printed_below(program)


def test_first_program_is_a_screenful() -> None:
    program = next(text for kind, text in BLOCKS if kind == "python")
    assert len(program.splitlines()) <= 14


@pytest.mark.parametrize("session", [text for kind, text in BLOCKS if kind == "console"], ids=["first"])
def test_commands_print_what_stands_below_them(session: str, tmp_path: Path) -> None:
    commands = re.findall(r"^\$ (.*(?:\n> .*)*)$", session, re.MULTILINE)
    script = SHELL + "\n".join(command.replace("\n> ", "\n") for command in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    shown = [line for line in session.splitlines() if not line.startswith(("$ ", "> "))]
    assert without_times(done.stdout.splitlines()) == without_times(shown)


def without_times(lines: list[str]) -> list[str]:
    return [re.sub(r"\d+", "N", line) if 'Ms"' in line else line for line in lines]


def test_links_lead_to_files() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z]+)", README)) - {"it"}:
        assert re.search(rf"^{target}:.* ## ", makefile, re.MULTILINE), target
