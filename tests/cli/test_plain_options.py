"""Options that convert values without typer's validators mean the same, and fail alike."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperCommand
from typer.testing import CliRunner

from seqstore.cli.plain_options import convert_plainly


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Plain(TyperCommand):
    """A command whose options convert plainly."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_plainly(self.get_params(ctx))
        convert_plainly(self.get_params(ctx))
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def _run(cls: type[TyperCommand], arguments: list[str]) -> tuple[int, str, list[Any]]:
    """Returns exit code and output of a command, and the values that its function got."""
    app = typer.Typer(rich_markup_mode=None)
    found: list[Any] = []

    @app.command(cls=cls)
    def command(
        name: Annotated[str, typer.Argument(callback=lambda value: value.upper())],
        texts: Annotated[list[str] | None, typer.Option("--text")] = None,
        path: Annotated[Path | None, typer.Option()] = None,
        there: Annotated[Path | None, typer.Option(exists=True)] = None,
        file: Annotated[Path | None, typer.Option(dir_okay=False)] = None,
        color: Annotated[Color, typer.Option()] = Color.RED,
        count: Annotated[int, typer.Option(min=1)] = 1,
        loud: Annotated[bool, typer.Option("--loud", envvar="LOUD")] = False,
    ) -> None:
        found.extend([name, texts, path, there, file, color, count, loud])

    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output, found


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a"],
        ["a", "--text", "b", "--text", "", "--path", ".", "--loud"],
        ["a", "--path", "not/there", "--color", "blue"],
        ["a", "--there", "not/there"],
        ["a", "--there", "."],
        ["a", "--file", "."],
        ["a", "--file", "not/there"],
        ["a", "--color", "green"],
        ["a", "--color", "RED"],
        ["a", "--count", "0"],
        ["a", "--count", "7"],
        ["a", "--count", "x"],
        ["a", "--text"],
        ["--help"],
    ],
    ids=" ".join,
)
def test_values_and_errors_are_those_of_typer(arguments: list[str]) -> None:
    assert _run(Plain, arguments) == _run(TyperCommand, arguments)


@pytest.mark.parametrize("value", ["1", "0", "true", "false", "yes", "ON", "", "x"])
def test_variables_of_the_environment_too(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUD", value)
    assert _run(Plain, ["a"]) == _run(TyperCommand, ["a"])
