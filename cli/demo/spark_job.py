"""The streaming part of the demo as a Spark job of its own, which may be killed and started again.

    python -m cli.demo.spark_job DATA_DIR db.table EVENTS CHECKPOINT MASTER [DRIVER_BYTES_MAX]

It loads every event file there is, a version per epoch, and prints a line of JSON for each epoch when its
rows are visible. `JobProcess` is the other side: it starts the job, reads those lines, and kills it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli.demo.spark_run import spark_session, stream_files
from loaders.spark import EpochReport
from store.errors import StoreError


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
        """As a power cut would: driver and JVM at once, without a word."""
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
        [sys.executable, "-m", "cli.demo.spark_job", *arguments],
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


def main(
    store: str, table: str, events: str, checkpoint: str, master: str, driver_bytes_max: str | None = None
) -> None:
    """Runs the job; see the module."""

    def tell(report: EpochReport) -> None:
        shown = {"epoch": report.epoch, "version": report.version, "is_replay": report.is_replay}
        print(json.dumps(shown), flush=True)

    options: dict[str, Any] = {}
    if driver_bytes_max is not None:
        options["driver_bytes_max"] = int(driver_bytes_max)
    with (
        tempfile.TemporaryDirectory(prefix="seqstore-job-") as directory,
        spark_session(Path(directory), master) as spark,
    ):
        stream_files(spark, Path(events), Path(checkpoint), Path(store), table, on_epoch=tell, **options)


if __name__ == "__main__":
    main(*sys.argv[1:])
