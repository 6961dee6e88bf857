"""Staging of a frame's rows by executors, ahead of a commit."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from seqstore.loaders.spark.place import StoreAt, options_of
from seqstore.loaders.spark.registration import register
from seqstore.loaders.spark.staged_frame import HANDED_OVER, StagedFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stage_frame(
    df: DataFrame, path: str | Path | StoreAt, table: str, options: dict[str, str]
) -> StagedFrame:
    """Has executors stage a frame for a load of this process's Spark application.

    Args:
        options: of the data source, as strings.

    Raises:
        pyspark.errors.PySparkException: a task failed for good; nothing is left.
    """
    register(df.sparkSession)
    with tempfile.TemporaryDirectory(prefix="seqstore-staged-") as directory:
        writer = df.write.format("seqstore").mode("append").options(**options)
        writer.options(**options_of(path), table=table, staged_to=directory).save()
        staged: StagedFrame = pickle.loads((Path(directory) / HANDED_OVER).read_bytes())
    return staged
