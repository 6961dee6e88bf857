"""A Structured Streaming sink: each micro-batch becomes a version of its tables, exactly once.

    query = events.writeStream.foreachBatch(foreach_batch_sink("/data/shop", "shop.orders"))
    query.option("checkpointLocation", "/data/checkpoints/orders").start()

    foreach_batch_sink("/data/shop", {                        # one epoch, two tables, one commit
        "shop.orders": lambda df: df.where("kind = 'order'").select("id", "price"),
        "shop.stock": Feed(stock_of, partial_columns=True),
    })

Spark runs an epoch again, with the same rows, until its checkpoint has it. So:

1. The driver collects a small frame as Arrow. The executors of a large one, or of one of unknown size, check
   and stage their shares themselves (load.write_task). Only the driver makes values of AUTO_INCREMENT
   columns, so it collects frames without such values whatever their size.
2. Either way the rows of all tables are published under one label made of query id, epoch and tables. Rows
   and label become visible in one commit.
3. A crash before the commit left nothing: the epoch runs again and loads. A crash after it left rows and
   label: the epoch runs again, finds its label, and is skipped.

The query id lives in the checkpoint. A new checkpoint is a new query: its epochs are loaded again, as are
epochs whose labels were forgotten (setting `label_keep_seconds`, by default after three days), and those of a
query whose list of tables was changed. In a table with a sequence column loading the same rows again changes
nothing.

Spark's pages describe the jobs, and `LoadCounters` are accumulators of the driver. Accumulators of tasks
would count a repeated task twice; these count each publish once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from seqstore.loaders.spark.change_frame import ChangeFrame, FrameOptions, read_frame, split_options
from seqstore.loaders.spark.counters import LoadCounters
from seqstore.loaders.spark.frame_types import written_schema
from seqstore.loaders.spark.growing_epoch import GrowingEpoch, GrowingPart
from seqstore.loaders.spark.options import LoadOptions, bytes_of
from seqstore.loaders.spark.place import Place, StoreAt, ending
from seqstore.loaders.spark.py4j_access import estimated_bytes
from seqstore.loaders.spark.staged_frame import StagedFrame
from seqstore.loaders.spark.staging import needs_driver, stage_frame
from seqstore.loaders.spark.winner_tests import AUTO, EXECUTORS, HOST, check_choice, let_executors_test
from seqstore.loaders.spark.zones import without_zones
from seqstore.store import (
    InvalidInputError,
    LabelExistsError,
    NotFoundError,
    Store,
    Table,
    TransactionOptions,
)
from seqstore.store.catalog.transaction_record import TransactionStatus
from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.check.column_mask import split_supplied
from seqstore.store.ddl.named_tables import split_name
from seqstore.store.load.load import Load
from seqstore.store.remote.remote_store import RemoteStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Select = Callable[[DataFrame], DataFrame]

_LOG: Final = logging.getLogger(__name__)
# A driver collects this much in less time than the start of tasks needs.
DRIVER_BYTES_MAX: Final = 64 * 2**20
DRIVER_BYTES_SETTING: Final = "spark.seqstore.driverBytesMax"
_QUERY_ID: Final = "sql.streaming.queryId"  # the local property Spark sets on the thread that runs an epoch


@dataclass(frozen=True)
class EpochReport:
    """The result of an epoch.

    Attributes:
        query_id, epoch: as Spark counts them.
        label: under which the rows were loaded.
        versions: of each table, the version that has them.
        tables: the outcome of the rows of each table; None when an earlier run of the epoch had loaded them
            already.
    """

    query_id: str
    epoch: int
    label: str
    versions: Mapping[str, int]
    tables: Mapping[str, VersionMetrics] | None

    @property
    def version(self) -> int:
        """That of the first table; 0 where the epoch has made none."""
        return next(iter(self.versions.values()), 0)

    @property
    def metrics(self) -> VersionMetrics | None:
        """Of all tables together; None for a replay."""
        if self.tables is None:
            return None
        each = [metrics.__dict__ for metrics in self.tables.values()]
        names = VersionMetrics().__dict__
        return VersionMetrics(**{name: sum(metrics[name] for metrics in each) for name in names})

    @property
    def is_replay(self) -> bool:
        return self.tables is None


class Feed:
    """The rows of an epoch for one table.

    Args:
        select: makes the table's rows of the epoch's frame.
        load_options: beside those of the sink.
    """

    def __init__(self, select: Select, **load_options: Any) -> None:
        self.select = select
        self.load_options = load_options


def foreach_batch_sink(
    path: str | Path | StoreAt,
    table: str | Mapping[str, Select | Feed],
    *,
    driver_bytes_max: int | str | None = None,
    counters: LoadCounters | None = None,
    winner_test: str = AUTO,
    **load_options: Any,
) -> Callable[[DataFrame, int], EpochReport]:
    """Builds a function for `DataStreamWriter.foreachBatch` that loads every epoch into one or more tables.

    Args:
        path: the store's data directory, on the driver's host; or a store elsewhere, also by its URL alone.
        table: `database.table`, or several of one database with a selection for each; they must exist,
            or are made with `auto_create`.
        driver_bytes_max: frames that Spark estimates to be larger are staged by its executors; bytes, or a
            size such as "64m"; by default the setting `spark.seqstore.driverBytesMax`, and without it 64 MiB.
        counters: raised by the rows of each epoch.
        winner_test: `executors`, `host`, or `auto`: executors for loads of at least 10 million rows, or
            `spark.seqstore.winnerTestRowsMin`; see loaders.spark.winner_tests.
        load_options: `sequence`, `merge_type`, `max_filter_ratio`, `partial_columns` and the others of
            loaders.spark.options for a load. With `format` (`debezium_json`, `canal_json`, `maxwell_json`,
            `debezium_avro`) the frame has messages in `value`, and their keys in `key`; then also
            `change_table`, `change_position`, `change_time_unit`, `schema_registry` and `timezone`.
            `auto_create` (with `auto_create_key` and `auto_create_sequence`), `schema_evolution` and
            `dead_letters` do what they do in other loads, in a store on the driver's host.

    Returns:
        The function. Spark ignores its result; a caller that wraps it can use the result.

    Raises:
        InvalidInputError: an unknown load option, no size, no tables, or tables of several databases; when
            called: no streaming query runs, or the columns do not fit.
        NotFoundError: when called: no such store or table.
    """
    parts = _parts(table, load_options)
    bytes_max = None if driver_bytes_max is None else bytes_of("driver_bytes_max", driver_bytes_max)
    sink = _Sink(_checked(path), parts, bytes_max, counters, _checked_choice(winner_test, path, parts))

    def load_epoch(df: DataFrame, epoch: int) -> EpochReport:
        query_id = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query_id is None:
            raise InvalidInputError(
                f"loading into {sink.names}: no streaming query is running, so there is no epoch to label; "
                "hand the sink to writeStream.foreachBatch",
                kind="no_query",
            )
        return sink.load(df, query_id, epoch)

    return load_epoch


def _checked_choice(winner_test: str, path: str | Path | StoreAt, parts: Sequence[_Part]) -> str:
    choice = check_choice(winner_test, is_elsewhere=Place.of(path).path is None)
    if choice == EXECUTORS and any(part.asked.growth is not None for part in parts):
        raise InvalidInputError(
            "winner_test = executors does not go with auto_create, schema_evolution or dead_letters: their "
            "rows are loaded in pieces; leave one of them out",
            kind="not_supported",
        )
    return choice


def _parts(table: str | Mapping[str, Select | Feed], load_options: Mapping[str, Any]) -> tuple[_Part, ...]:
    """Returns the tables of a sink with their options.

    Raises:
        InvalidInputError: the tables belong to several databases, or an option is unknown.
    """
    parts = []
    for name, made in _feeds(table).items():
        asked, options = split_options({**load_options, **made.load_options})
        parts.append(_Part(name, made.select, LoadOptions.named(options), options, asked))
    databases = sorted({split_name(part.table)[0] for part in parts})
    if len(databases) != 1:
        raise InvalidInputError(
            f"a sink loads tables of one database in one commit; found {', '.join(databases) or 'no tables'}",
            kind="other_database",
        )
    return tuple(parts)


def _checked(at: str | Path | StoreAt) -> str | Path | StoreAt:
    """Returns where the store is; a path as such, for Spark's option.

    Raises:
        InvalidInputError: the URL names no store.
    """
    place = Place.of(at)
    return at if place.path is None else place.path


def _feeds(table: str | Mapping[str, Select | Feed]) -> dict[str, Feed]:
    """Returns the tables of a sink, each with its selection.

    Raises:
        InvalidInputError: the argument is neither a name nor a mapping of names to selections.
    """
    if isinstance(table, str):
        return {table: Feed(lambda df: df)}
    if not isinstance(table, Mapping):
        raise _bad_feed(f"expected database.table, or a mapping of such names, found {table!r}")
    feeds = {}
    for name, given in table.items():
        if not isinstance(name, str):
            raise _bad_feed(f"expected names of tables, found {name!r}")
        feeds[name] = given if isinstance(given, Feed) else Feed(given)
        if not callable(feeds[name].select):
            raise _bad_feed(
                f"{name}: expected a function of the epoch's frame, or a Feed, found {feeds[name].select!r}"
            )
    return feeds


def _bad_feed(found: str) -> InvalidInputError:
    return InvalidInputError(f"tables of a sink: {found}", kind="bad_feed")


@dataclass(frozen=True)
class _Part:
    """A table and its selection of every epoch."""

    table: str
    select: Select
    options: LoadOptions
    given: Mapping[str, Any]
    asked: FrameOptions = field(default_factory=FrameOptions)

    def find(self, store: Store) -> Table | None:
        """Returns the table, None where the epoch is to make it.

        Raises:
            NotFoundError: there is no such table.
        """
        try:
            return store.table(self.table)
        except NotFoundError as error:
            growth = self.asked.growth
            if error.kind != "unknown_table" or growth is None or not growth.auto_create:
                raise
        return None

    @contextmanager
    def rows(
        self, df: DataFrame, at: str | Path | StoreAt, table: Table, bytes_max: int
    ) -> Iterator[pa.Table | StagedFrame | ChangeFrame]:
        """Yields the part's rows, collected on the driver or staged; messages of changes are read there.

        Staged rows are deleted unless they are published within the block.
        """
        if self.asked.changes is not None:
            yield read_frame(self.select(df), self.asked.changes, table)
            return
        frame = without_zones(self.select(df))
        written_schema(frame.schema, table.schema)  # what is refused there would load as something else
        if needs_driver(table.schema, frame.columns) or estimated_bytes(frame) <= bytes_max:
            yield frame.toArrow()
            return
        options = {name: str(value) for name, value in self.given.items() if value is not None}
        staged = stage_frame(frame, at, self.table, options)
        with ending(table, staged.task.load):
            yield staged

    def write(self, load: Load, rows: pa.Table | StagedFrame | ChangeFrame, table: Table) -> None:
        if isinstance(rows, ChangeFrame):
            rows.write(load)
            return
        if isinstance(rows, StagedFrame):
            for share in rows.shares:
                load.adopt(share)
            return
        plain, supplied = split_supplied(rows, self.options.supplied, table.schema)
        load.write(plain, supplied=supplied)


@dataclass(frozen=True)
class _Sink:
    """The destination of epochs; see `foreach_batch_sink`."""

    at: str | Path | StoreAt
    parts: tuple[_Part, ...]
    driver_bytes_max: int | None = None
    counters: LoadCounters | None = field(default=None, compare=False)
    winner_test: str = HOST

    @property
    def place(self) -> Place:
        return Place.of(self.at)

    @property
    def names(self) -> str:
        return ", ".join(part.table for part in self.parts)

    def load(self, df: DataFrame, query_id: str, epoch: int) -> EpochReport:
        with self.place.open() as store:
            tables = self._tables(store)
            label = self._label(query_id, epoch, tables)
            done = _earlier_run(tables, label) if tables else None
            if done is not None:
                _LOG.warning(
                    "%s: epoch %d of query %s is version %s already: skipped",
                    self.names,
                    epoch,
                    query_id,
                    ", ".join(map(str, done.values())),
                )
                return EpochReport(query_id, epoch, label, done, None)
            with _described(df, f"seqstore: epoch {epoch} into {self.names}"):
                if any(part.asked.growth is not None for part in self.parts):
                    self._grow(store, df, label)
                else:
                    self._publish(store, tables, df, label)
            versions, metrics = _outcome(self._tables(store), label)
        report = EpochReport(query_id, epoch, label, versions, metrics)
        if self.counters is not None:
            self.counters.count(metrics)
        for name, found in metrics.items():
            _LOG.info(
                "%s: epoch %d of query %s: %d rows, version %d",
                name,
                epoch,
                query_id,
                found.rows_total,
                versions[name],
            )
        return report

    def _publish(self, store: Store, tables: list[Table], df: DataFrame, label: str) -> None:
        bytes_max = self._bytes_max(df)
        with ExitStack() as stack:
            if len(tables) > 1:  # each would have Spark read the epoch again
                df = df.persist()
                stack.callback(df.unpersist)
            found = [
                stack.enter_context(part.rows(df, self.at, table, bytes_max))
                for part, table in zip(self.parts, tables, strict=True)
            ]
            if len(tables) == 1:
                part, table = self.parts[0], tables[0]
                with table.begin_load(label=label, operation="SPARK WRITE", **part.options.beginning) as load:
                    part.write(load, found[0], table)
                    if self.winner_test != HOST:
                        let_executors_test(df.sparkSession, load.writers, self.winner_test)
                    load.commit(max_filter_ratio=part.options.max_filter_ratio)
                return
            options = TransactionOptions(label=label, operation="SPARK WRITE", reads_own_writes=False)
            with store.transaction(options) as transaction:
                for part, table, rows in zip(self.parts, tables, found, strict=True):
                    own = transaction.table(table.name)
                    with own.begin_load(operation="SPARK WRITE", **part.options.beginning) as load:
                        part.write(load, rows, table)
                        load.commit(max_filter_ratio=part.options.max_filter_ratio)
                if self.winner_test != HOST:
                    let_executors_test(df.sparkSession, transaction.writers, self.winner_test)

    def _tables(self, store: Store) -> list[Table]:
        """Returns the tables that are there."""
        return [table for part in self.parts if (table := part.find(store)) is not None]

    def _label(self, query_id: str, epoch: int, tables: list[Table]) -> str:
        """Labels belong to a database, and one query may feed several of its tables by several sinks: the
        label names the tables too, by their ids, or by their names where the sink makes some."""
        ids = "-".join(str(number) for number in sorted(table.id for table in tables))
        if any(part.asked.growth is not None and part.asked.growth.auto_create for part in self.parts):
            ids = blake2b(self.names.encode(), digest_size=16).hexdigest()
        elif len(ids) > 40:  # a label has 128 characters
            ids = blake2b(ids.encode(), digest_size=16).hexdigest()
        return f"spark-{query_id}-{epoch}-{ids}"

    def _grow(self, store: Store, df: DataFrame, label: str) -> None:
        """Loads an epoch that may change tables beside their rows.

        Raises:
            InvalidInputError: the store is elsewhere.
        """
        if isinstance(store, RemoteStore):
            raise InvalidInputError(
                f"{self.names}: auto_create, schema_evolution and dead_letters of the sink need a store on "
                "the driver's host; alter or create the table before the query, or use a routine load",
                kind="not_supported",
            )
        with ExitStack() as stack:
            df = df.persist()  # it is read for the schema, and for the rows
            stack.callback(df.unpersist)
            registries = tuple(store.settings.schema_registries)
            parts = [
                GrowingPart(each.table, each.select(df), each.options, each.given, each.asked, registries)
                for each in self.parts
            ]
            GrowingEpoch(store, self.at, tuple(parts), label, self._bytes_max(df)).publish()

    def _bytes_max(self, df: DataFrame) -> int:
        if self.driver_bytes_max is not None:
            return self.driver_bytes_max
        given = df.sparkSession.conf.get(DRIVER_BYTES_SETTING, None)
        return bytes_of(DRIVER_BYTES_SETTING, given) if given else DRIVER_BYTES_MAX


def _earlier_run(tables: list[Table], label: str) -> dict[str, int] | None:
    """Returns the versions that an earlier run of the epoch made, None without such a run.

    A run without rows made no version of any of several tables.

    Raises:
        LabelExistsError: an earlier run has not ended.
    """
    table = tables[0]
    try:
        table.refuse_label(label)
    except LabelExistsError as error:
        if error.status != TransactionStatus.VISIBLE:
            raise
        done = table.find_label(label)
        made = done.versions if done is not None else {}
        if error.version and not made:
            return {table.name: error.version}
        versions = {each.name: made[each.name] for each in tables if each.name in made}
        return versions or {each.name: each.version for each in tables}  # dead letters are not of the sink
    return None


def _outcome(tables: list[Table], label: str) -> tuple[dict[str, int], dict[str, VersionMetrics]]:
    """Returns versions and metrics of the last publish; a table without rows has no new version."""
    versions, metrics = {}, {}
    for table in tables:
        made = [info for info in reversed(table.history()) if info.label == label]
        versions[table.name] = made[0].version if made else table.version
        metrics[table.name] = made[0].metrics if made else VersionMetrics()
    return versions, metrics


@contextmanager
def _described(df: DataFrame, text: str) -> Iterator[None]:
    """Sets the description of jobs on Spark's pages."""
    context = df.sparkSession.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)
