"""A table at a server."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import pyarrow as pa

from seqstore.store.load.load import LoadResult
from seqstore.store.load.write_options import WriteArguments, WriteOptions
from seqstore.store.read.snapshot import as_table
from seqstore.store.remote.connection import Connection
from seqstore.store.remote.handles import Handle, arguments_of, remote
from seqstore.store.remote.outcomes import new_label, run_labelled, run_load
from seqstore.store.remote.remote_load import RemoteLoad
from seqstore.store.remote.remote_merge import RemoteMerge
from seqstore.store.remote.remote_snapshot import RemoteSnapshot
from seqstore.store.remote.remote_tasks import RemoteChangeTask, RemoteScanTask, RemoteWriteTask, TaskPlace
from seqstore.store.remote.sent_rows import parts_of
from seqstore.store.runtime.html_table import html_table
from seqstore.store.table import Table
from seqstore.store.transaction.transaction_options import DmlArguments, DmlResult


@remote("Table")
class RemoteTable(Handle, Table):
    """A table of a store elsewhere; made by `RemoteStore.table` and `RemoteStore.create_table`."""

    def __init__(self, connection: Connection, made: Mapping[str, Any]) -> None:
        self.connection = connection
        self.name: str = made["name"]
        self.id: int = made["id"]
        self.database_id: int = made["database_id"]
        self.address = [self.name, self.id]

    @property
    def database(self) -> str:
        """Name of its database."""
        return self.name.partition(".")[0]

    def scan(self, *given: Any, **named: Any) -> pa.RecordBatchReader:
        """Returns the rows at a version, the newest when None; see `Snapshot.scan`."""
        return self.connection.reader(self.request("scan", arguments_of(Table.scan, *given, **named)))

    def get(self, *given: Any, **named: Any) -> pa.Table:
        """Returns the rows of some keys at a version, the newest when None; see `Snapshot.get`."""
        arguments = arguments_of(Table.get, *given, **named)
        arguments["keys"] = as_table(arguments["keys"])
        return self.connection.reader(self.request("get", arguments)).read_all()

    def changes(self, first: int, last: int | None = None) -> pa.RecordBatchReader:
        """Returns the changes of versions `first` to `last`; see `Table.changes`."""
        return self.connection.reader(self.request("changes", {"first": first, "last": last}))

    def scan_tasks(self, *given: Any, **named: Any) -> list[RemoteScanTask]:  # type: ignore[override]
        """Cuts a scan into shares that other processes read; see `VersionedTable.scan_tasks`.

        The version has to be named: all shares are of one.
        """
        arguments = arguments_of(Table.scan_tasks, *given, **named)
        if arguments.get("version") is None:
            arguments["version"] = self.version
        digests: list[str] = self.call("scan_shares", arguments)
        return [
            RemoteScanTask(self._place, arguments, number, digest) for number, digest in enumerate(digests)
        ]

    def change_task(self, first: int, last: int) -> RemoteChangeTask:
        """Returns the changes of versions `first` to `last` as a value that another process reads."""
        return RemoteChangeTask(self._place, first, last)

    def write_task(  # type: ignore[override]
        self,
        owner: object = None,
        options: WriteOptions | None = None,
        *,
        supplied: str | None = None,
        purpose: str = "",
        **arguments: Unpack[WriteArguments],
    ) -> RemoteWriteTask:
        """Begins a load whose rows other processes send; see `Table.write_task`.

        It ends with `end_stagings`, or when none of them was connected for `flight_staging_seconds`.

        Args:
            owner: is without effect, for the server owns the files.
        """
        given = {
            "options": replace(options or WriteOptions(), **arguments),
            "supplied": supplied,
            "purpose": purpose,
        }
        return RemoteWriteTask(self._place, self.call("begin_staging", given))

    def begun_stagings(self, newest: str) -> list[str]:
        """Returns a load that tasks stage and the earlier ones of its purpose, by their tokens."""
        found: list[str] = self.call("begun_stagings", {"staging": newest})
        return found

    def end_stagings(self, loads: Sequence[str]) -> list[str]:
        """Ends loads that tasks stage, published or not; returns the names of the removed files."""
        removed: list[str] = self.call("end_stagings", {"stagings": list(loads)})
        return removed

    @property
    def _place(self) -> TaskPlace:
        return TaskPlace(self.connection.task_address(), self.name, self.id, self.connection.retry_seconds)

    def snapshot(self, version: int | None = None) -> RemoteSnapshot:
        """Opens a version for reading, the newest when None; see `Table.snapshot`.

        The server holds the version for as long as the client renews its session.
        """
        return RemoteSnapshot(self.connection, self.made_by("snapshot", {"version": version}))

    def upsert(
        self, data: Any, options: WriteOptions | None = None, **arguments: Unpack[WriteArguments]
    ) -> LoadResult:
        """Loads rows; see `Table.upsert`. Rows of many bytes travel in several requests, as one load."""
        options = _labelled(replace(options or WriteOptions(), **arguments))
        parts = parts_of(data)
        first, second = next(parts), next(parts, None)
        if second is not None:
            with self.begin_load(options) as load:
                for part in itertools.chain((first, second), parts):
                    load.write(part)
                return load.commit(max_filter_ratio=options.max_filter_ratio)
        return run_load(self, self.request("upsert", {"options": options}, first), str(options.label))

    def delete(
        self,
        keys: Any,
        *,
        label: str | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> LoadResult:
        """Deletes rows by key; see `Table.delete`."""
        label = new_label() if label is None else label
        arguments = {"label": label, "txn_app_id": txn_app_id, "txn_version": txn_version}
        return run_load(self, self.request("delete", arguments, as_table(keys)), label)

    def begin_load(
        self, options: WriteOptions | None = None, **arguments: Unpack[WriteArguments]
    ) -> RemoteLoad:
        """Starts a load of several batches; see `Table.begin_load`. It ends with the client's session."""
        options = _labelled(replace(options or WriteOptions(), **arguments))
        return RemoteLoad(self.connection, self.made_by("begin_load", {"options": options}), self)

    def update(
        self, assignments: Mapping[str, Any], where: Any = None, **arguments: Unpack[DmlArguments]
    ) -> DmlResult:
        """Changes columns of the rows that satisfy a condition; see `Table.update`."""
        return self._dml("update", {"assignments": dict(assignments), "where": where, **arguments})

    def delete_where(self, where: Any = None, **arguments: Unpack[DmlArguments]) -> DmlResult:
        """Deletes the rows that satisfy a condition; see `Table.delete_where`."""
        return self._dml("delete_where", {"where": where, **arguments})

    def _dml(self, name: str, arguments: Mapping[str, Any]) -> DmlResult:
        return run_labelled(self, name, arguments, prefix="txn_")

    def merge(
        self, source: Any, on: str | Sequence[str], *, target_alias: str = "t", source_alias: str = "s"
    ) -> RemoteMerge:
        """Builds a MERGE of some rows into the table; see `Table.merge`. The rows travel as one message."""
        return RemoteMerge(self, source, on, target_alias=target_alias, source_alias=source_alias)

    def outcome(self, label: str) -> LoadResult | None:
        """Returns the outcome of a load that has this label and is visible; None where there is none.

        Of the counts it has those that the version keeps.
        """
        found: LoadResult | None = self.call("outcome", {"label": label})
        return found

    def _repr_html_(self) -> str:
        """Shows the columns in a notebook, below the number of rows and the version."""
        with self.snapshot() as seen:
            key = set(seen.schema.declared_key)
            rows = (
                (column.name, column.type.sql, "key" if column.name in key else "", column.comment)
                for column in seen.schema.columns
            )
            caption = f"{self.name}: {seen.count():,} rows, version {seen.version}"
            return html_table(caption, ("column", "type", "key", "comment"), rows)


def _labelled(options: WriteOptions) -> WriteOptions:
    """Returns options with a label, by which a lost reply is met."""
    return options if options.label is not None else replace(options, label=new_label(options.label_prefix))
