"""A data source whose writing tasks go wrong in a way that is asked for; executors import it by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from seqstore.loaders.spark.driver import driver_process
from seqstore.loaders.spark.options import SourceOptions
from seqstore.loaders.spark.source import SeqstoreSource, StagedShare, VersionWriter
from seqstore.store.publish.range_test import PlanShare, RangeTest

FAILS = "fails"  # the attempt that is the first to have its share staged
FAILS_ALWAYS = "fails always"  # once the other partitions are staged
IS_OVERTAKEN = "is overtaken"  # the others fail always, and it is staged once that was cleaned up
COMMIT_FAILS = "commit fails"  # when the rows are published
COMMIT_DIES = "commit dies"  # its process, then
EXECUTOR_DIES = "executor dies"  # so do the tasks beside it
HAS_A_TWIN = "has a twin"  # the first attempt waits until another has staged the same share
PARTITIONS = 4
_SECONDS = 200.0


class FaultySource(SeqstoreSource):
    """`seqstore` with the options fault and marker (a path): something happens to partition 1."""

    def __init__(self, options: Any) -> None:
        given = dict(options)
        self._fault, self._marker = given.pop("fault"), Path(given.pop("marker"))
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: Any, overwrite: bool) -> VersionWriter:
        return FaultyWriter(schema, self._asked, self._fault, self._marker)


class FaultyWriter(VersionWriter):
    """Writes a share, then has its fault."""

    def __init__(self, schema: Any, asked: SourceOptions, fault: str, marker: Path) -> None:
        super().__init__(schema, asked)
        self._fault, self._marker = fault, marker

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedShare:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        if self._fault == IS_OVERTAKEN:
            return self._write_late(iterator, partition)
        if self._fault in (COMMIT_FAILS, COMMIT_DIES):
            return super().write(iterator)
        share = super().write(iterator)
        self._mark("staged", partition).touch()
        if partition == 1:
            self._happen(context.attemptNumber())
        return share

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        super().commit(messages)
        if self._fault in (COMMIT_FAILS, COMMIT_DIES):
            self._marker.touch()
        if self._fault == COMMIT_DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == COMMIT_FAILS:
            raise OSError("the commit fails behind its commit point")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        super().abort(messages)
        if self._fault == IS_OVERTAKEN:
            self._marker.touch()

    def _write_late(self, iterator: Iterator[pa.RecordBatch], partition: int) -> StagedShare:
        """Partition 0 is at work while the others fail, and goes on when the write was aborted. If others
        waited with it, or were done, so that Spark ran it twice, those that fail might find no slot."""
        if partition != 0:
            _wait_for(self._mark("at work", 0))
            raise OSError("attempt 0 fails")
        _tell(self._mark("at work", partition), str(os.getpid()))
        _wait_for(self._marker)
        said = "nothing"
        try:
            return super().write(iterator)
        except BaseException as error:
            said = type(error).__name__
            raise
        finally:
            _tell(self._mark("ended", partition), said)

    def _mark(self, what: str, partition: int) -> Path:
        return self._marker.with_name(f"{what} {partition}")

    def _happen(self, attempt: int) -> None:
        if self._fault == HAS_A_TWIN:
            if attempt:
                self._marker.touch()
            _wait_for(self._marker)
            return
        if not self._is_first() and self._fault != FAILS_ALWAYS:
            return
        if self._fault == EXECUTOR_DIES:
            os.kill(driver_process()[0], signal.SIGKILL)  # the JVM above this process, which is an executor's
        if self._fault == FAILS_ALWAYS:  # Spark does not wait for tasks at work when a write has failed
            for partition in range(PARTITIONS):
                _wait_for(self._mark("staged", partition))
        raise OSError(f"attempt {attempt} fails")

    def _is_first(self) -> bool:
        """Whether nothing has happened yet; attempts of one task may run at once."""
        try:
            self._marker.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class FaultyTest(RangeTest):
    """A winner test whose range 1 has a fault once it is tested: it fails, its executor dies, or it has a
    twin."""

    fault: str = ""
    marker: str = ""

    def run(self, number: int) -> PlanShare:
        share = super().run(number)
        context, marker = TaskContext.get(), Path(self.marker)
        assert context is not None
        if number != 1:
            return share
        if self.fault == HAS_A_TWIN:
            if context.attemptNumber():
                marker.touch()
            _wait_for(marker)
        elif not marker.exists():
            marker.touch()
            if self.fault == EXECUTOR_DIES:
                os.kill(driver_process()[0], signal.SIGKILL)
            raise OSError("the range fails")
        return share


def _tell(path: Path, text: str) -> None:
    """Makes a file that others wait for; they find it whole."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text)
    part.rename(path)


def _wait_for(path: Path) -> None:
    """Another process of the cluster makes the file."""
    deadline = time.monotonic() + _SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not come")
        time.sleep(0.05)
