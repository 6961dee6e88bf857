"""What is said where Spark cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaders.spark import missing_requirement
from loaders.spark.requirements import java_version


def fake_java(home: Path, told: str) -> str:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)
    return str(home)


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('java version "1.8.0_402"', 8),
        ("no version at all", None),
    ],
    ids=["17", "21", "8", "none"],
)
def test_java_version_is_the_one_under_java_home(
    told: str, version: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "java", told))
    assert java_version() == version


def test_without_java_the_remedy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    missing = missing_requirement()
    assert missing == (
        "Spark needs Java 17 or later and no Java was found; "
        "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    )


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "java", 'openjdk version "11.0.2"'))
    assert "Java 11 was found" in (missing_requirement() or "")


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert missing_requirement() == "pyspark is not installed; pip install 'seqstore[spark]'"
