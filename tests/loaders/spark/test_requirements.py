"""What is said where Spark cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import Store, TableSchema
from seqstore.loaders.spark import missing_requirement
from seqstore.loaders.spark.requirements import java_version
from tests.support.children import MODULES

_WRITE_AND_READ = """
import sys
from pyspark.sql import SparkSession
from seqstore.loaders.spark import register

address = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=address).getOrCreate()
register(spark)
options = {"path": sys.argv[1], "table": "db.t"}
spark.range(3).write.format("seqstore").mode("append").options(**options).save()
print([row[0] for row in spark.read.format("seqstore").options(**options).load().orderBy("id").collect()])
"""


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


@pytest.mark.long
@pytest.mark.spark
def test_workers_of_this_host_run_the_python_of_the_driver(tmp_path: Path) -> None:
    """Spark takes the first python3 of PATH: another one, where no environment is activated."""
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        store.create_table("db.t", TableSchema.from_arrow(pa.schema([("id", pa.int64())]), ["id"]))
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'not this one' >&2\nexit 3\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    path = f"{other.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", _WRITE_AND_READ, str(tmp_path / "data")],
        cwd=tmp_path,
        env=environment | {"PATH": path, "PYTHONPATH": MODULES},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[0, 1, 2]"), done.stderr
