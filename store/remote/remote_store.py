"""The store of a client: databases, tables, transactions and sessions at a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from seqstore.store.remote.address import Address
from seqstore.store.remote.connection import RETRY_SECONDS, Connection
from seqstore.store.remote.handles import Handle, refusal, remote
from seqstore.store.remote.remote_session import RemoteSession
from seqstore.store.remote.remote_snapshot import RemoteSnapshot, RemoteStoreSnapshot
from seqstore.store.remote.remote_table import RemoteTable
from seqstore.store.remote.remote_transaction import RemoteTransaction
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.store import Store
from seqstore.store.transaction.transaction import Transaction, TransactionResult
from seqstore.store.transaction.transaction_options import TransactionArguments, TransactionOptions

T = TypeVar("T")


@remote("Store")
class RemoteStore(Handle, Store):
    """A store elsewhere; made by `Store.connect`.

    Attributes:
        url: of its server.
        session_type: of the sessions for SQL, which `Session(store)` makes.
    """

    session_type = RemoteSession

    def __init__(self, address: Address, retry_seconds: float = RETRY_SECONDS) -> None:
        self.url = address.url
        self.connection = Connection(address, retry_seconds)

    def table(self, name: str) -> RemoteTable:
        """Returns the handle of a table; see `Store.table`."""
        return RemoteTable(self.connection, self.made_by("table", {"name": name}))

    def create_table(
        self,
        name: str,
        schema: TableSchema,
        *,
        if_not_exists: bool = False,
        filler: tuple[int, int] | None = None,
    ) -> RemoteTable:
        """Makes an empty table; see `Store.create_table`."""
        if filler is not None:
            raise refusal(
                "Store", "create_table(filler=..)", "the process of a filled table is one of its own machine"
            )
        given = {"name": name, "schema": schema, "if_not_exists": if_not_exists}
        return RemoteTable(self.connection, self.made_by("create_table", given))

    def upsert(self, name: str, data: Any, **options: Any) -> Any:
        """Upserts rows into a table by name, as `Table.upsert` does."""
        return self.table(name).upsert(data, **options)

    def scan(self, name: str, *given: Any, **named: Any) -> Any:
        """Scans a table by name, as `Table.scan` does."""
        return self.table(name).scan(*given, **named)

    def get(self, name: str, *given: Any, **named: Any) -> Any:
        """Looks up rows of a table by name, as `Table.get` does."""
        return self.table(name).get(*given, **named)

    @overload
    def snapshot(self, name: str, version: int | None = None) -> RemoteSnapshot: ...

    @overload
    def snapshot(self) -> RemoteStoreSnapshot: ...

    def snapshot(
        self, name: str | None = None, version: int | None = None
    ) -> RemoteSnapshot | RemoteStoreSnapshot:
        """Opens a table for reading, or all tables as of one moment; see `Store.snapshot`."""
        if name is not None:
            return self.table(name).snapshot(version)
        return RemoteStoreSnapshot(self.connection, self.made_by("snapshot"))

    def transaction(
        self, options: TransactionOptions | None = None, **arguments: Unpack[TransactionArguments]
    ) -> RemoteTransaction:
        """Starts a transaction; see `Store.transaction`."""
        options = TransactionOptions.of(options, **arguments)
        return RemoteTransaction(self.connection, self.made_by("transaction", {"options": options}))

    def run_transaction(
        self,
        work: Callable[[Transaction], T],
        options: TransactionOptions | None = None,
        *,
        retries: int = 0,
        **arguments: Unpack[TransactionArguments],
    ) -> tuple[T, TransactionResult]:
        """Runs a function in a transaction, again after a conflict; see `Store.run_transaction`."""
        return Store.run_transaction(self, work, options, retries=retries, **arguments)

    def close(self) -> None:
        """Ends the session at the server: what it has begun there is rolled back."""
        self.connection.close()

    def __enter__(self) -> RemoteStore:
        return self


def connect(
    url: str,
    *,
    user: str = "root",
    password: str = "",
    certificates: str | Path | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> RemoteStore:
    """Connects to a store elsewhere; see `Store.connect`."""
    return RemoteStore(Address.of(url, user, password, certificates), retry_seconds)
