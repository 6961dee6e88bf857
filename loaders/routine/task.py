"""One task of a routine load: the next rows of some partitions, as one transaction (R10, R11).

1. The transaction reserves a label of its own and the task is marked as started.
2. Pieces of the source are read, mapped and written until the batch is full, its time is over or the spans
   are used up. A piece is written whole or not at all.
   A task also ends before a piece that needs another schema, which the next task begins with
   (`schema_evolution`).
3. One commit publishes rows of all tables, offsets and counts, however few rows are left (R15). Rejected rows
   are counted and logged; the record of the job compares them with its limits (R17).

A failure before the commit leaves nothing, and the next task starts from unchanged offsets.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice

from seqstore.loaders.dead_letters.letters import DeadLetters, kept_headers
from seqstore.loaders.error_log import ErrorLog
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.needed_schema import with_fields
from seqstore.loaders.routine.destination import Destination, ManyTables, OneTable
from seqstore.loaders.routine.growth import Growth
from seqstore.loaders.routine.job import Batch
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.source import Body, Piece, Source, Span
from seqstore.loaders.routine.spec import RoutineSpec
from seqstore.loaders.row_buffer import RowBuffer
from seqstore.loaders.row_source import Target, moment_in, open_rows
from seqstore.loaders.source import BadRow, Place, described_max, keeping_bad_rows, shown
from seqstore.store.errors import InvalidInputError, NotFoundError
from seqstore.store.load.load import Load
from seqstore.store.publish.evolution import Evolution
from seqstore.store.store import Store
from seqstore.store.table import Table


@dataclass(frozen=True)
class _Origin:
    """The place of rows.

    Attributes:
        where: for messages.
        source: of dead letters: the file, or topic, partition and first offset of the piece.
        headers: the rows are read by, for a replay; empty where dead letters are not kept.
        table: as messages name it.
    """

    where: str
    source: str = ""
    headers: str = ""
    table: str = ""


Note = Callable[[BadRow, _Origin], None]


@dataclass
class _Counts:
    bytes: int = 0
    loaded: int = 0
    filtered: int = 0
    unselected: int = 0
    unkept: int = 0  # messages that no table of dead letters takes
    offsets: dict[str, int] = field(default_factory=dict)
    marks: list[tuple[str, int]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.loaded + self.filtered + self.unselected


class _TableRows:
    """Rows on their way into one table."""

    def __init__(self, target: Target, load: Load, counts: _Counts, note: Note) -> None:
        self.target = target
        self.buffer = RowBuffer()
        self._load, self._counts, self._note = load, counts, note
        self._origins: list[tuple[int, _Origin]] = []  # first buffered row of a body, and where it is from

    def begin(self, origin: _Origin) -> None:
        """Marks the start of rows from another place."""
        self._origins.append((len(self.buffer), origin))

    def note_filtered(self, count: int) -> None:
        """Counts rows that were rejected before they could be written."""
        self._counts.filtered += count
        self._load.note_filtered(count)

    def write(self) -> None:
        """Writes the buffered rows and logs the rejected ones."""
        buffer, self.buffer = self.buffer, RowBuffer()
        origins, self._origins = self._origins, []
        if not len(buffer):
            return
        result = self._load.write(buffer.rows(), supplied=buffer.supplied())
        self._counts.loaded += result.rows - len(result.rejected)
        self._counts.filtered += len(result.rejected)
        listed = result.rejected[: described_max()]
        for row, rejected in zip(buffer.sources_of(listed), listed, strict=True):
            body = bisect_right(origins, rejected.row, key=lambda origin: origin[0]) - 1
            self._note(row, origins[body][1])


class TaskRun:
    """See the module.

    Args:
        task_id: of the job's generation of tasks.
        table: None where the messages name their tables.
        spans: the offsets to read, at most.
    """

    def __init__(
        self,
        store: Store,
        jobs: RoutineJobs,
        job_id: int,
        task_id: str,
        spec: RoutineSpec,
        table: Table | None,
        source: Source,
        spans: Sequence[Span],
    ) -> None:
        self._store, self._jobs = store, jobs
        self._job_id, self._task_id = job_id, task_id
        self._spec, self._table = spec, table
        self._source, self._spans = source, spans
        self._moment = moment_in(spec.options("").time_zone)
        self._started = time.monotonic()
        self._counts = _Counts()
        self._rows: dict[str, _TableRows] = {}
        self._log: ErrorLog | None = None
        self._growth = Growth(store, spec, table)
        self._keeps = spec.options("").dead_letters
        self._letters: dict[str, DeadLetters] = {}
        self.label = f"{spec.name}-{job_id}-{task_id}"

    def run(self) -> bool:
        """Runs the task to its commit.

        Returns:
            Whether the batch was full: more rows are ready.

        Raises:
            StoreError, OSError, ArrowException: nothing of it is visible, no offset has moved.
        """
        with keeping_bad_rows() if self._keeps else nullcontext():
            return self._run()

    def _run(self) -> bool:
        pieces = self._source.pieces(self._spans)
        first = list(islice(pieces, 1 if self._growth.is_on else 0))
        to = self._destination(self._growth.begin(first))
        try:
            self._log = ErrorLog(self._store.path, lambda: to.txn_id)
            try:
                is_full = self._read(to, chain(first, pieces))
            finally:
                self._log.close()
            for letters in self._letters.values():
                letters.flush()
            batch = self._batch()
            to.commit(
                lambda tx, done: self._jobs.commit_within(
                    tx, self._job_id, self._task_id, done.id, self.label, batch
                )
            )
        except BaseException as error:
            to.abort(str(error))
            raise
        return is_full

    def _destination(self, evolutions: Mapping[str, Evolution]) -> Destination:
        now = self._moment.local
        if self._table is None:
            return ManyTables(self._store, self._spec, self.label, now, self._begun, evolutions)
        return OneTable(self._table, self._spec, self.label, now, self._begun, evolutions.get(""))

    def _begun(self, txn_id: int) -> None:
        self._jobs.change(self._job_id, lambda job: job.started(self._task_id, txn_id))

    def _read(self, to: Destination, pieces: Iterable[Piece]) -> bool:
        limits = self._spec.limits
        for piece in pieces:
            if self._counts.offsets and self._growth.is_needed_by(piece, to):
                break  # the next task begins with the schema that the piece needs
            for body in piece.bodies():
                self._read_body(to, piece, body)
            span = piece.span
            self._counts.offsets[span.partition] = span.end
            self._counts.marks += [(name, span.start) for name in piece.marks]
            self._counts.bytes += piece.size
            rows = self._counts.rows + sum(len(each.buffer) for each in self._rows.values())
            is_late = time.monotonic() - self._started >= limits.seconds
            if is_late or rows >= limits.rows or self._counts.bytes >= limits.bytes:
                break
        else:
            self._write()
            return False
        self._write()
        return True

    def _read_body(self, to: Destination, piece: Piece, body: Body) -> None:
        self._counts.filtered += body.bad_count
        self._counts.unselected += body.passed
        where = self._origin_of_bad(to, piece, body)
        is_read = body.has_rows and not (self._spec.is_multi and not body.table)
        rows = self._rows_of(to, body) if is_read else None
        if rows is None:
            for row in body.bad:
                self._note(row, where)
            if is_read:
                self._refuse(body, where)
            return
        options = self._options(piece, body)
        if options.evolves and options.is_csv:
            with body.open() as head:
                options = with_fields(options, head)
        origin = _Origin(_where(piece, body))
        if self._keeps:
            origin = self._origin(to, piece, body, options, rows.target)
        for row in body.bad:
            self._note(row, origin if row.place.text else where)  # an empty message has no letter
        rows.begin(origin)
        with ExitStack() as opened:
            stream = opened.enter_context(body.open())
            reader, mapping = open_rows(stream, options, rows.target, self._moment, opened)
            for batch in reader.batches():
                mapped = mapping(batch, self._moment.local)
                rows.note_filtered(batch.bad_count + mapped.bad_count)
                self._counts.unselected += batch.passed + mapped.unselected
                for row in (*batch.bad, *batch.located(mapped.bad)):
                    self._note(row, origin)
                rows.buffer.add(batch.places, mapped, batch.held_bytes)
                if sum(each.buffer.fullness for each in self._rows.values()) >= 1:
                    self._write()
                    rows.begin(origin)

    def _rows_of(self, to: Destination, body: Body) -> _TableRows | None:
        """Returns the rows of a body's table; None where it cannot be made, or can have no such name."""
        refused, name = self._growth.refused, body.table
        if name not in self._rows and name not in refused:
            try:
                self._rows[name] = _TableRows(*to.of(name), self._counts, self._note)
            except InvalidInputError as error:
                if error.kind != "bad_name" or not self._spec.is_multi:
                    raise
                refused[name] = error.message
        return None if name in refused else self._rows[name]

    def _options(self, piece: Piece, body: Body) -> StreamLoadOptions:
        """Returns how a body is read: of many tables the messages are decompressed already."""
        options = self._spec.options(piece.path)
        return replace(options, compression="") if body.table else options

    def _origin_of_bad(self, to: Destination, piece: Piece, body: Body) -> _Origin:
        """Returns the place of messages that are no rows: they are kept beside the table that they name."""
        plain = _Origin(_where(piece, body))
        if not self._keeps or body.has_rows or not body.table or body.table in self._growth.refused:
            return plain
        try:
            target, _ = to.of(body.table)
        except (NotFoundError, InvalidInputError):
            return plain  # it is no table of the job (DL3)
        return self._origin(to, piece, body, self._options(piece, body), target)

    def _refuse(self, body: Body, origin: _Origin) -> None:
        """Counts the messages of a table that cannot be made."""
        with body.open() as opened:
            lines = opened.read().splitlines()
        self._counts.filtered += len(lines)
        self._counts.unkept += len(lines) if self._keeps else 0
        reason = self._growth.refused[body.table]
        for line in lines[: described_max()]:
            self._note(BadRow(Place(0, shown(line)), reason), origin)

    def _write(self) -> None:
        for rows in self._rows.values():
            rows.write()

    def _origin(
        self, to: Destination, piece: Piece, body: Body, options: StreamLoadOptions, target: Target
    ) -> _Origin:
        """Returns the place of a body's rows, whose rejected ones become dead letters."""
        if body.table not in self._letters:
            begin = partial(to.letters, self._store, body.table)
            self._letters[body.table] = DeadLetters(begin, self.label)
        topic = self._spec.source_properties.get("kafka_topic", "")
        read = f"{topic}/{piece.span.partition}" if topic else piece.span.partition
        source = piece.path or f"{read} from offset {piece.span.start}"
        headers = kept_headers(self._spec.given(piece.path), options, target.schema.names)
        return _Origin(_where(piece, body), source, headers, body.table)

    def _note(self, row: BadRow, origin: _Origin) -> None:
        assert self._log is not None
        self._log.add(BadRow(row.place, f"{origin.where}: {row.reason}"))
        if origin.headers:
            self._letters[origin.table].add([row], origin.source, origin.headers)

    def _note_of_fields(self) -> str:
        """Returns which fields are no columns of their tables, empty where all are."""
        found = self._growth.left_out.items()
        names = [f"{table}: {name!r}" if table else repr(name) for (table, name), _ in found]
        reasons = list(dict.fromkeys(reason for _, reason in found))
        return f"fields are left out: {', '.join(names)[:500]}: {'; '.join(reasons)[:500]}" if names else ""

    def _batch(self) -> Batch:
        counts = self._counts
        assert self._log is not None
        return Batch(
            offsets=counts.offsets,
            marks=counts.marks,
            bytes=counts.bytes,
            loaded=counts.loaded,
            filtered=counts.filtered,
            unselected=counts.unselected,
            milliseconds=round((time.monotonic() - self._started) * 1000),
            error_url=str(self._log.path or ""),
            unkept=counts.unkept,
            note=self._note_of_fields(),
        )


def _where(piece: Piece, body: Body) -> str:
    """Returns the place of a body for messages."""
    where = piece.path or f"partition {piece.span.partition}"
    return f"{where}, table {body.table}" if body.table else where
