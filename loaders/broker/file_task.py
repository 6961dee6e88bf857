"""One file of a broker load: read, mapped, checked and staged, in whatever process does it.

A `FileTask` is a picklable value. Bad rows raise nothing; the result lists them with file, line and reason.
Rows that are merged with stored ones (partial updates, column groups) or need new AUTO_INCREMENT values
cannot be staged here: they are mapped and checked, and the result carries them to the process that commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from seqstore.loaders.broker.files import InputFile
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.row_buffer import RowBuffer
from seqstore.loaders.row_source import Target, open_rows
from seqstore.loaders.source import BadRow, SourceBatch, described_max, keeping_bad_rows
from seqstore.store.check.row_checker import Mask, RejectedRow
from seqstore.store.errors import InvalidInputError, StoreError, UnavailableError
from seqstore.store.load.write_task import StagedRows, WriteTask
from seqstore.store.sql.translate.calls import Moment

_BAD_ROWS_MAX = 1_000
_NOTED_BYTES = 4 << 20
OnRead = Callable[[int], None]


@dataclass(frozen=True)
class FileResult:
    """The result of a file.

    Attributes:
        description: its number within the job.
        file: the file.
        staged: whole rows that are ready to be published.
        brought: rows that the process that commits writes, and which of them supply a column.
        loaded, filtered, unselected: rows.
        bad: the first filtered ones; their reason names the file.
        letters: all filtered ones where dead letters are kept, else none.
    """

    description: int
    file: InputFile
    staged: StagedRows
    brought: tuple[tuple[pa.Table, dict[str, Mask]], ...] = ()
    loaded: int = 0
    filtered: int = 0
    unselected: int = 0
    bad: tuple[BadRow, ...] = ()
    letters: tuple[BadRow, ...] = ()


@dataclass(frozen=True)
class FileTask:
    """See the module.

    Attributes:
        description: number of the description the file belongs to.
        options: how it is read and mapped.
        moment: the job's, for CURRENT_TIMESTAMP.
        write: stages rows of the target, or only checks them.
        may_stage: which of the two.
    """

    description: int
    file: InputFile
    options: StreamLoadOptions
    target: Target
    moment: Moment
    write: WriteTask
    may_stage: bool = True

    def run(self, on_read: OnRead = lambda count: None) -> FileResult:
        """Stages the whole file.

        Args:
            on_read: called now and then with the count of bytes; its exception ends the task.

        Raises:
            InvalidInputError: the file does not fit the table, or is none of its format: it will never do.
            UnavailableError: it cannot be read now.
        """
        keeping = keeping_bad_rows() if self.options.dead_letters else nullcontext()
        try:
            with keeping:
                return self._run(on_read)
        except (UnavailableError, FileNotFoundError) as error:
            text = error.message if isinstance(error, StoreError) else "the file is gone"
            raise UnavailableError(f"{self.file.name}: {text}", kind="unreadable") from error
        except StoreError as error:
            message = f"{self.file.name}: {error.message}"
            raise type(error)(message, kind=error.kind, **error.fields) from error
        except OSError as error:
            raise UnavailableError(
                f"{self.file.name}: cannot be read: {error.strerror or error}", kind="unreadable"
            ) from error
        except pa.ArrowException as error:
            raise InvalidInputError(f"{self.file.name}: {error}", kind="data_quality") from error

    def _run(self, on_read: OnRead) -> FileResult:
        done = FileResult(self.description, self.file, StagedRows())
        buffer = RowBuffer()
        with ExitStack() as opened:
            body = _CountedBody(opened.enter_context(self.file.open()), on_read)
            reader, mapping = open_rows(
                cast(BinaryIO, body),
                self.options,
                self.target,
                self.moment,
                opened,
                constants=dict(self.file.path_fields),
            )
            for batch in reader.batches():
                mapped = mapping(self._with_path_fields(batch), self.moment.local)
                done = self._with_bad(
                    replace(
                        done,
                        filtered=done.filtered + batch.bad_count + mapped.bad_count,
                        unselected=done.unselected + batch.passed + mapped.unselected,
                    ),
                    [*batch.bad, *batch.located(mapped.bad)],
                )
                buffer.add(batch.places, mapped, batch.held_bytes)
                if buffer.is_enough:
                    done, buffer = self._write(done, buffer), RowBuffer()
                on_read(body.count)
        return self._write(done, buffer) if len(buffer) else done

    def _with_path_fields(self, batch: SourceBatch) -> SourceBatch:
        """Replaces columns of the file by the fields of its path with the same name (B7)."""
        if not self.file.path_fields:
            return batch
        taken = {name.lower() for name, _ in self.file.path_fields}
        rows = batch.rows.select([name for name in batch.rows.schema.names if name.lower() not in taken])
        for name, value in self.file.path_fields:
            rows = rows.append_column(name, pa.repeat(value, len(batch.rows)))
        return replace(batch, rows=rows)

    def _write(self, done: FileResult, buffer: RowBuffer) -> FileResult:
        if not self.may_stage:
            return self._bring(done, buffer)
        staged = self.write.run(buffer.rows())
        added = replace(
            done,
            staged=done.staged + staged,
            loaded=done.loaded + staged.rows_total - staged.rows_filtered,
            filtered=done.filtered + staged.rows_filtered,
        )
        rejected = staged.rejected
        if self.options.dead_letters and len(rejected) < staged.rows_filtered:  # it lists the first ones
            rejected = self.write.rejected(buffer.rows(), buffer.supplied())
        return self._with_bad(added, buffer.sources_of(rejected))

    def _bring(self, done: FileResult, buffer: RowBuffer) -> FileResult:
        rows, supplied = buffer.rows(), buffer.supplied()
        rejected = self.write.rejected(rows, supplied)
        kept = _without(rejected, len(rows))
        brought = (rows.take(kept), {name: mask[kept] for name, mask in supplied.items()})
        added = replace(
            done,
            brought=(*done.brought, brought if rejected else (rows, supplied)),
            loaded=done.loaded + len(kept),
            filtered=done.filtered + len(rejected),
        )
        return self._with_bad(added, buffer.sources_of(rejected[: described_max()]))

    def _with_bad(self, done: FileResult, bad: Sequence[BadRow]) -> FileResult:
        letters = (*done.letters, *bad) if self.options.dead_letters else ()
        return replace(done, bad=self._listed(done.bad, bad), letters=letters)

    def _listed(self, known: tuple[BadRow, ...], bad: Sequence[BadRow]) -> tuple[BadRow, ...]:
        room = max(_BAD_ROWS_MAX - len(known), 0)
        return (*known, *(replace(row, reason=f"{self.file.name}: {row.reason}") for row in bad[:room]))


class _CountedBody:
    """A file, read from its start to its end, that counts the bytes read.

    It reports every few MB itself: a Parquet file is read as a whole before its first rows.
    """

    def __init__(self, inner: BinaryIO, on_read: OnRead) -> None:
        self._inner = inner
        self._on_read = on_read
        self._noted = 0
        self.count = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data = self._inner.read(size)
        self.count += len(data)
        if self.count - self._noted >= _NOTED_BYTES:
            self._noted = self.count
            self._on_read(self.count)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def _without(rejected: Sequence[RejectedRow], count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    keep = np.ones(count, dtype=np.bool_)
    keep[[row.row for row in rejected]] = False
    return np.flatnonzero(keep)
