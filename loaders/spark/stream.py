"""Streams of the data source: the change feed of a table in, and versions out.

Reading, offsets are versions of a table:

1. A new query starts with the rows of the version at which its first batch ends, as `+I`; `starting_version`
   leaves them out and starts with the changes of that version.
2. Every later batch has the changes of some versions (`change_feed`), at most `max_rows_per_batch` of them
   unless one version has more. Versions that change no data, such as compactions, bring nothing.
3. A version that changes the schema of the query ends the query, once everything before it was delivered. The
   query that is started next continues behind it. It has the new schema, in which it also reads older rows. A
   table that was made again ends the query too.

Snapshot rows are read by executors; changes are computed beside the driver and travel to the tasks
(loaders.spark.change_share).

Writing, a batch becomes one version under a label of query id and batch number. A batch that runs again finds
its label and is skipped. The query id is read from the checkpoint; without one there is no stream. Spark
makes a writer for the tasks of each batch, and another one that commits or aborts it. The second finds the
loads of the first by the query's id.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from seqstore.loaders.spark.change_share import ChangeRange, ChangeShare, ChangeShares, change_ranges
from seqstore.loaders.spark.counters import LoadCounters, tell_load
from seqstore.loaders.spark.driver import driver_process
from seqstore.loaders.spark.frame_types import arrow_schema, frame_rows, frame_schema, written_schema
from seqstore.loaders.spark.options import STREAM_READ, STREAM_WRITE, SourceOptions
from seqstore.loaders.spark.place import begun_loads, end_loads, ending
from seqstore.loaders.spark.staged_frame import run_task
from seqstore.store import InvalidInputError, LabelExistsError, LoadResult, NotFoundError, Store, Table
from seqstore.store.catalog.transaction_record import TransactionStatus
from seqstore.store.history.change_feed import CHANGE_TYPE, FEED_FIELDS
from seqstore.store.load.write_task import StagedRows
from seqstore.store.read.live_segment import Projection
from seqstore.store.read.scan_task import ScanTask
from seqstore.store.remote.remote_table import RemoteTable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LOG: Final = logging.getLogger(__name__)
_FEED_NAMES: Final = frozenset(field.name.lower() for field in FEED_FIELDS)


def feed_frame_schema(table: Table, columns: Sequence[str] | None = None) -> StructType:
    """Returns columns of the stream: the table's, then kind, version and time of each change.

    Args:
        columns: of the table's, only these.

    Raises:
        InvalidInputError: unknown column.
    """
    schema = frame_schema(table.schema, Projection.of(table.schema, columns, hidden=False).names)
    for field in schema.fields:
        field.nullable = True
    extra = from_arrow_schema(pa.schema(FEED_FIELDS))
    return type(schema)([*schema.fields, *extra.fields])


@dataclass
class SnapshotShare(InputPartition):
    """Rows a query starts with."""

    def __init__(self, task: ScanTask, version: int, time_ms: int) -> None:
        super().__init__(None)
        self.task, self.version, self.time_ms = task, version, time_ms


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the change feed; see the module.

    Raises:
        InvalidInputError: the change feed is not requested, or an option has no meaning for it.
    """

    def __init__(self, schema: StructType, asked: SourceOptions) -> None:
        asked.refuse_others(STREAM_READ, "readStream, which brings every change of the table")
        self._asked = asked
        self._wanted = arrow_schema(schema)
        if CHANGE_TYPE not in self._wanted.names:
            raise InvalidInputError(
                f"a stream of {asked.table} is a change feed: set the option changes to true, or name "
                f"{CHANGE_TYPE} in its schema",
                kind="missing_option",
            )
        self._end: int | None = None
        self._shares: ChangeShares | None = None
        with asked.place.open() as store:
            table = store.table(asked.table)
            stored = table.schema
        self._table_id, self._revision = table.id, stored.revision
        known = {name.lower() for name in (*stored.names, *_FEED_NAMES)}
        unknown = [name for name in self._wanted.names if name.lower() not in known]
        if unknown:
            raise InvalidInputError(
                f"unknown column {unknown[0]!r} in the stream's schema; {asked.table} has "
                f"{', '.join(stored.names)}, and its changes {', '.join(sorted(_FEED_NAMES))}",
                kind="unknown_column",
            )

    def initialOffset(self) -> dict[str, int]:
        first = self._asked.starting_version
        if first is not None:
            self._refuse_future(first)
        # 0 stands for the rows there are. A table's first version is its creation, which brings none.
        return self._at(0 if first is None else max(first - 1, 1))

    def _refuse_future(self, first: int) -> None:
        with self._asked.place.open() as store:
            newest = store.table(self._asked.table).version
        if first > newest + 1:
            raise InvalidInputError(
                f"starting_version {first}: the newest version of {self._asked.table} is {newest}; name one "
                f"up to {newest + 1}, which starts the stream at the version after it",
                kind="bad_option",
            )

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._asked.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        with self._asked.place.open() as store:
            self._end = store.table(self._asked.table).version

    def reportLatestOffset(self) -> dict[str, int]:
        with self._asked.place.open() as store:
            return self._at(store.table(self._asked.table).version)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Returns the end of the next batch.

        Raises:
            InvalidInputError: the next version changes the schema, or the table is another one.
        """
        with self._asked.place.open() as store:
            table = self._same_table(store, start)
            head = table.version if self._end is None else min(self._end, table.version)
            first = start["version"]
            if first == 0:
                return self._at(head)
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            return self._at(self._end_of_batch(table, first, head, most))

    def _at(self, version: int) -> dict[str, int]:
        """Returns an offset. It names the table too, for a name may mean another one later."""
        return {"version": version, "table": self._table_id}

    def _same_table(self, store: Store, offset: dict[str, int]) -> Table:
        try:
            table = store.table(self._asked.table)
        except NotFoundError as error:
            raise self._other_table("was dropped") from error
        if table.id != offset.get("table", self._table_id):
            raise self._other_table("was dropped and made again")
        return table

    def _other_table(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self._asked.table} {what} since the stream began; start a query with a new checkpoint",
            kind="different_table",
        )

    def _end_of_batch(self, table: Table, first: int, head: int, most: int | None) -> int:
        rows, end, kept = 0, first, table.kept_versions
        for info in table.history():
            if not first < info.version <= head:
                continue
            rows += info.metrics.rows_loaded + info.metrics.rows_deleted
            if info.version not in kept:  # thinned out: the next kept version has the net changes
                continue
            if info.revision > self._revision:
                if end == first:
                    raise InvalidInputError(
                        f"version {info.version} of {table.name} changed its schema; everything before it "
                        "was delivered, start the query again to go on with the new schema",
                        kind="metadata_changed",
                        version=info.version,
                    )
                return end
            if most is not None and rows > most and end > first:
                return end
            end = info.version
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["version"], end["version"]
        if first == last:
            return []
        with self._asked.place.open() as store:
            table = self._same_table(store, end)
            if first == 0:
                time_ms = round(_time_of(table, last).timestamp() * 1000)
                own = [name for name in self._wanted.names if name.lower() not in _FEED_NAMES]
                tasks = table.scan_tasks(
                    own or None, version=last, rows_per_task=self._asked.rows_per_partition
                )
                return [SnapshotShare(task, last, time_ms) for task in tasks]
            if isinstance(table, RemoteTable):
                return change_ranges(table, first + 1, last)
            if self._shares is None:
                self._shares = ChangeShares(table, driver_process())
            return self._shares.of(table.changes(first + 1, last), last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, (ChangeShare, ChangeRange)):
            for batch in partition.read():
                yield self._as_wanted(batch)
        elif isinstance(partition, SnapshotShare):
            moment = datetime.fromtimestamp(partition.time_ms / 1000, UTC).replace(tzinfo=None)
            values = {"_change_type": "+I", "_commit_version": partition.version, "_commit_timestamp": moment}
            for batch in partition.task.read():
                for field in FEED_FIELDS:
                    column = pa.repeat(pa.scalar(values[field.name], field.type), batch.num_rows)
                    batch = batch.append_column(field, column)
                yield self._as_wanted(batch)

    def _as_wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        by_name = {name.lower(): i for i, name in enumerate(batch.schema.names)}
        columns = [batch.column(by_name[name.lower()]) for name in self._wanted.names]
        named = pa.RecordBatch.from_arrays(columns, names=self._wanted.names)
        return frame_rows(named, self._wanted)

    def commit(self, end: dict[str, int]) -> None:
        """Deletes the shares of the batches that end here. Retention decides which versions stay readable."""
        if self._shares is not None:
            self._shares.done(end["version"])

    def stop(self) -> None:
        if self._shares is not None:
            self._shares.close()

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_shares": None,
            "_asked": self._asked.of_task(),
        }  # tasks read what they are given


def _time_of(table: Table, version: int) -> datetime:
    return next(info.timestamp for info in table.history() if info.version == version)


@dataclass
class StagedBatchShare(WriterCommitMessage):
    """The message of a micro-batch's task to the driver."""

    rows: StagedRows


