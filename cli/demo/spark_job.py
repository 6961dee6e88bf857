"""The streaming part of the demo as a Spark job of its own, which may be killed and started again.

    python -m cli.demo.spark_job DATA_DIR db.table EVENTS CHECKPOINT MASTER [DRIVER_BYTES_MAX]

It loads every event file, a version per epoch. For each epoch it prints a line of JSON when the rows are
visible, before Spark records the epoch as done.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from seqstore.cli.demo.spark_run import spark_session, stream_files
from seqstore.loaders.spark import EpochReport


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
