"""Stream load: an uploaded body and its headers become one version of a table.

    headers -> options      refused before a transaction begins (LR7)
    begin                   the label is reserved
    plan                    fields, derived columns, targets: refused before the first byte is read
    body -> batches         of a few megabytes: read, mapped, cast; bad rows counted and logged
    write                   the engine checks NULLs and lengths of the buffered batches (Y2, Y5)
    commit                  if no more rows were filtered than `max_filter_ratio` allows (Y7); with
                            `two_phase_commit: true` only the first phase (PC1)

Memory is that of the buffered batches, whatever the size of the body. A user's mistake is no exception: the
reply reports it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa

from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.begin import begin
from seqstore.loaders.created_table import loaded_table
from seqstore.loaders.csv.first_line import HEADER_ROW, is_header_row
from seqstore.loaders.dead_letters.letters import (
    DeadLetters,
    begin_beside,
    check_target,
    dropping_unused,
    kept_headers,
)
from seqstore.loaders.error_log import ROWS_MAX, ErrorLog
from seqstore.loaders.headers import StreamLoadOptions, parse_headers, unknown_headers
from seqstore.loaders.inference.needed_schema import kept_body, needed_evolution, with_fields
from seqstore.loaders.joined_bodies import JoinedBodies, run_joined, text_of
from seqstore.loaders.mapping import MappedBatch
from seqstore.loaders.reply import SUCCESS, Progress, StreamLoadReply, make_reply, reply_for_error
from seqstore.loaders.row_buffer import RowBuffer
from seqstore.loaders.row_source import Target, moment_in, open_rows
from seqstore.loaders.row_writer import RowWriter
from seqstore.loaders.source import BadRow, Reader, SourceBatch, described_max, keeping_bad_rows
from seqstore.store.check.partial_checker import check_flexible
from seqstore.store.errors import LoadRejectedError, MetadataChangedException, StoreError, UnavailableError
from seqstore.store.load.group_commit import LABEL_PREFIX, RATIO_ROWS_MAX, GroupedLoad
from seqstore.store.load.load import Load, LoadResult, WriteResult
from seqstore.store.locks.file_lock import waiting_at_most
from seqstore.store.publish.evolution import Evolution
from seqstore.store.runtime.cancellation import Cancellation, current, watched
from seqstore.store.runtime.freed_memory import release_freed_memory
from seqstore.store.runtime.memory_limit import out_of_memory
from seqstore.store.runtime.traces import describe, span
from seqstore.store.schema.properties import GROUP_COMMIT_OFF
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.store import Store
from seqstore.store.table import Table


def stream_load(
    store: Store,
    database: str,
    table: str,
    body: BinaryIO,
    headers: Mapping[str, str],
    *,
    turn: AbstractContextManager[Any] | None = None,
) -> StreamLoadReply:
    """Loads one body.

    Args:
        body: read to its end unless the load fails before.
        headers: of a Doris stream load, names in any case; others are ignored, and named in the message when
            they were meant for the load.
        turn: held while the body is read, staged and planned, and released before the commit, where loads
            wait for each other anyway. For bodies that are at hand: others wait for their client.

    Returns:
        The reply, success or not. The rows of a success are durable and, unless the load was only
        pre-committed, visible.
    """
    progress = Progress(label=_header(headers, "label"), comment=_header(headers, "comment"))
    name = f"{database}.{table}"
    with span("stream load", table=name):
        reply = _load(store, name, _CountedBody(body, progress), headers, turn)
        _describe(reply)
    return reply


def _load(
    store: Store,
    name: str,
    counted: _CountedBody,
    headers: Mapping[str, str],
    turn: AbstractContextManager[Any] | None,
) -> StreamLoadReply:
    progress = counted.progress
    started = time.monotonic()
    try:
        options = with_registry(parse_headers(headers), store.settings.schema_registries)
        with loaded_table(store, name, options, cast(BinaryIO, counted)) as found:
            progress.created = found.created
            load = StreamLoad(store, found.table, found.options, progress, turn)
            load.headers = headers
            load.run(found.body)
    except MemoryError:
        reply = reply_for_error(progress, out_of_memory("the load found no memory"))
    except (StoreError, OSError, pa.ArrowException) as error:
        reply = reply_for_error(progress, error)
    else:
        reply = make_reply(progress, SUCCESS, progress.skipped or "OK")
    notes = [progress.warning, *progress.schema_changes, progress.created] if reply.is_success else []
    for note in (*notes, unknown_headers(headers)):
        reply["Message"] += f"; {note}" if note else ""
    reply["LoadTimeMs"] = _milliseconds(started)
    return reply


def _describe(reply: StreamLoadReply) -> None:
    """Tells the outcome to the span of the load."""
    describe(
        status=reply["Status"],
        label=reply["Label"],
        txn_id=reply["TxnId"],
        rows_loaded=reply["NumberLoadedRows"],
        rows_filtered=reply["NumberFilteredRows"],
        bytes=reply["LoadBytes"],
    )


def _header(headers: Mapping[str, str], wanted: str) -> str:
    return next((value.strip() for name, value in headers.items() if name.strip().lower() == wanted), "")


@dataclass
class _CountedBody:
    """The body, which counts the bytes read."""

    inner: BinaryIO
    progress: Progress
    closed: bool = False

    def read(self, size: int = -1) -> bytes:
        data = self.inner.read(size)
        self.progress.body_bytes += len(data)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class StreamLoad:
    """One running load; `progress` holds its counts, also after a failure."""

    def __init__(
        self,
        store: Store,
        table: Table,
        options: StreamLoadOptions,
        progress: Progress,
        turn: AbstractContextManager[Any] | None = None,
        bodies: JoinedBodies | None = None,
    ) -> None:
        self._store = store
        self._table = table
        self._options = options
        self._progress = progress
        self._turn = turn or nullcontext()
        self._bodies = bodies
        self._moment = moment_in(options.time_zone)
        self._deadline = time.monotonic() + options.timeout_seconds
        self._buffer = RowBuffer()
        self._bad: list[BadRow] = []  # of the buffer, found so far
        self._bad_written: list[BadRow] = []  # of the buffer that is written
        self._is_first = True
        self.headers: Mapping[str, str] = {}
        self._letters: DeadLetters | None = None
        self._kept = ""  # the headers of dead letters
        self._made: list[str] = []  # tables whose dead letters are new
        self._base: TableSchema | None = None  # that the body was compared with
        self._evolution: Evolution | None = None
        self._unwritten = 0  # rows that were rejected before they were written

    @property
    def _schema(self) -> TableSchema:
        """The schema that rows are mapped to."""
        if self._base is None:
            return self._table.schema
        return self._base if self._evolution is None else self._evolution.schema

    def run(self, body: BinaryIO) -> None:
        """Begins the load, plans it, reads and writes the rows, and commits or pre-commits.

        Raises:
            StoreError: nothing of the load is visible.
        """
        keeping = keeping_bad_rows() if self._options.dead_letters else nullcontext()
        waits = waiting_at_most(self._deadline - time.monotonic())
        with dropping_unused(self._store, self._made), waits, keeping:
            if self._options.evolves:
                self._run_evolving(body)
                return
            text = text_of(getattr(body, "inner", body), self._options) if self._may_group() else None
            if text is None or not self._run_joined(text, body):
                self._run(body)

    def _run_evolving(self, body: BinaryIO) -> None:
        """Loads a body with the columns that it needs; again if another load has changed the schema (EV5)."""
        given = self._options
        with kept_body(body) as kept:
            self._options = with_fields(given, kept)
            while True:
                kept.seek(0)
                self._base = self._table.schema
                self._evolution = needed_evolution(self._table, self._base, given, kept)
                kept.seek(0)
                try:
                    self._run(kept)
                    break
                except MetadataChangedException:
                    self._check_deadline()
                    self._forget_counts()
        if self._evolution is not None and self._is_evolved(self._evolution):
            self._progress.schema_changes = self._evolution.changes

    def _is_evolved(self, evolution: Evolution) -> bool:
        """Returns whether the rows have brought the schema: a load that stores none changes nothing (EV3)."""
        is_stored = self._progress.loaded > 0 and not self._progress.skipped
        return is_stored and self._table.schema.revision >= evolution.schema.revision

    def _forget_counts(self) -> None:
        self._progress.loaded = self._progress.filtered = self._progress.unselected = 0
        self._unwritten = 0
        self._progress.txn_id, self._progress.error_url = -1, ""
        self._buffer, self._bad, self._bad_written, self._is_first = RowBuffer(), [], [], True

    def _run_joined(self, text: bytes, body: BinaryIO) -> bool:
        """Loads the body together with others that wait; returns False if it must be read alone."""

        def run(bodies: JoinedBodies, turn: AbstractContextManager[Any]) -> Progress:
            if bodies.is_one:
                self._turn, self._bodies = turn, bodies
                self._run(body)
                return self._progress
            joined = StreamLoad(self._store, self._table, self._options, Progress(), turn, bodies)
            joined._run(bodies.body())
            return joined._progress

        done, progress = run_joined(self._table, self._options, text, self._turn, run), self._progress
        if done is not None and done is not progress:
            progress.txn_id, progress.label, progress.is_grouped = done.txn_id, done.label, done.is_grouped
            progress.loaded, progress.body_bytes = done.loaded, done.body_bytes
            progress.milliseconds = done.milliseconds
        return done is not None

    def _run(self, body: BinaryIO) -> None:
        options, progress = self._options, self._progress
        progress.two_phase_commit = options.two_phase_commit
        Target(self._schema, self._table.name).check_partitions(options.partitions)
        if options.is_flexible:
            check_flexible(self._table.name, self._schema)
        with self._timed("BeginTxnTimeMs"):
            load = GroupedLoad(self._table, self._begin) if self._may_group() else self._begin()
            progress.label = load.label
            if options.label is not None or options.two_phase_commit:
                progress.txn_id = (
                    load.txn_id
                )  # others are given one when they commit: one write of the catalog
        with load:
            if self._base is not None and isinstance(load, Load):
                load.require_revision(self._schema.revision)
            if isinstance(load, Load) and load.skipped:
                progress.skipped = load.skipped
                progress.txn_id = load.commit().txn_id
                return
            self._letters = self._letters_of(load)
            log = ErrorLog(self._store.path, lambda: max(load.txn_id, 0))
            try:
                with self._turn, span("read and write"):
                    self._read_and_write(load, body, log)
                    self._log(log)
                    self._check_ratio(log)
                    if self._letters is not None:
                        self._letters.require(progress.filtered)
                    load.note_filtered(self._unwritten)
                    if self._bodies is not None:
                        self._bodies.require_clean(progress)
                    if isinstance(load, Load) and not options.two_phase_commit:
                        with self._timed("CommitAndPublishTimeMs"):
                            load.prepare_early()
            except BaseException:
                progress.txn_id = load.txn_id
                raise
            finally:
                self._take_buffer()
                self._log(log)
                log.close()
                progress.error_url = str(log.path or "")
            if options.two_phase_commit and isinstance(load, Load):  # PC1
                load.precommit()
                return
            with self._timed("CommitAndPublishTimeMs"):
                progress.txn_id = self._commit(load).txn_id
            progress.label = load.label

    def _commit(self, load: Load | GroupedLoad) -> LoadResult:
        bodies = self._bodies
        if bodies is None or isinstance(load, Load):
            return load.commit()
        return load.commit(len(bodies.counts))

    def _begin(self) -> Load:
        options = self._options
        prefix = LABEL_PREFIX if self._asks_for_group() else ""
        return begin(
            self._table,
            options,
            self._moment.local,
            operation="STREAM LOAD",
            label=options.label,
            label_prefix=prefix,
            evolution=self._evolution,
        )

    def _may_group(self) -> bool:
        """Returns whether the load may be grouped (G8).

        A load with an outcome of its own (label, two phases, txn ids) runs alone. A partial update runs alone
        because it reads history.
        """
        options = self._options
        is_plain = options.label is None and not options.two_phase_commit and not options.is_partial
        is_plain = is_plain and options.txn_app_id is None and options.txn_version is None
        is_plain = is_plain and not (options.evolves or options.dead_letters or options.auto_create)
        self._progress.is_grouped = self._asks_for_group() and is_plain and not self._table.schema.groups
        return self._progress.is_grouped

    def _asks_for_group(self) -> bool:
        """Returns whether the header, or without it the table, has a mode of group commit (G12)."""
        return (self._options.group_commit or self._table.schema.group_commit) != GROUP_COMMIT_OFF

    # ------------------------------------------------------------------------------------------ rows

    def _read_and_write(self, load: Load | GroupedLoad, body: BinaryIO, log: ErrorLog) -> None:
        server = current()
        running = Cancellation(self._look(server), server.owner if server is not None else "")
        with watched(running), ExitStack() as opened:
            with self._timed("StreamLoadPutTimeMs"):
                table = Target(self._schema, self._table.name)
                reader, mapping = open_rows(
                    body,
                    self._options,
                    table,
                    self._moment,
                    opened,
                    on_read=self._check_deadline,
                )
            writer = opened.enter_context(self._writer(load, log))
            for batch in self._timed_batches(reader):
                with self._timed("WriteDataTimeMs"):
                    mapped = mapping(batch, self._moment.local)
                    self._note(batch, mapped)
                    self._buffer.add(batch.places, mapped, batch.held_bytes)
                    del batch, mapped
                writer.report()
                if self._buffer.fullness >= 0.5:  # more read ahead would need more memory
                    writer.finish()
                if self._buffer.is_enough:
                    release_freed_memory()  # of parsing: staging allocates as much again
                    writer.begin(self._take_buffer())
                self._check_deadline()
            writer.finish()
            writer.write(self._take_buffer())

    def _timed_batches(self, reader: Reader) -> Iterator[SourceBatch]:
        batches = reader.batches()
        while True:
            with self._timed("ReadDataTimeMs"):
                read = [each for each in (next(batches, None),) if each is not None]
            if not read:
                return
            yield read.pop()  # the receiver alone holds it and drops it before rows are staged

    def _take_buffer(self) -> RowBuffer:
        buffer, self._buffer = self._buffer, RowBuffer()
        self._bad_written, self._bad = [*self._bad_written, *self._bad], []
        return buffer

    def _writer(self, load: Load | GroupedLoad, log: ErrorLog) -> RowWriter:
        """Returns the writer of the buffered rows, which logs them with the sources of the rejected ones."""

        def write(buffer: RowBuffer) -> WriteResult:
            return load.write(buffer.rows(), supplied=buffer.supplied())

        def written(buffer: RowBuffer, result: WriteResult, milliseconds: int) -> None:
            self._add_time("WriteDataTimeMs", milliseconds)
            if isinstance(load, GroupedLoad):
                self._progress.is_grouped = load.is_grouped
            self._progress.loaded += result.rows - len(result.rejected)
            self._progress.filtered += len(result.rejected)
            rejected = buffer.sources_of(result.rejected[: described_max()])
            self._keep(rejected)
            self._bad_written += rejected[:ROWS_MAX]
            self._log(log)

        return RowWriter(write, written)

    def _letters_of(self, load: Load | GroupedLoad) -> DeadLetters | None:
        """Returns the dead letters of the load, which are published with it; None where they are not kept."""
        if not self._options.dead_letters or not isinstance(load, Load):
            return None
        check_target(self._table.name)
        self._kept = kept_headers(self.headers, self._options, self._schema.names)

        def begun() -> Load:
            beside = begin_beside(self._store, self._table.name, self._made)
            load.join(beside)
            return beside

        return DeadLetters(begun, load.label)

    def _keep(self, rows: Sequence[BadRow]) -> None:
        if self._letters is not None:
            self._letters.add(rows, "", self._kept)

    def _note(self, batch: SourceBatch, mapped: MappedBatch) -> None:
        if self._bodies is not None:
            self._bodies.require_rows(batch.rows)
        is_first, self._is_first = self._is_first, False
        may_have_names = is_first and self._options.is_csv and not self._options.csv.skip_lines
        if may_have_names and is_header_row(batch.rows):
            self._progress.warning = f"line 1: {HEADER_ROW}"
        self._unwritten += batch.bad_count + mapped.bad_count
        self._progress.filtered += batch.bad_count + mapped.bad_count
        self._progress.unselected += batch.passed + mapped.unselected
        if self._letters is not None or len(self._bad) < ROWS_MAX:
            bad = [*batch.bad, *batch.located(mapped.bad)]
            self._keep(bad)
            self._bad += bad[:ROWS_MAX]

    def _log(self, log: ErrorLog) -> None:
        """Logs the bad rows of the buffers that were written, in the order of the body.

        The steps of the load found them in another order.
        """
        for row in sorted(self._bad_written, key=lambda row: row.place.line):
            log.add(row)
        self._bad_written = []

    # ------------------------------------------------------------------------------------------ limits

    def _check_ratio(self, log: ErrorLog) -> None:
        """Checks the share of filtered rows: a load fails above the ratio, not at it (Y7)."""
        filtered, total = self._progress.filtered, self._progress.filtered + self._progress.loaded
        if filtered <= total * self._options.max_filter_ratio:
            return
        if self._progress.is_grouped and total > RATIO_ROWS_MAX:  # G10
            return
        first = f", first: line {log.first.place.line}: {log.first.reason}" if log.first else ""
        raise LoadRejectedError(
            f"too many filtered rows: {filtered} of {total}, max_filter_ratio is "
            f"{self._options.max_filter_ratio:g}{first}; see ErrorURL",
            kind="too_many_filtered",
        )

    def _look(self, server: Cancellation | None) -> Callable[[Cancellation], None]:
        """Returns the call that ends an expression at the timeout, or with the server's work."""

        def look(running: Cancellation) -> None:
            if server is not None and server.error is not None:
                running.cancel(server.error)
            elif time.monotonic() > self._deadline:
                running.cancel(self._late())

        return look

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise self._late()

    def _late(self) -> UnavailableError:
        return UnavailableError(
            f"the load ran longer than its timeout of {self._options.timeout_seconds} s; raise the "
            "header timeout or send less at once",
            kind="timeout",
        )

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._add_time(name, _milliseconds(started))

    def _add_time(self, name: str, milliseconds: int) -> None:
        taken = self._progress.milliseconds
        taken[name] = taken.get(name, 0) + milliseconds


def _milliseconds(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
