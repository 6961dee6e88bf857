"""One file of a broker load: read, mapped, checked and staged, in whatever process does it.

A `FileTask` is a picklable value. Nothing is raised for bad rows; they come back with file, line and reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa

from loaders.broker.files import InputFile
from loaders.gathered import Gathered
from loaders.headers import StreamLoadOptions
from loaders.row_source import Target, open_rows
from loaders.source import BadRow, SourceBatch
from store.check_rows import Mask
from store.sql.functions import Moment
from store.write_task import StagedRows, WriteTask

_BAD_ROWS_MAX = 1_000


@dataclass(frozen=True)
class FileResult:
    """What became of a file.

    Attributes:
        description: its number within the job.
        file: the file.
        staged: whole rows that are ready to be published.
        partial: rows of a partial update and which of them supply a column; they are filled when published.
        loaded, filtered, unselected: rows.
        bad: the first filtered ones; their reason names the file.
    """

    description: int
    file: InputFile
    staged: StagedRows
    partial: tuple[tuple[pa.Table, dict[str, Mask]], ...] = ()
    loaded: int = 0
    filtered: int = 0
    unselected: int = 0
    bad: tuple[BadRow, ...] = ()


@dataclass(frozen=True)
class FileTask:
    """See the module.

    Attributes:
        description: number of the description the file belongs to.
        options: how it is read and mapped.
        moment: the job's, for CURRENT_TIMESTAMP.
        write: stages rows of the target.
    """

    description: int
    file: InputFile
    options: StreamLoadOptions
    target: Target
    moment: Moment
    write: WriteTask

    def run(self) -> FileResult:
        """Stages the whole file.

        Raises:
            StoreError, OSError: the file cannot be read, or does not fit the table.
        """
        done = FileResult(self.description, self.file, StagedRows())
        gathered = Gathered()
        with ExitStack() as opened:
            body = opened.enter_context(self.file.open())
            reader, mapping = open_rows(
                body, self.options, self.target, self.moment, opened, constants=dict(self.file.path_fields)
            )
            for batch in reader.batches():
                mapped = mapping(self._with_path_fields(batch), self.moment.local)
                bad = [*batch.bad]
                places = batch.places([row for row, _ in mapped.bad])
                bad += [BadRow(place, why) for place, (_, why) in zip(places, mapped.bad, strict=True)]
                done = replace(
                    done,
                    filtered=done.filtered + batch.bad_count + mapped.bad_count,
                    unselected=done.unselected + mapped.unselected,
                    bad=self._listed(done.bad, bad),
                )
                gathered.add(batch.places, mapped)
                if gathered.is_enough:
                    done, gathered = self._stage(done, gathered), Gathered()
        return self._stage(done, gathered) if len(gathered) else done

    def _with_path_fields(self, batch: SourceBatch) -> SourceBatch:
        rows = batch.rows
        for name, value in self.file.path_fields:
            if name.lower() not in (known.lower() for known in rows.schema.names):
                rows = rows.append_column(name, pa.repeat(value, len(rows)))
        return replace(batch, rows=rows)

    def _stage(self, done: FileResult, gathered: Gathered) -> FileResult:
        if self.options.is_partial:
            rows = (gathered.rows(), gathered.supplied())
            return replace(done, partial=(*done.partial, rows), loaded=done.loaded + len(gathered))
        staged = self.write.run(gathered.rows())
        return replace(
            done,
            staged=done.staged + staged,
            loaded=done.loaded + staged.rows_total - staged.rows_filtered,
            filtered=done.filtered + staged.rows_filtered,
            bad=self._listed(done.bad, gathered.sources_of(staged.rejected)),
        )

    def _listed(self, known: tuple[BadRow, ...], bad: Sequence[BadRow]) -> tuple[BadRow, ...]:
        room = max(_BAD_ROWS_MAX - len(known), 0)
        return (*known, *(replace(row, reason=f"{self.file.uri}: {row.reason}") for row in bad[:room]))


def run_task(task: FileTask) -> FileResult:
    """For pools, which want a function."""
    return task.run()
