"""Tasks of a distributed job on a table elsewhere, such as a Spark job's: values that can be pickled.

They stand for `read.scan_task.ScanTask` and `load.write_task.WriteTask`, and have their calls. A task carries
the token of the login of the process that planned it, never a password, and has a session of its own while
it runs. Its rows travel through the server, which alone opens files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from seqstore.store.errors import StoreError
from seqstore.store.remote.address import Address
from seqstore.store.remote.connection import RETRY_SECONDS, Connection, Request
from seqstore.store.remote.handles import Handle
from seqstore.store.remote.sent_rows import parts_of


@dataclass(frozen=True)
class TaskPlace:
    """The table of a job's tasks.

    Attributes:
        address: of the server, with a token.
        name, id: of the table.
        retry_seconds: how long a lost server is tried again, from the begin of a task on.
    """

    address: Address
    name: str
    id: int
    retry_seconds: float = RETRY_SECONDS

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Yields a connection for one task."""
        connection = self._new_connection()
        try:
            yield connection
        finally:
            connection.close()

    def request(self, name: str, arguments: Mapping[str, Any]) -> Request:
        """Returns the request of a call of the table."""
        return Request("Table", name, [self.name, self.id], arguments)

    def read(self, name: str, arguments: Mapping[str, Any]) -> pa.RecordBatchReader:
        """Returns the rows of a call of the table; the connection is closed behind the last one.

        Raises:
            UnavailableError: the server cannot be reached, or is lost while the rows are read.
        """
        connection = self._new_connection()
        try:
            reader = connection.reader(self.request(name, arguments))
        except BaseException:
            connection.close()
            raise

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                yield from reader
            finally:
                reader.close()
                connection.close()

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    def _new_connection(self) -> Connection:
        return Connection(self.address, self.retry_seconds)


@dataclass(frozen=True)
class RemoteScanTask:
    """A share of the rows of one version; made by `RemoteTable.scan_tasks`.

    Attributes:
        arguments: of the scan, which names its version.
        number: of the share, from 0.
        digest: of what it is made of: another cut of the version is refused.
    """

    place: TaskPlace
    arguments: Mapping[str, Any]
    number: int
    digest: str

    def read(self) -> pa.RecordBatchReader:
        """Reads the rows of this share.

        Raises:
            VersionExpiredError: the version cannot be read any more.
            UnavailableError: the server cannot be reached, or is lost while the rows are read.
        """
        return self.place.read("scan_share", {**self.arguments, "number": self.number, "digest": self.digest})


@dataclass(frozen=True)
class RemoteChangeTask:
    """The changes of some versions of a table; made by `RemoteTable.change_task`."""

    place: TaskPlace
    first: int
    last: int

    def read(self) -> pa.RecordBatchReader:
        """Reads the changes; see `Table.changes`."""
        return self.place.read("changes", {"first": self.first, "last": self.last})


@dataclass(frozen=True)
class RemoteRows:
    """What a task has staged; `RemoteLoad.adopt` takes it over.

    Attributes:
        load: the token of the staged load; None where the task had no rows.
        parts: in the order of the task's rows.
    """

    load: str | None = None
    parts: tuple[int, ...] = ()


class RemoteStaging(Handle):
    """A staged load, for one process of its job; while it is held, the load is not idle."""

    kind = "Staging"

    def __init__(self, connection: Connection, made: Mapping[str, Any]) -> None:
        self.bind(connection, made)

    def check_columns(self, columns: pa.Schema) -> None:
        """Checks that rows with such columns would fit; InvalidInputError when they do not."""
        self.call("check_columns", {"data": columns})

    def write(self, data: Any) -> Iterator[int]:
        """Stages rows and yields the numbers of their parts, which the server counts."""
        for part in parts_of(data):
            yield self.connection.run(self.request("write", {}, part))


@dataclass(frozen=True)
class RemoteWriteTask:
    """Has the server check and stage a share of a load's rows; made by `RemoteTable.write_task`.

    Attributes:
        load: its token.
    """

    place: TaskPlace
    load: str

    def begin(self) -> None:
        """Lets the task be run; the server began the load as the task was made."""

    def check_columns(self, data: pa.Table) -> None:
        """Checks that rows with such columns would fit.

        Raises:
            InvalidInputError: they do not; the load has ended.
        """
        with self._staging() as staging:
            try:
                staging.check_columns(data.schema)
            except StoreError:
                staging.connection.run(self.place.request("end_stagings", {"stagings": [self.load]}))
                raise

    def run(self, data: Any) -> RemoteRows:
        """Stages rows; what a failed run has sent belongs to no share, and goes with the load.

        Args:
            data: as for `Table.upsert`.

        Raises:
            InvalidInputError: the columns do not fit the table.
            ClosedError: the load has ended.
        """
        with self._staging() as staging:
            return RemoteRows(self.load, tuple(staging.write(data)))

    @contextmanager
    def _staging(self) -> Iterator[RemoteStaging]:
        with self.place.connected() as connection:
            made = connection.run(self.place.request("staging", {"staging": self.load}))
            yield RemoteStaging(connection, made)
