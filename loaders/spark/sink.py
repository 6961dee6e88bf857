"""A Structured Streaming sink: each micro-batch becomes one version of a table, exactly once.

    query = events.writeStream.foreachBatch(foreach_batch_sink("/data/shop", "shop.orders"))
    query.option("checkpointLocation", "/data/checkpoints/orders").start()

Spark promises to run an epoch again, with the same rows, until its checkpoint says it is done. So:

1. The rows of the epoch come to the driver as Arrow.
2. They are loaded under a label made of query id, epoch and table. Rows and label become visible in one
switch. 3. A crash before the switch left nothing: the epoch runs again and loads. A crash after it left rows
and label: the
   epoch runs again, meets its label, and is skipped.

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

from store import InvalidInputError, LabelExistsError, LoadResult, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_LOG: Final = logging.getLogger(__name__)
_LOAD_OPTIONS: Final = frozenset(["sequence", "merge_type", "max_filter_ratio"])
_QUERY_ID: Final = "sql.streaming.queryId"  # the local property Spark sets on the thread that runs an epoch


@dataclass(frozen=True)
class EpochReport:
    """What an epoch came to.

    Attributes:
        query_id, epoch: as Spark counts them.
        label: under which the rows were loaded.
        version: the table's version that has them.
        result: None when an earlier run of the epoch had loaded them already.
    """

    query_id: str
    epoch: int
    label: str
    version: int
    result: LoadResult | None

    @property
    def is_replay(self) -> bool:
        return self.result is None


def foreach_batch_sink(
    path: str | Path, table: str, **load_options: Any
) -> Callable[[DataFrame, int], EpochReport]:
    """A function for `DataStreamWriter.foreachBatch` that upserts every epoch into a table.

    Args:
        path: the store's data directory, on the driver's host.
        table: `database.table`; it must exist.
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

    def load_epoch(df: DataFrame, epoch: int) -> EpochReport:
        query_id = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query_id is None:
            raise InvalidInputError(
                f"loading into {table}: no streaming query is running, so there is no epoch to label; "
                "hand the sink to writeStream.foreachBatch",
                kind="no_query",
            )
        return _load_epoch(Path(path), table, df, query_id, epoch, load_options)

    return load_epoch


def _load_epoch(
    path: Path, table_name: str, df: DataFrame, query_id: str, epoch: int, load_options: dict[str, Any]
) -> EpochReport:
    with Store.open(path, create=False) as store:
        table = store.table(table_name)
        # Labels belong to a database, and one query may feed several of its tables: the label names the table
        # too.
        label = f"spark-{query_id}-{epoch}-{table.id}"
        try:
            result = table.upsert(without_zones(df).toArrow(), label=label, **load_options)
        except LabelExistsError as error:
            if error.status != "VISIBLE":
                raise
            _LOG.warning(
                "%s: epoch %d of query %s is version %d already: skipped",
                table_name,
                epoch,
                query_id,
                error.version,
            )
            return EpochReport(query_id, epoch, label, error.version, None)
    _LOG.info(
        "%s: epoch %d of query %s: %d rows, version %d",
        table_name,
        epoch,
        query_id,
        result.rows_total,
        result.version,
    )
    return EpochReport(query_id, epoch, label, result.version, result)


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
