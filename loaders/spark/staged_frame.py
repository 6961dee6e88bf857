"""A frame whose rows executors have staged: the caller publishes or removes it.

Spark runs the committing half of a data source beside the driver, not in it. `stage_frame` brings the shares
into the driver's own process, so that several frames can be published together (loaders.spark.sink).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from seqstore.loaders.spark.zones import local_times
from seqstore.store.load.write_task import StagedRows, WriteTask
from seqstore.store.publish.evolution import Evolution

HANDED_OVER: Final = "shares"
_EVOLUTION: Final = "evolution"


@dataclass
class StagedFrame:
    """Shares of one load; their publisher ends the load (`maintenance.recovery.ending`).

    Attributes:
        task: the task that staged them.
        shares: of the tasks that Spark has accepted.
    """

    task: WriteTask
    shares: Sequence[StagedRows]

    def hand_over(self, directory: Path) -> None:
        """Writes the frame to a directory for the process that called `stage_frame`."""
        (directory / HANDED_OVER).write_bytes(pickle.dumps(self))


def hand_evolution(directory: Path, evolution: Evolution) -> None:
    """Writes the schema that a frame needs for the process that writes it."""
    (directory / _EVOLUTION).write_bytes(pickle.dumps(evolution))


def handed_evolution(directory: Path | None) -> Evolution | None:
    """Returns the schema that a frame needs, None where it needs no other."""
    if directory is None or not (directory / _EVOLUTION).exists():
        return None
    evolution: Evolution = pickle.loads((directory / _EVOLUTION).read_bytes())
    return evolution


def run_task(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> StagedRows:
    """Stages the batches of a Spark task; without batches it stages nothing."""
    plain = map(local_times, batches)
    first = next(plain, None)
    if first is None:
        return StagedRows()
    rest = (batch for part in ([first], plain) for batch in part)
    return task.run(pa.RecordBatchReader.from_batches(first.schema, rest))