class BatchWriter(DataSourceStreamArrowWriter):
    """Writes a micro-batch as one version; see the module.

    Args:
        overwrite: a batch is all there is to be (outputMode complete).
        counters: raised by the rows of each batch.

    Raises:
        InvalidInputError: the columns do not fit the table, an option has no meaning for a stream, or there
            is no checkpoint that can be read.
        NotFoundError: no such partition.
    """

    def __init__(
        self,
        schema: StructType,
        asked: SourceOptions,
        *,
        overwrite: bool = False,
        counters: LoadCounters | None = None,
    ) -> None:
        asked.refuse_others(STREAM_WRITE, "writeStream, which labels each batch itself")
        if overwrite:
            asked.load.refuse_overwriting(asked.table)
            if asked.partitions:
                raise InvalidInputError(
                    "option partitions: a batch of outputMode complete replaces the whole table",
                    kind="bad_option",
                )
        self._asked = asked
        self._overwrite = overwrite
        self._counters = counters
        self._query = query_id(asked)
        with asked.place.open() as store:
            table = store.table(asked.table)
            columns = written_schema(schema, table.schema)
            self._task = table.write_task(
                driver_process(), partitions=asked.partitions, purpose=self._query, **asked.load.staging
            )
            self._asked = asked.of_job(store)
        self._task.check_columns(columns.empty_table())
        self._task.begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatchShare:
        return StagedBatchShare(run_task(self._task, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        shares = [message.rows for message in messages if isinstance(message, StagedBatchShare)]
        what = f"{self._asked.table}: epoch {batchId} of query {self._query}"
        with self._asked.place.open() as store:
            table = store.table(self._asked.table)
            with ending(table, *self._begun(table, shares)):
                try:
                    done = self._publish(table, shares, batchId)
                except LabelExistsError as error:
                    if error.status != TransactionStatus.VISIBLE:
                        raise
                    _LOG.warning("%s is version %d already: skipped", what, error.version)
                else:
                    tell_load(_LOG, what, done, self._counters)

    def _publish(self, table: Table, shares: list[StagedRows], batch: int) -> LoadResult:
        asked = self._asked
        label = f"spark-{self._query}-{batch}-{table.id}"
        with table.begin_load(
            label=label, operation="SPARK WRITE", partitions=asked.partitions, **asked.load.beginning
        ) as load:
            if self._overwrite:
                load.clear()
            for share in shares:
                load.adopt(share)
            return load.commit(max_filter_ratio=asked.load.max_filter_ratio)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Ends the loads of the batch.

        Spark also aborts a batch that may be committed: when the commit failed, or its process was lost.
        """
        shares = [message.rows for message in messages if isinstance(message, StagedBatchShare)]
        with self._asked.place.open() as store:
            table = store.table(self._asked.table)
            end_loads(table, self._begun(table, shares))

    def _begun(self, table: Table, shares: list[StagedRows]) -> list[Any]:
        """Returns the loads that earlier writers of the query began; later ones have other batches."""
        known = {share.load for share in shares if share.load is not None}
        found = begun_loads(table, self._task.load)
        return list(known.union(found))


def query_id(asked: SourceOptions) -> str:
    """Returns the id of a query, which its checkpoint keeps.

    Raises:
        InvalidInputError: there is no checkpoint, or not on a local or mounted directory.
    """
    if asked.checkpoint is None:
        raise InvalidInputError(
            "a stream into format seqstore needs the option checkpointLocation, which makes batches "
            "exactly-once",
            kind="missing_option",
        )
    parts = urlsplit(asked.checkpoint)
    path = Path(unquote(parts.path) if parts.scheme == "file" else asked.checkpoint) / "metadata"
    try:
        metadata: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{path}: cannot be read ({error}); keep the checkpoint on a local or mounted directory, or use "
            "foreach_batch_sink",
            kind="bad_checkpoint",
        ) from error
    return str(metadata["id"])
