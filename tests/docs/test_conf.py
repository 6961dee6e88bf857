"""conf/default.toml: names every setting, with the value the program uses without it."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from seqstore import Settings
from seqstore.cli.server.settings import ServerSettings

DEFAULT = Path(__file__).parents[2] / "conf" / "default.toml"


def test_default_toml_is_the_defaults() -> None:
    assert Settings.load(DEFAULT) == Settings()


def test_default_toml_names_every_setting_in_order() -> None:
    assert list(tomllib.loads(DEFAULT.read_text())["store"]) == list(asdict(Settings()))


def test_every_setting_has_its_reason_above_it() -> None:
    lines = [line for line in DEFAULT.read_text().splitlines() if line]
    bare = [line for above, line in pairwise(lines) if "=" in line and line[0] != "#" and above[0] != "#"]
    assert bare == []


def test_default_toml_is_the_defaults_of_the_server() -> None:
    assert ServerSettings.load(DEFAULT) == ServerSettings()
    assert list(tomllib.loads(DEFAULT.read_text())["server"]) == list(asdict(ServerSettings()))
