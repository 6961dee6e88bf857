"""A frame whose rows executors have staged: what is left of it is to be published, or taken away.

Spark runs the committing half of a data source beside the driver, not in it. `stage_frame` brings the shares
into the driver's own process, so that several frames can be published together (loaders.spark.sink).
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from loaders.spark.registration import register
from loaders.spark.zones import local_times
from store.write_task import StagedRows, WriteTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HANDED_OVER: Final = "shares"


@dataclass
class StagedFrame:
    """Shares of one load, which is to be ended by whoever publishes them (`store.recovery.ending`).

    Attributes:
        task: what staged them.
        shares: of the tasks whose word was taken.
    """

    task: WriteTask
    shares: Sequence[StagedRows]

    def hand_over(self, directory: Path) -> None:
        """To the process that called `stage_frame`."""
        (directory / _HANDED_OVER).write_bytes(pickle.dumps(self))


def run_task(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> StagedRows:
    """Stages what Spark hands a task; nothing where it hands nothing."""
    plain = map(local_times, batches)
    first = next(plain, None)
    if first is None:
        return StagedRows()
    rest = (batch for part in ([first], plain) for batch in part)
    return task.run(pa.RecordBatchReader.from_batches(first.schema, rest))


def stage_frame(df: DataFrame, path: Path, table: str, options: dict[str, str]) -> StagedFrame:
    """Has executors stage a frame for a load of this process's Spark application.

    Args:
        options: of the data source, as strings.

    Raises:
        pyspark.errors.PySparkException: a task failed for good; nothing is left.
    """
    register(df.sparkSession)
    with tempfile.TemporaryDirectory(prefix="seqstore-staged-") as directory:
        writer = df.write.format("seqstore").mode("append").options(**options)
        writer.options(path=str(path), table=table, staged_to=directory).save()
        staged: StagedFrame = pickle.loads((Path(directory) / _HANDED_OVER).read_bytes())
    return staged
