"""The Spark data source `seqstore`: batch reads of a snapshot, batch writes as one version.

    from seqstore.loaders.spark import register
    register(spark)
    spark.read.format("seqstore").option("path", DATA_DIR).option("table", "db.t").load()
    frame.write.format("seqstore").mode("append").option("path", DATA_DIR).option("table", "db.t").save()

Reading: one process beside the driver plans the snapshot into shares (read.scan_task), an input partition
each; executors open segment files, apply deletes and filters, and never see the catalog. The option `filter`
prunes by zone maps. Filters of the query itself do so too with `pushdown`, which is right for frames and
views that are read by one query only: Spark 4.3 keeps the plan of a source with the relation. Any other read
of the same frame (a second action, the other side of a union) would return the rows of the filter that was
pushed last.

Writing: executors check and stage their partition (load.write_task); the rows become visible in `commit`,
which runs once, beside the driver, and publishes all shares as one version. Commit or abort removes the files
of tasks that ran twice, or still run (segment.load_marker).

Spark runs each of these in processes of their own, so every one opens the store by its path.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    Filter,
    InputPartition,
    WriterCommitMessage,
)

from seqstore.loaders.spark.counters import LoadCounters, tell_load
from seqstore.loaders.spark.driver import driver_process
from seqstore.loaders.spark.frame_types import arrow_schema, frame_rows, frame_schema, written_schema
from seqstore.loaders.spark.options import (
    HOW_TO_READ,
    HOW_TO_WRITE,
    SNAPSHOT_READ,
    SNAPSHOT_WRITE,
    SourceOptions,
)
from seqstore.loaders.spark.place import end_loads, ending
from seqstore.loaders.spark.pushdown import arrow_filter
from seqstore.loaders.spark.staged_frame import StagedFrame, handed_evolution, run_task
from seqstore.loaders.spark.stream import BatchWriter, ChangeReader, feed_frame_schema
from seqstore.store import InvalidInputError, Table, TableSchema
from seqstore.store.catalog.app_ids import DUPLICATE
from seqstore.store.catalog.transaction_record import check_label
from seqstore.store.load.write_task import StagedRows
from seqstore.store.read.live_segment import Projection
from seqstore.store.read.scan_task import ScanTask
from seqstore.store.schema.column import hidden_name
from seqstore.store.schema.partitions import any_partition_filter, partition_named, partitioned

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME: Final = "seqstore"
_LOG: Final = logging.getLogger(__name__)


class SeqstoreSource(DataSource):
    """See the module."""

    _counters: ClassVar[LoadCounters | None] = None

    @classmethod
    def counting(cls, counters: LoadCounters | None) -> type[SeqstoreSource]:
        """Returns a class of the source that raises counters by the rows it publishes.

        Spark makes sources from their class and passes them only options, so a class has to hold the
        counters. The class is made here, where no name leads to it: such classes travel by value, with their
        attributes.
        """
        if counters is None:
            return cls
        return type("CountingSource", (cls,), {"_counters": counters})

    def __init__(self, options: CaseInsensitiveDict) -> None:
        super().__init__(options)
        self._asked = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        asked = self._asked
        if asked.changes:  # Spark calls this for batches and for streams
            with asked.place.open() as store:
                return feed_frame_schema(store.table(asked.table), asked.columns)
        with asked.place.open() as store:
            schema = store.table(asked.table).snapshot(asked.version).schema
        return frame_schema(schema, Projection.of(schema, asked.columns, hidden=asked.hidden).names)

    def reader(self, schema: StructType) -> SnapshotReader:
        if self._asked.changes:
            raise InvalidInputError(
                "option changes is for readStream; between two versions, read Table.changes",
                kind="bad_option",
            )
        return (PushdownReader if self._asked.pushdown else SnapshotReader)(schema, self._asked)

    def writer(self, schema: StructType, overwrite: bool) -> VersionWriter:
        return VersionWriter(schema, self._asked, overwrite=overwrite, counters=self._counters)

    def streamReader(self, schema: StructType) -> ChangeReader:
        return ChangeReader(schema, self._asked)

    def streamWriter(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(schema, self._asked, overwrite=overwrite, counters=self._counters)


@dataclass
class Share(InputPartition):
    """An input partition: a share of a snapshot."""

    task: ScanTask

    def __init__(self, task: ScanTask) -> None:
        super().__init__(None)
        self.task = task


class SnapshotReader(DataSourceReader):
    """Reads one version.

    Args:
        schema: the requested columns and types, the source's own or a narrower one of the user.

    Raises:
        InvalidInputError: an option has no meaning for it.
    """

    def __init__(self, schema: StructType, asked: SourceOptions) -> None:
        asked.refuse_others(SNAPSHOT_READ, "a read of one version", HOW_TO_WRITE)
        self._asked = asked
        self._wanted = arrow_schema(schema)
        with asked.place.open() as store:
            snapshot = store.table(asked.table).snapshot(asked.version)
            self._asked = asked.of_job(store)
        self._filter = None if asked.filter is None else _parse_filter(snapshot.schema, asked.filter)
        # Later steps run in other processes, perhaps after other loads: they are to see what this one saw.
        self._version = snapshot.version
        self._stored = Projection.of(snapshot.schema, self._wanted.names, hidden=False)

    def partitions(self) -> Sequence[InputPartition]:
        with self._asked.place.open() as store:
            tasks = store.table(self._asked.table).scan_tasks(
                self._stored.names,
                self._filter,
                self._version,
                rows_per_task=self._asked.rows_per_partition,
            )
        return [Share(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Share):
            return  # what Spark makes of no partitions at all
        for batch in partition.task.read():
            named = batch.rename_columns(self._wanted.names)
            yield frame_rows(named, self._wanted)


def _parse_filter(schema: TableSchema, text: str) -> pc.Expression:
    """Parses the option filter.

    The SQL packages are imported here because each of Spark's workers waits for the imports of the module.
    """
    from seqstore.store.sql.parse.tokens import parse_tree
    from seqstore.store.sql.translate.predicates import scan_filter

    return scan_filter(schema, parse_tree(text, 0, len(text)), "option filter:")


class PushdownReader(SnapshotReader):
    """Reads one version for one query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keeps the filters that the store applies exactly as Spark would, and returns the rest."""
        stored = dict(zip(self._wanted.names, self._stored.arrow, strict=True))
        for pushed in filters:
            expression = arrow_filter(pushed, stored, self._wanted)
            if expression is None:
                yield pushed
            else:
                self._filter = expression if self._filter is None else self._filter & expression


def _refuse_other_columns(named: Sequence[str] | None, written: Sequence[str]) -> None:
    """Checks the option columns of a write: in an INSERT into a view it names the written columns.

    Raises:
        InvalidInputError: the option names other columns than the frame has, hidden ones aside.
    """
    if named is not None and _visible(named) != _visible(written):
        raise InvalidInputError(
            f"option columns selects columns of a read, not of a write: it has {', '.join(named)}, the frame "
            f"has {', '.join(written)}; select the columns of the frame",
            kind="bad_option",
        )


def _visible(names: Sequence[str]) -> set[str]:
    return {name.lower() for name in names if hidden_name(name) is None}


@dataclass
class StagedShare(WriterCommitMessage):
    """The message of a task to the driver."""

    rows: StagedRows


class VersionWriter(DataSourceArrowWriter):
    """Writes a frame as one version of a table.

    Raises:
        InvalidInputError: the frame's columns do not fit the table, or an option has no meaning for a write.
        NotFoundError: no such partition.
        LabelExistsError: the label names a running or finished load.
    """

    def __init__(
        self,
        schema: StructType,
        asked: SourceOptions,
        *,
        overwrite: bool = False,
        counters: LoadCounters | None = None,
    ) -> None:
        asked.refuse_others(SNAPSHOT_WRITE, "a write", HOW_TO_READ)
        _refuse_other_columns(asked.columns, schema.names)
        if asked.label is not None:
            check_label(asked.label)
        self._asked = asked
        self._overwrite = overwrite
        self._counters = counters
        if overwrite:
            asked.load.refuse_overwriting(asked.table)
        with asked.place.open() as store:
            table = store.table(asked.table)
            if asked.label is not None:
                table.refuse_label(asked.label)
            evolution = handed_evolution(asked.staged_to)
            columns = written_schema(schema, table.schema if evolution is None else evolution.schema)
            further: dict[str, Any] = {} if evolution is None else {"evolution": evolution}
            self._task = table.write_task(
                driver_process(), partitions=asked.partitions, **asked.load.staging, **further
            )
            self._asked = asked.of_job(store)
        self._task.check_columns(columns.empty_table())
        self._task.begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedShare:
        return StagedShare(run_task(self._task, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        shares = [message.rows for message in messages if isinstance(message, StagedShare)]
        if self._asked.staged_to is not None:
            StagedFrame(self._task, shares).hand_over(self._asked.staged_to)
            return
        with self._asked.place.open() as store:
            table = store.table(self._asked.table)
            with ending(table, self._task.load):
                self._publish(table, shares)

    def _publish(self, table: Table, shares: list[StagedRows]) -> None:
        asked = self._asked
        app_id, version = asked.app
        with table.begin_load(
            label=asked.label,
            operation="SPARK WRITE",
            txn_app_id=app_id,
            txn_version=version,
            partitions=asked.partitions,
            **asked.load.beginning,
        ) as load:
            if self._overwrite:
                load.clear(self._overwritten(table))
            for share in shares:
                load.adopt(share)
            done = load.commit(max_filter_ratio=asked.load.max_filter_ratio)
        if done.status != DUPLICATE:
            tell_load(_LOG, asked.table, done, self._counters)
        else:
            _LOG.warning(
                "%s: txnVersion %s of %r was committed before, as version %d: skipped",
                asked.table,
                version,
                app_id,
                done.version,
            )

    def _overwritten(self, table: Table) -> pc.Expression | None:
        """Returns the condition of the replaced rows: those of the named partitions, or all."""
        if not self._asked.partitions:
            return None
        partitioned(table.schema, table.name)
        named = [partition_named(table.schema, name) for name in self._asked.partitions]
        return any_partition_filter(table.schema, named)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Ends the load.

        Spark also aborts a write that may be committed: when the commit failed, or its process was lost.
        """
        with self._asked.place.open() as store:
            end_loads(store.table(self._asked.table), [self._task.load])
