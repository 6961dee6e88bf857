"""One task of a routine load: the next rows of some partitions, as one transaction (R10, R11).

1. The transaction takes a label of its own and the task is marked as started.
2. Pieces of the source are read, mapped and written until the batch is full, its time is over or the spans
   are used up. A piece is taken whole or not at all.
3. The commit publishes rows, offsets and counts in one switch, however few rows are left (R15). Rejected rows
   are counted and logged; how many a job bears is looked at there, not here (R17).

Whatever goes wrong before leaves nothing, and the task is tried again from unchanged offsets.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from loaders.begin import begin
from loaders.error_log import ROWS_MAX, ErrorLog
from loaders.gathered import Gathered
from loaders.routine.job import Batch
from loaders.routine.jobs import RoutineJobs
from loaders.routine.source import Piece, Source, Span
from loaders.routine.spec import RoutineSpec
from loaders.row_source import Target, moment_in, open_rows
from loaders.source import BadRow, Place
from store.check_partial import check_flexible
from store.load import Load
from store.store import Store
from store.table import Table


@dataclass
class _Counts:
    bytes: int = 0
    loaded: int = 0
    filtered: int = 0
    unselected: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    marks: list[tuple[str, int]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.loaded + self.filtered + self.unselected


class TaskRun:
    """See the module.

    Args:
        task_id: of the job's generation of tasks.
        spans: what to read, at most.
    """

    def __init__(
        self,
        store: Store,
        jobs: RoutineJobs,
        job_id: int,
        task_id: str,
        spec: RoutineSpec,
        table: Table,
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
        self._gathered = Gathered()
        self._origins: list[tuple[int, str]] = []  # first gathered row of a piece, and where it is from
        self._log: ErrorLog | None = None
        self.label = f"{spec.name}-{job_id}-{task_id}"

    def run(self) -> bool:
        """Runs the task to its commit.

        Returns:
            Whether the batch was full: there is more to be had at once.

        Raises:
            StoreError, OSError, ArrowException: nothing of it is visible, no offset has moved.
        """
        options = self._spec.options("")
        if options.is_flexible:
            check_flexible(self._table.schema)
        moment = self._moment.local
        with begin(self._table, options, moment, operation="ROUTINE LOAD", label=self.label) as load:
            self._jobs.change(self._job_id, lambda job: job.started(self._task_id, load.txn_id))
            self._log = ErrorLog(self._store.path, lambda: load.txn_id)
            try:
                is_full = self._read(load)
            finally:
                self._log.close()
            batch = self._batch()
            load.commit(
                also=lambda tx, done: self._jobs.commit_within(
                    tx, self._job_id, self._task_id, done.id, self.label, batch
                )
            )
        return is_full

    def _read(self, load: Load) -> bool:
        limits = self._spec.limits
        for piece in self._source.pieces(self._spans):
            self._read_piece(load, piece)
            span = piece.span
            self._counts.offsets[span.partition] = span.end
            self._counts.marks += [(name, span.start) for name in piece.marks]
            self._counts.bytes += piece.size
            rows = self._counts.rows + len(self._gathered)
            is_late = time.monotonic() - self._started >= limits.seconds
            if is_late or rows >= limits.rows or self._counts.bytes >= limits.bytes:
                self._write(load)
                return True
        self._write(load)
        return False

    def _read_piece(self, load: Load, piece: Piece) -> None:
        options = self._spec.options(piece.path)
        where = piece.path or f"partition {piece.span.partition}"
        self._origins.append((len(self._gathered), where))
        for _ in range(min(piece.empty, ROWS_MAX)):
            self._note(BadRow(Place(0, ""), "the message is empty"), where)
        self._counts.filtered += piece.empty
        with ExitStack() as opened:
            body = opened.enter_context(piece.open())
            target = Target(self._table.schema, self._table.name)
            reader, mapping = open_rows(body, options, target, self._moment, opened)
            for batch in reader.batches():
                mapped = mapping(batch, self._moment.local)
                self._counts.filtered += batch.bad_count + mapped.bad_count
                self._counts.unselected += mapped.unselected
                for row in batch.bad:
                    self._note(row, where)
                places = batch.places([row for row, _ in mapped.bad])
                for place, (_, reason) in zip(places, mapped.bad, strict=True):
                    self._note(BadRow(place, reason), where)
                self._gathered.add(batch.places, mapped, batch.held_bytes)
                if self._gathered.is_enough:
                    self._write(load)
                    self._origins.append((0, where))

    def _write(self, load: Load) -> None:
        """Gives the gathered rows to the engine, and notes those it rejects."""
        gathered, self._gathered = self._gathered, Gathered()
        origins, self._origins = self._origins, []
        if not len(gathered):
            return
        result = load.write(gathered.rows(), supplied=gathered.supplied())
        self._counts.loaded += result.rows - len(result.rejected)
        self._counts.filtered += len(result.rejected)
        listed = result.rejected[:ROWS_MAX]
        for row, rejected in zip(gathered.sources_of(listed), listed, strict=True):
            piece = bisect_right(origins, rejected.row, key=lambda origin: origin[0]) - 1
            self._note(row, origins[piece][1])

    def _note(self, row: BadRow, where: str) -> None:
        assert self._log is not None
        self._log.add(BadRow(row.place, f"{where}: {row.reason}"))

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
        )
