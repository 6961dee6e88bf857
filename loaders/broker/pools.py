"""The readers of a broker load's files: processes of this host, or Spark's executors.

Spark starts in some ten seconds, so a few processes read any load that they can read in about that time. A
process starts in a second or two, so the process of the job reads small files itself.
Both engines retry a file that cannot be read just now, but not one that can never be loaded (B18). A job that
is to end does not wait for its files: each ends at the next piece it reads.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Final, Protocol

from seqstore.loaders.broker.file_task import FileResult, FileTask
from seqstore.store.errors import InvalidInputError, UnavailableError

SPARK_BYTES_MIN: Final = 2**30
_OWN_BYTES_MAX: Final = 2**24  # of all files together: read in less time than the start of a process needs
TRIES: Final = 4  # as Spark's own spark.task.maxFailures
POLL_SECONDS: Final = 0.2


class Cancelled(Exception):
    """A user has cancelled the job. The exception never leaves the package."""


class TimedOut(Cancelled):
    """Its time is up."""


class Watch(Protocol):
    """The progress callback of a running job."""

    def __call__(self, files_done: int, bytes_done: int) -> None:
        """Records the progress; its exception ends the job."""


def choose_engine(asked: str, size: int) -> str:
    """Chooses `spark` or `local` for files of a total size.

    Raises:
        InvalidInputError: the job requires Spark, which cannot run here.
    """
    if asked == "local" or (asked == "auto" and size < SPARK_BYTES_MIN):
        return "local"
    from seqstore.loaders.spark.requirements import missing_requirement  # small jobs need nothing of Spark

    missing = missing_requirement()
    if missing is None:
        return "spark"
    if asked == "spark":
        raise InvalidInputError(f"engine spark: {missing}", kind="no_spark")
    return "local"


def run_locally(tasks: Sequence[FileTask], processes: int, watch: Watch) -> list[FileResult]:
    """Runs tasks in processes of this host, in order of the tasks.

    Args:
        processes: how many at once; 0 means one a core, and for small files none beside this one.

    Raises:
        StoreError: of the first file that cannot be loaded.
    """
    is_small = sum(task.file.size for task in tasks) <= _OWN_BYTES_MAX
    workers = min(processes or (1 if is_small else os.cpu_count() or 1), len(tasks))
    if workers <= 1:
        return _run_here(tasks, watch)
    context = get_context("spawn")
    counts = context.Array("Q", len(tasks))
    # Without a lock: a worker that is killed while it holds one would stop all others.
    stop = context.RawValue(ctypes.c_bool, False)
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin_worker, initargs=(counts, stop)
    ) as pool:
        try:
            return _Pool(pool, tasks, counts, watch).run()
        except BrokenProcessPool as error:
            raise UnavailableError(
                "a process that was reading files ended suddenly; memory may be short: a smaller "
                "load_parallelism needs less",
                kind="worker",
            ) from error
        except BaseException:
            stop.value = True
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _run_here(tasks: Sequence[FileTask], watch: Watch) -> list[FileResult]:
    results: list[FileResult] = []
    before = 0
    for task in tasks:
        watch(len(results), before)
        for tries_left in reversed(range(TRIES)):
            try:
                results.append(task.run(lambda count, before=before: watch(len(results), before + count)))  # type: ignore[misc]
                break
            except UnavailableError:
                if not tries_left:
                    raise
        before += task.file.size
    watch(len(results), before)
    return results


@dataclass
class _Pool:
    """Tasks in a pool of processes."""

    pool: ProcessPoolExecutor
    tasks: Sequence[FileTask]
    counts: SynchronizedArray[int]
    watch: Watch
    results: dict[int, FileResult] = field(default_factory=dict)
    waiting: dict[Future[FileResult], int] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)

    def run(self) -> list[FileResult]:
        for number in range(len(self.tasks)):
            self._submit(number)
        while self.waiting:
            done, _ = wait(self.waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                self._take(future)
            self.watch(len(self.results), sum(self.counts[:]))
        return [self.results[number] for number in range(len(self.tasks))]

    def _submit(self, number: int) -> None:
        self.waiting[self.pool.submit(_run_in_worker, number, self.tasks[number])] = number

    def _take(self, future: Future[FileResult]) -> None:
        number = self.waiting.pop(future)
        try:
            self.results[number] = future.result()
            self.counts[number] = self.tasks[number].file.size
        except UnavailableError:
            failures = self.failures[number] = self.failures.get(number, 0) + 1
            if failures >= TRIES:
                raise
            self._submit(number)


# Of a worker process: bytes read, by task, and whether the job has ended.
_counts: SynchronizedArray[int] | None = None
_stop: ctypes.c_bool | None = None


def _begin_worker(counts: SynchronizedArray[int], stop: ctypes.c_bool) -> None:
    global _counts, _stop
    _counts, _stop = counts, stop
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process with its parent: without a parent it would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_in_worker(number: int, task: FileTask) -> FileResult:
    def note(count: int) -> None:
        if _stop is not None and _stop.value:
            raise Cancelled("the job ends")
        if _counts is not None:
            _counts[number] = count

    note(0)  # the pool cannot cancel a task in its queue
    return task.run(note)
