"""Batches in order; other threads prepare the expensive ones while the consumer uses earlier ones.

The consumer's thread reads the first batch, so a query for a few rows starts no thread. Batches that are used
in place are not worth a thread either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from seqstore.store.runtime.cancellation import Cancellation, current
from seqstore.store.runtime.workers import THREADS, pool

_AHEAD: Final = THREADS
_Task = TypeVar("_Task")


def read_ahead(
    tasks: Sequence[_Task],
    read: Callable[[_Task], pa.RecordBatch],
    takes_work: Callable[[_Task], bool],
) -> Iterator[pa.RecordBatch]:
    """Yields the result of `read` for each task, without empty batches.

    The rows belong to the statement of the calling thread, and end with it wherever they are read.
    """
    return _read_ahead(tasks, read, takes_work, current())


def _read_ahead(
    tasks: Sequence[_Task],
    read: Callable[[_Task], pa.RecordBatch],
    takes_work: Callable[[_Task], bool],
    statement: Cancellation | None,
) -> Iterator[pa.RecordBatch]:
    pending: deque[Callable[[], pa.RecordBatch]] = deque()
    futures: deque[Future[pa.RecordBatch]] = deque(maxlen=_AHEAD)
    try:
        for number, task in enumerate(tasks):
            if statement is not None and statement.error is not None:
                raise statement.error
            if number and takes_work(task):
                futures.append(pool().submit(read, task))
                pending.append(futures[-1].result)
            else:
                pending.append(partial(read, task))
            if not number or len(pending) >= _AHEAD:
                batch = pending.popleft()()
                if batch.num_rows:
                    yield batch
        while pending:
            batch = pending.popleft()()
            if batch.num_rows:
                yield batch
    finally:
        for future in futures:
            future.cancel()
