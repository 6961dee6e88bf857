"""The requirements of the Spark parts alone: pyspark and a Java runtime."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from seqstore.store.runtime import memory_limit

JAVA_VERSION_MIN: Final = 17


def missing_requirement() -> str | None:
    """Returns the missing requirement of Spark with its remedy in one line, None without one."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed; pip install 'seqstore[spark]'"
    found = java_version()
    if found is None or found < JAVA_VERSION_MIN:
        what = "no Java was found" if found is None else f"Java {found} was found"
        return (
            f"Spark needs Java {JAVA_VERSION_MIN} or later and {what}; "
            "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
        )
    return None


def java_version() -> int | None:
    """Returns the major version of the Java that pyspark would start.

    This is the Java of JAVA_HOME, else the first on the PATH.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        with memory_limit.lifted():
            told = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=60, check=True
            ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', told)  # Java 8 calls itself 1.8
    return int(match.group(1)) if match else None
