"""The jars of an Apache Kafka broker, fetched once for tests and measurements.

1. `kafka_jars.txt` names every module, its revision and the SHA-256 of its jar; nothing else is taken.
2. Ivy, which ships with pyspark, gets what is missing from its default repository, into a cache of the user.
3. Every jar is held against its checksum, each time: a cache is anybody's to write to.

`python -m bench.kafka.jars` prints where they are.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "SEQSTORE_CACHE_DIR"
_LIST: Final = Path(__file__).with_suffix(".txt")
_SECONDS_MAX: Final = 900


class JarsUnreachableError(RuntimeError):
    """They are not here and cannot be fetched, as on a machine without a network."""


@dataclass(frozen=True)
class Jar:
    """One line of the list."""

    organisation: str
    module: str
    revision: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.module}-{self.revision}.jar"


def kafka_jars() -> list[Path]:
    """The jars of the broker, as `listed_jars` fetches them."""
    return listed_jars(_LIST, "kafka")


def listed_jars(listing: Path, name: str) -> list[Path]:
    """The jars of a list in the form of `kafka_jars.txt`, fetched when they are not there yet.

    Args:
        name: of their directory in the cache.

    Raises:
        JarsUnreachableError: they are not here and cannot be fetched.
        RuntimeError: they are not what they should be.
    """
    wanted = [Jar(*line.split()) for line in listing.read_text().splitlines() if line and line[0] != "#"]
    directory = cache_directory() / name
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process fetches, others wait for it
        missing = [jar for jar in wanted if not _is_right(directory / jar.name, jar)]
        if missing:
            _fetch(missing, directory)
        wrong = [jar.name for jar in missing if not _is_right(directory / jar.name, jar)]
    if wrong:
        raise RuntimeError(f"{directory}: not the jars of {listing.name}: {', '.join(wrong)}; remove them")
    return [directory / jar.name for jar in wanted]


def cache_directory() -> Path:
    """Where things are kept that are fetched once."""
    given = os.environ.get(CACHE_VARIABLE)
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(user) / "seqstore"


def _is_right(path: Path, jar: Jar) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def _fetch(jars: Sequence[Jar], directory: Path) -> None:
    """Step 2 of the module: each by its own name, so that what depends on what decides nothing."""
    work = directory / f"fetch-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    lines = [
        f'<dependency org="{jar.organisation}" name="{jar.module}" rev="{jar.revision}" transitive="false"/>'
        for jar in jars
    ]
    module = f'<info organisation="seqstore" module="kafka"/><dependencies>{"".join(lines)}</dependencies>'
    (work / "ivy.xml").write_text(f'<ivy-module version="2.0">{module}</ivy-module>')
    command = [java(), "-cp", str(_ivy()), "org.apache.ivy.Main", "-ivy", str(work / "ivy.xml")]
    command += ["-cache", str(work / "cache"), "-types", "jar", "bundle", "-confs", "default"]
    command += ["-retrieve", str(work / "jars" / "[artifact]-[revision].[ext]")]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    for path in (work / "jars").glob("*.jar"):
        path.replace(directory / path.name)
    shutil.rmtree(work)
    if done.returncode:
        raise JarsUnreachableError(f"the jars for {directory.name} cannot be fetched:\n{done.stdout[-4000:]}")


def java() -> str:
    """The Java that pyspark takes too."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _ivy() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise RuntimeError("pyspark is not installed; pip install 'seqstore[spark]'")
    return next((Path(found.origin).parent / "jars").glob("ivy-*.jar"))


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in kafka_jars())
