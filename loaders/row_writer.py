"""The writes of one load: a thread checks and stages full buffers, while the load reads the next rows.

1. At most one buffer is written at a time, in order, and a half-full buffer waits for the one before. So
   memory is that of one and a half, and a body that arrives faster than it is staged waits.
2. The thread runs with the cancellation and the deadline of the load.
3. Results and errors are reported in the thread of the load, between two batches.

A load of one buffer starts no thread. Nor does a process with one core: two threads would only take turns.
"""

from __future__ import annotations

import contextvars
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

from seqstore.loaders.row_buffer import RowBuffer
from seqstore.store.load.load import WriteResult
from seqstore.store.runtime.cancellation import current, within
from seqstore.store.runtime.freed_memory import release_freed_memory


class Written(Protocol):
    """Takes the result of a buffer, and the milliseconds that its write took."""

    def __call__(self, buffer: RowBuffer, result: WriteResult, milliseconds: int) -> None: ...


class RowWriter:
    """Writes the buffers of one load; used as a context manager, whose end waits for the write in progress.

    Args:
        write: checks and stages the rows of a buffer.
        written: called with each result, in the thread of the load.
    """

    def __init__(self, write: Callable[[RowBuffer], WriteResult], written: Written) -> None:
        self._write = write
        self._written = written
        self._thread: ThreadPoolExecutor | None = None
        self._running: tuple[RowBuffer, Future[tuple[WriteResult, int]]] | None = None

    def write(self, buffer: RowBuffer) -> None:
        """Writes a buffer and reports its result.

        Raises:
            StoreError: this write failed, or the one before.
        """
        self.finish()
        if len(buffer):
            self._written(buffer, *self._timed(buffer))

    def begin(self, buffer: RowBuffer) -> None:
        """Begins to write a buffer once the one before is written.

        Raises:
            StoreError: the write before failed.
        """
        if not _has_cores():
            self.write(buffer)
            return
        self.finish()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="stage")
        cancellation, context = current(), contextvars.copy_context()

        def run() -> tuple[WriteResult, int]:
            with within(cancellation):
                done = context.run(self._timed, buffer)
            release_freed_memory()  # the arena of this thread would keep it
            return done

        self._running = buffer, self._thread.submit(run)

    def report(self) -> None:
        """Reports the write in progress if it is over.

        Raises:
            StoreError: it failed.
        """
        if self._running is not None and self._running[1].done():
            self.finish()

    def finish(self) -> None:
        """Waits for the write in progress and reports it.

        Raises:
            StoreError: it failed.
        """
        if self._running is not None:
            (buffer, future), self._running = self._running, None
            self._written(buffer, *future.result())

    def _timed(self, buffer: RowBuffer) -> tuple[WriteResult, int]:
        started = time.monotonic()
        result = self._write(buffer)
        return result, round((time.monotonic() - started) * 1000)

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown()


def _has_cores() -> bool:
    """Returns whether this process may use several cores."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1
