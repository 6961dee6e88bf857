"""A client of histories that works by Spark: frames, `foreachBatch`, and reads of several tables."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seqstore.loaders.spark import foreach_batch_sink, read_tables
from tests.support.replays.checked_history import LISTS, OK, OPEN, SETS, Transaction
from tests.support.replays.history_clients import Cells, HistoryClient, Tell, members_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS: Final = "k INT, n INT"


class SparkClient(HistoryClient):
    """A client with a session, in this process.

    Args:
        path: of the store.
        files: an empty directory for what its streams read.
    """

    works: Mapping[str, int] = {"read": 3, "add": 3, "epoch": 2}

    def __init__(self, name: str, tell: Tell, spark: SparkSession, path: Path, files: Path) -> None:
        super().__init__(name, tell)
        self._spark = spark
        self._path = path
        self._files = files

    def attempt(self, work: str, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            getattr(self, work)(done, cells, chosen)
            done.status = OK
        except (PySparkException, Py4JError):  # it wraps the store's; a label tells the outcome
            done.status = OPEN

    def read(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        """Reads all tables as of one moment."""
        frames = read_tables(self._spark, self._path, [f"db.{name}" for name in (*LISTS, *SETS)])
        rows = [
            (name.removeprefix("db."), row[0], row[1])
            for name, frame in frames.items()
            for row in frame.where(f"k {cells.condition}").collect()
        ]
        done.reads = cells.contents(rows)

    def rows(self, text: str) -> Iterable[tuple[Any, ...]]:
        raise NotImplementedError("it reads by frames")

    def add(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        """Appends a frame to one table."""
        table = chosen.choice(SETS)
        self.appending(done, members_of(cells, table, chosen))
        done.label = done.name
        self.tell(done)
        rows = [(cells.key(cell), number) for cell, number in done.appends.items()]
        options = {"path": str(self._path), "table": f"db.{table}", "label": done.label}
        frame = self._spark.createDataFrame(rows, _COLUMNS)
        frame.write.format("seqstore").mode("append").options(**options).save()

    def epoch(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        """Runs one epoch of a stream into both tables."""
        self.appending(done, [chosen.choice(members_of(cells, name, chosen)) for name in SETS])
        files = self._files / done.name
        files.mkdir(parents=True)
        rows = [{"t": cell[0], "k": cells.key(cell), "n": number} for cell, number in done.appends.items()]
        (files / "rows.json").write_text("\n".join(map(json.dumps, rows)))

        def rows_of(name: str, frame: DataFrame) -> DataFrame:
            return frame.where(f"t = '{name}'").select("k", "n")

        selected = {f"db.{name}": lambda frame, name=name: rows_of(name, frame) for name in SETS}
        stream = self._spark.readStream.schema(f"t STRING, {_COLUMNS}").json(str(files))
        self.tell(done)
        query = (
            stream.writeStream.foreachBatch(foreach_batch_sink(self._path, selected))
            .option("checkpointLocation", str(self._files / f"{done.name}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
