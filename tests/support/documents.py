"""Pages of the manual as programs: their code blocks, and a runner that executes them as a reader would.

1. A page has one directory. Its blocks run in their order; the Python blocks share one namespace, the console
   blocks share their exports, and SQL runs in the data directory `shop-data`.
2. A block of text behind a block that runs is the output that it must print. Within a console block the lines
   without a prompt are.
3. A block of data with a file's name as its title is written to that file.
4. A block whose title starts with "Needs" runs where that is present. The title is part of the page, so a
   reader sees it as well.
5. Ports 8030 and 9030 stand for free ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner

from bench.trials.free_ports import free_ports
from seqstore.cli.main import app
from tests.support.children import MODULES
from tests.support.forks.forked import write_command

ROOT: Final = Path(__file__).parents[2]
RUNNABLE: Final = ("python", "console", "sql")
SHOWN: Final = ("text", "toml", "json", "csv")  # outputs and files; never a program
DATA_DIR: Final = "shop-data"
_FENCE: Final = re.compile(
    r"^```(?P<kind>[\w-]*)(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_TITLE: Final = re.compile(r'title="(?P<title>[^"]*)"')
_COMMAND: Final = re.compile(r"^\$ (.*(?:\n> .*)*)$", re.MULTILINE)
_SHELL: Final = "set -e; trap 'trap \"\" TERM; kill 0; wait' EXIT\n"  # what it left running ends with it
_PORTS: Final = ("8030", "8040", "9030")  # of the pages
_CONSOLE_SECONDS: Final = 240


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        kind: the language.
        text: between the fences.
        line: of the opening fence in its page, from 1.
        needs: the need that the title names, empty when the block runs everywhere.
        file: the name of the file that the block is, empty when it is none.
        output: the text block behind it, None without one.
    """

    kind: str
    text: str
    line: int
    needs: str = ""
    file: str = ""
    output: str | None = None


def read_blocks(page: str) -> list[Block]:
    """The blocks of a page in their order."""
    fences = list(_FENCE.finditer(page))
    outputs = [_output_behind(page, *pair) for pair in zip_longest(fences, fences[1:])]
    return [_block(page, fence, output) for fence, output in zip(fences, outputs, strict=True)]


def _output_behind(page: str, fence: re.Match[str], following: re.Match[str] | None) -> str | None:
    """The text of the next fence if it is a block of text with nothing before it."""
    if following is None or following["kind"] != "text" or _TITLE.search(following["info"]):
        return None
    return None if page[fence.end() : following.start()].strip() else following["text"]


def _block(page: str, fence: re.Match[str], output: str | None) -> Block:
    found = _TITLE.search(fence["info"])
    title = found["title"] if found else ""
    needs = title.removeprefix("Needs ") if title.startswith("Needs ") else ""
    file = title if fence["kind"] in SHOWN else ""
    return Block(fence["kind"], fence["text"], page[: fence.start()].count("\n") + 1, needs, file, output)


def fence_count(page: str) -> int:
    """Lines that open or close a block."""
    return len(re.findall(r"^\s*(?:```|~~~)", page, re.MULTILINE))


@dataclass
class Reader:
    """Runs the blocks of one page in the current directory.

    Args:
        directory: of the page; the command `seqstore` is made in a hidden folder of it.

    Attributes:
        runs: programs that ran.
    """

    directory: Path
    runs: int = 0
    _ports: dict[str, str] = field(
        default_factory=lambda: dict(zip(_PORTS, map(str, free_ports(3)), strict=True))
    )
    _names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    _exports: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        command = self.directory / ".bin" / "seqstore"
        command.parent.mkdir()
        write_command(command, "seqstore")

    def run(self, block: Block) -> None:
        """Runs a block and compares its output, or writes the file that it is.

        Raises:
            AssertionError: it printed something else, or failed.
        """
        if block.file:
            (self.directory / block.file).write_text(self._with_ports(block.text))
            return
        self.runs += 1
        text, output = self._with_ports(block.text), self._with_ports(block.output or "")
        printed = {"python": self._python, "console": self._console, "sql": self._sql}[block.kind](text)
        expected = _shown_by_console(text) if block.kind == "console" else output
        if block.kind == "console" or block.output is not None:
            assert _comparable(printed) == _comparable(expected), f"line {block.line}: printed\n{printed}"

    def close(self) -> None:
        """Ends processes that a page has started and not ended, as one does whose block has failed."""
        for value in self._names.values():
            if isinstance(value, subprocess.Popen):
                with value:
                    value.kill()

    def _with_ports(self, text: str) -> str:
        for written, used in self._ports.items():
            text = text.replace(written, used)
        return text

    def _python(self, text: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, "page.md", "exec"), self._names)
        return printed.getvalue()

    def _sql(self, text: str) -> str:
        done = CliRunner().invoke(app, ["--data-dir", DATA_DIR, "sql", "-e", text])
        assert done.exit_code == 0, done.output
        return done.stdout

    def _console(self, text: str) -> str:
        commands = [found.replace("\n> ", "\n") for found in _COMMAND.findall(text)]
        script = _SHELL + "\n".join([*self._exports, *commands]) + "\n"
        self._exports += [command for command in commands if command.startswith("export ")]
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_CONSOLE_SECONDS,
            start_new_session=True,  # `kill 0` reaches nothing but the script and its children
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.directory / ".bin"), os.environ["PATH"]])
        return os.environ | {"PATH": path, "PYTHONPATH": MODULES}


def _shown_by_console(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith(("$ ", "> ")))


def _comparable(printed: str) -> list[str]:
    """Lines without measured times."""
    return [re.sub(r"\d+", "N", line) if 'Ms"' in line else line.rstrip() for line in printed.splitlines()]
