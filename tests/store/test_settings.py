"""Files of settings: what is no TOML, no known section, or no value of its setting is refused by name."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqstore import InvalidInputError, Settings
from seqstore.cli.main import app
from seqstore.cli.server.settings import ServerSettings

SECTIONS: dict[str, Any] = {"store": Settings, "server": ServerSettings}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff", "not TOML: "),
        (b"[store", "not TOML: "),
        (b"server = 5", "'server' expects a section, [server], found 5"),
        (b"store = 'x'", "'store' expects a section, [store], found 'x'"),
        (b"[sever]\nworkers = 2", "unknown section or setting 'sever'; expected [store], [server]"),
        (b"workers = 2", "unknown section or setting 'workers'; expected [store], [server]"),
    ],
)
@pytest.mark.parametrize("section", SECTIONS)
def test_a_file_of_something_else_is_refused(
    tmp_path: Path, section: str, content: bytes, reason: str
) -> None:
    """A misspelled section was passed over, with all its settings."""
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError) as caught:
        SECTIONS[section].load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


def wrong_values(default: Any) -> list[str]:
    """Returns values of TOML that a setting with this default cannot have."""
    if isinstance(default, bool):
        return ["1", "'true'", "[]"]
    if isinstance(default, int):
        return ["-2", "1.5", "true", "'1'", "[]", str(2**63), "99999999999999999999999"]
    return ["1", "false", "{ a = 1 }"]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_refuses_other_values_by_name(tmp_path: Path, section: str) -> None:
    path = tmp_path / "c.toml"
    for name, default in asdict(SECTIONS[section]()).items():
        for value in wrong_values(default):
            path.write_text(f"[{section}]\n{name} = {value}\n")
            with pytest.raises(InvalidInputError, match=f"setting '{name}' expects ") as caught:
                SECTIONS[section].load(path)
            assert ", found " in str(caught.value)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_doctor_refuses_what_the_server_would_refuse(tmp_path: Path, section: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f"[{section}]\nnothing = 1\n")
    given = ["--data-dir", str(tmp_path / "data"), "doctor", "--config", str(path)]
    done = CliRunner().invoke(app, given)
    assert (done.exit_code, f"unknown setting 'nothing' in [{section}]" in done.output) == (1, True)
