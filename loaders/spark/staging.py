"""Staging of a frame's rows by executors, ahead of a commit."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqstore.loaders.spark.place import StoreAt, options_of
from seqstore.loaders.spark.registration import register
from seqstore.loaders.spark.staged_frame import HANDED_OVER, StagedFrame, hand_evolution
from seqstore.store import TableSchema
from seqstore.store.publish.evolution import Evolution

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def needs_driver(schema: TableSchema, columns: Sequence[str]) -> bool:
    """Returns whether rows need values that only the catalog reserves."""
    made = schema.auto_increment_column
    return made is not None and made.name.lower() not in (name.lower() for name in columns)


def stage_frame(
    df: DataFrame,
    path: str | Path | StoreAt,
    table: str,
    options: dict[str, str],
    evolution: Evolution | None = None,
) -> StagedFrame:
    """Has executors stage a frame for a load of this process's Spark application.

    Args:
        options: of the data source, as strings.
        evolution: the schema that the rows need, None for that of the table.

    Raises:
        pyspark.errors.PySparkException: a task failed for good; nothing is left.
    """
    register(df.sparkSession)
    with tempfile.TemporaryDirectory(prefix="seqstore-staged-") as directory:
        if evolution is not None:
            hand_evolution(Path(directory), evolution)
        writer = df.write.format("seqstore").mode("append").options(**options)
        writer.options(**options_of(path), table=table, staged_to=directory).save()
        staged: StagedFrame = pickle.loads((Path(directory) / HANDED_OVER).read_bytes())
    return staged
