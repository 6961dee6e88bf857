"""A Structured Streaming sink: each micro-batch becomes one version of a table, exactly once.

    query = events.writeStream.foreachBatch(foreach_batch_sink("/data/shop", "shop.orders"))
    query.option("checkpointLocation", "/data/checkpoints/orders").start()

Spark promises to run an epoch again, with the same rows, until its checkpoint says it is done. So:

1. A small epoch comes to the driver as Arrow and is loaded there; the executors of a large one, or of one
   whose size Spark cannot tell, stage their shares themselves (store.write_task). Rows of a table with column
   groups are merged with stored ones first, so they always come to the driver.
2. Either way it is published under a label made of query id, epoch and table. Rows and label become visible
   in one switch.
3. A crash before the switch left nothing: the epoch runs again and loads. A crash after it left rows and
   label: the epoch runs again, meets its label, and is skipped.

The query id lives in the checkpoint. A new checkpoint is a new query: its epochs are loaded again, as are
epochs whose labels were forgotten (setting `label_keep_seconds`, by default after three days). In a table
with a sequence column loading the same rows again changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loaders.spark.registration import register
from store import InvalidInputError, LabelExistsError, Store, Table
from store.publish import Figures
from store.transaction import VISIBLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_LOG: Final = logging.getLogger(__name__)
_LOAD_OPTIONS: Final = frozenset(["sequence", "merge_type", "max_filter_ratio"])
# What a driver takes without noticing. Starting tasks takes longer than small epochs do.
DRIVER_BYTES_MAX: Final = 64 * 2**20
_QUERY_ID: Final = "sql.streaming.queryId"  # the local property Spark sets on the thread that runs an epoch


@dataclass(frozen=True)
class EpochReport:
    """What an epoch came to.

    Attributes:
        query_id, epoch: as Spark counts them.
        label: under which the rows were loaded.
        version: the table's version that has them.
        figures: what became of the rows; None when an earlier run of the epoch had loaded them already.
    """

    query_id: str
    epoch: int
    label: str
    version: int
    figures: Figures | None

    @property
    def is_replay(self) -> bool:
        return self.figures is None


def foreach_batch_sink(
    path: str | Path, table: str, *, driver_bytes_max: int = DRIVER_BYTES_MAX, **load_options: Any
) -> Callable[[DataFrame, int], EpochReport]:
    """A function for `DataStreamWriter.foreachBatch` that upserts every epoch into a table.

    Args:
        path: the store's data directory, on the driver's host.
        table: `database.table`; it must exist.
        driver_bytes_max: epochs that Spark estimates to be larger are staged by its executors.
        load_options: `sequence`, `merge_type`, `max_filter_ratio`, as in `Table.upsert`.

    Returns:
        The function. Spark ignores what it returns; a caller that wraps it need not.

    Raises:
        InvalidInputError: an unknown load option; when called: no streaming query runs, or the columns do not
            fit.
        NotFoundError: when called: no such store or table.
    """
    unknown = sorted(load_options.keys() - _LOAD_OPTIONS)
    if unknown:
        raise InvalidInputError(
            f"load option {unknown[0]!r} is not known; expected some of {', '.join(sorted(_LOAD_OPTIONS))}",
            kind="unknown_option",
        )
    sink = _Sink(Path(path), table, driver_bytes_max, load_options)

    def load_epoch(df: DataFrame, epoch: int) -> EpochReport:
        query_id = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query_id is None:
            raise InvalidInputError(
                f"loading into {table}: no streaming query is running, so there is no epoch to label; "
                "hand the sink to writeStream.foreachBatch",
                kind="no_query",
            )
        return sink.load(df, query_id, epoch)

    return load_epoch


@dataclass(frozen=True)
class _Sink:
    """Where epochs go; see `foreach_batch_sink`."""

    path: Path
    table: str
    driver_bytes_max: int
    load_options: dict[str, Any]

    def load(self, df: DataFrame, query_id: str, epoch: int) -> EpochReport:
        with Store.open(self.path, create=False) as store:
            table = store.table(self.table)
            # Labels belong to a database, and one query may feed several of its tables: the label names the
            # table too.
            label = f"spark-{query_id}-{epoch}-{table.id}"
            try:
                table.refuse_label(label)
            except LabelExistsError as error:
                if error.status != VISIBLE:
                    raise
                _LOG.warning(
                    "%s: epoch %d of query %s is version %d already: skipped",
                    self.table,
                    epoch,
                    query_id,
                    error.version,
                )
                return EpochReport(query_id, epoch, label, error.version, None)
            self._publish(table, without_zones(df), label)
            done = table.find_label(label)
            assert done is not None  # it was published just now
            made = [info for info in reversed(table.history()) if info.label == label]
            figures = made[0].figures if made else Figures()  # an epoch without rows makes no version
        _LOG.info(
            "%s: epoch %d of query %s: %d rows, version %d",
            self.table,
            epoch,
            query_id,
            figures.rows_total,
            done.version,
        )
        return EpochReport(query_id, epoch, label, done.version, figures)

    def _publish(self, table: Table, df: DataFrame, label: str) -> None:
        if table.schema.groups or _estimated_bytes(df) <= self.driver_bytes_max:
            table.upsert(df.toArrow(), label=label, operation="SPARK WRITE", **self.load_options)
            return
        register(df.sparkSession)
        options = {name: str(value) for name, value in self.load_options.items() if value is not None}
        writer = df.write.format("seqstore").mode("append").options(**options, label=label)
        writer.option("path", str(self.path)).option("table", self.table).save()


def _estimated_bytes(df: DataFrame) -> int:
    """What Spark's planner expects the frame to hold; very much where it knows nothing."""
    return int(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def without_zones(df: DataFrame) -> DataFrame:
    """Every `timestamp` as the session's time zone shows it: a DATETIME has no zone. Nested ones too."""
    from pyspark.sql import functions

    kinds = [(field.name, field.dataType, _without_zone(field.dataType)) for field in df.schema]
    if all(kind == plain for _, kind, plain in kinds):
        return df
    quoted = [("`" + name.replace("`", "``") + "`", name, plain) for name, _, plain in kinds]
    return df.select([functions.col(column).cast(plain).alias(name) for column, name, plain in quoted])


def _without_zone(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType, TimestampNTZType, TimestampType

    if isinstance(kind, TimestampType):
        return TimestampNTZType()
    if isinstance(kind, ArrayType):
        return ArrayType(_without_zone(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_without_zone(kind.keyType), _without_zone(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        fields = [StructField(field.name, _without_zone(field.dataType), field.nullable) for field in kind]
        return StructType(fields)
    return kind
