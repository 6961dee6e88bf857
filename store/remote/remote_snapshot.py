"""Versions that a server holds for a client, for as long as the client renews its session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from seqstore.store.read.snapshot import Snapshot, as_table
from seqstore.store.read.store_snapshot import StoreSnapshot
from seqstore.store.remote.connection import Connection
from seqstore.store.remote.handles import Handle, arguments_of, remote
from seqstore.store.schema.table_schema import TableSchema


@remote("Snapshot")
class RemoteSnapshot(Handle, Snapshot):
    """A version of a table at a server; made by `RemoteTable.snapshot`.

    Args:
        owner: the handle whose end would end the snapshot at the server: it lives as long as this one.
    """

    def __init__(self, connection: Connection, made: Mapping[str, Any], owner: Handle | None = None) -> None:
        self.bind(connection, made)
        self._owner = owner
        self.schema: TableSchema = made["schema"]
        self._version: int = made["version"]
        self._is_released = False

    @property
    def version(self) -> int:
        """Its table version."""
        return self._version

    def scan(self, *given: Any, **named: Any) -> pa.RecordBatchReader:
        """Returns rows as record batches, in no promised order; see `Snapshot.scan`."""
        return self.connection.reader(self.request("scan", arguments_of(Snapshot.scan, *given, **named)))

    def get(self, *given: Any, **named: Any) -> pa.Table:
        """Returns the rows of some keys; see `Snapshot.get`."""
        arguments = arguments_of(Snapshot.get, *given, **named)
        arguments["keys"] = as_table(arguments["keys"])
        return self.connection.reader(self.request("get", arguments)).read_all()

    def close(self) -> None:
        """Releases the version; open readers of the snapshot keep it until they are read or dropped."""
        if not self._is_released and self.link is not None:
            self._is_released = True
            self.link.release(self.address)

    def __enter__(self) -> RemoteSnapshot:
        return self


@remote("StoreSnapshot")
class RemoteStoreSnapshot(Handle, StoreSnapshot):
    """All tables of a store elsewhere as of one moment; made by `RemoteStore.snapshot`.

    Its tables refer to it, so it refers to them weakly: the garbage collector would release a cycle late.
    """

    def __init__(self, connection: Connection, made: Mapping[str, Any]) -> None:
        self.bind(connection, made)
        self._tables: WeakValueDictionary[str, RemoteSnapshot] = WeakValueDictionary()

    def table(self, name: str) -> RemoteSnapshot:
        """Returns a table as of the moment; see `StoreSnapshot.table`."""
        found = self._tables.get(name)
        if found is None:
            found = RemoteSnapshot(self.connection, self.made_by("table", {"name": name}), self)
            self._tables[name] = found
        return found

    def close(self) -> None:
        """Releases the moment; open readers of rows keep the versions that they read."""
        for each in list(self._tables.values()):
            each.close()
        if self.link is not None:
            self.link.release(self.address)

    def __enter__(self) -> RemoteStoreSnapshot:
        return self
