"""What the tests of Doris's own tools need: their packages and jars, fetched once into the cache.

Each tool has an environment of its own: their requirements contradict each other, and those of the project.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from bench.kafka.jars import JarsUnreachableError, cache_directory, listed_jars

FILES: Final = Path(__file__).parent
DBT: Final = ("dbt-doris==1.0.0", "dbt-core==1.10.23")
SPARK: Final = ("pyspark==3.5.9", "setuptools")
FLINK: Final = ("apache-flink-libraries==1.20.3", "--no-deps")
_SECONDS_MAX: Final = 1200


def environment(requirements: tuple[str, ...]) -> Path:
    """The folder of an environment with some packages; skips the test where they cannot be had."""
    key = hashlib.sha256(" ".join((sys.version, *requirements)).encode()).hexdigest()[:16]
    directory = cache_directory() / "clients" / key
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "complete").exists():
            shutil.rmtree(directory, ignore_errors=True)
            uv = [sys.executable, "-m", "uv", "--quiet"]
            _run([*uv, "venv", "--python", sys.executable, str(directory)])
            install = [*uv, "pip", "install", "--python", str(directory / "bin" / "python")]
            _run([*install, *requirements])
            (directory / "complete").touch()
    return directory


def jar(module: str) -> Path:
    """A jar of `jars.txt`; skips the test where it cannot be had."""
    try:
        found = listed_jars(FILES / "jars.txt", "doris")
    except (JarsUnreachableError, FileNotFoundError) as error:
        pytest.skip(f"the jars of Doris's connectors cannot be had: {str(error)[-300:]}")
    return next(path for path in found if path.name.startswith(module))


def java_tool(name: str) -> str:
    """A program of the JDK; skips the test without it."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / name) if home else name)
    if found is None:
        pytest.skip(f"needs {name} of a JDK 17")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX)
    if done.returncode:
        pytest.skip(f"{command[-1]} cannot be installed: {done.stderr[-300:]}")
