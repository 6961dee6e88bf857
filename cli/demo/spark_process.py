"""The Spark job of the demo (cli.demo.spark_job) seen from outside: started, listened to, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqstore.store.errors import StoreError


class JobProcess:
    """A running job, with its JVM in a process group of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def epochs(self) -> Iterator[dict[str, Any]]:
        """Epochs as they become visible, until the job ends.

        Raises:
            StoreError: it ended in an error of its own.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        if self._process.wait() > 0:
            raise StoreError(f"the Spark job ended with {self._process.returncode}", kind="demo_failed")

    def kill(self) -> None:
        """Kills driver and JVM at once, as a power cut would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def start_job(
    store: Path,
    table: str,
    events: Path,
    checkpoint: Path,
    master: str,
    *,
    driver_bytes_max: int | None = None,
) -> Iterator[JobProcess]:
    """Starts the job; it does not outlive the block."""
    arguments = [str(store), table, str(events), str(checkpoint), master]
    arguments += [] if driver_bytes_max is None else [str(driver_bytes_max)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-m", "seqstore.cli.demo.spark_job", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        job = JobProcess(process)
        try:
            yield job
        finally:
            if process.poll() is None:
                job.kill()
